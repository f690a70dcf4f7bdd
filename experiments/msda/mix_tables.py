"""Tables of streams whose classes come in other proportions."""

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


def table(head, lines, text=1):
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
                ("as they come" if key[1] == "as is" else key[1]) + harm.size_words(key[2]),
                f"{harm.harmed(several, 'end')} of {len(several)}",
            )
            lines.append((key[0], name, str(size), rival, *numbers, counts))
    head = ("set", "class proportions", "rows", "picked classifier", *HEAD, "harmed")
    return table(head, lines, text=2)


def _stream(row):
    """Return what tells a stream apart from others."""
    return tuple(row[name] for name in ("set", "target", "split", "mix", "order", "seed"))


def harm_words(rows):
    """Yield sentences: where adapting was worse than not adapting, in any mix and order."""
    yield from harm.in_words(_streams(rows), FIGURES, ("set", "mix", "order"), ("target", "split"))


def calibration_table(rows):
    """Expected calibration error of the first and the last fifth, and that of not adapting."""
    found = {}
    for other in (False, True):
        for order in ("shuffled", "class"):
            name = f"{'other proportions' if other else 'as they come'}, {order}"
            for s in SETS:
                several = [
                    r
                    for key, some in harm.grouped(_streams(rows, set=s, order=order), "mix").items()
                    if key[-1] and (key[0] != "as is") == other
                    for r in some
                ]
                if several:
                    first, last, before = (
                        f"{harm.mean(several, f'ece_{name}'):.1f}"
                        for name in ("first", "last", "not_adapting")
                    )
                    found.setdefault(name, {})[s] = f"{first} → {last} ({before})"
    sets = [s for s in SETS if any(s in cells for cells in found.values())]
    lines = [(s, *(cells.get(s, "–") for cells in found.values())) for s in sets]
    return table(("set", *found), lines)
