"""The paper's three figures, and the comparison of the toy over seeds."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from baryflow import fit_mixture
from baryflow.datasets import make_crescents
from baryflow.paper import compress_gmm, concat_components, em, gaussian_w2
from experiments.paper.toy import BATCH, METHODS, SIZES

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
    both = concat_components(before, em(batches[n], 1, random_state=seed))
    table = gaussian_w2(both, both)
    np.fill_diagonal(table, np.inf)
    i, j = np.unravel_index(table.argmin(), table.shape)
    after = compress_gmm(both, both.n_components - 1)

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


def toy_nll(path, rows):
    """Held-out NLL of every method in every order, a dot a seed."""
    figure = Figure(figsize=(8.4, 3.2), layout="constrained", dpi=160)
    panels = figure.subplots(1, 3, sharey=True)
    names = list(NAMES)
    bottom, top = 2.3, 4.7
    for panel, order in zip(panels, ("ordered", "interleaved", "shuffled"), strict=True):
        for x, name in enumerate(names):
            values = np.array(
                [float(r["nll"]) for r in rows if (r["order"], r["method"]) == (order, name)]
            )
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


ONLINE, OFFLINE = BLUE, "#b3541e"


def figure_3(path, rows, curves, setting="default", mode="1"):
    """Reconstruction loss (a) and accuracy (b) along the stream and after it: mean ± 2σ over folds."""
    figure = Figure(figsize=(9.2, 3.6), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2)
    mine = [r for r in rows if (r["setting"], r["mode"]) == (setting, mode)]
    of = [r for r in curves if (r["setting"], r["mode"]) == (setting, mode)]
    end = max(int(r["step"]) for r in of if r["phase"] == "stream") + 1
    for axes, column, factor in ((left, "loss", 1.0), (right, "accuracy", 100.0)):
        for method, color in (("offline", OFFLINE), ("online", ONLINE)):
            steps, folds = _folds(of, method, column)
            mean, spread = factor * folds.mean(axis=0), 2.0 * factor * folds.std(axis=0)
            axes.plot(steps, mean, color=color, lw=1.4, label=method)
            axes.fill_between(steps, mean - spread, mean + spread, color=color, alpha=0.15, lw=0)
            if method == "online":
                star = steps.tolist().index(end)
                axes.plot(
                    end, mean[star], "*", color=color, ms=14, mec="white", zorder=5,
                    label="end of the stream",
                )  # fmt: skip
        axes.axvline(end, color="0.8", lw=0.8, zorder=0)
        axes.set_xlabel("step")
        axes.spines[["top", "right"]].set_visible(False)
    source = 100.0 * np.array([float(r["source_only"]) for r in mine])
    right.axhline(source.mean(), color="0.45", ls="--", lw=1.2, label="source only")
    right.axhspan(
        source.mean() - 2 * source.std(), source.mean() + 2 * source.std(), color="0.45", alpha=0.1, lw=0
    )
    left.set_yscale("log")
    left.set_ylabel("$MW_2^2$ of target and reconstruction")
    left.set_title("(a) reconstruction loss", fontsize=9, loc="left")
    left.legend(frameon=False, fontsize=8)
    right.set_ylabel("accuracy, rows kept back, %")
    right.set_ylim(80, 94)
    right.set_title("(b) classification accuracy", fontsize=9, loc="left")
    right.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path)


def _folds(curves, method, column):
    """Return the steps at which a figure is known, counted from 1, and its values in each fold."""
    found = {}
    for r in curves:
        if r["method"] == method and r[column] != "":
            found.setdefault(r["fold"], {})[int(r["step"]) + 1] = float(r[column])
    steps = sorted(set.intersection(*(set(one) for one in found.values())))
    return np.array(steps), np.array([[one[step] for step in steps] for one in found.values()])
