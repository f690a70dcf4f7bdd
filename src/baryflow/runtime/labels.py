"""Labels of rows that have not come yet."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

from baryflow.runtime.session import Rows
from baryflow.streams import Label
from baryflow.streams.label_records import is_before, is_between, read_time

#: Labels that wait for their rows, at most.
MOST = 10_000
#: What the row of a label is known by: the kind (position, offset, time, range) and its value.
_Name = tuple[str, Any]


class ExpectedLabels:
    """Labels of all targets, by what their rows are known by; of two of the same row the latest counts.

    At most `MOST` wait. Labels with a position or a time say when their row will come: they are read as
    far as there is room, and those of the nearest rows are kept. Other labels, which have an offset,
    never keep others from being read: the oldest of them are dropped.

    Parameters
    ----------
    labels : iterable of Label
    idle : int, default=0
        As in a snapshot.

    Attributes
    ----------
    idle : int
        Rows that have come since there is no room, none of them with a label.
    """

    def __init__(self, labels: Iterable[Label] = (), idle: int = 0) -> None:
        #: Target → kind and value of what the row is known by → label.
        self._labels: dict[str, dict[_Name, Label]] = {}
        self._unordered: dict[tuple[str, _Name], None] = {}  # the oldest first
        self._newest: tuple[str, _Name] | None = None  # since `remove_excess` was called
        self.idle = idle
        for label in labels:
            self.add(label)
        self._newest = None

    def __len__(self) -> int:
        return sum(map(len, self._labels.values()))

    def __iter__(self) -> Iterator[Label]:
        for key, labels in self._labels.items():
            yield from (one for name, one in labels.items() if (key, name) not in self._unordered)
        yield from (self._labels[key][name] for key, name in self._unordered)

    @property
    def room(self) -> int:
        """How many labels to read.

        The last one shows whether the next labels are needed sooner than those that wait.
        """
        return MOST - (len(self) - len(self._unordered))

    def add(self, label: Label) -> None:
        """Add a label."""
        name = _name(label)
        self._pop(label.key, name)  # so that the order is that of the latest labels
        self._labels.setdefault(label.key, {})[name] = label
        self._newest = label.key, name
        if _due(name) is None:
            self._unordered[label.key, name] = None

    def _pop(self, key: str, name: _Name) -> Label | None:
        labels = self._labels.get(key, {})
        label = labels.pop(name, None)
        self._unordered.pop((key, name), None)
        if label is not None and not labels:
            del self._labels[key]
        return label

    def remove_matched(self, key: str, rows: Rows) -> dict[int, Label]:
        """Return the labels of rows of a target that have come, by position.

        The label of a single row counts more than one from one time to another.
        """
        labels, found = self._labels.get(key), dict[int, Label]()
        if not labels:
            return found
        ranges = [label for label in labels.values() if label.until]
        for position, time, offset in zip(
            rows.positions.tolist(), rows.times, rows.offsets, strict=True
        ):
            names: list[_Name] = [("time", read_time(time)), ("offset", offset), ("position", position)]
            known = [label for label in ranges if is_between(time, label)][-1:]
            known += [label for name in names if (label := self._pop(key, name)) is not None]
            if known:
                found[position] = replace(known[-1], position=position)
        return found

    def remove_passed(self, position: int) -> list[Label]:
        """Remove and return labels of rows up to a position."""
        return self._remove(lambda label: label.position is not None and label.position <= position)

    def remove_earlier(self, key: str, time: str) -> list[Label]:
        """Remove and return labels of a target for rows up to a time."""
        last = read_time(time)
        return self._remove(
            lambda label: label.key == key and is_before(read_time(label.until or label.time), last)
        )

    def _remove(self, is_over: Callable[[Label], bool]) -> list[Label]:
        over = [label for label in self if is_over(label)]
        for label in over:
            self._pop(label.key, _name(label))
        return over

    def remove_excess(self) -> list[Label]:
        """Remove and return labels that are too many."""
        oldest = list(islice(self._unordered, max(0, len(self) - MOST)))
        dropped = [self._pop(*one) for one in oldest]
        if self.room <= 0 and self._newest is not None and self._newest not in self._unordered:
            ahead = self._farthest(1 - self.room)
            if ahead == [self._newest]:
                ahead = []  # labels come in the order of their rows: the next ones have time
            dropped += [self._pop(*one) for one in ahead]
        self._newest = None
        return [label for label in dropped if label is not None]

    def pass_rows(self, n: int, *, found: bool) -> list[Label]:
        """Count rows, and whether labels were found for them; remove and return a label that blocks.

        If as many rows have come as labels wait, and none of the labels was theirs, one of them makes
        room for others.
        """
        self.idle = 0 if found or self.room > 0 else self.idle + n
        if self.idle < MOST:
            return []
        self.idle = 0
        return [label for one in self._farthest(1) if (label := self._pop(*one)) is not None]

    def _farthest(self, n: int) -> list[tuple[str, _Name]]:
        """Return the names of the labels whose rows come last.

        Positions and times cannot be compared: those of the more frequent kind are meant.
        """
        names = [(key, name) for key, labels in self._labels.items() for name in labels]
        due = [one for one in names if _due(one[1]) is not None]
        by_position = [one for one in due if one[1][0] == "position"]
        by_time = [one for one in due if one[1][0] != "position"]
        most = max(by_position, by_time, key=len)
        return heapq.nlargest(n, most, key=lambda one: _due(one[1]) or 0.0)


def to_plain(label: Label) -> dict[str, Any]:
    """Return a label as plain values, as in JSON: None stands for a missing value of its row."""
    found = asdict(label)
    if label.values is not None:
        found["values"] = [None if math.isnan(value) else value for value in label.values]
    return found


def from_plain(found: Mapping[str, Any]) -> Label:
    """Return the label that :func:`to_plain` was given."""
    values = found.get("values")
    if values is not None:
        values = [math.nan if value is None else float(value) for value in values]
    return Label(**{**found, "values": values})


def _name(label: Label) -> _Name:
    if label.until:
        return "range", (read_time(label.time), read_time(label.until))
    if label.position is not None:
        return "position", label.position
    return ("offset", label.offset) if label.offset else ("time", read_time(label.time))


def _due(name: _Name) -> float | None:
    """Return the position or time of the row of a label, None if it does not say when the row comes."""
    value = name[1][1] if name[0] == "range" else name[1]
    return float(value) if isinstance(value, int | float) else None
