"""Axis-aligned mixtures of rows: k-means++ starts, EM, and the choice by BIC (paper, Alg. 2).

A step of EM is two matrix products. The k-means++ seeds of k clusters are the first k seeds of a longer
sequence, so one sequence per restart serves every k.

Rows are standardised: one centre and one scale per column. Sums of squares are thus taken around the
centre of the data and in units of their spread, and the floor of the standard deviations bounds what
rounding can do to a variance: its relative error stays below about 1e-16 / std_floor².
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from baryflow.core.gaussian import LOG_2PI
from baryflow.core.mixture import Mixture
from baryflow.exceptions import InvalidInputError
from baryflow.validation import (
    Booleans,
    Floats,
    Integers,
    RandomState,
    as_count,
    as_generator,
    as_matrix,
    as_real,
    as_weights,
)

#: Lloyd iterations at most; EM continues from there.
_LLOYD_STEPS = 8


def seed_indices(Z: Floats, weights: Floats, uniforms: Floats) -> list[int]:
    """Return greedy k-means++ seeds as row numbers; step i draws with the i-th row of `uniforms`.

    Every step draws a few rows with probability proportional to weight · squared distance to
    the nearest seed, and keeps the one that leaves the smallest total. Rows must be distinct and at
    least as many as seeds, so that no seed is drawn twice.
    """
    norms = np.vecdot(Z, Z)

    def distances_from(chosen: Integers) -> Floats:
        table = Z[chosen] @ Z.T
        table *= -2.0
        table += norms
        table += norms[chosen, None]
        table[np.arange(len(chosen)), chosen] = 0.0
        return np.maximum(table, 0.0, out=table)

    chosen = _draw(weights, uniforms[0, :1])
    seeds = [int(chosen[0])]
    nearest = distances_from(chosen)[0]
    for draws in uniforms[1:]:
        trials = _draw(nearest * weights, draws)
        distances = np.minimum(distances_from(trials), nearest)
        best = (distances @ weights).argmin()
        seeds.append(int(trials[best]))
        nearest = distances[best]
    return seeds


def _draw(masses: Floats, uniforms: Floats) -> Integers:
    """Draw positions with probability proportional to `masses`."""
    cumulative = masses.cumsum()
    # side="right": an entry without mass occupies no interval and is never drawn.
    found = cumulative.searchsorted(uniforms * cumulative[-1], side="right")
    drawn: Integers = np.minimum(found, len(masses) - 1)
    return drawn


def lloyd(Z: Floats, weights: Floats, centres: Floats) -> Floats:
    """Return the memberships, shape (n_clusters, n), after Lloyd's iterations.

    A row at the same distance from two centres belongs half to each. A cluster that loses all of its
    rows stays where it is.
    """
    members = np.zeros((len(centres), len(Z)), dtype=bool)
    for _ in range(_LLOYD_STEPS):
        # Half the squared distance, up to the row's own norm, which no comparison needs.
        costs = centres @ Z.T
        costs -= 0.5 * np.vecdot(centres, centres)[:, None]
        previous, members = members, costs >= costs.max(axis=0)
        if np.array_equal(members, previous):
            break
        shares = members * weights
        counts = shares.sum(axis=1)[:, None]
        centres = np.where(counts > 0.0, (shares @ Z) / np.where(counts > 0.0, counts, 1.0), centres)
    return np.asarray(members / members.sum(axis=0, dtype=np.float64))


#: Rows of the design handled at once, so that the temporaries stay small on long data.
_BLOCK = 4096
#: Sums that change by less than this, in units of the tolerance, cannot raise the likelihood by it.
_UNMOVED = 1e-4
_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class StandardisedRows:
    """Rows in units of their spread, ready for the products of EM."""

    Z: Floats  # missing values are 0, the centre
    weights: Floats
    blocks: tuple[_Block, ...]
    #: What the units and the normalising constant add to every total log-likelihood.
    log_units: float

    @classmethod
    def of_components(
        cls, masses: Floats, means: Floats, stds: Floats, centre: Floats, scale: Floats
    ) -> StandardisedRows:
        """Take Gaussians for rows: each stands for `mass` rows known by their first two moments."""
        Z, spread = (means - centre) / scale, stds / scale
        total = float((-np.log(scale) - 0.5 * LOG_2PI).sum() * masses.sum())
        return cls(Z, masses, (_Block.of(Z * Z + spread * spread, Z, masses, None),), total)

    @classmethod
    def of(cls, X: Floats, weights: Floats, centre: Floats, scale: Floats) -> StandardisedRows:
        """Standardise the rows of `X`, NaN included."""
        Z = (X - centre) / scale
        known = None
        log_units = -np.log(scale) - 0.5 * LOG_2PI
        total = log_units.sum() * weights.sum()
        if np.isnan(Z.sum()):
            missing = np.isnan(Z)
            Z[missing] = 0.0
            known = (~missing).astype(np.float64)
            total = weights @ known @ log_units
        if len(Z) <= _BLOCK:
            return cls(Z, weights, (_Block.of(Z * Z, Z, weights, known),), float(total))
        blocks = tuple(
            _Block.of(Z[part] * Z[part], Z[part], weights[part], None if known is None else known[part])
            for part in _slices(len(Z))
        )
        return cls(Z, weights, blocks, float(total))


def _slices(n: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, n, _BLOCK))


@dataclass(frozen=True)
class _Block:
    """Some of the rows: their design [Z², Z, 1], weights, and 1 where a value is known (None: all)."""

    design: Floats
    columns: Floats  # the transpose of the design
    weights: Floats
    known: Floats | None

    @classmethod
    def of(cls, squares: Floats, Z: Floats, weights: Floats, known: Floats | None) -> _Block:
        n, d = Z.shape
        design = np.empty((n, 2 * d + 1))
        design[:, :d], design[:, d:-1], design[:, -1] = squares, Z, 1.0
        # Laid out by columns it is multiplied faster, which long data would pay for with memory.
        return cls(design, design.T.copy() if n < _BLOCK else design.T, weights, known)

    def sums(self, memberships: Floats) -> tuple[Floats, ...]:
        """Return sums of the design and, with NaN, counts per column, of every component."""
        shares = memberships * self.weights
        if self.known is None:
            return (shares @ self.design,)
        return shares @ self.design, shares @ self.known


class Climb:
    """One mixture that climbs to the nearest maximum of the likelihood of some rows, by EM.

    Attributes
    ----------
    trace : list of float
        Total log-likelihood before each step.
    converged : bool
    """

    def __init__(self, rows: StandardisedRows, floor: float) -> None:
        self._rows, self._variance_floor = rows, floor * floor
        self.trace: list[float] = []
        self.converged = False

    @classmethod
    def from_seeds(cls, rows: StandardisedRows, seeds: list[int], floor: float) -> Climb:
        """Start from rows, after Lloyd's iterations."""
        climb, memberships = cls(rows, floor), lloyd(rows.Z, rows.weights, rows.Z[seeds])
        slices = zip(rows.blocks, _slices(len(rows.Z)), strict=True)
        climb._maximise(_add([block.sums(memberships[:, part]) for block, part in slices]))
        return climb

    @classmethod
    def from_parameters(
        cls, rows: StandardisedRows, weights: Floats, means: Floats, stds: Floats, floor: float
    ) -> Climb:
        """Start from given parameters, in standardised units."""
        climb = cls(rows, floor)
        climb._log_weights = np.log(np.maximum(weights, _TINY))
        climb._means = means
        climb._variances = np.maximum(np.square(stds), climb._variance_floor)
        climb._sums = (np.full((len(weights), 2 * means.shape[1] + 1), np.inf),)
        return climb

    @property
    def parameters(self) -> tuple[Floats, Floats, Floats]:
        """Weights, means and stds, in standardised units."""
        return np.exp(self._log_weights), self._means, np.sqrt(self._variances)

    def run(self, max_iter: int, tolerance: float) -> Climb:
        """Run EM until the rise of the log-likelihood is below `tolerance`, or `max_iter` steps."""
        for step in range(max_iter + 1):
            log_likelihood, sums = self._expect()
            # Parameters that reproduce the sums they were computed from will hardly move any more.
            gap = float(np.abs(sums[0] - self._sums[0]).max())
            rise = log_likelihood - self.trace[-1] if self.trace else np.inf
            self.trace.append(log_likelihood)
            self.converged = gap <= _UNMOVED * tolerance or rise < tolerance
            if self.converged or step == max_iter:
                break
            self._maximise(sums)
        return self

    def _expect(self) -> tuple[float, tuple[Floats, ...]]:
        """E step: the log-likelihood, and the sums that the M step needs."""
        k, d = self._means.shape
        coefficients = np.empty((k, 2 * d + 1))
        precisions, scaled = coefficients[:, :d], coefficients[:, d:-1]
        np.divide(1.0, self._variances, out=precisions)
        np.multiply(self._means, precisions, out=scaled)
        precisions *= -0.5
        constants = self._means * scaled
        constants += np.log(self._variances)
        constants *= -0.5
        coefficients[:, -1] = self._log_weights
        if self._rows.blocks[0].known is None:
            coefficients[:, -1] += constants.sum(axis=1)
        log_likelihood, parts, ones = self._rows.log_units, [], np.ones((1, k))
        for block in self._rows.blocks:
            table: Floats = coefficients @ block.columns
            if block.known is not None:
                table += constants @ block.known.T
            top = table.max(axis=0)
            table -= top
            np.exp(table, out=table)
            total = ones @ table  # faster than a sum
            table /= total
            log_likelihood += float(((top + np.log(total)) @ block.weights)[0])
            parts.append(block.sums(table))
        return log_likelihood, _add(parts)

    def _maximise(self, sums: tuple[Floats, ...]) -> None:
        """M step. A coordinate that no row of a component shows keeps the centre and scale."""
        self._sums = sums
        totals = sums[0]
        d = self._rows.Z.shape[1]
        shares = np.maximum(totals[:, -1], _TINY)
        if len(sums) == 1:
            totals = totals / shares[:, None]
            squares, means = totals[:, :d], totals[:, d:-1]
        else:
            seen = sums[1] > _TINY
            divisor = np.where(seen, sums[1], 1.0)
            squares = np.where(seen, totals[:, :d] / divisor, 1.0)
            means = np.where(seen, totals[:, d:-1] / divisor, 0.0)
        self._means = means
        self._variances = np.maximum(squares - means * means, self._variance_floor)
        self._log_weights = np.log(shares / (np.ones((1, len(shares))) @ shares))


