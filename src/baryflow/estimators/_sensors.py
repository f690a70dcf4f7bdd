"""Sensors that fail: impossible values, columns that carry no information.

A value much farther out than anything in the sources is a glitch, and counts as missing. If most values
of a column are glitches, it has another unit or another meaning than in the sources, and the whole
column counts as missing. A column that keeps one value, though it hardly ever repeats one in the
sources, is stuck. Nothing stops a stream; everything is counted and reported.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from baryflow.estimators._source_table import SourceTable
from baryflow.validation import Floats, Integers

#: A value is a glitch if it is this many times farther from the sources' centre than any of theirs.
_TIMES = 3.0
#: The sources' values are taken to reach at least this many stds.
_LEAST_REACH = 4.0
#: A column hardly varies if its std is below this part of that in the sources, after this many rows.
_STUCK, _ROWS = 1e-2, 100.0
#: A column that repeats the value of the row before in more than this part of the rows of a class may
#: keep a value for ever; others are stuck after this many times the repetitions in a class of a source.
_REPEATING, _TIMES_LONGER = 1e-2, 2.0
_NAMED = 5
#: A column is taken for a counter if its rows would rise by chance less often than this.
_CHANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Limits:
    """Between what values a column is believed, and how long it may keep one of them."""

    low: Floats
    high: Floats
    patience: Floats  # rows with the same value after which a column is stuck; infinite: never

    @classmethod
    def of(cls, table: SourceTable) -> Limits:
        """Allow for more than the sources show; a column that is constant there has no limits."""
        reach = np.maximum(table.highest - table.centre, table.centre - table.lowest) / table.scale
        width = _TIMES * np.maximum(reach, _LEAST_REACH) * table.scale
        width = np.where(table.constant, np.inf, width)
        pairs = np.maximum(table.counts - 1.0, 0.0).sum(axis=0)[:, None]
        repeating = (table.repeats.sum(axis=0) > _REPEATING * pairs).any(axis=0)
        patience = np.maximum(_ROWS, _TIMES_LONGER * table.repeats.max(axis=(0, 1)))
        patience = np.where(repeating | table.constant, np.inf, patience)
        return cls(table.centre - width, table.centre + width, patience)

    def screen(self, X: Floats) -> Floats:
        """Return rows in which glitches are missing values; the same array if there are none."""
        glitches = np.less(X, self.low) | np.greater(X, self.high)
        return np.where(glitches, np.nan, X) if glitches.any() else X


@dataclass(frozen=True, eq=False)
class Tally:
    """How many values of each column of a target were present, missing, or glitches.

    Also the first and the last value of each column, and how many values in a row are equal to them:
    tallies of consecutive rows can be added, and the sum is the tally of all rows.
    """

    values: Floats
    missing: Floats
    glitches: Floats
    first: Floats  # NaN without any value
    leading: Floats  # values equal to the first one, before the first change
    last: Floats
    trailing: Floats  # values equal to the last one, since the last change

    @classmethod
    def none(cls, n_features: int) -> Tally:
        """Return the tally of no rows."""
        zeros, nothing = np.zeros(n_features), np.full(n_features, np.nan)
        return cls(zeros, zeros, zeros, nothing, zeros, nothing, zeros)

    @classmethod
    def of(cls, raw: Floats, screened: Floats) -> Tally:
        """Count rows, as they came and as they are used."""
        n, d = raw.shape
        if not n:
            return cls.none(d)
        missing, gone = np.isnan(raw), np.isnan(screened)
        values = n - gone.sum(axis=0)
        kept = screened
        if gone.any():  # the values of each column move up to close the gaps, in their order
            order = np.argsort(gone, axis=0, kind="stable")
            kept = np.take_along_axis(screened, order, axis=0)
        changes = np.zeros((n, d), dtype=bool)
        np.not_equal(kept[1:], kept[:-1], out=changes[1:])
        if gone.any():
            changes &= np.arange(n)[:, None] < values
        varies = changes.any(axis=0)
        return cls(
            values.astype(np.float64),
            missing.sum(axis=0).astype(np.float64),
            (gone & ~missing).sum(axis=0).astype(np.float64),
            kept[0].copy(),
            np.where(varies, changes.argmax(axis=0), values).astype(np.float64),
            kept[np.maximum(values - 1, 0), np.arange(d)],
            np.where(varies, values - (n - 1 - changes[::-1].argmax(axis=0)), values).astype(np.float64),
        )

    def __add__(self, other: Tally) -> Tally:
        goes_on = self.last == other.first  # NaN is equal to nothing
        none, none_after = self.values == 0.0, other.values == 0.0
        longer = np.where(goes_on & (self.leading == self.values), other.leading, 0.0)
        earlier = np.where(goes_on & (other.trailing == other.values), self.trailing, 0.0)
        return Tally(
            self.values + other.values,
            self.missing + other.missing,
            self.glitches + other.glitches,
            np.where(none, other.first, self.first),
            np.where(none, other.leading, self.leading + longer),
            np.where(none_after, self.last, other.last),
            np.where(none_after, self.trailing, other.trailing + earlier),
        )

    def faults(self, names: Any, stds: Floats, usual: Floats, patience: Floats) -> dict[Any, str]:
        """Return what is wrong with each column, by its name or number."""
        found: dict[Any, str] = {}
        keys = range(len(self.values)) if names is None else names.tolist()
        for j, name in enumerate(keys):
            total = self.values[j] + self.missing[j] + self.glitches[j]
            if total == 0.0:
                continue
            if self.values[j] + self.glitches[j] == 0.0:
                found[name] = "no value at all; a typical value is used instead"
            elif self.glitches[j] > self.values[j]:
                found[name] = (
                    "most values are far outside of the sources (another unit?); "
                    "a typical value is used instead"
                )
            elif self.values[j] >= _ROWS and stds[j] < _STUCK * usual[j]:
                found[name] = "hardly varies, unlike in the sources (stuck?)"
            elif self.trailing[j] >= patience[j]:
                found[name] = "has stopped varying, unlike in the sources (stuck?)"
            elif self.glitches[j] > 0.0:
                times = f"{self.glitches[j]:.0f} of {total:.0f} values"
                found[name] = f"{times} are far outside of the sources; they count as missing"
        return found


def describe_new_faults(before: dict[Any, str], now: dict[Any, str]) -> str:
    """Return a description of the columns that were in order until now; empty if there are none."""
    new = [name for name in now if name not in before]
    words = "; ".join(f"column {name!r}: {now[name]}" for name in new[:_NAMED])
    more = f"; and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
    return f"{words}{more}"


def warn(before: dict[Any, str], now: dict[Any, str]) -> None:
    """Warn of columns that were in order until now."""
    if words := describe_new_faults(before, now):
        warnings.warn(words, UserWarning, stacklevel=4)  # the caller of partial_fit or fit


def find_counters(sources: Sequence[Floats]) -> Integers:
    """Return the columns that rise from each row to the next in every source, as counters and clocks do.

    Rows in any other order rise like this by chance with probability Π 1/n!, n the rows of a source.
    None are returned if that is not small.
    """
    chance = math.exp(-sum(math.lgamma(len(rows) + 1.0) for rows in sources))
    if chance > _CHANCE:
        return np.zeros(0, dtype=np.intp)
    rises = [(np.diff(rows, axis=0) > 0.0).all(axis=0) for rows in sources]
    return np.flatnonzero(np.logical_and.reduce(rises))
