import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow.exceptions import InvalidInputError
from baryflow.features import SignalFeatures, windows
from tests.strategies import seeds


def fitted(rng, length, n_channels):
    X, y = rng.normal(size=(12, length, n_channels)), np.tile([0, 1], 6)
    X[1::2] *= 3
    return SignalFeatures(25).fit(X, y, np.repeat([0, 1], 6), y == 0)


@given(
    seed=seeds, length=st.integers(1, 40), n_channels=st.integers(1, 5), step=st.integers(1, 7),
    gaps=st.sampled_from([0.0, 0.1, 0.9]), n=st.integers(40, 70),
)  # fmt: skip
def test_on_the_fly_is_offline_bit_for_bit(seed, length, n_channels, step, gaps, n):
    rng = np.random.default_rng(seed)
    model = fitted(rng, length, n_channels)
    rows = 100 + 7 * rng.normal(size=(n, n_channels))
    rows[rng.random(rows.shape) < gaps] = np.nan
    cut = windows(rows, length, step)
    stream = model.stream(step)
    found = [(at, row) for at, row in enumerate(map(stream.push, rows)) if row is not None]
    assert [at for at, _ in found] == cut.end.tolist()
    np.testing.assert_array_equal(np.array([row for _, row in found]), model.transform(cut))


def test_a_stream_keeps_one_window_and_goes_on_elsewhere():
    rng = np.random.default_rng(0)
    model, rows = fitted(rng, 10, 2), rng.normal(size=(50, 2))
    one, other = model.stream(3, domain=1), model.stream(3, domain=1)
    for row in rows[:21]:
        one.push(row)
    held = one.position
    assert held.rows.shape == (10, 2)  # whatever has come
    other.resume(held)
    for row in rows[21:]:
        np.testing.assert_equal(one.push(row), other.push(row))
    assert held.seen == 21  # a position does not move on
    with pytest.raises(InvalidInputError, match=r"windows of shape \(9, 2\)"):
        fitted(rng, 9, 2).stream().resume(held)


def test_another_run_begins_with_an_empty_window():
    rng = np.random.default_rng(0)
    model, rows = fitted(rng, 5, 1), rng.normal(size=(7, 1))
    stream = model.stream()
    first = [stream.push(row) for row in rows]
    stream.reset()
    np.testing.assert_equal([stream.push(row) for row in rows], first)
    assert first[3] is None is not first[4]


def test_a_bad_row_is_told_and_changes_nothing():
    rng = np.random.default_rng(0)
    stream = fitted(rng, 5, 2).stream()
    stream.push([1.0, 2.0])
    for row, message in (
        ([1.0], r"row of shape \(n_channels=2,\), got \(1,\)"),
        ([1.0, np.inf], "infinity has no meaning"),
        (["a", 1.0], "a row of 2 numbers"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            stream.push(row)
    assert stream.position.seen == 1
    with pytest.raises(InvalidInputError, match="step must be"):
        fitted(rng, 5, 2).stream(0)
    with pytest.raises(InvalidInputError, match="nothing is known of normal operation of domain 8"):
        fitted(rng, 5, 2).stream(domain=8)
