import hashlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

import baryflow
from baryflow import OnlineGaussianMixture, fit_mixture
from baryflow.datasets import make_crescents
from baryflow.exceptions import InvalidInputError
from tests.core.test_summary import plain_compress
from tests.strategies import blobs, read_only, seeds


@parametrize_with_checks(
    [
        OnlineGaussianMixture(),
        OnlineGaussianMixture(7, half_life=50.0),
        OnlineGaussianMixture(5, resolution=1),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def stream(model, X, size=32, weights=None):
    for start in range(0, len(X), size):
        piece = slice(start, start + size)
        model.partial_fit(X[piece], sample_weight=None if weights is None else weights[piece])
    return model


CONFIGURATIONS = {
    "default": lambda: OnlineGaussianMixture(8),
    "plain": lambda: OnlineGaussianMixture(8, resolution=1),
    "forgetting": lambda: OnlineGaussianMixture(8, half_life=40.0),
}
every_configuration = pytest.mark.parametrize("make", CONFIGURATIONS.values(), ids=CONFIGURATIONS)


# -- what must hold for every stream --------------------------------------------------------------


@settings(max_examples=25)
@given(seeds, st.integers(1, 40), st.sampled_from(["default", "plain"]))
def test_mass_is_the_sum_of_weights_and_components_stay_below_the_maximum(seed, size, name):
    rng = np.random.default_rng(seed)
    X = blobs(rng, 90, 2)
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], size=90)
    weights[0] = 1.0
    model = stream(CONFIGURATIONS[name](), X, size, weights + 1e-9)
    assert model.mixture_.mass == pytest.approx((weights + 1e-9).sum(), rel=1e-9)
    assert model.mixture_.n_components <= 8
    assert model.n_samples_seen_ == 90
    np.testing.assert_allclose(model.mixture_.weights.sum(), 1.0)


@settings(max_examples=25)
@given(seeds, st.integers(1, 50), st.sampled_from([0.0, 1e6]), st.sampled_from([1, 2]))
def test_moments_of_the_mixture_are_those_of_the_stream(seed, size, offset, resolution):
    rng = np.random.default_rng(seed)
    X = offset + blobs(rng, 150, 3)
    weights = rng.uniform(0.5, 2.0, size=150)
    model = stream(OnlineGaussianMixture(6, resolution=resolution), X, size, weights)
    mean = np.average(X, axis=0, weights=weights)
    variance = np.average((X - mean) ** 2, axis=0, weights=weights)
    spread = np.sqrt(variance)
    np.testing.assert_allclose((model.mean_ - mean) / spread, 0.0, atol=1e-8)
    np.testing.assert_allclose(model.variance_, variance, rtol=1e-8)
    np.testing.assert_allclose((model.mixture_.mean() - mean) / spread, 0.0, atol=1e-8)
    np.testing.assert_allclose(model.mixture_.variance(), variance, rtol=2e-8)


STREAMS = {
    "identical rows": np.full((70, 3), 2.5),
    "one row": np.array([[1.0, -2.0, 0.0]]),
    "constant columns": np.column_stack([np.ones(70), np.arange(70.0), np.full(70, -1e6)]),
    "far away": 1e6 + np.random.default_rng(0).normal(size=(70, 3)),
    "float32 far away": (1e6 + np.random.default_rng(0).normal(size=(70, 3))).astype(np.float32),
    "gaps": np.where(
        np.random.default_rng(1).random((70, 3)) < 0.4,
        np.nan,
        np.random.default_rng(2).normal(size=(70, 3)),
    ),
    "a column never seen": np.column_stack([np.arange(70.0), np.full(70, np.nan), np.ones(70)]),
    "nothing but gaps": np.full((70, 3), np.nan),
    "tiny": 1e-12 * np.random.default_rng(0).normal(size=(70, 3)),
    "huge": 1e100 * np.random.default_rng(0).normal(size=(70, 3)),
}


