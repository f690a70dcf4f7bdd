"""Tables of streams whose classes come in another mix, of glitches and of what a user may know."""

from __future__ import annotations

import numpy as np

from experiments import harm
from experiments.mixes import MIXES
from experiments.msda.methods import PICKED
from experiments.msda.problems import SETS

FIGURES = (("flowing", "While the stream flows"), ("end", "At the end of the stream"))
HEAD = ("not adapting", "while it flows", "end")
COLUMNS = ("not_adapting", "flowing", "end")


def _streams(rows, **where):
    return harm.matching(rows, method="ours", **where)


def _table(head, lines, text=1):
    """Return a table; the first `text` columns are words, the others numbers."""
    rule = "|" + "---|" * text + "---:|" * (len(head) - text)
    return "\n".join(
        ["| " + " | ".join(head) + " |", rule, *("| " + " | ".join(x) + " |" for x in lines)]
    )


def mixes_table(rows, order):
    """One line a set and mix: not adapting, the picked classifier and OnlineDaDiL on the same rows."""
    found = harm.grouped(_streams(rows, order=order), "set", "mix")
    picked = {_stream(r): r for r in harm.matching(rows, method=PICKED, order=order)}
    lines = []
    for key in [(s, mix, tells) for s in SETS for mix in MIXES for tells in (True, False)]:
        several = found.get(key)
        if several:
            size = int(np.median([int(r["rows"]) for r in several]))
            rivals = [picked[_stream(r)] for r in several if _stream(r) in picked]
            rival = f"{harm.mean(rivals, 'end'):.1f}" if len(rivals) == len(several) else "–"
            numbers = [f"{harm.mean(several, column):.1f}" for column in COLUMNS]
            name, counts = (
                key[1] + harm.size_words(key[2]),
                f"{harm.harmed(several, 'end')} of {len(several)}",
            )
            lines.append((key[0], name, str(size), rival, *numbers, counts))
    head = ("set", "mix", "rows", "picked classifier", *HEAD, "harmed")
    return _table(head, lines, text=2)


def _stream(row):
    """Return what tells a stream apart from others."""
    return tuple(row[name] for name in ("set", "target", "split", "mix", "order", "seed"))


def harm_words(rows):
    """Yield sentences: where adapting was worse than not adapting, in any mix and order."""
    yield from harm.in_words(_streams(rows), FIGURES, ("set", "mix", "order"), ("target", "split"))


def calibration_table(rows):
    """Expected calibration error of the first and the last fifth, and that of not adapting."""
    kinds = [(order, other) for other in (False, True) for order in ("shuffled", "class")]
    lines = []
    for s in SETS:
        cells = []
        for order, other in kinds:
            several = [
                r
                for key, some in harm.grouped(_streams(rows, set=s, order=order), "mix").items()
                if key[-1] and (key[0] != "as is") == other
                for r in some
            ]
            first, last, before = (
                f"{harm.mean(several, f'ece_{name}'):.1f}" for name in ("first", "last", "not_adapting")
            )
            cells.append(f"{first} → {last} ({before})" if several else "–")
        if any(cell != "–" for cell in cells):
            lines.append((s, *cells))
    names = [f"{'other mixes' if other else 'as is'}, {order}" for order, other in kinds]
    return _table(("set", *names), lines)


def glitches_table(rows):
    """One line a kind of damage: accuracy on each problem, and the mean."""
    rows = harm.matching(rows, part="glitches")
    targets = sorted({r["target"] for r in rows})
    lines = []
    for method, words in (
        ("glitches: none", "as they are"),
        ("glitches: eight cells", "eight cells at 10,000"),
        ("glitches: constant column", "a constant column"),
    ):
        for column, name in (("not_adapting", HEAD[0]), ("end", "end")):
            found = [
                harm.mean(harm.matching(rows, method=method, target=target), column)
                for target in targets
            ]
            if found:
                lines.append((words, name, *(f"{v:.1f}" for v in (*found, np.mean(found)))))
    return _table(("stream", "", *targets, "mean"), lines, text=2)


def prior_table(rows):
    """Half of the rows in one class, and whether the model knows."""
    lines = []
    for order in ("shuffled", "class"):
        for method, words in (("prior: none", "not known"), ("prior: one half", "`class_prior`")):
            several = harm.matching(rows, part="prior", order=order, method=method)
            if several:
                numbers = [f"{harm.mean(several, column):.1f}" for column in COLUMNS]
                lines.append((order, words, *numbers, str(len(several))))
    return _table(("order", "", *HEAD, "streams"), lines, text=2)
