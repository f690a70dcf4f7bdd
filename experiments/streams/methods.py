"""The methods, all with the same few calls: fit, spawn, partial_fit, predict.

What else a method can learn from follows from what it has: ``feedback`` for labels, ``set_baseline`` for
rows known to be of one class, ``class_prior`` for class proportions.
"""

from __future__ import annotations

import importlib.util
import sys
from copy import copy

import numpy as np
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from baryflow import OnlineDaDiL
from experiments.benchmark.methods.plain import own_moments, standardise, teach


def ours(class_prior=None):
    return OnlineDaDiL(class_prior=class_prior, random_state=0, n_jobs=1)


class Plain:
    """A classifier that does not adapt, on raw rows or on rows standardised per domain.

    A target is standardised with the moments of its rows so far, and before the first as if it were raw.
    """

    def __init__(self, per_domain=False):
        self.per_domain = per_domain

    def fit(self, X, y, domain):
        self.moments_of, self.seen = X, X[:0]
        self.classes, codes = np.unique(y, return_inverse=True)
        self.classifier = self._choose(X, codes, domain)
        return self

    def _choose(self, X, codes, domain):
        rows = own_moments(X, domain) if self.per_domain else standardise(X)
        return LogisticRegression(C=0.3, max_iter=500).fit(rows, codes)

    def spawn(self):
        return copy(self)

    def partial_fit(self, X):
        self.seen = np.concatenate([self.seen, X])
        if self.per_domain:
            self.moments_of = self.seen
        return self

    def predict(self, X):
        return self.classes[self.classifier.predict(standardise(X, self.moments_of))]


class Picked(Plain):
    """The one of eight plain classifiers that leave-one-source-out picks."""

    def _choose(self, X, codes, domain):
        taught = teach(X, codes, domain)
        picked = taught.pick()
        self.per_domain = picked[1] == "per domain"
        return taught.fitted[picked]


class Reference:
    """Explanations of a target from a module with the functions fit, explanations and weigh.

    Predictions rest on the rows so far.
    """

    def __init__(self, module):
        self.module = module

    def fit(self, X, y, domain):
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.sources, self.coefficients = self.module.fit(X, codes, domain, len(self.classes_))
        self.seen, self.found, self.labelled = X[:0], None, None
        return self

    def spawn(self):
        return copy(self)

    def partial_fit(self, X):
        self.seen = np.concatenate([self.seen, X])
        self.found = self.module.explanations(self.sources, self.seen)
        return self

    def feedback(self, X, y):
        self.labelled = X, np.searchsorted(self.classes_, y)
        return self

    def predict_proba(self, X):
        if self.found is None:
            return np.exp(self._not_adapting(X))
        found, known = self.found, None
        if self.labelled is not None:
            rows, codes = self.labelled
            logs = self._explain(rows)
            found = [(q, new, features) for (q, _, features), new in zip(found, logs, strict=True)]
            known = np.arange(len(codes)), codes
        weights = np.exp(self.module.weigh(found, self.coefficients, known))
        return np.tensordot(weights, np.exp(self._explain(X)), 1)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _explain(self, X):
        """Return log-probabilities of rows by explanation: as expected first, not adapting last."""
        s, target, logs = self.sources, self.module.Target(self.sources, self.seen), []
        for number, (q, _, _) in enumerate(self.found[:-1]):
            _, centre, scale = target.standardise(q)
            here = s.logs(s.standardised, (X[:, s.used] - centre) / scale)
            if number:
                here = log_softmax(here + np.log((q + 1e-3) / (s.prior + 1e-3)), axis=1)
            logs.append(here)
        return np.stack([*logs, self._not_adapting(X)])

    def _not_adapting(self, X):
        s = self.sources
        return s.logs(s.raw, (X[:, s.used] - s.mean) / s.std)


def read_module(path):
    """Return the module in a file, which may import its neighbours."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
