"""Time as plants and people write it: durations, instants, and a clock that many values tell."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from baryflow.exceptions import InvalidInputError

#: Times are counted in whole millionths of a second: sums and comparisons are exact.
SECOND = 1_000_000
_UNITS = {
    "ms": 0.001, "s": 1, "sec": 1, "second": 1, "seconds": 1, "min": 60, "minute": 60, "minutes": 60,
    "m": 60, "h": 3600, "hour": 3600, "hours": 3600, "d": 86400, "day": 86400, "days": 86400,
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The end of the year 9999, which is the last that can be written.
_LAST = 253_402_300_799 * SECOND


def parse_duration(text: str) -> float:
    """Return the seconds that a duration has.

    Parameters
    ----------
    text : str
        ``"3min"``, ``"10s"``, ``"500ms"``, ``"1h"``, ``"2d"``; a plain number is seconds.

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        If it is something else, or not above zero.

    Examples
    --------
    >>> from baryflow.streams.sampling.clock import parse_duration
    >>> parse_duration("3min"), parse_duration("500 ms"), parse_duration("1.5h"), parse_duration("10")
    (180.0, 0.5, 5400.0, 10.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", text.lower())
    unit = None if match is None else _UNITS.get(match[2] or "s")
    if match is None or unit is None:
        raise InvalidInputError(
            f"expected a duration such as 500ms, 10s, 3min, 1h, or a number of seconds, got {text!r}"
        )
    seconds = float(match[1]) * unit
    if not 0 < seconds < math.inf:
        raise InvalidInputError(f"expected a duration above zero, got {text!r}")
    return seconds


def to_microseconds(time: Any) -> int | None:
    """Return seconds since the epoch as whole microseconds; None if they are no time."""
    try:
        stamp = round(float(time) * SECOND)
    except (OverflowError, ValueError, TypeError):  # infinity, NaN, None
        return None
    return stamp if 0 < stamp <= _LAST else None


def instant_text(stamp: int) -> str:
    """Return a time in microseconds since the epoch as ISO 8601 in UTC: ``2026-01-31T12:00:00Z``."""
    text = (_EPOCH + timedelta(microseconds=stamp)).isoformat()
    return text.removesuffix("+00:00") + "Z"


def duration_text(stamps: int) -> str:
    """Return a duration in microseconds as people say it: ``90 s``, ``3 min``, ``2.5 h``, ``7 d``."""
    seconds = stamps / SECOND
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{seconds:g} s"


class Verdict(Enum):
    """What to make of a time that was told."""

    ORDINARY = 0
    #: Far ahead, and nothing else says so yet: wait for the next.
    DOUBTED = 1
    #: Far ahead, as the one before it: time has leapt.
    LEAPT = 2
    #: Far behind, as many before it: the clock was set back.
    SET_BACK = 3


#: Times in a row from far ahead that are believed though only one tag says so.
_INSISTING = 100


class PlantClock:
    """The plant's time, as the largest of the times that its values tell.

    One wrong clock must not lead it astray. A time that is further ahead than `leap` counts only if
    another tag says the same before any tag tells an ordinary time, or the one says it a hundred times
    in a row. It goes back if times that lie further behind than that are by far the most: after
    `patience` of them, each ordinary time counting against two.

    Parameters
    ----------
    leap : int
        Microseconds.
    patience : int
    """

    def __init__(self, leap: int, patience: int) -> None:
        self.now: int | None = None
        self._leap, self._patience = leap, patience
        self._ahead: list[Any] = []  # times from far ahead, in a row, and who told them
        self._behind = 0

    def tell(self, stamp: int, who: str) -> Verdict:
        """Take note of a time, and say what to make of it."""
        if self.now is None:
            self.now = stamp
            return Verdict.ORDINARY
        if stamp > self.now + self._leap:
            return self._doubt(stamp, who)
        self._ahead = []
        if stamp >= self.now - self._leap:
            self.now, self._behind = max(self.now, stamp), max(0, self._behind - 2)
            return Verdict.ORDINARY
        self._behind += 1
        if self._behind < self._patience:
            return Verdict.ORDINARY
        self.now, self._behind = stamp, 0
        return Verdict.SET_BACK

    def _doubt(self, stamp: int, who: str) -> Verdict:
        if self._ahead and abs(stamp - self._ahead[-1][0]) > self._leap:
            self._ahead = []
        self._ahead.append([stamp, who])
        if len({one for _, one in self._ahead}) < 2 and len(self._ahead) < _INSISTING:
            return Verdict.DOUBTED
        self.now, self._ahead, self._behind = stamp, [], 0
        return Verdict.LEAPT

    def move(self, stamp: int) -> None:
        """Take over a time that is beyond doubt, unless it is later already."""
        self.now = stamp if self.now is None else max(self.now, stamp)
        self._ahead, self._behind = [], 0

    def state(self) -> list[Any]:
        """Return all it knows; can be written as JSON."""
        return [self.now, list(self._ahead), self._behind]

    def resume(self, state: list[Any]) -> None:
        """Go on from what :meth:`state` returned."""
        self.now, ahead, self._behind = state
        self._ahead = list(ahead)
