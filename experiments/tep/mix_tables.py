"""Tables of targets that come in another mix, and of a plant's stream with and without a prior."""

from __future__ import annotations

import numpy as np

from experiments import harm
from experiments.mixes import MIX_ORDERS, MIXES

MODES = tuple(str(mode) for mode in range(1, 7))
COLUMNS = ("not_adapting", "flowing", "end")


def _line(cells):
    return "| " + " | ".join(cells) + " |"


def mixes_table(rows, encoder):
    """One line a mix and order; a cell: not adapting → while it flows / end, on its rows.

    The first fold, dominated by normal operation, is the one with rows enough.
    """
    rows = harm.matching(rows, encoder=encoder, method="ours: online", batch="32")
    found = harm.grouped(rows, "mix", "order")
    lines = [
        _line(("mix", "order", *(f"mode {t}" for t in MODES), "mean", "harmed")),
        "|---|---|" + "---:|" * (len(MODES) + 2),
    ]
    for mix, order, tells in [(m, o, t) for m in MIXES for t in (True, False) for o in MIX_ORDERS]:
        several = found.get((mix, order, tells))
        if several:
            cells = [_cell(harm.matching(several, target=t)) for t in MODES]
            counts = f"{harm.harmed(several, 'end')} of {len(several)}"
            name = mix + harm.size_words(tells)
            lines.append(_line((name, order, *cells, _cell(several), counts)))
    return "\n".join(lines)


def _cell(several):
    if not several:
        return "–"
    before, flows, end = (f"{harm.mean(several, column):.1f}" for column in COLUMNS)
    return f"{before} → {flows} / {end}"


def plant_table(rows, encoder):
    """A plant's stream: accuracy on its own rows and on those kept back, with the prior or without."""
    rows = harm.matching(rows, encoder=encoder, mix="as is", order="plant", batch="32")
    lines = [_line(("on", "", *(f"mode {t}" for t in MODES), "mean"))]
    lines.append("|---|---|" + "---:|" * (len(MODES) + 1))
    flows = (("flowing", "while it flows"), ("end", "end"))
    for place, before, figures in (
        ("the stream's rows", "not_adapting", flows),
        ("rows kept back", "not_adapting_held_out", (("held_out", "end"),)),
    ):
        wanted = [("not adapting", "ours", before)] + [
            (f"{words}: {when}", part, figure)
            for part, words in (("ours", "OnlineDaDiL"), ("ours, class_prior", "with `class_prior`"))
            for figure, when in figures
        ]
        for words, part, figure in wanted:
            several = harm.matching(rows, method=f"{part}: online")
            means = [harm.mean(harm.matching(several, target=t), figure) for t in MODES]
            if not np.isnan(means).all():
                cells = ["–" if np.isnan(v) else f"{v:.1f}" for v in (*means, np.nanmean(means))]
                lines.append(_line((place, words, *cells)))
    return "\n".join(lines)
