"""Sensors that fail: values that cannot be, columns that say nothing.

A value much farther out than anything in the sources is a glitch, and counts as missing. A column most
of whose values are of that kind has another unit, or another meaning, than in the sources; it is then
missing altogether. Nothing stops a stream, and everything is counted and told.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from baryflow.estimators.source_table import SourceTable
from baryflow.validation import Floats

#: A value is a glitch if it is so many times farther from the sources' centre than any of theirs.
_TIMES = 3.0
#: The sources' values are taken to reach at least so many stds.
_LEAST_REACH = 4.0
#: A column hardly varies if its std is below this part of that in the sources; so many rows can tell.
_STUCK, _ROWS = 1e-2, 100.0
_NAMED = 5


@dataclass(frozen=True, eq=False)
class Limits:
    """Between what values a column is believed."""

    low: Floats
    high: Floats

    @classmethod
    def of(cls, table: SourceTable) -> Limits:
        """Allow for more than what the sources reach; a column that is constant there has no limits."""
        reach = np.maximum(table.highest - table.centre, table.centre - table.lowest) / table.scale
        width = _TIMES * np.maximum(reach, _LEAST_REACH) * table.scale
        width = np.where(table.constant, np.inf, width)
        return cls(table.centre - width, table.centre + width)

    def screen(self, X: Floats) -> Floats:
        """Return rows in which glitches are missing values; the same array if there are none."""
        glitches = np.less(X, self.low) | np.greater(X, self.high)
        return np.where(glitches, np.nan, X) if glitches.any() else X


@dataclass(frozen=True, eq=False)
class Tally:
    """How many values of each column of a target were there, missing, or glitches."""

    values: Floats
    missing: Floats
    glitches: Floats

    @classmethod
    def none(cls, n_features: int) -> Tally:
        """Return the tally of no rows."""
        zeros = np.zeros(n_features)
        return cls(zeros, zeros, zeros)

    def plus(self, raw: Floats, screened: Floats) -> Tally:
        """Count some more rows, as they came and as they are used."""
        missing, gone = np.isnan(raw), np.isnan(screened)
        return Tally(
            self.values + (~gone).sum(axis=0),
            self.missing + missing.sum(axis=0),
            self.glitches + (gone & ~missing).sum(axis=0),
        )

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.values + other.values, self.missing + other.missing, self.glitches + other.glitches
        )

    def faults(self, names: Any, stds: Floats, usual: Floats) -> dict[Any, str]:
        """Return what is wrong with each column, by its name or number."""
        found: dict[Any, str] = {}
        keys = range(len(self.values)) if names is None else names.tolist()
        for j, name in enumerate(keys):
            total = self.values[j] + self.missing[j] + self.glitches[j]
            if total == 0.0:
                continue
            if self.values[j] + self.glitches[j] == 0.0:
                found[name] = "no value at all; the usual one is taken"
            elif self.glitches[j] > self.values[j]:
                found[name] = (
                    "most values are far outside of the sources (another unit?); the usual one is taken"
                )
            elif self.glitches[j] > 0.0:
                times = f"{self.glitches[j]:.0f} of {total:.0f} values"
                found[name] = f"{times} are far outside of the sources; they count as missing"
            elif self.values[j] >= _ROWS and stds[j] < _STUCK * usual[j]:
                found[name] = "hardly varies, unlike in the sources (stuck?)"
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