def _add(parts: list[tuple[Floats, ...]]) -> tuple[Floats, ...]:
    """Add up the sums of all blocks."""
    return parts[0] if len(parts) == 1 else tuple(np.sum(p, axis=0) for p in zip(*parts, strict=True))


#: A component that holds less than this share of the data is gone.
_VANISHED = 1e-12
#: The smallest relative floor for which variances keep eight digits.
_SMALLEST_FLOOR = 1e-4


@dataclass(frozen=True, eq=False)
class Sweep:
    """What a sweep over numbers of components saw, and the mixture that it chose.

    Parameters
    ----------
    mixture : Mixture
        The candidate with the lowest BIC; one that did not converge only if none did.
    n_components : array of shape (n,)
        The numbers of components that were tried.
    bic, log_likelihood : arrays of shape (n,)
        Of the best restart with each number; of the BIC, lower is better.
    converged : array of bool, shape (n,)
    n_iter : array of shape (n,)
        EM steps taken.
    traces : tuple of n arrays
        The total log-likelihood at each EM step.
    best : int
        Position of the winner in the arrays.
    """

    mixture: Mixture
    n_components: Integers
    bic: Floats
    log_likelihood: Floats
    converged: Booleans
    n_iter: Integers
    traces: tuple[Floats, ...]
    best: int


