"""What a review found: inputs at the edge."""

import numpy as np
import pytest

import baryflow
from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators.class_moments import ClassMoments
from baryflow.estimators.source_table import SourceTable
from baryflow.exceptions import InvalidInputError


@pytest.fixture(scope="module")
def problem():
    return make_domains(n_per_class=40, random_state=3)


def fit(p, **options):
    return OnlineDaDiL(validate=False, random_state=0, **options).fit(p.X, p.y, p.domain)


def moments(p, n_sources=4):
    rows = [p.X[p.domain == number] for number in range(1, n_sources + 1)]
    codes = [p.y[p.domain == number] for number in range(1, n_sources + 1)]
    return ClassMoments.of(SourceTable.of(rows, codes, 8), np.full(8, 1 / 8))


def test_a_column_that_did_not_vary_keeps_the_usual_scale(problem):
    known = moments(problem)
    variance = problem.X_target.var(axis=0)
    variance[3] = 0.0
    _, scale = known.at(problem.X_target.mean(axis=0), variance, known.proportions, 2000.0)
    assert scale[3] == pytest.approx(known.scale[3] * np.exp(known.usual_scale[3]))
    _, scale = known.at(problem.X_target[0], np.zeros(8), known.proportions, 1.0)
    np.testing.assert_allclose(scale, known.scale * np.exp(known.usual_scale))


def test_a_column_constant_in_one_source_does_not_bias_the_others_scale(problem):
    p = problem
    X = p.X.copy()
    X[p.domain == 1, 2] = 4.0
    rows = [X[p.domain == number] for number in range(1, 5)]
    codes = [p.y[p.domain == number] for number in range(1, 5)]
    known = ClassMoments.of(SourceTable.of(rows, codes, 8), np.full(8, 1 / 8))
    T = p.X_target
    _, scale = known.at(T.mean(axis=0), T.var(axis=0), known.proportions, 1e9)
    np.testing.assert_allclose(scale, T.std(axis=0), rtol=1e-3)


def test_with_one_source_rows_overrule_its_moments(problem):
    known = moments(problem, n_sources=1)
    T = 3.0 * problem.X_target + 10.0
    centre, scale = known.at(T.mean(axis=0), T.var(axis=0), known.proportions, 1e6)
    np.testing.assert_allclose(scale, T.std(axis=0), rtol=1e-3)
    np.testing.assert_allclose(centre, T.mean(axis=0), rtol=1e-2)


def test_rows_of_which_nothing_is_left_teach_nothing(problem):
    p = problem
    first = p.X_target[:32].copy()
    first[:16] = 1e6
    with pytest.warns(UserWarning, match="far outside"):
        model = fit(p).partial_fit(first)
    assert model._session.target.summary.mass == 16.0
    before = model.predict_proba(p.X_target)
    model.partial_fit(np.full((64, 8), np.nan))
    assert np.array_equal(model.predict_proba(p.X_target), before)
    assert (model.novelty(np.full((3, 8), np.nan)) == 1.0).all()
    assert model.reliability_ < 0.3
    with pytest.warns(UserWarning, match="far outside"):
        model = fit(p).partial_fit(np.full((8, 8), 1e7))  # nothing at all
    assert model.n_samples_seen_ == 0
    assert model.reliability_ == 0.0
    model.partial_fit(p.X_target)
    assert model.n_samples_seen_ == len(p.X_target)


@pytest.mark.parametrize("wrong", [{"n_steps": 0}, {"ramp": -1.0}, {"unknown": 2.0}, {"proximal": -1.0}])
def test_parameters_are_checked_before_rows_are_absorbed(problem, wrong):
    model = fit(problem).partial_fit(problem.X_target[:32])
    model.set_params(**wrong)
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        model.partial_fit(problem.X_target[32:64])
    assert model._session.target.summary.n_rows == 32


def test_numpy_numbers_as_parameters_are_saved(problem, tmp_path):
    model = fit(problem, n_steps=np.int64(2), warm_start=np.bool_(False), proximal=np.float64(0.02))
    model.partial_fit(problem.X_target[:32]).save(tmp_path / "m.bary")
    again = baryflow.load(tmp_path / "m.bary")
    assert np.array_equal(again.predict_proba(problem.X_target), model.predict_proba(problem.X_target))


def test_one_more_source_leaves_the_reliability_and_may_come_with_another_prior(problem):
    p = problem
    first = (p.domain < 4) & (p.y < 7)
    model = OnlineDaDiL(validate=False, class_prior=np.full(7, 1 / 7), random_state=0)
    model.fit(p.X[first], p.y[first], p.domain[first]).partial_fit(p.X_target[:64])
    before = model.reliability_
    late = p.domain == 4
    model.set_params(class_prior=np.full(8, 1 / 8))
    model.add_source(p.X[late], p.y[late], 4)
    assert model.reliability_ == before > 0.0
    assert len(model.classes_) == 8
    model.partial_fit(p.X_target[64:])
    model.set_params(class_prior={0: 0.5})
    with pytest.raises(InvalidInputError, match="class_prior was"):
        model.partial_fit(p.X_target)


def test_a_mix_that_was_not_estimated_is_not_said_to_be(problem):
    model = fit(problem, proportions=False).partial_fit(problem.X_target)
    assert "it was not estimated" in model.report()
