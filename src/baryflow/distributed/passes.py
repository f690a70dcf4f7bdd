"""The second and the third look at all rows: how classes spread, mixtures of them, and a sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from baryflow.core.discriminant import Scatter
from baryflow.core.em import Reference, distinct_rows, fit_rows
from baryflow.core.mixture import Mixture
from baryflow.core.reduction import reduce_components
from baryflow.distributed.blocks import Reader
from baryflow.distributed.census import Roll
from baryflow.estimators.source_table import SourceTable
from baryflow.estimators.sources import LabelledRows, Outlook
from baryflow.validation import Floats, Integers

#: Components of a cell in summaries of many pieces, for each component that it gets in the end.
FINENESS = 4
#: Rows for each component, and steps of EM for the mixture of a cell in one piece.
_ROWS_PER_COMPONENT, _STEPS = 5, 20
#: A component's std is at least this part of the usual spread within a class.
_FLOOR = 1e-2
#: Of every class of every source at least so many rows are in the sample, if there are so many.
LEAST = 200
#: Rows of a class that are kept of a source, however rare the class is there, where sources play.
_FEW = 20


# -- how classes spread ----------------------------------------------------------------------------


def measure_piece(reader: Reader, piece: Any, roll: Roll) -> Scatter:
    """Return how the rows of a piece spread around the classes of their sources."""
    table, unknown = roll.table, np.zeros(0)  # classes are known from the census
    d = len(table.centre)
    found = [Scatter(0, np.zeros((d, d)), 0.0, unknown, unknown)]
    for block in reader.blocks(piece):
        X, codes, whose = roll.place(block)
        residuals = (X - table.means[whose, codes]) / table.spreads[whose]
        lengths = np.vecdot(residuals, residuals)
        found.append(
            Scatter(len(X), residuals.T @ residuals, float(lengths @ lengths), unknown, unknown)
        )
    return add_scatters(found)


def add_scatters(some: list[Scatter]) -> Scatter:
    """Return the sum; the order is that of the list."""
    return reduce(add, some)


def complete_scatter(scatter: Scatter, table: SourceTable) -> Scatter:
    """Return the scatter with what the table knows of the classes."""
    steps = (table.means - table.source_means[:, None]) / table.spreads[:, None]
    sums = np.einsum("lc,lcd->cd", table.counts, steps)
    return Scatter(scatter.n_rows, scatter.within, scatter.fourth, table.counts.sum(axis=0), sums)


# -- mixtures --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Components:
    """Gaussians in the coordinates of the mixtures, each of a class of a source.

    Attributes
    ----------
    cells : array of shape (n,)
        source · n_classes + class, in rising order.
    masses : array of shape (n,)
    means, stds : array of shape (n, p)
    """

    cells: Integers
    masses: Floats
    means: Floats
    stds: Floats

    @classmethod
    def none(cls, p: int) -> Components:
        """Return no components."""
        return cls(np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros((0, p)), np.zeros((0, p)))

    @classmethod
    def of(cls, mixtures: list[tuple[int, Mixture]], p: int) -> Components:
        """Return the components of the mixtures of some cells, which come in rising order."""
        if not mixtures:
            return cls.none(p)
        return cls(
            np.concatenate([np.full(m.n_components, cell) for cell, m in mixtures]).astype(np.intp),
            np.concatenate([m.mass * m.weights for _, m in mixtures]),
            np.concatenate([m.means for _, m in mixtures]),
            np.concatenate([m.stds for _, m in mixtures]),
        )

    def __iter__(self) -> Iterator[tuple[int, slice]]:
        """Yield every cell and where its components stand."""
        cells, starts, counts = np.unique(self.cells, return_index=True, return_counts=True)
        for cell, start, n in zip(cells.tolist(), starts.tolist(), counts.tolist(), strict=True):
            yield cell, slice(start, start + n)

    def reduced(self, most: int) -> Components:
        """Return at most so many components for each cell."""
        p = self.means.shape[1]
        return Components.of([(cell, self._mixture(some, most)) for cell, some in self], p)

    def mixtures(self, most: int) -> dict[int, Mixture]:
        """Return the mixture of each cell."""
        return {cell: self._mixture(some, most) for cell, some in self}

    def _mixture(self, some: slice, most: int) -> Mixture:
        return reduce_components(
            self.masses[some], self.means[some], self.stds[some], most, std_floor=0.0
        )


def merge_components(some: list[Components], most: int) -> Components:
    """Return all components, those of each cell merged into at most so many."""
    cells = np.concatenate([one.cells for one in some])
    order = np.argsort(cells, kind="stable")
    together = Components(
        cells[order],
        np.concatenate([one.masses for one in some])[order],
        np.concatenate([one.means for one in some])[order],
        np.concatenate([one.stds for one in some])[order],
    )
    return together.reduced(most)


# -- the sample ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sample:
    """Complete rows drawn from all, and the cell of each."""

    cells: Integers
    X: Floats

    def labelled(self, table: SourceTable, *, evenly: bool = False) -> LabelledRows:
        """Return the rows by source, each standing for as many as were left out on its behalf.

        With `evenly` rows of classes that are over-represented are left out instead, down to a few, so
        that every source has its own mix.
        """
        n_sources, n_classes = table.counts.shape
        drawn = np.bincount(self.cells, minlength=n_sources * n_classes)
        standing = table.counts.ravel() / np.maximum(drawn, 1)
        keep = self._thinned(drawn, standing, n_classes) if evenly else slice(None)
        cells, X = self.cells[keep], self.X[keep]
        order = np.argsort(cells // n_classes, kind="stable")
        cells, X = cells[order], X[order]
        ends = np.cumsum(np.bincount(cells // n_classes, minlength=n_sources))[:-1]
        weights = None
        if not evenly and len(cells) < table.counts.sum():
            weights = standing[cells] * (len(cells) / standing[cells].sum())
        return LabelledRows(np.split(X, ends), np.split(cells % n_classes, ends), weights)

    def _thinned(self, drawn: Integers, standing: Floats, n_classes: int) -> Any:
        """Tell which rows to keep, so that all rows of a source stand for about as many."""
        most = standing.reshape(-1, n_classes).max(axis=1).repeat(n_classes)
        share = np.maximum(standing / most, np.minimum(1.0, _FEW / np.maximum(drawn, 1)))
        number = np.empty(len(self.cells))
        order = np.argsort(self.cells, kind="stable")
        starts = np.cumsum(drawn) - drawn
        number[order] = np.arange(len(order)) - starts[self.cells[order]]
        return np.floor((number + 1) * share[self.cells]) > np.floor(number * share[self.cells])


def fractions(table: SourceTable, n_rows: int) -> Floats:
    """Return which part of every class of every source is drawn into a sample of about `n_rows`."""
    counts = np.maximum(table.counts, 1.0)
    even = n_rows / table.counts.sum()
    return np.asarray(np.minimum(1.0, np.maximum(even, LEAST / counts)))


def concatenate(some: list[Sample]) -> Sample:
    """Return all rows."""
    return Sample(np.concatenate([s.cells for s in some]), np.concatenate([s.X for s in some]))


# -- both at once ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Described:
    """What the third look gives: mixtures of cells that are too large for the sample, and the sample."""

    components: Components
    sample: Sample


def describe_piece(
    reader: Reader,
    piece: Any,
    number: int,
    roll: Roll,
    outlook: Outlook,
    *,
    n_components: int,
    n_rows: int,
    seed: int,
) -> Described:
    """Return mixtures of the cells of a piece, and its part of the sample.

    Parameters
    ----------
    number : int
        Of the piece: draws depend on it and the seed, and on nothing else.
    n_components : int
        Of each class of each source in the end.
    n_rows : int
        Of the sample.
    """
    n_classes = roll.table.n_classes
    drawn = fractions(roll.table, n_rows)
    rng = np.random.default_rng([seed, number])
    cells: list[Integers] = []
    seen: list[Floats] = []
    samples = [Sample(np.zeros(0, dtype=np.intp), np.zeros((0, len(roll.table.centre))))]
    for block in reader.blocks(piece):
        X, codes, whose = roll.place(block)
        mine = whose * n_classes + codes
        lucky = rng.random(len(X)) < drawn[whose, codes]
        samples.append(Sample(mine[lucky], X[lucky]))
        # Cells of which every row is in the sample are described from it.
        for source in np.unique(whose):
            some = (whose == source) & (drawn[whose, codes] < 1.0)
            cells.append(mine[some])
            seen.append(outlook.see(X[some], int(source)))
    p = len(outlook.unit)
    components = Components.none(p)
    if cells and sum(map(len, cells)):
        components = _mix(np.concatenate(cells), np.concatenate(seen), outlook.unit, n_components, seed)
    return Described(components, concatenate(samples))


def _mix(cells: Integers, V: Floats, unit: Floats, n_components: int, seed: int) -> Components:
    found = []
    for cell in np.unique(cells).tolist():
        mine = V[cells == cell]
        k = min(FINENESS * n_components, max(1, len(mine) // _ROWS_PER_COMPONENT))
        rows, weights = distinct_rows(mine, np.ones(len(mine)))
        sweep = fit_rows(
            rows,
            weights,
            Reference(mine.mean(axis=0), unit),
            min_components=k,
            max_iter=_STEPS,
            std_floor=_FLOOR,
            rng=np.random.default_rng(seed),
        )
        found.append((cell, sweep.mixture))
    return Components.of(found, V.shape[1])
