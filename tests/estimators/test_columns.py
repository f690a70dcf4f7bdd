"""What is known of a model comes back in the columns and units of rows."""

import numpy as np
import pytest

from baryflow import OnlineDaDiL
from baryflow.estimators._predict import class_means


def two_classes(rng, n, shift):
    """Return rows of two classes in ten columns: fewer directions than columns tell them apart."""
    means = np.array([np.zeros(10), np.linspace(-5.0, 5.0, 10)])
    y = np.arange(n) % 2
    return 300.0 + 7.0 * (means[y] + rng.normal(size=(n, 10)) + shift), y


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    parts = [two_classes(rng, 80, shift) for shift in (-0.2, 0.0, 0.2)]
    X, y = np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])
    target, truth = two_classes(rng, 160, 0.4)
    model = OnlineDaDiL(classifier="linear", random_state=0, validate=False).fit(
        X, y, np.repeat([1, 2, 3], 80)
    )
    return model, X, y, target, truth


def test_class_means_also_where_the_view_has_fewer_directions_than_rows_have_columns(problem):
    model, X, y, target, truth = problem
    assert model.atoms_[0].n_features < 10
    usual = np.stack([X[y == c].mean(axis=0) for c in (0, 1)])
    assert class_means(model.knowledge_, model.state_) == pytest.approx(usual, abs=3.5)
    model.partial_fit(target)
    found = np.stack([target[truth == c].mean(axis=0) for c in (0, 1)])
    assert class_means(model.knowledge_, model.state_) == pytest.approx(found, abs=3.5)  # half a std


def test_columns_are_compared_by_name_or_number(problem):
    pd = pytest.importorskip("pandas")
    _, X, y, target, _ = problem
    names = [f"tag {k}" for k in range(10)]
    domain = np.repeat([1, 2, 3], 80)
    named = OnlineDaDiL(classifier="linear", random_state=0, validate=False).fit(
        pd.DataFrame(X, columns=names), y, domain
    )
    named.partial_fit(pd.DataFrame(target, columns=names))
    numbered = (
        OnlineDaDiL(classifier="linear", random_state=0, validate=False)
        .fit(X, y, domain)
        .partial_fit(target)
    )
    assert named.compare_columns().names == names
    assert numbered.compare_columns().names == list(range(10))
    np.testing.assert_array_equal(
        named.compare_columns().differences, numbered.compare_columns().differences
    )
    gaps = (target.mean(axis=0) - X.mean(axis=0)) / X.std(axis=0)
    assert numbered.compare_columns().differences == pytest.approx(gaps)
    assert numbered.compare_columns().order().tolist() == np.argsort(-np.abs(gaps)).tolist()
