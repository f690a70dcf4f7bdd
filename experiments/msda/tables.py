"""From the CSV to the tables of the documentation."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks import pages
from experiments import harm
from experiments.mixes import ORDERS
from experiments.msda import mix_tables
from experiments.msda.methods import PICKED
from experiments.msda.plain import MEMBERS
from experiments.msda.problems import SETS

FIGURES = (("flowing", "while it flows"), ("end", "at the end"))
#: Methods that follow a stream, in words.
ONLINE = {
    PICKED: "picked plain classifier",
    "ours": "**OnlineDaDiL**",
    "ours, no label shift": "OnlineDaDiL, label_shift=False",
    "ours, linear": 'OnlineDaDiL, classifier="linear"',
    "paper": "OnlineDaDiL.paper()",
}


def read(path):
    if not Path(path).exists():
        return []
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def sets_of(rows):
    """Return the sets of which there are results."""
    held = {r["set"] for r in rows}
    return [s for s in SETS if s in held]


def values(rows, figure, **where):
    """Return a figure by target (mean over seeds), for rows that match: without a mix, those as is."""
    where = {"mix": "as is"} | where
    found = {}
    for r in rows:
        if all(r[k] == v for k, v in where.items()) and r[figure] != "":
            found.setdefault((r["set"], r["target"], r["split"]), []).append(float(r[figure]))
    return {key: float(np.mean(v)) for key, v in found.items()}


def cell(found, expected):
    """Mean ± std; where a method failed on some targets, on how many it did not."""
    if not found:
        return "–"
    numbers = 100 * np.array(list(found.values()))
    words = f"{numbers.mean():.1f} ± {numbers.std():.1f}"
    return words if len(found) >= expected else f"{words} ({len(found)} of {expected})"


def accuracy_table(rows):
    """One line a method: mean ± std over the targets of each set, in percent."""
    sets = sets_of(rows)
    lines = ["| method | " + " | ".join(sets) + " |", "|---|" + "---|" * len(sets)]
    targets = {s: len({(r["target"], r["split"]) for r in rows if r["set"] == s}) for s in sets}

    def line(name, figure, **where):
        cells = [cell(values(rows, figure, set=s, **where), targets[s]) for s in sets]
        if any(one != "–" for one in cells):
            lines.append(f"| {name} | " + " | ".join(cells) + " |")

    rivals = ("source-only LR", "z-score + LR", "source MixtureClassifier", "OT-DA (POT)")
    skada = sorted({r["method"] for r in rows if r["part"] == "skada"})
    for name in (*rivals, *skada):
        line(name, "offline", method=name)
    line("**DaDiL, offline**", "offline", method="DaDiL")
    line("DaDiL, offline, held-out rows", "held_out", method="DaDiL")
    line("DaDiL, offline, all target rows", "offline", method="DaDiL, all target rows")
    for order in ORDERS:
        line(f"OnlineDaDiL, {order}: not adapting", "not_adapting", method="ours", order=order)
        for method, words in ONLINE.items():
            for figure, when in FIGURES:
                line(f"{words}, {order}: {when}", figure, method=method, order=order)
    line("target-trained LR", "offline", method="target-trained LR")
    return "\n".join(lines)


def plain_table(rows):
    """One line a plain classifier: accuracy at the end of shuffled streams, and how often picked."""
    sets = sets_of(rows)
    where = {"order": "shuffled", "part": "plain"}
    lines = ["| classifier | " + " | ".join(sets) + " | picked |", "|---|" + "---:|" * (len(sets) + 1)]
    streams = [r for r in rows if r["method"] == PICKED and r["mix"] == "as is"]
    picked = Counter({(r["set"], r["target"], r["split"]): r["detail"] for r in streams}.values())
    for member in MEMBERS:
        name = ", ".join(member)
        found = [values(rows, "end", set=s, method=f"plain: {name}", **where) for s in sets]
        if any(found):
            means = [f"{100 * np.mean(list(v.values())):.1f}" if v else "–" for v in found]
            lines.append(f"| {name} | " + " | ".join(means) + f" | {picked[name]} |")
    return "\n".join(lines)


def harm_table(rows):
    """Where adapting was worse than not adapting, and than the plain classifier that was picked."""
    lines = []
    for order in ORDERS:
        for figure, when in FIGURES:
            ours = values(rows, figure, method="ours", order=order)
            for rival, words in (
                (values(rows, "not_adapting", method="ours", order=order), "not adapting"),
                (values(rows, figure, method=PICKED, order=order), "the picked plain classifier"),
            ):
                gaps = {k: 100 * (ours[k] - rival[k]) for k in ours if k in rival}
                if gaps:
                    lines.append(f"{when}, {order}, against {words}: {_gap_words(rows, gaps)}")
    return "\n".join(f"- {line}" for line in (*lines, *mix_tables.harm_words(rows)))


def _gap_words(rows, gaps):
    means = {s: [g for k, g in gaps.items() if k[0] == s] for s in sets_of(rows)}
    words = ", ".join(f"{s} {np.mean(found):+.1f}" for s, found in means.items() if found)
    harmed = sum(gap < -harm.HARMED for gap in gaps.values())
    return (
        f"{words}; {harmed} of {len(gaps)} targets more than {harm.HARMED:.0f} points below, "
        f"worst {min(gaps.values()):+.1f}."
    )


def seconds_table(rows):
    """Seconds of fitting and of a batch."""
    sets = sets_of(rows)
    lines = ["| | " + " | ".join(sets) + " |", "|---|" + "---|" * len(sets)]
    for name, figure, method, scale, unit in (
        ("DaDiL.fit, s", "seconds", "DaDiL", 1, ".1f"),
        ("OnlineDaDiL.fit, s", "seconds", "ours", 1, ".1f"),
        ("OnlineDaDiL.partial_fit of 32 rows, ms", "seconds_a_batch", "ours", 1000, ".0f"),
    ):
        cells = []
        for s in sets:
            found = list(values(rows, figure, set=s, method=method).values())
            cells.append(f"{scale * np.mean(found):{unit}}" if found else "–")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def short_table(rows):
    """The table of the README: shuffled streams, of the sets on which ours was run."""
    heads = {
        "affine": "synthetic (affine)", "cstr7": "reactor (cstr7)",
        "gas_drift8": "gas sensors (gas_drift8)", "mgr": "music (mgr)", "digits4": "digits (digits4)",
        "cwru4": "bearings (cwru4)",
    }  # fmt: skip
    ours, picked = ({"method": name, "order": "shuffled"} for name in ("ours", PICKED))
    heads = {s: words for s, words in heads.items() if values(rows, "end", set=s, **ours)}
    lines = ["| | " + " | ".join(heads.values()) + " |", "|---|" + "---|" * len(heads)]
    for name, figure, where in (
        ("optimal transport (POT)", "offline", {"method": "OT-DA (POT)"}),
        ("plain classifier, picked by leave-one-source-out", "end", picked),
        ("not adapting", "not_adapting", ours),
        ("**OnlineDaDiL**, while the stream flows", "flowing", ours),
        ("**OnlineDaDiL**, at its end", "end", ours),
        ("**DaDiL**, all target rows at hand", "offline", {"method": "DaDiL, all target rows"}),
        ("trained on target labels", "offline", {"method": "target-trained LR"}),
    ):
        cells = []
        for s in heads:
            found = list(values(rows, figure, set=s, **where).values())
            cells.append(f"{np.mean([100 * v for v in found]):.1f}" if found else "–")
        if any(one != "–" for one in cells):
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


TABLES = (
    ("docs/method/adaptation.md", "accuracy", accuracy_table),
    ("docs/method/adaptation.md", "harm", harm_table),
    ("docs/method/adaptation.md", "seconds", seconds_table),
    (
        "docs/method/adaptation.md",
        "mixes shuffled",
        lambda rows: mix_tables.mixes_table(rows, "shuffled"),
    ),
    ("docs/method/adaptation.md", "mixes class", lambda rows: mix_tables.mixes_table(rows, "class")),
    ("docs/method/adaptation.md", "calibration", mix_tables.calibration_table),
    ("docs/method/adaptation.md", "spikes", mix_tables.glitches_table),
    ("docs/method/adaptation.md", "prior", mix_tables.prior_table),
    ("README.md", "adaptation", short_table),
)


def write_pages(path):
    """Make the tables of the documentation anew."""
    rows = read(path)
    for page, name, make in TABLES:
        pages.fill(page, name, make(rows))
