"""The problems: sources, a target that flows past, and rows of it that are held out."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from baryflow import OnlineDaDiL
from experiments.msda import problems as msda
from experiments.tep import problems as tep

SETS = ("gas_drift8", "cstr7", "mgr", "make_domains", "digits4", "tep")
#: Problems of the synthetic set.
SPLITS = (0, 1, 2, 3)
#: Rows of all sources and of the target, at most; share of the latter that flows; rows of a batch.
SOURCE_ROWS, ROWS, FLOWS, BATCH = 3000, 2000, 2 / 3, 32


@dataclass(frozen=True)
class Problem:
    """Rows of all sources and of a target: those before `n_stream` flow, the others are held out."""

    Xs: np.ndarray
    ys: np.ndarray
    domain: np.ndarray
    X: np.ndarray
    y: np.ndarray
    n_stream: int

    def without(self, label):
        """Return it without a class in the sources."""
        kept = self.ys != label
        return Problem(self.Xs[kept], self.ys[kept], self.domain[kept], self.X, self.y, self.n_stream)

    def follow(self, seed=0, **parameters):
        """Return a model of the sources that has seen the stream."""
        model = OnlineDaDiL(random_state=seed, **parameters).fit(self.Xs, self.ys, self.domain)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="columns? ", category=UserWarning)
            for start in range(0, self.n_stream, BATCH):
                model.partial_fit(self.X[start : min(start + BATCH, self.n_stream)])
        return model


def targets(data, which):
    """Return (target, split) for each target of a set; none if its data are absent."""
    if which == "tep":
        return [(f"mode{mode}", 0) for mode in range(1, 7)]
    splits = SPLITS if which == "make_domains" else (0,)
    return [(name, split) for split in splits for name in msda.targets(data, which, split)]


def load(data, which, target, split):
    """Return a problem; its rows flow in random order."""
    if which == "tep":
        p = tep.problem(*tep.read(int(target.removeprefix("mode"))), 0)
        Xs, ys, domain = p.Xs, p.ys, p.domain
    else:
        p = msda.problem(data, which, target, split)
        Xs, ys, domain = p.pooled()
    step = -(-len(ys) // SOURCE_ROWS)
    X, y = np.concatenate([p.X, p.X_held]), np.concatenate([p.y, p.y_held])
    order = np.random.default_rng([split, 19]).permutation(len(y))[:ROWS]
    few = slice(None, None, step)
    return Problem(Xs[few], ys[few], domain[few], X[order], y[order], round(FLOWS * len(order)))
