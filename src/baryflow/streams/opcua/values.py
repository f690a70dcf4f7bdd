"""What a server says of a variable, as the sampler takes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from baryflow.streams.sampling.clock import SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Bits of a status that say: it is of a value, and its queue ran over before it.
_OVERFLOW = 0x480


class Value(NamedTuple):
    """A value of a tag."""

    address: str
    value: Any
    time: float | None  # seconds since the epoch
    good: bool


def to_seconds(moment: Any) -> float | None:
    """Return a time as seconds since the epoch, exact to the microsecond; None if it is none."""
    if not isinstance(moment, datetime):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    stamp = (moment - _EPOCH) // timedelta(microseconds=1)
    return stamp / SECOND if stamp > 0 else None  # servers say 1601 where they do not know


def to_datetime(seconds: float) -> datetime:
    """Return seconds since the epoch as a time."""
    return _EPOCH + timedelta(microseconds=round(seconds * SECOND))


def converter(accept_uncertain: bool) -> Callable[[str, Any], Value]:
    """Return what turns a ``DataValue`` into a value of a tag.

    Parameters
    ----------
    accept_uncertain : bool
        Whether a value whose status is uncertain is good.

    Returns
    -------
    callable
        Takes the address of the tag and the ``DataValue``. The time is the source's, or else the
        server's.
    """

    def convert(address: str, found: Any) -> Value:
        status = found.StatusCode
        good = status is None or status.is_good() or (accept_uncertain and status.is_uncertain())
        moment = found.SourceTimestamp
        time = to_seconds(found.ServerTimestamp if moment is None else moment)
        value = None if found.Value is None else found.Value.Value
        return Value(address, value, time, good)

    return convert


def has_overflown(found: Any) -> bool:
    """Return whether the server had to drop values before this one."""
    return found.StatusCode is not None and found.StatusCode.value & _OVERFLOW == _OVERFLOW
