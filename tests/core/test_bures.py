import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from baryflow import Mixture, bures_squared, w2_squared
from baryflow.exceptions import InvalidInputError
from tests.strategies import read_only, seeds


def covariance(rng, d, rank=None):
    root = rng.normal(size=(d, d if rank is None else rank))
    return root @ root.T


@given(seeds, st.integers(1, 6))
def test_it_agrees_with_the_formula(seed, d):
    rng = np.random.default_rng(seed)
    A, B = (covariance(rng, d) + 0.1 * np.eye(d) for _ in range(2))
    root = sqrtm(A)
    expected = np.trace(A) + np.trace(B) - 2.0 * np.trace(sqrtm(root @ B @ root)).real
    assert bures_squared(A, B) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_it_agrees_with_pot():
    from ot.gaussian import bures_wasserstein_distance

    rng = np.random.default_rng(1)
    A, B = (covariance(rng, 4) + 0.1 * np.eye(4) for _ in range(2))
    theirs = bures_wasserstein_distance(np.zeros(4), np.zeros(4), A, B)
    assert bures_squared(A, B) == pytest.approx(float(theirs) ** 2, rel=1e-9)


@given(seeds, st.integers(1, 6))
def test_of_diagonal_covariances_it_is_the_distance_of_components(seed, d):
    rng = np.random.default_rng(seed)
    mean, stds = rng.normal(size=d), rng.uniform(0.01, 3.0, size=(2, d))
    P, Q = (Mixture([1.0], [mean], [s]) for s in stds)
    ours = bures_squared(*(np.diag(s**2) for s in stds))
    assert ours == pytest.approx(w2_squared(P, Q).item(), rel=1e-9, abs=1e-12)


@given(seeds, st.integers(2, 6), st.integers(0, 3), st.integers(0, 3))
def test_it_is_a_metric_also_for_singular_covariances(seed, d, rank_a, rank_b):
    rng = np.random.default_rng(seed)
    A, B, C = covariance(rng, d, rank_a), covariance(rng, d, rank_b), covariance(rng, d)
    size = 1.0 + np.trace(A) + np.trace(B) + np.trace(C)
    # A root of rounding is what an eigenvalue of zero may have: its square is what may be left.
    assert bures_squared(A, A) <= 1e-13 * size
    assert bures_squared(A, B) == pytest.approx(bures_squared(B, A), rel=1e-6, abs=1e-12 * size)
    ab, bc, ac = (np.sqrt(bures_squared(x, y)) for x, y in ((A, B), (B, C), (A, C)))
    assert ac <= ab + bc + 1e-6 * np.sqrt(size)


@given(seeds, st.integers(1, 5))
def test_a_rotation_of_both_changes_nothing(seed, d):
    rng = np.random.default_rng(seed)
    A, B = covariance(rng, d), covariance(rng, d)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    turned = bures_squared(*((S + S.T) / 2 for S in (turn @ A @ turn.T, turn @ B @ turn.T)))
    assert turned == pytest.approx(bures_squared(A, B), rel=1e-6, abs=1e-10 * (1 + np.trace(A + B)))


def test_near_covariances_keep_their_digits():
    rng = np.random.default_rng(0)
    stds = rng.uniform(1.0, 2.0, size=4)
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    near = stds * (1.0 + 1e-7 * rng.normal(size=4))
    A, B = (turn @ np.diag(s**2) @ turn.T for s in (stds, near))
    assert bures_squared(A, B) == pytest.approx(np.square(stds - near).sum(), rel=1e-6)


def test_to_a_point_it_is_the_trace():
    A = covariance(np.random.default_rng(0), 3)
    assert bures_squared(A, np.zeros((3, 3))) == pytest.approx(np.trace(A))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.ones((2, 3)), "covariance_a must be a square matrix"),
        ([[1.0, 2.0], [0.0, 1.0]], "covariance_a must be symmetric"),
        ([[1.0, 2.0], [2.0, 1.0]], "covariance_a must be positive semi-definite.*eigenvalue -1"),
        ([[np.nan]], "covariance_a"),
    ],
)
def test_what_is_no_covariance_is_named(wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        bures_squared(wrong, np.eye(2))


def test_sizes_must_agree():
    with pytest.raises(InvalidInputError, match="covariance_b"):
        bures_squared(np.eye(2), np.eye(3))


def test_read_only_input_is_left_alone():
    bures_squared(read_only(np.eye(2)), read_only(np.eye(2)))
