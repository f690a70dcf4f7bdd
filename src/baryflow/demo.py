"""The demo: learn five modes of a plant, and adapt to the sixth from its stream.

The data are signals of the Tennessee Eastman plant, encoded by a network that was trained without the
sixth mode (:func:`~baryflow.datasets.load_tep`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from baryflow.datasets import load_tep
from baryflow.datasets.tennessee_eastman import Features
from baryflow.estimators._classifiers import fit_linear
from baryflow.estimators._plots import AREA, SOURCES, new_figure
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.validation import Floats, Integers

BATCH = 32
#: Labelled runs of each mode and fault.
KNOWN_RUNS = 25
_FOLDS = 5
_CURVES = ("adapted", "source_only")


@dataclass(frozen=True)
class Progress:
    """The state of the demo after a batch."""

    n_rows: int
    n_rows_total: int
    adapted: float  # prequential accuracy so far: each row is predicted before it is learned from
    source_only: float
    reliability: float  # of the predictions for the batch
    shares: dict[int, float]  # resemblance of the target to each source


@dataclass(frozen=True)
class Result:
    """The result of the demo: accuracies and the report of the model."""

    history: tuple[Progress, ...]
    source_only: float
    after_stream: float
    target_trained: float
    report: str


def problem() -> Features:
    """Return the data: modes 2 to 6 are sources, mode 1 is the target.

    Half of the labelled runs are left out to save time.
    """
    whole = load_tep(target=1)
    keep = whole.is_target | (whole.run < KNOWN_RUNS)
    parts = {name: getattr(whole, name)[keep] for name in ("X", "y", "domain", "run", "head")}
    return replace(whole, **parts)


def stream(
    data: Features, seed: int = 0, learning: Callable[[int, int, str], None] | None = None
) -> Iterator[Progress | Result]:
    """Run the demo; yield the progress after every batch and the result at the end.

    `seed` shuffles the stream. `learning` is called while the sources are learned, with the steps done,
    all steps, and a description.
    """
    known = ~data.is_target
    order = np.random.default_rng(seed).permutation(np.flatnonzero(data.is_target))
    X_target, y_target = data.X[order].astype(np.float64), data.y[order]
    model = OnlineDaDiL(verbose=learning or False, random_state=0)
    model.fit(data.X[known], data.y[known], sample_domain=data.domain[known])
    before = model.predict(X_target)  # source-only: no target row was seen yet
    correct, history = [], []
    for start in range(0, len(X_target), BATCH):
        X, y = X_target[start : start + BATCH], y_target[start : start + BATCH]
        correct.append(model.predict(X) == y)  # test ...
        model.partial_fit(X)  # ... then train
        n = start + len(X)
        progress = Progress(
            n_rows=n,
            n_rows_total=len(X_target),
            adapted=float(np.concatenate(correct).mean()),
            source_only=float((before[:n] == y_target[:n]).mean()),
            reliability=model.reliability_,
            shares=model.resemblance_,
        )
        history.append(progress)
        yield progress
    yield Result(
        history=tuple(history),
        source_only=float((before == y_target).mean()),
        after_stream=float(model.score(X_target, y_target)),
        target_trained=_target_trained(X_target, y_target),
        report=model.report(),
    )


def _target_trained(X: Floats, y: Integers) -> float:
    """Return the cross-validated accuracy of a classifier trained on labels of the target."""
    fold = np.arange(len(X)) % _FOLDS
    correct = []
    for number in range(_FOLDS):
        known, held_out = fold != number, fold == number
        Z = (X - X[known].mean(axis=0)) / np.maximum(X[known].std(axis=0), 1e-12)
        trained = fit_linear(Z[known], y[known], int(y.max()) + 1, None, 0)
        correct.append(trained.proba(Z[held_out]).argmax(axis=1) == y[held_out])
    return float(np.concatenate(correct).mean())


def draw(result: Result, path: str) -> None:
    """Draw the accuracy along the stream, and the resemblance of the target to each source."""
    rows = [progress.n_rows for progress in result.history]
    figure = new_figure(9.5, 3.8)
    left, right = figure.subplots(1, 2)
    adapted, source_only = ([100 * getattr(p, name) for p in result.history] for name in _CURVES)
    left.plot(rows, adapted, color=AREA[0], lw=2, label="adapting")
    left.plot(rows, source_only, color=AREA[5], lw=2, label="source-only")
    star = {"color": AREA[0], "ms": 14, "mec": "white", "clip_on": False, "zorder": 5}
    left.plot(rows[-1], 100 * result.after_stream, "*", label="adapted, after the stream", **star)
    left.axhline(100 * result.target_trained, color="0.4", ls=":", label="trained on target labels")
    left.set(xlabel="runs of mode 1 seen", ylabel="% correct so far (predict, then learn)")
    lowest = min(adapted[len(rows) // 10 :] + source_only[len(rows) // 10 :])
    left.set_ylim(lowest - 2, 100 * max(result.target_trained, result.after_stream) + 2)
    left.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=8)
    for color, name in zip(SOURCES, sorted(result.history[-1].shares), strict=False):
        shares = [p.shares[name] for p in result.history]
        right.plot(rows, shares, color=color, lw=2, label=f"mode {name}")
    right.set(xlabel="runs of mode 1 seen", ylabel="resemblance to each source", ylim=(0, None))
    right.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
