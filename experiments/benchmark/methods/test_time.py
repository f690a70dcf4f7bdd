"""Test-time adaptation for rows of numbers; settings are chosen on sources left out."""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax
from sklearn.neighbors import NearestNeighbors

from experiments.benchmark.methods.plain import Method, Plain, standardise

_BATCH, _ROUNDS = 32, 100


class LAME(Plain):
    """Boudiaf, Mueller, Ben Ayed and Bertinetto (2022): neighbours in a batch agree."""

    NEIGHBOURS = (1, 3, 5)

    def fit(self, X, y, domain):
        super().fit(X, y, domain)
        taught, right = self.taught, dict.fromkeys(self.NEIGHBOURS, 0)
        logs, start = taught.left_out[self.member], 0
        for rows in taught.folds:
            Z, own = standardise(taught.X[rows]), logs[start : start + len(rows)]
            start += len(rows)
            for i in range(0, len(rows), _BATCH):
                for k in self.NEIGHBOURS:
                    found = agree(own[i : i + _BATCH], Z[i : i + _BATCH], k).argmax(axis=1)
                    right[k] += (found == taught.y[rows[i : i + _BATCH]]).sum()
        self.k = max(right, key=right.get)
        return self

    def predict_proba(self, X):
        Z = standardise(X, self.moments_of(self.member[1]))
        return agree(np.log(super().predict_proba(X)), Z, self.k)


def agree(logs, Z, k):
    """Return probabilities that are pulled towards those of the k nearest rows."""
    proba = np.exp(logs)
    if len(Z) <= k:
        return proba
    near = NearestNeighbors(n_neighbors=k).fit(Z).kneighbors(return_distance=False)
    for _ in range(_ROUNDS):
        new = np.exp(log_softmax(logs + proba[near].sum(axis=1), 1))
        done, proba = np.abs(new - proba).max() < 1e-5, new
        if done:
            break
    return proba


class T3A(Method):
    """Iwasawa and Matsuo (2021): the last layer becomes the means of rows predicted with confidence."""

    KEPT = (5, 20, 50, 100, None)

    def fit(self, X, y, domain):
        self.plain = Plain().fit(X, y, domain)
        taught = self.plain.taught
        self.classes = taught.classes
        raw, own = ("MLP", "raw"), ("MLP", "per domain")
        self.plain.member = max((raw, own), key=taught.accuracy)
        self.model = taught.fitted[self.plain.member]
        weights = self.model.coefs_[-1].T
        if len(weights) == 1:
            weights = np.concatenate([-weights, weights])
        self.supports = _unit(weights), np.arange(len(weights)), _entropy(weights @ weights.T)
        # A copy follows each source; the network has learned it, so this flatters all settings alike.
        right = dict.fromkeys(self.KEPT, 0)
        for rows in taught.folds:
            for kept in self.KEPT:
                one = self.copy()
                one.plain, one.kept = self.plain.copy(), kept
                for i in range(0, len(rows), _BATCH):
                    some = rows[i : i + _BATCH]
                    right[kept] += (one.predict(taught.X[some]) == self.classes[taught.y[some]]).sum()
                    one.update(taught.X[some])
        self.kept = max(right, key=right.get)
        return self

    def copy(self):
        found = super().copy()
        found.plain = self.plain.copy()
        return found

    def _hidden(self, X):
        Z = standardise(X, self.plain.moments_of(self.plain.member[1]))
        return np.maximum(Z @ self.model.coefs_[0] + self.model.intercepts_[0], 0.0)

    def predict(self, X):
        rows, codes, entropies = self.supports
        centres = []
        for c in range(len(self.classes)):
            mine = np.flatnonzero(codes == c)
            mine = mine[np.argsort(entropies[mine], kind="stable")[: self.kept]]
            centres.append(rows[mine].mean(axis=0))
        return self.classes[(self._hidden(X) @ _unit(np.array(centres)).T).argmax(axis=1)]

    def update(self, X):
        self.plain.update(X)
        hidden, logs = self._hidden(X), self.plain.log_proba(X)
        new = _unit(hidden), logs.argmax(axis=1), _entropy(logs)
        self.supports = tuple(np.concatenate(pair) for pair in zip(self.supports, new, strict=True))


def _unit(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _entropy(logits):
    logs = log_softmax(logits, 1)
    return -(np.exp(logs) * logs).sum(axis=1)
