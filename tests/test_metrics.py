"""Scores of models past which rows flow."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import balanced_accuracy_score, cohen_kappa_score
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError
from baryflow.metrics import (
    StreamingScorer,
    arrange,
    balanced_accuracy,
    follow,
    learns_from_rows,
)


class Diary(ClassifierMixin, BaseEstimator):
    """Writes down what is done with it, and says how often it learned."""

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        self.classes_ = np.unique(y)
        self.events_ = []
        return self

    def predict(self, X):
        self.events_.append(("predict", X[:, 0].tolist()))
        return np.full(len(X), sum(name == "learn" for name, _ in self.events_))

    def partial_fit(self, X, y=None):
        assert y is None
        self.events_.append(("learn", X[:, 0].tolist()))
        return self


@pytest.fixture(scope="module")
def problem():
    return make_domains(n_sources=3, n_classes=4, n_per_class=30, shift=1.0, random_state=1)


@pytest.fixture(scope="module")
def model():
    return OnlineDaDiL(classifier="linear", validate=False, random_state=0)


def test_every_batch_is_predicted_before_it_is_learned_from():
    X = np.arange(7.0)[:, None]
    diary = Diary().fit(X, np.zeros(7))
    found = np.concatenate(list(follow(diary, X, batch_size=3)))
    batches = [[0, 1, 2], [3, 4, 5], [6]]
    assert diary.events_ == [(what, batch) for batch in batches for what in ("predict", "learn")]
    assert found.tolist() == [0, 0, 0, 1, 1, 1, 2]


@pytest.mark.parametrize(("when", "expected"), [("flowing", 3 / 7), ("end", 1 / 7)])
def test_a_score_counts_the_predictions_of_its_moment(when, expected):
    X, y = np.arange(7.0)[:, None], np.array([0, 0, 1, 1, 0, 0, 3])
    diary = Diary().fit(X, y)
    assert StreamingScorer(when, batch_size=3)(diary, X, y) == pytest.approx(expected)
    assert diary.events_ == []  # a copy learned


def test_the_model_that_is_scored_stays_as_it_was(problem, model):
    fitted = model.fit(problem.X, problem.y, sample_domain=problem.domain)
    before = fitted.predict_proba(problem.X_target)
    StreamingScorer("end")(fitted, problem.X_target, problem.y_target)
    assert fitted.n_samples_seen_ == 0
    np.testing.assert_array_equal(fitted.predict_proba(problem.X_target), before)


def test_a_search_tells_candidates_apart_that_plain_scores_cannot(problem, model):
    grid = {"adapt": [False, True]}
    given = {"groups": problem.domain, "sample_domain": problem.domain}
    plain = GridSearchCV(model, grid, cv=LeaveOneGroupOut()).fit(problem.X, problem.y, **given)
    streaming = GridSearchCV(model, grid, cv=LeaveOneGroupOut(), scoring=StreamingScorer("end"))
    streaming.fit(problem.X, problem.y, **given)
    same, apart = (search.cv_results_["mean_test_score"] for search in (plain, streaming))
    assert same[0] == same[1]  # without a target row, there is nothing to adapt to
    assert apart[1] > apart[0]
    assert streaming.best_params_ == {"adapt": True}
    assert streaming.best_estimator_.n_samples_seen_ == 0
    assert streaming.best_estimator_.sources_ == [1, 2, 3]  # sample_domain reached the last fit, too


def test_leaving_one_machine_out_sees_the_adaptation_with_routing_and_without(problem, model):
    how = {"cv": LeaveOneGroupOut(), "groups": problem.domain}
    params = {"sample_domain": problem.domain}
    plain = cross_val_score(model, problem.X, problem.y, params=params, **how)
    how["scoring"] = StreamingScorer("end", order="shuffled")
    adapted = cross_val_score(model, problem.X, problem.y, params=params, **how)
    assert adapted.mean() > plain.mean() + 0.02
    with config_context(enable_metadata_routing=True):
        routed = cross_val_score(
            OnlineDaDiL(**model.get_params()).set_fit_request(sample_domain=True),
            problem.X,
            problem.y,
            params=params,
            cv=LeaveOneGroupOut().set_split_request(groups="sample_domain"),
            scoring=how["scoring"],
        )
    np.testing.assert_array_equal(routed, adapted)


def test_scorers_go_to_other_processes(problem, model):
    how = {
        "cv": LeaveOneGroupOut(),
        "groups": problem.domain,
        "params": {"sample_domain": problem.domain},
        "scoring": StreamingScorer(scoring="balanced_accuracy"),
    }
    one, two = (cross_val_score(model, problem.X, problem.y, n_jobs=n, **how) for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_a_pipeline_learns_in_its_last_step(problem, model):
    line = make_pipeline(StandardScaler(), OnlineDaDiL(**model.get_params()))
    line.fit(problem.X, problem.y, onlinedadil__sample_domain=problem.domain)
    rows = line[0].transform(problem.X_target)
    alone = OnlineDaDiL(**model.get_params())
    alone.fit(line[0].transform(problem.X), problem.y, sample_domain=problem.domain)
    found, expected = list(follow(line, problem.X_target)), list(follow(alone, rows))
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(expected))
    np.testing.assert_array_equal(line.predict_proba(problem.X_target), alone.predict_proba(rows))
    assert line[-1].n_samples_seen_ == len(rows)


def test_what_needs_labels_to_learn_only_predicts(problem):
    model = SGDClassifier(random_state=0).fit(problem.X, problem.y)
    assert not learns_from_rows(model)
    assert learns_from_rows(OnlineDaDiL())
    expected = model.score(problem.X_target, problem.y_target)
    for when in ("flowing", "end"):
        score = StreamingScorer(when)(model, problem.X_target, problem.y_target)
        assert score == pytest.approx(expected)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_frames_keep_their_columns(problem, model, kind):
    names = [f"c{k}" for k in range(problem.X.shape[1])]
    if kind is pd.DataFrame:
        X, X_target = (pd.DataFrame(rows, columns=names) for rows in (problem.X, problem.X_target))
    else:
        X, X_target = (pl.DataFrame(rows, schema=names) for rows in (problem.X, problem.X_target))
    fitted = OnlineDaDiL(**model.get_params()).fit(X, problem.y, sample_domain=problem.domain)
    arrays = OnlineDaDiL(**model.get_params()).fit(problem.X, problem.y, sample_domain=problem.domain)
    scorer = StreamingScorer(order="runs")
    assert scorer(fitted, X_target, problem.y_target) == scorer(
        arrays, problem.X_target, problem.y_target
    )


@pytest.mark.parametrize("order", ["as_is", "shuffled", "runs", "by_class"])
def test_orders(order):
    y = np.random.default_rng(0).permutation(np.repeat(["a", "b", "c"], 50))
    turn = arrange(y, order, 0)
    assert sorted(turn) == list(range(150))
    changes = int((y[turn][1:] != y[turn][:-1]).sum())
    low, high = {"as_is": (60, 149), "shuffled": (60, 149), "runs": (2, 8), "by_class": (2, 2)}[order]
    assert low <= changes <= high
    assert (turn.tolist() == list(range(150))) == (order == "as_is")
    np.testing.assert_array_equal(turn, arrange(y, order, 0))


def test_balanced_accuracy_is_scikit_learns_also_where_classes_are_absent():
    rng = np.random.default_rng(0)
    y, found = rng.choice(list("aaab"), 100), rng.choice(list("ab"), 100)
    assert balanced_accuracy(y, found) == pytest.approx(balanced_accuracy_score(y, found))
    assert balanced_accuracy(["a", "a"], ["a", "c"]) == 0.5  # scikit-learn warns of "c"


def test_any_metric_of_labels_and_predictions_will_do():
    X, y = np.arange(4.0)[:, None], np.array([0, 0, 1, 0])
    score = StreamingScorer(batch_size=2, scoring=cohen_kappa_score)(Diary().fit(X, y), X, y)
    assert score == pytest.approx(cohen_kappa_score(y, [0, 0, 1, 1]))


@pytest.mark.parametrize(
    ("scorer", "words"),
    [
        (StreamingScorer(when="later"), "when must be one of 'flowing', 'end', got 'later'"),
        (StreamingScorer(order="class"), "order must be one of 'as_is', 'shuffled'"),
        (StreamingScorer(scoring="f1"), "or a function of labels and predictions"),
        (StreamingScorer(batch_size=0), "batch_size must be an integer >= 1, got 0"),
    ],
)
def test_what_is_not_known_is_refused_in_words(scorer, words):
    X, y = np.arange(4.0)[:, None], np.zeros(4)
    with pytest.raises(InvalidInputError, match=words):
        scorer(Diary().fit(X, y), X, y)
