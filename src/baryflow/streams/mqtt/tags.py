"""Messages that are the value of one tag each, from which rows are made."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Batch, Rejected
from baryflow.streams.decoding import begin
from baryflow.streams.mqtt.queue import Delivery
from baryflow.streams.numbers import parse_number
from baryflow.streams.sampling.sampler import Sampler
from baryflow.streams.sampling.tags import Tag, read_tags
from baryflow.streams.urls import Address

#: A time above this is in milliseconds: as seconds it would be in the year 5138.
_MILLISECONDS = 1e11
#: Numbers for a good quality, as OPC has them.
_GOOD = range(192, 256)


class Reading(NamedTuple):
    """What a message says of a tag; without a time it is the time of arrival."""

    value: Any
    time: float | None
    good: bool


def read_reading(payload: bytes) -> Reading | None:
    """Return the value in a message: a number, or an object with it, its time and quality.

    Parameters
    ----------
    payload : bytes

    Returns
    -------
    Reading or None
        None if there is no value in it.
    """
    try:
        text = payload.decode("utf-8").strip()
        found = json.loads(text)
    except UnicodeDecodeError:
        return None
    except (ValueError, RecursionError):
        number = parse_number(text, decimal_comma=True)
        return None if number is None or math.isnan(number) else Reading(number, None, good=True)
    if isinstance(found, dict):
        return _read_object(found)
    return Reading(found, None, good=True) if _is_value(found) else None


def _read_object(found: dict[str, Any]) -> Reading | None:
    value = found.get("value")
    if "value" not in found or not (value is None or _is_value(value)):
        return None
    told = next((found[name] for name in ("time", "timestamp") if found.get(name) is not None), None)
    moment = None if told is None else _read_time(told)
    good = next((_is_good(found[name]) for name in ("good", "quality") if name in found), True)
    # A time that cannot be read is none: the sampler counts it.
    return Reading(value, math.nan if told is not None and moment is None else moment, good)


def _is_value(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _read_time(told: Any) -> float | None:
    if isinstance(told, str):
        try:
            moment = datetime.fromisoformat(told)
        except ValueError:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(told, bool) or not isinstance(told, int | float):
        return None
    return told / 1000 if told > _MILLISECONDS else float(told)


def _is_good(told: Any) -> bool:
    if isinstance(told, str):
        return told.strip().lower().startswith("good")
    return told is True or (not isinstance(told, bool) and told in _GOOD)


def find_tags(address: Address, columns: Sequence[str], path: str | None) -> list[Tag]:
    """Return which topic is which column: from a list, or by the last level of the topics.

    Parameters
    ----------
    address : Address
    columns : sequence of str
    path : str or None
        Of the list.

    Returns
    -------
    list of Tag

    Raises
    ------
    InvalidInputError
        If there is no list, and the topic does not end with its only ``+``.
    """
    if path is not None:
        return read_tags(path)
    above = address.path.removesuffix("+")
    if above == address.path or "+" in above or "#" in above:
        raise InvalidInputError(
            f"{address}: say which topic is which column with a list of tags; without one, the topic "
            "must end with its only +, which then stands for the columns' names"
        )
    return [Tag(above + column, column) for column in columns]


class TagMaker:
    """Each message is a value of one tag; rows are made of them now and then.

    Parameters
    ----------
    sampler : Sampler
    """

    def __init__(self, sampler: Sampler) -> None:
        self.columns = list(sampler.columns)
        self.waiting = False
        self._sampler = sampler
        self._strange = 0  # messages on topics that are no tags

    def limit(self, n: int, inflight: int) -> int:
        """Return how many messages are taken at a time; they are safe then, though in no row yet."""
        del n
        return max(1, inflight // 2)

    def batch(self, deliveries: list[Delivery], n: int, cursor: dict[str, Any]) -> Batch:
        """Return the rows that are due; what is held for later ones is in the cursor."""
        rejected, notices = [], []
        for one in deliveries:
            found = read_reading(one.payload)
            if found is None:
                reason = f"the message on {one.topic} holds no value."
                position = self._sampler.position + 1
                rejected.append(Rejected(position, reason, begin(one.payload), one.offset))
                continue
            moment = one.arrived if found.time is None else found.time
            if not self._sampler.update(one.topic, found.value, moment, found.good):
                if not self._strange:
                    notices.append(f"messages on {one.topic} are passed over: no tag has this topic")
                self._strange += 1
        batch = self._sampler.batch(n, **cursor)
        self.waiting = len(batch.rows) == n
        return replace(
            batch, rejected=rejected, notices=[*notices, *batch.notices], held=bool(deliveries)
        )

    def resume(self, cursor: dict[str, Any]) -> None:
        """Go on from a cursor."""
        self._sampler.resume(cursor["sampler"])
