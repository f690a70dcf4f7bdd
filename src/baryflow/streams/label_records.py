"""Records of labels and of commands in files and messages, and the times of rows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, ClassVar

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import AlarmCommand, Label
from baryflow.streams.decoding import (
    as_text,
    describe_invalid,
    list_names,
    parse_column,
    suggest,
    valid_text,
)
from baryflow.validation import LARGEST

#: Names of the fields; the second ones of a time are those of AWS Lookout for Equipment.
_TIME, _UNTIL = ("time", "timestamp", "start", "starttime"), ("until", "end", "endtime")
#: One of these a record must have; a time span alone is an anomaly.
_LABEL = {"label", "faultcode", "rating", "end", "endtime"}
#: What an anomaly without a fault code is called.
_ANOMALY = "anomaly"
#: Dates that are not ISO 8601, but begin with the year.
_DATE = re.compile(
    r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[T ](\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?)?"
)
#: Characters of a comment that are kept.
_LONGEST = 1000
_TRUE, _FALSE = {"true", "1", "yes"}, {"false", "0", "no", ""}


@lru_cache(maxsize=1 << 14)
def parse_time(text: str) -> float | None:
    """Return a time as a number: seconds since 1970 of a date, or the number that it is; else None."""
    text = text.strip()
    try:
        if text.isascii() and text.isdigit():  # a counter or milliseconds, which may look like a date
            raise ValueError
        moment = datetime.fromisoformat(text)
    except ValueError:
        found = _DATE.fullmatch(text)
        try:
            if found is None:
                number = float(text)
                return number if math.isfinite(number) else None
            year, month, day, hour, minute = (int(part or 0) for part in found.groups()[:5])
            start = datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()
            return start + float(found[6] or 0.0)
        except ValueError:
            return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def read_time(text: str) -> float | str:
    """Return what equal times have in common, however they are written: a number, or else the text."""
    number = parse_time(text)
    return text.strip() if number is None else number


def is_before(time: float | str, other: float | str) -> bool:
    """Return whether a time is known to be before another one, or the same."""
    return isinstance(time, float) and isinstance(other, float) and time <= other


def is_between(time: str, label: Label) -> bool:
    """Return whether a row of this time has a label that is given from one time to another."""
    moment = read_time(time)
    return is_before(read_time(label.time), moment) and is_before(moment, read_time(label.until))


@dataclass(frozen=True)
class LabelFormat:
    """How records of labels are read.

    A record names its row by ``position``, ``offset`` or ``time``, or holds the row itself: all its
    columns, or a list called ``values``. With ``time`` and ``until`` it is about all rows between them.
    Further fields are ``label``, ``key``, ``certify`` and ``baseline``.

    Labels of AWS Lookout for Equipment are read, too: ``StartTime``, ``EndTime``, ``Rating``,
    ``FaultCode`` and ``Equipment``, which is the key. The label is the fault code, or ``anomaly`` if
    there is none; the rating ``NO_ANOMALY`` stands for the normal class, and ``NEUTRAL`` for no label.

    Attributes
    ----------
    columns : tuple of str
        The columns of a row.
    time, key : str or None
        What else the time and the key may be called. Without a key there is one target.
    certify : bool
        Whether rows were chosen at random, unless a record says so itself.
    normal : str or None
        The class of normal operation.
    """

    columns: tuple[str, ...] = ()
    time: str | None = None
    key: str | None = None
    certify: bool = False
    normal: str | None = None
    what: ClassVar[str] = "labels"

    def parse(self, record: Mapping[str, Any]) -> Label | None:
        """Return the label in a record, None if it has none, or raise InvalidInputError."""
        named = {_fold(name): value for name, value in record.items() if name not in self.columns}
        if not named.keys() & _LABEL:
            raise InvalidInputError("it has no label")
        fields = {name: value for name, value in named.items() if value is not None and value != ""}

        def text(*names: str | None) -> str:
            for name in names:
                if name is not None:
                    value = record.get(name) if name in (self.time, self.key) else None
                    value = fields.get(name, "") if value is None else value
                    if value != "":
                        return as_text(value)
            return ""

        label = self._class(fields)
        if label == "":
            return None
        found = Label(
            label=label,
            position=_position(fields.get("position")),
            time=text(self.time, *_TIME),
            offset=text("offset"),
            values=self._values(record),
            certify=_flag(fields.get("certify"), "certify", self.certify),
            baseline=_flag(fields.get("baseline"), "baseline", False),
            key=text(self.key, "key", "equipment") if self.key is not None else "",
            until=text(*_UNTIL),
        )
        if found.position is None and found.values is None and not (found.offset or found.time):
            raise InvalidInputError("it has neither position, offset, time nor the columns of the row")
        if found.until:
            _check_range(found)
        return found

    def check_columns(self, columns: Sequence[str], name: str) -> None:
        """Refuse a file whose columns hold no labels, or do not name their rows."""
        if not {_fold(column) for column in columns} & _LABEL:
            raise InvalidInputError(
                f"{name} has no column 'label'{suggest(['label'], columns)}; it has "
                f"{list_names(columns)}: rename the column of the labels"
            )
        rows = {"position", "offset", *_TIME} & {_fold(column) for column in columns}
        if not rows and not {self.time, *self.columns} & set(columns):
            raise InvalidInputError(
                f"the labels of {name} name no rows; it has {list_names(columns)}: add a column "
                "'position', 'offset' or 'time', or the columns of the rows"
            )

    def _class(self, fields: Mapping[str, Any]) -> str | int | float:
        label: Any = fields.get("label", fields.get("faultcode", ""))
        if "label" not in fields:
            rating = str(fields.get("rating", "")).upper()
            if rating == "NEUTRAL":
                return ""
            if rating == "NO_ANOMALY":
                if self.normal is None:
                    raise InvalidInputError(
                        "its rating is NO_ANOMALY: name the normal class (--labels-normal)"
                    )
                return self.normal
            if not label and (rating == "ANOMALY" or fields.keys() & {"end", "endtime"}):
                return _ANOMALY
        if isinstance(label, bool) or not isinstance(label, str | int | float):
            raise InvalidInputError(f"its label is {label!r}, neither text nor a number")
        if not isinstance(label, str):
            if isinstance(label, int) and abs(label) > LARGEST:
                raise InvalidInputError(f"its label is beyond ±{LARGEST:g}")
            return label if math.isfinite(label) else ""
        return valid_text(label.strip())

    def _values(self, record: Mapping[str, Any]) -> list[float] | None:
        given = record.get("values")
        names = [name for name in self.columns if record.get(name) not in (None, "")]
        if isinstance(given, list) and "values" not in self.columns:
            cells, names = given, [f"values[{i}]" for i in range(len(given))]
        elif names:
            cells, names = [record.get(name) for name in self.columns], list(self.columns)
        else:
            return None
        numbers, invalid = parse_column(cells)
        for at, cell in invalid.items():
            raise InvalidInputError(describe_invalid(names[at], cell).rstrip("."))
        values = [float(number) for number in numbers]
        return None if all(map(math.isnan, values)) else values


@dataclass(frozen=True)
class CommandFormat:
    """How records of commands about alarms are read.

    A record has ``action`` and ``alarm``; further fields are ``number``, ``for`` (the duration), ``by``,
    ``comment`` and ``key``, as in :class:`~baryflow.streams.base.AlarmCommand`.

    Attributes
    ----------
    key : str or None
        What else the key may be called. Without a key there is one target.
    """

    key: str | None = None
    what: ClassVar[str] = "commands"

    def parse(self, record: Mapping[str, Any]) -> AlarmCommand:
        """Return the command in a record, or raise InvalidInputError."""
        found = {name: value for name, value in record.items() if value is not None and value != ""}
        for name in ("action", "alarm"):
            if name not in found:
                raise InvalidInputError(f"it has no {name!r}")
        duration = found.get("for")
        text = {name: as_text(found.get(name, "")) for name in ("alarm", "by", "comment")}
        key = "" if self.key is None else as_text(found.get(self.key, found.get("key", "")))
        return AlarmCommand(
            action=as_text(found["action"]).lower(),
            alarm=text["alarm"],
            number=_position(found.get("number"), "number"),
            duration=None if duration is None else as_text(duration),
            by=text["by"][:_LONGEST],
            comment=text["comment"][:_LONGEST],
            key=key,
        )

    def check_columns(self, columns: Sequence[str], name: str) -> None:
        """Refuse a file whose columns hold no commands."""
        for needed in ("action", "alarm"):
            if needed not in columns:
                raise InvalidInputError(
                    f"{name} has no column {needed!r}{suggest([needed], columns)}; it has "
                    f"{list_names(columns)}"
                )


def _fold(name: str) -> str:
    """Return a name without case, underscores and spaces."""
    return re.sub(r"[_ ]", "", name).casefold()


def _flag(value: Any, name: str, default: bool) -> bool:
    if value is None:
        return default
    text = str(value).strip().casefold()
    if text not in _TRUE | _FALSE:
        raise InvalidInputError(f"{name} is true or false, got {value!r}")
    return text in _TRUE


def _position(value: Any, what: str = "position") -> int | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not number.is_integer() or abs(number) > 2**53:
        raise InvalidInputError(f"its {what} is {value!r}, not a whole number")
    return int(number)


def _check_range(label: Label) -> None:
    start, end = parse_time(label.time), parse_time(label.until)
    if start is None or end is None:
        which = label.time if start is None else label.until
        raise InvalidInputError(f"{which!r} is not a time such as 2026-11-17T09:30:00")
    if start > end:
        raise InvalidInputError(f"it ends at {label.until}, before it begins at {label.time}")
