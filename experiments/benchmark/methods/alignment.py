"""Sources are moved onto the rows of the target, then a logistic regression learns them.

The methods are offline. Here they are fitted again to all rows so far whenever these have doubled, and
when the stream has ended. Settings are chosen on sources left out.
"""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from experiments.benchmark.methods.plain import Method, folds_of, standardise


class Aligned(Method):
    """A method that moves sources onto a target."""

    #: What is tried on sources left out.
    SETTINGS = ({},)

    def align(self, X, domain, target, **setting):
        """Return rows of the sources, moved, and a function that moves rows of the target."""
        raise NotImplementedError

    def fit(self, X, y, domain):
        self.like, self.y, self.domain = X, y, domain
        self.classes, self.X = np.unique(y), standardise(X)
        self.seen, self.n_used = X[:0], 0
        self.move, self.model = (lambda Z: Z), self._learn(self.X, y)
        self.setting = self.SETTINGS[0]
        if len(self.SETTINGS) > 1:
            self.setting = max(self.SETTINGS, key=self._score)
        return self

    def _score(self, setting):
        """Return the mean accuracy over sources left out."""
        found = []
        for rows in folds_of(self.domain):
            rest = np.setdiff1d(np.arange(len(self.y)), rows)
            Z, move = self.align(self.X[rest], self.domain[rest], self.X[rows], **setting)
            model = self._learn(Z, self.y[rest])
            found.append((model.predict(move(self.X[rows])) == self.y[rows]).mean())
        return float(np.mean(found))

    def _learn(self, Z, y):
        return LogisticRegression(C=0.3, max_iter=300).fit(Z, y)

    def update(self, X):
        self.seen = np.concatenate([self.seen, X])
        if len(self.seen) >= 2 * self.n_used:
            self.finish()

    def finish(self):
        if len(self.seen) > self.n_used:
            target = standardise(self.seen, self.like)
            Z, self.move = self.align(self.X, self.domain, target, **self.setting)
            self.model, self.n_used = self._learn(Z, self.y), len(self.seen)

    def predict_proba(self, X):
        return self.model.predict_proba(self.move(standardise(X, self.like)))


def _covariance(X, shrinkage):
    """Return the covariance, shrunk towards its diagonal mean."""
    found = np.cov(X.T)
    return (1.0 - shrinkage) * found + (shrinkage * np.trace(found) / len(found) + 1e-6) * np.eye(
        len(found)
    )


def _power(matrix, exponent):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, 1e-10) ** exponent) @ vectors.T


class _Moments(Aligned):
    """Mean and covariance of the sources become those of the target: all sources together, or each."""

    SETTINGS = tuple(
        {"each": each, "shrinkage": shrinkage}
        for each in (False, True)
        for shrinkage in (0.1, 0.01, 0.5)
    )

    def align(self, X, domain, target, *, each, shrinkage):
        onto, moved = _covariance(target, shrinkage), np.empty_like(X)
        parts = [domain == name for name in np.unique(domain)] if each else [np.full(len(X), True)]
        for rows in parts:
            matrix = self.matrix(_covariance(X[rows], shrinkage), onto)
            moved[rows] = target.mean(axis=0) + (X[rows] - X[rows].mean(axis=0)) @ matrix
        return moved, lambda Z: Z


class CORAL(_Moments):
    """Sun, Feng and Saenko (2016): whiten the sources, colour them as the target."""

    def matrix(self, source, target):
        return _power(source, -0.5) @ _power(target, 0.5)


class LinearOT(_Moments):
    """Flamary, Lounici and Ferrari (2019): the optimal transport between Gaussians."""

    def matrix(self, source, target):
        root, back = _power(source, 0.5), _power(source, -0.5)
        return back @ _power(root @ target @ root, 0.5) @ back


class SubspaceAlignment(Aligned):
    """Fernando, Habrard, Sebban and Tuytelaars (2013): principal directions are turned onto another."""

    SETTINGS = ({"share": 0.5}, {"share": 0.25}, {"share": 0.9})

    def align(self, X, domain, target, *, share):
        n = max(1, min(round(share * X.shape[1]), len(target) - 1))
        centre = target.mean(axis=0)
        Z = np.empty_like(X)
        for name in np.unique(domain):
            Z[domain == name] = X[domain == name] - X[domain == name].mean(axis=0)
        mine, theirs = (
            np.linalg.svd(part, full_matrices=False)[2][:n].T for part in (Z, target - centre)
        )
        return Z @ mine @ (mine.T @ theirs), lambda rows: (rows - centre) @ theirs
