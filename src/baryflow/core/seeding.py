"""Starts for EM: k-means++ and Lloyd's iterations, for many numbers of clusters at once.

Candidates are laid out as one stack of centres, candidate after candidate. The k-means++ seeds of k
clusters are the first k seeds of a longer sequence, so one sequence per restart serves every k.
"""

from __future__ import annotations

import numpy as np

from baryflow.validation import Floats, Integers

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
