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
from scipy.special import digamma, polygamma
from scipy.stats import binom, norm
from scipy.stats import t as student

from baryflow.estimators._source_table import SourceTable
from baryflow.validation import Booleans, Floats, Integers

#: What chance explains less often than this is no chance: offset or factor of a column, in all columns
#: of all sources together; that most of its values are far out; that its rows rise like a counter's.
_CHANCE = 1e-3
#: A known unit is possible if centre and spread, converted, lie where those of this part of domains do.
_CONFIDENCE = 0.95
#: Variances of logarithms and of centres in units of the spread that are rounding and nothing else.
_TINY = 1e-12
#: Known units: factor, offset, the unit and the one that it is compared with.
_PAIRS = (
    (14.503774, 0.0, "psi", "bar"),
    (100.0, 0.0, "kPa", "bar"),
    (6.894757, 0.0, "kPa", "psi"),
    (10.0, 0.0, "bar", "MPa"),
    (1000.0, 0.0, "mbar", "bar"),
    (1.8, 32.0, "°F", "°C"),
    (1.0, 273.15, "K", "°C"),
    (1 / 1.8, 459.67 / 1.8, "K", "°F"),
    (25.4, 0.0, "mm", "inch"),
    (3.280840, 0.0, "ft", "m"),
    (3.6, 0.0, "km/h", "m/s"),
    (60.0, 0.0, "per minute", "per second"),
    (1000.0 / 60.0, 0.0, "L/min", "m³/h"),
    (4.402868, 0.0, "gal/min", "m³/h"),
    (3.785412, 0.0, "L/min", "gal/min"),
    (2.204623, 0.0, "lb", "kg"),
    (1.341022, 0.0, "hp", "kW"),
)


@dataclass(frozen=True, eq=False)
class Units:
    """Offset and factor of every column of a domain: (value - offset) / factor is as in the sources."""

    offsets: Floats
    factors: Floats

    @classmethod
    def same(cls, n_features: int) -> Units:
        """Return the units of the sources."""
        return cls(np.zeros(n_features), np.ones(n_features))

    @property
    def other(self) -> Booleans:
        """Columns that are in other units."""
        return np.asarray((self.offsets != 0.0) | (self.factors != 1.0))

    def convert(self, X: Floats) -> Floats:
        """Return rows in the units of the sources; the same array if there is nothing to convert."""
        return (X - self.offsets) / self.factors if self.other.any() else X

    def revert(self, X: Floats) -> Floats:
        """Return rows of the sources' units in those of the domain."""
        return self.offsets + self.factors * X if self.other.any() else X

    def put(self, column: int, offset: float, factor: float) -> Units:
        """Return them with others of one column."""
        offsets, factors = self.offsets.copy(), self.factors.copy()
        offsets[column], factors[column] = offset, factor
        return Units(offsets, factors)

    def describe(self, column: int) -> str:
        """Return offset and factor of a column, and the unit if it is a known one."""
        offset, factor = float(self.offsets[column]), float(self.factors[column])
        reason = "another unit?"
        for one in _known_units():
            if (one.factor, one.offset) == (factor, offset):
                reason = f"{one.name} instead of {one.instead_of}: another unit?"
        sign = "−" if offset < 0.0 else "+"
        return f"about ×{_figure(factor)}, offset {sign}{_figure(abs(offset))} ({reason})"


def _figure(value: float) -> str:
    """Return three digits of a number, without an exponent."""
    return np.format_float_positional(float(f"{value:.2e}"), trim="-")


@dataclass(frozen=True)
class _Known:
    factor: float
    offset: float
    name: str
    instead_of: str


def _known_units() -> list[_Known]:
    """Return known units, both ways."""
    there = [_Known(*one) for one in _PAIRS]
    back = [_Known(1.0 / f, -o / f if o else 0.0, usual, name) for f, o, name, usual in _PAIRS]
    return [*there, *back]


