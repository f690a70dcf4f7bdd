import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow.distributed.fitting.partitions import ArrayReader
from baryflow.distributed.fitting.passes import (
    CellMixtures,
    CellStatistics,
    Sample,
    SourceCatalog,
    complete_scatter,
    hash_rows,
    measure_partition,
    merge_samples,
    merge_statistics,
    sample_partition,
    sampling_fractions,
    sum_partition,
    to_unit_interval,
)
from baryflow.estimators._domains import fill_gaps
from baryflow.estimators._source_table import SourceTable
from baryflow.estimators._sources import LabelledRows
from baryflow.exceptions import InvalidInputError


def problem(seed, n=400, gaps=0.0, offset=0.0):
    rng = np.random.default_rng(seed)
    y, domain = rng.integers(3, size=n), rng.integers(1, 4, size=n)
    X = rng.normal(size=(n, 4)) * [1.0, 100.0, 1e-3, 5.0] + y[:, None] + offset
    X[:, 3] = np.where(domain == 2, 7.0, X[:, 3])  # constant in one source
    X[rng.random(X.shape) < gaps] = np.nan
    return X, y, domain


def cut(n, cuts):
    edges = sorted({0, n, *(int(c * n) for c in cuts)})
    return [slice(a, b) for a, b in pairwise(edges)]


def count(X, y, domain, slices):
    statistics = [measure_partition(ArrayReader(), (X[s], y[s], domain[s]), X.shape[1]) for s in slices]
    return merge_statistics(statistics)


@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.floats(0, 1), max_size=6),
    gaps=st.sampled_from([0.0, 0.2]),
    offset=st.sampled_from([0.0, 1e8]),
)
def test_statistics_do_not_depend_on_partitions(seed, cuts, gaps, offset):
    X, y, domain = problem(seed, gaps=gaps, offset=offset)
    catalog = SourceCatalog.of(count(X, y, domain, cut(len(X), cuts)))
    assert catalog.classes.tolist() == [0, 1, 2]
    assert catalog.sources == [1, 2, 3]
    rows = [fill_gaps(X[domain == name], np.zeros(X.shape[1])) for name in catalog.sources]
    expected = SourceTable.of(rows, [y[domain == name] for name in catalog.sources], 3)
    np.testing.assert_array_equal(catalog.table.counts, expected.counts)
    for name in (
        "means",
        "deviations",
        "lowest",
        "highest",
        "source_means",
        "source_stds",
        "centre",
        "std",
    ):
        np.testing.assert_allclose(
            getattr(catalog.table, name),
            getattr(expected, name),
            rtol=1e-7,
            atol=1e-9 * (1 + 1e-4 * offset),  # rounding of distant means
        )


@given(seed=st.integers(0, 10**6), cuts=st.lists(st.floats(0, 1), max_size=4))
def test_second_pass_does_not_depend_on_partitions(seed, cuts):
    X, y, domain = problem(seed, gaps=0.1)
    slices = cut(len(X), cuts)
    catalog = SourceCatalog.of(count(X, y, domain, slices))
    found = [
        sample_partition(ArrayReader(), (X[s], y[s], domain[s]), catalog, n_rows=10**6, seed=0)
        for s in slices
    ]
    second = merge_samples(found)
    rows = [fill_gaps(X[domain == name], np.zeros(X.shape[1])) for name in catalog.sources]
    codes = [y[domain == name] for name in catalog.sources]
    expected = LabelledRows(rows, codes, 3).measure(SourceTable.of(rows, codes, 3))
    scatter = complete_scatter(second.scatter, catalog.table)
    for name in ("n_rows", "within", "fourth", "counts", "sums"):
        np.testing.assert_allclose(getattr(scatter, name), getattr(expected, name), rtol=1e-8, atol=1e-8)
    drawn = second.sample.labelled(catalog.table)  # all rows, in order
    for mine, theirs, y_mine, y_theirs in zip(drawn.rows, rows, drawn.codes, codes, strict=True):
        np.testing.assert_allclose(mine, theirs)
        np.testing.assert_array_equal(y_mine, y_theirs)


