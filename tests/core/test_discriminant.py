import numpy as np
import pytest
from hypothesis import given
from sklearn.covariance import ledoit_wolf as sklearn_ledoit_wolf

from baryflow.core.discriminant import discriminant_directions, ledoit_wolf
from baryflow.core.proportions import ProportionPrior
from tests.strategies import seeds


@given(seeds)
def test_shrinkage_agrees_with_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(int(rng.integers(3, 40)), 6)) @ rng.normal(size=(6, 6))
    expected, _ = sklearn_ledoit_wolf(X, assume_centered=True)
    np.testing.assert_allclose(ledoit_wolf(X), expected, rtol=1e-6, atol=1e-9)


def test_the_view_separates_classes_that_no_axis_separates():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 200)
    along = rng.normal(size=400)
    X = np.stack([along, along + 0.1 * rng.normal(size=400) + 0.5 * y], axis=1)
    W = discriminant_directions([X - X.mean(axis=0)], [y], 2)
    V = (X - X.mean(axis=0)) @ W
    assert W.shape == (2, 1)
    gap = abs(V[y == 0].mean() - V[y == 1].mean())
    assert gap > 3 * V[y == 0].std()
    assert V[y == 0].std() < 1.1  # 1 but for the shrinkage


def test_what_moves_a_class_between_domains_is_not_spread():
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1, 2], 100)
    centres = np.array([[0, 0], [4, 0], [0, 4]])
    rows = [centres[y] + shift + rng.normal(size=(300, 2)) for shift in ([0, 0], [30, -30])]
    W = discriminant_directions(rows, [y, y], 3)
    for X in rows:
        assert np.std((X @ W)[y == 0], axis=0) == pytest.approx([1, 1], abs=0.25)


def test_constant_columns_and_a_missing_class():
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.normal(size=60), np.zeros(60), rng.normal(size=60)])
    W = discriminant_directions([X], [np.repeat([0, 2], 30)], 3)
    assert np.isfinite(W).all()


def test_equal_proportions_make_a_strong_prior_and_varying_ones_a_weak_one():
    same = ProportionPrior.of(np.array([[100.0, 200, 300]] * 5))
    assert same.strength > 1e4
    varying = ProportionPrior.of(np.array([[500.0, 5, 5], [5, 500, 5], [5, 5, 500]]))
    assert varying.strength < 10
    shares = np.array([1.0, 0.0, 0.0])
    np.testing.assert_allclose(same.posterior_mean(shares, 100), same.mean, atol=0.02)
    assert varying.posterior_mean(shares, 100)[0] > 0.9


def test_a_class_that_no_source_has_is_left_out():
    prior = ProportionPrior.of(np.array([[10.0, 0, 10], [10, 0, 10]]))
    assert prior.mean.tolist() == [0.5, 0.0, 0.5]
