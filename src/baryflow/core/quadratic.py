"""The two quadratic problems of a block step: all atoms at once, and one domain's coordinates."""

from __future__ import annotations

from dataclasses import dataclass

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
            # Matches are one to one: parts of one size have equally many rows, here side by side.
            of_row = rank[part[columns[:, 0]]]
            rows = np.argsort(of_row, kind="stable")[np.count_nonzero(of_row < 0) :]
            starts_of_rows = np.arange(len(rows))[:, None] * size
            groups.append(
                _Group(
                    rows.reshape(len(members), -1),
                    starts_of_rows + place[columns[rows]],
                    order[starts[members][:, None] + np.arange(size)],
                )
            )
        return cls(columns, tuple(groups))


@dataclass(frozen=True, eq=False)
class _Group:
    """Parts of the same size: their rows, where a row's values go in their designs, their slots."""

    rows: Integers  # (parts, rows of each)
    entries: Integers  # (rows, C): positions in the designs, (parts, rows of each, size), laid out flat
    slots: Integers  # (parts, size)


def solve_atoms(
    layout: Layout, values: Floats, weights: Floats, goals: Floats, old: Floats, proximal: float
) -> Floats:
    """Solve (Rᵀ W R + proximal·I) X = Rᵀ W goals + proximal·old, one row of R for each slot."""
    solution = np.empty_like(old)
    for group in layout.groups:
        size = group.slots.shape[1]
        designs = np.zeros((*group.rows.shape, size))
        designs.reshape(-1)[group.entries] = values[group.rows.reshape(-1)]
        weighted = (designs * weights[group.rows][:, :, None]).transpose(0, 2, 1)
        matrices = weighted @ designs
        matrices[:, np.arange(size), np.arange(size)] += proximal
        right = proximal * old[group.slots]
        right += weighted @ goals[group.rows]
        # Well conditioned by the proximal term. An inverse serves many columns at once.
        few_slots = size <= right.shape[2]
        solution[group.slots] = (
            np.linalg.inv(matrices) @ right if few_slots else np.linalg.solve(matrices, right)
        )
    return solution


def simplex_least_squares(quadratic: Floats, linear: Floats, start: Floats | None = None) -> Floats:
    """Minimise xᵀ·quadratic·x − 2·linearᵀ·x over the simplex, for many such problems at once.

    A primal active-set method. The minimum is the minimum on the plane of one of the simplex's faces;
    the search goes from face to face downhill, and ends where no unknown is negative and none that is
    zero wants to grow.

    Parameters
    ----------
    quadratic : array of shape (..., n, n)
        Positive semi-definite; next to nothing is added to its diagonal, for one solution.
    linear : array of shape (..., n)
    start : array of shape (..., n), optional
        A point of the simplex to start from; on the right face already, it saves the search. Without
        it the middle.

    Returns
    -------
    array of shape (..., n)
    """
    n = linear.shape[-1]
    size = np.trace(quadratic, axis1=-2, axis2=-1)[..., None] / n
    size = np.maximum(size, np.finfo(np.float64).tiny)
    matrices = (quadratic / size[..., None] + 1e-10 * np.eye(n)).reshape(-1, n, n)
    vectors = (linear / size).reshape(-1, n)
    found = np.full(vectors.shape, 1.0 / n) if start is None else start.reshape(-1, n).copy()
    faces = found > 0.0
    going = np.arange(len(vectors))
    for _ in range(_TURNS * n):
        going = going[_turn(matrices[going], vectors[going], found, faces, going)]
        if not going.size:
            break
    np.maximum(found, 0.0, out=found)
    found /= found.sum(axis=1, keepdims=True)
    return np.asarray(found.reshape(linear.shape))


#: Turns of the search for each unknown, at most; it needs about one for each that is zero in the end.
_TURNS = 10
#: What counts as zero for an unknown, and for the slope along which one would grow.
_ZERO = 1e-12


def _turn(
    matrices: Floats, vectors: Floats, found: Floats, faces: Booleans, going: Integers
) -> Booleans:
    """Go to the minimum on each face, or as far as its border; return which searches continue."""
    face = faces[going]
    best, slope = _on_faces(matrices, vectors, face)
    outside = face & (best < -_ZERO)
    leaving = outside.any(axis=1)
    grows = np.where(face, np.inf, slope)
    entering = ~leaving & (grows.min(axis=1) < -_ZERO)
    if leaving.any():
        here, out = found[going[leaving]], outside[leaving]
        there = best[leaving]
        ways = np.where(out, here / np.where(out, here - there, 1.0), np.inf)
        first = ways.argmin(axis=1)
        there = here + ways.min(axis=1)[:, None] * (there - here)
        there[np.arange(len(first)), first] = 0.0
        best[leaving] = there
        faces[going[leaving], first] = False
    faces[going[entering], grows[entering].argmin(axis=1)] = True
    found[going] = best
    return np.asarray(leaving | entering)


def _on_faces(matrices: Floats, vectors: Floats, face: Booleans) -> tuple[Floats, Floats]:
    """Return the minimum on the plane of each face, and how the objective slopes off the face there."""
    count, n = face.shape
    systems = np.zeros((count, n + 1, n + 1))
    systems[:, :n, :n] = matrices * (face[:, :, None] & face[:, None, :])
    systems[:, :n, n] = systems[:, n, :n] = face
    systems[:, np.arange(n), np.arange(n)] += ~face  # x = 0 off the face
    right = np.ones((count, n + 1, 1))
    right[:, :n, 0] = vectors * face
    solution = np.linalg.solve(systems, right)[:, :, 0]
    best, level = solution[:, :n], solution[:, n:]
    slope = (matrices @ best[:, :, None])[:, :, 0] - vectors + level
    return best, slope