@every_configuration
@pytest.mark.parametrize("X", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("size", [1, 7, 70])
def test_awkward_streams_never_fail(make, X, size):
    model = stream(make(), X, size)
    assert np.isfinite(model.mixture_.log_density(np.nan_to_num(X))).all()
    assert model.n_samples_seen_ == len(X)
    if make is not CONFIGURATIONS["forgetting"]:
        assert model.mixture_.mass == pytest.approx(len(X))


# -- against independent implementations ----------------------------------------------------------


def test_rows_of_one_batch_equal_the_double_loop():
    X = np.random.default_rng(0).normal(size=(20, 2))
    rows = baryflow.Mixture(np.full(20, 1 / 20), X[X[:, 0].argsort()], np.full((20, 2), 1e-200))
    weights, means, stds = plain_compress(rows, 6, "ward", "moment")
    ours = OnlineGaussianMixture(6, resolution=1).fit(X).mixture_
    order, theirs = ours.means[:, 0].argsort(), means[:, 0].argsort()
    np.testing.assert_allclose(ours.weights[order], weights[theirs])
    np.testing.assert_allclose(ours.means[order], means[theirs], atol=1e-12)
    np.testing.assert_allclose(ours.stds[order], np.maximum(stds[theirs], 1e-4 * X.std(axis=0)))


def test_it_is_near_the_offline_fit_in_every_order():
    test, _ = make_crescents(500, random_state=99)
    for order in ("ordered", "interleaved", "shuffled"):
        X, _ = make_crescents(order=order, random_state=0)
        offline = -fit_mixture(X, 15, random_state=0).log_density(test).mean()
        online = -stream(OnlineGaussianMixture(15), X).score(test)
        assert online < 1.04 * offline


# -- merging, forgetting, continuing --------------------------------------------------------------


def test_shards_merged_in_any_order_equal_one_stream():
    gaps = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, _ = make_crescents(400, order=("ordered", "shuffled")[seed % 2], random_state=rng)
        test, _ = make_crescents(400, random_state=rng)
        whole = stream(OnlineGaussianMixture(15), X)
        partitions = [stream(OnlineGaussianMixture(15), part) for part in np.split(X, 8)]
        merged = clone(whole)
        for i in rng.permutation(8):
            merged.merge(partitions[i])
        assert merged.n_samples_seen_ == len(X)
        assert merged.mixture_.mass == pytest.approx(len(X))
        np.testing.assert_allclose(merged.mean_, X.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(merged.mixture_.variance(), X.var(axis=0), rtol=2e-8)
        gaps.append(merged.score(test) / whole.score(test) - 1)
    assert abs(np.mean(gaps)) < 0.02


def test_merging_leaves_the_other_one_alone_and_checks_that_it_fits():
    rng = np.random.default_rng(0)
    a, b = (OnlineGaussianMixture(4).fit(rng.normal(c, 1, size=(50, 2))) for c in (0, 9))
    before = b.mixture_
    a.merge(b)
    assert b.mixture_ == before
    with pytest.raises(InvalidInputError, match="must be an OnlineGaussianMixture, got int"):
        a.merge(3)
    with pytest.raises(InvalidInputError, match="n_features=2, got 3"):
        a.merge(OnlineGaussianMixture().fit(rng.normal(size=(5, 3))))
    with pytest.raises(NotFittedError):
        a.merge(OnlineGaussianMixture())
    frames = [
        OnlineGaussianMixture().fit(pd.DataFrame(rng.normal(size=(5, 2)), columns=list(names)))
        for names in ("ab", "ba")
    ]
    with pytest.raises(InvalidInputError, match="fitted on the features"):
        frames[0].merge(frames[1])


def test_forgetting_everything_leaves_a_model_that_can_be_saved(tmp_path):
    rng = np.random.default_rng(0)
    model = stream(OnlineGaussianMixture(30, half_life=0.01), rng.normal(size=(160, 2)), 20)
    model.save(tmp_path / "m.bary")
    assert baryflow.load(tmp_path / "m.bary").mixture_ == model.mixture_


def test_rows_of_no_weight_were_not_seen():
    model = OnlineGaussianMixture().fit(np.eye(3), sample_weight=[1, 0, 2])
    assert model.n_samples_seen_ == 2


def test_half_life_forgets():
    rng = np.random.default_rng(0)
    old, new = rng.normal(0, 1, size=(1000, 2)), rng.normal(50, 1, size=(300, 2))
    model = stream(OnlineGaussianMixture(6, half_life=30.0), np.concatenate([old, new]), 10)
    assert model.mean_ == pytest.approx([50, 50], abs=0.5)
    assert model.mixture_.mass == pytest.approx(10 / (1 - 0.5 ** (10 / 30)), rel=1e-6)
    np.testing.assert_allclose(model.mixture_.mean(), model.mean_, atol=1e-6)


@every_configuration
def test_saved_loaded_and_continued_equals_never_stopped(make, tmp_path):
    rng = np.random.default_rng(0)
    X = blobs(rng, 300, 3)
    X[rng.random(X.shape) < 0.05] = np.nan
    through = stream(make(), X)
    stopped = stream(make(), X[:160])
    stopped.save(tmp_path / "m.bary")
    resumed = baryflow.load(tmp_path / "m.bary")
    assert resumed.get_params() == stopped.get_params()
    assert resumed.mixture_ == stopped.mixture_
    stream(resumed, X[160:])
    assert resumed.mixture_ == through.mixture_
    assert resumed.n_samples_seen_ == 300


def test_feature_names_are_saved(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 2)), columns=["p", "T"])
    OnlineGaussianMixture(4).fit(frame).save(tmp_path / "m.bary")
    model = baryflow.load(tmp_path / "m.bary")
    assert model.feature_names_in_.tolist() == ["p", "T"]
    model.partial_fit(frame)
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frame.rename(columns={"T": "t"}))