def test_partitions_may_lack_classes_or_be_empty():
    X, y, domain = problem(0)
    order = np.lexsort((y, domain))
    X, y, domain = X[order], y[order], domain[order]
    found = count(X, y, domain, [slice(0, 0), slice(0, 10), slice(10, 399), slice(399, None)])
    assert found.counts.sum() == 400
    assert len(found.counts) == 9
    assert count(X, y, domain, [slice(0, 0)]).counts.size == 0
    with pytest.raises(InvalidInputError, match="no rows"):
        SourceCatalog.of(CellStatistics.empty(4))


def test_a_column_that_no_source_has_is_reported():
    X, y, domain = problem(0)
    X[:, 1] = np.nan
    with pytest.raises(InvalidInputError, match=r"no source has .* 'heat'"):
        SourceCatalog.of(count(X, y, domain, [slice(None)]), ["flow", "heat", "noise", "speed"])


def test_names_and_numbers_cannot_be_mixed_as_classes():
    X = np.zeros((2, 4))
    domain = np.array([1, 1])
    parts = [(X, np.array(["a", "b"]), domain), (X, np.array([1, 2]), domain)]
    with pytest.raises(InvalidInputError, match="labels must be all"):
        SourceCatalog.of(merge_statistics([measure_partition(ArrayReader(), part, 4) for part in parts]))


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.array([0.5, 1.0]), "got 0.5"),
        (np.array([1.0, np.inf]), "got inf"),
        (np.array([[1], [2, 3]], dtype=object), "labels and domains must be"),
    ],
)
def test_invalid_classes_are_refused(labels, words):
    with pytest.raises(InvalidInputError, match=words):
        SourceCatalog.of(measure_partition(ArrayReader(), (np.zeros((2, 4)), labels, None), 4))


def test_a_label_per_row_is_refused():
    labels = np.arange(10_001)
    with pytest.raises(InvalidInputError, match="more than 10,000 labels"):
        measure_partition(ArrayReader(), (np.zeros((len(labels), 1)), labels, None), 1)


# -- sums --------------------------------------------------------------------------------------------


class IdentityOutlook:
    """Projects rows of every source alike."""

    def see(self, rows, _):
        return rows


