"""Labels of rows that have not come yet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from baryflow.runtime.session import Rows
from baryflow.streams import Label
from baryflow.streams.label_records import is_before, is_between, read_time

#: Labels that wait for their rows, at most.
MOST = 10_000


class ExpectedLabels:
    """Labels of all targets, by what their rows are known by; of two of the same row the latest counts.

    Parameters
    ----------
    labels : iterable of Label
    """

    def __init__(self, labels: Iterable[Label] = ()) -> None:
        #: Target → kind and value of what the row is known by → label.
        self._labels: dict[str, dict[tuple[str, Any], Label]] = {}
        for label in labels:
            self.add(label)

    def __len__(self) -> int:
        return sum(map(len, self._labels.values()))

    def __iter__(self) -> Iterator[Label]:
        for labels in self._labels.values():
            yield from labels.values()

    def add(self, label: Label) -> None:
        """Add a label."""
        labels = self._labels.setdefault(label.key, {})
        name = _name(label)
        labels.pop(name, None)  # so that the order is that of the latest labels
        labels[name] = label

    def take(self, key: str, rows: Rows) -> dict[int, Label]:
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
            names = ("time", read_time(time)), ("offset", offset), ("position", position)
            known = [label for label in ranges if is_between(time, label)][-1:]
            known += [labels.pop(name) for name in names if name in labels]
            if known:
                found[position] = replace(known[-1], position=position)
        if not labels:
            del self._labels[key]
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

    def _remove(self, is_over: Any) -> list[Label]:
        over = [label for label in self if is_over(label)]
        for label in over:
            labels = self._labels[label.key]
            del labels[_name(label)]
            if not labels:
                del self._labels[label.key]
        return over


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


def _name(label: Label) -> tuple[str, Any]:
    if label.until:
        return "range", (label.time, label.until)
    if label.position is not None:
        return "position", label.position
    return ("offset", label.offset) if label.offset else ("time", read_time(label.time))
