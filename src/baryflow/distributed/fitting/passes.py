"""The second and the third look at all rows: how classes spread and a sample, then mixtures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.core.discriminant import Scatter
from baryflow.core.mixture import Mixture
from baryflow.distributed.blocks import Reader
from baryflow.distributed.fitting.census import Roll
from baryflow.distributed.fitting.draws import as_shares, draw
from baryflow.estimators._source_table import SourceTable
from baryflow.estimators._sources import LabelledRows, Outlook
from baryflow.validation import Floats, Integers

#: Of every class of every source about so many rows, or more, are in the sample if there are so many:
#: each is drawn by itself, so that it may be some fewer ...
LEAST = 200
#: ... unless this would make the sample so many times as large as was asked for: the memory of a worker
#: must do, however many sources there are.
_AT_MOST = 4
#: Rows of a class that are kept of a source, however rare the class is there.
_FEW = 20
#: A component's std is at least this part of the usual spread within a class.
_FLOOR = 1e-2


# -- a sample, and how classes spread ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sample:
    """Complete rows drawn from all, the cell of each, and the lot that it has drawn."""

    cells: Integers
    lots: NDArray[np.uint64]
    X: Floats

    @classmethod
    def none(cls, n_features: int) -> Sample:
        """Return no rows."""
        return cls(np.zeros(0, np.intp), np.zeros(0, np.uint64), np.zeros((0, n_features)))

    def labelled(self, table: SourceTable, *, evenly: bool = False) -> LabelledRows:
        """Return the rows by source.

        With `evenly`, rows of over-represented classes are left out, down to a few, so that every
        source has its own class proportions.
        """
        n_sources, n_classes = table.counts.shape
        complete = len(self.cells) == table.counts.sum()
        # All rows stay in their order, as in memory. That of a sample is of no account, and the same in
        # any pieces and any order of rows.
        sample = self if complete else self._without_gaps(table)
        order = slice(None) if complete else np.argsort(sample.lots, kind="stable")
        cells, X = sample.cells[order], sample.X[order]
        drawn = np.bincount(cells, minlength=n_sources * n_classes)
        snapshot = table.counts.ravel() / np.maximum(drawn, 1)
        if evenly:
            keep = _thin(cells, drawn, snapshot, n_classes)
            cells, X = cells[keep], X[keep]
        order = np.argsort(cells // n_classes, kind="stable")
        cells, X = cells[order], X[order]
        ends = np.cumsum(np.bincount(cells // n_classes, minlength=n_sources))[:-1]
        return LabelledRows(np.split(X, ends), np.split(cells % n_classes, ends), n_classes)

    def _without_gaps(self, table: SourceTable) -> Sample:
        """Let the mean stand for cells of which nobody was drawn.

        Equal rows in many pieces all draw the same lot: their mean is what they are.
        """
        drawn = np.bincount(self.cells, minlength=table.counts.size)
        gaps = np.flatnonzero((drawn == 0) & (table.counts.ravel() > 0.0))
        means = table.means.reshape(-1, self.X.shape[1])[gaps]
        return Sample(
            np.concatenate([self.cells, gaps]),
            np.concatenate([self.lots, draw(means, 0)]),
            np.concatenate([self.X, means]),
        )


def _thin(cells: Integers, drawn: Integers, snapshot: Floats, n_classes: int) -> Any:
    """Tell which rows to keep, so that all rows of a source stand for about as many."""
    most = snapshot.reshape(-1, n_classes).max(axis=1).repeat(n_classes)
    share = np.maximum(snapshot / most, np.minimum(1.0, _FEW / np.maximum(drawn, 1)))
    number = np.empty(len(cells))  # of each row among those of its cell
    order = np.argsort(cells, kind="stable")
    number[order] = np.arange(len(order)) - (np.cumsum(drawn) - drawn)[cells[order]]
    return np.floor((number + 1) * share[cells]) > np.floor(number * share[cells])


def fractions(table: SourceTable, n_rows: int) -> Floats:
    """Return which part of every class of every source is drawn into a sample of about `n_rows`."""
    counts = np.maximum(table.counts, 1.0)
    even = n_rows / table.counts.sum()
    least = np.clip(_AT_MOST * n_rows / np.count_nonzero(table.counts), _FEW, LEAST)
    return np.asarray(np.minimum(1.0, np.maximum(even, least / counts)))


@dataclass(frozen=True, eq=False)
class Second:
    """What the second look gives."""

    scatter: Scatter  # around the classes of the sources, which are known from the census
    sample: Sample


def look_again(reader: Reader, piece: Any, roll: Roll, *, n_rows: int, seed: int) -> Second:
    """Return how the rows of a piece spread around their classes, and its part of the sample.

    `n_rows`, about, are drawn from all rows together; who is drawn depends on the rows and the seed.
    """
    table, unknown = roll.table, np.zeros(0)
    d, drawn = len(table.centre), fractions(table, n_rows)
    scatters = [Scatter(0, np.zeros((d, d)), 0.0, unknown, unknown)]
    samples = [Sample.none(d)]
    for block in reader.blocks(piece):
        X, codes, whose = roll.place(block)
        residuals = (X - table.means[whose, codes]) / table.spreads[whose]
        lengths = np.vecdot(residuals, residuals)
        scatters.append(
            Scatter(len(X), residuals.T @ residuals, float(lengths @ lengths), unknown, unknown)
        )
        lots = draw(block.X, seed)
        lucky = as_shares(lots) < drawn[whose, codes]
        cells = whose * table.n_classes + codes
        samples.append(Sample(cells[lucky], lots[lucky], X[lucky]))
    return merge_second([Second(*both) for both in zip(scatters, samples, strict=True)])


def merge_second(some: list[Second]) -> Second:
    """Return the sums and all rows, in the order of the list."""
    return Second(
        reduce(add, (one.scatter for one in some)),
        Sample(
            np.concatenate([one.sample.cells for one in some]),
            np.concatenate([one.sample.lots for one in some]),
            np.concatenate([one.sample.X for one in some]),
        ),
    )


def complete_scatter(scatter: Scatter, table: SourceTable) -> Scatter:
    """Return the scatter with what the table knows of the classes."""
    steps = (table.means - table.source_means[:, None]) / table.spreads[:, None]
    sums = np.einsum("lc,lcd->cd", table.counts, steps)
    return Scatter(scatter.n_rows, scatter.within, scatter.fourth, table.counts.sum(axis=0), sums)


# -- mixtures --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Mixtures:
    """Mixtures of cells, all with the same number of components; those that are none have no weight.

    Attributes
    ----------
    cells : array of shape (n,)
        source · n_classes + class, in rising order.
    weights : array of shape (n, m)
    means, stds : array of shape (n, m, p)
    """

    cells: Integers
    weights: Floats
    means: Floats
    stds: Floats

    @classmethod
    def of(cls, found: dict[int, Mixture], m: int, p: int) -> Mixtures:
        """Put the mixtures of cells side by side."""
        n = len(found)
        weights, means, stds = np.zeros((n, m)), np.zeros((n, m, p)), np.ones((n, m, p))
        for row, cell in enumerate(sorted(found)):
            mixture = found[cell]
            k = mixture.n_components
            weights[row, :k], means[row, :k], stds[row, :k] = (
                mixture.weights,
                mixture.means,
                mixture.stds,
            )
        return cls(np.array(sorted(found), dtype=np.intp), weights, means, stds)


@dataclass(frozen=True, eq=False)
class Sums:
    """What rows say of the components of mixtures: sums over rows, relative to the means there were."""

    masses: Floats  # (n, m)
    steps: Floats  # (n, m, p)
    squares: Floats

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.masses + other.masses, self.steps + other.steps, self.squares + other.squares)

    def improve(self, start: Mixtures, unit: Floats) -> dict[int, Mixture]:
        """Return the mixtures after this step of EM, which is exact: as if all rows were at hand."""
        found = {}
        for row, cell in enumerate(start.cells.tolist()):
            alive = self.masses[row] > 0.0
            masses = self.masses[row, alive]
            steps = self.steps[row, alive] / masses[:, None]
            variances = self.squares[row, alive] / masses[:, None] - np.square(steps)
            stds = np.sqrt(np.maximum(variances, np.square(_FLOOR * unit)))
            means = start.means[row, alive] + steps
            found[cell] = Mixture(masses / masses.sum(), means, stds, mass=float(masses.sum()))
        return found


def sum_up(reader: Reader, piece: Any, roll: Roll, outlook: Outlook, start: Mixtures) -> Sums:
    """Return what the rows of a piece say of the components of their cells."""
    total = Sums(*(np.zeros_like(like) for like in (start.weights, start.means, start.means)))
    if not len(start.cells):
        return total  # all rows are in the sample
    row_of = np.full(roll.table.counts.size, -1)
    row_of[start.cells] = np.arange(len(start.cells))
    with np.errstate(divide="ignore"):  # no weight, no membership
        log_weights = np.log(start.weights)
    for block in reader.blocks(piece):
        X, codes, whose = roll.place(block)
        rows = row_of[whose * roll.table.n_classes + codes]
        wanted = np.flatnonzero(rows >= 0)
        order = wanted[np.argsort(whose[wanted], kind="stable")]
        sources, starts = np.unique(whose[order], return_index=True)
        for source, some in zip(sources.tolist(), np.split(order, starts)[1:], strict=True):
            _add_rows(total, outlook.see(X[some], source), rows[some], start, log_weights)
    return total


def _add_rows(total: Sums, V: Floats, rows: Integers, start: Mixtures, log_weights: Floats) -> None:
    """Add rows of a source where they belong: with many sources, most cells are of others."""
    order = np.argsort(rows, kind="stable")
    V, rows = V[order], rows[order]
    present, starts = np.unique(rows, return_index=True)
    steps = V[:, None] - start.means[rows]  # (n, m, p)
    stds = start.stds[rows]
    logs = log_weights[rows] - np.log(stds).sum(axis=2)
    logs -= 0.5 * np.square(steps / stds).sum(axis=2)
    memberships = np.exp(logs - logs.max(axis=1, keepdims=True))
    memberships /= memberships.sum(axis=1, keepdims=True)
    steps *= memberships[:, :, None]
    total.masses[present] += np.add.reduceat(memberships, starts, axis=0)
    total.steps[present] += np.add.reduceat(steps, starts, axis=0)
    steps *= V[:, None] - start.means[rows]
    total.squares[present] += np.add.reduceat(steps, starts, axis=0)


def add_sums(some: list[Sums]) -> Sums:
    """Return the sum; the order is that of the list."""
    return reduce(add, some)
