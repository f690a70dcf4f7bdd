import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow import codec
from baryflow.core.summary import Factors, Groups, Matrices, PackedFactors
from baryflow.exceptions import InvalidInputError
from tests.strategies import seeds

D, P = 20, 3  # a limit of five vectors, and room for eight more


def merge(spreads, i, j, share, step, metric=None):
    masses, means = np.zeros(max(i, j) + 1), np.zeros((max(i, j) + 1, D))
    masses[i], masses[j], means[j] = 1.0 - share, share, step
    spreads.merge(Groups.of(np.array([i]), np.array([j]), masses, means), metric)


class Rows:
    """Rows merged pair by pair in both kinds of spreads, and what belongs to each slot."""

    def __init__(self, seed, n, stds=0.0):
        self.rng = np.random.default_rng(seed)
        self.X = self.rng.normal(size=(n, D)) * np.exp(self.rng.normal(size=D))
        self.stds = np.full((n, D), stds) * self.rng.random((n, D))
        self.metric = self.rng.normal(size=(D, P))
        self.members = [[i] for i in range(n)]
        self.matrices, self.factors = Matrices.none(D), Factors.none(D, P, n)
        self.matrices, self.factors = self.matrices.plus(self.stds), self.factors.plus(self.stds)

    @property
    def alive(self):
        return np.array([bool(some) for some in self.members])

    def merge(self, times):
        for _ in range(times):
            i, j = self.rng.choice(np.flatnonzero(self.alive), 2, replace=False)
            mine, others = self.members[i], self.members[j]
            share = len(others) / (len(mine) + len(others))
            step = self.X[others].mean(axis=0) - self.X[mine].mean(axis=0)
            for spreads in (self.matrices, self.factors):
                merge(spreads, i, j, share, step, self.metric)
            self.members[i], self.members[j] = mine + others, []
        return self

    def brute_force(self, metric):
        """Return the variances of the rows in every slot, and of what was missing of them."""
        return np.stack(
            [
                (self.X[some] @ metric).var(axis=0)
                + (np.square(self.stds[some]) @ np.square(metric)).mean(axis=0)
                for some in self.members
                if some
            ]
        )

    def variances(self, metric):
        return [
            spreads.select(self.alive).variances(metric) for spreads in (self.matrices, self.factors)
        ]


def test_the_limit_is_the_directions_and_a_few_more():
    factors = Factors.none(D, P, 10)
    assert factors.limit == P + 2
    assert factors.vectors == []
    assert Factors.none(4, P, 10).limit == 4  # never more than there are columns
    assert Factors.none(2**20, P, 4).limit == 1  # nor than there is memory


@given(seeds, st.integers(2, 10), st.sampled_from([0.0, 1.0]))
def test_until_the_limit_both_are_the_rows_own_variances_in_any_metric(seed, n, stds):
    rows = Rows(seed, n, stds).merge(n - 1)
    assert rows.factors.ranks[rows.alive].max() <= 9
    for metric in (rows.metric, rows.rng.normal(size=(D, P))):
        expected = rows.brute_force(metric)
        for found in rows.variances(metric):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * expected.max())
    assert not rows.factors.rest.any()


@given(seeds, st.integers(30, 80), st.sampled_from([0.0, 1.0]))
def test_beyond_the_limit_the_current_metric_stays_exact(seed, n, stds):
    rows = Rows(seed, n, stds).merge(n - 2)
    kept = rows.factors.ranks[rows.alive]
    assert kept.max() <= rows.factors.limit + 8
    expected = rows.brute_force(rows.metric)
    for found in rows.variances(rows.metric):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9 * expected.max())


def test_beyond_the_limit_another_metric_is_met_roughly_and_matrices_exactly():
    rows = Rows(0, 80).merge(79)
    metric = rows.metric * np.exp(0.05 * np.random.default_rng(1).normal(size=(D, 1)))
    expected = rows.brute_force(metric)
    exact, rough = rows.variances(metric)
    np.testing.assert_allclose(exact, expected, rtol=1e-9)
    np.testing.assert_allclose(rough, expected, rtol=0.05)
    assert not np.allclose(rough, expected, rtol=1e-9)  # something was dropped indeed


