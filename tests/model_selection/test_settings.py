"""Which settings and which knowledge of a target are worth it."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError
from baryflow.model_selection import DomainScore, Evaluation, Setting, SettingScore, evaluate

QUICK = {"classifier": "linear", "validate": False, "random_state": 0}
#: Other plain classifiers are hundreds of trees for each target.
ONE = {"classifier": LogisticRegression(max_iter=1000)}
NAMES = np.array(["normal", "worn", "leak", "dry"])


@pytest.fixture(scope="module")
def machines():
    """Machines with their own calibration: rows, classes, domains."""
    p = make_domains(n_sources=4, n_classes=4, n_per_class=40, shift=1.0, random_state=1)
    rng, X = np.random.default_rng(1), p.X.copy()
    for source in (1, 2, 3, 4):
        gain, offset = np.exp(rng.normal(0, 0.25, X.shape[1])), rng.normal(0, 1, X.shape[1])
        X[p.domain == source] = X[p.domain == source] * gain + offset * p.X.std(axis=0)
    return X, NAMES[p.y], p.domain


class Recorder(ClassifierMixin, BaseEstimator):
    """Remembers, across copies, the numbers of the rows that flow past."""

    flowed: list = []  # noqa: RUF012 - shared on purpose

    def fit(self, X, y, sample_domain=None):  # noqa: ARG002 - scikit-learn's signature
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])

    def partial_fit(self, X, y=None):  # noqa: ARG002 - scikit-learn's signature
        self.flowed.append(X[:, 0].astype(int))
        return self


def scores_of(found):
    return {one.setting: one for one in found.summary().settings}


def test_a_target_flows_with_the_class_proportions_of_operation():
    y = np.array(["a", "b", "b", "c"] * 30)
    X, domain = np.column_stack([np.arange(120.0), np.ones(120)]), np.repeat([1, 2], 60)
    Recorder.flowed.clear()
    evaluate(Recorder(), X, y, domain, targets=[2], class_proportions={"a": 0.5}, n_seeds=2, **ONE)
    rows = np.concatenate(Recorder.flowed)
    assert len(rows) == 60  # all 15 of "a" and as many others, twice
    first, second = rows[:30], rows[30:]
    for some in (first, second):
        assert (np.diff(some) > 0).all()  # in the given order, none twice
        assert (y[some] == "a").sum() == 15
    assert set(first) != set(second)


def test_a_domain_without_the_named_class_flows_as_it_is():
    y = np.array(["a", "b"] * 20 + ["b", "c"] * 20)
    X, domain = np.column_stack([np.arange(80.0), np.ones(80)]), np.repeat([1, 2], 40)
    Recorder.flowed.clear()
    evaluate(Recorder(), X, y, domain, targets=[2], class_proportions={"a": 0.9}, **ONE)
    np.testing.assert_array_equal(np.concatenate(Recorder.flowed), np.arange(40, 80))


def test_few_rows_with_these_proportions_are_pointed_out(machines):
    X, y, domain = (part[::2] for part in machines)
    with pytest.warns(UserWarning, match="only"):
        evaluate(LogisticRegression(), X, y, domain, targets=[1], class_proportions={"worn": 0.9})


def test_settings_are_those_of_models_that_are_fitted_with_them(machines):
    how = {"targets": [4], "order": "shuffled", "class_proportions": {"normal": 0.8}} | ONE
    found = scores_of(evaluate(OnlineDaDiL(**QUICK), *machines, **how))
    for setting, parameters in {
        Setting(): {},
        Setting(class_prior=True): {"class_prior": {"normal": 0.8}},
        Setting("standardise"): {"adapt": "standardise"},
        Setting(False): {"adapt": False},
        Setting(False, class_prior=True): {"adapt": False, "class_prior": {"normal": 0.8}},
    }.items():
        alone = evaluate(OnlineDaDiL(**QUICK, **parameters), *machines, **how).scores[0]
        assert (found[setting].flowing, found[setting].end) == (alone.flowing, alone.end)


def test_knowledge_is_tried_piece_by_piece_and_together(machines):
    found = evaluate(
        OnlineDaDiL(**QUICK),
        *machines,
        targets=[4],
        class_proportions={"normal": 0.8},
        baseline_rows=8,
        labels=2,
        **ONE,
    )
    tried = scores_of(found)
    assert {setting.describe_knowledge() for setting in tried if setting.adapt is True} == {
        "nothing",
        "class prior",
        "8 baseline rows",
        "2 labels",
        "class prior, 8 baseline rows",
        "class prior, 8 baseline rows, 2 labels",
    }
    assert {setting.adapt for setting in tried} == {True, "standardise", False}
    assert found.baseline_class == "normal"  # it has the largest share
    assert found.scores[0].n_rows == 32 / 0.8  # baseline rows are not part of the stream


def test_knowledge_buys_accuracy_where_machines_differ_in_calibration(machines):
    found = evaluate(
        OnlineDaDiL(**QUICK),
        *machines,
        order="shuffled",
        class_proportions={"normal": 0.9},
        baseline_rows=8,
        n_seeds=2,
        **ONE,
    )
    tried = scores_of(found)
    alone = tried[Setting()].flowing
    assert tried[Setting(class_prior=True)].flowing > alone + 0.05
    assert found.recommend().setting.n_known > 0
    assert found.recommend().flowing >= max(one.flowing for one in tried.values()) - 0.01
    text = found.settings_table()
    for words in ("standardise", "class prior, 8 baseline rows", " ± ", "2 streams"):
        assert words in text


def make_evaluation(scores):
    settings = tuple(SettingScore(one, flowing, flowing, flowing) for one, flowing in scores.items())
    return Evaluation((DomainScore("a", 0, 100, 0.5, 0.5, 0.5, 0.5, 0.5, 0.0, settings=settings),))


def test_the_simplest_of_equally_good_settings_is_recommended():
    prior, labels = Setting(class_prior=True), Setting(labels=3)
    scores = {Setting(): 0.8, Setting("standardise"): 0.7, prior: 0.912, labels: 0.92}
    assert make_evaluation(scores).recommend().setting == prior
    assert make_evaluation(scores | {labels: 0.93}).recommend().setting == labels
    assert (
        make_evaluation(scores | {Setting("standardise"): 0.95}).recommend().setting.way == "standardise"
    )


def test_other_models_have_no_settings(machines):
    found = evaluate(LogisticRegression(), *machines, targets=[1])
    for ask in (found.recommend, found.settings_table):
        with pytest.raises(InvalidInputError, match="OnlineDaDiL"):
            ask()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"class_proportions": {"nrmal": 0.5}}, "class_proportions names 'nrmal'"),
        ({"class_prior": {"normal": 2.0}}, "class_prior"),
        ({"baseline_rows": 10}, "baseline_class"),
        ({"baseline_rows": 10, "baseline_class": "well"}, "'well'"),
        ({"labels": -1}, "labels"),
        ({"labels": 3, "model": LogisticRegression()}, "OnlineDaDiL"),
    ],
)
def test_knowledge_that_makes_no_sense_is_refused(machines, change, words):
    model = change.pop("model", OnlineDaDiL(**QUICK))
    with pytest.raises(InvalidInputError, match=words):
        evaluate(model, *machines, **change)
