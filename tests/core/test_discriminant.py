from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from scipy.linalg import eigh, subspace_angles
from sklearn.covariance import ledoit_wolf

from baryflow.core.discriminant import Scatter
from tests.strategies import seeds

FIELDS = ("n_rows", "within", "fourth", "counts", "sums")


def measure(rows, codes, n_classes):
    return reduce(add, (Scatter.of(Z, y, n_classes) for Z, y in zip(rows, codes, strict=True)))


def random_domains(seed, n_classes=3, d=5, n_domains=3):
    rng = np.random.default_rng(seed)
    centres, mixing = 2.0 * rng.normal(size=(n_classes, d)), rng.normal(size=(d, d))
    codes = [rng.permutation(np.arange(60) % n_classes) for _ in range(n_domains)]
    rows = [centres[y] + rng.normal(size=d) + rng.normal(size=(60, d)) @ mixing for y in codes]
    return rows, codes


def assert_same(found, expected):
    for name in FIELDS:
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-8)


# -- sums -------------------------------------------------------------------------------------------


@given(seeds)
def test_domains_add_up_to_the_rows_around_their_class_in_their_domain(seed):
    rows, codes = random_domains(seed)
    found = measure(rows, codes, 3)
    residuals = np.concatenate(
        [Z[y == c] - Z[y == c].mean(axis=0) for Z, y in zip(rows, codes, strict=True) for c in range(3)]
    )
    Z, y = np.concatenate(rows), np.concatenate(codes)
    assert_same(
        found,
        Scatter(
            len(Z),
            residuals.T @ residuals,
            float(np.square(np.square(residuals).sum(axis=1)).sum()),
            np.bincount(y).astype(float),
            np.stack([Z[y == c].sum(axis=0) for c in range(3)]),
        ),
    )


@given(seeds)
def test_a_domain_taken_out_again_leaves_the_others(seed):
    rows, codes = random_domains(seed)
    assert_same(
        measure(rows, codes, 3) - Scatter.of(rows[1], codes[1], 3),
        measure([rows[0], rows[2]], [codes[0], codes[2]], 3),
    )


def test_domains_whose_classes_are_in_the_same_place_are_one():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 40)
    halves = [rng.normal(size=(80, 3)) for _ in range(2)]
    for Z in halves:
        for c in (0, 1):
            Z[y == c] += 3.0 * c - Z[y == c].mean(axis=0)
    assert_same(
        measure(halves, [y, y], 2), Scatter.of(np.concatenate(halves), np.concatenate([y, y]), 2)
    )


# -- covariance -------------------------------------------------------------------------------------


@given(seeds)
def test_shrinkage_agrees_with_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(int(rng.integers(3, 40)), 6)) @ rng.normal(size=(6, 6))
    X -= X.mean(axis=0)
    expected, _ = ledoit_wolf(X, assume_centered=True)
    found = Scatter.of(X, np.zeros(len(X), dtype=np.intp), 1).covariance()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


@given(seeds)
def test_shrinkage_of_several_domains_is_that_of_all_their_residuals(seed):
    rows, codes = random_domains(seed)
    residuals = np.concatenate(
        [
            Z - np.stack([Z[y == c].mean(axis=0) for c in range(3)])[y]
            for Z, y in zip(rows, codes, strict=True)
        ]
    )
    expected, _ = ledoit_wolf(residuals, assume_centered=True)
    found = measure(rows, codes, 3)
    np.testing.assert_allclose(found.covariance(), expected, rtol=1e-6, atol=1e-9)
    assert found.covariance() is not found.within  # what was measured stays


# -- directions -------------------------------------------------------------------------------------


@given(seeds)
def test_directions_are_the_generalised_eigenvectors(seed):
    scatter = measure(*random_domains(seed), 3)
    found = scatter.discriminants()
    within = scatter.covariance()
    means, shares = scatter.class_means(), scatter.counts / scatter.counts.sum()
    between = (means.T * shares) @ means
    values, vectors = eigh(between, within)
    assert found.directions.shape == (5, 2)
    np.testing.assert_allclose(found.directions.T @ within @ found.directions, np.eye(2), atol=1e-6)
    seen = found.directions.T @ between @ found.directions
    # By their importance, each by itself an eigenvector.
    np.testing.assert_allclose(seen, np.diag(values[:-3:-1]), rtol=1e-5, atol=1e-6 * values[-1])
    if values[-2] > 1e-3 * values[-1]:  # or else the second direction is next to arbitrary
        assert np.abs(subspace_angles(found.directions, vectors[:, -2:])).max() < 1e-4


@given(seeds)
def test_class_means_come_back_exactly(seed):
    scatter = measure(*random_domains(seed), 3)
    found = scatter.discriminants()
    means = scatter.class_means()
    np.testing.assert_allclose(
        means @ found.directions @ found.lift.T, means, atol=1e-6 * np.abs(means).max()
    )
    assert found.rest.min() >= 0.0
    hidden = scatter.covariance() - found.lift @ found.lift.T
    np.testing.assert_allclose(found.rest, np.diag(hidden), atol=1e-6 * np.abs(hidden).max())


@given(seeds)
def test_the_same_rows_in_another_order_look_the_same(seed):
    rows, codes = random_domains(seed)
    turn = np.random.default_rng(seed).permutation(60)
    found = measure(rows, codes, 3).discriminants().directions
    again = measure([Z[turn] for Z in rows], [y[turn] for y in codes], 3).discriminants().directions
    np.testing.assert_allclose(again, found, rtol=1e-5, atol=1e-6 * np.abs(found).max())


def test_the_view_separates_classes_that_no_axis_separates():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 200)
    along = rng.normal(size=400)
    X = np.stack([along, along + 0.1 * rng.normal(size=400) + 0.5 * y], axis=1)
    W = Scatter.of(X - X.mean(axis=0), y, 2).discriminants().directions
    V = (X - X.mean(axis=0)) @ W
    assert W.shape == (2, 1)
    gap = abs(V[y == 0].mean() - V[y == 1].mean())
    assert gap > 3 * V[y == 0].std()
    assert V[y == 0].std() < 1.1  # 1 but for the shrinkage


def test_what_moves_a_class_between_domains_is_not_spread():
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1, 2], 100)
    centres = np.array([[0, 0], [4, 0], [0, 4]])
    rows = [centres[y] + shift + rng.normal(size=(300, 2)) for shift in ([0, 0], [30, -30])]
    W = measure(rows, [y, y], 3).discriminants().directions
    for X in rows:
        assert np.std((X @ W)[y == 0], axis=0) == pytest.approx([1, 1], abs=0.25)


def test_constant_columns_and_a_missing_class():
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.normal(size=60), np.zeros(60), rng.normal(size=60)])
    found = Scatter.of(X, np.repeat([0, 2], 30), 3).discriminants()
    for part in (found.directions, found.lift, found.rest):
        assert np.isfinite(part).all()


def test_more_classes_than_columns_and_one_class_alone():
    rows, codes = random_domains(0, n_classes=6, d=2)
    assert measure(rows, codes, 6).discriminants().directions.shape == (2, 2)
    one = Scatter.of(rows[0], np.zeros(60, dtype=np.intp), 1).discriminants()
    assert one.directions.shape == (2, 1)
