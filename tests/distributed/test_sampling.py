"""Rows are drawn by their hashes."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow.distributed.partitions import FrameReader
from baryflow.distributed.sampling import (
    SamplePlan,
    count_partition,
    draw_partition,
    hash_rows,
    merge_counts,
    merge_samples,
    to_unit_interval,
)
from baryflow.exceptions import InvalidInputError


@given(seed=st.integers(0, 10**6), at=st.integers(0, 500))
def test_hashes_do_not_depend_on_the_partition(seed, at):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((500, 4)) < 0.1, np.nan, rng.normal(size=(500, 4)))
    whole = hash_rows(X)
    np.testing.assert_array_equal(np.concatenate([hash_rows(X[:at]), hash_rows(X[at:])]), whole)
    np.testing.assert_array_equal(hash_rows(X[::-1])[::-1], whole)


@pytest.mark.parametrize(
    "X",
    [
        np.random.default_rng(0).normal(size=(50_000, 3)),
        np.arange(50_000.0)[:, None],
        np.column_stack([np.zeros(50_000), np.arange(50_000.0) % 2]),  # only two kinds of rows
        np.full((50_000, 2), np.nan),
    ],
)
def test_hashes_are_uniform_and_uncorrelated(X):
    shares = to_unit_interval(hash_rows(X))
    assert shares.min() >= 0.0
    assert shares.max() < 1.0
    counts = np.histogram(shares, 20, (0.0, 1.0))[0]
    assert np.abs(counts - 2500).max() < 5 * np.sqrt(2500)
    assert abs(np.corrcoef(shares[1:], shares[:-1])[0, 1]) < 0.02


def test_zeros_and_nans_have_one_hash():
    X = np.array([[0.0, np.nan]])
    other = np.array([[-0.0, -np.nan]])
    assert hash_rows(X) == hash_rows(other)


def rows_of(seed, n=400):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)), rng.integers(3, size=n), rng.integers(1, 4, size=n)


def reader(n_features):
    return FrameReader(list(range(n_features)), "y", "domain")


def as_frame(X, y, domain):
    return pd.DataFrame(X).assign(y=y, domain=domain)


def draw(X, y, domain, cuts, n_rows):
    """Return the sample of rows in partitions that are cut at some places."""
    edges, rows = [0, *sorted(cuts), len(X)], as_frame(X, y, domain)
    partitions = [rows[a:b] for a, b in pairwise(edges)]
    counts = merge_counts([count_partition(one, reader(X.shape[1])) for one in partitions])
    plan = SamplePlan.of(counts, n_rows)
    drawn = [draw_partition(one, reader(X.shape[1]), plan, X.shape[1]) for one in partitions]
    return plan, merge_samples(drawn)


@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 400), max_size=6))
def test_sample_does_not_depend_on_the_partitions(seed, cuts):
    rows = rows_of(seed)
    plan, found = draw(*rows, cuts, 100)
    _, whole = draw(*rows, [], 100)
    found, whole = found.without_spares(), whole.without_spares()
    np.testing.assert_array_equal(found.X, whole.X)
    assert sum(plan.counts.rows) == 400
    cells = np.array(plan.counts.cells)[found.cells]
    where = [np.flatnonzero((rows[0] == row).all(axis=1))[0] for row in found.X]
    np.testing.assert_array_equal(cells, np.stack([rows[2][where], rows[1][where]], axis=1))
    assert where == sorted(where)  # in their order


def test_the_same_fraction_of_every_class_is_drawn_but_at_least_twenty_rows():
    n = 40_000
    X, y = np.random.default_rng(0).normal(size=(n, 2)), np.arange(n) % 10
    y = np.where(y < 9, y % 3, np.where(np.arange(n) % 100 == 9, 4, 3))  # 12,000 thrice, 3,600 and 400
    plan, sample = draw(X, y, np.ones(n, int), [], 1000)
    drawn = {plan.counts.labels[c]: n for c, n in enumerate(np.bincount(sample.cells).tolist())}
    expected = {0: 300, 1: 300, 2: 300, 3: 90, 4: 20}
    assert all(abs(drawn[c] - m) < 5 * np.sqrt(m) for c, m in expected.items())


def test_all_rows_of_small_data_are_drawn_in_order():
    X, y, domain = rows_of(1)
    _, sample = draw(X, y, domain, [130, 131, 300], 400)
    np.testing.assert_array_equal(sample.X, X)
    assert not sample.spare.any()


def test_rows_with_unknown_classes_or_domains_are_refused():
    X, y, domain = rows_of(0)
    plan, _ = draw(X, y, domain, [], 10)
    for changed in ((X, y + 1, domain), (X, y, domain + 1)):
        with pytest.raises(InvalidInputError, match="rows changed"):
            draw_partition(as_frame(*changed), reader(4), plan, 4)
