import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_iris, make_moons
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks

from baryflow import MixtureClassifier
from baryflow.exceptions import InvalidInputError
from tests.strategies import read_only


@parametrize_with_checks([MixtureClassifier(), MixtureClassifier(1, 3, n_init=2, random_state=0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_one_component_is_gaussian_naive_bayes():
    X, y = load_iris(return_X_y=True)
    ours = MixtureClassifier().fit(X, y)
    theirs = GaussianNB(var_smoothing=0).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-9)


def test_bic_finds_the_modes_of_each_class():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 200)
    X = rng.normal(size=(400, 2))
    X[:100] += 10  # class 0 has two modes
    model = MixtureClassifier(1, 5, random_state=0).fit(X, y)
    assert model.n_components_.tolist() == [2, 1]


def test_several_components_beat_one_on_moons():
    X, y = make_moons(600, noise=0.1, random_state=0)
    one = cross_val_score(MixtureClassifier(), X, y).mean()
    many = cross_val_score(MixtureClassifier(1, 8, n_init=3, random_state=0), X, y).mean()
    assert many > 0.98 > one


def test_the_mixture_is_labelled_and_weighted_by_class():
    X, y = load_iris(return_X_y=True)
    names = load_iris().target_names[y][10:]
    model = MixtureClassifier(2, random_state=0).fit(X[10:], names)
    assert model.mixture_.mass == 140
    shares = model.mixture_.weights @ model.mixture_.labels
    np.testing.assert_allclose(shares, np.bincount(y[10:]) / 140)
    assert set(model.predict(X)) == set(model.classes_)


def test_frames_and_their_column_names():
    X, y = load_iris(return_X_y=True)
    plain = MixtureClassifier().fit(X, y).predict_proba(X)
    for frame in (pd.DataFrame(X, columns=list("abcd")), pl.DataFrame(X, schema=list("abcd"))):
        model = MixtureClassifier().fit(frame, y)
        assert model.feature_names_in_.tolist() == list("abcd")
        assert np.array_equal(model.predict_proba(frame), plain)


def test_missing_values():
    X, y = load_iris(return_X_y=True)
    X = X.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    assert MixtureClassifier(1, 2, random_state=0).fit(X, y).score(X, y) > 0.85


def test_a_column_missing_from_one_class_only():
    X, y = load_iris(return_X_y=True)
    X = X.copy()
    X[y == 0, 2] = np.nan
    assert MixtureClassifier().fit(X, y).score(X, y) > 0.9
    X[:, 2] = np.nan
    with pytest.raises(InvalidInputError, match=r"column\(s\) \[2\]"):
        MixtureClassifier().fit(X, y)


def test_a_column_constant_within_one_class():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 50)
    X = rng.normal(size=(100, 2))
    X[y == 0, 0] = 3.0
    model = MixtureClassifier().fit(X, y)
    assert model.score(X, y) > 0.95
    assert model.predict([[2.9, 0.0]]) == [1]


def test_class_names_do_not_influence_the_fit():
    X, y = load_iris(return_X_y=True)
    there = MixtureClassifier(1, 3, random_state=0).fit(X, y).predict_proba(X)
    back = MixtureClassifier(1, 3, random_state=0).fit(X, 2 - y).predict_proba(X)
    np.testing.assert_allclose(there, back[:, ::-1], atol=1e-9)


def test_random_states_of_every_kind():
    X, y = load_iris(return_X_y=True)
    for state in (0, np.random.RandomState(0), np.random.default_rng(0), None):
        MixtureClassifier(2, random_state=state).fit(X, y)
    with pytest.raises(InvalidInputError, match="random_state"):
        MixtureClassifier(random_state="x").fit(X, y)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (-np.ones(150), "sample_weight must not be negative"),
        (np.ones(3), r"expected sample_weight to have shape \(n_samples=150,\)"),
        (np.zeros(150), "sample_weight is zero everywhere"),
    ],
)
def test_bad_weights_are_named(weights, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(InvalidInputError, match=message):
        MixtureClassifier().fit(X, y, weights)


def test_read_only_input_is_left_alone():
    X, y = (read_only(a) for a in load_iris(return_X_y=True))
    MixtureClassifier(1, 2, random_state=0).fit(X, y, read_only(np.ones(150))).predict(X)
