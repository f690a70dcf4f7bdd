"""Rows at hand, whatever they come from: Parquet, a frame or an array."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import numpy as np

from baryflow.distributed.parquet import NOTHING, Folder, Piece, rows_at_a_time
from baryflow.exceptions import InvalidInputError
from baryflow.streams.columnar import as_text
from baryflow.streams.tables import UNLABELLED
from baryflow.validation import LARGEST, Booleans, Floats, Integers

#: What is wrong with rows that are rejected, in words.
REJECTED = f"hold infinity or numbers beyond ±{LARGEST:g}"


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows, the class of each and whose they are.

    Attributes
    ----------
    X : array of shape (n, d)
        Numbers as a fit in memory takes them, or NaN for missing ones.
    labels, domains : list
        Classes and domains that occur here; a single None each where rows have none.
    codes, whose : array of shape (n,)
        Of each row its place in them.
    used : array of bool
        Which of the rows that came these are.
    unlabelled, nowhere, rejected : int
        Rows that are not used: without a label, without a domain, with infinity or numbers so
        large that their squares would drown all others.
    """

    X: Floats
    labels: list[Any]
    codes: Integers
    domains: list[Any]
    whose: Integers
    used: Booleans
    unlabelled: int = 0
    nowhere: int = 0
    rejected: int = 0

    @classmethod
    def of(cls, X: Floats, label: tuple[Any, Any] | None, domain: tuple[Any, Any] | None) -> Block:
        """Leave out rows that cannot be used, and count them.

        `label` and `domain`: the number of each row and what the numbers mean; -1 is nothing.
        """
        n = len(X)
        codes, labels = label or (np.zeros(n, dtype=np.intp), [None])
        whose, domains = domain or (np.zeros(n, dtype=np.intp), [None])
        sound = ~(np.abs(X) > LARGEST).any(axis=1)
        unlabelled, nowhere = codes < 0, whose < 0
        used = sound & ~unlabelled & ~nowhere
        if not used.all():
            X, codes, whose = X[used], codes[used], whose[used]
        return cls(
            X,
            labels,
            np.asarray(codes, dtype=np.intp),
            domains,
            np.asarray(whose, dtype=np.intp),
            used,
            int(unlabelled.sum()),
            int((nowhere & ~unlabelled).sum()),
            int((~sound & ~nowhere & ~unlabelled).sum()),
        )


class Reader(Protocol):
    """Makes blocks of a piece."""

    def blocks(self, piece: Any) -> Iterator[Block]:
        """Yield the rows of a piece, some at a time."""

    def rows_only(self, columns: list[Any] | None = None) -> Reader:
        """Return one that looks at neither labels nor domains, and at these columns only."""


@dataclass(frozen=True)
class ParquetReader:
    """Reads pieces of Parquet files.

    Attributes
    ----------
    folder : Folder
        Without its pieces, which travel by themselves.
    columns : list of str
        Features.
    label, domain : str, optional
        Domains are text, and so are labels in the names of folders.
    whole : bool
        Labels in the names of folders are whole numbers, all of them.
    """

    folder: Folder
    columns: list[str]
    label: str | None = None
    domain: str | None = None
    whole: bool = False

    def blocks(self, piece: Piece) -> Iterator[Block]:
        """Yield the rows of a piece, some at a time."""
        names = [name for name in (self.label, self.domain) if name is not None]
        for batch in self.folder.batches(piece, [*self.columns, *names]):
            X = np.empty((batch.num_rows, len(self.columns)))
            for number, name in enumerate(self.columns):
                X[:, number] = batch.column(name).to_numpy(zero_copy_only=False)
            label = self._named(self.label, batch, piece, as_label)
            yield Block.of(X, label, self._named(self.domain, batch, piece, _as_domain))

    def rows_only(self, columns: list[Any] | None = None) -> ParquetReader:
        """Return one that looks at neither labels nor domains, and at these columns only."""
        return ParquetReader(self.folder, columns or self.columns)

    def _named(
        self, column: str | None, batch: Any, piece: Piece, rename: Callable[[Any], Any]
    ) -> tuple[Any, Any] | None:
        if column is None:
            return None
        if column not in piece.folders:
            # Numbers beside gaps stay whole: as floats, large ones would be taken for each other.
            return _factorised(batch.column(column).to_pandas(integer_object_nulls=True), rename)
        said = piece.folders[column]
        name = None if said in NOTHING else rename(said)
        if name is None:
            return np.full(batch.num_rows, -1), []
        if self.whole and column == self.label:
            name = int(name.partition(".")[0])  # 1.0 is 1, as in a column of numbers
        return np.zeros(batch.num_rows, dtype=np.intp), [name]


