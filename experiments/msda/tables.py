"""From the CSV to the tables of the documentation."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from benchmarks import pages
from experiments import harm
from experiments.mixes import ORDERS
from experiments.msda import mix_tables
from experiments.msda.methods import PICKED
from experiments.msda.problems import SETS

FIGURES = (("flowing", "while it flows"), ("end", "at the end"))
#: Methods that follow a stream, in words.
ONLINE = {
    PICKED: "picked plain classifier",
    "ours": "**OnlineDaDiL**",
    "ours, no label shift": "OnlineDaDiL, label_shift=False",
    "ours, linear": 'OnlineDaDiL, classifier="linear"',
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
    words = f"{numbers.mean():.1f}\u00a0±\u00a0{numbers.std():.1f}"  # on one line
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
    for order in [one for one in ORDERS if values(rows, "end", method="ours", order=one)]:
        line(f"OnlineDaDiL, {order}: not adapting", "not_adapting", method="ours", order=order)
        for method, words in ONLINE.items():
            for figure, when in FIGURES:
                line(f"{words}, {order}: {when}", figure, method=method, order=order)
    line("target-trained LR", "offline", method="target-trained LR")
    return "\n".join(lines)


def harm_table(rows):
    """Points above not adapting and above the picked classifier, and how many targets lose."""
    sets, lines = sets_of(rows), []
    for order in ORDERS:
        for figure, when in FIGURES:
            ours = values(rows, figure, method="ours", order=order)
            for rival, words in (
                (values(rows, "not_adapting", method="ours", order=order), "not adapting"),
                (values(rows, figure, method=PICKED, order=order), "the picked classifier"),
            ):
                gaps = {k: 100 * (ours[k] - rival[k]) for k in ours if k in rival}
                if gaps:
                    lines.append((f"{when}, {order}, against {words}", *_gap_cells(sets, gaps)))
    head = ("", *sets, "targets that lose more than 2 points", "worst")
    return mix_tables.table(head, lines)


def _gap_cells(sets, gaps):
    means = [[gap for key, gap in gaps.items() if key[0] == s] for s in sets]
    harmed = sum(gap < -harm.HARMED for gap in gaps.values())
    cells = [f"{np.mean(found):+.1f}" if found else "–" for found in means]
    return *cells, f"{harmed} of {len(gaps)}", f"{min(gaps.values()):+.1f}"


def harm_list(rows):
    """Sentences about all streams, also with other class proportions."""
    return "\n".join(f"- {line}" for line in mix_tables.harm_words(rows))


PAGE = "docs/benchmarks/accuracy.md"
TABLES = (
    (PAGE, "accuracy", accuracy_table),
    (PAGE, "gains", harm_table),
    (PAGE, "harm", harm_list),
    (PAGE, "mixes shuffled", lambda rows: mix_tables.mixes_table(rows, "shuffled")),
    ("docs/benchmarks/trust.md", "calibration", mix_tables.calibration_table),
)


def write_pages(path):
    """Write the tables of the documentation."""
    rows = read(path)
    for page, name, make in TABLES:
        pages.fill(page, name, make(rows))
