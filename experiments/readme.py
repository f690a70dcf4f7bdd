"""Tables of the README and the guide, from the benchmark: ``python -m experiments.readme``."""

from __future__ import annotations

import numpy as np

from benchmarks import pages
from experiments.benchmark import __main__ as benchmark
from experiments.benchmark import methods, streams, tables

HEAD = (
    "stream", "not adapting", "picked", "best rival, in hindsight",
    "**OnlineDaDiL**, flowing", "**end**", "**end, 3 labels**", "**end, 30 known rows**",
)  # fmt: skip
PLAIN = ("raw", "picked")
#: What OnlineDaDiL is given, and the figure that is shown.
OURS = (("flowing", "none"), ("end", "none"), ("end", "3 labels"), ("end", "baseline"))


def results_table() -> str:
    """Return mean accuracies over the made problems, in percent, by kind of stream."""
    rows = tables.comparable(benchmark.read(benchmark.RESULTS))
    lines = [(kind, *_shown(_figures(rows, kind))) for kind in streams.KINDS]
    means = [_mean(one) for one in zip(*(_figures(rows, kind) for kind in streams.KINDS), strict=True)]
    return tables.table(HEAD, [*lines, ("mean", *_shown(means))])


#: Kinds of streams that the page on limits is about, and what is shown of them.
HARD = ("one class", "95 % one class", "80 % one class", "class by class", "as they come")
LIMITS = (
    ("not adapting", "raw", "none"), ("standardised", "standardised", "none"),
    ("OnlineDaDiL", methods.OURS, "none"), ("with 30 known rows", methods.OURS, "baseline"),
    ("with 3 labels", methods.OURS, "3 labels"),
)  # fmt: skip


def limits_table() -> str:
    """Return mean accuracies at the end of hard streams, and that of the problem where ours is worst."""
    rows = tables.comparable(benchmark.read(benchmark.RESULTS))
    lines = []
    for kind in HARD:
        found = [
            tables.values(rows, "end", method=name, kind=kind, knowledge=knowledge)
            for _, name, knowledge in LIMITS
        ]
        ours = tables.values(rows, "end", method=methods.OURS, kind=kind, knowledge="none")
        worst = min(ours, key=ours.get)
        cells = [f"{_mean(one.values()):.1f}" for one in found]
        lines.append((kind, *cells, f"{ours[worst]:.1f}"))
    return tables.table(
        ("stream", *(words for words, *_ in LIMITS), "without help, worst problem"), lines
    )


def _figures(rows, kind):
    """Return the mean of each column in a kind of stream; None where there is none."""
    ours = [
        tables.values(rows, figure, method=methods.OURS, kind=kind, knowledge=knowledge)
        for figure, knowledge in OURS
    ]
    # Offline methods have no figures for other orders of the same rows.
    rivals = {
        name: found
        for name in tables.names(rows)
        if name not in tables.OWN and (found := tables.values(rows, "end", method=name, kind=kind))
    }
    best = max(_mean(found.values()) for found in rivals.values())
    plain = [_mean(rivals[name].values()) for name in PLAIN]
    return [*plain, best, *(_mean(found.values()) for found in ours)]


def _mean(found):
    found = [one for one in found if one is not None]
    return float(np.mean(found)) if found else None


def _shown(figures):
    """Return cells; the best of what knows nothing of the target is bold."""
    cells = ["–" if one is None else f"{one:.1f}" for one in figures]
    best = max(float(one) for one in cells[:5] if one != "–")
    return [
        f"**{one}**" if i < 5 and one != "–" and float(one) == best else one
        for i, one in enumerate(cells)
    ]


if __name__ == "__main__":
    pages.fill("README.md", "results", results_table())
    pages.fill("docs/guide/limits.md", "limits", limits_table())
