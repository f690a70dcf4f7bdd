"""Axis-aligned mixtures of rows: k-means++ starts, EM, and the choice by BIC (paper, Alg. 2).

Every (number of components, restart) is a candidate. The components of all candidates form one
stack, candidate after candidate, so that one step of all of them is two matrix products; a candidate
leaves the stack when it has converged. The k-means++ seeds of k clusters are the first k seeds of a
longer sequence, so one sequence per restart serves every k.

Rows are standardised: one centre and one scale per column. Sums of squares are thus taken around the
centre of the data and in units of their spread, and the floor of the standard deviations bounds what
rounding can do to a variance: its relative error stays below about 1e-16 / std_floor².
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
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
#: Up to this number of rows, all distances at once cost less than asking for them one by one.
_WHOLE_TABLE = 64
#: Up to this number of columns, one call of NumPy for all blocks beats one for each.
_FEW_COLUMNS = 64


def seed_indices(
    Z: Floats, weights: Floats, n_seeds: int, n_restarts: int, rng: np.random.Generator
) -> list[list[int]]:
    """Return greedy k-means++ seeds as row numbers, `n_seeds` for each restart.

    Every step draws a few rows with probability proportional to weight · squared distance to
    the nearest seed, and keeps the one that leaves the smallest total. Rows must be distinct and at
    least `n_seeds`, so that no seed is drawn twice.
    """
    n_trials = 2 + int(np.log(n_seeds))
    uniforms = rng.random((n_restarts, n_seeds, n_trials))
    distances_from = _Distances(Z)
    return [_seed(distances_from, weights, draws) for draws in uniforms]


def _seed(distances_from: _Distances, weights: Floats, uniforms: Floats) -> list[int]:
    """Return the seeds of one restart; step i draws with the i-th row of `uniforms`."""
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


class _Distances:
    """Squared distances of all rows from chosen rows, which are at zero from themselves."""

    def __init__(self, Z: Floats) -> None:
        self._Z = Z
        self._norms = np.vecdot(Z, Z)
        self._table: Floats | None = None
        if len(Z) <= _WHOLE_TABLE:
            self._table = self._of(slice(None))
            np.fill_diagonal(self._table, 0.0)

    def __call__(self, chosen: Integers) -> Floats:
        """Return one row of distances for each of `chosen`."""
        if self._table is not None:
            return self._table[chosen]
        table = self._of(chosen)
        table[np.arange(len(chosen)), chosen] = 0.0
        return table

    def _of(self, chosen: Integers | slice) -> Floats:
        table = self._Z[chosen] @ self._Z.T
        table *= -2.0
        table += self._norms
        table += self._norms[chosen, None]
        return np.maximum(table, 0.0, out=table)


def _draw(masses: Floats, uniforms: Floats) -> Integers:
    """Draw positions with probability proportional to `masses`."""
    cumulative = masses.cumsum()
    # side="right": an entry without mass occupies no interval and is never drawn.
    found = cumulative.searchsorted(uniforms * cumulative[-1], side="right")
    drawn: Integers = np.minimum(found, len(masses) - 1)
    return drawn


def largest_of_each(table: Floats, starts: Integers) -> Floats:
    """Return the largest entry of each column within each block of rows, one row for each block."""
    if table.shape[1] <= _FEW_COLUMNS:
        return np.maximum.reduceat(table, starts, axis=0)
    largest = np.empty((len(starts), table.shape[1]))
    ends = [*starts[1:].tolist(), len(table)]
    for row, start, end in zip(largest, starts.tolist(), ends, strict=True):
        np.maximum.reduce(table[start:end], axis=0, out=row)
    return largest


def lloyd(
    Z: Floats, columns: Floats, weights: Floats, centres: Floats, starts: Integers, owner: Integers
) -> Floats:
    """Return the memberships, shape (total clusters, n), after Lloyd's iterations of all candidates.

    `columns` is the transpose of `Z`, which is multiplied fastest when it is laid out by columns.
    A row at the same distance from two centres belongs half to each. A cluster that loses all of its
    rows stays where it is.
    """
    members = np.zeros((len(owner), len(Z)), dtype=bool)
    moving = np.arange(len(owner))  # the others keep their rows, and so their centres and costs
    for _ in range(_LLOYD_STEPS):
        # Half the squared distance, up to the row's own norm, which no comparison needs.
        found = centres @ columns
        found -= 0.5 * np.vecdot(centres, centres)[:, None]
        if len(found) == len(owner):
            costs = found
        else:
            costs[moving] = found
        previous, members = members, costs >= largest_of_each(costs, starts)[owner]
        moving = np.flatnonzero((members != previous).any(axis=1))
        if not moving.size:
            break
        shares = members[moving] * weights
        counts = shares.sum(axis=1)
        if not counts.all():  # an empty cluster stays where it is
            filled = counts > 0.0
            moving, shares, counts = moving[filled], shares[filled], counts[filled]
        centres = (shares @ Z) / counts[:, None]
    if np.count_nonzero(members) == len(starts) * len(Z):  # no ties
        return members.astype(np.float64)
    return members / np.add.reduceat(members, starts, axis=0, dtype=np.float64)[owner]


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


class Candidates:
    """The stack of all candidates, and what became of those that stopped.

    Attributes
    ----------
    traces : list of lists
        Total log-likelihood before each step, per candidate.
    converged : list of bool
    """

    def __init__(self, rows: StandardisedRows, sizes: list[int], floor: float) -> None:
        self._stopped: dict[int, tuple[Floats, Floats, Floats]] = {}
        self.traces: list[list[float]] = [[] for _ in sizes]
        self.converged = [False] * len(sizes)
        self._rows = rows
        self._variance_floor = floor * floor
        self._lay_out(list(range(len(sizes))), sizes)

    @classmethod
    def started(
        cls, rows: StandardisedRows, ks: list[int], n_init: int, floor: float, rng: np.random.Generator
    ) -> Candidates:
        """Start `n_init` times one candidate for each number of components."""
        candidates = cls(rows, ks * n_init, floor)
        seeds = seed_indices(rows.Z, rows.weights, max(ks), n_init, rng)
        first = [seed for restart in seeds for k in ks for seed in restart[:k]]
        columns = rows.blocks[0].columns[rows.Z.shape[1] : -1] if len(rows.blocks) == 1 else rows.Z.T
        memberships = lloyd(
            rows.Z, columns, rows.weights, rows.Z[first], candidates._starts, candidates._owner
        )
        parts = [
            block.sums(memberships[:, part])
            for block, part in zip(rows.blocks, _slices(len(rows.Z)), strict=True)
        ]
        candidates._maximise(_add(parts))
        return candidates

    @classmethod
    def from_parameters(
        cls, rows: StandardisedRows, weights: Floats, means: Floats, stds: Floats, floor: float
    ) -> Candidates:
        """Start a single candidate from given parameters, in standardised units."""
        candidates = cls(rows, [len(weights)], floor)
        candidates._log_weights = np.log(np.maximum(weights, _TINY))
        candidates._means = means
        candidates._variances = np.maximum(np.square(stds), candidates._variance_floor)
        candidates._sums = (np.full((len(weights), 2 * means.shape[1] + 1), np.inf),)
        return candidates

    def parameters(self, candidate: int) -> tuple[Floats, Floats, Floats]:
        """Return weights, means and stds of a candidate that has stopped, in standardised units."""
        log_weights, means, variances = self._stopped[candidate]
        return np.exp(log_weights), means, np.sqrt(variances)

    def advance(self, max_iter: int, tolerance: float) -> None:
        """Run EM until the rise of each log-likelihood is below `tolerance`, or `max_iter` steps."""
        for step in range(max_iter + 1):
            log_likelihood, sums = self._expect()
            # Parameters that reproduce the sums they were computed from will hardly move any more.
            moved = np.maximum.reduceat(np.abs(sums[0] - self._sums[0]).max(axis=1), self._starts)
            stopping = []
            for candidate, value, gap in zip(
                self._active, log_likelihood.tolist(), moved.tolist(), strict=True
            ):
                trace = self.traces[candidate]
                rise = value - trace[-1] if trace else np.inf
                trace.append(value)
                self.converged[candidate] = gap <= _UNMOVED * tolerance or rise < tolerance
                stopping.append(self.converged[candidate] or step == max_iter)
            if any(stopping):
                self._set_aside(stopping)
                if all(stopping):
                    return
                keep = ~np.array(stopping)[self._owner]
                sums = tuple(part[keep] for part in sums)
                going = [i for i, stops in enumerate(stopping) if not stops]
                self._lay_out([self._active[i] for i in going], [self._sizes[i] for i in going])
            self._maximise(sums)

    def _lay_out(self, active: list[int], sizes: list[int]) -> None:
        self._active, self._sizes = active, sizes
        self._starts = np.array([0, *accumulate(sizes[:-1])])
        self._owner = np.repeat(np.arange(len(sizes)), sizes)
        self._owned = (self._owner == np.arange(len(sizes))[:, None]).astype(np.float64)

    def _expect(self) -> tuple[Floats, tuple[Floats, ...]]:
        """E step: each candidate's log-likelihood, and the sums that the M step needs."""
        d = self._means.shape[1]
        coefficients = np.empty((len(self._means), 2 * d + 1))
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
        log_likelihood: Floats = np.array(self._rows.log_units)
        parts = []
        for block in self._rows.blocks:
            table: Floats = coefficients @ block.columns
            if block.known is not None:
                table += constants @ block.known.T
            top = largest_of_each(table, self._starts)
            table -= top[self._owner]
            np.exp(table, out=table)
            # With few candidates the product is the faster of two sums.
            few = len(self._sizes) <= d
            total = self._owned @ table if few else np.add.reduceat(table, self._starts, axis=0)
            table /= total[self._owner]
            log_likelihood = log_likelihood + (top + np.log(total)) @ block.weights
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
        self._log_weights = np.log(shares / (self._owned @ shares)[self._owner])

    def _set_aside(self, stopping: list[bool]) -> None:
        """Remember where the parameters of the marked candidates are; they change no more."""
        for candidate, start, size, stops in zip(
            self._active, self._starts.tolist(), self._sizes, stopping, strict=True
        ):
            if stops:
                part = slice(start, start + size)
                self._stopped[candidate] = (
                    self._log_weights[part],
                    self._means[part],
                    self._variances[part],
                )


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
    candidates = Candidates.started(rows, ks, n_init, std_floor, rng)
    candidates.advance(max_iter, tol * mass)
    return _choose(candidates, ks, reference, mass)


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


