"""From the CSV to the tables of the documentation."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from benchmarks import pages
from experiments.msda import mix_tables
from experiments.msda.problems import SETS

SOURCE = "source classifier, the same rows"


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
    targets = {s: len(values(rows, "offline", set=s, method="source-only LR")) for s in sets}

    def line(name, figure, **where):
        cells = [cell(values(rows, figure, set=s, **where), targets[s]) for s in sets]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")

    rivals = ("source-only LR", "z-score + LR", "source MixtureClassifier", "OT-DA (POT)")
    skada = sorted({r["method"] for r in rows if r["part"] == "skada"})
    for name in (*rivals, *skada):
        line(name, "offline", method=name)
    line("**DaDiL, offline**", "offline", method="DaDiL")
    line("DaDiL, offline, held-out rows", "held_out", method="DaDiL")
    line("DaDiL, offline, all target rows", "offline", method="DaDiL, all target rows")
    for name, method in (("OnlineDaDiL", "OnlineDaDiL"), ("paper's configuration", "paper")):
        for order in ("shuffled", "runs", "class"):
            for figure, words in (
                ("source_prequential", SOURCE), ("prequential", "prequential"),
                ("end", "end of stream"), ("refined", "refined"),
            ):  # fmt: skip
                line(f"{name}, {order}: {words}", figure, method=method, order=order)
            if method == "OnlineDaDiL":
                line(
                    f"{name}, {order}: refined, held-out", "held_out_refined", method=method, order=order
                )
    line("target-trained LR", "offline", method="target-trained LR")
    return "\n".join(lines)


def ablation_table(rows):
    """One line a switch: end of stream and prequential, shuffled and class by class."""
    sets = sets_of(rows)
    lines = ["| switched off | order | " + " | ".join(f"{s}: preq. / end" for s in sets) + " |"]
    lines.append("|---|---|" + "---|" * len(sets))
    names = list(dict.fromkeys(r["method"] for r in rows if r["part"] == "ablation"))
    figures = dict.fromkeys(names, ("prequential", "end"))
    if names:  # the source classifier is the same whatever is switched off
        figures = {SOURCE: ("source_prequential", "source_end")} | figures
    for name, both in figures.items():
        for order in ("shuffled", "class"):
            cells = []
            for s in sets:
                method = names[0] if name == SOURCE else name
                pair = [
                    values(rows, figure, set=s, method=method, order=order, part="ablation")
                    for figure in both
                ]
                means = [f"{100 * np.mean(list(v.values())):.1f}" if v else "–" for v in pair]
                cells.append(" / ".join(means))
            lines.append(f"| {name.removeprefix('ablation: ')} | {order} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def harm_table(rows):
    """Where adapting was worse than not adapting, target by target."""
    source = values(rows, "offline", method="source-only LR")
    ours = values(rows, "offline", method="DaDiL")
    both = [k for k in ours if k in source]
    gaps = {k: 100 * (ours[k] - source[k]) for k in both}
    harmed = {k: g for k, g in gaps.items() if g < -2}
    worst, mean = min(gaps.values(), default=0.0), np.mean(list(gaps.values()) or [0.0])
    first = (
        f"Offline, {len(both)} target domains: {len(harmed)} more than 2 points below source-only LR; "
        f"worst {worst:+.1f}, mean {mean:+.1f}."
    )
    lines = [first]
    for order in ("shuffled", "runs", "class"):
        mine = values(rows, "prequential", method="OnlineDaDiL", order=order)
        base = values(rows, "source_prequential", method="OnlineDaDiL", order=order)
        gaps = {k: 100 * (mine[k] - base[k]) for k in mine}
        if not gaps:
            continue
        bad = [k for k, g in gaps.items() if g < -1]
        means = {
            s: np.mean([g for k, g in gaps.items() if k[0] == s])
            for s in sets_of(rows)
            if any(k[0] == s for k in gaps)
        }
        words = ", ".join(f"{s} {g:+.1f}" for s, g in means.items())
        lines.append(
            f"Prequential, {order}, against the source classifier on the same rows: {words}; "
            f"{len(bad)} of {len(gaps)} targets more than 1 point below, "
            f"worst {min(gaps.values()):+.1f}."
        )
    return "\n".join(f"- {line}" for line in (*lines, *mix_tables.harm_words(rows)))


def seconds_table(rows):
    """Seconds of fitting and of a batch."""
    sets = sets_of(rows)
    lines = ["| | " + " | ".join(sets) + " |", "|---|" + "---|" * len(sets)]
    for name, figure, method, scale, unit in (
        ("DaDiL.fit, s", "seconds", "DaDiL", 1, ".1f"),
        ("OnlineDaDiL.fit, s", "seconds", "OnlineDaDiL", 1, ".1f"),
        ("OnlineDaDiL.partial_fit of 32 rows, ms", "seconds_a_batch", "OnlineDaDiL", 1000, ".0f"),
    ):
        cells = []
        for s in sets:
            found = list(values(rows, figure, set=s, method=method).values())
            cells.append(f"{scale * np.mean(found):{unit}}" if found else "–")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def short_table(rows):
    """The table of the README: streams in runs of a class."""
    heads = {
        "affine": "synthetic (affine)", "cstr7": "reactor (cstr7)",
        "gas_drift8": "gas sensors (gas_drift8)", "mgr": "music (mgr)",
    }  # fmt: skip
    lines = ["| | " + " | ".join(heads.values()) + " |", "|---|" + "---|" * len(heads)]
    stream = {"method": "OnlineDaDiL", "order": "runs"}
    for name, figure, where in (
        ("source-only logistic regression", "offline", {"method": "source-only LR"}),
        ("standardised per domain + logistic regression", "offline", {"method": "z-score + LR"}),
        ("optimal transport (POT)", "offline", {"method": "OT-DA (POT)"}),
        ("source classifier, while the stream flows", "source_prequential", stream),
        ("**OnlineDaDiL**, while the stream flows", "prequential", stream),
        ("**OnlineDaDiL**, after the stream", "refined", stream),
        ("**DaDiL**, all target rows at hand", "offline", {"method": "DaDiL, all target rows"}),
        ("trained on target labels", "offline", {"method": "target-trained LR"}),
    ):  # fmt: skip
        cells = []
        for s in heads:
            found = list(values(rows, figure, set=s, **where).values())
            cells.append(f"{np.mean([100 * v for v in found]):.1f}" if found else "–")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


TABLES = (
    ("docs/adaptation.md", "accuracy", accuracy_table),
    ("docs/adaptation.md", "harm", harm_table),
    ("docs/adaptation.md", "seconds", seconds_table),
    ("docs/adaptation.md", "ablation", ablation_table),
    ("docs/adaptation.md", "mixes shuffled", lambda rows: mix_tables.mixes_table(rows, "shuffled")),
    ("docs/adaptation.md", "mixes class", lambda rows: mix_tables.mixes_table(rows, "class")),
    ("docs/adaptation.md", "calibration", mix_tables.calibration_table),
    ("docs/adaptation.md", "spikes", mix_tables.spikes_table),
    ("docs/adaptation.md", "prior", mix_tables.prior_table),
    ("README.md", "adaptation", short_table),
)


def write_pages(path):
    """Make the tables of the documentation anew."""
    rows = read(path)
    for page, name, make in TABLES:
        pages.fill(page, name, make(rows))
