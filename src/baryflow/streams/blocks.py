"""Blocks of rows with their invalid cells, and the row stream made from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Protocol

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Batch, Rejected, Source
from baryflow.streams.numbers import describe_invalid
from baryflow.validation import Floats, Integers, as_count

#: Most columns that a message lists.
_LISTED = 20
_NUMBER = re.compile(r"\s*[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?\s*")


def suggest(names: Iterable[str], columns: Iterable[str]) -> str:
    """Return `` (did you mean …?)`` with the columns that are similar to `names`, or nothing."""
    folded = {column.casefold(): column for column in columns if column}
    found = (get_close_matches(name.casefold(), folded, n=1, cutoff=0.7) for name in names)
    similar = list(dict.fromkeys(folded[close[0]] for close in found if close))
    return f" (did you mean {list_names(similar)}?)" if similar else ""


def list_names(names: Sequence[str]) -> str:
    """Return quoted names for a message, the first twenty of them."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(map(repr, names[:_LISTED])) + more


def _are_values(columns: Sequence[str]) -> bool:
    """Return whether names of columns look like a row of values: mostly numbers, some with decimals."""
    numbers = [column for column in columns if _NUMBER.fullmatch(column)]
    return 2 * len(numbers) > len(columns) and any(not column.isdecimal() for column in numbers)


@dataclass(frozen=True)
class Selection:
    """Which columns to read: `numbers` (None for all others), `texts`, and those to ignore."""

    numbers: Sequence[str] | None
    texts: Sequence[str] = ()
    ignored: Sequence[str] = ()

    def choose(self, columns: Sequence[str], name: str) -> list[str]:
        """Return the numeric columns out of `columns`, or raise if input `name` lacks some."""
        chosen = self.numbers
        if chosen is None:
            out = {*self.texts, *self.ignored}
            chosen = [column for column in columns if column and column not in out]
        missing = [column for column in (*chosen, *self.texts) if column not in columns]
        if missing:
            raise InvalidInputError(f"{name} {self._describe_missing(missing, columns)}")
        return list(chosen)

    def _describe_missing(self, missing: Sequence[str], columns: Sequence[str]) -> str:
        """Return that columns are missing, and what to do."""
        if _are_values(columns):
            return (
                f"has no header: it begins with {list_names(columns)}; add a line with the column names"
            )
        numbers = self.numbers or ()
        others = [column for column in columns if column not in (*numbers, *self.texts)]
        advice = "rename the columns of the file"
        if numbers and not set(missing) & set(self.texts):
            advice += ", or add an empty column for one that was not measured"
        if set(missing) <= set(self.texts):
            advice = "correct the name" + ("" if numbers else ", or leave out the file")
        elif len(numbers) > 1 and not set(numbers) & set(columns):
            advice = "use a model that was fitted on these columns, or another file"
        found = f"{suggest(missing, others)}; it has {list_names(columns)}"
        return f"has no column {list_names(missing)}{found}: {advice}"


@dataclass(frozen=True, eq=False)
class Block:
    """Rows as they were read."""

    numbers: Floats  # of shape (n, d); NaN where a cell is empty or invalid
    invalid: list[dict[int, str]]  # for each column, row → cell that is not a usable number
    texts: list[list[str]]  # for each text column, one value per row
    positions: Integers
    rejected: list[Rejected]  # rows that could not be split into cells
    excerpt: Callable[[int], str]  # row → its beginning as text
    cursor: dict[str, Any]
    notices: list[str] = field(default_factory=list)


class Reader(Protocol):
    """Reads blocks from one input."""

    @property
    def columns(self) -> list[str]:
        """All columns of the input."""

    @property
    def chosen(self) -> list[str]:
        """The columns of :attr:`Block.numbers`."""

    def block(self, n: int, timeout: float | None) -> Block | None:
        """Return the next `n` rows; see :meth:`~baryflow.streams.base.Source.read`."""

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume after the block with this cursor."""

    def close(self) -> None:
        """Close the input."""


def reject_invalid(block: Block, columns: Sequence[str]) -> tuple[Integers, list[Rejected]]:
    """Return the rows that are valid in all `columns`, and all rejected rows in order."""
    reasons: dict[int, str] = {}
    for column, invalid in zip(columns, block.invalid, strict=True):
        for row, cell in invalid.items():
            reasons.setdefault(row, describe_invalid(column, cell))
    if not reasons:
        return np.arange(len(block.positions)), block.rejected
    bad = [
        Rejected(int(block.positions[row]), reason, block.excerpt(row))
        for row, reason in reasons.items()
    ]
    good = np.array([row for row in range(len(block.positions)) if row not in reasons], dtype=np.intp)
    return good, sorted([*block.rejected, *bad], key=lambda one: one.position)


class RowSource(Source):
    """The row stream of a reader, whose text columns are the time and the key, if there are any."""

    def __init__(self, reader: Reader, *, has_time: bool, has_key: bool) -> None:
        self._reader = reader
        self._has_time = has_time
        self._has_key = has_key
        self._checked = False  # whether the first rows were searched for absent columns

    @property
    def columns(self) -> list[str]:
        """All columns of the input."""
        return self._reader.columns

    @property
    def wanted(self) -> list[str]:
        """The columns of the rows."""
        return self._reader.chosen

    def read(self, n: int, timeout: float | None = None) -> Batch | None:
        """Return the next `n` rows, rejected ones included, or None at the end."""
        block = self._reader.block(as_count(n, "n"), timeout)
        if block is None:
            return None
        good, rejected = reject_invalid(block, self.wanted)
        all_good = len(good) == len(block.positions)
        notices = [] if self._checked else self._find_absent(block)
        self._checked = self._checked or bool(len(block.positions))
        empty = [""] * len(good)
        texts = block.texts if all_good else [[text[row] for row in good] for text in block.texts]
        return Batch(
            # Sums of the same numbers can differ in the last bit if the memory layout differs.
            rows=np.ascontiguousarray(block.numbers if all_good else block.numbers[good]),
            positions=block.positions if all_good else block.positions[good],
            times=texts[0] if self._has_time else empty,
            keys=texts[-1] if self._has_key else empty,
            rejected=rejected,
            cursor=block.cursor,
            notices=[*block.notices, *notices],
        )

    def _find_absent(self, block: Block) -> list[str]:
        """Report columns that none of the first rows has, for inputs without a header."""
        count = len(block.positions)
        if not count:
            return []
        first = "the first row has no" if count == 1 else f"none of the first {count} rows has a"
        known = set(self.columns)
        absent = [
            name
            for j, name in enumerate(self.wanted)
            if name not in known and not block.invalid[j] and np.isnan(block.numbers[:, j]).all()
        ]
        notices = []
        if absent:
            others = [name for name in self.columns if name not in self.wanted]
            notices.append(f"{first} column {list_names(absent)}{suggest(absent, others)}.")
        if self._has_time and not any(block.texts[0]):
            notices.append(f"{first} value in the time column.")
        return notices

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume after a batch that an earlier process has read."""
        self._checked = True  # by that process
        self._reader.seek(cursor)

    def close(self) -> None:
        """Close the input."""
        self._reader.close()
