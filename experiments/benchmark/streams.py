"""Streams of a target: in which order its rows come, and with which class proportions."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np

from experiments.benchmark.problems import recalibrate

KINDS = (
    "as they come", "in runs", "class by class", "80 % one class", "95 % one class", "half absent",
    "one class", "lasting fault", "recalibrated",
)  # fmt: skip
#: Kinds with the rows of "as they come" in another order, which an offline method cannot tell apart.
ORDERS = ("in runs", "class by class")
#: Rows of a stream at most and at least; of a baseline; of one class in a run; before a lasting fault.
ROWS, FEWEST, BASELINE, RUN, MIXED = 320, 30, 30, 20, 96


@dataclass(frozen=True)
class Stream:
    """Rows in the order in which they come; the labels are for scoring. And rows known to be normal."""

    X: np.ndarray
    y: np.ndarray
    baseline: tuple


def make(problem, kind):
    """Return a stream of a problem; None if there are too few rows."""
    rng = np.random.default_rng([crc32(problem.name.encode()), KINDS.index(kind)])
    X, y = problem.X, problem.y
    reserve = _reserve(y)
    free = np.setdiff1d(np.arange(len(y)), np.concatenate(list(reserve.values())))
    rows = free[_draw(y[free], kind, rng)]
    if len(rows) < FEWEST:
        return None
    normal = 0 if kind == "lasting fault" else np.bincount(y[rows]).argmax()
    if kind == "recalibrated":
        X = recalibrate(X, rng)
    return Stream(X[rows], y[rows], (X[reserve[normal]], normal))


def _reserve(y):
    """Return rows of every class that are in no stream."""
    found = {}
    for label in np.unique(y):
        mine = np.flatnonzero(y == label)
        found[label] = mine[: min(BASELINE, len(mine) // 3)]
    return found


def _draw(y, kind, rng):
    """Return positions of rows, in their order."""
    present = rng.permutation(np.unique(y))
    same = np.arange(len(y))[:ROWS]  # they are in random order
    if kind in ("as they come", "recalibrated"):
        return same
    if kind in ORDERS:
        classes = [same[y[same] == label] for label in present]
        if kind == "class by class":
            return np.concatenate(classes)
        runs = [rows[i : i + RUN] for rows in classes for i in range(0, len(rows), RUN)]
        return np.concatenate([runs[i] for i in rng.permutation(len(runs))])
    if kind == "half absent":
        return rng.permutation(np.flatnonzero(np.isin(y, present[: max(1, len(present) // 2)])))[:ROWS]
    if kind == "lasting fault":
        fault = np.flatnonzero(y == present[present != 0][0])
        return np.concatenate([rng.permutation(len(y))[:MIXED], rng.choice(fault, ROWS - MIXED)])
    share = 1.0 if kind == "one class" else float(kind.split()[0]) / 100.0
    mine = rng.permutation(np.flatnonzero(y == present[0]))[: round(share * ROWS)]
    others = rng.permutation(np.flatnonzero(y != present[0]))
    return rng.permutation(np.concatenate([mine, others[: round(len(mine) * (1.0 - share) / share)]]))


def proportions(stream, n_classes):
    """Return the class proportions of a stream, none of which is zero."""
    counts = np.bincount(stream.y, minlength=n_classes) + 1.0
    return counts / counts.sum()
