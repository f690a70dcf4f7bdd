import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from baryflow.model_selection.rivals import Moments


@given(st.integers(0, 2**31), st.integers(0, 20), st.floats(0.0, 0.9))
def test_moments_of_parts_are_those_of_the_whole(seed, cut, gaps):
    rng = np.random.default_rng(seed)
    X = 1e4 + rng.standard_normal((20, 3))
    X[rng.random(X.shape) < gaps] = np.nan
    parts, whole = Moments.of(X[:cut]).plus(Moments.of(X[cut:])), Moments.of(X)
    np.testing.assert_array_equal(parts.counts, whole.counts)
    np.testing.assert_allclose(parts.centre, whole.centre, rtol=1e-12)
    np.testing.assert_allclose(parts.squares, whole.squares, rtol=1e-6, atol=1e-9)


def test_a_column_that_says_nothing_is_taken_to_be_like_the_fallback():
    X = np.array([[np.nan, 5.0, 1.0], [np.nan, 5.0, 3.0]])
    usual = Moments.of(np.array([[0.0, 0.0, 0.0], [4.0, 4.0, 4.0]]))
    Z = Moments.of(X).standardise(np.array([[4.0, 7.0, 4.0], [np.nan, 5.0, 2.0]]), usual)
    np.testing.assert_allclose(Z, [[1.0, 1.0, 2.0], [0.0, 0.0, 0.0]])
