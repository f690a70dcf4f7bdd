import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow.exceptions import InvalidInputError
from baryflow.features import windows
from tests.strategies import read_only, seeds


@given(seed=seeds, length=st.integers(1, 6), step=st.integers(1, 5), n=st.integers(6, 40))
def test_windows_are_those_of_every_group_alone_in_the_order_in_which_they_are_known(
    seed, length, step, n
):
    rng = np.random.default_rng(seed)
    X, group = rng.normal(size=(n, 2)), rng.integers(3, size=n)
    group[:6] = 0  # at least one window
    cut = windows(read_only(X), length, step, by=group, label=np.arange(n))
    expected = {}
    for name in range(3):
        rows = np.flatnonzero(group == name)
        for start in range(0, len(rows) - length + 1, step):
            expected[rows[start + length - 1]] = X[rows[start : start + length]]
    assert cut.end.tolist() == sorted(expected) == cut.label.tolist()
    assert cut.shape == np.asarray(cut).shape == (len(expected), length, 2)
    for window, end, name in zip(np.asarray(cut), cut.end, cut.group, strict=True):
        np.testing.assert_array_equal(window, expected[end])
        assert name == group[end]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_named_columns_are_no_channels_and_labels_and_times_are_those_of_the_last_row(frame):
    rows = frame(
        {
            "when": ["mon", "tue", "wed", "thu"],
            "run": ["a", "a", "b", "b"],
            "heat": [1, None, 3, 4],
            "flow": [0.1, 0.2, 0.3, 0.4],
            "fault": ["no", "yes", "no", "no"],
        }
    )
    cut = windows(rows, 2, by="run", label="fault", time="when")
    assert cut.channels == ["heat", "flow"]
    assert [*cut.label, *cut.time, *cut.group] == ["yes", "no", "tue", "thu", "a", "b"]
    np.testing.assert_array_equal(cut[0], [[1, 0.1], [np.nan, 0.2]])


def test_nullable_numbers_of_pandas_are_numbers():
    frame = pd.DataFrame({"a": pd.array([1.0, None, 2.0], dtype="Float64")})
    np.testing.assert_array_equal(windows(frame, 3)[0], [[1.0], [np.nan], [2.0]])


def test_some_windows_are_cut_on_demand_too():
    cut = windows(np.arange(10.0)[:, None], 3, 2, by=np.repeat(["a", "b"], 5))
    some = cut.where(cut.group == "b")
    assert some.end.tolist() == [7, 9]
    np.testing.assert_array_equal(np.asarray(some, dtype=np.float32)[:, 0, 0], [5, 7])
    assert some.label is None


def test_what_cannot_be_cut_is_told():
    X = np.zeros((5, 2))
    with pytest.raises(InvalidInputError, match=r"no window of 4 rows: .* in 2 group"):
        windows(X, 4, by=[0, 0, 0, 1, 1])
    with pytest.raises(InvalidInputError, match="by says nothing of row 2"):
        windows(X, 1, by=["a", "a", None, "a", "a"])
    with pytest.raises(InvalidInputError, match="label is 'fault', but there is no such column"):
        windows(X, 1, label="fault")
    with pytest.raises(InvalidInputError, match=r"expected time to have shape \(n_rows=5,\)"):
        windows(X, 1, time=[1, 2])
    with pytest.raises(InvalidInputError, match=r"column 'a' holds text, such as 'x' at position 1"):
        windows(pd.DataFrame({"a": [1, "x"]}), 1)
    with pytest.raises(InvalidInputError, match="no column left"):
        windows(pd.DataFrame({"a": [1, 2]}), 1, by="a")
    with pytest.raises(InvalidInputError, match="length must be an integer >= 1"):
        windows(X, 0)


@given(seed=seeds, length=st.integers(1, 6), step=st.integers(1, 5), n=st.integers(6, 40))
def test_windows_in_which_the_label_changes_are_marked(seed, length, step, n):
    rng = np.random.default_rng(seed)
    group, label = rng.integers(2, size=n), np.array(["ok", "worn"])[rng.integers(2, size=n)]
    group[:6] = 0
    cut = windows(rng.normal(size=(n, 1)), length, step, by=group, label=label)
    # The rows of each window as numbers, cut the same way.
    rows = np.asarray(windows(np.arange(n)[:, None], length, step, by=group), dtype=int)[:, :, 0]
    assert cut.mixed.tolist() == [len(set(label[one])) > 1 for one in rows]
    whole = cut.where(~cut.mixed)
    assert len(whole) == np.sum(~cut.mixed) == len(whole.label)
    assert not whole.mixed.any()
