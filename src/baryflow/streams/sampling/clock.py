"""Durations and instants as text, and the plant's clock as derived from the timestamps of its values."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from baryflow.exceptions import InvalidInputError

#: Microseconds in a second. Times are integers, so sums and comparisons are exact.
SECOND = 1_000_000
_UNITS = {"ms": 0.001}
_UNITS |= dict.fromkeys(("s", "sec", "second", "seconds"), 1)
_UNITS |= dict.fromkeys(("m", "min", "minute", "minutes"), 60)
_UNITS |= dict.fromkeys(("h", "hour", "hours"), 3600)
_UNITS |= dict.fromkeys(("d", "day", "days"), 86400)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The end of the year 9999, the last that ISO 8601 can express with four digits.
_LAST = 253_402_300_799 * SECOND


def parse_duration(text: str) -> float:
    """Return the seconds of a duration like ``500ms``, ``3min`` or ``2d``; a plain number is seconds.

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
            f"expected a duration like 500ms, 10s, 3min, 1h, or a number of seconds, got {text!r}"
        )
    seconds = float(match[1]) * unit
    if not 0 < seconds < math.inf:
        raise InvalidInputError(f"expected a duration above zero, got {text!r}")
    return seconds


def to_microseconds(time: Any) -> int | None:
    """Return seconds since the epoch as integer microseconds, or None if they are not a valid time."""
    try:
        stamp = round(float(time) * SECOND)
    except (OverflowError, ValueError, TypeError):  # infinity, NaN, None
        return None
    return stamp if 0 < stamp <= _LAST else None


def instant_text(stamp: int) -> str:
    """Return microseconds since the epoch as ISO 8601 in UTC: ``2026-01-31T12:00:00Z``."""
    text = (_EPOCH + timedelta(microseconds=stamp)).isoformat()
    return text.removesuffix("+00:00") + "Z"


def duration_text(stamps: int) -> str:
    """Return a duration in microseconds as text: ``90 s``, ``3 min``, ``2.5 h``, ``7 d``."""
    seconds = stamps / SECOND
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{seconds:g} s"


class Verdict(Enum):
    """How to treat a timestamp."""

    ORDINARY = 0
    #: Far ahead and not confirmed by another tag yet: wait for the next timestamp.
    UNCONFIRMED = 1
    #: Far ahead and confirmed: time has jumped.
    JUMPED = 2
    #: Far behind, like many before it: the clock was set back.
    SET_BACK = 3


#: Timestamps in a row from far ahead after which a single tag is trusted.
_TRUSTED_AFTER = 100


class PlantClock:
    """The plant's time: the latest timestamp of its values, protected against single wrong clocks.

    A timestamp that is more than `jump` microseconds ahead counts only if another tag confirms it before
    any ordinary timestamp arrives, or if the same tag repeats it a hundred times in a row. The clock is
    set back if timestamps further behind than `jump` are in a clear majority: after `patience` of them,
    where each ordinary timestamp cancels two.
    """

    def __init__(self, jump: int, patience: int) -> None:
        self.now: int | None = None
        self._jump, self._patience = jump, patience
        self._ahead: list[Any] = []  # consecutive timestamps from far ahead, each with its tag
        self._behind = 0

    def observe(self, stamp: int, tag: str) -> Verdict:
        """Update the clock with a timestamp, and return how to treat it."""
        if self.now is None:
            self.now = stamp
            return Verdict.ORDINARY
        if stamp > self.now + self._jump:
            return self._check_jump(stamp, tag)
        self._ahead = []
        if stamp >= self.now - self._jump:
            self.now, self._behind = max(self.now, stamp), max(0, self._behind - 2)
            return Verdict.ORDINARY
        self._behind += 1
        if self._behind < self._patience:
            return Verdict.ORDINARY
        self.now, self._behind = stamp, 0
        return Verdict.SET_BACK

    def _check_jump(self, stamp: int, tag: str) -> Verdict:
        if self._ahead and abs(stamp - self._ahead[-1][0]) > self._jump:
            self._ahead = []
        self._ahead.append([stamp, tag])
        if len({one for _, one in self._ahead}) < 2 and len(self._ahead) < _TRUSTED_AFTER:
            return Verdict.UNCONFIRMED
        self.now, self._ahead, self._behind = stamp, [], 0
        return Verdict.JUMPED

    def move(self, stamp: int) -> None:
        """Advance to a time that is known to be right."""
        self.now = stamp if self.now is None else max(self.now, stamp)
        self._ahead, self._behind = [], 0

    def state(self) -> list[Any]:
        """Return the state as JSON-serialisable values."""
        return [self.now, list(self._ahead), self._behind]

    def resume(self, state: list[Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.now, ahead, self._behind = state
        self._ahead = list(ahead)
