"""Methods of skada, with their own settings, in front of the same logistic regression."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression

from experiments.benchmark.methods.alignment import Aligned
from experiments.benchmark.methods.plain import standardise


class _Skada(Aligned):
    """Fitted again to all rows so far whenever these have doubled."""

    def finish(self):
        if len(self.seen) <= self.n_used:
            return
        target = standardise(self.seen, self.like)
        rows = np.concatenate([self.X, target])
        labels = np.concatenate([self.y, np.full(len(target), -1)])  # skada's mask
        domains = np.concatenate([self.domain, np.full(len(target), -(self.domain.max() + 1))])
        self.n_used = len(self.seen)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self.adapted = self.make().fit(rows, labels, sample_domain=domains)
            except (ValueError, FloatingPointError):  # too few rows: what was learned before stays
                return

    def predict_proba(self, X):
        if not hasattr(self, "adapted"):
            return super().predict_proba(X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.adapted.predict_proba(
                standardise(X, self.like), sample_domain=np.full(len(X), -(self.domain.max() + 1)),
                allow_source=True,
            )  # fmt: skip

    def base(self):
        return LogisticRegression(C=0.3, max_iter=300).set_fit_request(sample_weight=True)


class MultiLinearMonge(_Skada):
    def make(self):
        from skada import MultiLinearMongeAlignment

        return MultiLinearMongeAlignment(base_estimator=self.base())


class ClassRegularisedOT(_Skada):
    def make(self):
        from skada import ClassRegularizerOTMapping

        return ClassRegularizerOTMapping(base_estimator=self.base())
