"""A target being followed: many share what the sources taught, and all can stop and resume."""

import numpy as np
import pytest

import baryflow
from baryflow import OnlineDaDiL, codec
from baryflow.datasets import make_domains
from baryflow.estimators._state import TargetState
from baryflow.exceptions import InvalidInputError
from tests.estimators.streams import PROBLEM, fit, fit_default, stream

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=40, random_state=0)
X = P.X_target


def linear(**options):
    return OnlineDaDiL(classifier="linear", validate=False, keep_sources=True, random_state=0, **options)


MODELS = {
    "linear": linear,
    "forgetting": lambda: linear(half_life=40.0),
    "few components": lambda: linear(target_components=5),
    "without label shift": lambda: linear(label_shift=False),
    "class prior": lambda: linear(class_prior={1: 0.6}),
    "all classifiers": lambda: OnlineDaDiL(validate=False, random_state=0),
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def same(a, b, rows):
    """Check that two models are the same in all that they say."""
    assert np.array_equal(a.predict_proba(rows), b.predict_proba(rows))
    assert np.array_equal(a.novelty(rows), b.novelty(rows))
    assert np.array_equal(a.history_.losses, b.history_.losses)
    assert np.array_equal(a.proportions_, b.proportions_)
    assert [one.weight for one in a.explanations_] == [one.weight for one in b.explanations_]
    assert a.resemblance_ == b.resemblance_
    assert a.reliability_ == b.reliability_
    assert a.report() == b.report()
    assert a.to_bytes() == b.to_bytes()


# -- stop and resume --------------------------------------------------------------------------------


@every_model
def test_resumed_equals_uninterrupted(make, tmp_path):
    through, stopped = fit(make, P), fit(make, P)
    for number, batch in enumerate(np.split(X, 6)):
        through.partial_fit(batch)
        stopped.partial_fit(batch)
        if number in (0, 3):
            stopped.save(tmp_path / "m.bary")
            stopped = baryflow.load(tmp_path / "m.bary")
            assert repr(stopped.get_params()) == repr(through.get_params())
        same(stopped, through, X)


def test_the_default_resumes_bit_for_bit_too():
    through, stopped = fit_default(), fit_default()
    for model in (through, stopped):
        stream(model, PROBLEM.X_target[:96])
    stopped = stream(OnlineDaDiL.from_bytes(stopped.to_bytes()), PROBLEM.X_target[96:160])
    same(stopped, stream(through, PROBLEM.X_target[96:160]), PROBLEM.X_target)


@every_model
def test_the_same_seed_gives_the_same_bits(make):
    a, b = (stream(make().fit(P.X, P.y, P.domain), X) for _ in range(2))
    same(a, b, X)


@every_model
def test_the_order_of_rows_within_a_batch_does_not_matter(make):
    a, b = fit(make, P), fit(make, P)
    rng = np.random.default_rng(0)
    for batch in np.split(X, 3):
        a.partial_fit(batch)
        b.partial_fit(rng.permutation(batch))
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X), atol=1e-6)


# -- many targets -----------------------------------------------------------------------------------


@every_model
def test_many_targets_share_what_was_learned(make):
    model = fit(make, P)
    before = model.to_bytes()
    alone = stream(fit(make, P), X, 20)
    one, other = model.spawn(), model.spawn()
    for start in range(0, len(X), 20):  # in turn
        one.partial_fit(X[start : start + 20])
        other.partial_fit(X[start : start + 20] * 0.5 + 1.0)
    assert np.array_equal(one.predict_proba(X), alone.predict_proba(X))
    assert not np.array_equal(other.predict_proba(X), alone.predict_proba(X))
    assert model.to_bytes() == before
    assert one.knowledge_ is other.knowledge_ is model.knowledge_


