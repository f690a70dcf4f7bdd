"""From the CSV to the tables of the documentation."""

from __future__ import annotations

import numpy as np

from benchmarks import pages
from experiments import results

TARGETS = tuple(str(mode) for mode in range(1, 7))
PAGE = "docs/benchmarks/tennessee-eastman.md"
#: Words of a line, method and figure.
LINES = (
    ("source-only LR", "source-only LR", "held_out"),
    ("encoder's head", "encoder's head", "held_out"),
    ("per-domain standardisation + LR", "per-domain standardisation + LR", "held_out"),
    ("OT-DA (POT)", "OT-DA (POT)", "held_out"),
    ("OnlineDaDiL: not adapting", "OnlineDaDiL", "not_adapting_held_out"),
    ("**OnlineDaDiL: end of stream**", "OnlineDaDiL", "held_out"),
    ("target-trained LR", "target-trained LR", "held_out"),
)
#: The same on the stream's own rows, which are not those kept back.
STREAM_LINES = (
    ("not adapting", "OnlineDaDiL", "not_adapting"),
    ("while it flows", "OnlineDaDiL", "flowing"),
    ("end of stream", "OnlineDaDiL", "end"),
)


def means(rows, figure, **where):
    """Return a figure by target in percent, the mean over the folds."""
    found = {}
    for r in rows:
        if r[figure] != "" and all(r[name] == value for name, value in where.items()):
            found.setdefault(r["target"], []).append(100 * float(r[figure]))
    return {target: float(np.mean(several)) for target, several in found.items()}


def _table(lines, column="method"):
    """Return a table of (words, figures by target)."""
    head = [
        f"| {column} | " + " | ".join(f"mode {t}" for t in TARGETS) + " | mean |",
        "|---|" + "---:|" * (len(TARGETS) + 1),
    ]
    for words, found in lines:
        if found:
            cells = [f"{found[t]:.1f}" if t in found else "–" for t in TARGETS]
            mean = np.mean(list(found.values()))
            head.append(f"| {words} | " + " | ".join(cells) + f" | {mean:.1f} |")
    return "\n".join(head)


def accuracy_table(rows, order, encoder):
    """One line a method: accuracy on the rows kept back of each target, and the mean of the six."""
    where = {"order": order, "encoder": encoder}
    return _table((words, means(rows, f, method=name, **where)) for words, name, f in LINES)


def stream_table(rows, encoder):
    """OnlineDaDiL on the stream's own rows, in every order."""
    return _table(
        (
            (f"{order}: {words}", means(rows, f, method=name, order=order, encoder=encoder))
            for order in ("shuffled", "runs", "plant")
            for words, name, f in STREAM_LINES
        ),
        "order",
    )


def encoders_table(rows):
    """Accuracy of the encoders' heads on modes left out, by the mode left out."""
    some = [r | {"target": r["left_out"]} for r in rows]
    lines = ((f"`{name}`", means(some, "accuracy", encoder=name)) for name in ("fcn", "light"))
    return _table(lines, "encoder")


def write_pages(folder):
    """Fill the tables of docs/benchmarks/tennessee-eastman.md."""
    for name, table in tables(folder):
        pages.fill(PAGE, name, table)


def tables(folder):
    """Yield (name, table) of every table that is made from the results."""
    rows = results.read(folder / "tep.csv")
    for order in ("shuffled", "runs", "plant"):
        yield f"tep fcn {order}", accuracy_table(rows, order, "fcn")
    yield "tep fcn stream", stream_table(rows, "fcn")
    yield "tep light shuffled", accuracy_table(rows, "shuffled", "light")
    yield "tep encoders", encoders_table(results.read(folder / "encoders.csv"))
