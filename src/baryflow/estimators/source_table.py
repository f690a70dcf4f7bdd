"""Sources in numbers: rows of every class of every source, where they lie and how far apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from baryflow.validation import Booleans, Floats, Integers

#: A column whose std is below this part of its largest value does not vary.
_ROUNDING = 1e-10
#: A column of a source that varies by less than this part of what is usual does not vary there.
_STILL = 1e-6


@dataclass(frozen=True, eq=False)
class SourceTable:
    """Counts, means and squared deviations of every class of every source, and how far columns reach.

    All that is needed of rows to standardise them: what follows from it is the same wherever the rows
    themselves are.
    """

    counts: Floats  # (n_sources, n_classes)
    means: Floats  # (n_sources, n_classes, d); 0 for a class that a source lacks
    deviations: Floats  # sums of squared deviations from these means, of the same shape
    lowest: Floats  # (d,)
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
            np.min([X.min(axis=0) for X in rows], axis=0),
            np.max([X.max(axis=0) for X in rows], axis=0),
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
    def pooled_shares(self) -> Floats:
        """Class proportions of all rows together."""
        return np.asarray(self.counts.sum(axis=0) / self.counts.sum())

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
        largest = np.maximum(np.abs(self.lowest), np.abs(self.highest))
        return np.asarray(self.std <= _ROUNDING * largest)

    @cached_property
    def scale(self) -> Floats:
        """Standard deviation of all rows, 1 for columns that are constant."""
        return np.where(self.constant, 1.0, self.std)

    @cached_property
    def spreads(self) -> Floats:
        """Units in which the rows of every source are standardised, shape (n_sources, d)."""
        return varying(self.source_stds, self.scale)

    @cached_property
    def within(self) -> Floats:
        """Standard deviation around the class in its source, never quite nothing."""
        found = np.sqrt(self.deviations.sum(axis=(0, 1)) / self.counts.sum())
        found = np.maximum(found, 1e-3 * self.std)
        return np.where(found > 0.0, found, 1.0)

    def standardise(self, X: Floats, number: int) -> Floats:
        """Return rows of a source around its mean, in units of its stds."""
        return np.asarray((X - self.source_means[number]) / self.spreads[number])


def varying(stds: Floats, usual: Floats) -> Floats:
    """Return the stds of columns, or the usual ones where a column does not vary."""
    return np.where(stds > _STILL * usual, stds, usual)


def spread(X: Floats, usual: Floats) -> Floats:
    """Return the std of each column of some rows, or the usual one where the column does not vary."""
    return varying(X.std(axis=0), usual)