def test_weighted_components_merge_like_their_rows():
    rng = np.random.default_rng(0)
    X, masses = rng.normal(size=(3, D)), np.array([1.0, 2.0, 5.0])
    spreads = Matrices.none(D).plus(np.zeros((3, D)))
    merge(spreads, 0, 1, 2.0 / 3.0, X[1] - X[0])
    middle = (X[0] + 2.0 * X[1]) / 3.0
    merge(spreads, 0, 2, 5.0 / 8.0, X[2] - middle)
    np.testing.assert_allclose(spreads.covariances[0], np.cov(X.T, aweights=masses, ddof=0), atol=1e-12)


# -- other pools ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["matrices", "factors"])
@pytest.mark.parametrize("other", [Matrices.none(D), Factors.none(D, P, 2**20)])
def test_what_comes_from_another_pool_is_the_same_there(kind, other):
    rows = Rows(3, 60).merge(20)  # nothing was dropped
    given = getattr(rows, kind).select(rows.alive)
    both = other.plus(np.full((1, D), 2.0)).plus(np.zeros((40, D)), given)
    axes = 4.0 * np.square(rows.metric).sum(axis=0)
    expected = np.vstack([axes, given.variances(rows.metric)])
    found = both.variances(rows.metric)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * expected.max())


# -- keeping ----------------------------------------------------------------------------------------


@given(seeds, st.integers(0, 60))
def test_saved_factors_go_on_bit_for_bit(seed, times):
    rows = Rows(seed, 70, 0.5).merge(times)
    values, arrays = codec.encode(rows.factors.state())
    again = codec.decode(PackedFactors, values, arrays)
    again.check(70, D, P)
    assert arrays.get("vectors", np.zeros((0, D))).shape == (rows.factors.ranks.sum(), D)
    spreads = again.unpack()
    assert np.array_equal(spreads.ranks, rows.factors.ranks)
    assert np.array_equal(spreads.variances(rows.metric), rows.factors.variances(rows.metric))
    rows.factors = spreads
    twin = Rows(seed, 70, 0.5).merge(times)  # never stopped
    rows.merge(8)
    twin.merge(8)
    alive = twin.alive
    assert np.array_equal(rows.alive, alive)
    assert np.array_equal(
        rows.factors.select(alive).variances(rows.metric),
        twin.factors.select(alive).variances(twin.metric),
    )


def test_saved_factors_go_on_bit_for_bit_though_others_with_more_room_came():
    rows = Rows(1, 12).merge(8)
    factors = Factors.none(D, P, 2**20)
    assert factors.limit < rows.factors.limit
    factors = factors.plus(np.zeros((4, D)), rows.factors.select(rows.alive))
    saved = factors.state().unpack()
    for j in (1, 2, 3):
        for spreads in (factors, saved):
            merge(spreads, 0, j, 0.5, np.ones(D), rows.metric)
        assert np.array_equal(saved.ranks, factors.ranks)
        assert np.array_equal(saved.variances(rows.metric), factors.variances(rows.metric))


def test_unpacking_does_not_share_memory_with_what_was_saved():
    rows = Rows(0, 5)
    packed = rows.factors.state()
    spreads = packed.unpack()
    merge(spreads, 0, 1, 0.5, np.ones(D), rows.metric)
    assert packed.ranks.tolist() == [0] * 5
    assert rows.factors.ranks.tolist() == [0] * 5


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"ranks": np.full(5, 3)}, "vectors"),
        ({"ranks": np.zeros(4, dtype=np.intp)}, "ranks"),
        ({"diagonal": np.full((5, D), np.nan)}, "diagonal"),
        ({"rest": np.zeros((5, P + 1))}, "rest"),
        ({"limit": D + 1}, "vectors of 20 columns"),
        ({"limit": 0}, "vectors of 20 columns"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_factors_that_do_not_fit_a_pool_are_named(damage, words):
    packed = Rows(0, 5).factors.state()
    damaged = PackedFactors(**(vars(packed) | damage))
    with pytest.raises(InvalidInputError, match=words):
        damaged.check(5, D, P)
    packed.check(5, D, P)


def test_matrices_that_do_not_fit_a_pool_are_named():
    Matrices(np.zeros((5, D, D))).check(5, D, P)
    with pytest.raises(InvalidInputError, match="covariances"):
        Matrices(np.zeros((5, D, D - 1))).check(5, D, P)
