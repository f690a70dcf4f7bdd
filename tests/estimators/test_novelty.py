import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from tests.estimators.streams import PROBLEM, fit, stream, validated


@pytest.fixture(scope="module")
def problem():
    return PROBLEM


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


def test_novel_rows_after_good_ones_stay_novel_where_sources_differ_much():
    rng = np.random.default_rng(0)
    domain, y = np.repeat([1, 2, 3], 60), np.tile([0, 1, 2], 60)
    means = 3.0 * rng.normal(size=(3, 4))
    X = means[y] + np.array([0.0, 10.0, -10.0])[domain - 1, None] + rng.normal(size=(180, 4))
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0).fit(X, y, domain)
    T = X[domain == 2]
    model.partial_fit(T)
    far = 60.0 + 0.1 * rng.normal(size=(2 * len(T), 4))
    for start in range(0, len(far), 30):
        rows = far[start : start + 30]
        if start == 0:
            assert model.novelty(rows).min() > 0.999
        model.partial_fit(rows)
    assert model.columns_ == {}  # neither glitches nor another unit


def test_novelty_is_a_share_of_what_is_usual(problem, streamed):
    found = streamed.novelty(np.concatenate([problem.X_target, problem.X_target + 3.0]))
    assert found.min() >= 0.0
    assert found.max() <= 1.0
    steps = [np.median(streamed.novelty(problem.X_target + offset)) for offset in (0.0, 2.0, 4.0, 8.0)]
    assert np.all(np.diff(steps) >= 0.0)
    assert steps[0] < 0.9 < steps[-1]


@pytest.mark.parametrize("seed", range(2))
def test_a_class_that_no_source_has_stands_out_while_the_stream_flows(seed):
    p = make_domains(n_per_class=40, n_features=8, random_state=seed)
    known = p.y < 7
    model = validated().fit(p.X[known], p.y[known], p.domain[known])
    found = []
    for start in range(0, len(p.X_target), 32):  # test, then train
        batch = p.X_target[start : start + 32]
        found.append(model.novelty(batch))
        model.partial_fit(batch)
    new = p.y_target == 7
    for novelty in (np.concatenate(found), model.novelty(p.X_target)):
        assert roc_auc_score(new, novelty) > 0.7
        assert (novelty[~new] > 0.999).mean() <= 0.05


# -- reliability ------------------------------------------------------------------------------------


def test_reliability_is_near_the_accuracy(problem):
    model = fit(validated, problem)
    assert model.reliability_ == model.coverage_ == model.novelty_ == 0.0
    estimated, right = [], []
    for start in range(0, len(problem.X_target), 32):
        batch, y = problem.X_target[start : start + 32], problem.y_target[start : start + 32]
        model.partial_fit(batch)
        estimated += [model.reliability_] * len(y)
        right += (model.predict(batch) == y).tolist()
    assert np.mean(estimated) == pytest.approx(np.mean(right), abs=0.15)


def test_coverage_grows_and_stays_low_with_one_class(problem):
    model, along = fit(validated, problem), []
    for start in range(0, len(problem.X_target), 32):
        model.partial_fit(problem.X_target[start : start + 32])
        along.append(model.coverage_)
    assert along[0] < along[1] < along[-1] == pytest.approx(1.0, abs=0.1)
    # The history has every adaptation.
    history = model.history_
    np.testing.assert_array_equal(history.coverage, np.array(along)[(history.n_rows + 31) // 32 - 1])
    assert history.n_rows[-1] > 0.75 * len(problem.X_target)
    alone = fit(validated, problem).partial_fit(problem.X_target[problem.y_target == 3][:32])
    assert alone.coverage_ < 0.8


def test_a_class_that_no_source_has_is_found_and_not_relied_on():
    p = make_domains(n_per_class=150, random_state=0)
    known, new, early = p.y != 2, p.y_target == 2, np.arange(len(p.y_target)) < 500
    model = validated().fit(p.X[known], p.y[known], p.domain[known])
    kept = ~(new & early)
    X, new = p.X_target[kept], new[kept]
    found = []
    for start in range(0, len(X), 50):
        found.append(model.novelty(X[start : start + 50]))
        model.partial_fit(X[start : start + 50])
    novel = np.concatenate(found) > 0.99
    assert novel[new].mean() > 0.8
    assert novel[~new].mean() < 0.03
    model.partial_fit(X[new][:50])
    assert model.novelty_ > 0.8
    assert model.reliability_ < 0.4


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
