"""Count the rows of every class of every domain, and draw a sample that does not depend on partitions.

A *cell* is a class of a domain. Each pass computes a small result for every partition, and
results are merged in a tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.distributed.partitions import OUT_OF_RANGE, Block, Reader
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans, Floats, Integers

_Hashes = NDArray[np.uint64]
#: Maximum number of classes, and of domains.
_MAX_NAMES = 10_000
#: The sample holds about this many rows of every cell, or all of a smaller one. More would make rare
#: classes more frequent than they are.
ROWS_PER_CELL = 20
#: Odd 64-bit constants without a pattern: the golden ratio, and roots of small primes.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_COPY_FACTOR = np.uint64(0xBB67AE8584CAA73B)
_MIX_FACTOR = np.uint64(0xA54FF53A5F1D36F1)


# -- counting --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RowCounts:
    """Rows of every cell, and rows without a label or domain."""

    domains: list[Any] = field(default_factory=list)  # of each cell; None without a domain column
    labels: list[Any] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    without_label: int = 0
    without_domain: int = 0

    @property
    def cells(self) -> list[tuple[Any, Any]]:
        """Domain and label of each cell."""
        return list(zip(self.domains, self.labels, strict=True))

    @cached_property
    def classes(self) -> Any:
        """All classes, sorted."""
        return _sorted_names(self.labels, "label")

    @cached_property
    def sources(self) -> list[Any]:
        """All sources, sorted; without a domain column there is one, called 1."""
        return _sorted_names([1 if name is None else name for name in self.domains], "domain").tolist()  # type: ignore[no-any-return]

    @property
    def unused(self) -> dict[str, int]:
        """Number of rows that are not used, by reason."""
        found = {"have no label": self.without_label, "have no domain": self.without_domain}
        return {reason: number for reason, number in found.items() if number}

    def require_rows(self) -> None:
        """Raise an error if there is nothing to learn from."""
        if not self.rows:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in self.unused.items())
            raise InvalidInputError(f"there are no rows to learn from{': ' * bool(reasons)}{reasons}")


def count_partition(partition: Any, reader: Reader) -> RowCounts:
    """Count the rows of a partition; its features are not even read if that can be avoided."""
    cells, without = Counter[tuple[Any, Any]](), [0, 0]
    for block in reader.names_only().blocks(partition):
        codes = block.domain_codes * len(block.labels) + block.label_codes
        for code, n in zip(*(one.tolist() for one in np.unique(codes, return_counts=True)), strict=True):
            cells[block.domains[code // len(block.labels)], block.labels[code % len(block.labels)]] += n
        without = [without[0] + block.without_label, without[1] + block.without_domain]
    return _as_counts(cells, *without)


def merge_counts(parts: Iterable[RowCounts]) -> RowCounts:
    """Add counts."""
    cells, without = Counter[tuple[Any, Any]](), [0, 0]
    for part in parts:
        cells.update(dict(zip(part.cells, part.rows, strict=True)))
        without = [without[0] + part.without_label, without[1] + part.without_domain]
    return _as_counts(cells, *without)


def _as_counts(cells: Counter[tuple[Any, Any]], *without: int) -> RowCounts:
    """Refuse a column that is not a class or domain: a name per row would exhaust the memory."""
    domains, labels = [domain for domain, _ in cells], [label for _, label in cells]
    for what, names in (("domain", domains), ("label", labels)):
        if len(names) > _MAX_NAMES and len(set(names)) > _MAX_NAMES:
            raise InvalidInputError(
                f"there are more than {_MAX_NAMES:,} {what}s ({names[0]!r}, ...): check the column"
            )
    return RowCounts(domains, labels, list(cells.values()), *without)


def _sorted_names(names: list[Any], what: str) -> Any:
    if len({isinstance(name, str) for name in names}) > 1:
        raise InvalidInputError(f"{what}s must be all names or all numbers, got both")
    found = np.unique(np.array(names))
    if found.dtype.kind == "f":
        wrong = next((name for name in found.tolist() if not name.is_integer()), found[0])
        raise InvalidInputError(f"{what}s must be names or integers, got {wrong:g}: check the column")
    return found


# -- hashes ----------------------------------------------------------------------------------------


def hash_rows(X: Floats) -> _Hashes:
    """Return a 64-bit hash of every row, so that a sample does not depend on the partitions.

    Copies of a row within a block get different hashes: a value that occurs a million times is sampled
    in proportion, not always or never. In different blocks their first copies get the same hash.
    """
    plain = np.where(np.isnan(X), np.nan, X + 0.0)  # one NaN, one zero
    found = np.full(len(X), _GOLDEN)
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


# -- the sample ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SamplePlan:
    """Which fraction of the rows of every cell is drawn."""

    counts: RowCounts
    fractions: Floats

    @classmethod
    def of(cls, counts: RowCounts, n_rows: int) -> SamplePlan:
        """Draw about `n_rows`: the same fraction of every cell, but more of small ones."""
        rows = np.array(counts.rows, dtype=np.float64)
        return cls(counts, np.minimum(1.0, np.maximum(n_rows / rows.sum(), ROWS_PER_CELL / rows)))

    @cached_property
    def _numbers(self) -> dict[tuple[Any, Any], int]:
        return {cell: number for number, cell in enumerate(self.counts.cells)}

    def find_cells(self, block: Block) -> Integers:
        """Return the number of the cell of each row."""
        table = np.array(
            [[self._numbers.get((d, label), -1) for label in block.labels] for d in block.domains],
            dtype=np.intp,
        ).reshape(len(block.domains), len(block.labels))
        cells = table[block.domain_codes, block.label_codes]
        if len(cells) and cells.min() < 0:
            raise InvalidInputError(
                "rows changed during the fit: they have a class or domain that was not counted; repeat "
                "the call, with another checkpoint if there is one"
            )
        return cells


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows drawn from all, in their order.

    Spare rows were not drawn. They are used if no other row of their cell is: equal rows in many
    partitions have the same hash and may all be left out.
    """

    X: Floats
    cells: Integers
    repeated: Booleans  # (n, d): whether a value is that of the row before of the cell
    spare: Booleans
    out_of_range: int = 0  # rows that are not used

    @classmethod
    def none(cls, n_features: int) -> Sample:
        """Return a sample without rows."""
        nothing = np.zeros((0, n_features))
        return cls(nothing, np.zeros(0, np.intp), nothing > 0.0, np.zeros(0, np.bool_))

    def pick(self, rows: Any) -> Sample:
        """Return some of the rows."""
        X, cells, repeated, spare = (one[rows] for one in self.arrays)
        return Sample(X, cells, repeated, spare, self.out_of_range)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """All that there is of each row."""
        return self.X, self.cells, self.repeated, self.spare

    def without_spares(self) -> Sample:
        """Return the sample with spare rows in those cells only that need them."""
        return self.pick(~self.spare | ~np.isin(self.cells, self.cells[~self.spare]))