@dataclass(frozen=True, eq=False)
class UsualColumns:
    """Centre and spread of the columns of sources, and how these differ between sources.

    Variances are moderated: drawn towards those of the other columns as far as columns are alike, which
    is worth some degrees of freedom (Smyth 2004).
    """

    centre: Floats  # mean of the sources' centres; NaN where no source varies
    spread: Floats  # geometric mean of their spreads
    centre_variance: Floats  # of a further domain, in units of the spread
    centre_df: Floats
    log_variance: Floats  # of the logarithm of a further domain's spread
    log_df: Floats
    #: Part of the variance that is between classes: a target may show one class only.
    between: Floats

    @classmethod
    def of(cls, table: SourceTable) -> UsualColumns:
        """Measure the sources."""
        centres, spreads, between = measure_columns(table)
        return cls.from_sources(centres, spreads, between)

    @classmethod
    def from_sources(cls, centres: Floats, spreads: Floats, between: Floats) -> UsualColumns:
        """Measure centres and spreads of sources, NaN where a column does not vary."""
        there = ~np.isnan(spreads)
        n = there.sum(axis=0).astype(np.float64)
        logs = np.log(np.where(there, spreads, 1.0))
        mean_log = np.where(there, logs, 0.0).sum(axis=0) / np.maximum(n, 1.0)
        spread = np.where(n > 0.0, np.exp(mean_log), np.nan)
        centre = np.where(there, centres, 0.0).sum(axis=0) / np.where(n > 0.0, n, np.nan)
        df = np.maximum(n - 1.0, 0.0)
        with np.errstate(invalid="ignore"):
            steps = np.where(there, (centres - centre) / spread, 0.0)
            log_steps = np.where(there, logs - mean_log, 0.0)
        further = 1.0 + 1.0 / np.maximum(n, 1.0)
        found = [
            (further * variance, total)
            for variance, total in (_moderate(np.square(s).sum(axis=0), df) for s in (steps, log_steps))
        ]
        return cls(centre, spread, *found[0], *found[1], between)

    def surprise(self, centres: Floats, spreads: Floats) -> Floats:
        """Return how probable it is that centre or spread of a column are as far off as these."""
        with np.errstate(invalid="ignore", divide="ignore"):
            steps = np.abs(centres - self.centre) / self.spread / np.sqrt(self.centre_variance)
            logs = np.abs(np.log(spreads / self.spread)) / np.sqrt(self.log_variance)
        chances = [
            2.0 * student.sf(step, np.where(df > 0.0, df, np.nan))
            for step, df in ((steps, self.centre_df), (logs, self.log_df))
        ]
        return np.asarray(np.nan_to_num(2.0 * np.fmin(*chances), nan=1.0))

    def explain(
        self, column: int, centre: float, spread: float, n_rows: float = np.inf
    ) -> tuple[float, float]:
        """Return offset and factor with which a column of this centre and spread is as usual.

        Known units come first, the likeliest of those that are possible, then a factor alone, an offset
        alone, and both. With `n_rows` the domain is a target with this many values seen, perhaps
        of one class only.
        """
        usual, unit = float(self.centre[column]), float(self.spread[column])
        variances = [float(self.centre_variance[column]), float(self.log_variance[column])]
        if np.isfinite(n_rows):
            between = float(self.between[column])
            variances[0] += between + 1.0 / n_rows
            # The logarithm of a spread is that much too low if only one class is there.
            variances[1] += (0.5 * np.log1p(-min(between, 0.99))) ** 2 + 1.0 / n_rows
        widths = [
            float(student.ppf(0.5 + 0.5 * _CONFIDENCE, max(float(df[column]), 1.0))) * np.sqrt(variance)
            for df, variance in zip((self.centre_df, self.log_df), variances, strict=True)
        ]

        def misfit(factor: float, offset: float) -> float:
            """Return how far off the column still is, in units of what is possible."""
            step = ((centre - offset) / factor - usual) / unit / widths[0]
            log = np.log(spread / factor / unit) / widths[1]
            return float(max(abs(step), abs(log)))

        fits = [(misfit(one.factor, one.offset), one.factor, one.offset) for one in _known_units()]
        best = min(fits)
        if best[0] <= 1.0:
            return best[2], best[1]
        ratio = spread / unit
        if centre * usual > 0.0:
            # A factor shows in the centre, too: the more, the farther that is from 0.
            weights = np.array([(usual / unit / widths[0]) ** 2, widths[1] ** -2])
            logs = np.log([centre / usual, ratio])
            factor = float(np.exp(weights @ logs / weights.sum()))
            if misfit(factor, 0.0) <= 1.0:
                return 0.0, factor
        if misfit(1.0, centre - usual) <= 1.0:
            return centre - usual, 1.0
        return centre - ratio * usual, ratio


