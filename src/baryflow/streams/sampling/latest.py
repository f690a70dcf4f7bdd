"""What one machine has told so far: the values that hold, and those that will."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from baryflow.streams.numbers import parse_number
from baryflow.validation import LARGEST


class Machine:
    """The values of one machine.

    Parameters
    ----------
    key : str
    width : int
        Columns.

    Attributes
    ----------
    latest : list of (time, value) or None
        The newest that each column has told, whether it holds already or not.
    newest : int or None
        Time of the newest value that holds.
    silent : int or None
        First instant without a row, while it is silent.
    """

    def __init__(self, key: str, width: int) -> None:
        self.key = key
        self.width = width
        self.forget()

    def forget(self) -> None:
        """Know nothing again."""
        self.latest: list[tuple[int, float] | None] = [None] * self.width
        self.newest: int | None = None
        self.silent: int | None = None
        self._times = [-1] * self.width
        self._values = [math.nan] * self.width
        # Instant from which on it holds → column → (time, value).
        self._pending: dict[int, dict[int, tuple[int, float]]] = {}

    @property
    def name(self) -> str:
        """How to call it."""
        return self.key or "the plant"

    @property
    def first_bucket(self) -> int | None:
        """The next instant at which something changes."""
        return min(self._pending, default=None)

    def take(self, bucket: int, place: int, stamp: int, number: float) -> None:
        """Take a value that holds from an instant on; of several for one instant the newest counts."""
        pending = self._pending.setdefault(bucket, {})
        if place not in pending or stamp >= pending[place][0]:
            pending[place] = stamp, number
        latest = self.latest[place]
        if latest is None or stamp >= latest[0]:
            self.latest[place] = stamp, number

    def knows(self, place: int, stamp: int, number: float) -> bool:
        """Return whether this is the newest value of a column, told again."""
        latest = self.latest[place]
        if latest is None or latest[0] != stamp:
            return False
        return latest[1] == number or (math.isnan(latest[1]) and math.isnan(number))

    def absorb(self, instant: int) -> None:
        """Let hold what does so at an instant."""
        if not self._pending:
            return
        for bucket in sorted(bucket for bucket in self._pending if bucket <= instant):
            for place, (stamp, number) in self._pending.pop(bucket).items():
                if stamp >= self._times[place]:
                    self._times[place], self._values[place] = stamp, number
                    self.newest = stamp if self.newest is None else max(self.newest, stamp)

    def row(self, oldest: int) -> list[float]:
        """Return the values that hold; NaN for those from before `oldest`."""
        pairs = zip(self._times, self._values, strict=True)
        return [value if stamp >= oldest else math.nan for stamp, value in pairs]

    def state(self) -> dict[str, Any]:
        """Return all it knows; can be written as JSON."""
        return {
            "times": list(self._times),
            "values": plain(self._values),
            "pending": [
                [bucket, place, stamp, *plain([number])]
                for bucket, held in self._pending.items()
                for place, (stamp, number) in held.items()
            ],
            "newest": self.newest,
            "silent": self.silent,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state` returned."""
        self.forget()
        self._times, self._values = list(state["times"]), numbers(state["values"])
        self.newest, self.silent = state["newest"], state["silent"]
        held = zip(self._times, self._values, strict=True)
        self.latest = [None if stamp < 0 else (stamp, number) for stamp, number in held]
        for bucket, place, stamp, value in state["pending"]:
            self.take(bucket, place, stamp, numbers([value])[0])


def plain(values: list[float]) -> list[float | None]:
    """Return numbers as JSON has them."""
    return [None if math.isnan(value) else value for value in values]


def numbers(values: list[float | None]) -> list[float]:
    """Return what :func:`plain` was given."""
    return [math.nan if value is None else value for value in values]


def to_number(value: Any, scale: float, offset: float) -> float:
    """Return a value as the column has it; NaN if it is no number that can be used."""
    if isinstance(value, str):
        value = parse_number(value)
    try:
        number = float(value) if isinstance(value, Real) else math.nan
    except (OverflowError, ValueError, TypeError):
        return math.nan
    if scale != 1.0 or offset != 0.0:
        number = number * scale + offset
    return number if -LARGEST <= number <= LARGEST else math.nan
