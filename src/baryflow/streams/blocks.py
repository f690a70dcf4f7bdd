"""Blocks: rows with all that is strange about them, and the stream of rows that is made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Batch, Rejected
from baryflow.streams.numbers import describe_strange
from baryflow.validation import Floats, Integers, as_count

#: Columns that a message names at most.
_NAMED = 20


def guess(names: Iterable[str], columns: Iterable[str]) -> str:
    """Return a question for names that are not among `columns`, but nearly; nothing if none is."""
    folded = {column.casefold(): column for column in columns if column}
    found = (get_close_matches(name.casefold(), folded, n=1, cutoff=0.7) for name in names)
    meant = list(dict.fromkeys(folded[close[0]] for close in found if close))
    return f" (did you mean {list_names(meant)}?)" if meant else ""


def list_names(names: Sequence[str]) -> str:
    """Return names as a message gives them, not too many."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(repr, names[:_NAMED])) + more


@dataclass(frozen=True)
class Selection:
    """Which columns are read.

    Attributes
    ----------
    numbers : list of str or None
        Columns of numbers; None means all that are not `texts` and not `ignored`.
    texts : list of str
        Columns that are kept as they are written.
    ignored : list of str
        Columns that are not read.
    """

    numbers: Sequence[str] | None
    texts: Sequence[str] = ()
    ignored: Sequence[str] = ()

    def choose(self, columns: Sequence[str], name: str) -> list[str]:
        """Return the columns of numbers out of `columns`, or say which are missing from input `name`."""
        chosen = self.numbers
        if chosen is None:
            out = {*self.texts, *self.ignored}
            chosen = [column for column in columns if column and column not in out]
        missing = [column for column in (*chosen, *self.texts) if column not in columns]
        if missing:
            raise InvalidInputError(
                f"{name} has no column {list_names(missing)}{guess(missing, columns)}; it has "
                f"{list_names(columns)}: rename the columns, or name those that are meant"
            )
        return list(chosen)


@dataclass(frozen=True, eq=False)
class Block:
    """Rows as they were read.

    Attributes
    ----------
    numbers : array of shape (n, d)
        NaN where a cell is empty or strange.
    strange : list of dict
        For each column of `numbers`, row → cell, where it is not a number that can be used.
    texts : list of list of str
        For each text column, one for each row.
    positions : array of shape (n,)
    rejected : list of Rejected
        Rows whose cells could not be told apart.
    beginning : callable
        Gives the beginning of a row in words.
    cursor : dict
    """

    numbers: Floats
    strange: list[dict[int, str]]
    texts: list[list[str]]
    positions: Integers
    rejected: list[Rejected]
    beginning: Callable[[int], str]
    cursor: dict[str, Any]


class Reader(Protocol):
    """Reads blocks of one input."""

    @property
    def columns(self) -> list[str]:
        """All columns that the input has."""

    @property
    def chosen(self) -> list[str]:
        """The columns of :attr:`Block.numbers`."""

    def block(self, n: int, timeout: float | None) -> Block | None:
        """Return the next `n` rows; see :meth:`~baryflow.streams.base.Source.read`."""

    def seek(self, cursor: dict[str, Any]) -> None:
        """Go on after the block that `cursor` is from."""

    def close(self) -> None:
        """Let go of the input."""


def reject_strange(block: Block, columns: Sequence[str]) -> tuple[Integers, list[Rejected]]:
    """Return the rows that are good in all `columns`, and all rejected ones in order."""
    reasons: dict[int, str] = {}
    for column, strange in zip(columns, block.strange, strict=True):
        for row, cell in strange.items():
            reasons.setdefault(row, describe_strange(column, cell))
    if not reasons:
        return np.arange(len(block.positions)), block.rejected
    bad = [
        Rejected(int(block.positions[row]), reason, block.beginning(row))
        for row, reason in reasons.items()
    ]
    good = np.array([row for row in range(len(block.positions)) if row not in reasons], dtype=np.intp)
    return good, sorted([*block.rejected, *bad], key=lambda one: one.position)


class RowSource:
    """The stream of rows of a reader; its text columns are time and key, as far as there are any."""

    def __init__(self, reader: Reader, *, has_time: bool, has_key: bool) -> None:
        self._reader = reader
        self._has_time = has_time
        self._has_key = has_key
        self._looked = False  # whether names that nobody sends were looked for

    @property
    def columns(self) -> list[str]:
        """All columns that the input has."""
        return self._reader.columns

    @property
    def wanted(self) -> list[str]:
        """The columns of the rows."""
        return self._reader.chosen

    def read(self, n: int, timeout: float | None = None) -> Batch | None:
        """Return the next `n` rows, good and bad together, or None at the end."""
        block = self._reader.block(as_count(n, "n"), timeout)
        if block is None:
            return None
        good, rejected = reject_strange(block, self.wanted)
        whole = len(good) == len(block.positions)
        notices = [] if self._looked else self._miss(block)
        self._looked = self._looked or bool(len(block.positions))
        nothing = [""] * len(good)
        texts = block.texts if whole else [[text[row] for row in good] for text in block.texts]
        return Batch(
            # Sums of the same numbers may differ in their last bit where they lie differently in memory.
            rows=np.ascontiguousarray(block.numbers if whole else block.numbers[good]),
            positions=block.positions if whole else block.positions[good],
            times=texts[0] if self._has_time else nothing,
            keys=texts[-1] if self._has_key else nothing,
            rejected=rejected,
            cursor=block.cursor,
            notices=notices,
        )

    def _miss(self, block: Block) -> list[str]:
        """Say what none of the first rows has: only a header can be checked before."""
        count = len(block.positions)
        if not count:
            return []
        first = "the first row has no" if count == 1 else f"none of the first {count} rows has a"
        known = set(self.columns)
        absent = [
            name
            for j, name in enumerate(self.wanted)
            if name not in known and not block.strange[j] and np.isnan(block.numbers[:, j]).all()
        ]
        notices = []
        if absent:
            others = [name for name in self.columns if name not in self.wanted]
            notices.append(f"{first} column {list_names(absent)}{guess(absent, others)}.")
        if self._has_time and not any(block.texts[0]):
            notices.append(f"{first} time in the column that was named for it.")
        return notices

    def seek(self, cursor: dict[str, Any]) -> None:
        """Go on after a batch that was read in an earlier life."""
        self._looked = True  # then it was told
        self._reader.seek(cursor)

    def acknowledge(self, cursor: dict[str, Any]) -> None:
        """Do nothing: files stay where they are."""

    def close(self) -> None:
        """Let go of the input."""
        self._reader.close()
