"""Each domain in turn the target, as a stream."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from baryflow import DaDiL, OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError
from baryflow.model_selection import evaluate

QUICK = {"classifier": "linear", "validate": False, "random_state": 0}
#: For what is not about the plain classifiers: the default ones are hundreds of trees for each target.
ONE = {"classifier": LogisticRegression(max_iter=1000)}


@pytest.fixture(scope="module")
def problem():
    return make_domains(n_sources=3, n_classes=4, n_per_class=30, shift=1.0, random_state=1)


class Witness(ClassifierMixin, BaseEstimator):
    """Remembers, across copies, what it was shown; its rows carry their own number."""

    log: list = []  # noqa: RUF012 - shared on purpose

    def fit(self, X, y, sample_domain=None):
        self.classes_ = np.unique(y)
        self.seen_ = set()
        self.log.append(("fit", X[:, 0].astype(int), np.array(y), np.array(sample_domain)))
        return self

    def predict(self, X):
        assert not self.seen_.intersection(X[:, 0].tolist()) or self.seen_.issuperset(X[:, 0].tolist())
        self.log.append(("predict", X[:, 0].astype(int)))
        return np.full(len(X), self.classes_[0])

    def partial_fit(self, X, y=None):
        assert y is None
        self.seen_.update(X[:, 0].tolist())
        self.log.append(("learn", X[:, 0].astype(int)))
        return self


class Offline(ClassifierMixin, BaseEstimator):
    """Takes the target in fit."""

    log: list = []  # noqa: RUF012 - shared on purpose

    def fit(self, X, y, sample_domain=None):
        self.n_features_in_ = X.shape[1]
        self.classes_ = np.unique(y)
        self.log.append((np.array(y), np.array(sample_domain)))
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


def numbered():
    domain = np.array(["b", "a"] * 20 + ["c"] * 10)
    y = np.array(["x", "x", "y", "y"] * 12 + ["x", "y"])
    return np.column_stack([np.arange(50.0), np.ones(50)]), y, domain


def test_a_stream_is_its_own_rows_in_order_and_the_rest_is_what_was_learned():
    X, y, domain = numbered()
    Witness.log.clear()
    evaluate(Witness(), X, y, domain, batch_size=8, targets=["a"], **ONE)
    what, rows, labels, names = Witness.log[0]
    mine = np.flatnonzero(domain == "a")
    assert what == "fit"
    np.testing.assert_array_equal(rows, np.flatnonzero(domain != "a"))
    np.testing.assert_array_equal(labels, y[rows])
    np.testing.assert_array_equal(names, domain[rows])
    flow = Witness.log[1:-1]
    batches = [mine[i : i + 8] for i in range(0, 20, 8)]
    assert [event[0] for event in flow] == ["predict", "learn"] * 3
    for k, batch in enumerate(batches):
        np.testing.assert_array_equal(flow[2 * k][1], batch)
        np.testing.assert_array_equal(flow[2 * k + 1][1], batch)
    assert Witness.log[-1][0] == "predict"
    np.testing.assert_array_equal(np.sort(Witness.log[-1][1]), mine)


def test_a_model_that_takes_its_target_in_fit_never_sees_its_labels():
    X, y, domain = numbered()
    Offline.log.clear()
    found = evaluate(Offline(), X, y, domain, **ONE)
    assert len(Offline.log) == 3
    for name, (labels, numbers) in zip("abc", Offline.log, strict=True):
        mine = domain == name
        np.testing.assert_array_equal(numbers < 0, mine)
        assert len(set(labels[mine])) == 1
        np.testing.assert_array_equal(labels[~mine], y[~mine])
    assert np.isnan([score.flowing for score in found.scores]).all()


def test_adapting_wins_online_and_offline_and_says_what_it_decided(problem):
    online = evaluate(OnlineDaDiL(**QUICK), problem.X, problem.y, problem.domain, order="shuffled")
    offline = evaluate(DaDiL(**QUICK), problem.X, problem.y, problem.domain)
    for found in (online, offline):
        assert [score.domain for score in found.scores] == [1, 2, 3]
        mean = found.summary()
        assert mean.end > mean.source + 0.02
        for score in found.scores:
            assert (score.decision, score.reason) == ("adapt", "leave-one-source-out was switched off")
            assert score.reason in score.report
    assert not np.isnan(online.summary().flowing)


def test_the_rivals_are_what_scikit_learn_makes_of_the_same_rows(problem):
    X, y, domain = problem.X, problem.y, problem.domain
    found = evaluate(DummyClassifier(), X, y, domain, batch_size=40, targets=2).scores[0]
    known = domain != 2
    pooled = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    assert found.source == pooled.fit(X[known], y[known]).score(X[~known], y[~known])
    own = np.concatenate([StandardScaler().fit_transform(X[domain == d]) for d in (1, 3)])
    labels = np.concatenate([y[domain == d] for d in (1, 3)])
    rival = LogisticRegression(max_iter=1000).fit(own, labels)
    mine, answers = X[~known], y[~known]
    whole = StandardScaler().fit_transform(mine)
    assert found.standardised_end == pytest.approx(rival.score(whole, answers))
    right = []
    for start in range(0, len(mine), 40):  # by what came before, and at first by the sources
        scaler = StandardScaler().fit(mine[:start] if start else X[known])
        batch = slice(start, start + 40)
        right.append(rival.predict(scaler.transform(mine[batch])) == answers[batch])
    assert found.standardised_flowing == pytest.approx(np.concatenate(right).mean())


def test_a_classifier_that_does_not_learn_from_rows_is_the_same_all_along(problem):
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    for score in evaluate(model, problem.X, problem.y, problem.domain, **ONE).scores:
        assert score.flowing == score.end == score.source
        assert score.harm == 0.0


def test_a_model_that_does_not_adapt_is_the_source_classifier_and_does_no_harm(problem):
    two = problem.domain < 3  # one source is left: whether adapting helps cannot be tested
    model = OnlineDaDiL(classifier=LogisticRegression(max_iter=1000), random_state=0)
    for score in evaluate(model, problem.X[two], problem.y[two], problem.domain[two], **ONE).scores:
        assert score.flowing == score.end == pytest.approx(score.source, abs=0.01)
        assert score.harm <= 0.01
        assert score.decision == "do not adapt"
        assert "only one source" in score.reason


def test_harm_is_what_the_worst_moment_lost(problem):
    found = evaluate(DummyClassifier(), problem.X, problem.y, problem.domain, **ONE)
    for score in found.scores:
        assert score.harm == pytest.approx(score.source - score.end)
        assert score.harm > 0.2
    assert found.summary().harm == pytest.approx(np.mean([score.harm for score in found.scores]))


def test_a_pipeline_is_told_the_domains(problem):
    line = make_pipeline(StandardScaler(), OnlineDaDiL(**QUICK))
    found = evaluate(line, problem.X, problem.y, problem.domain, targets=[3, 1], **ONE)
    assert [score.domain for score in found.scores] == [3, 1]
    assert all("2 sources" in score.report for score in found.scores)


def test_seeds_are_orders_and_processes_do_not_matter(problem):
    names = np.array(["", "north", "south", "west"])[problem.domain]
    X = pd.DataFrame(problem.X, columns=[f"c{k}" for k in range(8)])
    how = {"order": "runs", "n_seeds": 2, "random_state": 5, "targets": ["south", "west"]}
    one = evaluate(OnlineDaDiL(**QUICK), X, problem.y, names, **how)
    two = evaluate(OnlineDaDiL(**QUICK), X, problem.y, names, n_jobs=2, **how)
    assert one == two
    assert [(score.domain, score.seed) for score in one.scores] == [
        ("south", 5), ("south", 6), ("west", 5), ("west", 6),
    ]  # fmt: skip
    first, second = one.scores[:2]
    assert first.source == second.source
    assert first.flowing != second.flowing
    assert one.by_domain()[0].flowing == pytest.approx((first.flowing + second.flowing) / 2)
    as_is = evaluate(DummyClassifier(), X, problem.y, names, n_seeds=3, **ONE)
    assert len(as_is.scores) == 3  # one each: as it is, there is one order


def test_missing_values_and_constant_columns_are_no_obstacle(problem):
    X = np.column_stack([problem.X, np.full(len(problem.X), 0.1), problem.X[:, 0]])
    X[np.random.default_rng(0).random(X.shape) < 0.05] = np.nan
    X[problem.domain == 1, -1] = 3.0
    X.setflags(write=False)
    with pytest.warns(UserWarning, match="hardly varies"):  # the model's own, of its last column
        found = evaluate(OnlineDaDiL(**QUICK), X, problem.y, problem.domain).summary()
    assert min(found.source, found.standardised_flowing, found.end) > 0.4


def test_columns_in_another_unit_are_named_as_the_user_names_them():
    p = make_domains(n_sources=5, n_classes=3, n_per_class=30, shift=0.5, random_state=1)
    X = p.X + 50.0
    X[p.domain == 2, :2] *= 14.5038
    names = [f"flow {k}" for k in range(X.shape[1])]
    with pytest.warns(UserWarning, match="unit") as said:
        evaluate(OnlineDaDiL(**QUICK), X, p.y, p.domain, feature_names=names, **ONE)
    words = [str(one.message) for one in said]
    assert any("source '2', column 'flow 0'" in one for one in words)
    assert any("2: columns 'flow 0', 'flow 1'" in one for one in words)
    assert not any("column 0" in one or "columns 0" in one for one in words)


def test_balanced_accuracy_counts_every_class_the_same(problem):
    keep = (problem.y != 0) | (np.arange(len(problem.y)) % 3 == 0)
    X, y, domain = problem.X[keep], problem.y[keep], problem.domain[keep]
    found = evaluate(DummyClassifier(), X, y, domain, scoring="balanced_accuracy", **ONE)
    assert [score.end for score in found.scores] == [0.25] * 3
    assert "% balanced accuracy" in found.table()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"order": "class"}, "order must be one of 'as_is'"),
        ({"scoring": "f1"}, "scoring must be one of 'accuracy', 'balanced_accuracy'"),
        ({"targets": [4]}, "targets names 4, which is no domain; domains are: 1, 2, 3"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1"),
        ({"n_seeds": 0}, "n_seeds must be an integer >= 1"),
        ({"random_state": -1}, "random_state must be an integer >= 0"),
        ({"sample_domain": np.ones(360)}, "two domains or more.*all rows belong to 1.0"),
        ({"sample_domain": np.ones(3)}, r"sample_domain to have shape \(n_samples=360,\), got \(3,\)"),
        (
            {"sample_domain": np.array(["a", None] * 180)},
            r"sample_domain holds no value at position 1 \(180 such entries\)",
        ),
        ({"y": np.where(np.arange(360) < 2, np.nan, 1.0)}, "y holds no value at position 0"),
        ({"y": np.repeat([1, 2, 2], 120)}, "without the domain 1 there is only one class, 2"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_words(problem, change, words):
    given = {"X": problem.X, "y": problem.y, "sample_domain": problem.domain} | change
    with pytest.raises(InvalidInputError, match=words):
        evaluate(DummyClassifier(), **given)


def test_what_labels_would_buy(problem):
    # Classes far from where the sources have them: a few labels help much.
    model = OnlineDaDiL(**QUICK)
    far = make_domains(n_sources=3, n_classes=4, n_per_class=30, shift=2.5, random_state=0)
    how = {"targets": [1, 2], "order": "shuffled"} | ONE
    found = evaluate(model, far.X, far.y, far.domain, labels_per_class=3, **how)
    labels = found.summary().labels
    assert labels.n_labels == 12
    assert max(labels.random, labels.queried) > labels.without
    assert 0.0 <= labels.certified < labels.random
    again = evaluate(model, far.X, far.y, far.domain, labels_per_class=3, **how)
    assert [score.labels for score in again.scores] == [score.labels for score in found.scores]
    assert {"n_labels", "labels_random"} <= set(found.to_frame().columns)
    lines = found.label_table().splitlines()
    assert [line.split()[0] for line in lines[4:6]] == ["1", "2"]
    # Apart from the labels it is the same evaluation.
    plain = evaluate(model, far.X, far.y, far.domain, **how)
    assert plain.table() == found.table()
    assert plain.summary().labels is None
    with pytest.raises(InvalidInputError, match="labels_per_class"):
        plain.label_table()


def test_labels_need_a_model_that_learns_from_them(problem):
    with pytest.raises(InvalidInputError, match="OnlineDaDiL"):
        evaluate(LogisticRegression(), problem.X, problem.y, problem.domain, labels_per_class=1)
