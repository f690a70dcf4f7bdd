"""Other class proportions, estimated from the predictions of the picked plain classifier."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from experiments.benchmark.methods.plain import Plain

_ROUNDS, _LEAST = 100, 1e-3


class _Corrected(Plain):
    """The picked classifier, and the class proportions of the rows so far."""

    def fit(self, X, y, domain):
        super().fit(X, y, domain)
        self.of_sources = np.bincount(self.taught.y, minlength=len(self.classes)) / len(self.taught.y)
        self.given = False
        return self

    def set_prior(self, proportions):
        super().set_prior(proportions)
        self.given = True

    def update(self, X):
        self.seen = np.concatenate([self.seen, X])
        if not self.given:
            found = self.estimate(np.exp(self.log_proba(self.seen)))
            self.prior = np.log(np.maximum(found, _LEAST)) - np.log(self.of_sources)


class EM(_Corrected):
    """Saerens, Latinne and Decaestecker (2002): the likeliest proportions, by EM."""

    def estimate(self, proba):
        found = self.of_sources
        for _ in range(_ROUNDS):
            posterior = proba * (found / self.of_sources)
            found = (posterior / posterior.sum(axis=1, keepdims=True)).mean(axis=0)
        return found


class BBSE(_Corrected):
    """Lipton, Wang and Smola (2018): proportions that explain how often each class is predicted.

    Predictions are counted as classes or by their probabilities, what is better on sources left out.
    """

    def fit(self, X, y, domain):
        super().fit(X, y, domain)
        taught = self.taught
        proba, codes = np.exp(taught.left_out[self.member]), taught.y[np.concatenate(taught.folds)]
        source = taught.domain[np.concatenate(taught.folds)]
        right = {}
        for soft in (True, False):
            self.soft, right[soft] = soft, 0
            for name in np.unique(source):
                out = source == name
                self._learn_confusion(proba[~out], codes[~out])
                weighed = proba[out] * self.estimate(proba[out]) / self.of_sources
                right[soft] += (weighed.argmax(axis=1) == codes[out]).sum()
        self.soft = right[True] >= right[False]
        self._learn_confusion(proba, codes)
        return self

    def _learn_confusion(self, proba, codes):
        votes = self._votes(proba)
        self.confusion = np.stack(
            [votes[codes == c].mean(axis=0) if (codes == c).any() else np.eye(votes.shape[1])[c]
             for c in range(votes.shape[1])], axis=1,
        )  # fmt: skip

    def _votes(self, proba):
        return proba if self.soft else np.eye(proba.shape[1])[proba.argmax(axis=1)]

    def estimate(self, proba):
        found = nnls(self.confusion, self._votes(proba).mean(axis=0))[0]
        return found / found.sum()
