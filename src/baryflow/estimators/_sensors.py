"""Sensors that fail: impossible values, columns that carry no information, columns in other units.

A value much farther out than those of the sources is a glitch, and counts as missing. If most
values of a column are that far out, of the last ones and of all, they are no glitches: the target has
another calibration there, perhaps another unit. The column is converted, and glitches are judged after
that. A column that keeps one value, though it hardly ever repeats one in the sources, is stuck. Nothing
stops a stream; everything is counted and reported.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binom, norm

from baryflow.estimators._source_table import SourceTable
from baryflow.estimators._units import Units, UsualColumns
from baryflow.validation import Booleans, Floats, Integers

#: A glitch is this many times farther from the centre of a domain than values of sources from theirs.
_TIMES = 3.0
#: The values of all sources together are taken to reach at least this many stds.
_LEAST_REACH = 4.0
#: Values of each column that are remembered, to tell another calibration from glitches.
_REMEMBERED = 32
#: Median and lower quartile of the absolute deviations of normal values, in stds. The quartile stays
#: small as long as less than three quarters of the values are far from their median.
_HALF, _QUARTER = float(norm.ppf(0.75)), float(norm.ppf(0.625))
#: A column whose spread is below this part of its values keeps one value, up to rounding.
_ROUNDING = 1e-10
#: A column hardly varies if its std is below this part of that in the sources, after this many rows.
_STUCK, _ROWS = 1e-2, 100.0
#: A column that repeats the value of the row before in more than this part of the rows of a class may
#: keep a value for ever; others are stuck after this many times the repetitions in a class of a source.
_REPEATING, _TIMES_LONGER = 1e-2, 2.0
_NAMED = 5
#: A column is taken for a counter if its rows would rise by chance less often than this, and most of its
#: values are taken to be far out if chance explains as many less often.
_CHANCE = 1e-3
#: Values after which a column can be judged: if each were as likely far out as not, chance would explain
#: fewer of them.
_ENOUGH = math.ceil(-math.log2(_CHANCE))


@dataclass(frozen=True, eq=False)
class Limits:
    """Between what values a column is believed, and how long it may keep one of them."""

    low: Floats
    high: Floats
    patience: Floats  # rows with the same value after which a column is stuck; infinite: never
    width: Floats  # how far values may be from the centre of a domain, in units of its spread
    usual: UsualColumns

    @classmethod
    def of(cls, table: SourceTable) -> Limits:
        """Allow for more than the sources show, each alone and all together.

        Sources that differ much, or of few rows, say little about how far out a target may be. A column
        that is constant in all sources has no limits.
        """
        reach = np.maximum(table.highest - table.source_means, table.source_means - table.lowest)
        # At least as far as normal values reach, in as many rows.
        least = float(norm.isf(0.5 / table.counts.sum()))
        reach = np.maximum((reach / table.spreads).max(axis=0), least)
        width = np.where(table.constant, np.inf, _TIMES * reach)
        low = (table.source_means - width * table.spreads).min(axis=0)
        high = (table.source_means + width * table.spreads).max(axis=0)
        whole = np.maximum(table.highest - table.centre, table.centre - table.lowest).max(axis=0)
        whole = _TIMES * np.maximum(whole, _LEAST_REACH * table.scale)
        low, high = np.minimum(low, table.centre - whole), np.maximum(high, table.centre + whole)
        return cls(low, high, _patience(table), width, UsualColumns.of(table))

    def recalibrate(self, before: Tally, rows: Floats, units: Units) -> Units:
        """Return the units of a target, given the tally before these rows, and its units so far.

        A column gets other units if most of its last values are far out, and more of all its values than
        not: a target keeps its calibration, so a jump after good values is a fault. It returns to the
        units of the sources if most of its last values lie within their limits. A column that keeps one
        value has no unit.
        """
        values = np.concatenate([before.recent, rows])
        other = units.other
        if not (other.any() or self._find_far(values).any()):
            return units
        still = self._find_far(units.convert(values))
        last = last_values(before.recent, rows)
        n = (~np.isnan(last)).sum(axis=0)
        back = other & _most(~(np.isnan(last) | self._find_far(last)), n)
        for column in np.flatnonzero(back).tolist():
            units = units.put(column, 0.0, 1.0)
        far = self._find_far(units.convert(rows))
        glitches = before.glitches + far.sum(axis=0)
        believed = before.values + (~(np.isnan(rows) | far)).sum(axis=0)
        odd = _most(self._find_far(units.convert(last)), n) & (glitches > believed)
        for column in np.flatnonzero(odd).tolist():
            found = values[still[:, column], column]
            centre = float(np.median(found))
            spread = float(np.median(np.abs(found - centre))) / _HALF
            if spread > _ROUNDING * abs(centre):
                units = units.put(column, *self.usual.explain(column, centre, spread, len(found)))
        return units

    def _find_far(self, X: Floats) -> Booleans:
        return np.less(X, self.low) | np.greater(X, self.high)

    def around(self, values: Floats, past: tuple[Floats, Floats] | None = None) -> tuple[Floats, Floats]:
        """Return the limits of a target with these last values: the sources', wider if it spreads more.

        Values are in the units of the sources. `past` are mean and variance of what was believed before:
        a target keeps its calibration, so values far from both are glitches, however many there are.
        """
        n = (~np.isnan(values)).sum(axis=0)
        if not (n >= _ENOUGH).any():
            return self.low, self.high
        centre = _quantile(values, 0.5)
        spread = _quantile(np.abs(values - centre), 0.25) / _QUARTER
        reach = np.where(np.isfinite(self.width), self.width / _TIMES, 0.0)  # as values of sources do
        near = (centre >= self.low) & (centre <= self.high)
        if past is not None:
            near |= np.abs(centre - past[0]) <= reach * np.sqrt(past[1])
        else:
            margin = reach * np.nan_to_num(self.usual.spread)
            near |= (centre >= self.low - margin) & (centre <= self.high + margin)
        # What keeps one value does not spread.
        known = (n >= _ENOUGH) & (spread > 0.0) & near
        width = np.where(known & np.isfinite(self.width), self.width, 0.0) * spread
        return (
            np.where(known, np.fmin(self.low, centre - width), self.low),
            np.where(known, np.fmax(self.high, centre + width), self.high),
        )


def _most(flags: Booleans, n: Integers) -> Booleans:
    """Tell in which columns more than half of n values are flagged, beyond what chance explains."""
    return np.asarray(binom.sf(flags.sum(axis=0) - 1, n, 0.5) <= _CHANCE)


def _quantile(values: Floats, share: float) -> Floats:
    """Return a quantile of each column without missing values; NaN if there are none."""
    ordered, n = np.sort(values, axis=0), (~np.isnan(values)).sum(axis=0)
    place = share * np.maximum(n - 1, 0)
    below = np.floor(place).astype(np.intp)
    some = np.take_along_axis(ordered, np.stack([below, np.ceil(place).astype(np.intp)]), axis=0)
    return np.asarray(some[0] + (place - below) * (some[1] - some[0]))


def _patience(table: SourceTable) -> Floats:
    """Return after how many equal values columns are stuck; what repeats values in sources never is."""
    # A column that is constant in a source was stuck or missing there, unless it is in all of them.
    counted = np.where(table.varies.any(axis=0), table.varies, True)[:, None]
    pairs = (np.maximum(table.counts - 1.0, 0.0)[:, :, None] * counted).sum(axis=0)
    repeats = table.repeats * counted
    repeating = (repeats.sum(axis=0) > _REPEATING * pairs).any(axis=0)
    patience = np.maximum(_ROWS, _TIMES_LONGER * repeats.max(axis=(0, 1)))
    return np.where(repeating | table.constant, np.inf, patience)


def screen(X: Floats, low: Floats, high: Floats) -> Floats:
    """Return rows without values outside of the limits; the same array if there are none."""
    glitches = np.less(X, low) | np.greater(X, high)
    return np.where(glitches, np.nan, X) if glitches.any() else X


@dataclass(frozen=True, eq=False)
class Tally:
    """How many values of each column of a target were present, missing, or glitches.

    Also the first and the last value of each column, how many values in a row are equal to them, and the
    last values as they came: tallies of consecutive rows can be added, and the sum is the tally of all
    rows.
    """

    values: Floats
    missing: Floats
    glitches: Floats
    first: Floats  # NaN without any value
    leading: Floats  # values equal to the first one, before the first change
    last: Floats
    trailing: Floats  # values equal to the last one, since the last change
    recent: (
        Floats  # (32, d): last values of each column, glitches among them, after NaN if there are fewer
    )

    @classmethod
    def none(cls, n_features: int) -> Tally:
        """Return the tally of no rows."""
        zeros, nothing = np.zeros(n_features), np.full(n_features, np.nan)
        recent = np.full((_REMEMBERED, n_features), np.nan)
        return cls(zeros, zeros, zeros, nothing, zeros, nothing, zeros, recent)

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
            last_values(cls.none(d).recent, raw),
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
            last_values(self.recent, other.recent),
        )

    def faults(
        self, names: Any, stds: Floats, usual: Floats, patience: Floats, units: Units
    ) -> dict[Any, str]:
        """Return what is wrong with each column, by its name or number."""
        found: dict[Any, str] = {}
        keys, other = range(len(self.values)) if names is None else names.tolist(), units.other
        for j, name in enumerate(keys):
            total = self.values[j] + self.missing[j] + self.glitches[j]
            if total == 0.0:
                continue
            if self.values[j] + self.glitches[j] == 0.0:
                found[name] = "no value at all; a typical value is used instead"
            elif other[j]:
                found[name] = f"{units.describe(j)} of the sources; it is converted"
            elif self.glitches[j] > self.values[j]:
                found[name] = (
                    "most values are far outside of the sources; a typical value is used instead"
                )
            elif self.values[j] >= _ROWS and stds[j] < _STUCK * usual[j]:
                found[name] = "hardly varies, unlike in the sources (stuck?)"
            elif self.trailing[j] >= patience[j]:
                found[name] = "has stopped varying, unlike in the sources (stuck?)"
            elif self.glitches[j] > 0.0:
                times = f"{self.glitches[j]:.0f} of {total:.0f} values"
                found[name] = f"{times} are far outside of the sources; they count as missing"
        return found


def last_values(before: Floats, rows: Floats) -> Floats:
    """Return the last values of each column, in order, missing ones left out; `before` has as many."""
    values = np.concatenate([before, rows[-len(before) :] if not np.isnan(rows).any() else rows])
    there = ~np.isnan(values)
    if not there.all():
        values = np.take_along_axis(values, np.argsort(there, axis=0, kind="stable"), axis=0)
    return values[-len(before) :]


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
