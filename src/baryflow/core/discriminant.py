"""Directions in which classes stand apart: shrunken linear discriminants of several domains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from baryflow.validation import Floats, Integers


@dataclass(frozen=True, eq=False)
class Discriminants:
    """Directions W in which classes stand apart, and the way back.

    Attributes
    ----------
    directions : array of shape (d, p)
        Rows Z are seen as ``Z @ directions``; p is at most n_classes − 1, and at
        least 1.
    lift : array of shape (d, p)
        What is seen as v was most likely ``lift @ v``: the regression of rows on what is seen of them.
    rest : array of shape (d,)
        The variance within a class that is not seen.
    """

    directions: Floats
    lift: Floats
    rest: Floats


@dataclass(frozen=True, eq=False)
class Scatter:
    """Spread within the classes of domains, and where the classes are: sums, which add up over domains.

    What one domain has in it can be taken out again, so that leaving out one of many is cheap.
    """

    n_rows: int
    within: Floats  # (d, d): sum of the outer products of rows around their class in their domain
    fourth: float  # sum of the fourth powers of their lengths
    counts: Floats  # (n_classes,)
    sums: Floats  # (n_classes, d)

    @classmethod
    def of(cls, Z: Floats, y: Integers, n_classes: int) -> Self:
        """Measure one domain: complete rows, standardised, and their class numbers."""
        counts = np.bincount(y, minlength=n_classes).astype(np.float64)
        sums = np.zeros((n_classes, Z.shape[1]))
        np.add.at(sums, y, Z)
        residuals = (sums / np.maximum(counts, 1.0)[:, None])[y]
        np.subtract(Z, residuals, out=residuals)
        lengths = np.vecdot(residuals, residuals)
        return cls(len(Z), residuals.T @ residuals, float(lengths @ lengths), counts, sums)

    def __add__(self, other: Scatter) -> Scatter:
        return Scatter(
            self.n_rows + other.n_rows,
            self.within + other.within,
            self.fourth + other.fourth,
            self.counts + other.counts,
            self.sums + other.sums,
        )

    def __sub__(self, other: Scatter) -> Scatter:
        return Scatter(
            self.n_rows - other.n_rows,
            self.within - other.within,
            self.fourth - other.fourth,
            self.counts - other.counts,
            self.sums - other.sums,
        )

    def covariance(self) -> Floats:
        """Return the covariance within classes, shrunk towards a multiple of the identity.

        The share of the identity minimises the expected squared error (Ledoit and Wolf, 2004), so that
        the result can be inverted also with fewer rows than columns.
        """
        d = len(self.within)
        sample = self.within / self.n_rows
        level = float(np.trace(sample)) / d
        square = float(np.vdot(sample, sample))
        spread = square - d * level**2  # ‖S − level·I‖²
        share = 1.0
        if spread > 0.0:
            noise = (self.fourth / self.n_rows - square) / self.n_rows
            share = min(1.0, max(0.0, noise) / spread)
        sample *= 1.0 - share
        sample[np.arange(d), np.arange(d)] += share * level
        return sample

    def class_means(self) -> Floats:
        """Return the means of the classes around their common one, shape (n_classes, d)."""
        means: Floats = self.sums / np.maximum(self.counts, 1.0)[:, None]
        means -= self.counts / self.counts.sum() @ means
        return means

    def discriminants(self) -> Discriminants:
        """Return the directions in which classes stand apart.

        Fisher's discriminants with the covariance within each class *of each domain*, shrunken: what
        moves a class from one domain to the next does not count as spread. Within-class covariance is
        the identity in these directions, so that axis-aligned Gaussians fit there.
        """
        from scipy.linalg import cholesky, solve_triangular

        within = self.covariance()
        d, n_classes = len(within), len(self.counts)
        # A direction without any spread cannot be divided by; keep it finite.
        within[np.arange(d), np.arange(d)] += 1e-9 * max(float(np.trace(within)) / d, 1e-12)
        lower = cholesky(within, lower=True, check_finite=False)
        shares = self.counts / self.counts.sum()
        between = self.class_means() * np.sqrt(shares)[:, None]
        # With white rows, discriminants are the principal directions of the class means.
        white = solve_triangular(lower, between.T, lower=True, check_finite=False)
        n_directions = max(1, min(n_classes - 1, d))
        found = np.linalg.svd(white, full_matrices=n_directions > min(white.shape))[0]
        directions = solve_triangular(lower.T, found[:, :n_directions], check_finite=False)
        # The sign of a singular vector is arbitrary: fix it, so that the same data look the same.
        signs = np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(n_directions)])
        directions = np.ascontiguousarray(directions * np.where(signs == 0.0, 1.0, signs))
        lift = within @ directions
        rest = np.maximum(np.diag(within) - np.square(lift).sum(axis=1), 0.0)
        return Discriminants(directions, lift, rest)
