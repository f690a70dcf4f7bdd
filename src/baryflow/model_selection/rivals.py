"""What adapting has to beat: plain classifiers, pooled, and with each domain standardised by itself."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from baryflow.validation import Floats

#: Names of the first classifiers: of rows on one scale, and of rows standardised by domain.
FIRST = ("not adapting", "standardising each domain separately")
#: All of them by these two names.
_KINDS: dict[tuple[str, str], Any] = {
    FIRST: LogisticRegression(max_iter=1000),
    ("a support vector machine", "a support vector machine on standardised domains"): SVC(),
    ("extra trees", "extra trees on standardised domains"): ExtraTreesClassifier(random_state=0),
}
#: Rows that the others are fitted on, at most: a support vector machine takes long for more.
_MOST_ROWS = 5000


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and standard deviation of every column, with as many values as they were made of."""

    counts: Floats
    centre: Floats
    squares: Floats  # sums of squared deviations from the centre

    @classmethod
    def of(cls, X: Floats) -> Self:
        """Return the moments of rows; missing values do not count."""
        there = ~np.isnan(X)
        counts = there.sum(axis=0).astype(np.float64)
        centre = np.where(there, X, 0.0).sum(axis=0) / np.maximum(counts, 1.0)
        squares = np.square(np.where(there, X - centre, 0.0)).sum(axis=0)
        return cls(counts, centre, squares)

    def plus(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together (Chan, Golub and LeVeque, 1979)."""
        counts = self.counts + other.counts
        share = other.counts / np.maximum(counts, 1.0)
        gap = other.centre - self.centre
        return Moments(
            counts,
            self.centre + share * gap,
            self.squares + other.squares + self.counts * share * gap**2,
        )

    def standardise(self, X: Floats, fallback: Moments | None = None) -> Floats:
        """Return rows in units of the columns' deviation; a missing value is the column's mean.

        Columns without a value, or that do not vary, are taken to be like the fallback's.
        """
        centre, scale = self.centre, self.deviation()
        if fallback is not None:
            centre = np.where(self.counts > 0, centre, fallback.centre)
            scale = np.where(scale > 0, scale, fallback.deviation())
        Z = (X - centre) / np.where(scale > 0, scale, 1.0)
        return np.where(np.isnan(Z), 0.0, Z)

    def deviation(self) -> Floats:
        """Return the standard deviation of every column, 0 where it does not vary."""
        deviation = np.sqrt(self.squares / np.maximum(self.counts, 1.0))
        # What is left of a constant column is rounding.
        return np.where(deviation > 1e-12 * np.abs(self.centre), deviation, 0.0)


@dataclass(frozen=True, eq=False)
class Rivals:
    """Plain classifiers of the sources: of rows on one scale, and of rows standardised by domain."""

    sources: Moments
    #: The two of each kind, by their names.
    classifiers: dict[tuple[str, str], tuple[Any, Any]]

    @classmethod
    def fit(cls, X: Floats, y: Any, domain: Any, classifier: Any = None) -> Self:
        """Learn the labelled sources; without a classifier logistic regression, and others beside it."""
        sources = Moments.of(X)
        pooled, own = sources.standardise(X), _standardise_domains(X, domain, sources)
        some = np.random.default_rng(0).permutation(len(X))[:_MOST_ROWS]
        if len(np.unique(y[some])) < len(np.unique(y)):  # a class is rare
            some = np.arange(len(X))
        found = {}
        for names, template in _KINDS.items() if classifier is None else [(FIRST, classifier)]:
            rows = slice(None) if names == FIRST else some
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # near the minimum is good enough
                pair = [clone(template).fit(Z[rows], y[rows]) for Z in (pooled, own)]
            found[names] = pair[0], pair[1]
        return cls(sources, found)

    def predict(self, X: Floats, batch_size: int) -> dict[str, tuple[Any, Any]]:
        """Return predictions of each classifier: for each batch as it comes, and at the end.

        A batch is standardised by the rows that came before it, the first one as the sources are:
        nothing else is known. At the end all rows are standardised by all of them.
        """
        found = {}
        pooled, end = self.sources.standardise(X), Moments.of(X).standardise(X, self.sources)
        flowing = self._standardise_flowing(X, batch_size)
        for (name, standardised), (of_pooled, of_own) in self.classifiers.items():
            answers = of_pooled.predict(pooled)
            found[name] = answers, answers
            found[standardised] = of_own.predict(flowing), of_own.predict(end)
        return found

    def predict_with_labels(
        self, X: Floats, y: Any, domain: Any, target: Floats, labelled: Any, labels: Any
    ) -> list[Any]:
        """Return predictions by the first two classifiers, fitted with labels of some target rows.

        `X`, `y` and `domain` are the sources, `target` all rows of the target, `labelled` the numbers
        of those with a label. The sources and the labelled rows have half the weight each.
        """
        # Rows are repeated: not every classifier takes weights.
        repeated = np.repeat(labelled, max(1, round(len(X) / len(labelled))))
        y = np.concatenate([y, np.repeat(labels, len(repeated) // len(labelled))])
        found = []
        for classifier, sources, rows in zip(
            self.classifiers[FIRST],
            (self.sources.standardise(X), _standardise_domains(X, domain, self.sources)),
            (self.sources.standardise(target), Moments.of(target).standardise(target, self.sources)),
            strict=True,
        ):
            fitted = clone(classifier).fit(np.concatenate([sources, rows[repeated]]), y)
            found.append(fitted.predict(rows))
        return found

    def _standardise_flowing(self, X: Floats, batch_size: int) -> Floats:
        """Return rows, each batch standardised by the rows before it."""
        found, seen = [], None
        for start in range(0, len(X), batch_size):
            batch = X[start : start + batch_size]
            known = self.sources if seen is None else seen
            found.append(known.standardise(batch, self.sources))
            seen = Moments.of(batch) if seen is None else seen.plus(Moments.of(batch))
        return np.concatenate(found)


def _standardise_domains(X: Floats, domain: Any, sources: Moments) -> Floats:
    """Return rows, each standardised by the rows of its domain."""
    own = np.empty_like(X)
    for name in np.unique(domain):
        rows = X[domain == name]
        own[domain == name] = Moments.of(rows).standardise(rows, sources)
    return own
