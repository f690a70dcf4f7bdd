"""Running mean and variance of every column of a stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from baryflow.validation import Floats


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations of each column; missing values do not count."""

    counts: Floats
    means: Floats
    deviations: Floats

    @classmethod
    def none(cls, n_features: int) -> Moments:
        """Return the moments of no rows at all."""
        zeros = np.zeros(n_features)
        return cls(zeros, zeros, zeros)

    @classmethod
    def of(cls, X: Floats, weights: Floats) -> Moments:
        """Measure some rows."""
        observed = ~np.isnan(X)
        counts = weights @ observed
        divisor = np.where(counts > 0.0, counts, 1.0)
        filled = np.where(observed, X, 0.0)
        means = (weights @ filled) / divisor
        deviations = weights @ np.square(np.where(observed, X - means, 0.0))
        return cls(counts, means, deviations)

    @property
    def variances(self) -> Floats:
        """Variance of each column; 0 where nothing was seen."""
        return self.deviations / np.where(self.counts > 0.0, self.counts, 1.0)

    def plus(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together."""
        counts = self.counts + other.counts
        share = other.counts / np.where(counts > 0.0, counts, 1.0)
        step = other.means - self.means
        return Moments(
            counts,
            self.means + share * step,
            self.deviations + other.deviations + self.counts * share * np.square(step),
        )

    def decayed(self, factor: float) -> Moments:
        """Return the same with every row counting `factor` times as much."""
        return Moments(factor * self.counts, self.means, factor * self.deviations)

    def shifted(self, by: Floats) -> Moments:
        """Return the same after adding `by` to every row."""
        return Moments(self.counts, self.means + by, self.deviations)
