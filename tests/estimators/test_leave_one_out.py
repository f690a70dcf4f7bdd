import numpy as np
import pytest

from baryflow import DaDiL, OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.estimators.adaptation import EVEN, Adaptation
from baryflow.estimators.rehearsal import _MOST_CLASSES, PLAYS
from tests.estimators.streams import stream

PREDICTORS = ["auto", "combined", "map", "plan"]


@pytest.fixture(scope="module")
def problem():
    return make_domains(n_per_class=40, random_state=2)


# -- where nothing can be decided -------------------------------------------------------------------


@pytest.mark.parametrize("predictor", PREDICTORS)
def test_one_source_is_not_enough_to_adapt(problem, predictor):
    p, one = problem, problem.domain == 1
    model = OnlineDaDiL(predictor=predictor, random_state=0).fit(p.X[one], p.y[one], p.domain[one])
    before = model.predict_proba(p.X_target)
    assert np.array_equal(before, model._session.knowledge.model.pooled_proba(p.X_target))
    stream(model, p.X_target)
    assert np.array_equal(model.predict_proba(p.X_target), before)
    assert np.array_equal(model.predict_proba(p.X_target), before)
    for part in ("do not adapt", "one source only", "predictions are the source classifier's"):
        assert part in model.report()
    assert 0.0 <= model.reliability_ <= 1.0


@pytest.mark.parametrize("predictor", ["auto", "map"])
def test_classes_known_from_one_source_only_are_not_enough_to_adapt(problem, predictor):
    p = problem
    rows = p.y // 2 + 1 == p.domain  # each source has two classes of its own
    model = OnlineDaDiL(predictor=predictor, random_state=0).fit(p.X[rows], p.y[rows], p.domain[rows])
    before = model.predict_proba(p.X_target)
    stream(model, p.X_target)
    assert np.array_equal(model.predict_proba(p.X_target), before)
    assert "every source has a class that no other has" in model.report()


def test_offline_one_source_is_not_enough_either(problem):
    p, one = problem, problem.domain == 1
    X = np.concatenate([p.X[one], p.X_target])
    y = np.concatenate([p.y[one], np.zeros_like(p.y_target)])
    domain = np.concatenate([p.domain[one], np.full(len(p.y_target), -1)])
    model = DaDiL(predictor="map", random_state=0).fit(X, y, domain)
    assert np.array_equal(
        model.predict_proba(p.X_target), model._session.knowledge.model.pooled_proba(p.X_target)
    )
    assert "one source only" in model.report()


def test_sources_with_few_rows_cannot_play(problem):
    p = problem
    few = np.concatenate(
        [np.flatnonzero((p.domain == s) & (p.y == c))[:3] for s in (1, 2) for c in range(8)]
    )
    model = OnlineDaDiL(random_state=0).fit(p.X[few], p.y[few], p.domain[few])
    assert not model._session.knowledge.decision.adapts
    assert "too few rows to play" in model.report()


# -- playing the sources ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rehearsed(problem):
    return OnlineDaDiL(random_state=0).fit(problem.X, problem.y, problem.domain)


def test_the_decision_says_what_was_played(rehearsed):
    decision = rehearsed._session.knowledge.decision
    assert decision.adapts
    assert sum(decision.weights) == pytest.approx(1.0)
    assert sum(decision.beginning) == pytest.approx(1.0)
    assert min(decision.weights) >= 0.0
    assert min(decision.beginning) >= 0.0
    names = [name for name, _, _ in decision.plays]
    assert names == ["shuffled", "class by class"] == list(PLAYS)
    words = rehearsed.report()
    for name, before, after in decision.plays:
        assert 0.0 <= before <= 1.0
        assert 0.0 <= after <= 1.0
        assert name in words
    assert np.all(np.diff(decision.remoteness) >= 0.0)


