"""Problems and streams that several of these tests share."""

from copy import deepcopy

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains

#: The problem of all tests that need a model with all that is there by default.
PROBLEM = make_domains(n_per_class=40, random_state=2)
_FITTED = {}


def fit(make, p):
    """Return a copy of a model that is fitted to the sources of a problem once.

    Leave-one-source-out takes seconds, copying a millisecond.
    """
    if (make, id(p)) not in _FITTED:
        _FITTED[make, id(p)] = p, make().fit(p.X, p.y, p.domain)  # keeping p keeps its id unique
    return deepcopy(_FITTED[make, id(p)][1])


def default():
    return OnlineDaDiL(random_state=0)


def fit_default():
    """Return a copy of the default model, fitted to the sources of :data:`PROBLEM` once."""
    return fit(default, PROBLEM)


def stream(model, X, size=32):
    for start in range(0, len(X), size):
        model.partial_fit(X[start : start + size])
    return model


def mixed_rows(y, mix, c, seed=0):
    """Return shuffled rows of a target: `mix` is "balanced", "80 %" (of class c) or "one class"."""
    rng = np.random.default_rng(seed)
    mine, others = np.flatnonzero(y == c), rng.permutation(np.flatnonzero(y != c))
    taken = {"balanced": len(others), "80 %": len(mine) // 4, "one class": 0}[mix]
    return rng.permutation(np.concatenate([mine, others[:taken]]))


def total_variation(a, b):
    return 0.5 * np.abs(a - b).sum()