@dataclass(frozen=True)
class FrameReader:
    """Takes partitions of a Dask frame, which are pandas frames."""

    columns: list[Any]
    label: Any = None
    domain: Any = None

    def blocks(self, piece: Any) -> Iterator[Block]:
        """Yield the rows of a partition, some at a time."""
        for some in _slices(len(piece), len(self.columns)):
            part = piece.iloc[some]
            yield Block.of(
                part[self.columns].to_numpy(dtype=np.float64, na_value=np.nan),
                None if self.label is None else _factorised(part[self.label]),
                None if self.domain is None else _factorised(part[self.domain]),
            )

    def rows_only(self, columns: list[Any] | None = None) -> FrameReader:
        """Return one that looks at neither labels nor domains, and at these columns only."""
        return FrameReader(columns or self.columns)


@dataclass(frozen=True)
class ArrayReader:
    """Takes blocks of Dask arrays: rows, labels or None, domains or None."""

    named: bool = True  # labels and domains are looked at

    def blocks(self, piece: Any) -> Iterator[Block]:
        """Yield the rows of a block, some at a time."""
        X, y, domain = piece if self.named else (piece[0], None, None)
        for some in _slices(len(X), X.shape[1]):
            yield Block.of(
                np.asarray(X[some], dtype=np.float64),
                None if y is None else _factorised(y[some]),
                None if domain is None else _factorised(domain[some]),
            )

    def rows_only(self, columns: list[Any] | None = None) -> ArrayReader:  # noqa: ARG002 - has no names
        """Return one that looks at neither labels nor domains."""
        return ArrayReader(named=False)


def _slices(n_rows: int, n_columns: int) -> Iterator[slice]:
    size = rows_at_a_time(n_columns)
    return (slice(start, start + size) for start in range(0, n_rows, size))


def _plain(name: Any) -> Any:
    """Return a name as a string or a number that prints as people write it: 3, not 3.0."""
    name = name.item() if isinstance(name, np.generic) else name
    if isinstance(name, float | Decimal):
        return int(name) if math.isfinite(name) and name == int(name) else float(name)
    return name if isinstance(name, str | int) else str(name)  # dates, say


def as_label(name: Any) -> Any:
    """Return the name of a class as files in memory have it; None if there is none.

    Parameters
    ----------
    name : object
        What a cell or the name of a folder says.

    Returns
    -------
    str, int, float or None
    """
    plain = _plain(name)
    if not isinstance(plain, str):
        return plain
    text = as_text(plain)
    return None if text.casefold() in UNLABELLED else text


def _as_domain(name: Any) -> str | None:
    """Return the name of a domain as files in memory have it: as text; None if there is none."""
    return as_text(_plain(name)) or None


def _factorised(values: Any, rename: Callable[[Any], Any] = _plain) -> tuple[Any, Any]:
    """Return the number of each value, -1 for a missing one, and what the numbers mean."""
    import pandas as pd

    try:
        codes, found = pd.factorize(values)
    except TypeError as error:  # lists, say
        raise InvalidInputError(
            f"labels and domains must be names or whole numbers ({error}): is it the right column?"
        ) from error
    names = [rename(name) for name in found.tolist()]
    # Two ways to write a name, with blanks around it say, are one.
    known = [name for name in dict.fromkeys(names) if name is not None]
    places = {name: place for place, name in enumerate(known)}
    return np.array([*(places.get(name, -1) for name in names), -1])[codes], known
