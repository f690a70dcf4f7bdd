import dataclasses

import numpy as np
import pytest
from hypothesis import given
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.mixture import GaussianMixture

import baryflow
from baryflow import Mixture, codec
from baryflow.container import Content
from baryflow.exceptions import FileFormatError, InvalidInputError
from tests.strategies import as_scikit, blobs, mixtures, random_mixture, seeds


def two():
    return Mixture([0.25, 0.75], [[0.0, 1.0], [4.0, 2.0]], [[1.0, 2.0], [0.5, 1.0]])


@given(mixtures(), seeds)
def test_log_density_agrees_with_scikit_learn(m, seed):
    X = m.sample(20, seed)[0]
    expected = as_scikit(m).score_samples(X)
    np.testing.assert_allclose(m.log_density(X), expected, rtol=1e-9, atol=1e-9)


@given(mixtures(), seeds)
def test_posterior_agrees_with_scikit_learn(m, seed):
    X = m.sample(20, seed)[0]
    np.testing.assert_allclose(m.posterior(X), as_scikit(m).predict_proba(X), atol=1e-9)


def test_posterior_rows_sum_to_one_in_512_dimensions():
    rng = np.random.default_rng(0)
    m = random_mixture(rng, 40, 512, n_classes=5)
    X = 3 * rng.normal(size=(700, 512))
    X[::7, ::3] = np.nan
    assert np.abs(m.posterior(X).sum(axis=1) - 1).max() < 1e-12
    assert np.abs(m.predict_proba(X).sum(axis=1) - 1).max() < 1e-12


@given(mixtures(n_features=4), seeds)
def test_nan_gives_the_marginal_density(m, seed):
    X = m.sample(12, seed)[0]
    keep = np.array([0, 2])
    gaps = X.copy()
    gaps[:, [1, 3]] = np.nan
    marginal = Mixture(m.weights, m.means[:, keep], m.stds[:, keep])
    np.testing.assert_allclose(m.log_density(gaps), marginal.log_density(X[:, keep]), atol=1e-9)
    np.testing.assert_allclose(m.posterior(gaps), marginal.posterior(X[:, keep]), atol=1e-9)


def test_a_row_of_nan_knows_only_the_weights():
    m = two()
    gaps = np.full((1, 2), np.nan)
    assert m.log_density(gaps)[0] == pytest.approx(0.0, abs=1e-15)
    np.testing.assert_allclose(m.posterior(gaps)[0], m.weights)


def test_density_of_mixed_complete_and_incomplete_rows_does_not_depend_on_the_company():
    rng = np.random.default_rng(0)
    m = random_mixture(rng, 5, 6)
    X = rng.normal(size=(30, 6))
    X[rng.random(X.shape) < 0.2] = np.nan
    alone = np.concatenate([m.log_density(row[None]) for row in X])
    np.testing.assert_allclose(m.log_density(X), alone, atol=1e-12)


def test_rows_beyond_one_block():
    rng = np.random.default_rng(0)
    m = random_mixture(rng, 3, 2, n_classes=2)
    X = rng.normal(size=(2000, 2))
    expected = logsumexp(
        np.log(m.weights) + norm.logpdf(X[:, None], m.means, m.stds).sum(axis=2), axis=1
    )
    np.testing.assert_allclose(m.log_density(X), expected, atol=1e-10)
    assert np.array_equal(m.predict(X), m.predict_proba(X).argmax(axis=1))
    np.testing.assert_allclose(m.predict_proba(X), m.posterior(X) @ m.labels, atol=1e-12)


def test_a_component_of_weight_zero_never_occurs():
    m = Mixture([1.0, 0.0], [[0.0], [5.0]], [[1.0], [1.0]])
    assert np.array_equal(m.posterior([[5.0]]), [[1.0, 0.0]])
    assert np.isfinite(m.log_density([[5.0]])).all()


def test_moments_are_those_of_a_large_sample():
    m = two()
    X, components = m.sample(200_000, 0)
    np.testing.assert_allclose(X.mean(axis=0), m.mean(), atol=0.02)
    np.testing.assert_allclose(X.var(axis=0), m.variance(), atol=0.05)
    assert np.bincount(components) / len(X) == pytest.approx(m.weights, abs=0.01)


def test_sampling_follows_the_seed():
    assert np.array_equal(two().sample(5, 3)[0], two().sample(5, 3)[0])


@given(mixtures(n_features=2, n_classes=3), mixtures(n_features=2, n_classes=3))
def test_concatenation_conserves_mass_and_moments(P, Q):
    both = Mixture.concatenate([P, Q])
    assert both.mass == pytest.approx(P.mass + Q.mass)
    assert both.weights.sum() == pytest.approx(1.0)
    share = P.mass / both.mass
    np.testing.assert_allclose(both.mean(), share * P.mean() + (1 - share) * Q.mean(), atol=1e-9)
    x = np.zeros((1, 2))
    expected = np.logaddexp(np.log(share) + P.log_density(x), np.log(1 - share) + Q.log_density(x))
    np.testing.assert_allclose(both.log_density(x), expected, rtol=1e-9, atol=1e-9)