def test_third_pass_needs_memory_for_one_set_of_sums():
    n_sources, n_classes, d = 1000, 5, 8
    y, domain = (grid.ravel() for grid in np.meshgrid(np.arange(n_classes), np.arange(1, n_sources + 1)))
    X = np.random.default_rng(0).normal(size=(len(y), d))
    catalog = SourceCatalog.of(count(X, y, domain, [slice(None)]))
    shape = (len(y), 2, d)
    start = CellMixtures(np.arange(len(y)), np.full(shape[:2], 0.5), np.zeros(shape), np.ones(shape))
    few = np.arange(0, len(y), 50)  # each from another source
    tracemalloc.start()
    try:
        found = sum_partition(
            ArrayReader(), (X[few], y[few], domain[few]), catalog, IdentityOutlook(), start
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The sums of all cells take most of the memory, and exist once.
    assert peak < 1.5 * (found.masses.nbytes + found.steps.nbytes + found.squares.nbytes)
    np.testing.assert_array_equal(np.flatnonzero(found.masses.any(axis=1)), few)
    np.testing.assert_allclose(found.masses[few], 0.5)
    np.testing.assert_allclose(found.steps[few], 0.5 * X[few, None].repeat(2, axis=1))
    np.testing.assert_allclose(found.squares[few], 0.5 * np.square(X[few, None]).repeat(2, axis=1))


# -- the sample -----------------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**31 - 1), at=st.integers(0, 500))
def test_hashes_do_not_depend_on_the_partition(seed, at):
    X = problem(3, n=500, gaps=0.1)[0]
    whole = hash_rows(X, seed)
    np.testing.assert_array_equal(
        np.concatenate([hash_rows(X[:at], seed), hash_rows(X[at:], seed)]), whole
    )
    np.testing.assert_array_equal(hash_rows(X[::-1], seed)[::-1], whole)


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
    shares = to_unit_interval(hash_rows(X, 7))
    assert shares.min() >= 0.0
    assert shares.max() < 1.0
    counts = np.histogram(shares, 20, (0.0, 1.0))[0]
    assert np.abs(counts - 2500).max() < 5 * np.sqrt(2500)
    assert abs(np.corrcoef(shares[1:], shares[:-1])[0, 1]) < 0.02
    assert abs(np.corrcoef(shares, to_unit_interval(hash_rows(X, 8)))[0, 1]) < 0.02


def test_zeros_and_nans_have_one_hash():
    X = np.array([[0.0, np.nan]])
    other = np.array([[-0.0, -np.nan]])
    assert hash_rows(X, 0) == hash_rows(other, 0)


def test_rare_classes_are_in_the_sample():
    counts = np.array([[90_000.0, 100.0, 5_000.0], [4_900.0, 0.0, 300.0]])
    nothing = np.zeros((2, 3, 1))
    table = SourceTable(counts, nothing, nothing + 1.0, nothing[:, 0], nothing[:, 0] + 1.0, nothing)
    share = sampling_fractions(table, 10_000)
    expected = counts * share
    assert expected[0, 1] == 100.0
    np.testing.assert_allclose(expected[[0, 1], [2, 0]], counts[[0, 1], [2, 0]] / 10.03, rtol=1e-2)
    assert expected[1, 2] == pytest.approx(200.0)


def test_about_200_rows_of_a_class_are_drawn():
    n_cells, n = 20, 1000
    y, X = np.arange(n_cells * n) % n_cells, np.random.default_rng(0).normal(size=(n_cells * n, 1))
    partition, reader = (X, y, None), ArrayReader()
    catalog = SourceCatalog.of(measure_partition(reader, partition, 1))
    drawn = np.bincount(sample_partition(reader, partition, catalog, n_rows=1000, seed=0).sample.cells)
    assert drawn.min() < 200 < drawn.max()
    assert np.abs(drawn - 200).max() < 5 * np.sqrt(200 * 0.8)


@pytest.mark.parametrize(("n_sources", "least"), [(10, 200.0), (100, 100.0), (2000, 20.0)])
def test_sample_stays_small_with_many_sources(n_sources, least):
    counts = np.full((n_sources, 4), 1000.0)
    nothing = np.zeros((n_sources, 4, 1))
    table = SourceTable(counts, nothing, nothing + 1.0, nothing[:, 0], nothing[:, 0] + 1.0, nothing)
    np.testing.assert_allclose(
        counts * sampling_fractions(table, 10_000), max(least, 2500.0 / n_sources)
    )


def test_cells_without_drawn_rows_are_represented_by_their_mean():
    counts = np.array([[60.0, 40.0], [0.0, 30.0]])
    means = np.array([[[1.0], [2.0]], [[0.0], [3.0]]])
    low, high = np.zeros((2, 1)), np.ones((2, 1))
    table = SourceTable(counts, means, np.ones((2, 2, 1)), low, high, np.zeros((2, 2, 1)))
    sample = Sample(np.array([0, 0, 0]), np.arange(3, dtype=np.uint64), np.ones((3, 1)))
    for proportional in (False, True):
        found = sample.labelled(table, proportional=proportional)
        assert [sorted(codes.tolist()) for codes in found.codes] == [[0, 0, 0, 1], [1]]
        assert found.rows[1].tolist() == [[3.0]]


def test_rows_with_unknown_classes_or_domains_are_refused():
    X, y, domain = problem(0)
    catalog = SourceCatalog.of(count(X, y, domain, [slice(None)]))
    for changed in ((X, y + 1, domain), (X, y, domain + 1)):
        with pytest.raises(InvalidInputError, match="rows changed"):
            sample_partition(ArrayReader(), changed, catalog, n_rows=10, seed=0)
