"""Rows at hand, whatever they come from: Parquet, a frame or an array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Protocol

import numpy as np

from baryflow.distributed.parquet import Folder, Piece
from baryflow.validation import Booleans, Floats, Integers

#: Bytes of rows that are looked at together.
_AT_A_TIME = 16 << 20


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows, the class of each and whose they are.

    Attributes
    ----------
    X : array of shape (n, d)
        Finite values, or NaN for missing ones.
    labels, domains : list
        Classes and domains that occur here; a single None each where rows have none.
    codes, whose : array of shape (n,)
        Of each row its place in them.
    used : array of bool
        Which of the rows that came these are.
    unlabelled, nowhere, rejected : int
        Rows that are not used: without a label, without a domain, with infinite values.
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
        finite = ~np.isinf(X).any(axis=1)
        unlabelled, nowhere = codes < 0, whose < 0
        used = finite & ~unlabelled & ~nowhere
        if not used.all():
            X, codes, whose = X[used], codes[used], whose[used]
        return cls(
            X,
            [_plain(name) for name in labels],
            np.asarray(codes, dtype=np.intp),
            [_plain(name) for name in domains],
            np.asarray(whose, dtype=np.intp),
            used,
            int(unlabelled.sum()),
            int((nowhere & ~unlabelled).sum()),
            int((~finite & ~nowhere & ~unlabelled).sum()),
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
    domain_from_file : bool
    """

    folder: Folder
    columns: list[str]
    label: str | None = None
    domain: str | None = None
    domain_from_file: bool = False

    def blocks(self, piece: Piece) -> Iterator[Block]:
        """Yield the rows of a piece, some at a time."""
        names = [name for name in (self.label, self.domain) if name is not None]
        for batch in self.folder.batches(piece, [*self.columns, *names]):
            X = np.empty((batch.num_rows, len(self.columns)))
            for number, name in enumerate(self.columns):
                X[:, number] = batch.column(name).to_numpy(zero_copy_only=False)
            yield Block.of(X, self._named(self.label, batch, piece), self._domain(batch, piece))

    def rows_only(self, columns: list[Any] | None = None) -> ParquetReader:
        """Return one that looks at neither labels nor domains, and at these columns only."""
        return ParquetReader(self.folder, columns or self.columns)

    def _domain(self, batch: Any, piece: Piece) -> tuple[Any, Any] | None:
        if self.domain_from_file:
            return _all_one(batch.num_rows, PurePosixPath(piece.path).stem)
        return self._named(self.domain, batch, piece)

    def _named(self, column: str | None, batch: Any, piece: Piece) -> tuple[Any, Any] | None:
        if column is None:
            return None
        if column in piece.folders:
            return _all_one(batch.num_rows, piece.folders[column])
        return _factorised(batch.column(column).to_pandas())


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
    size = max(256, _AT_A_TIME // (8 * max(1, n_columns)))
    return (slice(start, start + size) for start in range(0, n_rows, size))


def _all_one(n: int, name: str) -> tuple[Any, Any]:
    return np.zeros(n, dtype=np.intp), [int(name) if name.lstrip("-").isdecimal() else name]


def _factorised(values: Any) -> tuple[Any, Any]:
    """Return the number of each value, -1 for a missing one, and what the numbers mean."""
    import pandas as pd

    codes, names = pd.factorize(values)
    return codes, names.tolist()


def _plain(name: Any) -> Any:
    """Return a name as a string or a number that prints as people write it: 3, not 3.0."""
    if isinstance(name, float) and name.is_integer():
        return int(name)
    return name.item() if isinstance(name, np.generic) else name
