"""Features on the fly: raw rows in, a row of features whenever a window is full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_count, check_values


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
