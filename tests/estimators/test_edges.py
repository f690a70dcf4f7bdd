"""What a review found: inputs at the edge."""

import numpy as np
import pytest

import baryflow
from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError


@pytest.fixture(scope="module")
def problem():
    return make_domains(n_per_class=40, random_state=3)


def fit(p, **options):
    return OnlineDaDiL(classifier="linear", validate=False, random_state=0, **options).fit(
        p.X, p.y, p.domain
    )


def test_rows_of_which_nothing_is_left_teach_nothing(problem):
    p = problem
    first = p.X_target[:32].copy()
    first[:16] = 1e6
    with pytest.warns(UserWarning, match="far outside"):
        model = fit(p).partial_fit(first)
    assert model.state_.mass == 16.0
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


@pytest.mark.parametrize("wrong", [{"half_life": 0.0}, {"target_components": 0}, {"unknown": 2.0}])
def test_parameters_are_checked_before_rows_are_absorbed(problem, wrong):
    model = fit(problem).partial_fit(problem.X_target[:32])
    model.set_params(**wrong)
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        model.partial_fit(problem.X_target[32:64])
    assert model.n_samples_seen_ == 32


def test_numpy_numbers_as_parameters_are_saved(problem, tmp_path):
    model = fit(
        problem,
        target_components=np.int64(20),
        label_shift=np.bool_(False),
        half_life=np.float64(90),
    )
    model.partial_fit(problem.X_target[:32]).save(tmp_path / "m.bary")
    again = baryflow.load(tmp_path / "m.bary")
    assert np.array_equal(again.predict_proba(problem.X_target), model.predict_proba(problem.X_target))


def test_one_more_source_leaves_the_reliability_and_may_come_with_another_prior(problem):
    p = problem
    first = (p.domain < 4) & (p.y < 7)
    options = {"validate": False, "keep_sources": True, "random_state": 0}
    model = OnlineDaDiL(classifier="linear", class_prior=np.full(7, 1 / 7), **options)
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
