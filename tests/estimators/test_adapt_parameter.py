"""Adapt, only standardise, or do neither: the parameter `adapt`."""

import numpy as np
import pytest

from baryflow import OnlineDaDiL, load
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError

P = make_domains(n_sources=3, n_classes=4, n_per_class=40, shift=1.0, random_state=2)


def fit(**parameters):
    return OnlineDaDiL(classifier="linear", random_state=0, **parameters).fit(P.X, P.y, P.domain)


@pytest.fixture(scope="module")
def standardising():
    return fit(adapt="standardise")


@pytest.fixture(scope="module")
def not_adapting():
    return fit(adapt=False)


def test_a_target_that_is_only_standardised_may_be_calibrated_in_any_way(standardising, not_adapting):
    rng = np.random.default_rng(0)
    gain, offset = np.exp(rng.normal(0, 0.3, P.X.shape[1])), rng.normal(0, 2, P.X.shape[1])
    moved = P.X_target * gain + offset
    here = standardising.spawn().partial_fit(P.X_target).predict(P.X_target)
    there = standardising.spawn().partial_fit(moved).predict(moved)
    assert (here == there).mean() > 0.95  # not 1: few rows are standardised in part as the sources are
    raw = not_adapting
    assert (raw.predict(P.X_target) == raw.predict(moved)).mean() < 0.8


def test_only_the_expected_class_proportions_explain_it_even_if_labels_disagree(standardising):
    rows, model = P.X_target[P.y_target == 0], standardising.spawn()
    model.partial_fit(rows).feedback(rows[:20], np.zeros(20, dtype=int))
    assert [one.name for one in model.explanations_] == ["expected"]
    weights = dict(zip(model.committee_.experts, model.committee_.weights.tolist(), strict=True))
    assert {name for name, weight in weights.items() if weight} == {"linear, per domain"}
    assert "standardised by its own mean" in model.report()


def test_a_model_that_does_not_adapt_predicts_the_same_all_along(not_adapting):
    model = not_adapting
    before = model.predict_proba(P.X_target)
    after = model.spawn().partial_fit(P.X_target).predict(P.X_target)
    np.testing.assert_array_equal(after, before.argmax(axis=1))
    assert "switched off" in model.report()
    assert not model.committee_.adapts


def test_a_single_source_can_be_standardised():
    one = P.domain == 1
    model = OnlineDaDiL(classifier="linear", adapt="standardise", random_state=0)
    model.fit(P.X[one], P.y[one], P.domain[one])
    assert model.committee_.adapts


def test_it_is_saved_with_the_model(standardising, tmp_path):
    model = standardising.spawn().partial_fit(P.X_target)
    model.save(tmp_path / "m.bary")
    again = load(tmp_path / "m.bary")
    assert again.adapt == "standardise"
    np.testing.assert_array_equal(again.predict_proba(P.X_target), model.predict_proba(P.X_target))
    again.partial_fit(P.X_target)
    assert [one.name for one in again.explanations_] == ["expected"]


@pytest.mark.parametrize("adapt", ["standardize", 1, None])
def test_anything_else_is_refused(adapt):
    with pytest.raises(InvalidInputError, match="adapt must be"):
        fit(adapt=adapt)
