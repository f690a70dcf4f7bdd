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

import numpy as np

from baryflow.core.gaussian import LOG_2PI
from baryflow.core.seeding import lloyd, seed_indices
from baryflow.validation import Booleans, Floats, Integers

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
        block = _Block(np.concatenate([Z * Z + spread * spread, Z], axis=1), masses, None)
        return cls(Z, masses, (block,), total)

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
        blocks = tuple(
            _Block(
                np.concatenate([Z[rows] * Z[rows], Z[rows]], axis=1),
                weights[rows],
                None if known is None else known[rows],
            )
            for rows in _slices(len(Z))
        )
        return cls(Z, weights, blocks, float(total))


def _slices(n: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, n, _BLOCK))


@dataclass(frozen=True)
class _Block:
    """Some of the rows: their design [Z², Z], weights, and 1 where a value is known (None: all)."""

    design: Floats
    weights: Floats
    known: Floats | None

    def sums(self, memberships: Floats) -> tuple[Floats, ...]:
        """Return counts, sums of the design and, with NaN, counts per column, of every component."""
        shares = memberships * self.weights
        counts = shares.sum(axis=1)
        if self.known is None:
            return counts, shares @ self.design
        return counts, shares @ self.design, shares @ self.known


class Candidates:
    """The stack of all candidates, and what became of those that stopped.

    Attributes
    ----------
    traces : list of lists
        Total log-likelihood before each step, per candidate.
    converged : array of bool
    """

    def __init__(self, rows: StandardisedRows, sizes: Integers, floor: float) -> None:
        self._stopped: dict[int, tuple[Floats, Floats, Floats]] = {}
        self.traces: list[list[float]] = [[] for _ in sizes]
        self.converged = np.zeros(len(sizes), dtype=bool)
        self._rows = rows
        self._variance_floor = floor * floor
        self._active = np.arange(len(sizes))
        self._lay_out(sizes)

    @classmethod
    def started(
        cls, rows: StandardisedRows, sizes: Integers, floor: float, rng: np.random.Generator
    ) -> Candidates:
        """Start one candidate for each entry of `sizes`, which repeats the same sweep n_init times."""
        candidates = cls(rows, sizes, floor)
        largest = int(sizes.max())
        n_init = int((sizes == largest).sum())
        seeds = seed_indices(rows.Z, rows.weights, largest, n_init, rng)
        of_restart = np.repeat(seeds, len(sizes) // n_init, axis=0)
        first = np.concatenate([s[:k] for s, k in zip(of_restart, sizes, strict=True)])
        memberships = lloyd(rows.Z, rows.weights, rows.Z[first], candidates._starts, candidates._owner)
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
        candidates = cls(rows, np.array([len(weights)]), floor)
        candidates._log_weights = np.log(np.maximum(weights, _TINY))
        candidates._means = means
        candidates._variances = np.maximum(np.square(stds), candidates._variance_floor)
        candidates._sums = (weights, np.full((len(weights), 2 * means.shape[1]), np.inf))
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
            moved = np.abs(sums[1] - self._sums[1]).max(axis=1)
            settled = np.maximum.reduceat(moved, self._starts) <= _UNMOVED * tolerance
            rises = []
            for candidate, value in zip(self._active.tolist(), log_likelihood.tolist(), strict=True):
                trace = self.traces[candidate]
                rises.append(value - trace[-1] if trace else np.inf)
                trace.append(value)
            converged = settled | (np.array(rises) < tolerance)
            self.converged[self._active] = converged
            stopping = converged if step < max_iter else np.ones_like(converged)
            if stopping.any():
                self._set_aside(stopping)
                if stopping.all():
                    return
                keep = ~stopping[self._owner]
                sums = tuple(part[keep] for part in sums)
                self._active = self._active[~stopping]
                self._lay_out(self._sizes[~stopping])
            self._maximise(sums)

    def _lay_out(self, sizes: Integers) -> None:
        self._sizes = sizes
        self._starts = np.cumsum(sizes) - sizes
        self._owner = np.repeat(np.arange(len(sizes)), sizes)

    def _expect(self) -> tuple[Floats, tuple[Floats, ...]]:
        """E step: each candidate's log-likelihood, and the sums that the M step needs."""
        d = self._means.shape[1]
        coefficients = np.empty((len(self._means), 2 * d))
        np.divide(-0.5, self._variances, out=coefficients[:, :d])
        np.divide(self._means, self._variances, out=coefficients[:, d:])
        constants = self._means * coefficients[:, d:]
        constants += np.log(self._variances)
        constants *= -0.5
        constant = (self._log_weights + constants.sum(axis=1))[:, None]
        log_likelihood: Floats = np.array(self._rows.log_units)
        parts = []
        for block in self._rows.blocks:
            table: Floats = coefficients @ block.design.T
            if block.known is None:
                table += constant
            else:
                table += constants @ block.known.T
                table += self._log_weights[:, None]
            top = np.maximum.reduceat(table, self._starts, axis=0)
            table -= top[self._owner]
            np.exp(table, out=table)
            total = np.add.reduceat(table, self._starts, axis=0)
            table /= total[self._owner]
            log_likelihood = log_likelihood + (top + np.log(total)) @ block.weights
            parts.append(block.sums(table))
        return log_likelihood, _add(parts)

    def _maximise(self, sums: tuple[Floats, ...]) -> None:
        """M step. A coordinate that no row of a component shows keeps the centre and scale."""
        self._sums = sums
        counts, totals = sums[0], sums[1]
        d = self._rows.Z.shape[1]
        shares = np.maximum(counts, _TINY)
        if len(sums) == 2:
            totals = totals / shares[:, None]
            means, squares = totals[:, d:], totals[:, :d]
        else:
            seen = sums[2] > _TINY
            divisor = np.where(seen, sums[2], 1.0)
            means = np.where(seen, totals[:, d:] / divisor, 0.0)
            squares = np.where(seen, totals[:, :d] / divisor, 1.0)
        self._means = means
        self._variances = np.maximum(squares - means * means, self._variance_floor)
        per_candidate = np.add.reduceat(shares, self._starts)
        self._log_weights = np.log(shares / per_candidate[self._owner])

    def _set_aside(self, stopping: Booleans) -> None:
        """Remember where the parameters of the marked candidates are; they change no more."""
        for position in np.flatnonzero(stopping).tolist():
            block = slice(self._starts[position], self._starts[position] + self._sizes[position])
            self._stopped[int(self._active[position])] = (
                self._log_weights[block],
                self._means[block],
                self._variances[block],
            )


def _add(parts: list[tuple[Floats, ...]]) -> tuple[Floats, ...]:
    """Add up the sums of all blocks."""
    return parts[0] if len(parts) == 1 else tuple(np.sum(p, axis=0) for p in zip(*parts, strict=True))
