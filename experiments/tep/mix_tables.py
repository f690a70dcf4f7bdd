"""Tables of targets that come in another mix, and of a plant's stream with and without a prior."""

from __future__ import annotations

import numpy as np

from experiments import harm
from experiments.mixes import MIX_ORDERS, MIXES

MODES = tuple(str(mode) for mode in range(1, 7))
FIGURES = ("stream_end", "stream_refined")
COLUMNS = ("source_end", "prequential", *FIGURES)


def _line(cells):
    return "| " + " | ".join(cells) + " |"


def mixes_table(rows, encoder):
    """One line a mix and order; a cell: source classifier → while it flows / end / refined, on its rows.

    The first fold, dominated by normal operation, is the one with rows enough.
    """
    rows = harm.matching(rows, encoder=encoder, method="ours: online", batch="32")
    found = harm.grouped(rows, "mix", "order")
    lines = [
        _line(("mix", "order", *(f"mode {t}" for t in MODES), "mean", "harmed: end", "refined", "of")),
        "|---|---|" + "---:|" * (len(MODES) + 4),
    ]
    for mix, order, tells in [(m, o, t) for m in MIXES for t in (True, False) for o in MIX_ORDERS]:
        several = found.get((mix, order, tells))
        if several:
            cells = [_cell(harm.matching(several, target=t)) for t in MODES]
            counts = [str(harm.harmed(several, figure)) for figure in FIGURES]
            name = mix + harm.size_words(tells)
            lines.append(_line((name, order, *cells, _cell(several), *counts, str(len(several)))))
    return "\n".join(lines)


def _cell(several):
    if not several:
        return "–"
    source, flows, end, refined = (f"{harm.mean(several, column):.1f}" for column in COLUMNS)
    return f"{source} → {flows} / {end} / {refined}"


def plant_table(rows, encoder):
    """A plant's stream: accuracy on its own rows and on those kept back, told of the prior or not."""
    rows = harm.matching(rows, encoder=encoder, mix="as is", order="plant", batch="32")
    lines = [_line(("on", "", *(f"mode {t}" for t in MODES), "mean"))]
    lines.append("|---|---|" + "---:|" * (len(MODES) + 1))
    flows = (("prequential", "while it flows"), ("stream_end", "end"), ("stream_refined", "refined"))
    for place, source, figures in (
        ("the stream's rows", "source_prequential", flows),
        ("rows kept back", "source_held_out", (("end", "end"), ("held_out", "refined"))),
    ):
        wanted = [("source classifier", "ours", source)] + [
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
