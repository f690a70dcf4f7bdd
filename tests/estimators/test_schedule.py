"""Rows are absorbed as they come; the model adapts when there is something to learn."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators._adapt import adapt

P = make_domains(n_sources=3, n_classes=4, n_per_class=150, random_state=0)
ROWS = np.concatenate([P.X_target, P.X_target + 0.01])


@pytest.fixture(scope="module")
def fitted():
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    return model.fit(P.X, P.y, P.domain)


def flow(model, X, size=32, after=lambda _: None):
    """Predict and absorb batches; return the flowing predictions."""
    found = []
    for start in range(0, len(X), size):
        batch = X[start : start + size]
        found.append(model.predict_proba(batch))
        model.partial_fit(batch)
        after(model)
    return np.concatenate(found)


def n_adaptations(model):
    return model.state_.history.n_updates


def test_a_long_stream_adapts_rarely(fitted):
    model = fitted.spawn()
    counts = []
    for _ in range(4):
        flow(model, ROWS)
        counts.append(n_adaptations(model))
    batches = len(ROWS) // 32
    assert counts[0] < 0.5 * batches
    assert counts[3] - counts[2] < 0.15 * batches


def adapt_now(model):
    model.state_ = adapt(model.knowledge_, model.state_)


def test_at_the_end_it_is_nearly_as_if_it_had_adapted_after_every_batch(fitted):
    rare, often = fitted.spawn(), fitted.spawn()
    flow(rare, ROWS[:650])
    flow(often, ROWS[:650], after=adapt_now)
    assert n_adaptations(rare) < 650 // 32
    agree = rare.predict(P.X_target) == often.predict(P.X_target)
    assert agree.mean() > 0.98
    np.testing.assert_allclose(rare.proportions_, often.proportions_, atol=0.02)
    assert rare.coverage_ == pytest.approx(often.coverage_, abs=0.01)
    # It is that of the predictions that were made.
    assert rare.reliability_ == pytest.approx(often.reliability_, abs=0.02)


def look(model):
    return model.resemblance_, model.reliability_, model.history_, model.report(), model.query(2)


def test_looking_changes_nothing(fitted):
    quiet, watched = fitted.spawn(), fitted.spawn()
    expected = flow(quiet, ROWS)
    np.testing.assert_array_equal(flow(watched, ROWS, after=look), expected)
    assert watched.to_bytes() == quiet.to_bytes()


@settings(max_examples=5)
@given(st.integers(1, 30), st.integers(0, 9))
def test_saved_between_two_adaptations_it_continues_bit_for_bit(fitted, n_batches, more):
    model = fitted.spawn()
    flow(model, ROWS[: 32 * n_batches])
    again = OnlineDaDiL.from_bytes(model.to_bytes())
    rest = ROWS[32 * n_batches : 32 * (n_batches + more)]
    if len(rest):
        np.testing.assert_array_equal(flow(again, rest), flow(model, rest))
    assert again.to_bytes() == model.to_bytes()
    np.testing.assert_array_equal(again.predict_proba(P.X_target), model.predict_proba(P.X_target))


def test_many_rows_and_few_are_predicted_with_the_last_adaptation(fitted):
    model = fitted.spawn()
    flow(model, ROWS)
    seen = n_adaptations(model)
    flow(model, ROWS[:32])
    assert n_adaptations(model) == seen  # one more batch teaches little
    whole = model.predict_proba(ROWS)
    np.testing.assert_allclose(model.predict_proba(ROWS[:32]), whole[:32], atol=1e-9)
    assert n_adaptations(model) == seen


def test_a_class_that_appears_is_learned_at_once(fitted):
    model = fitted.spawn()
    known, new = P.X_target[P.y_target != 3], P.X_target[P.y_target == 3]
    for _ in range(2):
        flow(model, known)
    before = n_adaptations(model)
    flow(model, known[:32])
    assert n_adaptations(model) == before
    flow(model, new[:32])
    assert n_adaptations(model) == before + 1


def test_a_stream_that_forgets_keeps_adapting():
    model = OnlineDaDiL(classifier="linear", validate=False, half_life=100, random_state=0)
    model.fit(P.X, P.y, P.domain)
    for _ in range(3):
        before = n_adaptations(model)
        flow(model, ROWS)
        assert n_adaptations(model) - before > 0.3 * len(ROWS) / 32
    assert model.state_.mass < 200.0


def test_rows_that_were_predicted_before_are_absorbed_all_the_same(fitted):
    """What was computed for a prediction is used again; that changes nothing."""
    asked, silent = fitted.spawn(), fitted.spawn()
    flow(asked, ROWS)
    for start in range(0, len(ROWS), 32):
        silent.partial_fit(ROWS[start : start + 32])
    assert asked.to_bytes() == silent.to_bytes()


def test_another_parameter_counts_at_once_and_is_saved(fitted):
    model = fitted.spawn()
    flow(model, np.tile(P.X_target[P.y_target == 1], (3, 1)))
    seen = n_adaptations(model)
    model.set_params(label_shift=False).partial_fit(ROWS[:2])
    assert n_adaptations(model) == seen + 1
    again = OnlineDaDiL.from_bytes(model.to_bytes())
    np.testing.assert_array_equal(again.predict_proba(ROWS[:5]), model.predict_proba(ROWS[:5]))


def test_many_threads_get_the_answers_to_their_own_questions(fitted):
    model = fitted.spawn()
    flow(model, ROWS)
    expected = [model.predict_proba(ROWS[[i]]) for i in range(8)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda n: model.predict_proba(ROWS[[n % 8]]), range(400)))
    finally:
        sys.setswitchinterval(before)
    for n, one in enumerate(found):
        np.testing.assert_array_equal(one, expected[n % 8])
