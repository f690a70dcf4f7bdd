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


def seed_indices(
    Z: Floats, weights: Floats, n_seeds: int, n_restarts: int, rng: np.random.Generator
) -> Integers:
    """Return greedy k-means++ seeds as row numbers, shape (n_restarts, n_seeds).

    Every step draws a few rows with probability proportional to weight · squared distance to
    the nearest seed, and keeps the one that leaves the smallest total. Rows must be distinct and at
    least `n_seeds`, so that no seed is drawn twice.
    """
    n_trials = 2 + int(np.log(n_seeds))
    seeds = np.empty((n_restarts, n_seeds), dtype=np.intp)
    restarts = np.arange(n_restarts)
    uniforms = rng.random((n_seeds, n_restarts, n_trials))
    seeds[:, 0] = _draw(np.broadcast_to(weights, (n_restarts, len(Z))), uniforms[0, :, :1])[:, 0]
    distances_from = _Distances(Z)
    nearest = distances_from(seeds[:, 0])
    for step in range(1, n_seeds):
        trials = _draw(nearest * weights, uniforms[step])
        distances = np.minimum(distances_from(trials), nearest[:, None, :])
        best = (distances @ weights).argmin(axis=1)
        seeds[:, step] = trials[restarts, best]
        nearest = distances[restarts, best]
    return seeds


class _Distances:
    """Squared distances of all rows from chosen rows, which are at zero from themselves."""

    def __init__(self, Z: Floats) -> None:
        self._Z = Z
        self._norms = np.vecdot(Z, Z)
        self._table = self._of(np.arange(len(Z))) if len(Z) <= _WHOLE_TABLE else None

    def __call__(self, chosen: Integers) -> Floats:
        """Return an array of the shape of `chosen` with one more axis, the rows."""
        if self._table is not None:
            return self._table[chosen]
        return self._of(chosen.ravel()).reshape(*chosen.shape, -1)

    def _of(self, chosen: Integers) -> Floats:
        table = self._Z[chosen] @ self._Z.T
        table *= -2.0
        table += self._norms
        table += self._norms[chosen, None]
        table[np.arange(len(chosen)), chosen] = 0.0
        return np.maximum(table, 0.0, out=table)


def _draw(masses: Floats, uniforms: Floats) -> Integers:
    """Draw column numbers with probability proportional to each row of `masses`."""
    cumulative = masses.cumsum(axis=1)
    positions = uniforms * cumulative[:, -1:]
    # side="right": an entry without mass occupies no interval and is never drawn.
    found = [c.searchsorted(p, side="right") for c, p in zip(cumulative, positions, strict=True)]
    drawn: Integers = np.minimum(np.array(found, dtype=np.intp), masses.shape[1] - 1)
    return drawn


def lloyd(Z: Floats, weights: Floats, centres: Floats, starts: Integers, owner: Integers) -> Floats:
    """Return the memberships, shape (total clusters, n), after Lloyd's iterations of all candidates.

    A row at the same distance from two centres belongs half to each. A cluster that loses all of its
    rows stays where it is.
    """
    members = np.zeros((len(owner), len(Z)), dtype=bool)
    for _ in range(_LLOYD_STEPS):
        # Half the squared distance, up to the row's own norm, which no comparison needs.
        costs = centres @ Z.T
        costs -= 0.5 * np.vecdot(centres, centres)[:, None]
        previous, members = members, costs >= np.maximum.reduceat(costs, starts, axis=0)[owner]
        if (members == previous).all():
            break
        shares = members * weights
        counts = shares.sum(axis=1)
        moved = shares @ Z
        if counts.all():
            centres = moved / counts[:, None]
        else:  # an empty cluster stays where it is
            kept = (counts > 0.0)[:, None]
            centres = np.where(kept, moved / np.where(kept, counts[:, None], 1.0), centres)
    if np.count_nonzero(members) == len(starts) * len(Z):  # no ties
        return members.astype(np.float64)
    return members / np.add.reduceat(members, starts, axis=0, dtype=np.float64)[owner]