@dataclass(frozen=True)
class Reference:
    """Centre and scale per column, in whose units a fit is done and its floor is given."""

    centre: Floats
    scale: Floats

    @classmethod
    def of(cls, X: Floats, weights: Floats, name: str = "X") -> Reference:
        """Measure the columns of `X`, NaN left out; a constant column borrows the others' scale."""
        # Around any value of the column first, so that a far offset costs no digits.
        if np.isnan(X.sum()):
            observed = ~np.isnan(X)
            counts = weights @ observed
            if not counts.all():
                columns = np.flatnonzero(counts == 0).tolist()
                raise InvalidInputError(
                    f"{name} holds no value at all in column(s) {columns}: drop them, or pass rows "
                    f"in which they are known"
                )
            anchor = X[observed.argmax(axis=0), np.arange(X.shape[1])]
            shifted = np.where(observed, X - anchor, 0.0)
            offset = (weights @ shifted) / counts
            variance = (weights @ np.where(observed, shifted - offset, 0.0) ** 2) / counts
        else:
            total = weights.sum()
            anchor = X[0]
            shifted = X - anchor
            offset = (weights @ shifted) / total
            shifted -= offset
            variance = (weights @ np.square(shifted, out=shifted)) / total
        return cls.of_moments(anchor + offset, variance)

    @classmethod
    def of_moments(cls, centre: Floats, variance: Floats) -> Reference:
        """Take a column's spread as its scale, unless it is constant up to rounding."""
        resolution = 16.0 * np.finfo(np.float64).eps * np.abs(centre)
        scale = np.sqrt(variance)
        varies = scale > resolution
        if not varies.all():
            scale[~varies] = scale[varies].mean() if varies.any() else 1.0
        return cls(centre, scale)