def test_densities_and_bic_agree_with_scikit_learn():
    X = blobs(np.random.default_rng(0), 200, 3)
    model = GaussianMixture(3, covariance_type="diag", random_state=0).fit(X)
    m = Mixture(model.weights_, model.means_, np.sqrt(model.covariances_))
    np.testing.assert_allclose(m.log_density(X), model.score_samples(X), atol=1e-9)
    assert m.bic(X) == pytest.approx(model.bic(X), rel=1e-12)


def test_bic_counts_an_integer_weight_as_repetition():
    X = np.random.default_rng(0).normal(size=(5, 2))
    w = np.array([1, 2, 3, 1, 1])
    assert two().bic(X, w) == pytest.approx(two().bic(np.repeat(X, w, axis=0)))


def test_a_mixture_is_a_value():
    m = two()
    assert m == two()
    assert m != two().with_labels([[1, 0], [0, 1]])
    assert m != "a mixture"
    with pytest.raises(dataclasses.FrozenInstanceError):
        m.mass = 2.0
    for array in (m.weights, m.means, m.stds):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    means = np.zeros((1, 2))
    other = Mixture([1.0], means, np.ones((1, 2)))
    means[0, 0] = 99.0
    assert other.means[0, 0] == 0.0


def test_copies_are_frozen_too():
    import copy
    import pickle

    for twin in (copy.deepcopy(two()), pickle.loads(pickle.dumps(two()))):  # noqa: S301 - our own
        assert twin == two()
        assert not twin.means.flags.writeable


def test_numbers_too_large_to_square_are_refused():
    with pytest.raises(InvalidInputError, match=r"X holds 1e\+200 at position \(0, 1\)"):
        two().log_density([[0.0, 1e200]])


@given(mixtures(n_features=2, n_classes=3))
def test_save_and_load_give_back_every_bit(m):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        m.save(Path(folder) / "m.bary")
        assert baryflow.load(Path(folder) / "m.bary") == m
        assert [p.name for p in Path(folder).iterdir()] == ["m.bary"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [0.5, 0.6]}, "weights must be non-negative and sum to 1"),
        ({"weights": [1.5, -0.5]}, "weights must be non-negative"),
        ({"weights": [1.0]}, r"expected weights to have shape \(n_components=2,\), got \(1,\)"),
        ({"means": [0.0, 1.0]}, "expected means to have shape"),
        ({"means": [["a", "b"], ["c", "d"]]}, "expected means to be a numeric array"),
        ({"means": [[np.inf, 0], [0, 0]]}, r"means holds inf at position \(0, 0\)"),
        ({"means": [[np.nan, 0], [0, 0]]}, "means holds nan"),
        ({"means": np.empty((0, 2))}, "at least 1 row"),
        ({"stds": [[1.0, 1.0]]}, "expected stds to have the shape of means"),
        ({"stds": [[1.0, 0.0], [1, 1]]}, r"stds must be positive, got 0.0 at .* \(0, 1\)"),
        ({"labels": [[1, 0]]}, r"expected labels to have shape \(n_components=2, n_classes\)"),
        ({"labels": [[1, 0], [0.5, 0.4]]}, "labels must be non-negative and sum to 1.*row 1"),
        ({"mass": 0}, "mass must be a number in"),
        ({"mass": "much"}, "mass must be a number in"),
    ],
)
def test_bad_input_is_named(change, message):
    good = {
        "weights": [0.5, 0.5],
        "means": [[0.0, 1.0], [2.0, 3.0]],
        "stds": [[1.0, 1.0], [1.0, 1.0]],
    }
    with pytest.raises(InvalidInputError, match=message):
        Mixture(**(good | change))


def test_bad_rows_are_named():
    m = two()
    with pytest.raises(
        InvalidInputError,
        match=r"expected X to have shape \(n_samples, n_features=2\), got \(3, 4\)",
    ):
        m.log_density(np.zeros((3, 4)))
    with pytest.raises(InvalidInputError, match=r"X\.reshape"):
        m.log_density(np.zeros(2))
    with pytest.raises(InvalidInputError, match="X holds inf"):
        m.log_density([[np.inf, 0.0]])
    with pytest.raises(InvalidInputError, match="no labels"):
        m.predict_proba(np.zeros((1, 2)))
    with pytest.raises(InvalidInputError, match="sample_weight"):
        m.bic(np.zeros((2, 2)), [1, -1])
    with pytest.raises(InvalidInputError, match="n_samples"):
        m.sample(0)


def test_concatenation_refuses_what_does_not_fit():
    one = Mixture([1.0], [[0.0]], [[1.0]])
    with pytest.raises(InvalidInputError, match="at least one"):
        Mixture.concatenate([])
    with pytest.raises(InvalidInputError, match="n_features"):
        Mixture.concatenate([one, two()])
    with pytest.raises(InvalidInputError, match="unlabelled"):
        Mixture.concatenate([one, one.with_labels([[1.0]])])


def test_a_damaged_state_is_refused():
    values, arrays = codec.encode(two())

    def reopen(values, arrays):
        return Mixture.from_content(Content("m.bary", "mixture", values, arrays, version="0.2"))

    assert reopen(values, arrays) == two()
    less = values | {"fields": {name: values["fields"][name] for name in ("mass", "weights")}}
    with pytest.raises(FileFormatError, match="means"):
        reopen(less, {"weights": arrays["weights"]})
    with pytest.raises(FileFormatError, match="damaged"):
        reopen(values, arrays | {"stds": np.zeros_like(arrays["stds"])})
