import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from baryflow import fit_mixture, sweep_components
from baryflow.exceptions import InvalidInputError
from tests.strategies import blobs, read_only, seeds


def same(a, b, tolerance=1e-9):
    """Equal up to rounding; components come in the same order because the starts do."""
    assert a.n_components == b.n_components
    assert a.mass == pytest.approx(b.mass)
    for x, y in ((a.weights, b.weights), (a.means, b.means), (a.stds, b.stds)):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@given(seeds, st.booleans())
def test_the_likelihood_never_falls(seed, with_gaps):
    rng = np.random.default_rng(seed)
    X = blobs(rng, 60, 3, n_blobs=4, spread=1.5)
    if with_gaps:
        X[rng.random(X.shape) < 0.2] = np.nan
        X = X[~np.isnan(X).all(axis=1)]
    sweep = sweep_components(X, 1, 5, n_init=2, tol=1e-6, random_state=seed)
    for trace in sweep.traces:
        assert np.diff(trace).min(initial=0.0) >= -1e-9 * abs(trace[0])


@given(seeds)
def test_an_integer_weight_is_repetition_and_zero_is_absence(seed):
    rng = np.random.default_rng(seed)
    X = blobs(rng, 30, 2)
    weights = rng.integers(0, 4, size=30)
    weights[0] = 1
    repeated = np.repeat(X, weights, axis=0)[rng.permutation(weights.sum())]
    same(
        fit_mixture(X, 1, 4, sample_weight=weights, random_state=1),
        fit_mixture(repeated, 1, 4, random_state=1),
    )


@given(seeds)
def test_the_order_of_rows_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    X = blobs(rng, 40, 3)
    X[rng.random(X.shape) < 0.1] = np.nan
    first = fit_mixture(X, 1, 4, random_state=0)
    assert fit_mixture(X[rng.permutation(40)], 1, 4, random_state=0) == first


def test_float32_at_an_offset_of_a_million_does_not_collapse():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(c, 1.0, size=(200, 4)) for c in (-20, 0, 20)])
    near = fit_mixture(X, 3, random_state=0)
    far = fit_mixture((X + 1e6).astype(np.float32), 3, random_state=0)
    assert far.stds.min() > 0.5
    # float32 has a spacing of 1/16 there
    order = near.means[:, 0].argsort(), far.means[:, 0].argsort()
    np.testing.assert_allclose(far.means[order[1]], near.means[order[0]] + 1e6, atol=0.05)
    np.testing.assert_allclose(far.stds[order[1]], near.stds[order[0]], rtol=0.02)


@given(seeds, st.sampled_from([1e-6, 1.0, 1e8]), st.sampled_from([0.0, 1e5]))
def test_units_and_offset_do_not_matter(seed, scale, offset):
    X = blobs(np.random.default_rng(seed), 60, 3)
    plain = fit_mixture(X, 1, 4, random_state=0)
    moved = fit_mixture(scale * (X + offset), 1, 4, random_state=0)
    assert moved.n_components == plain.n_components
    np.testing.assert_allclose(moved.stds, scale * plain.stds, rtol=1e-5)
    np.testing.assert_allclose(moved.means / scale - offset, plain.means, atol=1e-5)


def test_it_finds_what_scikit_learn_finds():
    rng = np.random.default_rng(3)
    X = blobs(rng, 500, 5, n_blobs=4)
    ours = fit_mixture(X, 4, n_init=5, tol=1e-6, random_state=0)
    theirs = GaussianMixture(4, covariance_type="diag", n_init=5, tol=1e-6, random_state=0).fit(X)
    assert ours.log_density(X).mean() == pytest.approx(theirs.score(X), rel=1e-4)


@given(seeds)
def test_the_curve_is_that_of_the_mixture(seed):
    X = blobs(np.random.default_rng(seed), 80, 2)
    sweep = sweep_components(X, 1, 5, random_state=0)
    mixture = sweep.mixture
    assert sweep.n_components.tolist() == [1, 2, 3, 4, 5]
    assert sweep.bic[sweep.best] == pytest.approx(mixture.bic(X), rel=1e-8)
    assert sweep.log_likelihood[sweep.best] == pytest.approx(mixture.log_density(X).sum(), rel=1e-8)
    assert sweep.bic[sweep.best] == sweep.bic[sweep.converged].min()


def test_one_component_is_the_sample_mean_and_spread():
    rng = np.random.default_rng(0)
    X, w = rng.normal(5, 3, size=(50, 2)), rng.random(50)
    m = fit_mixture(X, 1, sample_weight=w)
    mean = np.average(X, axis=0, weights=w)
    np.testing.assert_allclose(m.means[0], mean)
    np.testing.assert_allclose(m.stds[0] ** 2, np.average((X - mean) ** 2, axis=0, weights=w))
    assert m.mass == pytest.approx(w.sum())


