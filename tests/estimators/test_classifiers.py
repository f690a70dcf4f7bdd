"""The plain classifiers predict what scikit-learn's do, from arrays alone."""

import dataclasses

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from baryflow.codec import decode, encode
from baryflow.estimators import _classifiers
from baryflow.estimators._classifiers import CLASSIFIERS


def problem(n_classes, n=240, d=5, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    X = rng.normal(size=(n_classes, d))[y] * 2.0 + rng.normal(size=(n, d))
    return X, y, rng.normal(size=(50, d)) * 2.0


def rival(name, X, y):
    if name == "linear":
        return LogisticRegression(C=0.1).fit(X, y).predict_proba
    if name == "trees":
        return ExtraTreesClassifier(100, bootstrap=True, random_state=3).fit(X, y).predict_proba
    model = SVC(C=3.0).fit(X, y)

    def proba(Z):
        margins = model.decision_function(Z)
        return softmax(margins, axis=1)

    return proba


@pytest.mark.parametrize("n_classes", [3, 6])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_probabilities_are_those_of_scikit_learn(name, n_classes):
    X, y, new = problem(n_classes)
    found = CLASSIFIERS[name](X, y, n_classes, None, 3).proba(new)
    tolerance = 1e-6 if name == "kernel" else 1e-9  # it computes with 32 bits
    np.testing.assert_allclose(found, rival(name, X, y)(new), rtol=0.0, atol=tolerance)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_of_two_classes_the_same_one_is_predicted(name):
    X, y, new = problem(2)
    found = CLASSIFIERS[name](X, y, 2, None, 3).proba(new).argmax(axis=1)
    rivals = {"linear": LogisticRegression(C=0.1), "kernel": SVC(C=3.0)}
    model = rivals.get(name, ExtraTreesClassifier(100, bootstrap=True, random_state=3))
    np.testing.assert_array_equal(found, model.fit(X, y).predict(new))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classes_without_rows_are_never_predicted(name):
    X, y, new = problem(3)
    found = CLASSIFIERS[name](X, 2 * y, 6, None, 0).proba(new)
    assert found.shape == (50, 6)
    np.testing.assert_allclose(found[:, 1::2], 0.0, atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_one_class_is_certain(name):
    X, _, new = problem(2)
    found = CLASSIFIERS[name](X, np.full(len(X), 1), 2, None, 0).proba(new)
    np.testing.assert_allclose(found, np.tile([0.0, 1.0], (50, 1)), atol=1e-12)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_what_is_kept_predicts_the_same_bits(name):
    X, y, new = problem(4)
    classifier = CLASSIFIERS[name](X, y, 4, None, 0)
    again = decode(type(classifier), *encode(classifier))
    assert np.array_equal(again.proba(new), classifier.proba(new))


def test_a_weight_of_two_is_a_row_seen_twice():
    X, y, new = problem(3)
    twice = np.arange(len(y)) % 3 == 0
    doubled = np.concatenate([X, X[twice]]), np.concatenate([y, y[twice]])
    for name in ("linear", "kernel"):
        weighted = CLASSIFIERS[name](X, y, 3, 1.0 + twice, 0).proba(new)
        if name == "linear":
            repeated = CLASSIFIERS[name](*doubled, 3, None, 0).proba(new)
            np.testing.assert_allclose(weighted, repeated, atol=1e-3)
        assert not np.allclose(weighted, CLASSIFIERS[name](X, y, 3, None, 0).proba(new))


def test_values_at_a_threshold_take_the_branch_that_scikit_learn_takes():
    X, y, _ = problem(3, d=2)
    forest = CLASSIFIERS["trees"](X, y, 3, None, 3)
    model = ExtraTreesClassifier(100, bootstrap=True, random_state=3).fit(X, y)
    at = forest.thresholds[np.isfinite(forest.thresholds)].astype(np.float32)[:300]
    around = [np.nextafter(at, np.float32(-np.inf)), at, np.nextafter(at, np.float32(np.inf))]
    values = np.concatenate([*around, np.array([-3e38, 3e38], dtype=np.float32)]).astype(np.float64)
    for rows in (np.stack([values, values], axis=1), np.stack([values, values[::-1]], axis=1)):
        np.testing.assert_allclose(forest.proba(rows), model.predict_proba(rows), atol=1e-12)


def test_a_row_is_predicted_alike_alone_and_among_others():
    X, y, new = problem(4)
    forest = CLASSIFIERS["trees"](X, y, 4, None, 0)
    together = forest.proba(new)
    assert np.array_equal(np.concatenate([forest.proba(row[None]) for row in new]), together)
    assert forest.proba(new[:0]).shape == (0, 4)


def test_trees_are_the_same_if_only_some_are_grown_at_a_time(monkeypatch):
    X, y, _ = problem(4)
    X = X.round(0)  # some leaves are of several classes
    at_once = CLASSIFIERS["trees"](X, y, 5, None, 0)
    monkeypatch.setattr(_classifiers, "_COUNTS", 7 * 2 * len(X) * 4)
    by_and_by = CLASSIFIERS["trees"](X, y, 5, None, 0)
    for one in dataclasses.fields(at_once):
        assert np.array_equal(getattr(at_once, one.name), getattr(by_and_by, one.name))


def test_a_damaged_tree_is_refused():
    X, y, _ = problem(3)
    forest = CLASSIFIERS["trees"](X, y, 3, None, 0)
    with pytest.raises(ValueError, match="does not exist"):
        dataclasses.replace(forest, left=forest.left + len(forest.left))
    with pytest.raises(ValueError, match="does not exist"):
        dataclasses.replace(forest, leaves=forest.leaves + len(forest.table))
