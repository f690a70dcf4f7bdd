"""The first look at all rows: who is there, how many, where they lie and how far apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from baryflow.distributed.blocks import REJECTED, Block, Reader
from baryflow.estimators._domains import name_sources
from baryflow.estimators._source_table import SourceTable
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers

#: Classes, and domains, at most.
_MOST = 10_000


@dataclass(frozen=True, eq=False)
class Census:
    """Counts and moments of every class of every domain: of some rows, or of all.

    Attributes
    ----------
    domains, labels : list
        Of each cell; a cell is a class of a domain.
    counts : array of shape (n_cells,)
        Rows.
    values, means, deviations, repeats : array of shape (n_cells, d)
        Values that are present, their mean, the sum of their squared deviations, and how many are equal
        to the value in the row before of the same cell.
    lowest, highest : array of shape (d,)
    unlabelled, nowhere, rejected : int
        Rows that are not used.
    """

    domains: list[Any]
    labels: list[Any]
    counts: Floats
    values: Floats
    means: Floats
    deviations: Floats
    repeats: Floats
    lowest: Floats
    highest: Floats
    unlabelled: int = 0
    nowhere: int = 0
    rejected: int = 0

    @classmethod
    def none(cls, n_features: int) -> Census:
        """Return that of no rows."""
        empty, inf = np.zeros((0, n_features)), np.full(n_features, np.inf)
        return cls([], [], np.zeros(0), empty, empty, empty, empty, inf, -inf)

    @classmethod
    def of(cls, block: Block) -> Census:
        """Count and measure a block."""
        d = block.X.shape[1]
        if not len(block.X):
            return replace(
                cls.none(d),
                unlabelled=block.unlabelled, nowhere=block.nowhere, rejected=block.rejected,
            )  # fmt: skip
        cells = block.whose * len(block.labels) + block.codes
        order = np.argsort(cells, kind="stable")
        X = block.X[order]
        found, starts, counts = np.unique(cells[order], return_index=True, return_counts=True)
        missing = np.isnan(X)
        some = bool(missing.any())
        values = np.repeat(counts[:, None], d, axis=1).astype(np.float64)
        if some:
            values -= np.add.reduceat(missing, starts, axis=0)
        divisor = np.maximum(values, 1.0)
        means = np.add.reduceat(np.where(missing, 0.0, X) if some else X, starts, axis=0) / divisor
        steps = X - np.repeat(means, counts, axis=0)
        # Once more around the mean: what rounding has left of it is taken out.
        rest = np.add.reduceat(np.where(missing, 0.0, steps) if some else steps, starts, axis=0)
        means += rest / divisor
        steps = np.square(X - np.repeat(means, counts, axis=0))
        same = np.zeros(X.shape)
        np.equal(X[1:], X[:-1], out=same[1:])
        same[starts] = 0.0
        return cls(
            [block.domains[cell // len(block.labels)] for cell in found.tolist()],
            [block.labels[cell % len(block.labels)] for cell in found.tolist()],
            counts.astype(np.float64),
            values,
            means,
            np.add.reduceat(np.where(missing, 0.0, steps) if some else steps, starts, axis=0),
            np.add.reduceat(same, starts, axis=0),
            np.min(X, axis=0, initial=np.inf, where=~missing),
            np.max(X, axis=0, initial=-np.inf, where=~missing),
            block.unlabelled,
            block.nowhere,
            block.rejected,
        )

    @property
    def unused(self) -> dict[str, int]:
        """How many rows are not used, by what is wrong with them."""
        found = {
            "have no label": self.unlabelled,
            "have no domain": self.nowhere,
            REJECTED: self.rejected,
        }
        return {what: number for what, number in found.items() if number}

    def plus(self, other: Census) -> Census:
        """Return that of both sets of rows together."""
        keys = list(zip(self.domains, self.labels, strict=True))
        place = {key: number for number, key in enumerate(keys)}
        for key in zip(other.domains, other.labels, strict=True):
            place.setdefault(key, len(place))
        _refuse_many(place)
        mine = self._spread_out(np.arange(len(keys)), len(place))
        theirs = [place[key] for key in zip(other.domains, other.labels, strict=True)]
        places = np.array(theirs, dtype=np.intp)
        counts, values, means, deviations, repeats = other._spread_out(places, len(place))
        together = mine[1] + values
        share = values / np.where(together > 0.0, together, 1.0)
        step = means - mine[2]
        return Census(
            [domain for domain, _ in place],
            [label for _, label in place],
            mine[0] + counts,
            together,
            mine[2] + share * step,
            mine[3] + deviations + mine[1] * share * np.square(step),
            mine[4] + repeats,
            np.minimum(self.lowest, other.lowest),
            np.maximum(self.highest, other.highest),
            self.unlabelled + other.unlabelled,
            self.nowhere + other.nowhere,
            self.rejected + other.rejected,
        )

    def _spread_out(self, places: Integers, n: int) -> list[Floats]:
        found = []
        for table in (self.counts, self.values, self.means, self.deviations, self.repeats):
            wider = np.zeros((n, *table.shape[1:]))
            wider[places] = table
            found.append(wider)
        return found


def take_census(reader: Reader, piece: Any, n_features: int) -> Census:
    """Count and measure a piece."""
    return merge_censuses([Census.none(n_features), *(Census.of(b) for b in reader.blocks(piece))])


def merge_censuses(some: Iterable[Census]) -> Census:
    """Return that of all together; the order of the sums is that of the list."""
    return reduce(Census.plus, some)


@dataclass(frozen=True, eq=False)
class Roll:
    """All classes and domains in order, what is usual in each, and where a missing value stands.

    Attributes
    ----------
    classes : array
    sources : list
    usual : array of shape (n_sources, d)
        Mean of every column: what a missing value is taken to be.
    table : SourceTable
        With missing values filled so.
    """

    classes: Any
    sources: list[Any]
    usual: Floats
    table: SourceTable

    @classmethod
    def of(cls, census: Census, columns: list[Any] | None = None) -> Roll:
        """Put what was counted in order, as a fit in memory would.

        Raises
        ------
        InvalidInputError
            If there is no row, or names, labels or columns cannot be used.
        """
        if not len(census.counts):
            raise InvalidInputError(
                f"there is no row to learn from: {census.unlabelled:,} have no label, "
                f"{census.nowhere:,} have no domain, {census.rejected:,} {REJECTED}"
            )
        classes = _in_order(census.labels, "label")
        named = [1 if name is None else name for name in census.domains]
        sources = np.unique(name_sources(_in_order(named, "domain"), len(set(named)))).tolist()
        codes = np.searchsorted(classes, np.array(census.labels, dtype=classes.dtype))
        whose = np.array([sources.index(name) for name in named])
        empty = _find_empty(census, whose, len(sources))
        if empty is not None:
            source, column = empty
            name = f"number {column}" if columns is None else repr(columns[column])
            raise InvalidInputError(
                f"source {sources[source]!r} holds no value at all in column {name}: drop the column or "
                "the source"
            )
        return cls(classes, sources, *_fill(census, whose, codes, len(sources), len(classes)))

    @cached_property
    def _class_numbers(self) -> dict[Any, int]:
        return {name: number for number, name in enumerate(self.classes.tolist())}

    @cached_property
    def _source_numbers(self) -> dict[Any, int]:
        return {name: number for number, name in enumerate(self.sources)}

    def place(self, block: Block) -> tuple[Floats, Integers, Integers]:
        """Return the rows of a block without gaps, their class numbers and their sources."""
        # A domain without a name is the only one.
        names = [1 if name is None else name for name in block.domains]
        whose = np.array([self._source_numbers.get(name, -1) for name in names], dtype=np.intp)
        codes = np.array([self._class_numbers.get(name, -1) for name in block.labels], dtype=np.intp)
        sources, classes = whose[block.whose], codes[block.codes]
        if len(sources) and min(sources.min(), classes.min()) < 0:
            raise InvalidInputError(
                "rows have a class or a domain that was not there when they were counted: rows must "
                "stay as they are; call it again, with another checkpoint if there was one"
            )
        X, missing = block.X, np.isnan(block.X)
        if missing.any():
            X = np.where(missing, self.usual[sources], X)
        return X, classes, sources


def _in_order(names: list[Any], what: str) -> Any:
    kinds = {isinstance(name, str) for name in names}
    if len(kinds) > 1:
        raise InvalidInputError(f"the {what}s must be all names or all numbers, and not both")
    found = np.unique(np.array(names))
    if found.dtype.kind == "f":
        odd = next((name for name in found.tolist() if not name.is_integer()), found[0])
        raise InvalidInputError(
            f"the {what}s must be names or whole numbers, got {odd:g}: is it the right column?"
        )
    return found


def _refuse_many(cells: dict[tuple[Any, Any], int]) -> None:
    """Refuse what is no class or domain: a number of its own for each row would fill the memory."""
    if len(cells) <= _MOST:
        return
    for what, names in zip(("domain", "label"), zip(*cells, strict=True), strict=True):
        if len(set(names)) > _MOST:
            raise InvalidInputError(
                f"there are more than {_MOST:,} {what}s, {names[0]!r} for one: is it the right column?"
            )


def _find_empty(census: Census, whose: Integers, n_sources: int) -> tuple[int, int] | None:
    """Return the number of a source and of a column of which it has no value."""
    values = np.zeros((n_sources, len(census.lowest)))
    np.add.at(values, whose, census.values)
    empty = np.argwhere(values == 0.0)
    return (int(empty[0, 0]), int(empty[0, 1])) if len(empty) else None


def _fill(
    census: Census, whose: Integers, codes: Integers, n_sources: int, n_classes: int
) -> tuple[Floats, SourceTable]:
    """Return the mean of every source, and the table in which it stands for missing values."""
    d = len(census.lowest)
    values, usual = np.zeros((n_sources, d)), np.zeros((n_sources, d))
    np.add.at(values, whose, census.values)
    np.add.at(usual, whose, census.values * census.means)
    usual /= values
    counts = np.zeros((n_sources, n_classes))
    means, deviations = np.zeros((2, n_sources, n_classes, d))
    total = census.counts[:, None]
    share = (total - census.values) / total  # of values that are missing
    steps = usual[whose] - census.means
    counts[whose, codes] = census.counts
    means[whose, codes] = census.means + share * steps
    deviations[whose, codes] = census.deviations + census.values * share * np.square(steps)
    repeats = np.zeros_like(means)
    repeats[whose, codes] = census.repeats
    return usual, SourceTable(counts, means, deviations, census.lowest, census.highest, repeats)
