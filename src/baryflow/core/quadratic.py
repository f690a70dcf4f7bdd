"""The two quadratic problems of a block step: all atoms at once, and one domain's coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from baryflow.validation import Booleans, Floats, Integers


@dataclass(frozen=True, eq=False)
class Layout:
    """How the slots of all atoms hang together through the matches of some domains.

    Slots that no chain of matches connects do not meet in the normal equations, which fall apart into
    one small system for each part. Parts of the same size are solved together.
    """

    columns: Integers  # (rows, C): the atom slots that make up each domain's slots
    groups: tuple[_Group, ...]

    @classmethod
    def of(cls, columns: Integers, n_slots: int) -> Layout:
        """Find the parts of a system with these rows."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        n_atoms = columns.shape[1]
        n = n_atoms * n_slots
        edges = (np.repeat(columns[:, 0], n_atoms - 1), columns[:, 1:].ravel())
        graph = coo_array((np.ones(len(edges[0])), edges), shape=(n, n))
        count, part = connected_components(graph, directed=False)
        sizes = np.bincount(part, minlength=count)
        order = np.argsort(part, kind="stable")
        starts = np.cumsum(sizes) - sizes
        place = np.empty(n, dtype=np.intp)  # position of a slot within its part
        place[order] = np.arange(n) - starts[part[order]]
        groups = []
        for size in np.unique(sizes):
            members = np.flatnonzero(sizes == size)
            rank = np.full(count, -1)
            rank[members] = np.arange(len(members))
            rows = np.flatnonzero(rank[part[columns[:, 0]]] >= 0)
            inside = place[columns[rows]]
            block = rank[part[columns[rows, 0]]][:, None, None] * size
            entries = (block + inside[:, :, None]) * size + inside[:, None, :]
            slots = order[starts[members][:, None] + np.arange(size)]
            groups.append(_Group(rows, entries.ravel(), slots))
        return cls(columns, tuple(groups))


@dataclass(frozen=True, eq=False)
class _Group:
    """Parts of the same size: their rows, where products go in their matrices, their slots."""

    rows: Integers
    entries: Integers
    slots: Integers  # (parts, size)


def solve_atoms(
    layout: Layout, values: Floats, weights: Floats, goals: Floats, old: Floats, proximal: float
) -> Floats:
    """Solve (Rᵀ W R + proximal·I) X = Rᵀ W goals + proximal·old, one row of R for each slot."""
    weighted = values * weights[:, None]
    right = proximal * old
    n_slots = len(old) // values.shape[1]
    for start in range(0, len(goals), n_slots):  # within one domain and atom no slot occurs twice
        rows = slice(start, start + n_slots)
        for column, value in zip(layout.columns[rows].T, weighted[rows].T, strict=True):
            right[column] += value[:, None] * goals[rows]
    solution = np.empty_like(right)
    for group in layout.groups:
        parts, size = group.slots.shape
        products = weighted[group.rows][:, :, None] * values[group.rows][:, None, :]
        entries = np.bincount(group.entries, products.ravel(), parts * size * size)
        matrix: Floats = entries.astype(np.float64).reshape(parts, size, size)
        matrix[:, np.arange(size), np.arange(size)] += proximal
        # Small, and well conditioned by the proximal term: an inverse serves all columns at once.
        solution[group.slots] = np.linalg.inv(matrix) @ right[group.slots]
    return solution


def simplex_least_squares(quadratic: Floats, linear: Floats) -> Floats:
    """Minimise xᵀ·quadratic·x − 2·linearᵀ·x over the simplex.

    The minimum on one of the simplex's faces is the minimum on the plane of that face. With few
    unknowns all faces are tried at once; with many, non-negative least squares is used, with the sum as
    one heavy row, of which normalising takes the rest.
    """
    n = len(linear)
    size = max(float(np.trace(quadratic)) / n, np.finfo(np.float64).tiny)
    matrix, vector = quadratic / size + 1e-10 * np.eye(n), linear / size
    if n > _MANY:
        return _simplex_nnls(matrix, vector)
    faces = _faces(n)
    systems = np.zeros((len(faces), n + 1, n + 1))
    systems[:, :n, :n] = matrix * (faces[:, :, None] & faces[:, None, :])
    systems[:, :n, n] = systems[:, n, :n] = faces
    systems[:, np.arange(n), np.arange(n)] += ~faces  # x = 0 off the face
    right = np.ones((len(faces), n + 1, 1))
    right[:, :n, 0] = vector * faces
    found = np.linalg.solve(systems, right)[:, :n, 0]
    costs = np.vecdot(found @ matrix, found) - 2.0 * found @ vector
    costs[found.min(axis=1) < -1e-12] = np.inf  # corners are always allowed
    best = np.maximum(found[costs.argmin()], 0.0)
    return np.asarray(best / best.sum())


#: Unknowns up to which all faces of the simplex are tried.
_MANY = 7


@cache
def _faces(n: int) -> Booleans:
    """Return all non-empty subsets of n coordinates, shape (2ⁿ − 1, n)."""
    return np.asarray((np.arange(1, 2**n)[:, None] >> np.arange(n)) % 2 == 1)


def _simplex_nnls(matrix: Floats, vector: Floats) -> Floats:
    from scipy.optimize import nnls

    root = np.linalg.cholesky(matrix)
    heavy = 1e4
    tall = np.vstack([root.T, np.full(len(vector), heavy)])
    weights, _ = nnls(tall, np.append(np.linalg.solve(root, vector), heavy))
    return np.asarray(weights / weights.sum())
