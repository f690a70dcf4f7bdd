from types import SimpleNamespace

import numpy as np

from baryflow import OnlineGaussianMixture
from baryflow.core.summary import Pool, Settings, StreamSummary


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


def test_merging_many_pairs_at_once_is_merging_the_nearest_pair_again_and_again():
    # Ward's criterion is exact between components of equal width only, so a few may differ.
    same = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, d, limit = (int(rng.integers(*some)) for some in ((12, 30), (1, 8), (2, 8)))
        X = rng.normal(size=(n, d)) + 3.0 * rng.normal(size=(5, d))[rng.integers(5, size=n)]
        masses = np.append(rng.integers(1, 200, limit), np.ones(n - limit))
        pool = Pool(d)
        pool.append(masses, X, np.zeros((n, d)))
        pool.compress(limit)
        rows = SimpleNamespace(weights=masses, means=X, stds=np.zeros((n, d)))
        weights, means, stds = plain_compress(rows, limit, "ward", "moment")
        mine, theirs = np.lexsort(pool.means.T), np.lexsort(means.T)
        found = (pool.masses[mine], pool.means[mine], pool.stds[mine])
        expected = (weights[theirs], means[theirs], stds[theirs])
        same.append(all(np.allclose(a, b) for a, b in zip(found, expected, strict=True)))
        scatter = float((pool.masses @ np.square(pool.stds)).sum())
        assert scatter < 1.1 * float((weights @ np.square(stds)).sum())
    assert np.mean(same) > 0.95


def test_components_that_never_occur_can_be_merged():
    pool = Pool(1)
    pool.append(np.array([1.0, 0.0, 0.0]), np.array([[0.0], [5.0], [6.0]]), np.ones((3, 1)))
    pool.compress(1)
    assert pool.masses.tolist() == [1.0]
    assert pool.means.tolist() == [[0.0]]


def test_equal_rows_merge_first():
    model = OnlineGaussianMixture(2, resolution=1).fit(np.array([[0.0], [7.0], [0.0]]))
    assert sorted(model.mixture_.means.ravel().tolist()) == [0.0, 7.0]


def test_more_components_are_kept_than_shown():
    X = np.random.default_rng(0).normal(size=(60, 2))
    summary = StreamSummary(2, Settings(max_components=4, resolution=3))
    summary.update(X, np.ones(60))
    assert len(summary.components().masses) == 12
    assert summary.mixture().n_components == 4


def test_the_variances_in_a_metric_are_those_of_the_stream():
    rng = np.random.default_rng(0)
    X, A = 100 + rng.normal(size=(300, 4)) @ rng.normal(size=(4, 4)), rng.normal(size=(4, 2))
    summary = StreamSummary(4, Settings(max_components=6), A)
    for start in range(0, 300, 30):
        summary.update(X[start : start + 30], np.ones(30))
    masses, means, _ = summary.components()
    seen, weights = means @ A, masses / masses.sum()
    within = weights @ summary.variances_in(A)
    between = weights @ np.square(seen - weights @ seen)
    np.testing.assert_allclose(weights @ seen, (X @ A).mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(within + between, (X @ A).var(axis=0), rtol=1e-7)


def test_two_that_go_on_from_one_state_do_not_disturb_each_other():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 2))
    first = StreamSummary(3, Settings(max_components=5), A)
    first.update(rng.normal(size=(200, 3)), np.ones(200))
    state = first.state()
    one, other = StreamSummary.from_state(state), StreamSummary.from_state(state)
    before = other.variances_in(A)
    one.update(10.0 * rng.normal(size=(30, 3)), np.ones(30))
    assert np.array_equal(other.variances_in(A), before)
    assert np.array_equal(first.variances_in(A), before)
    assert other.mixture() == first.mixture()


def test_rows_of_a_place_where_none_were_become_components_of_their_own():
    """Each alone fits a wide component nearby; together they do not."""
    rng = np.random.default_rng(0)
    before, new = rng.normal(size=(600, 2)), [3.0, 0.0] + 0.1 * rng.normal(size=(100, 2))
    summary = StreamSummary(2, Settings(max_components=10, resolution=1))
    for X in (before, new):
        summary.update(X, np.ones(len(X)))
    masses, means, stds = summary.components()
    there = np.abs(means - [3.0, 0.0]).max(axis=1) < 0.3
    assert masses[there].sum() >= 95.0
    assert stds[there].max() < 0.5
