"""The sources in numbers: counts and moments of every class of every source, and what they imply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from baryflow.validation import Booleans, Floats, Integers

#: A column whose std is below this part of its largest value does not vary.
_ROUNDING = 1e-10
#: A column of a source that varies by less than this part of what is usual does not vary there.
_STILL = 1e-6
#: Standardised, a column with this variance does not vary; raw, one with this part of the usual std.
_NO_VARIANCE, _FLAT = 1e-6, 1e-6
#: A column's variance for given class proportions, as a part of that for the sources', is at least:
_LEAST_VARIANCE = 1e-3


@dataclass(frozen=True, eq=False)
class SourceTable:
    """Counts, means and squared deviations of every class of every source, and the ranges of columns.

    It is all that standardising needs, so it can be computed where the rows are.
    """

    counts: Floats  # (n_sources, n_classes)
    means: Floats  # (n_sources, n_classes, d); 0 for a class that a source lacks
    deviations: Floats  # sums of squared deviations from these means, of the same shape
    lowest: Floats  # (n_sources, d)
    highest: Floats
    repeats: Floats  # (n_sources, n_classes, d): rows with the value of the row before of their class

    @classmethod
    def of(cls, rows: list[Floats], codes: list[Integers], n_classes: int) -> SourceTable:
        """Measure complete rows, a list entry for each source."""
        d = rows[0].shape[1]
        counts = np.stack([np.bincount(y, minlength=n_classes) for y in codes]).astype(np.float64)
        means, deviations, repeats = np.zeros((3, len(rows), n_classes, d))
        for number, (X, y) in enumerate(zip(rows, codes, strict=True)):
            for c in np.flatnonzero(counts[number]):
                members = X[y == c]
                means[number, c] = members.mean(axis=0)
                deviations[number, c] = np.square(members - means[number, c]).sum(axis=0)
                repeats[number, c] = (members[1:] == members[:-1]).sum(axis=0)
        return cls(
            counts,
            means,
            deviations,
            np.stack([X.min(axis=0) for X in rows]),
            np.stack([X.max(axis=0) for X in rows]),
            repeats,
        )

    @property
    def n_classes(self) -> int:
        """Classes that there are."""
        return int(self.counts.shape[1])

    @cached_property
    def shares(self) -> Floats:
        """Class proportions of every source."""
        return np.asarray(self.counts / self.counts.sum(axis=1, keepdims=True))

    @cached_property
    def source_means(self) -> Floats:
        """Mean of every source, shape (n_sources, d)."""
        return np.asarray(np.einsum("lc,lcd->ld", self.shares, self.means))

    @cached_property
    def source_stds(self) -> Floats:
        """Standard deviation of every source, shape (n_sources, d)."""
        steps = self.means - self.source_means[:, None]
        between = np.einsum("lc,lcd->ld", self.shares, np.square(steps))
        within = self.deviations.sum(axis=1) / self.counts.sum(axis=1, keepdims=True)
        return np.asarray(np.sqrt(between + within))

    @cached_property
    def centre(self) -> Floats:
        """Mean of all rows."""
        totals = self.counts.sum(axis=1)
        return np.asarray(totals / totals.sum() @ self.source_means)

    @cached_property
    def std(self) -> Floats:
        """Standard deviation of all rows."""
        totals = self.counts.sum(axis=1)
        squares = np.square(self.source_stds) + np.square(self.source_means - self.centre)
        return np.asarray(np.sqrt(totals / totals.sum() @ squares))

    @cached_property
    def constant(self) -> Booleans:
        """Columns that are constant, or vary by rounding alone."""
        largest = np.maximum(np.abs(self.lowest), np.abs(self.highest)).max(axis=0)
        return np.asarray(self.std <= _ROUNDING * largest)

    @cached_property
    def scale(self) -> Floats:
        """Standard deviation of all rows, 1 for columns that are constant."""
        return np.where(self.constant, 1.0, self.std)

    @cached_property
    def varies(self) -> Booleans:
        """Whether each column varies in each source, shape (n_sources, d)."""
        return np.asarray(self.source_stds > _STILL * self.scale)

    @cached_property
    def spreads(self) -> Floats:
        """Units in which the rows of every source are standardised, shape (n_sources, d)."""
        return varying(self.source_stds, self.scale)

    def standardise(self, X: Floats, number: int) -> Floats:
        """Return rows of a source around its mean, in units of its stds."""
        Z: Floats = X - self.source_means[number]
        Z /= self.spreads[number]
        return Z


def varying(stds: Floats, usual: Floats) -> Floats:
    """Return the stds of columns, or the usual ones where a column does not vary."""
    return np.where(stds > _STILL * usual, stds, usual)


def spread(X: Floats, usual: Floats) -> Floats:
    """Return the std of each column of some rows, or the usual one where the column does not vary."""
    return varying(X.std(axis=0), usual)


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """First two moments of every class in the standardised columns of every source, and calibrations.

    Standardised means: with the source's own centre and scale, those it would have if its classes were
    as frequent as in the sources on average.
    """

    means: Floats  # (n_sources, n_classes, d)
    squares: Floats  # mean squares, of the same shape
    proportions: Floats  # the sources' mean class proportions
    centre: Floats  # of the pooled sources, (d,)
    scale: Floats
    centres: Floats  # (n_sources, d): of each source, in units of the pooled scale
    log_scales: Floats  # (n_sources, d): logarithms of each source's scale, in the same units

    @classmethod
    def of(cls, table: SourceTable, proportions: Floats) -> ClassMoments:
        """Take them from the sources; a class or column that a source lacks is what it is elsewhere."""
        spreads = table.spreads[:, None]
        # A column that does not vary in a source, or that it lacks, shows nothing of the classes there.
        absent = (table.counts[:, :, None] == 0.0) | ~table.varies[:, None]
        means = (table.means - table.source_means[:, None]) / spreads
        variances = table.deviations / np.maximum(table.counts[:, :, None], 1.0) / np.square(spreads)
        squares = _fill(np.where(absent, np.nan, variances + np.square(means)))
        means = _fill(np.where(absent, np.nan, means))
        none = np.zeros_like(table.source_means)
        plain = cls(means, squares, proportions, table.centre, table.scale, none, none)
        found = [
            plain._solve(mean, np.square(std), share)[:2]
            for mean, std, share in zip(table.source_means, table.spreads, table.shares, strict=True)
        ]
        centres = np.stack([(centre - table.centre) / table.scale for centre, _ in found])
        log_scales = np.log(np.stack([scale for _, scale in found]) / table.scale)
        return replace(plain, centres=centres, log_scales=log_scales)

    @cached_property
    def places(self) -> Floats:
        """Mean of every class of every source, in columns that have mean 0 and variance 1 in it.

        As they have if its classes are as frequent as in the sources on average.
        """
        base_means, base = self._base
        return np.asarray((self.means - base_means[:, None]) / np.sqrt(base)[:, None])

    @cached_property
    def _base(self) -> tuple[Floats, Floats]:
        """Mean and variance of the columns of every source for the sources' mean proportions."""
        return self._mix(self.proportions, _NO_VARIANCE)

    @cached_property
    def usual(self) -> tuple[Floats, Floats]:
        """Centre and scale that are usual among the sources."""
        centre = self.centre + self.scale * self.centres.mean(axis=0)
        return centre, self.scale * np.exp(self.log_scales.mean(axis=0))

    @cached_property
    def _variances(self) -> tuple[Floats, Floats]:
        return _variance(self.centres), _variance(self.log_scales)

    def at(self, mean: Floats, variance: Floats, shares: Floats, mass: float) -> tuple[Floats, Floats]:
        """Return centre and scale of a target with this mean, variance and class proportions.

        For proportions q, with M and S² the means and mean squares of the classes, the target's mean is
        centre + scale · m(q) and its variance scale² · v(q), where m(q) = Σ q_c M_c and
        v(q) = Σ q_c S_c² − m(q)². Both are solved for, and each is drawn towards what is usual among
        the sources as far as it is uncertain: by how differently the sources answer for m(q) and v(q),
        and by how few rows were seen. For the sources' own proportions they all answer alike.

        `shares` may be a stack of proportions, shape (..., n_classes).
        """
        centre, scale, centre_doubt, scale_doubt = self._solve(mean, variance, shares)
        centre_variance, scale_variance = self._variances
        usual_centre, usual_scale = self.usual
        # A column that did not vary says nothing of its scale, and neither does a single row.
        blind = (variance <= np.square(_FLAT * self.scale)) | (mass <= 1.0)
        scale_doubt = np.where(blind, np.inf, scale_doubt + 1.0 / (2.0 * mass))
        belief = _share(scale_variance, scale_doubt)
        drawn = np.exp(belief * np.log(scale) + (1.0 - belief) * np.log(usual_scale))
        # The step from the mean to the centre is in units of the scale.
        centre = mean + (centre - mean) / scale * drawn
        doubt = (centre_doubt + 1.0 / mass) * np.square(drawn / self.scale)
        belief = _share(centre_variance, doubt)
        return belief * centre + (1.0 - belief) * usual_centre, drawn

    def _solve(
        self, mean: Floats, variance: Floats, shares: Floats
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Return centre and scale as the sources have it on average, and how they differ about it."""
        base_means, base = self._base
        means, variances = self._mix(shares, np.maximum(_LEAST_VARIANCE * base, _NO_VARIANCE))
        steps = (means - base_means) / np.sqrt(base)
        ratios = 0.5 * np.log(variances / base)
        floor = np.square(_FLAT * self.scale)
        scale = np.sqrt(np.maximum(variance, floor)) / np.exp(ratios.mean(axis=-2))
        zero = np.zeros_like(scale)
        several = steps.shape[-2] > 1
        return (
            mean - scale * steps.mean(axis=-2),
            scale,
            steps.var(axis=-2, ddof=1) if several else zero,
            ratios.var(axis=-2, ddof=1) if several else zero,
        )

    def _mix(self, shares: Floats, floor: Floats | float) -> tuple[Floats, Floats]:
        """Return mean and variance of the columns of every source, had it these proportions."""
        # One source at a time: their tables stand together, and may be large.
        means = np.stack([shares @ one for one in self.means], axis=-2)
        variances = np.stack([shares @ one for one in self.squares], axis=-2) - np.square(means)
        return means, np.maximum(variances, floor)


def _fill(table: Floats) -> Floats:
    counts = (~np.isnan(table)).sum(axis=0)
    usual = np.nansum(table, axis=0) / np.maximum(counts, 1)
    return np.where(np.isnan(table), usual, table)


def _variance(table: Floats) -> Floats:
    """Return the variance over sources of each column, as if one source more had that of all columns."""
    if len(table) < 2:
        return np.ones(table.shape[1])  # unknown: about one std, which rows soon overrule
    found = table.var(axis=0, ddof=1)
    n = len(table)
    return np.asarray(((n - 1) * found + found.mean()) / n)


def _share(variance: Floats, doubt: Floats) -> Floats:
    return variance / np.maximum(variance + doubt, np.finfo(np.float64).tiny)