def fit_mixture(
    X: Any,
    min_components: int = 1,
    max_components: int | None = None,
    *,
    sample_weight: Any = None,
    n_init: int = 1,
    max_iter: int = 100,
    tol: float = 1e-3,
    std_floor: float = 1e-3,
    random_state: RandomState = None,
) -> Mixture:
    """Fit an axis-aligned Gaussian mixture by EM, with the number of components chosen by BIC.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        NaN marks a missing value, which is left out exactly.
    min_components, max_components : int
        The sweep min_components..max_components, ends included; without `max_components` exactly
        `min_components`. Never more than there are distinct rows.
    sample_weight : array of shape (n_samples,), optional
        Counts: a weight of 2 is a row seen twice, a weight of 0 a row not seen.
    n_init : int, default=1
        Restarts, each from its own k-means++ start.
    max_iter, tol : int and float
        EM stops when the mean log-likelihood rises by less than `tol`, or after `max_iter` steps.
    std_floor : float, default=1e-3
        Smallest standard deviation, relative to that of the whole column; 1e-4 to 1.
    random_state : int, Generator or None
        Seed of the starts. The order of the rows never matters.

    Returns
    -------
    Mixture
        The candidate with the lowest BIC; one that did not converge only if none did. Its mass is
        the sum of the sample weights.

    Raises
    ------
    InvalidInputError
        If `X` holds no rows or columns without any value, a weight is negative, or an option is out
        of its range.

    See Also
    --------
    sweep_components : the same, with all that the sweep saw.

    Examples
    --------
    >>> import numpy as np
    >>> from baryflow import fit_mixture
    >>> X = np.concatenate([np.random.default_rng(0).normal(c, 1, (50, 2)) for c in (-5, 5)])
    >>> fit_mixture(X, 1, 4, random_state=0)
    Mixture(n_components=2, n_features=2, mass=100)
    """
    return sweep_components(
        X,
        min_components,
        max_components,
        sample_weight=sample_weight,
        n_init=n_init,
        max_iter=max_iter,
        tol=tol,
        std_floor=std_floor,
        random_state=random_state,
    ).mixture


def sweep_components(
    X: Any,
    min_components: int = 1,
    max_components: int | None = None,
    *,
    sample_weight: Any = None,
    n_init: int = 1,
    max_iter: int = 100,
    tol: float = 1e-3,
    std_floor: float = 1e-3,
    random_state: RandomState = None,
) -> Sweep:
    """Fit mixtures with several numbers of components; return the best by BIC, and the curve.

    Parameters
    ----------
    X, min_components, max_components, sample_weight, n_init, max_iter, tol, std_floor, random_state
        As in :func:`fit_mixture`.

    Returns
    -------
    Sweep
        With the chosen mixture in ``.mixture``.

    Raises
    ------
    InvalidInputError
        As :func:`fit_mixture`.

    Examples
    --------
    >>> import numpy as np
    >>> from baryflow import sweep_components
    >>> X = np.concatenate([np.random.default_rng(0).normal(c, 1, (50, 2)) for c in (-5, 5)])
    >>> sweep = sweep_components(X, 1, 4, random_state=0)
    >>> sweep.n_components[sweep.best]
    np.int64(2)
    """
    X = as_matrix(X, "X", allow_nan=True)
    weights = as_weights(sample_weight, "sample_weight", length=X.shape[0])
    X, weights = distinct_rows(X, weights)
    return fit_rows(
        X,
        weights,
        Reference.of(X, weights),
        min_components=min_components,
        max_components=max_components,
        n_init=n_init,
        max_iter=max_iter,
        tol=tol,
        std_floor=std_floor,
        rng=as_generator(random_state),
    )


