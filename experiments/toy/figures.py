"""The paper's Figs. 1 and 2, and the comparison over seeds."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from baryflow import Mixture, fit_mixture, w2_squared
from baryflow.core.reduction import compress
from baryflow.datasets import make_crescents
from experiments.toy.run import BATCH, METHODS, SIZES

BLUE, RED, GREY = "#0b6e99", "#c0392b", "0.6"
NAMES = {
    "offline": "offline EM",
    "default": "baryflow default",
    "shards": "8 shards, merged",
    "rows": "rows + Ward + moment",
    "paper": "paper (W2)",
    "kl": "KL rival",
    "stepwise": "stepwise EM",
}


def draw_mixture(axes, mixture, *, color=BLUE, highlight=()):
    """Two-sigma ellipses, darker the more mass they hold."""
    for k, (weight, mean, std) in enumerate(
        zip(mixture.weights, mixture.means, mixture.stds, strict=True)
    ):
        tint = RED if k in highlight else color
        strength = 0.15 + 0.5 * min(1.0, weight * mixture.n_components / 2)
        axes.add_patch(Ellipse(mean, *(4 * std), facecolor=tint, alpha=strength, lw=0))
        axes.add_patch(Ellipse(mean, *(4 * std), facecolor="none", edgecolor=tint, lw=0.9))
        axes.plot(*mean, marker="+", ms=4, color=tint, mew=0.9)


def plain(axes, title, X=None):
    if X is not None:
        axes.scatter(*X.T, s=3, color=GREY, lw=0, zorder=0)
    axes.set(xticks=[], yticks=[], aspect="equal", title=title)
    axes.title.set_size(9)
    for spine in axes.spines.values():
        spine.set_color("0.8")


def figure_1(path, seed=0):
    """One merge: the mixture with one component too many, its distances, and after."""
    X, _ = make_crescents(random_state=seed)
    model = METHODS["paper"](seed)
    batches = np.array_split(X, range(BATCH, len(X), BATCH))
    for n, batch in enumerate(batches):
        before = model.mixture_ if n else None
        model.partial_fit(batch)
        if before is not None and before.n_components == SIZES["max_components"]:
            break
    new = fit_mixture(batches[n], 1, random_state=seed)
    both = Mixture.concatenate([before, new])
    table = np.sqrt(w2_squared(both))
    np.fill_diagonal(table, np.inf)
    i, j = np.unravel_index(table.argmin(), table.shape)
    after = compress(both, both.n_components - 1, distance="w2", merging="wasserstein")

    figure = Figure(figsize=(9.6, 3.5), layout="constrained", dpi=160)
    left, middle, right = figure.subplots(1, 3)
    seen = X[: (n + 1) * BATCH]
    plain(left, f"(a) a batch arrives: {both.n_components} components", seen)
    draw_mixture(left, both, highlight=(i, j))
    image = middle.imshow(np.where(np.isinf(table), np.nan, table), cmap="viridis_r")
    middle.add_patch(Ellipse((j, i), 1.6, 1.6, facecolor="none", edgecolor=RED, lw=1.5))
    middle.add_patch(Ellipse((i, j), 1.6, 1.6, facecolor="none", edgecolor=RED, lw=1.5))
    middle.set(title="(b) W2 between components", xlabel="component", ylabel="component")
    middle.title.set_size(9)
    figure.colorbar(image, ax=middle, shrink=0.85)
    plain(right, f"(c) the nearest two merged: {after.n_components}", seen)
    draw_mixture(right, after, highlight=(min(i, j),))
    figure.savefig(path)


def figure_2(path, seed=0):
    """The stream, and the mixtures after batches 10 and 18."""
    X, _ = make_crescents(random_state=seed)
    batches = np.array_split(X, range(BATCH, len(X), BATCH))
    figure = Figure(figsize=(8.4, 8.4), layout="constrained", dpi=160)
    axes = figure.subplots(3, 3)
    first = axes[0, 0]
    order = np.repeat(np.arange(len(batches)), [len(b) for b in batches])
    points = first.scatter(*X.T, c=order, s=5, cmap="plasma", lw=0)
    plain(first, "(a) order of batches")
    figure.colorbar(points, ax=first, shrink=0.7)
    plain(axes[1, 0], "(d) offline EM", X)
    draw_mixture(axes[1, 0], fit_mixture(X, SIZES["max_components"], n_init=10, random_state=seed))
    for row, (letters, name) in enumerate((("bc", "kl"), ("ef", "paper"), ("gh", "default"))):
        model = METHODS[name](seed)
        for n, batch in enumerate(batches):
            model.partial_fit(batch)
            if n in (10, 18):
                column = 1 if n == 10 else 2
                panel = axes[row, column]
                title = f"({letters[column - 1]}) {NAMES[name]}, iteration {n}"
                plain(panel, title, X[: (n + 1) * BATCH])
                draw_mixture(panel, model.mixture_)
    axes[2, 0].axis("off")
    limits = (X.min(axis=0) - 0.5, X.max(axis=0) + 0.5)
    for panel in axes.ravel():
        panel.set(xlim=(limits[0][0], limits[1][0]), ylim=(limits[0][1], limits[1][1]))
    figure.savefig(path)


def figure_nll(path, rows):
    """Held-out NLL of every method in every order, a dot a seed."""
    figure = Figure(figsize=(8.4, 3.2), layout="constrained", dpi=160)
    panels = figure.subplots(1, 3, sharey=True)
    names = list(NAMES)
    bottom, top = 2.3, 4.7
    for panel, order in zip(panels, ("ordered", "interleaved", "shuffled"), strict=True):
        for x, name in enumerate(names):
            values = np.array([r["nll"] for r in rows if (r["order"], r["method"]) == (order, name)])
            jitter = np.linspace(-0.18, 0.18, len(values))
            color = RED if name in ("kl", "stepwise") else BLUE
            panel.scatter(x + jitter, values, s=7, color=color, alpha=0.5, lw=0)
            if values.mean() < top:
                panel.plot([x - 0.3, x + 0.3], [values.mean()] * 2, color="k", lw=1.2)
            else:
                panel.text(x, top, f"↑ {values.mean():.0f}", ha="center", va="top", size=8, color=RED)
        panel.set_xticks(range(len(names)), [NAMES[n] for n in names], rotation=40, ha="right", size=7)
        panel.set_title(f"{order} stream", size=9)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_ylim(bottom, top)
    panels[0].set_ylabel("held-out NLL")
    figure.savefig(path)