def test_a_fixed_predictor_keeps_its_weights_and_the_protection(problem):
    model = OnlineDaDiL(predictor="map", random_state=0).fit(problem.X, problem.y, problem.domain)
    assert model._session.knowledge.decision.weights == (1.0, 0.0, 0.0, 0.0)
    assert model._session.knowledge.decision.beginning[-1] > 0.0
    assert model._session.knowledge.decision.plays


@pytest.mark.parametrize(
    ("predictor", "weights"), [("auto", EVEN), ("map", (1.0, 0, 0, 0)), ("plan", (0, 1.0, 0, 0))]
)
def test_without_a_rehearsal_the_weights_are_believed_at_once(problem, predictor, weights):
    model = OnlineDaDiL(predictor=predictor, validate=False, random_state=0)
    model.fit(problem.X, problem.y, problem.domain)
    assert model._session.knowledge.decision.at(0.0) == pytest.approx((*weights, 0.0))
    assert model._session.knowledge.decision.plays == ()
    assert "rehearse is False" in model.report()


def test_adapting_that_loses_on_the_sources_is_left(monkeypatch):
    p = make_domains(n_sources=3, n_classes=3, shift=0.5, n_per_class=60, random_state=0)

    def mistaken(adapted, X, pooled):
        return [np.roll(pooled, 1, axis=1)] * 4

    monkeypatch.setattr(Adaptation, "experts", mistaken)
    model = OnlineDaDiL(random_state=0).fit(p.X, p.y, p.domain)
    assert not model._session.knowledge.decision.adapts
    assert "adapting lost against the source classifier" in model.report()
    model.partial_fit(p.X_target)
    assert np.array_equal(
        model.predict_proba(p.X_target), model._session.knowledge.model.pooled_proba(p.X_target)
    )


def test_sources_without_a_shift_do_not_argue_against_adapting():
    # The same plant four times, as after an encoder that was trained on all four: each is predicted well
    # from the others, which says nothing of a target that moved.
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(5, 6)) * 1.2
    y = np.tile(np.arange(5), 80)
    X = centres[y] + rng.normal(size=(400, 6))
    model = OnlineDaDiL(random_state=0).fit(X, y, sample_domain=np.repeat([1, 2, 3, 4], 100))
    assert model._session.knowledge.decision.adapts
    assert (
        model._session.knowledge.decision.reason
        == "not adapting was not clearly better on sources left out"
    )
    assert np.abs(np.array(model._session.knowledge.decision.weights) - 0.25).max() < 0.05
    moved = 2.0 * np.roll(np.eye(6), 1, axis=0)[0] + X @ (np.eye(6) + 0.3 * rng.normal(size=(6, 6)))
    before = model.score(moved, y)
    model.partial_fit(moved)
    assert model.score(moved, y) > before


# -- columns and classes that some sources lack -----------------------------------------------------


@pytest.mark.parametrize("sources", [[2], [1, 2, 3, 4]])
def test_a_column_that_does_not_vary_in_a_source_that_plays(problem, sources):
    p = problem
    X, target = p.X.copy(), p.X_target.copy()
    X[np.isin(p.domain, sources), 1] = 4.0
    if len(sources) == 4:
        target[:, 1] = 4.0
    model = OnlineDaDiL(random_state=0).fit(X, p.y, p.domain)
    assert len(model.committee_.plays) == len(PLAYS)
    assert stream(model, target).score(target, p.y_target) > 0.8


@pytest.mark.parametrize("n_sources", [2, 4])
def test_of_many_classes_those_that_play_may_all_be_lacking_in_a_source(n_sources):
    n_classes = _MOST_CLASSES + 5
    playing = np.random.default_rng(0).permutation(n_classes)[:_MOST_CLASSES]
    p = make_domains(4, n_classes, n_per_class=4, random_state=0)
    lacking = (p.domain == 1) & np.isin(p.y, playing)
    kept = ~lacking & (p.domain <= n_sources)
    model = OnlineDaDiL(random_state=0).fit(p.X[kept], p.y[kept], p.domain[kept])
    assert bool(model.committee_.plays) == (n_sources > 2)