def draw_partition(partition: Any, reader: Reader, plan: SamplePlan, n_features: int) -> Sample:
    """Return the part of the sample that is in a partition."""
    found = [Sample.none(n_features)]
    for block in reader.blocks(partition):
        X, cells = block.X, plan.find_cells(block)
        drawn = to_unit_interval(hash_rows(X)) < plan.fractions[cells]
        keep = drawn.copy()
        keep[np.unique(cells, return_index=True)[1]] = True
        order = np.argsort(cells, kind="stable")
        before = np.full(len(X), -1)  # row before of the cell
        before[order[1:]] = np.where(np.diff(cells[order]) == 0, order[:-1], -1)
        before = before[keep]
        repeated = (X[keep] == X[before]) & (before >= 0)[:, None]
        found.append(Sample(X[keep], cells[keep], repeated, ~drawn[keep], block.out_of_range))
    return merge_samples(found)


def merge_samples(parts: list[Sample]) -> Sample:
    """Join samples in the order of the list, with at most one spare row of a cell."""
    X, cells, repeated, spare = map(np.concatenate, zip(*(one.arrays for one in parts), strict=True))
    joined = Sample(X, cells, repeated, spare, sum(part.out_of_range for part in parts))
    spares = np.flatnonzero(joined.spare)
    keep = ~joined.spare
    keep[spares[np.unique(joined.cells[spares], return_index=True)[1]]] = True
    return joined.pick(keep)


def describe_out_of_range(number: int) -> str:
    """Return a warning about rows with unusable numbers."""
    return f"{number:,} rows {OUT_OF_RANGE} and are not used"
