"""Windows as they come: cut on demand, as arrays of three dimensions, or flattened into rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import _check_feature_names_in

from baryflow.estimators._input import InputMixin
from baryflow.estimators._persistence import Shell
from baryflow.exceptions import InvalidInputError
from baryflow.features.cut import Windows
from baryflow.validation import as_array, as_count, check_values

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
