"""Cut signals into overlapping windows, each of one group and known as soon as its last row is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.estimators._input import refuse_dates, refuse_other_than_numbers
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers, as_count, as_matrix


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of signals, cut when they are asked for: slices give arrays, ``np.asarray`` gives all.

    Attributes
    ----------
    signals : array of shape (n_rows, n_channels)
        Rows of one group after another.
    starts : array of shape (n_windows,)
        Position in `signals` of each window's first row.
    length : int
        Rows of a window.
    channels : list of str
    end : array of shape (n_windows,)
        Position of each window's last row in what was cut. A window is known when that row has come, and
        windows are in this order.
    group, label, time : array of shape (n_windows,) or None
        The group, and label and time of the last row; None where nothing was said of them.
    mixed : array of bool of shape (n_windows,) or None
        Whether rows of more than one label are in a window; None without labels.
    """

    signals: Floats
    starts: Integers
    length: int
    channels: list[str]
    end: Integers
    group: NDArray[Any] | None = None
    label: NDArray[Any] | None = None
    time: NDArray[Any] | None = None
    mixed: NDArray[np.bool_] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of all windows: (n_windows, length, n_channels)."""
        return len(self.starts), self.length, self.signals.shape[1]

    def where(self, mask: Any) -> Windows:
        """Return some of the windows, cut when they are asked for as well.

        Parameters
        ----------
        mask : array of bool of shape (n_windows,), or of positions

        Returns
        -------
        Windows

        Raises
        ------
        IndexError
            If there are no such windows.
        """
        names = ("starts", "end", "group", "label", "time", "mixed")
        parts = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return replace(self, **{name: part[mask] for name, part in parts.items()})

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, which: Any) -> Floats:
        """Return some windows as an array of shape (n, length, n_channels)."""
        starts = self.starts[which]
        found: Floats = self.signals[starts[..., None] + np.arange(self.length)]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("windows are cut when they are asked for, which makes a copy")
        return self[:].astype(dtype or np.float64, copy=False)


def windows(
    signals: Any,
    length: int,
    step: int = 1,
    *,
    by: Any = None,
    label: Any = None,
    time: Any = None,
) -> Windows:
    """Cut signals into overlapping windows, never across groups.

    Parameters
    ----------
    signals : array or frame of shape (n_rows, n_channels)
        A row is a moment; rows of a group are in order of time. NaN marks a missing value.
    length : int
        Rows of a window.
    step : int
        Rows from one window to the next.
    by : name of a column, or array of shape (n_rows,), optional
        The group of every row, such as its run or its machine. Rows of groups may alternate.
    label, time : name of a column, or array of shape (n_rows,), optional
        What a window gets from its last row. Named columns are no channels.

    Returns
    -------
    Windows
        Groups with fewer rows than `length` have none.

    Raises
    ------
    InvalidInputError
        If a column is not there or does not hold numbers, or there is no window at all.

    Examples
    --------
    >>> import numpy as np
    >>> from baryflow.features import windows
    >>> cut = windows(np.arange(12.0).reshape(6, 2), length=3, step=2, by=list("aaaaab"))
    >>> cut.shape, cut.end.tolist(), cut.group.tolist()
    ((2, 3, 2), [2, 4], ['a', 'a'])
    """
    length, step = as_count(length, "length"), as_count(step, "step")
    group, labels, times = (
        _beside(signals, given, name) for given, name in ((by, "by"), (label, "label"), (time, "time"))
    )
    values, channels = _channels(signals, {n for n in (by, label, time) if isinstance(n, str)})
    codes = np.zeros(len(values), dtype=np.intp) if group is None else _codes(group)
    order = np.argsort(codes, kind="stable")
    firsts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    starts = np.concatenate(
        [
            np.arange(first, end - length + 1, step)
            for first, end in zip(firsts, [*firsts[1:], len(values)], strict=True)
        ]
    ).astype(np.intp)
    if not len(starts):
        raise InvalidInputError(
            f"no window of {length} rows: there are {len(values)} rows in {len(firsts)} group(s); lower "
            "`length`"
        )
    ends = order[starts + length - 1]
    turn = np.argsort(ends)
    starts, ends = starts[turn], ends[turn]
    group, last, times = (None if part is None else part[ends] for part in (group, labels, times))
    mixed = None if labels is None else _changes(labels[order], starts, length)
    return Windows(values[order], starts, length, channels, ends, group, last, times, mixed)


def _changes(labels: NDArray[Any], starts: Integers, length: int) -> NDArray[np.bool_]:
    """Tell in which windows the label changes from one row to the next."""
    so_far = np.cumsum(np.append(False, labels[1:] != labels[:-1]))
    return np.asarray(so_far[starts] != so_far[starts + length - 1])


def _beside(signals: Any, given: Any, name: str) -> NDArray[Any] | None:
    """Return what belongs to every row, from a column of the frame or as it was given."""
    if given is None:
        return None
    if isinstance(given, str):
        if given not in getattr(signals, "columns", ()):
            raise InvalidInputError(f"{name} is {given!r}, but there is no such column")
        given = signals[given]
    found = np.asarray(given)
    if found.shape != (len(signals),):
        raise InvalidInputError(
            f"expected {name} to have shape (n_rows={len(signals)},), got {found.shape}"
        )
    return found


def _channels(signals: Any, named: set[str]) -> tuple[Floats, list[str]]:
    """Return the columns that are channels, as numbers, and their names."""
    columns = getattr(signals, "columns", None)
    if columns is None:
        values = as_matrix(signals, "signals", rows="n_rows", columns="n_channels", allow_nan=True)
        return values, [f"x{number}" for number in range(values.shape[1])]
    kept = [name for name in columns if name not in named]
    if not kept:
        raise InvalidInputError("signals has no column left that could be a channel")
    part = signals[kept]
    refuse_dates(part)
    try:
        values = _numbers(part)
    except (TypeError, ValueError):
        refuse_other_than_numbers(part)  # tells where
        raise
    checked = as_matrix(values, "signals", rows="n_rows", columns="n_channels", allow_nan=True)
    return checked, [str(name) for name in kept]


def _numbers(frame: Any) -> Floats:
    if type(frame).__module__.startswith("pandas"):  # would make objects of its nullable numbers
        return np.asarray(frame.to_numpy(dtype=float, na_value=np.nan))
    return np.asarray(frame, dtype=np.float64)


def _codes(group: NDArray[Any]) -> Integers:
    """Return a number for every row's group."""
    known: dict[Any, int] = {}
    missing = [row for row, value in enumerate(group.tolist()) if value is None or value != value]  # noqa: PLR0124 - NaN
    if missing:
        raise InvalidInputError(f"by says nothing of row {missing[0]}: name a group for every row")
    return np.array([known.setdefault(value, len(known)) for value in group.tolist()], dtype=np.intp)
