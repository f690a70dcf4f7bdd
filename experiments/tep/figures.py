"""Figures from the results: loss and accuracy along the stream, the six targets, confusions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.tep import tables

ONLINE, OFFLINE, SOURCE, BOUND = "#0b6e99", "#b3541e", "0.45", "#4d8a3d"


def draw(out):
    """Draw everything the results allow."""
    from matplotlib import rc_context

    rows = tables.read(Path(out) / "tep.csv")
    curves = tables.read(Path(out) / "curves.csv")
    confusion = tables.read(Path(out) / "confusion.csv")
    with rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        for encoder in sorted({r["encoder"] for r in curves}):
            mine, of_curves, of_confusion = (
                [r for r in table if r["encoder"] == encoder] for table in (rows, curves, confusion)
            )
            target = min(r["target"] for r in of_curves)  # one example: the others are alike
            figure = along_the_stream(mine, of_curves, target)
            figure.savefig(Path(out) / f"{encoder}-stream-mode{target}.png")
            six_targets(mine).savefig(Path(out) / f"{encoder}-targets.png")
            if of_confusion:
                taken_for(of_confusion).savefig(Path(out) / f"{encoder}-confusion.png")


def _new(rows, columns, width, height):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=160)
    return figure, figure.subplots(rows, columns, squeeze=False)


def _folds(curves, target, method, column):
    """Return one curve a fold, cut to the shortest, their steps, and how many are the stream's."""
    found = {}
    for r in curves:
        if r["target"] == target and r["method"] == method and r[column] != "":
            found.setdefault(r["fold"], []).append((int(r["step"]), r["phase"], float(r[column])))
    if not found:
        return np.empty((0, 0)), np.empty(0), 0
    shortest = min(map(len, found.values()))
    one = sorted(next(iter(found.values())))
    end = sum(phase == "stream" for _, phase, _ in one)
    steps = np.array([step + 1 for step, _, _ in one[:shortest]])
    return np.array([[value for *_, value in sorted(f)[:shortest]] for f in found.values()]), steps, end


def _band(axes, x, folds, color, label):
    """Mean ± 2 standard deviations over the folds."""
    mean, spread = folds.mean(axis=0), 2 * folds.std(axis=0)
    axes.plot(x, mean, color=color, lw=1.6, label=label)
    axes.fill_between(x, mean - spread, mean + spread, color=color, alpha=0.15, lw=0)
    return mean


def along_the_stream(rows, curves, target):
    """Reconstruction loss (a) and accuracy (b) along the stream."""
    figure, [[left, right]] = _new(1, 2, 8.6, 3.2)
    online, steps, end = _folds(curves, target, "ours: online", "loss")
    offline, offline_steps, _ = _folds(curves, target, "ours: offline", "loss")
    accuracy, _, _ = _folds(curves, target, "ours: online", "accuracy")
    mean = _band(left, steps, online, ONLINE, "online")
    left.plot(
        steps[end - 1],
        mean[end - 1],
        "*",
        color=ONLINE,
        ms=13,
        mec="white",
        label="end of the stream",
        zorder=5,
    )
    if offline.shape[1] > 1:
        _band(left, offline_steps, offline, OFFLINE, "offline")
    left.set(xlabel="batch of 32", ylabel="MW₂² target, reconstruction")
    left.set_yscale("log")
    left.set_title("(a) reconstruction loss", fontsize=9, loc="left")
    mean = _band(right, steps, 100 * accuracy, ONLINE, "online")
    right.plot(steps[end - 1], mean[end - 1], "*", color=ONLINE, ms=13, mec="white", zorder=5)
    for label, method, color in (
        ("offline", "ours: offline", OFFLINE),
        ("source-only LR", "source-only LR", SOURCE),
        ("target-trained LR", "target-trained LR", BOUND),
    ):
        folds = np.array(
            tables.values(rows, "held_out", method=method, order="shuffled").get(target, [])
        )
        if folds.size:
            level, spread = folds.mean(), 2 * folds.std()
            right.axhline(level, color=color, lw=1.2, ls="--", label=label)
            right.axhspan(level - spread, level + spread, color=color, alpha=0.08, lw=0)
    right.set(xlabel="batch of 32", ylabel="accuracy on rows kept back, %")
    right.set_title("(b) accuracy", fontsize=9, loc="left")
    for one in (left, right):
        one.axvline(steps[end - 1], color="0.8", lw=0.8, zorder=0)
        one.legend(frameon=False, fontsize=7.5, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    folds = "first fold" if len(online) == 1 else f"mean ± 2σ over {len(online)} folds"
    figure.suptitle(f"Tennessee Eastman, target mode {target}: {folds}", fontsize=10)
    return figure


def six_targets(rows):
    """Accuracy of the methods on every target mode, stream shuffled."""
    methods = (
        ("source-only LR", "source-only LR", "held_out", SOURCE),
        ("per-domain standardisation + LR", "per-domain standardisation + LR", "held_out", "#c9a227"),
        ("OnlineDaDiL", "ours: online", "held_out", ONLINE),
        ("target-trained LR", "target-trained LR", "held_out", BOUND),
    )
    figure, [[axes]] = _new(1, 1, 8.6, 3.6)
    width = 0.16
    lowest = 100.0
    drawn = []
    for label, method, column, color in methods:
        batch = "32" if method.endswith("online") else ""
        found = tables.values(rows, column, method=method, order="shuffled", batch=batch)
        if found:
            drawn.append((label, color, found))
    for number, (label, color, found) in enumerate(drawn):
        places = [int(t) + (number - (len(drawn) - 1) / 2) * width for t in found]
        means = [np.mean(v) for v in found.values()]
        axes.bar(
            places, means, width, yerr=[2 * np.std(v) for v in found.values()], color=color, label=label,
            error_kw={"lw": 0.8, "ecolor": "0.3"},
        )  # fmt: skip
        lowest = min([lowest, *means])
    axes.set(xlabel="target mode", ylabel="accuracy on rows kept back, %", xticks=range(1, 7))
    axes.set_ylim(max(0, lowest - 6), 97)
    axes.legend(frameon=False, ncols=3, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def taken_for(confusion):
    """Confusion matrices of OnlineDaDiL at the end of the stream, rows in percent."""
    figure, axes = _new(2, 3, 9.6, 6.6)
    shown = None
    for one, target in zip(axes.ravel(), tables.TARGETS, strict=True):
        table = np.zeros((29, 29))
        for r in confusion:
            if r["target"] == target:
                table[int(r["true"]), int(r["found"])] += int(r["count"])
        share = 100 * table / np.maximum(table.sum(axis=1, keepdims=True), 1)
        shown = one.imshow(share, cmap="Blues", vmin=0, vmax=100)
        right = np.trace(table) / max(table.sum(), 1)
        one.set_title(f"target mode {target}: {right:.1%} right", fontsize=9)
        one.set_xticks(range(0, 29, 4))
        one.set_yticks(range(0, 29, 4))
        one.tick_params(labelsize=7)
    for one in axes[-1]:
        one.set_xlabel("fault found")
    for one in axes[:, 0]:
        one.set_ylabel("true fault")
    figure.colorbar(shown, ax=axes, shrink=0.7, label="% of a fault's runs")
    return figure
