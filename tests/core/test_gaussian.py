import numpy as np
import pytest
from hypothesis import given
from scipy.stats import norm
from sklearn.metrics import pairwise_distances

from baryflow.core import gaussian
from tests.strategies import mixtures, random_mixture, seeds


def test_log_density_is_the_sum_of_univariate_ones():
    rng = np.random.default_rng(0)
    m = random_mixture(rng, 4, 3)
    X = rng.normal(size=(7, 3))
    table = gaussian.LogDensity(m.means, m.stds)(X)
    expected = norm.logpdf(X[:, None, :], m.means, m.stds).sum(axis=2)
    np.testing.assert_allclose(table, expected, rtol=0, atol=1e-11)


def test_narrow_far_components_keep_their_digits():
    # Expanded squares would be 1e16 here and leave nothing of a log-density around 10.
    means, stds = np.array([[-1.0], [1.0]]), np.array([[1e-8], [1e-8]])
    X = np.array([[1.0 + 2e-8], [-1.0]])
    table = gaussian.LogDensity(means, stds)(X)
    expected = norm.logpdf(X, means.ravel(), stds.ravel())
    np.testing.assert_allclose(table, expected, rtol=1e-12)


def test_narrow_far_components_with_missing_values():
    means, stds = np.array([[-1.0, 0.0], [1.0, 0.0]]), np.array([[1e-8, 1.0], [1e-8, 1.0]])
    table = gaussian.LogDensity(means, stds)(np.array([[1.0, np.nan]]))
    np.testing.assert_allclose(table[0, 1], norm.logpdf(0.0, scale=1e-8), rtol=1e-12)


@given(mixtures(n_features=3), mixtures(n_features=3), mixtures(n_features=3))
def test_w2_is_a_metric(P, Q, R):
    def w2(a, b):
        return np.sqrt(gaussian.w2_squared_table(a.means, a.stds, b.means, b.stds))

    assert np.array_equal(np.diag(w2(P, P)), np.zeros(P.n_components))
    np.testing.assert_allclose(w2(P, Q), w2(Q, P).T, rtol=1e-6)
    # d(p, r) <= d(p, q) + d(q, r) for all triples of components
    slack = (w2(P, Q)[:, :, None] + w2(Q, R)[None, :, :]) - w2(P, R)[:, None, :]
    assert slack.min() >= -1e-6 * (1 + w2(P, R).max())


@given(seeds)
def test_squared_distances_agree_with_differences_everywhere(seed):
    rng = np.random.default_rng(seed)
    points = 1e6 + rng.normal(size=(6, 4))
    others = np.concatenate([points + 1e-5 * rng.normal(size=points.shape), points])
    expected = ((points[:, None] - others[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(gaussian.squared_distances(points, others), expected, rtol=1e-7)


def test_squared_distances_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(20, 8)), rng.normal(size=(9, 8))
    np.testing.assert_allclose(
        gaussian.squared_distances(a, b), pairwise_distances(a, b) ** 2, rtol=1e-12
    )


@given(mixtures(n_features=2), mixtures(n_features=2))
def test_kl_is_a_divergence(P, Q):
    table = gaussian.kl_table(P.means, P.stds, Q.means, Q.stds)
    assert table.min() >= 0
    assert np.diag(gaussian.kl_table(P.means, P.stds, P.means, P.stds)).max() <= 1e-12


def test_kl_agrees_with_its_integral():
    x = np.linspace(-30, 30, 200_001)
    p, q = norm(1.0, 0.7), norm(-0.5, 2.0)
    integral = np.trapezoid(p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), x)
    table = gaussian.kl_table(*(np.array([[v]]) for v in (1.0, 0.7, -0.5, 2.0)))
    assert table[0, 0] == pytest.approx(integral, rel=1e-6)
