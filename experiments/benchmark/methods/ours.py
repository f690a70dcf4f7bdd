"""This package: OnlineDaDiL, DaDiL offline, and the paper as it is printed; all with their defaults."""

from __future__ import annotations

import copy
import warnings

import numpy as np

from baryflow import DaDiL, OnlineDaDiL
from baryflow.paper import OnlineGMMDaDiL
from experiments.benchmark.methods.plain import Method, standardise


class Online(Method):
    def fit(self, X, y, domain):
        self.sources = X, y, domain
        return self._fit()

    def _fit(self, **options):
        self.model = OnlineDaDiL(random_state=0, n_jobs=1, **options).fit(*self.sources)
        self.classes = self.model.classes_
        return self

    def copy(self):
        found = super().copy()
        found.model = self.model.spawn(self.model.state_)
        return found

    def predict_proba(self, X):
        return self.model.predict_proba(X)

    def update(self, X):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="column ", category=UserWarning)
            self.model.partial_fit(X)

    def learn(self, X, y):
        self.model.feedback(X, y)

    def set_baseline(self, X, label):
        self.model.set_baseline(X, label)

    def set_prior(self, proportions):
        self._fit(class_prior=proportions)


class Offline(Method):
    """Adapts once, when the stream has ended."""

    flows = False

    def fit(self, X, y, domain):
        self.sources, self.seen, self.classes = (X, y, domain), X[:0], np.unique(y)
        return self

    def update(self, X):
        self.seen = np.concatenate([self.seen, X])

    def finish(self):
        X, y, domain = self.sources
        self.model = DaDiL(random_state=0).fit(
            np.concatenate([X, self.seen]),
            np.concatenate([y, np.zeros(len(self.seen), dtype=y.dtype)]),
            np.concatenate([domain, np.full(len(self.seen), -1)]),
        )

    def predict_proba(self, X):
        return self.model.predict_proba(X)


class Paper(Method):
    """Algorithms 1 to 4 and equation 12; after the stream 100 more steps."""

    def fit(self, X, y, domain):
        self.like, self.model = X, OnlineGMMDaDiL(random_state=0).fit(standardise(X), y, domain)
        self.classes = self.model.classes_
        return self

    def copy(self):
        return copy.deepcopy(self)

    def update(self, X):
        self.model.partial_fit(standardise(X, self.like))

    def finish(self):
        self.model.optimise(100)

    def predict_proba(self, X):
        return self.model.predict_proba(standardise(X, self.like))
