"""Axis-aligned Gaussians as arrays: densities, distances and merges.

A set of K Gaussians in d dimensions is a pair of arrays, ``means`` and ``stds``, both of shape
(K, d). Under the 2-Wasserstein metric such a Gaussian is the point (mean, std) of R^2d, so that
distances are Euclidean (paper, eq. 6) and so are averages.
"""

from __future__ import annotations

import numpy as np

from baryflow.validation import Booleans, Floats

LOG_2PI = float(np.log(2.0 * np.pi))

#: A squared distance this much smaller than the points' own squared norms has lost half of its
#: digits in a Gram matrix and is computed again from differences.
CANCELLED = 1e-7
#: Largest squared distance of a mean from the common centre, in standard deviations, for which the
#: square in the log-density may be expanded: it bounds the absolute error by about 1e-7.
_EXPANSION_LIMIT = 1e9
#: Entries of the largest temporary array that a table is allowed to build at once.
_TEMPORARY = 1 << 22


class LogDensity:
    """log N(x; mean_k, std_k) of many rows under K axis-aligned Gaussians, prepared once.

    The square in the exponent is expanded, which turns the whole table into one matrix product of
    the rows' ``[x², x]`` with a (2d, K) matrix. Rows are first moved to the centre of the means: an
    offset common to all of the data then costs no digits. Components so narrow and so far out
    that the expansion would cost digits all the same are computed from differences.

    Missing coordinates (NaN) drop out exactly, because the covariance is diagonal.
    """

    def __init__(self, means: Floats, stds: Floats) -> None:
        self._means, self._stds = means, stds
        self._centre = means.mean(axis=0)
        inverse = 1.0 / stds
        scaled = (means - self._centre) * inverse
        self._delicate = np.flatnonzero(np.vecdot(scaled, scaled) > _EXPANSION_LIMIT)
        # Per coordinate, what an observed value adds whatever it is.
        self._constants = -0.5 * (scaled * scaled + LOG_2PI) - np.log(stds)
        self._constant = self._constants.sum(axis=1)
        self._coefficients = np.concatenate([-0.5 * inverse * inverse, scaled * inverse], axis=1).T

    def __call__(self, X: Floats) -> Floats:
        """Return the (n, K) table of log-densities."""
        if not np.isnan(X.sum()):  # one cheap pass: a NaN anywhere shows in the sum
            return self._complete(X)
        missing = np.isnan(X)
        incomplete = missing.any(axis=1)
        table = np.empty((X.shape[0], self._means.shape[0]))
        table[~incomplete] = self._complete(X[~incomplete])
        table[incomplete] = self._marginal(X[incomplete], ~missing[incomplete])
        return table

    def _complete(self, X: Floats) -> Floats:
        table: Floats = _design(X - self._centre) @ self._coefficients
        table += self._constant
        for k in self._delicate.tolist():
            table[:, k] = self._terms(X, k).sum(axis=1)
        return table

    def _marginal(self, X: Floats, observed: Booleans) -> Floats:
        centred = np.where(observed, X - self._centre, 0.0)
        table: Floats = _design(centred) @ self._coefficients
        table += observed.astype(np.float64) @ self._constants.T
        for k in self._delicate.tolist():
            table[:, k] = np.where(observed, self._terms(X, k), 0.0).sum(axis=1)
        return table

    def _terms(self, X: Floats, k: int) -> Floats:
        terms: Floats = -0.5 * (((X - self._means[k]) / self._stds[k]) ** 2 + LOG_2PI)
        terms -= np.log(self._stds[k])
        return terms


def _design(centred: Floats) -> Floats:
    """Return [x², x] side by side."""
    n, d = centred.shape
    design = np.empty((n, 2 * d))
    np.multiply(centred, centred, out=design[:, :d])
    design[:, d:] = centred
    return design


def squared_distances(points: Floats, others: Floats, *, reproducible: bool = False) -> Floats:
    """Return the table of squared Euclidean distances, accurate also where it is almost zero.

    One Gram matrix gives all entries; those that lost digits to cancellation are recomputed from
    differences, so that equal points are at distance exactly zero. A `reproducible` table takes about
    twice as long: every entry depends on its pair of points only, not on the rest of the table or
    on the number of BLAS threads.
    """
    if reproducible:
        norms = np.vecdot(points, points)[:, None] + np.vecdot(others, others)
        return _repaired(np.vecdot(points[:, None, :], others), norms, points, others)
    centre = points.mean(axis=0)
    a, b = points - centre, others - centre
    norms = np.vecdot(a, a)[:, None] + np.vecdot(b, b)
    return _repaired(a @ b.T, norms, points, others)


def _repaired(products: Floats, norms: Floats, points: Floats, others: Floats) -> Floats:
    """Turn a table of products into one of squared distances, in place."""
    table = products
    table *= -2.0
    table += norms
    norms *= CANCELLED
    rows, columns = np.nonzero(table < norms)
    step = max(1, _TEMPORARY // points.shape[1])
    for start in range(0, rows.size, step):
        i, j = rows[start : start + step], columns[start : start + step]
        difference = points[i] - others[j]
        table[i, j] = np.vecdot(difference, difference)
    return table


def w2_squared_table(means_a: Floats, stds_a: Floats, means_b: Floats, stds_b: Floats) -> Floats:
    """Return ‖m_i − m_j‖² + ‖s_i − s_j‖² for every pair (paper, eq. 6)."""
    return squared_distances(
        np.concatenate([means_a, stds_a], axis=1), np.concatenate([means_b, stds_b], axis=1)
    )


def kl_table(means_a: Floats, stds_a: Floats, means_b: Floats, stds_b: Floats) -> Floats:
    """Return the Kullback-Leibler divergence KL(a_i ‖ b_j) for every pair."""
    table = np.empty((means_a.shape[0], means_b.shape[0]))
    for j, (mean, std) in enumerate(zip(means_b, stds_b, strict=True)):
        ratio = stds_a / std
        shift = (means_a - mean) / std
        # x - 1 - log x with x = ratio²: both differences stay small together.
        table[:, j] = 0.5 * (ratio**2 - 1.0 - 2.0 * np.log(ratio) + shift**2).sum(axis=1)
    return table
