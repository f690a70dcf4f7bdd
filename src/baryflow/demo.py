"""The main job: five modes of a plant are known, a sixth flows in, the classifier follows it.

The data are signals of the Tennessee Eastman plant, encoded by a network that has never seen the sixth
mode (:func:`~baryflow.datasets.load_tep`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from baryflow.datasets import load_tep
from baryflow.datasets.tennessee_eastman import Features
from baryflow.estimators._classifiers import fit_linear
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers

BATCH = 32
#: Labelled runs of every mode and fault.
KNOWN_RUNS = 25
_FOLDS = 5


@dataclass(frozen=True)
class Progress:
    """Where the demo stands after a batch."""

    n_rows: int
    n_rows_total: int
    adapted: float  # share of correct predictions so far, each made before the row was learned from
    source_only: float
    reliability: float  # of the predictions for the batch
    shares: dict[int, float]  # which sources the target resembles


@dataclass(frozen=True)
class Result:
    """What the demo found."""

    history: tuple[Progress, ...]
    source_only: float
    after_stream: float
    target_trained: float
    report: str


def problem() -> Features:
    """Return the demo's data: modes 2 to 6 known, mode 1 flowing in.

    Half of the runs that are known are left out, to be quick.
    """
    whole = load_tep(target=1)
    keep = whole.is_target | (whole.run < KNOWN_RUNS)
    parts = {name: getattr(whole, name)[keep] for name in ("X", "y", "domain", "run", "head")}
    return replace(whole, **parts)


def stream(
    data: Features, seed: int = 0, learning: Callable[[int, int, str], None] | None = None
) -> Iterator[Progress | Result]:
    """Run the demo; yield the progress after every batch and the outcome at the end.

    Parameters
    ----------
    data : Features
    seed : int, default=0
        Order in which the stream flows.
    learning : callable, optional
        Called while the known modes are learned, with what is done, of how much, and what.
    """
    known, flows = ~data.is_target, np.flatnonzero(data.is_target)
    flows = np.random.default_rng(seed).permutation(flows)
    X_target, y_target = data.X[flows].astype(np.float64), data.y[flows]
    model = OnlineDaDiL(verbose=learning or False, random_state=0)
    model.fit(data.X[known], data.y[known], sample_domain=data.domain[known])
    before = model.predict(X_target)  # no target row was seen yet
    right = []
    history = []
    for start in range(0, len(X_target), BATCH):
        X, y = X_target[start : start + BATCH], y_target[start : start + BATCH]
        right.append(model.predict(X) == y)  # test ...
        model.partial_fit(X)  # ... then train
        n = start + len(X)
        progress = Progress(
            n_rows=n,
            n_rows_total=len(X_target),
            adapted=float(np.concatenate(right).mean()),
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
    """Return the accuracy of a classifier trained on labels of the target, on rows kept back."""
    fold = np.arange(len(X)) % _FOLDS
    right = []
    for number in range(_FOLDS):
        known, kept = fold != number, fold == number
        Z = (X - X[known].mean(axis=0)) / np.maximum(X[known].std(axis=0), 1e-12)
        trained = fit_linear(Z[known], y[known], int(y.max()) + 1, None, 0).classifier
        right.append(trained.proba(Z[kept]).argmax(axis=1) == y[kept])
    return float(np.concatenate(right).mean())


def check_figure(path: str | os.PathLike[str]) -> None:
    """Find out whether :func:`draw` can make a figure of this name, before there is one to draw.

    Parameters
    ----------
    path : path
        Where the figure shall be written; the ending of its name says what kind it is.

    Raises
    ------
    ModuleNotFoundError
        Without Matplotlib.
    InvalidInputError
        If Matplotlib does not know the kind of figure.
    """
    kinds = _figure_class()().canvas.get_supported_filetypes()
    if Path(path).suffix.removeprefix(".").lower() not in kinds:
        raise InvalidInputError(
            f"expected a name that ends in .png, .svg or .pdf, got {os.fspath(path)!r}"
        )


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ModuleNotFoundError(
            "figures need Matplotlib: pip install 'baryflow[plot]'", name="matplotlib"
        ) from error
    return Figure


def draw(outcome: Result, path: str) -> None:
    """Write one figure: accuracy along the stream, and which sources the target resembles."""
    rows = [progress.n_rows for progress in outcome.history]
    figure = _figure_class()(figsize=(9.5, 3.8), layout="constrained", dpi=150)
    left, right = figure.subplots(1, 2)
    left.plot(rows, [100 * p.adapted for p in outcome.history], color="#0b6e99", lw=2, label="adapting")
    left.plot(
        rows, [100 * p.source_only for p in outcome.history], color="#b3541e", lw=2, label="source-only"
    )
    left.plot(
        rows[-1], 100 * outcome.after_stream, "*", color="#0b6e99", ms=14, mec="white", clip_on=False,
        zorder=5, label="adapted, after the stream",
    )  # fmt: skip
    left.axhline(100 * outcome.target_trained, color="0.4", ls=":", label="trained on target labels")
    left.set(xlabel="runs of mode 1 seen", ylabel="% right so far (predict, then learn)")
    lowest = min(min(p.adapted, p.source_only) for p in outcome.history[len(rows) // 10 :])
    left.set_ylim(100 * lowest - 2, 100 * max(outcome.target_trained, outcome.after_stream) + 2)
    left.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=8)
    colors = ("#0b6e99", "#b3541e", "#4d8a3d", "#7a4b94", "#c9a227")
    for color, name in zip(colors, sorted(outcome.history[-1].shares), strict=False):
        shares = [p.shares[name] for p in outcome.history]
        right.plot(rows, shares, color=color, lw=2, label=f"mode {name}")
    right.set(xlabel="runs of mode 1 seen", ylabel="resemblance to each source", ylim=(0, None))
    right.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