def test_one_component_with_gaps_is_the_mean_of_what_is_known():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    X[rng.random(X.shape) < 0.3] = np.nan
    m = fit_mixture(X, 1)
    np.testing.assert_allclose(m.means[0], np.nanmean(X, axis=0))
    np.testing.assert_allclose(m.stds[0], np.nanstd(X, axis=0))


def test_more_restarts_are_never_worse():
    X = blobs(np.random.default_rng(5), 120, 2, n_blobs=6)
    scores = [sweep_components(X, 6, n_init=n, random_state=0).log_likelihood[0] for n in (1, 20)]
    assert scores[1] >= scores[0]


def test_same_seed_same_bits():
    X = blobs(np.random.default_rng(0), 100, 4)
    assert fit_mixture(X, 1, 5, random_state=3) == fit_mixture(X, 1, 5, random_state=3)


def test_an_unconverged_fit_wins_only_when_all_are():
    X = blobs(np.random.default_rng(0), 300, 2, n_blobs=6, spread=1.0)
    sweep = sweep_components(X, 1, 6, max_iter=1, tol=0.0, random_state=0)
    mixture = sweep.mixture
    assert sweep.converged[0]
    assert not sweep.converged.all()
    assert sweep.bic.argmin() != sweep.best or sweep.converged[sweep.best]
    assert sweep.converged[sweep.best]
    assert mixture.n_components == sweep.n_components[sweep.best]
    sweep = sweep_components(X, 6, max_iter=1, tol=0.0, random_state=0)
    alone = sweep.mixture
    assert not sweep.converged.any()
    assert alone.n_components == 6


@pytest.mark.parametrize("n", [1, 2, 5])
def test_never_more_components_than_distinct_rows(n):
    X = np.repeat(np.random.default_rng(0).normal(size=(n, 3)), 4, axis=0)
    m = fit_mixture(X, 9, random_state=0)
    assert m.n_components == n
    assert m.mass == 4 * n


@pytest.mark.parametrize("value", [0.0, 1e6, -3.25])
def test_identical_rows_and_constant_columns(value):
    m = fit_mixture(np.full((6, 2), value), 1, 3)
    assert np.array_equal(m.means, [[value, value]])
    X = np.random.default_rng(0).normal(size=(40, 3))
    X[:, 1] = value
    m = fit_mixture(X, 1, 3, random_state=0)
    np.testing.assert_allclose(m.means[:, 1], value, atol=1e-9 * max(1, abs(value)))
    assert np.isfinite(m.log_density(X)).all()


def test_blocks_of_rows_add_up(monkeypatch):
    from baryflow.core import em

    rng = np.random.default_rng(0)
    X = blobs(rng, 100, 3)
    X[::9, 1] = np.nan
    whole = fit_mixture(X, 1, 4, n_init=2, random_state=0)
    monkeypatch.setattr(em, "_BLOCK", 7)
    same(fit_mixture(X, 1, 4, n_init=2, random_state=0), whole)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": np.zeros((0, 2))}, r"expected X to have shape .* got \(0, 2\)"),
        ({"X": np.zeros(3)}, r"X\.reshape"),
        ({"X": np.zeros((2, 2, 2))}, "expected X to have shape"),
        ({"X": [["a"]]}, "numeric"),
        ({"X": np.array([[1j]])}, "complex"),
        ({"X": [[np.inf]]}, "X holds inf"),
        ({"X": [[1.0, np.nan], [2.0, np.nan]]}, r"X holds no value at all in column\(s\) \[1\]"),
        ({"sample_weight": [1, -1, 1]}, "sample_weight must not be negative"),
        ({"sample_weight": [1, 1]}, r"expected sample_weight to have shape \(n_samples=3,\)"),
        ({"sample_weight": [0, 0, 0]}, "sample_weight is zero everywhere"),
        ({"sample_weight": [1, np.nan, 1]}, "sample_weight holds nan"),
        ({"min_components": 0}, "min_components must be an integer >= 1"),
        ({"min_components": 2.0}, "min_components must be an integer >= 1"),
        ({"min_components": 3, "max_components": 2}, "max_components=2 must not be smaller"),
        ({"n_init": 0}, "n_init"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": -1.0}, "tol"),
        ({"std_floor": 1e-9}, "std_floor"),
        ({"random_state": "x"}, "random_state"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        fit_mixture(**({"X": np.arange(6.0).reshape(3, 2)} | arguments))


def test_sparse_input_is_refused():
    from scipy.sparse import csr_array

    with pytest.raises(InvalidInputError, match="X is a sparse matrix"):
        fit_mixture(csr_array(np.eye(3)))


def test_read_only_input_is_left_alone():
    X = read_only(blobs(np.random.default_rng(0), 20, 2))
    before = X.copy()
    fit_mixture(X, 1, 2, sample_weight=read_only(np.ones(20)), random_state=0)
    assert np.array_equal(X, before)