def hash_streams():
    """Return hashes of what two mixtures learn from a stream."""
    X = np.random.default_rng(0).normal(size=(1200, 100)) @ np.diag(np.arange(1.0, 101.0))
    X[::9, 3] = np.nan
    hashes = []
    for model in (OnlineGaussianMixture(80), OnlineGaussianMixture(40, resolution=1)):
        for start in range(0, 1200, 100):
            model.partial_fit(X[start : start + 100])
        m = model.mixture_
        hashes += [hashlib.sha256(a.tobytes()).hexdigest() for a in (m.weights, m.means, m.stds)]
    return hashes


def test_same_stream_same_bits_whatever_the_threads():
    found = []
    for n in (1, 2):
        with threadpool_limits(limits=n):
            found.append(hash_streams())
    assert found[0] == found[1]
    assert len(found[0]) == 6


# -- the edge -------------------------------------------------------------------------------------


def test_fit_is_reset_and_one_pass():
    X = blobs(np.random.default_rng(0), 60, 2)
    once = OnlineGaussianMixture(5).fit(X)
    again = OnlineGaussianMixture(5).fit(100 + X[:7]).fit(X)
    assert again.mixture_ == once.mixture_ == OnlineGaussianMixture(5).partial_fit(X).mixture_


def test_long_batches_are_taken_in_pieces_that_grow():
    X = blobs(np.random.default_rng(0), 3000, 2)
    model = OnlineGaussianMixture(5).fit(X)
    assert model.mixture_.mass == pytest.approx(3000)
    pieces, start = OnlineGaussianMixture(5), 0
    while start < len(X):
        size = max(64, start // 4)
        pieces.partial_fit(X[start : start + size])
        start += size
    assert pieces.mixture_ == model.mixture_


def test_scores_come_from_the_mixture():
    X = blobs(np.random.default_rng(0), 100, 2)
    model = OnlineGaussianMixture(4).fit(X)
    m = model.mixture_
    assert np.array_equal(model.score_samples(X), m.log_density(X))
    assert model.score(X) == m.log_density(X).mean()
    assert np.array_equal(model.predict_proba(X), m.posterior(X))
    assert np.array_equal(model.predict(X), m.posterior(X).argmax(axis=1))


def test_settings_may_change_on_the_way():
    X = blobs(np.random.default_rng(0), 100, 2)
    model = OnlineGaussianMixture(20).fit(X)
    model.set_params(max_components=4).partial_fit(X)
    assert model.mixture_.n_components == 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_components": 0}, "max_components must be an integer >= 1"),
        ({"half_life": 0.0}, "half_life"),
        ({"std_floor": 0.0}, "std_floor"),
        ({"resolution": 0}, "resolution"),
    ],
)
def test_bad_settings_are_named(wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        OnlineGaussianMixture(**wrong).fit(np.zeros((3, 2)))


def test_bad_calls_are_named():
    model = OnlineGaussianMixture()
    with pytest.raises(NotFittedError):
        model.mixture_  # noqa: B018 - the property is the test
    model.fit(np.zeros((3, 2)))
    with pytest.raises(InvalidInputError, match="sample_weight must not be negative"):
        model.partial_fit(np.zeros((2, 2)), sample_weight=[1, -1])
    with pytest.raises(ValueError, match="2 features"):
        model.partial_fit(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit([[np.inf, 0.0]])


def test_read_only_input_is_left_alone():
    X = read_only(blobs(np.random.default_rng(0), 40, 2))
    OnlineGaussianMixture(4).fit(X, sample_weight=read_only(np.ones(40))).predict(X)