def _choose(candidates: Candidates, ks: list[int], reference: Reference, mass: float) -> Sweep:
    """Keep the best restart of each number of components, and the best of those by BIC.

    One that did not converge wins only over others that did not.
    """
    traces, converged = candidates.traces, candidates.converged
    of_k = [range(i, len(traces), len(ks)) for i in range(len(ks))]
    chosen = [min(restarts, key=lambda c: (not converged[c], -traces[c][-1])) for restarts in of_k]
    n_components = np.array(ks)
    log_likelihood = np.array([traces[c][-1] for c in chosen])
    n_parameters = n_components - 1 + 2 * n_components * len(reference.centre)
    bic = n_parameters * np.log(mass) - 2.0 * log_likelihood
    best = min(range(len(ks)), key=lambda i: (not converged[chosen[i]], bic[i]))
    return Sweep(
        mixture=_mixture(candidates, chosen[best], reference, mass),
        n_components=n_components,
        bic=bic,
        log_likelihood=log_likelihood,
        converged=np.array([converged[c] for c in chosen]),
        n_iter=np.array([len(traces[c]) for c in chosen]),
        traces=tuple(np.array(traces[c]) for c in chosen),
        best=best,
    )


def _mixture(candidates: Candidates, number: int, reference: Reference, mass: float) -> Mixture:
    """Return one candidate in the units of the data, without components that have vanished."""
    shares, means, stds = candidates.parameters(number)
    alive = shares > _VANISHED
    if not alive.all():
        shares, means, stds = shares[alive], means[alive], stds[alive]
    return Mixture(
        shares / shares.sum(),
        reference.centre + reference.scale * means,
        reference.scale * stds,
        mass=mass,
    )
