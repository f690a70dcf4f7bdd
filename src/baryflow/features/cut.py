"""Windows of signals: cut from tables, completed row by row on a stream, or given as arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from baryflow.estimators._input import InputMixin, refuse_dates, refuse_other_than_numbers
from baryflow.estimators._persistence import Shell
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers, as_array, as_count, as_matrix, check_values


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


@dataclass(frozen=True, eq=False)
class Position:
    """Where a stream is: what a later process needs to resume.

    Attributes
    ----------
    rows : array of shape (length, n_channels)
        The last raw rows, as they lie in the ring.
    seen : int
        How many rows have come.
    """

    rows: Floats
    seen: int


class FeatureStream:
    """Keep the last rows of one stream, and nothing else; made by ``SignalFeatures.stream``.

    Parameters
    ----------
    features : SignalFeatures or OnnxEncoder
        Fitted.
    step : int
        Rows from one window to the next.
    domain : str or int, optional
        Whose normal operation the stream is compared with.
    """

    def __init__(self, features: Any, step: int = 1, domain: Any = None) -> None:
        self._features = features
        self._step = as_count(step, "step")
        self._domain = domain
        self._shape = (features.length_, features.n_channels_)
        self.reset()

    def push(self, row: Any) -> Floats | None:
        """Take the next raw row.

        Parameters
        ----------
        row : array of shape (n_channels,)
            NaN marks a missing value.

        Returns
        -------
        array of shape (n_features_out,) or None
            The features of the window that this row completes; those that :func:`windows` and
            ``transform`` give offline, bit for bit.

        Raises
        ------
        InvalidInputError
            If the row has another width or is not finite; the stream stays as it was.
        """
        length, n_channels = self._shape
        try:
            values = np.asarray(row, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"expected a row of {n_channels} numbers: {error}") from error
        if values.shape != (n_channels,):
            raise InvalidInputError(
                f"expected a row of shape (n_channels={n_channels},), got {values.shape}"
            )
        check_values(values, "row", allow_nan=True)
        self._ring[self._seen % length] = values
        self._seen += 1
        beyond = self._seen - length
        if beyond < 0 or beyond % self._step:
            return None
        window = np.roll(self._ring, -(self._seen % length), axis=0)
        found: Floats = self._features.transform(window[None], self._domain)[0]
        return found

    def reset(self) -> Self:
        """Forget all rows: another run begins.

        Returns
        -------
        FeatureStream
            Itself.
        """
        self._ring = np.full(self._shape, np.nan)
        self._seen = 0
        return self

    @property
    def position(self) -> Position:
        """Where the stream is."""
        return Position(self._ring.copy(), self._seen)

    def resume(self, position: Position) -> None:
        """Go on from where another stream of the same features was.

        Parameters
        ----------
        position : Position

        Raises
        ------
        InvalidInputError
            If it belongs to windows of another shape.
        """
        if position.rows.shape != self._shape or position.seen < 0:
            raise InvalidInputError(
                f"expected the position of a stream with windows of shape {self._shape}, got "
                f"{position.rows.shape}"
            )
        self._ring, self._seen = position.rows.copy(), position.seen


#: Values of a window at most: a damaged file may claim any number.
_LARGEST_WINDOW = 2**24


class TakesWindows(InputMixin):
    """Windows come flattened, with three dimensions, or as :class:`Windows`."""

    n_channels: int
    length_: int
    n_channels_: int
    channels_: list[str]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def stream(self, step: int = 1, domain: Any = None) -> FeatureStream:
        """Return what takes raw rows one by one and gives features when a window is full.

        Parameters
        ----------
        step : int
            Rows from one window to the next, as in :func:`windows`.
        domain : str or int, optional
            Whose normal operation rows are compared with, as `sample_domain` in ``transform``.

        Returns
        -------
        FeatureStream

        Raises
        ------
        NotFittedError
            If it was not fitted.
        InvalidInputError
            If `step` is no count, or the domain is not known.
        """
        check_is_fitted(self)
        self._check_domain(domain)
        return FeatureStream(self, step, domain)

    def _check_domain(self, domain: Any) -> None:
        """Refuse a domain that is not known."""

    def _first_windows(self, X: Any) -> Any:
        """Check windows to be fitted on, and remember their shape."""
        if isinstance(X, Windows) or _is_deep(X):
            held, names = _deep(X), getattr(X, "channels", None)
            vars(self).pop("feature_names_in_", None)
            self.n_features_in_ = held.shape[1] * held.shape[2]
            channels = names or [f"x{number}" for number in range(held.shape[2])]
            self._set_shape(held.shape[1], channels)
            return held
        n_channels = as_count(self.n_channels, "n_channels")
        rows = self._first_rows(X)
        if rows.shape[1] % n_channels:
            raise InvalidInputError(
                f"rows of {rows.shape[1]} values are no whole windows of n_channels={n_channels}"
            )
        self._set_shape(rows.shape[1] // n_channels, [f"x{number}" for number in range(n_channels)])
        return rows.reshape(len(rows), self.length_, n_channels)

    def _windows(self, X: Any) -> Any:
        """Check windows against those that were fitted on."""
        wanted = (self.length_, self.n_channels_)
        if isinstance(X, Windows) or _is_deep(X):
            held = _deep(X)
            if held.shape[1:] != wanted:
                raise InvalidInputError(
                    f"expected windows of shape (n, length={wanted[0]}, n_channels={wanted[1]}), got "
                    f"{held.shape}"
                )
            return held
        rows = self.check_rows(X)
        return rows.reshape(len(rows), *wanted)

    def _set_shape(self, length: int, channels: list[str]) -> None:
        self.length_, self.n_channels_ = int(length), len(channels)
        self.channels_ = [str(name) for name in channels]
        if self.length_ * self.n_channels_ != self.n_features_in_:
            raise InvalidInputError("length and channels do not fit the columns")
        if self.n_features_in_ > _LARGEST_WINDOW:
            raise InvalidInputError(
                f"a window of {self.length_:,} rows and {self.n_channels_:,} channels is too large: "
                f"it may have {_LARGEST_WINDOW:,} values; make windows shorter"
            )

    def _channel_names(self, input_features: Any) -> list[str]:
        if input_features is None:
            return self.channels_
        if len(input_features) == self.n_channels_:
            return [str(name) for name in input_features]
        _check_feature_names_in(self, input_features)
        return self.channels_

    def _shell(self) -> Shell:
        names = getattr(self, "feature_names_in_", None)
        return Shell(
            self.get_params(),  # type: ignore[attr-defined]  # the estimator beside it has them
            self.n_features_in_,
            None if names is None else [str(name) for name in names],
        )


def some(held: Any, mask: Any) -> Any:
    """Return some windows, without copying all of them."""
    if mask.all():
        return held
    return held.where(mask) if isinstance(held, Windows) else held[mask]


def _is_deep(X: Any) -> bool:
    return getattr(X, "ndim", None) == 3


def _deep(X: Any) -> Any:
    """Check windows with three dimensions; float32 stays so, and what is cut on demand too."""
    values = X.signals if isinstance(X, Windows) else X
    if not (isinstance(values, np.ndarray) and values.dtype in (np.float32, np.float64)):
        values = as_array(values, "X", "(n, length, n_channels)")
    check_values(values, "X", allow_nan=True)
    if isinstance(X, Windows):
        return X
    if 0 in values.shape:
        raise InvalidInputError(f"expected some windows, got an array of shape {values.shape}")
    return values
