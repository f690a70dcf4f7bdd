from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow.core.dictionary import simplex_least_squares
from tests.strategies import seeds


def by_faces(quadratic, linear):
    """The minimum over all faces of the simplex, each solved on its own: slow, and beyond doubt."""
    n = len(linear)
    best, lowest = None, np.inf
    for size in range(1, n + 1):
        for face in map(list, combinations(range(n), size)):
            system = np.ones((size + 1, size + 1))
            system[:size, :size], system[size, size] = quadratic[np.ix_(face, face)], 0.0
            inside = np.linalg.solve(system, np.append(linear[face], 1.0))[:size]
            if inside.min() < -1e-12:
                continue
            x = np.zeros(n)
            x[face] = inside
            cost = x @ quadratic @ x - 2 * linear @ x
            if cost < lowest:
                best, lowest = x, cost
    return best


@given(seeds, st.integers(1, 6))
def test_simplex_least_squares_is_the_best_of_all_faces(seed, n):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n + 2, n))
    quadratic, linear = root.T @ root + 0.1 * np.eye(n), 3.0 * rng.normal(size=n)
    found = simplex_least_squares(quadratic, linear)
    np.testing.assert_allclose(found, by_faces(quadratic, linear), atol=1e-7)


@given(seeds, st.integers(1, 40))
def test_simplex_least_squares_ends_where_nothing_wants_to_move(seed, n):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n + 2, n))
    quadratic, linear = root.T @ root, rng.normal(size=n) * np.sqrt(n)
    found = simplex_least_squares(quadratic, linear)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1.0)
    slope = quadratic @ found - linear
    slack = slope - found @ slope  # zero on the face, and not below zero off it
    scale = 1.0 + np.abs(quadratic).max()
    assert slack.min() >= -1e-8 * scale
    assert np.abs(found * slack).max() <= 1e-8 * scale


def test_equal_columns_share_what_they_get():
    root = np.array([[1.0, 1.0, -1.0], [0.5, 0.5, 2.0]])
    found = simplex_least_squares(root.T @ root, np.zeros(3))
    assert found[0] == pytest.approx(found[1], abs=1e-6)
    np.testing.assert_allclose(
        root @ found,
        root[:, [0, 2]] @ by_faces(root[:, [0, 2]].T @ root[:, [0, 2]], np.zeros(2)),
        atol=1e-6,
    )


def test_many_problems_at_once_equal_each_alone():
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(50, 5, 4))
    quadratic, linear = roots.transpose(0, 2, 1) @ roots, rng.normal(size=(50, 4))
    together = simplex_least_squares(quadratic, linear)
    alone = [simplex_least_squares(q, x) for q, x in zip(quadratic, linear, strict=True)]
    assert np.array_equal(together, np.stack(alone))


@given(seeds, st.integers(1, 8))
def test_the_start_does_not_matter(seed, n):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n + 2, n))
    quadratic, linear = root.T @ root, rng.normal(size=n)
    found = simplex_least_squares(quadratic, linear)
    for start in (*np.eye(n), rng.dirichlet(np.ones(n)), found):
        again = simplex_least_squares(quadratic, linear, start)
        np.testing.assert_allclose(again, found, atol=1e-7)


def test_no_spread_at_all_is_shared_evenly():
    np.testing.assert_allclose(simplex_least_squares(np.zeros((3, 3)), np.zeros(3)), 1 / 3)