def test_spawned_it_is_the_same_bits_and_then_independent():
    model = stream(fit(linear, P), X[:60])
    before = model.to_bytes()
    spawned, copy = model.spawn(), OnlineDaDiL.from_bytes(before)
    assert spawned.to_bytes() == before
    for one in (spawned, copy):
        one.partial_fit(X[60:100])
    assert spawned.to_bytes() == copy.to_bytes() != before
    assert model.to_bytes() == before


@every_model
def test_a_state_is_all_that_a_later_session_needs(make):
    model = fit(make, P)
    first = stream(model.spawn(), X[:60], 20)
    state = codec.decode(TargetState, *codec.encode(first.state_))
    later = model.spawn(state)
    same(later, first, X)
    same(stream(later, X[60:], 20), stream(first, X[60:], 20), X)
    assert model.n_samples_seen_ == 0
    with pytest.raises(InvalidInputError, match="state_"):
        model.spawn("north")


# -- rows -------------------------------------------------------------------------------------------


def test_before_any_row_nothing_is_said_of_a_target():
    model = fit(linear, P)
    assert model.n_samples_seen_ == model.reliability_ == model.state_.mass == 0
    assert not hasattr(model, "explanations_")
    assert set(model.coordinates_) == {1, 2, 3}
    assert "raw rows predict" in model.report()
    with pytest.raises(InvalidInputError, match="no target row"):
        model.describe_proportions()


def test_rows_without_weight_teach_nothing():
    model = fit(linear, P)
    before = model.predict_proba(X)
    with pytest.raises(InvalidInputError, match="at least one row must count"):
        model.partial_fit(X[:20], sample_weight=np.zeros(20))
    assert model.reliability_ == model.state_.mass == 0.0
    assert np.array_equal(model.predict_proba(X), before)


def test_a_row_without_weight_is_as_good_as_none():
    batch, weights = X[:40].copy(), np.ones(40)
    batch[::4], weights[::4] = 1e6, 0.0
    with_them = fit(linear, P).partial_fit(batch, sample_weight=weights)
    without = fit(linear, P).partial_fit(batch[weights > 0.0])
    assert with_them.columns_ == {}
    same(with_them, without, X)


def test_weights_count_rows():
    rows = PROBLEM.X_target[:40]
    a = fit(linear, PROBLEM).partial_fit(rows, sample_weight=np.full(40, 2.0))
    b = fit(linear, PROBLEM).partial_fit(np.repeat(rows, 2, axis=0))
    np.testing.assert_allclose(a.predict_proba(rows), b.predict_proba(rows), atol=1e-6)
    assert a.state_.mass == b.state_.mass == 80.0
    assert not np.allclose(
        fit(linear, PROBLEM).partial_fit(rows).predict_proba(rows), b.predict_proba(rows)
    )


def test_with_a_half_life_the_rows_seen_count_less():
    model = stream(fit(MODELS["forgetting"], P), X, 20)
    assert model.n_samples_seen_ == 120
    decay = 0.5 ** (20 / 40)
    assert model.state_.mass == pytest.approx(20 * sum(decay**k for k in range(6)), rel=0.3)
    assert stream(fit(linear, P), X).state_.mass == pytest.approx(120.0)


# -- other sources ----------------------------------------------------------------------------------


def test_a_source_added_later_keeps_the_target():
    known = P.domain < 3
    model = linear().fit(P.X[known], P.y[known], P.domain[known])
    stream(model, X)
    reliability, history = model.reliability_, len(model.history_)
    model.add_source(P.X[~known], P.y[~known], 3)
    assert model.n_samples_seen_ == 120
    assert model.state_.mass == pytest.approx(120.0)
    assert model.reliability_ == reliability
    assert len(model.history_) == history
    whole = stream(fit(linear, P), X)
    assert (model.predict(X) == whole.predict(X)).mean() > 0.9


def test_a_source_added_before_the_first_row_is_one_from_the_start():
    known = P.domain < 3
    model = linear().fit(P.X[known], P.y[known], P.domain[known])
    model.add_source(P.X[~known], P.y[~known], 3)
    same(stream(model, X), stream(fit(linear, P), X), X)
