"""Columns in other units: an offset and a factor of one domain, unlike those of the sources.

Every domain has its own calibration, so its columns have their own centre and spread. How much these
differ between the sources says what is usual. A column that is farther off than chance explains is in
another unit, or another sensor: it is named with offset and factor, and converted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import digamma, polygamma
from scipy.stats import t as student

from baryflow.estimators._source_table import SourceTable
from baryflow.validation import Booleans, Floats

#: A column is in another unit if chance explains its offset or factor less often than this, in all
#: columns of all sources together.
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
        f"column {j if names is None else names[j]!r} of source {source!r} is {one.describe(j)} of the "
        "other sources; it is converted"
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
