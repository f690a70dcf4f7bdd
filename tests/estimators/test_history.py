"""A stream of any length, remembered in constant memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baryflow.estimators._history import LONGEST, History
from baryflow.exceptions import InvalidInputError


def recorded(n, seed=0, history=None):
    """Record n updates; every figure tells the number of its update."""
    rng = np.random.default_rng(seed)
    history = History.empty(2, 3) if history is None else history
    for number in range(history.n_updates, history.n_updates + n):
        history = history.record(
            n_rows=32 * (number + 1),
            resemblance=[number, rng.random()],
            proportions=[number, rng.random(), 0.0],
            reliability=number,
            coverage=float(number),
            novelty=float(number),
            losses=(number, rng.random()),
        )
    return history


@given(st.integers(0, 6 * LONGEST))
@settings(max_examples=10)
def test_bounded_in_order_and_the_first_and_the_newest_are_kept(n):
    history = recorded(n)
    assert history.n_updates == n
    assert len(history) == len(history.update) <= LONGEST
    assert (np.diff(history.update) > 0).all()
    if n:
        assert (history.update[0], history.update[-1]) == (0, n - 1)
    gaps = np.diff(history.update)[:-1]
    assert (gaps == history.stride).all()
    # No sparser than it must be: with half the stride there would be too many.
    assert history.stride == 1 or 2 * len(history) > LONGEST


@given(st.integers(1, 3 * LONGEST))
@settings(max_examples=6)
def test_all_figures_of_a_point_are_of_the_same_update(n):
    history = recorded(n)
    for figures in (
        history.n_rows / 32 - 1,
        history.resemblance[:, 0],
        history.proportions[:, 0],
        history.reliability,
        history.coverage,
        history.novelty,
        history.losses[:, 0],
    ):
        np.testing.assert_array_equal(figures, history.update)


@given(st.integers(0, 2 * LONGEST), st.integers(0, 2 * LONGEST), st.integers(1, 99))
@settings(max_examples=6)
def test_which_points_are_kept_depends_on_their_number_alone(first, more, seed):
    whole = recorded(first + more, seed=0)
    parts = recorded(more, seed=seed + 1, history=recorded(first, seed=seed))
    np.testing.assert_array_equal(parts.update, whole.update)
    np.testing.assert_array_equal(parts.n_rows, whole.n_rows)


def test_a_long_stream_is_no_larger_than_a_short_one():
    sizes = [
        sum(table.nbytes for table in vars(recorded(n)).values())
        for n in (LONGEST, 2 * LONGEST, 8 * LONGEST)
    ]
    assert max(sizes) == sizes[0]


def test_recording_changes_nothing_that_was_there():
    before = recorded(LONGEST)
    tables = {name: table.copy() for name, table in vars(before).items()}
    for table in vars(before).values():
        table.setflags(write=False)
    given_proportions = np.array([0.2, 0.3, 0.5])
    after = before.record(
        n_rows=1,
        resemblance=[1, 0],
        proportions=given_proportions,
        reliability=1,
        coverage=1,
        novelty=0,
        losses=(1, 1),
    )
    given_proportions[:] = 0.0
    assert after.proportions[-1].tolist() == [0.2, 0.3, 0.5]
    for name, table in tables.items():
        np.testing.assert_array_equal(getattr(before, name), table)


def test_a_source_and_a_class_more():
    history = recorded(3).rearrange(sources=[0, -1, 1], classes=[-1, 0, 1, 2])
    assert history.resemblance.shape == (3, 3)
    assert history.proportions.shape == (3, 4)
    np.testing.assert_array_equal(history.resemblance[:, 0], [0, 1, 2])
    np.testing.assert_array_equal(history.proportions[:, 1], [0, 1, 2])
    assert np.isnan(history.resemblance[:, 1]).all()
    assert np.isnan(history.proportions[:, 0]).all()


def test_other_shapes_are_refused_in_words():
    point = {"n_rows": 1, "proportions": [1, 0, 0], "reliability": 1, "losses": (1, 1)}
    point |= {"coverage": 1, "novelty": 0}
    with pytest.raises(
        InvalidInputError, match=r"expected resemblance to have shape \(2,\), got \(3,\)"
    ):
        recorded(1).record(resemblance=[1, 0, 0], **point)
    tables = vars(recorded(4))
    with pytest.raises(InvalidInputError, match=r"expected novelty to have shape \(4,\), got \(3,\)"):
        History(**tables | {"novelty": np.zeros(3)})
    with pytest.raises(InvalidInputError, match="not those that would have been kept"):
        History(**tables | {"update": np.array([0, 1, 2, 4])})
