"""The whole at a glance: points above not adapting, by method and kind of stream."""

from __future__ import annotations

import numpy as np

from experiments.benchmark import methods, streams, tables

PATH = "docs/images/benchmark.png"


def grid(rows):
    """Return methods, and by kind of stream their mean points above not adapting; NaN for none."""
    rows = tables.comparable(rows)
    before = tables.values(rows, "end", method=tables.REFERENCE)
    found = []
    for name in tables.names(rows):
        if name == tables.REFERENCE:
            continue
        end = tables.values(rows, "end", method=name)
        gaps = [
            [end[key] - before[key] for key in end if key[1] == kind and key in before]
            for kind in streams.KINDS
        ]
        cells = np.array([np.mean(gap) if gap else np.nan for gap in gaps])
        found.append((name, cells))
    if not found:
        return [], np.zeros((0, len(streams.KINDS)))
    own = [one for one in found if one[0] == methods.OURS]
    others = sorted(
        (one for one in found if one[0] != methods.OURS), key=lambda one: -np.nanmean(one[1])
    )
    return [name for name, _ in own + others], np.array([cells for _, cells in own + others])


def draw(rows, path):
    """Draw the figure."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    labels, cells = grid(rows)
    if not labels:
        return
    fig, ax = plt.subplots(figsize=(10.5, 0.42 * len(labels) + 1.9), layout="constrained")
    shown = ax.imshow(cells, cmap="RdBu", vmin=-50, vmax=50, aspect="auto")
    for i, line in enumerate(cells):
        for j, value in enumerate(line):
            if np.isfinite(value):
                colour = "white" if abs(value) > 32 else "black"
                ax.text(j, i, f"{value:+.0f}", ha="center", va="center", color=colour, fontsize=9)
            else:
                ax.text(j, i, "–", ha="center", va="center", color="0.6", fontsize=9)
    ax.set_facecolor("0.95")
    kinds = [
        kind.replace(" one class", "\none class") if "%" in kind else kind.replace(" ", "\n", 1)
        for kind in streams.KINDS
    ]
    ax.set_xticks(range(len(kinds)), kinds, fontsize=9)
    ax.set_yticks(range(len(labels)), labels, fontsize=9)
    ax.get_yticklabels()[0].set_fontweight("bold")
    ax.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    ax.spines[:].set_visible(False)
    ax.set_xticks(np.arange(len(kinds) + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(len(labels) + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=1.5)
    ax.tick_params(which="minor", length=0)
    fig.colorbar(shown, ax=ax, pad=0.01, label="points above not adapting", ticks=(-50, -25, 0, 25, 50))
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(fig)