def measure_columns(table: SourceTable) -> tuple[Floats, Floats, Floats]:
    """Return centre and spread of the columns of every source, as if its classes were equally frequent.

    Both are NaN where a column does not vary or is missing. Also returns the part of the variance that
    is between classes, on average.
    """
    there = (table.counts > 0.0)[:, :, None]
    n = np.maximum(there.sum(axis=1), 1)
    centres = np.where(there, table.means, 0.0).sum(axis=1) / n
    within = table.deviations / np.maximum(table.counts, 1.0)[:, :, None]
    between = np.where(there, np.square(table.means - centres[:, None]), 0.0).sum(axis=1) / n
    total = np.where(there, within, 0.0).sum(axis=1) / n + between
    with np.errstate(invalid="ignore", divide="ignore"):
        share = between / total
        moves = table.varies & (total > 0.0)
    counts = np.maximum(moves.sum(axis=0), 1)
    return (
        np.where(moves, centres, np.nan),
        np.where(moves, np.sqrt(np.maximum(total, 0.0)), np.nan),
        np.where(moves, share, 0.0).sum(axis=0) / counts,
    )


def _moderate(sums: Floats, df: Floats) -> tuple[Floats, Floats]:
    """Return variances drawn towards those of all columns, and their degrees of freedom.

    `sums` are sums of squares with `df` degrees of freedom. Variances are taken to be drawn from a
    scaled inverse chi-squared distribution, whose parameters fit the moments of their logarithms.
    """
    known = df > 0.0
    variances = np.maximum(sums / np.where(known, df, 1.0), _TINY)
    if not known.any():
        return np.full_like(sums, np.nan), np.zeros_like(sums)
    half = 0.5 * df[known]
    logs = np.log(variances[known]) - digamma(half) + np.log(half)
    excess = -1.0
    if len(logs) > 1:
        excess = float(logs.var(ddof=1) - polygamma(1, half).mean())
    if excess <= 0.0:  # all columns are alike
        prior_df, prior = float(df[known].sum()), float(np.exp(logs.mean()))
    else:
        prior_df = 2.0 * _inverse_trigamma(excess)
        prior = float(np.exp(logs.mean() + digamma(0.5 * prior_df) - np.log(0.5 * prior_df)))
    total = df + prior_df
    return (df * variances + prior_df * prior) / total, total


def _inverse_trigamma(value: float) -> float:
    """Return x with ψ'(x) = value, by Newton's method on 1 / ψ', which is nearly linear and convex."""
    x = 0.5 + 1.0 / value
    for _ in range(50):
        found = float(polygamma(1, x))
        step = found * (1.0 - found / value) / float(polygamma(2, x))
        x += step
        if abs(step) <= 1e-10 * x:
            break
    return x


def find_other_units(table: SourceTable) -> list[Units]:
    """Return the units of every source, those of the others in columns in which it is like them.

    A column of a source is in another unit if its centre or spread are improbable, given the other
    sources, and if most of its values lie outside of theirs. That takes at least three others: two may
    agree by chance.
    """
    centres, spreads, between = measure_columns(table)
    n, d = centres.shape
    if n < 4:  # two others may agree by chance
        return [Units.same(d) for _ in range(n)]
    found = []
    for number in range(n):
        others, units = np.arange(n) != number, Units.same(d)
        usual = UsualColumns.from_sources(centres[others], spreads[others], between)
        centre, spread = centres[number], spreads[number]
        chance = usual.surprise(centre, spread)
        low, high = _least(table.lowest[others]), -_least(-table.highest[others])
        several = (~np.isnan(spreads[others])).sum(axis=0) > 2
        odd = several & (chance < _CHANCE / (n * d)) & _outside(centre, spread, low, high)
        for column in np.flatnonzero(odd).tolist():
            units = units.put(column, *usual.explain(column, centre[column], spread[column]))
        found.append(units)
    return found


