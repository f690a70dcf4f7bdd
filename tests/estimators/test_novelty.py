import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from tests.estimators.streams import PROBLEM, fit, stream


@pytest.fixture(scope="module")
def problem():
    return PROBLEM


def validated():
    return OnlineDaDiL(classifier="linear", random_state=0)


@pytest.fixture(scope="module")
def streamed(problem):
    return stream(fit(validated, problem), problem.X_target)


@pytest.mark.parametrize("offset", [10.0, 40.0, 400.0])
def test_rows_far_from_everything_are_novel(problem, streamed, offset):
    usual = streamed.novelty(problem.X_target)
    assert np.median(usual) < 0.9
    far = problem.X_target[:20] + offset
    assert streamed.novelty(far).min() > 0.999
    streamed.set_params(unknown=0.999)
    try:
        assert (streamed.predict(far) == -1).all()
        assert (streamed.predict(problem.X_target) == -1).mean() < 0.1
    finally:
        streamed.set_params(unknown=None)


def test_rows_far_from_everything_are_novel_before_the_stream(problem):
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0).fit(
        problem.X, problem.y, problem.domain
    )
    assert model.novelty(problem.X_target[:20] + 40.0).min() > 0.999


def test_novelty_is_a_share_of_what_is_usual(problem, streamed):
    found = streamed.novelty(np.concatenate([problem.X_target, problem.X_target + 3.0]))
    assert found.min() >= 0.0
    assert found.max() <= 1.0
    steps = [np.median(streamed.novelty(problem.X_target + offset)) for offset in (0.0, 2.0, 4.0, 8.0)]
    assert np.all(np.diff(steps) >= 0.0)
    assert steps[0] < 0.9 < steps[-1]


@pytest.mark.parametrize("seed", range(2))
def test_a_class_that_no_source_has_stands_out_while_the_stream_flows(seed):
    p = make_domains(n_per_class=60, n_features=8, random_state=seed)
    known = p.y < 7
    model = validated().fit(p.X[known], p.y[known], p.domain[known])
    found = []
    for start in range(0, len(p.X_target), 32):  # test, then train
        batch = p.X_target[start : start + 32]
        found.append(model.novelty(batch))
        model.partial_fit(batch)
    new = p.y_target == 7
    for novelty in (np.concatenate(found), model.novelty(p.X_target)):
        assert roc_auc_score(new, novelty) > 0.75
        assert (novelty[~new] > 0.999).mean() <= 0.05


# -- reliability ------------------------------------------------------------------------------------


def test_reliability_grows_along_a_shuffled_stream(problem):
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    model.fit(problem.X, problem.y, problem.domain)
    assert model.reliability_ == 0.0
    along = []
    for start in range(0, len(problem.X_target), 32):
        model.partial_fit(problem.X_target[start : start + 32])
        along.append(model.reliability_)
    assert min(along) >= 0.0
    assert max(along) <= 1.0
    assert along[0] < 0.5
    assert along[0] < along[1] < along[2]
    assert np.mean(along[-3:]) > 0.8


@pytest.mark.parametrize("c", [0, 3, 7])
def test_one_class_is_not_reliable(problem, c):
    model = fit(validated, problem)
    model.partial_fit(problem.X_target[problem.y_target == c][:32])
    assert 0.0 <= model.reliability_ < 0.5


@pytest.mark.filterwarnings("ignore:column:UserWarning")
@pytest.mark.parametrize("offset", [10.0, 40.0, 400.0])
def test_reliability_falls_when_rows_are_unlike_everything(problem, offset):
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0).fit(
        problem.X, problem.y, problem.domain
    )
    stream(model, problem.X_target)
    before = model.reliability_
    model.partial_fit(problem.X_target[:32] + offset)
    assert 0.0 <= model.reliability_ < 0.5 * before
    model.partial_fit(problem.X_target[:32])
    assert model.reliability_ > 0.8 * before  # and the next batch is as good as before


def test_reliability_is_kept(problem, streamed, tmp_path):
    import baryflow

    streamed.save(tmp_path / "m.bary")
    assert baryflow.load(tmp_path / "m.bary").reliability_ == streamed.reliability_
