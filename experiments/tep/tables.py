"""From the CSV to the tables of the documentation."""

from __future__ import annotations

import numpy as np

from benchmarks import pages
from experiments.msda.tables import read
from experiments.tep import mix_tables

TARGETS = tuple(str(mode) for mode in range(1, 7))
ORDERS = ("shuffled", "runs", "plant", "class")
RIVALS = (
    "source-only LR", "encoder's head", "source MixtureClassifier", "per-domain standardisation + LR",
    "OT-DA (POT)",
)  # fmt: skip


def values(rows, figure, **where):
    """Return a figure by target: one number a fold, for rows that match: without a mix, those as is."""
    where = {"mix": "as is"} | where
    found = {}
    for r in rows:
        if all(r[k] == str(v) for k, v in where.items()) and r[figure] != "":
            found.setdefault(r["target"], []).append(100 * float(r[figure]))
    return found


def means(rows, figure, **where):
    """Return a figure by target, the mean over the folds."""
    return {target: float(np.mean(found)) for target, found in values(rows, figure, **where).items()}


def lines_of(order):
    """Return (words, figure, where) of every line of the table for an order."""
    rivals = [(name, "held_out", {"method": name, "batch": ""}) for name in RIVALS]
    ours = [("**DaDiL, offline**", "held_out", {"method": "ours: offline", "batch": ""})]
    for figure, words in (
        ("not_adapting_held_out", "OnlineDaDiL: not adapting"),
        ("flowing", "**OnlineDaDiL: while it flows**"),
        ("held_out", "**OnlineDaDiL: end of stream**"),
    ):
        ours.append((words, figure, {"method": "ours: online", "batch": "32"}))
    last = [("target-trained LR", "held_out", {"method": "target-trained LR", "batch": ""})]
    return [(words, figure, where | {"order": order}) for words, figure, where in rivals + ours + last]


def accuracy_table(rows, order="shuffled", encoder=None):
    """One line a method: accuracy on each target mode, and the mean of the six."""
    if encoder is not None:
        rows = [r for r in rows if r["encoder"] == encoder]
    lines = ["| method | " + " | ".join(f"mode {t}" for t in TARGETS) + " | mean |"]
    lines.append("|---|" + "---:|" * (len(TARGETS) + 1))
    for words, figure, where in lines_of(order):
        found = means(rows, figure, **where)
        if found:
            cells = [f"{found[t]:.1f}" if t in found else "–" for t in TARGETS]
            lines.append(
                f"| {words} | " + " | ".join(cells) + f" | {np.mean(list(found.values())):.1f} |"
            )
    return "\n".join(lines)


def orders_table(rows, encoder=None):
    """Mean of the six targets, in every order and with every size of a batch."""
    if encoder is not None:
        rows = [r for r in rows if r["encoder"] == encoder]
    columns = ("order", "batch", "source-only LR", "while it flows: first fifth → last", "not adapting",
               "end of stream", "target-trained LR")  # fmt: skip
    lines = ["| " + " | ".join(columns) + " |"]
    lines.append("|---|---:|---:|---|---|---:|---:|")

    def mean(figure, **where):
        found = means(rows, figure, **where)
        return float(np.mean(list(found.values()))) if found else float("nan")

    for order in ORDERS:
        for batch in ("8", "32", "128"):
            ours = {"method": "ours: online", "order": order, "batch": batch}
            if not means(rows, "held_out", **ours):
                continue
            # Without an order a rival has seen the same rows.
            rival = {"order": "shuffled" if order == "class" else order, "batch": ""}
            lines.append(
                f"| {order} | {batch} | {mean('held_out', method='source-only LR', **rival):.1f} | "
                f"{mean('first_fifth', **ours):.1f} → {mean('last_fifth', **ours):.1f} | "
                f"{mean('not_adapting_first_fifth', **ours):.1f} → "
                f"{mean('not_adapting_last_fifth', **ours):.1f} | {mean('held_out', **ours):.1f} | "
                f"{mean('held_out', method='target-trained LR', **rival):.1f} |"
            )
    return "\n".join(lines)


def encoders_table(found):
    """Accuracy of the encoders' heads on modes left out, by the mode left out."""
    lines = ["| encoder | " + " | ".join(f"mode {t}" for t in TARGETS) + " | mean |"]
    lines.append("|---|" + "---:|" * (len(TARGETS) + 1))
    for encoder in ("fcn", "light"):
        by_mode = {}
        for r in found:
            if r["encoder"] == encoder:
                by_mode.setdefault(r["left_out"], []).append(100 * float(r["accuracy"]))
        by_mode = {mode: float(np.mean(several)) for mode, several in by_mode.items()}
        cells = [f"{by_mode[t]:.1f}" if t in by_mode else "–" for t in TARGETS]
        if by_mode:
            mean = np.mean(list(by_mode.values()))
            lines.append(f"| `{encoder}` | " + " | ".join(cells) + f" | {mean:.1f} |")
    return "\n".join(lines)


def write_pages(results):
    """Fill the tables of docs/benchmarks/tennessee-eastman.md."""
    for page, name, table in pages_of(results):
        pages.fill(page, name, table)


def pages_of(results):
    """Yield (page, name, table) of every table that is made from the results."""
    rows = read(results / "tep.csv")
    page = "docs/benchmarks/tennessee-eastman.md"
    for order in ("shuffled", "runs", "plant"):
        yield page, f"tep fcn {order}", accuracy_table(rows, order, "fcn")
    yield page, "tep fcn orders", orders_table(rows, "fcn")
    yield page, "tep light shuffled", accuracy_table(rows, "shuffled", "light")
    yield page, "tep fcn mixes", mix_tables.mixes_table(rows, "fcn")
    yield page, "tep fcn stream", mix_tables.plant_table(rows, "fcn")
    yield page, "tep encoders", encoders_table(read(results / "encoders.csv"))
