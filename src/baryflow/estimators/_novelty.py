"""Novelty: how far rows are from everything known, as a rank among rows of left-out sources."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats

#: Rows above this novelty are called novel.
NOVELTY_THRESHOLD = 0.99
#: Quantiles of the distances of left-out rows against which novelty is measured.
_QUANTILES = 1001


@dataclass(frozen=True, eq=False)
class Novelty:
    """The distances that are usual of rows that are not novel."""

    quantiles: Floats  # in units of what is typical of a target
    typical: float  # distance of the sources' rows, for the time before the first row of a target

    @classmethod
    def none(cls) -> Novelty:
        """Return what is known without rows."""
        return cls(np.zeros(0), 1.0)

    @classmethod
    def of(cls, distances: Floats, typical: float) -> Novelty:
        """Take the quantiles of distances in units of what is typical."""
        return cls(np.quantile(distances, np.linspace(0.0, 1.0, _QUANTILES)), typical)

    def rank(self, far: Floats) -> Floats:
        """Return the share of left-out rows that were nearer, in units of what is typical."""
        if not len(self.quantiles):
            raise InvalidInputError("novelty needs rows of sources: this model was made from mixtures")
        return np.asarray(np.searchsorted(self.quantiles, far, side="left") / len(self.quantiles))


def nearest_distance(Z: Floats, means: Floats, stds: Floats) -> Floats:
    """Return the smallest mean squared standardised distance of each row to a component."""
    nearest = np.full(len(Z), np.inf)
    for mean, std in zip(means, stds, strict=True):
        np.minimum(nearest, np.square((Z - mean) / std).mean(axis=1), out=nearest)
    return nearest