def describe_units(units: list[Units], sources: list[Any], names: Any) -> list[str]:
    """Return a line for each column of a source that is in another unit than those of the others."""
    return [
        f"source {str(source)!r}, column {j if names is None else names[j]!r}: {one.describe(j)} of the "
        "other sources; converted"
        for source, one in zip(sources, units, strict=True)
        for j in np.flatnonzero(one.other).tolist()
    ]


def _least(table: Floats) -> Floats:
    return np.asarray(np.where(np.isnan(table), np.inf, table).min(axis=0))


def _outside(centre: Floats, spread: Floats, low: Floats, high: Floats) -> Booleans:
    """Tell whether less than half of centre ± spread lies between low and high."""
    with np.errstate(invalid="ignore"):
        inside = np.minimum(centre + spread, high) - np.maximum(centre - spread, low)
        return np.asarray(np.maximum(inside, 0.0) < spread)


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
        patience = find_patience(table.counts, table.repeats, table.varies)
        patience = np.where(table.constant, np.inf, patience)
        return cls(low, high, patience, width, UsualColumns.of(table))

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


def find_patience(counts: Floats, repeats: Floats, varies: Booleans) -> Floats:
    """Return after how many equal values columns are stuck; what repeats values in sources never is.

    Parameters
    ----------
    counts : array of shape (n_sources, n_classes)
        Rows of every class.
    repeats : array of shape (n_sources, n_classes, d)
        Rows with the value of the row before of their class.
    varies : array of shape (n_sources, d)
        Whether each column varies in each source.
    """
    # A column that is constant in a source was stuck or missing there, unless it is in all of them.
    counted = np.where(varies.any(axis=0), varies, True)[:, None]
    pairs = (np.maximum(counts - 1.0, 0.0)[:, :, None] * counted).sum(axis=0)
    repeats = repeats * counted
    repeating = (repeats.sum(axis=0) > _REPEATING * pairs).any(axis=0)
    patience = np.maximum(_ROWS, _TIMES_LONGER * repeats.max(axis=(0, 1)))
    return np.where(repeating, np.inf, patience)


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
        totals = self.values + self.missing + self.glitches
        stuck = (self.values >= _ROWS) & (stds < _STUCK * usual)
        doubtful = other | stuck | (self.trailing >= patience) | (self.glitches > 0.0)
        doubtful = (totals > 0.0) & (doubtful | (self.values + self.glitches == 0.0))
        for j in np.flatnonzero(doubtful).tolist():
            name, total = keys[j], totals[j]
            if self.values[j] + self.glitches[j] == 0.0:
                found[name] = "no value at all; a typical value is used instead"
            elif other[j]:
                found[name] = f"{units.describe(j)} of the sources; converted"
            elif self.glitches[j] > self.values[j]:
                found[name] = (
                    "most values are far outside of the sources; a typical value is used instead"
                )
            elif stuck[j]:
                found[name] = "hardly varies, unlike in the sources (stuck?)"
            elif self.trailing[j] >= patience[j]:
                found[name] = "has stopped varying, unlike in the sources (stuck?)"
            elif self.glitches[j] > 0.0:
                times = f"{self.glitches[j]:.0f} of {total:.0f} values"
                found[name] = f"{times} are far outside of the sources; they count as missing"
        return found


def last_values(before: Floats, rows: Floats) -> Floats:
    """Return the last values of each column, in order, missing ones left out; `before` has as many."""
    latest = rows[-len(before) :]
    if len(latest) == len(before) and not np.isnan(latest).any():
        return latest.copy()
    values = np.concatenate([before, rows])
    there = ~np.isnan(values)
    if not there.all():
        values = np.take_along_axis(values, np.argsort(there, axis=0, kind="stable"), axis=0)
    return values[-len(before) :]


def describe_new_faults(before: dict[Any, str], now: dict[Any, str]) -> str:
    """Return a description of the columns that were in order until now; empty if there are none."""
    new = [name for name in now if name not in before]
    alike: dict[str, list[str]] = {}
    for name in new[:_NAMED]:
        alike.setdefault(now[name], []).append(repr(name))
    words = "; ".join(
        f"{'column' if len(names) == 1 else 'columns'} {', '.join(names)}: {found}"
        for found, names in alike.items()
    )
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
