"""Labelled Gaussians as points of a Euclidean space, with names for their columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from baryflow.validation import Floats


@dataclass(frozen=True, eq=False)
class Points:
    """Points (mean | std | label) in one array, seen by the names of its columns.

    Under the 2-Wasserstein metric an axis-aligned Gaussian is the point (mean, std) of R^2d; its label,
    scaled by √label_cost, is written behind. All properties are views: writing into one writes into
    `values`, and nothing is ever copied.

    Parameters
    ----------
    values : array of shape (..., n_points, 2·n_features + n_classes)
        Leading dimensions count sets of points, such as atoms.
    n_features : int
        Columns of the means, and as many of the stds; the rest are labels.
    """

    values: Floats
    n_features: int

    @classmethod
    def join(cls, means: Floats, stds: Floats, labels: Floats) -> Self:
        """Put means, stds and labels side by side."""
        return cls(np.concatenate([means, stds, labels], axis=-1), int(means.shape[-1]))

    @property
    def n_spatial(self) -> int:
        """Columns of means and stds, all that is known of a Gaussian without a label."""
        return 2 * self.n_features

    @property
    def means(self) -> Floats:
        """Means, shape (..., n_points, n_features)."""
        return self.values[..., : self.n_features]

    @property
    def stds(self) -> Floats:
        """Standard deviations, shape (..., n_points, n_features)."""
        return self.values[..., self.n_features : self.n_spatial]

    @property
    def spatial(self) -> Floats:
        """Means and standard deviations side by side: the points without their labels."""
        return self.values[..., : self.n_spatial]

    @property
    def labels(self) -> Floats:
        """Labels, shape (..., n_points, n_classes), with the scale they have among the points."""
        return self.values[..., self.n_spatial :]
