from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import kstest

from baryflow import codec
from baryflow.drift import Ranks
from baryflow.drift.ranking import find_stride
from baryflow.drift.ranks import RanksState
from baryflow.estimators._orders import stream_order
from baryflow.exceptions import InvalidInputError


def grouped(seed, n=2000):
    """Return scores whose level depends on their group, and groups in runs."""
    rng = np.random.default_rng(seed)
    groups = np.sort(rng.integers(4, size=n))
    groups = groups[stream_order(groups, "runs", rng)]
    return np.column_stack([5.0 * groups + rng.normal(size=n), rng.exponential(size=n)]), groups


def test_ranks_are_even_and_forget_each_other_although_groups_come_in_runs():
    scores, groups = grouped(0)
    ranks = Ranks(scores[:32], 4).rank(scores, groups)
    for column in ranks.T:
        assert kstest(column, "uniform").pvalue > 0.01
        assert abs(np.corrcoef(column[1:], column[:-1])[0, 1]) < 0.07
    # Without groups the runs show.
    blind = Ranks(scores[:32], 1).rank(scores, np.zeros(len(scores), dtype=int))[:, 0]
    assert np.corrcoef(blind[1:], blind[:-1])[0, 1] > 0.5


def test_a_rank_is_the_share_of_lower_numbers_before():
    scores = np.random.default_rng(1).normal(size=(300, 1))
    ranks = Ranks(scores[:32], 1).rank(scores, np.zeros(300, dtype=int))[:, 0]
    exact = np.array([(scores[:i, 0] < scores[i, 0]).mean() if i else 0.5 for i in range(300)])
    assert np.abs(ranks - exact)[50:].max() < 0.12  # ties within a cell
    assert np.corrcoef(ranks[50:], exact[50:])[0, 1] > 0.99


def test_it_does_not_matter_how_rows_are_cut_into_batches():
    scores, groups = grouped(2, n=300)
    whole = Ranks(scores[:32], 4).rank(scores, groups)
    ranks = Ranks(scores[:32], 4)
    cuts = [0, 1, 8, 100, 101, 250, 300]
    parts = [ranks.rank(scores[a:b], groups[a:b]) for a, b in pairwise(cuts)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_resumed_they_go_on_bit_for_bit():
    scores, groups = grouped(3, n=200)
    whole, half = Ranks(scores[:32], 4, seed=5), Ranks(scores[:32], 4, seed=5)
    expected = whole.rank(scores, groups)
    half.rank(scores[:90], groups[:90])
    half = Ranks.from_state(codec.decode(RanksState, *codec.encode(half.state())))
    np.testing.assert_array_equal(half.rank(scores[90:], groups[90:]), expected[90:])


def test_numbers_beyond_all_reach_and_signals_that_do_not_vary_are_ranked():
    ranks = Ranks(np.zeros((32, 1)), 1)
    found = ranks.rank(np.array([[0.0], [1e300], [-1e300], [0.0]]), np.zeros(4, dtype=int))
    assert ((found >= 0.0) & (found <= 1.0)).all()


def test_a_state_that_does_not_fit_is_refused():
    state = Ranks(np.zeros((3, 2)), 4).state()
    broken = RanksState(**{**vars(state), "counts": state.counts[:, :, 1:]})
    with pytest.raises(InvalidInputError, match="wrong shape"):
        Ranks.from_state(broken)


def test_rows_are_looked_at_as_far_apart_as_they_remember():
    y, rng = np.repeat(np.arange(8), 50), np.random.default_rng(0)
    assert find_stride(y[stream_order(y, "shuffled", rng)], 8) <= 2
    assert 10 <= find_stride(y[stream_order(y, "runs", rng)], 8) <= 40
    assert find_stride(np.zeros(200, dtype=int), 8) == 0
    assert find_stride(np.zeros(0, dtype=int), 8) == 0
    assert find_stride(np.repeat([0, 1], 100), 8) == 0


@pytest.mark.parametrize(
    ("scores", "groups"),
    [(np.zeros((3, 1)), [0, 0]), (np.zeros((2, 1)), [0, 2]), (np.zeros((2, 1)), [-1, 0])],
)
def test_groups_that_do_not_fit_are_refused(scores, groups):
    ranks = Ranks(np.zeros((5, 1)), n_groups=2)
    with pytest.raises(InvalidInputError, match="group numbers"):
        ranks.rank(scores, groups)


def test_example_rows_must_be_a_table():
    with pytest.raises(InvalidInputError, match="n_signals"):
        Ranks(np.zeros(5), n_groups=2)


def test_rows_of_a_block_are_not_among_those_that_they_are_ranked_with():
    rng = np.random.default_rng(0)
    known, low = rng.normal(size=(200, 1)), np.full((20, 1), -9.0)
    groups = np.zeros(200, dtype=int)
    single, blocks = (Ranks(known, 1) for _ in range(2))
    for ranks in (single, blocks):
        ranks.rank(known, groups)
    assert single.rank(low, groups[:20]).max() > 0.02
    assert blocks.rank(low, groups[:20], block=20).max() < 1.0 / 200
    np.testing.assert_array_equal(blocks.state().counts, single.state().counts)


@pytest.mark.parametrize("block", [1, 3, 40])
def test_ranks_are_those_of_the_definition(block):
    scores, groups = grouped(4, n=150)
    ranks = Ranks(scores[:32], 4)
    cells = [np.floor(10.0 * np.arcsinh((x - np.median(x[:32])) / spread(x[:32]))) for x in scores.T]
    chance = np.random.Generator(np.random.PCG64(0)).random(scores.shape)
    expected = np.empty(scores.shape)
    for i in range(150):
        before = np.flatnonzero(groups[: i - i % block] == groups[i])
        for signal, cell in enumerate(cells):
            lower, same = (cell[before] < cell[i]).sum(), (cell[before] == cell[i]).sum()
            expected[i, signal] = (lower + chance[i, signal] * (same + 1)) / (len(before) + 1)
    cuts = [0, 10, 11, 90, 150]
    found = [ranks.rank(scores[a:b], groups[a:b], block) for a, b in pairwise(cuts)]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-12)


def spread(x):
    return np.median(np.abs(x - np.median(x)))


@pytest.mark.parametrize("cut", [90, 95])
def test_a_block_is_resumed_bit_for_bit(cut):
    scores, groups = grouped(3, n=200)
    whole, half = Ranks(scores[:32], 4), Ranks(scores[:32], 4)
    expected = whole.rank(scores, groups, 7)
    half.rank(scores[:cut], groups[:cut], 7)
    half = Ranks.from_state(codec.decode(RanksState, *codec.encode(half.state())))
    np.testing.assert_array_equal(half.rank(scores[cut:], groups[cut:], 7), expected[cut:])