def fit_rows(
    X: Floats,
    weights: Floats,
    reference: Reference,
    *,
    min_components: int = 1,
    max_components: int | None = None,
    n_init: int = 1,
    max_iter: int = 100,
    tol: float = 1e-3,
    std_floor: float = 1e-3,
    rng: np.random.Generator,
) -> Sweep:
    """Fit distinct rows in the units of `reference`, which may come from a larger set of rows.

    A column that is missing from all of these rows then keeps the reference's centre and scale.
    """
    k1 = as_count(min_components, "min_components")
    k2 = k1 if max_components is None else as_count(max_components, "max_components")
    if k2 < k1:
        raise InvalidInputError(f"max_components={k2} must not be smaller than min_components={k1}")
    n_init = as_count(n_init, "n_init")
    max_iter = as_count(max_iter, "max_iter")
    tol = as_real(tol, "tol", low=0.0)
    std_floor = as_real(std_floor, "std_floor", low=_SMALLEST_FLOOR, high=1.0)

    mass = float(weights.sum())
    ks = list(range(min(k1, len(X)), min(k2, len(X)) + 1))
    rows = StandardisedRows.of(X, weights, reference.centre, reference.scale)
    uniforms = rng.random((n_init, max(ks), 2 + int(np.log(max(ks)))))
    starts = [seed_indices(rows.Z, rows.weights, draws) for draws in uniforms]
    climbs = [
        [Climb.from_seeds(rows, seeds[:k], std_floor).run(max_iter, tol * mass) for seeds in starts]
        for k in ks
    ]
    return _choose(climbs, ks, reference, mass)


def distinct_rows(X: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the distinct rows of positive weight in a canonical order, and their total weights.

    This makes an integer weight the same as repetition, and the order of rows immaterial.
    """
    keep = weights > 0.0
    if not keep.all():
        X, weights = X[keep], weights[keep]
    order = X[:, 0].argsort()
    ordered = X[order]
    if (ordered[1:, 0] > ordered[:-1, 0]).all():  # one column tells them apart: the usual case
        ordered += 0.0  # -0.0 is 0.0
        return ordered, weights[order]
    X = np.ascontiguousarray(X + 0.0)  # a copy in which -0.0 is 0.0
    X[np.isnan(X)] = np.nan  # one bit pattern for all NaN
    keys = X.view(np.dtype((np.void, X.shape[1] * X.itemsize))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    X, weights = X[first], np.bincount(inverse, weights=weights).astype(np.float64)
    canonical = X[:, 0].argsort(kind="stable")
    return X[canonical], weights[canonical]


def _choose(climbs: list[list[Climb]], ks: list[int], reference: Reference, mass: float) -> Sweep:
    """Keep the best restart of each number of components, and the best of those by BIC.

    One that did not converge wins only over others that did not.
    """
    chosen = [min(restarts, key=lambda one: (not one.converged, -one.trace[-1])) for restarts in climbs]
    n_components = np.array(ks)
    log_likelihood = np.array([one.trace[-1] for one in chosen])
    n_parameters = n_components - 1 + 2 * n_components * len(reference.centre)
    bic = n_parameters * np.log(mass) - 2.0 * log_likelihood
    best = min(range(len(ks)), key=lambda i: (not chosen[i].converged, bic[i]))
    return Sweep(
        mixture=_mixture(chosen[best], reference, mass),
        n_components=n_components,
        bic=bic,
        log_likelihood=log_likelihood,
        converged=np.array([one.converged for one in chosen]),
        n_iter=np.array([len(one.trace) for one in chosen]),
        traces=tuple(np.array(one.trace) for one in chosen),
        best=best,
    )


def _mixture(climb: Climb, reference: Reference, mass: float) -> Mixture:
    """Return a mixture in the units of the data, without components that have vanished."""
    shares, means, stds = climb.parameters
    alive = shares > _VANISHED
    return Mixture(
        shares[alive] / shares[alive].sum(),
        reference.centre + reference.scale * means[alive],
        reference.scale * stds[alive],
        mass=mass,
    )
