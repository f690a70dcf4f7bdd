"""EM of many candidates at once.

Every (number of components, restart) is a candidate. The components of all candidates form one
stack, candidate after candidate, so that one step of all of them is two matrix products; a candidate
leaves the stack when it has converged.

Rows are standardised: one centre and one scale per column. Sums of squares are thus taken around the
centre of the data and in units of their spread, and the floor of the standard deviations bounds what
rounding can do to a variance: its relative error stays below about 1e-16 / std_floor².
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from baryflow.core.gaussian import LOG_2PI
from baryflow.core.seeding import largest_of_each, lloyd, seed_indices
from baryflow.validation import Floats

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
