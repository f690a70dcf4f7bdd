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


def validated():
    return OnlineDaDiL(classifier="linear", random_state=0)


def with_adapt(model, adapt):
    """Return a model with another parameter `adapt`, on which what ``fit`` learns does not depend."""
    other = OnlineDaDiL(**model.get_params() | {"adapt": adapt})
    return other.adopt(model.knowledge_, model.classes_, model.sources_, model.n_features_in_)


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


class Fleet:
    """Machines whose sensors have an offset and a gain of their own; the last one is the target.

    Class 0 is normal operation, the others are faults. `calibration` says how differently machines are
    calibrated, in units of a sensor's noise.
    """

    def __init__(self, seed, n_classes=4, n_features=8, n_sources=4, calibration=1.5):
        rng = np.random.default_rng(seed)
        self.seed, self.n_classes = seed, n_classes
        faults = 1.6 * rng.normal(size=(n_classes - 1, n_features))
        self._places = np.vstack([np.zeros(n_features), faults])
        self._offsets = calibration * rng.normal(size=(n_sources + 1, n_features))
        self._gains = np.exp(0.25 * min(calibration, 1.0) * rng.normal(size=self._offsets.shape))
        y = np.tile(np.arange(n_classes), 40)
        self.X = np.concatenate([self._see(y, number, rng) for number in range(n_sources)])
        self.y, self.domain = np.tile(y, n_sources), np.repeat(np.arange(n_sources) + 1, len(y))

    def _see(self, y, machine, rng):
        noise = rng.normal(size=(len(y), self._places.shape[1]))
        return self._offsets[machine] + self._gains[machine] * (self._places[y] + noise)

    def target(self, *counts, seed=0):
        """Return shuffled rows of the target, and their classes: so many of each."""
        rng = np.random.default_rng([self.seed, seed, *counts])
        y = rng.permutation(np.repeat(np.arange(self.n_classes), counts))
        return self._see(y, -1, rng), y

    @property
    def calibration(self):
        """The target's offset and gain of each sensor, against those usual among the sources."""
        usual = self._places.mean(axis=0)
        gains = self._gains[-1] / np.exp(np.log(self._gains[:-1]).mean(axis=0))
        centre = (self._offsets[:-1] + self._gains[:-1] * usual).mean(axis=0)
        return self._offsets[-1] + self._gains[-1] * usual - gains * centre, gains


def total_variation(a, b):
    return 0.5 * np.abs(a - b).sum()
