"""The three passes of a fit over all rows: statistics, then scatter and a sample, then a step of EM.

Each pass computes a small summary of every partition, and merges the summaries in a tree. A *cell* is a
class of a domain. Tasks use one thread, because the bits of a sum depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.core.discriminant import Scatter
from baryflow.core.mixture import Mixture
from baryflow.distributed.fitting.partitions import OUT_OF_RANGE, Block, Reader
from baryflow.estimators._domains import name_sources
from baryflow.estimators._sensors import Units, find_other_units
from baryflow.estimators._source_table import SourceTable
from baryflow.estimators._sources import LabelledRows, Outlook, average_sources, require_columns
from baryflow.estimators._threads import one_thread
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers

_Hashes = NDArray[np.uint64]
#: Maximum number of classes, and of domains.
_MAX_NAMES = 10_000
#: The sample holds about this many rows of every cell, or all of a smaller cell. Rows are drawn
#: independently, so it may be a few less ...
ROWS_PER_CELL = 200
#: ... unless the sample would grow beyond this multiple of its intended size: it must fit into the
#: memory of a worker, however many sources there are.
_MAX_GROWTH = 4
#: Rows of a cell that are sampled in any case, and kept when over-represented classes are thinned.
_MIN_ROWS_PER_CELL = 20
#: Lower bound of a component's std, relative to the spread within classes.
_STD_FLOOR = 1e-2
#: Odd 64-bit constants without a pattern: the golden ratio, and roots of small primes.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_COPY_FACTOR = np.uint64(0xBB67AE8584CAA73B)
_MIX_FACTOR = np.uint64(0xA54FF53A5F1D36F1)


# -- pass 1: statistics of every cell ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CellStatistics:
    """Counts and moments of every cell, of some rows or of all."""

    domains: list[Any]  # of each cell
    labels: list[Any]
    counts: Floats  # rows of each cell
    values: Floats  # (n_cells, d): number of values that are not missing, ...
    means: Floats  # ... their mean, ...
    deviations: Floats  # ... the sum of their squared deviations, ...
    repeats: Floats  # ... how many equal the value in the previous row of the cell, ...
    lowest: Floats  # ... and the lowest and the highest, infinite if there are none
    highest: Floats
    without_label: int = 0  # numbers of rows that are not used
    without_domain: int = 0
    out_of_range: int = 0

    @classmethod
    def empty(cls, n_features: int, *skipped: int) -> CellStatistics:
        """Return the statistics of no rows; `skipped` are the last three attributes."""
        none = np.zeros((0, n_features))
        return cls([], [], np.zeros(0), none, none, none, none, none, none, *skipped)

    @classmethod
    def of(cls, block: Block) -> CellStatistics:
        """Return the statistics of a block."""
        d = block.X.shape[1]
        skipped = (block.without_label, block.without_domain, block.out_of_range)
        if not len(block.X):
            return cls.empty(d, *skipped)
        cells = block.domain_codes * len(block.labels) + block.label_codes
        order = np.argsort(cells, kind="stable")
        X = block.X[order]
        found, starts, counts = np.unique(cells[order], return_index=True, return_counts=True)
        missing = np.isnan(X)
        any_missing = bool(missing.any())

        def sum_cells(table: Floats) -> Floats:
            present = np.where(missing, 0.0, table) if any_missing else table
            return np.asarray(np.add.reduceat(present, starts, axis=0))

        values = np.repeat(counts[:, None], d, axis=1).astype(np.float64)
        if any_missing:
            values -= np.add.reduceat(missing, starts, axis=0)
        divisor = np.maximum(values, 1.0)
        means = sum_cells(X) / divisor
        # A second step around the mean removes most of the rounding error.
        means += sum_cells(X - np.repeat(means, counts, axis=0)) / divisor
        deviations = sum_cells(np.square(X - np.repeat(means, counts, axis=0)))
        repeated = np.zeros(X.shape)
        np.equal(X[1:], X[:-1], out=repeated[1:])
        repeated[starts] = 0.0
        return cls(
            [block.domains[cell // len(block.labels)] for cell in found.tolist()],
            [block.labels[cell % len(block.labels)] for cell in found.tolist()],
            counts.astype(np.float64),
            values,
            means,
            deviations,
            np.add.reduceat(repeated, starts, axis=0),
            np.minimum.reduceat(np.where(missing, np.inf, X), starts, axis=0),
            np.maximum.reduceat(np.where(missing, -np.inf, X), starts, axis=0),
            *skipped,
        )

    @property
    def unused(self) -> dict[str, int]:
        """Number of rows that are not used, by reason."""
        found = {
            "have no label": self.without_label,
            "have no domain": self.without_domain,
            OUT_OF_RANGE: self.out_of_range,
        }
        return {reason: number for reason, number in found.items() if number}

    def converted(self, units: list[Units]) -> CellStatistics:
        """Return the statistics in the units of the other sources; `units` are those of each cell."""
        factors = np.stack([one.factors for one in units])
        means, lowest, highest = (
            np.stack([one.convert(row) for one, row in zip(units, table, strict=True)])
            for table in (self.means, self.lowest, self.highest)
        )
        deviations = self.deviations / np.square(factors)
        return replace(self, means=means, deviations=deviations, lowest=lowest, highest=highest)

    def plus(self, other: CellStatistics) -> CellStatistics:
        """Return the statistics of both sets of rows together."""
        cells = {cell: number for number, cell in enumerate(self._cells)}
        for cell in other._cells:
            cells.setdefault(cell, len(cells))
        _refuse_many_names(cells)
        n = len(cells)
        mine, theirs = list(range(len(self.counts))), [cells[cell] for cell in other._cells]
        counts, values, means, deviations, repeats = self._expand(mine, n)
        more, more_values, more_means, more_deviations, more_repeats = other._expand(theirs, n)
        lowest, highest = np.full((n, values.shape[1]), np.inf), np.full((n, values.shape[1]), -np.inf)
        for part, rows in ((self, mine), (other, theirs)):
            places = np.array(rows, dtype=np.intp)
            lowest[places] = np.minimum(lowest[places], part.lowest)
            highest[places] = np.maximum(highest[places], part.highest)
        total = values + more_values
        share = more_values / np.where(total > 0.0, total, 1.0)
        step = more_means - means
        return CellStatistics(
            [domain for domain, _ in cells],
            [label for _, label in cells],
            counts + more,
            total,
            means + share * step,
            deviations + more_deviations + values * share * np.square(step),
            repeats + more_repeats,
            lowest,
            highest,
            self.without_label + other.without_label,
            self.without_domain + other.without_domain,
            self.out_of_range + other.out_of_range,
        )

    @property
    def _cells(self) -> list[tuple[Any, Any]]:
        return list(zip(self.domains, self.labels, strict=True))

    def _expand(self, rows: list[int], n: int) -> list[Floats]:
        """Return the tables with `n` rows, ours at the given ones and zeros elsewhere."""
        found = []
        for table in (self.counts, self.values, self.means, self.deviations, self.repeats):
            expanded = np.zeros((n, *table.shape[1:]))
            expanded[np.array(rows, dtype=np.intp)] = table
            found.append(expanded)
        return found


@one_thread
def measure_partition(reader: Reader, partition: Any, n_features: int) -> CellStatistics:
    """Return the statistics of a partition."""
    blocks = (CellStatistics.of(block) for block in reader.blocks(partition))
    return merge_statistics([CellStatistics.empty(n_features), *blocks])


def merge_statistics(parts: Iterable[CellStatistics]) -> CellStatistics:
    """Add statistics in the order of the list."""
    return reduce(CellStatistics.plus, parts)


@dataclass(frozen=True, eq=False)
class SourceCatalog:
    """All classes and sources in order, with the statistics of each source."""

    classes: Any
    sources: list[Any]
    units: list[Units]  # of each source
    fill_values: Floats  # (n_sources, d): column means after conversion, which replace missing values
    table: SourceTable  # after conversion, with missing values replaced

    @classmethod
    def of(cls, statistics: CellStatistics, columns: list[Any] | None = None) -> SourceCatalog:
        """Order classes and sources as a fit in memory does, and check that they can be used."""
        if not len(statistics.counts):
            raise InvalidInputError(
                f"there are no rows to learn from: {statistics.without_label:,} have no label, "
                f"{statistics.without_domain:,} have no domain, "
                f"{statistics.out_of_range:,} {OUT_OF_RANGE}"
            )
        classes = _sorted_names(statistics.labels, "label")
        names = [1 if name is None else name for name in statistics.domains]
        sources = np.unique(name_sources(_sorted_names(names, "domain"), len(set(names)))).tolist()
        class_codes = np.searchsorted(classes, np.array(statistics.labels, dtype=classes.dtype))
        source_codes = np.array([sources.index(name) for name in names])
        values = np.zeros((len(sources), statistics.values.shape[1]))
        np.add.at(values, source_codes, statistics.values)
        require_columns(values > 0.0, columns)
        codes = source_codes, class_codes
        table = _tabulate(statistics, values, codes, len(classes))[1]
        units = find_other_units(table)
        if any(one.other.any() for one in units):
            statistics = statistics.converted([units[code] for code in source_codes.tolist()])
        fill_values, table = _tabulate(statistics, values, codes, len(classes))
        return cls(classes, sources, units, fill_values, table)

    @cached_property
    def _class_codes(self) -> dict[Any, int]:
        return {name: code for code, name in enumerate(self.classes.tolist())}

    @cached_property
    def _source_codes(self) -> dict[Any, int]:
        return {name: code for code, name in enumerate(self.sources)}

    @cached_property
    def _conversion(self) -> Floats:
        """Offsets and factors of every source, shape (2, n_sources, d)."""
        return np.stack([[one.offsets for one in self.units], [one.factors for one in self.units]])

    def encode(self, block: Block) -> tuple[Floats, Integers, Integers]:
        """Return the rows of a block, converted and without gaps, their class and source codes."""
        # Without a domain column there is a single source, called 1.
        names = [1 if name is None else name for name in block.domains]
        of_domain = np.array([self._source_codes.get(name, -1) for name in names], dtype=np.intp)
        of_label = np.array([self._class_codes.get(name, -1) for name in block.labels], dtype=np.intp)
        sources, classes = of_domain[block.domain_codes], of_label[block.label_codes]
        if len(sources) and min(sources.min(), classes.min()) < 0:
            raise InvalidInputError(
                "rows changed during the fit: they have a class or domain that the first pass did not "
                "see; repeat the call, with another checkpoint if there is one"
            )
        X, missing = block.X, np.isnan(block.X)
        if any(one.other.any() for one in self.units):
            X = Units(*self._conversion[:, sources]).convert(X)
        if missing.any():
            X = np.where(missing, self.fill_values[sources], X)
        return X, classes, sources


def _sorted_names(names: list[Any], what: str) -> Any:
    if len({isinstance(name, str) for name in names}) > 1:
        raise InvalidInputError(f"{what}s must be all names or all numbers, got both")
    found = np.unique(np.array(names))
    if found.dtype.kind == "f":
        wrong = next((name for name in found.tolist() if not name.is_integer()), found[0])
        raise InvalidInputError(f"{what}s must be names or integers, got {wrong:g}: check the column")
    return found


def _refuse_many_names(cells: dict[tuple[Any, Any], int]) -> None:
    """Refuse a column that is not a class or domain: a name per row would exhaust the memory."""
    if len(cells) <= _MAX_NAMES:
        return
    for what, names in zip(("domain", "label"), zip(*cells, strict=True), strict=True):
        if len(set(names)) > _MAX_NAMES:
            raise InvalidInputError(
                f"there are more than {_MAX_NAMES:,} {what}s ({names[0]!r}, ...): check the column"
            )


def _tabulate(
    statistics: CellStatistics, values: Floats, codes: tuple[Integers, Integers], n_classes: int
) -> tuple[Floats, SourceTable]:
    """Return what replaces missing values, and the table of all sources with them replaced.

    It is the mean of the source, or in a column that it lacks the mean of the other sources. `values`
    are the numbers of values of every source, `codes` the sources and classes of the cells.
    """
    sources, classes = codes
    n_sources, d = values.shape
    fill_values = np.zeros_like(values)
    np.add.at(fill_values, sources, statistics.values * statistics.means)
    fill_values /= np.maximum(values, 1.0)
    fill_values = np.where(values > 0.0, fill_values, average_sources(fill_values, values > 0.0))
    counts = np.zeros((n_sources, n_classes))
    means, deviations, repeats = np.zeros((3, n_sources, n_classes, d))
    rows = statistics.counts[:, None]
    missing_share = (rows - statistics.values) / rows
    steps = fill_values[sources] - statistics.means
    counts[sources, classes] = statistics.counts
    means[sources, classes] = statistics.means + missing_share * steps
    deviations[sources, classes] = statistics.deviations + statistics.values * missing_share * np.square(
        steps
    )
    repeats[sources, classes] = statistics.repeats
    lowest, highest = fill_values.copy(), fill_values.copy()  # means are within the range
    np.minimum.at(lowest, sources, statistics.lowest)
    np.maximum.at(highest, sources, statistics.highest)
    return fill_values, SourceTable(counts, means, deviations, lowest, highest, repeats)


# -- pass 2: scatter around the class means, and a sample --------------------------------------------


def hash_rows(X: Floats, seed: int) -> _Hashes:
    """Return a 64-bit hash of every row, so that a sample does not depend on the partitions.

    Copies of a row within a block get different hashes: a value that occurs a million times is sampled
    in proportion, not always or never. In different blocks their first copies get the same hash.
    """
    plain = np.where(np.isnan(X), np.nan, X + 0.0)  # one NaN, one zero
    found = np.full(len(X), _GOLDEN ^ np.uint64(seed))
    for column in np.ascontiguousarray(plain.T).view(np.uint64):
        found = _mix_bits(found ^ column)
    order = np.argsort(found, kind="stable")
    ranked = found[order]
    first = np.concatenate([[True], ranked[1:] != ranked[:-1]])[: len(X)]
    if not first.all():
        ranks = np.arange(len(X))
        copies = np.empty(len(X), dtype=np.uint64)
        copies[order] = ranks - np.maximum.accumulate(np.where(first, ranks, 0))
        found = np.where(copies > 0, _mix_bits(found ^ (copies * _COPY_FACTOR)), found)
    return found


def to_unit_interval(hashes: _Hashes) -> Floats:
    """Map hashes to [0, 1)."""
    return np.asarray((hashes >> np.uint64(11)) * 2.0**-53)


def _mix_bits(words: _Hashes) -> _Hashes:
    """Let every bit depend on every other."""
    words = (words ^ (words >> np.uint64(32))) * _GOLDEN
    words = (words ^ (words >> np.uint64(29))) * _MIX_FACTOR
    # Odd factors keep distinct numbers distinct; shifts carry upper bits down, which factors cannot.
    return np.asarray(words ^ (words >> np.uint64(32)))


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows drawn from all, without missing values, with the cell and the hash of each."""

    cells: Integers
    hashes: _Hashes
    X: Floats

    @classmethod
    def empty(cls, n_features: int) -> Sample:
        """Return a sample without rows."""
        return cls(np.zeros(0, np.intp), np.zeros(0, np.uint64), np.zeros((0, n_features)))

    def labelled(self, table: SourceTable, *, proportional: bool = False) -> LabelledRows:
        """Return the rows by source.

        With `proportional`, classes that the sample over-represents are thinned, down to a few rows, so
        that every source has its own class proportions.
        """
        n_sources, n_classes = table.counts.shape
        complete = len(self.cells) == table.counts.sum()
        # If all rows are here, keep their order, as in memory. Order a sample by hash, which does not
        # depend on the partitions.
        sample = self if complete else self._fill_empty_cells(table)
        order = slice(None) if complete else np.argsort(sample.hashes, kind="stable")
        cells, X = sample.cells[order], sample.X[order]
        if proportional:
            keep = _thin(cells, table)
            cells, X = cells[keep], X[keep]
        order = np.argsort(cells // n_classes, kind="stable")
        cells, X = cells[order], X[order]
        ends = np.cumsum(np.bincount(cells // n_classes, minlength=n_sources))[:-1]
        return LabelledRows(np.split(X, ends), np.split(cells % n_classes, ends), n_classes)

    def _fill_empty_cells(self, table: SourceTable) -> Sample:
        """Add the mean of every cell that has rows but none in the sample.

        Equal rows in many partitions have the same hash and may all be left out: their mean equals them.
        """
        drawn = np.bincount(self.cells, minlength=table.counts.size)
        empty = np.flatnonzero((drawn == 0) & (table.counts.ravel() > 0.0))
        means = table.means.reshape(-1, self.X.shape[1])[empty]
        return Sample(
            np.concatenate([self.cells, empty]),
            np.concatenate([self.hashes, hash_rows(means, 0)]),
            np.concatenate([self.X, means]),
        )


def _thin(cells: Integers, table: SourceTable) -> Any:
    """Return the rows to keep: within a source, each then stands for about the same number of rows."""
    drawn = np.bincount(cells, minlength=table.counts.size)
    represented = table.counts.ravel() / np.maximum(drawn, 1)
    most = represented.reshape(-1, table.n_classes).max(axis=1).repeat(table.n_classes)
    share = np.maximum(represented / most, np.minimum(1.0, _MIN_ROWS_PER_CELL / np.maximum(drawn, 1)))
    rank = np.empty(len(cells))  # of each row within its cell
    order = np.argsort(cells, kind="stable")
    rank[order] = np.arange(len(order)) - (np.cumsum(drawn) - drawn)[cells[order]]
    return np.floor((rank + 1) * share[cells]) > np.floor(rank * share[cells])


def sampling_fractions(table: SourceTable, n_rows: int) -> Floats:
    """Return the fraction of every cell that is drawn into a sample of about `n_rows`."""
    counts = np.maximum(table.counts, 1.0)
    overall = n_rows / table.counts.sum()
    per_cell = np.clip(
        _MAX_GROWTH * n_rows / np.count_nonzero(table.counts), _MIN_ROWS_PER_CELL, ROWS_PER_CELL
    )
    return np.asarray(np.minimum(1.0, np.maximum(overall, per_cell / counts)))


@dataclass(frozen=True, eq=False)
class ScatterAndSample:
    """Result of the second pass: scatter around the known class means, and a sample."""

    scatter: Scatter
    sample: Sample


@one_thread
def sample_partition(
    reader: Reader, partition: Any, catalog: SourceCatalog, *, n_rows: int, seed: int
) -> ScatterAndSample:
    """Return the scatter of a partition's rows, and its part of a sample of `n_rows` of all rows."""
    table, unknown = catalog.table, np.zeros(0)
    d, fractions = len(table.centre), sampling_fractions(table, n_rows)
    found = [ScatterAndSample(Scatter(0, np.zeros((d, d)), 0.0, unknown, unknown), Sample.empty(d))]
    for block in reader.blocks(partition):
        X, classes, sources = catalog.encode(block)
        residuals = (X - table.means[sources, classes]) / table.spreads[sources]
        lengths = np.vecdot(residuals, residuals)
        scatter = Scatter(len(X), residuals.T @ residuals, float(lengths @ lengths), unknown, unknown)
        hashes = hash_rows(block.X, seed)
        drawn = to_unit_interval(hashes) < fractions[sources, classes]
        cells = sources * table.n_classes + classes
        found.append(ScatterAndSample(scatter, Sample(cells[drawn], hashes[drawn], X[drawn])))
    return merge_samples(found)


def merge_samples(parts: list[ScatterAndSample]) -> ScatterAndSample:
    """Add the scatters and join the samples, in the order of the list."""
    return ScatterAndSample(
        reduce(add, (part.scatter for part in parts)),
        Sample(
            np.concatenate([part.sample.cells for part in parts]),
            np.concatenate([part.sample.hashes for part in parts]),
            np.concatenate([part.sample.X for part in parts]),
        ),
    )


def complete_scatter(scatter: Scatter, table: SourceTable) -> Scatter:
    """Add the scatter between classes, which follows from the statistics."""
    steps = (table.means - table.source_means[:, None]) / table.spreads[:, None]
    sums = np.einsum("lc,lcd->cd", table.counts, steps)
    return Scatter(scatter.n_rows, scatter.within, scatter.fourth, table.counts.sum(axis=0), sums)


# -- pass 3: one step of EM with all rows ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CellMixtures:
    """Mixtures of n cells, padded to m components of weight 0; `cells` are in rising order."""

    cells: Integers  # source · n_classes + class
    weights: Floats  # (n, m)
    means: Floats  # (n, m, p)
    stds: Floats  # (n, m, p)

    @classmethod
    def of(cls, found: dict[int, Mixture], m: int, p: int) -> CellMixtures:
        """Stack the mixtures of cells."""
        n = len(found)
        weights, means, stds = np.zeros((n, m)), np.zeros((n, m, p)), np.ones((n, m, p))
        for row, cell in enumerate(sorted(found)):
            mixture = found[cell]
            k = mixture.n_components
            weights[row, :k] = mixture.weights
            means[row, :k] = mixture.means
            stds[row, :k] = mixture.stds
        return cls(np.array(sorted(found), dtype=np.intp), weights, means, stds)


@dataclass(frozen=True, eq=False)
class EMSums:
    """Sums over rows for every component, relative to its previous mean."""

    masses: Floats  # (n, m)
    steps: Floats  # (n, m, p)
    squares: Floats  # (n, m, p)

    def __add__(self, other: EMSums) -> EMSums:
        return EMSums(self.masses + other.masses, self.steps + other.steps, self.squares + other.squares)

    def update(self, start: CellMixtures, unit: Floats) -> dict[int, Mixture]:
        """Return the mixtures after this step of EM, exactly as if all rows were in memory."""
        found = {}
        for row, cell in enumerate(start.cells.tolist()):
            alive = self.masses[row] > 0.0
            masses = self.masses[row, alive]
            steps = self.steps[row, alive] / masses[:, None]
            variances = self.squares[row, alive] / masses[:, None] - np.square(steps)
            stds = np.sqrt(np.maximum(variances, np.square(_STD_FLOOR * unit)))
            means = start.means[row, alive] + steps
            found[cell] = Mixture(masses / masses.sum(), means, stds, mass=float(masses.sum()))
        return found


@one_thread
def sum_partition(
    reader: Reader, partition: Any, catalog: SourceCatalog, outlook: Outlook, start: CellMixtures
) -> EMSums:
    """Return the sums of a partition for a step of EM."""
    total = EMSums(*(np.zeros_like(like) for like in (start.weights, start.means, start.means)))
    if not len(start.cells):
        return total  # the sample holds all rows
    row_of = np.full(catalog.table.counts.size, -1)
    row_of[start.cells] = np.arange(len(start.cells))
    with np.errstate(divide="ignore"):  # components of weight 0 get no responsibility
        log_weights = np.log(start.weights)
    for block in reader.blocks(partition):
        X, classes, sources = catalog.encode(block)
        rows = row_of[sources * catalog.table.n_classes + classes]
        wanted = np.flatnonzero(rows >= 0)
        order = wanted[np.argsort(sources[wanted], kind="stable")]
        present, starts = np.unique(sources[order], return_index=True)
        for source, some in zip(present.tolist(), np.split(order, starts)[1:], strict=True):
            _add_rows(total, outlook.see(X[some], source), rows[some], start, log_weights)
    return total


def _add_rows(
    total: EMSums, V: Floats, rows: Integers, start: CellMixtures, log_weights: Floats
) -> None:
    """Add rows of one source in place: with many sources, most cells belong to others."""
    order = np.argsort(rows, kind="stable")
    V, rows = V[order], rows[order]
    present, starts = np.unique(rows, return_index=True)
    steps = V[:, None] - start.means[rows]  # (n, m, p)
    stds = start.stds[rows]
    logs = log_weights[rows] - np.log(stds).sum(axis=2)
    logs -= 0.5 * np.square(steps / stds).sum(axis=2)
    responsibilities = np.exp(logs - logs.max(axis=1, keepdims=True))
    responsibilities /= responsibilities.sum(axis=1, keepdims=True)
    steps *= responsibilities[:, :, None]
    total.masses[present] += np.add.reduceat(responsibilities, starts, axis=0)
    total.steps[present] += np.add.reduceat(steps, starts, axis=0)
    steps *= V[:, None] - start.means[rows]
    total.squares[present] += np.add.reduceat(steps, starts, axis=0)


def merge_sums(parts: list[EMSums]) -> EMSums:
    """Add sums in the order of the list."""
    return reduce(add, parts)
