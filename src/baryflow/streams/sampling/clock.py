"""Durations and instants, as numbers and as text."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
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
