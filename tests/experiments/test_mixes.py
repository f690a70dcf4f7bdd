import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import harm, jobs, mixes

LABELS = st.lists(st.integers(0, 6), min_size=1, max_size=300).map(np.array)


def rng(seed):
    return np.random.default_rng(seed)


@given(LABELS, st.sampled_from(mixes.MIXES), st.integers(0, 99))
def test_rows_are_unique_and_ascending_and_the_same_for_the_same_seed(y, mix, seed):
    rows = mixes.mixed(y, mix, rng(seed))
    assert (np.diff(rows) > 0).all()
    assert set(rows) <= set(range(len(y)))
    assert rows.tolist() == mixes.mixed(y, mix, rng(seed)).tolist()


@given(LABELS, st.sampled_from(sorted(mixes.SHARES)), st.integers(0, 99))
def test_one_class_has_the_share_that_was_asked_for(y, mix, seed):
    dominating = int(rng(seed).choice(y))
    rows = mixes.mixed(y, mix, rng(seed), dominating)
    has, share = (y[rows] == dominating).sum(), mixes.SHARES[mix]
    assert abs(has - share * len(rows)) < 1
    # No longer stream would do: one more row takes more of that class, or of the rest, than there is.
    more = len(rows) + 1
    there = (y == dominating).sum()
    assert share * more > there - 1e-6 or (1 - share) * more > len(y) - there - 1e-6


@given(LABELS, st.integers(0, 99))
def test_half_of_the_classes_are_absent_and_the_others_complete(y, seed):
    rows = mixes.mixed(y, "half absent", rng(seed))
    present = np.unique(y[rows])
    assert len(present) == len(np.unique(y)) - len(np.unique(y)) // 2
    assert len(rows) == np.isin(y, present).sum()


@given(LABELS, st.integers(0, 99))
def test_a_rare_class_does_not_dominate(y, seed):
    counts = np.bincount(y)
    (only,) = np.unique(y[mixes.mixed(y, "one class", rng(seed))])
    assert counts[only] >= np.median(counts[counts > 0]) / 2


@pytest.mark.parametrize("mix", mixes.MIXES[1:])
def test_streams_are_not_too_long(mix):
    y = np.repeat(np.arange(3), 2000)
    rows = mixes.mixed(y, mix, rng(0))
    assert len(rows) == mixes.MOST
    assert mixes.mixed(y, "as is", rng(0)).tolist() == list(range(6000))


def test_streams_hold_every_row_once_in_every_order():
    y = rng(0).integers(4, size=90)
    for order in mixes.ORDERS:
        assert sorted(mixes.in_order(y, order, rng(0))) == list(range(90))
    assert (np.diff(y[mixes.in_order(y, "class", rng(0))]) != 0).sum() == 3


def count(n):
    for i in range(n):
        yield n, i, os.getpid()


def fail(n):
    yield n
    if n == 1:
        raise ValueError("one")


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_every_piece_of_work_comes_back(n_jobs):
    found = list(jobs.pieces(count, [3, 0, 2], n_jobs))
    assert sorted(piece[:2] for piece in found) == [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    assert (os.getpid() in {pid for *_, pid in found}) == (n_jobs == 1)


def test_what_is_done_comes_back_before_an_error_is_raised():
    pieces = jobs.pieces(fail, [0, 1, 2], 2)
    assert {next(pieces), next(pieces), next(pieces)} == {0, 1, 2}
    with pytest.raises(ValueError, match="one"):
        next(pieces)


def test_harm_counts_short_streams_apart():
    def row(rows, source, end, target="a"):
        return {"set": "s", "target": target, "rows": str(rows), "not_adapting": source, "end": end}

    rows = [
        row(300, "0.90", "0.87"),
        row(500, "0.90", "0.94"),
        row(500, "0.80", "0.70", "b"),
        row(299, "0.80", "0.79"),
        row(900, "", "0.5"),
    ]
    long, short = harm.in_words(rows, [("end", "End")], ("set",), ("target",))
    assert long == (
        "End, streams of at least 300 rows: 1 of 1 means are below not adapting on the same "
        "rows (s -3.0); 1 of 2 targets (50%) and 2 of 3 single streams are more than 2 points below, "
        "worst -10.0."
    )
    assert "fewer than 300 rows: 1 of 1 means" in short
    assert "0 of 1 targets (0%) and 0 of 1 single streams" in short
