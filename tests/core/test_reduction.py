import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow import Mixture, w2_squared
from baryflow.core.pool import Pool
from baryflow.core.reduction import compress
from baryflow.exceptions import InvalidInputError
from tests.strategies import mixtures, random_mixture, seeds


def plain_compress(m, limit, distance, merge):
    """The paper's Algorithms 3 and 4 as printed: all distances again after every merge."""
    w, mean, std = m.weights.copy(), m.means.copy(), m.stds.copy()
    while len(w) > limit:
        best, pair = np.inf, None
        for i in range(len(w)):
            for j in range(i + 1, len(w)):
                cost = ((mean[i] - mean[j]) ** 2).sum() + ((std[i] - std[j]) ** 2).sum()
                if distance == "ward":
                    cost *= w[i] * w[j] / (w[i] + w[j])
                if cost < best:
                    best, pair = cost, (i, j)
        i, j = pair
        a, b = w[i] / (w[i] + w[j]), w[j] / (w[i] + w[j])
        centre = a * mean[i] + b * mean[j]
        if merge == "wasserstein":
            std[i] = a * std[i] + b * std[j]
        else:
            spread = a * (mean[i] - centre) ** 2 + b * (mean[j] - centre) ** 2
            std[i] = np.sqrt(a * std[i] ** 2 + b * std[j] ** 2 + spread)
        mean[i] = centre
        w[i] += w[j]
        w, mean, std = (np.delete(x, j, axis=0) for x in (w, mean, std))
    return w, mean, std


@given(
    seeds,
    st.integers(1, 12),
    st.sampled_from(["w2", "ward"]),
    st.sampled_from(["wasserstein", "moment"]),
)
def test_it_equals_the_double_loop(seed, limit, distance, merge):
    m = random_mixture(np.random.default_rng(seed), 12, 3)
    ours = compress(m, limit, distance=distance, merging=merge)
    expected = plain_compress(m, limit, distance, merge)
    for mine, theirs in zip((ours.weights, ours.means, ours.stds), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


def merged_rows(seed, **how):
    """Return the pool of some clusters of rows, a few of which came often."""
    rng = np.random.default_rng(seed)
    n, d, limit = (int(rng.integers(*some)) for some in ((20, 90), (1, 8), (2, 20)))
    X = rng.normal(size=(n, d)) + 3.0 * rng.normal(size=(5, d))[rng.integers(5, size=n)]
    masses = np.append(rng.integers(1, 200, limit), np.ones(n - limit))
    pool = Pool(d)
    pool.append(masses, X, np.zeros((n, d)))
    pool.compress(limit, **how)
    return pool


def test_many_pairs_at_once_become_what_they_become_one_by_one():
    # Ward's criterion is exact between components of equal width only, so a few may differ.
    same = []
    for seed in range(100):
        pools = merged_rows(seed), merged_rows(seed, pair_by_pair=True)
        first, second = (pool.means[np.lexsort(pool.means.T)] for pool in pools)
        same.append(np.allclose(first, second))
        scatter, other = (float((pool.masses @ np.square(pool.stds)).sum()) for pool in pools)
        assert scatter < 1.1 * other
    assert np.mean(same) > 0.95


@given(mixtures(n_features=2, n_classes=3, max_components=8), st.integers(1, 8))
def test_mass_labels_and_moments_are_conserved(m, limit):
    small = compress(m, limit)
    assert small.n_components == min(limit, m.n_components)
    assert small.mass == m.mass
    scale = np.abs(m.means).max() + m.stds.max()
    np.testing.assert_allclose(small.weights @ small.labels, m.weights @ m.labels, atol=1e-12)
    np.testing.assert_allclose(small.mean(), m.mean(), atol=1e-12 * scale)
    np.testing.assert_allclose(small.variance(), m.variance(), rtol=1e-9)


def test_the_wasserstein_merge_is_the_barycenter():
    two = Mixture([0.25, 0.75], [[0.0], [4.0]], [[1.0], [2.0]])
    one = compress(two, 1, merging="wasserstein")
    assert one.means.item() == pytest.approx(3.0)
    assert one.stds.item() == pytest.approx(1.75)


def test_components_that_never_occur_can_be_merged():
    m = Mixture([1.0, 0.0, 0.0], [[0.0], [5.0], [6.0]], np.ones((3, 1)))
    assert compress(m, 1).weights.tolist() == [1.0]
    assert compress(m, 2, distance="w2").n_components == 2


def test_nothing_to_do_gives_the_same_mixture():
    m = random_mixture(np.random.default_rng(0), 3, 2)
    assert compress(m, 3) is m


def test_equal_components_merge_first():
    m = Mixture([0.2, 0.3, 0.5], [[0.0], [7.0], [0.0]], np.ones((3, 1)))
    small = compress(m, 2)
    assert sorted(small.means.ravel()) == [0.0, 7.0]
    assert w2_squared(small).max() == pytest.approx(49.0)


@pytest.mark.parametrize("wrong", [{"distance": "kl"}, {"merging": "sum"}, {"max_components": 0}])
def test_bad_options_are_named(wrong):
    m = random_mixture(np.random.default_rng(0), 3, 2)
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        compress(m, **({"max_components": 2} | wrong))
