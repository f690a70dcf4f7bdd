"""Rows in partitions, from Parquet files, Dask data frames or Dask arrays, and how to read them."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from dask.base import tokenize
from dask.delayed import delayed

from baryflow.distributed.parquet import (
    NO_VALUE,
    PARTITION_BYTES,
    Folder,
    Partition,
    refuse_mismatches,
    rows_per_batch,
)
from baryflow.exceptions import InvalidInputError
from baryflow.streams.decoding import as_text
from baryflow.streams.tables import UNLABELLED, WHOLE
from baryflow.validation import LARGEST, Floats, Integers

#: Why a row with unusable numbers is skipped.
OUT_OF_RANGE = f"contain infinity or numbers beyond ±{LARGEST:g}"
#: Column that holds the name of the file, handled like a column from folder names.
_FILE = "<name of the file>"


@dataclass(frozen=True)
class Parts:
    """Rows in partitions, each small enough for the memory of a worker.

    Create it with :func:`read_parquet`, :func:`from_frame` or :func:`from_arrays`.

    Attributes
    ----------
    reader : Reader
        Reads the rows of a partition.
    partitions : list
        Descriptions of Parquet partitions, or Dask's delayed partitions.
    columns : list or None
        Names of the features.
    n_features : int
    labelled : bool
        Whether rows have labels.
    identity : str
        Equal for equal rows in equal partitions, as far as that is known without reading them.
    left_out : dict of str → str
        Columns that are not features, with the reason.
    """

    reader: Reader = field(repr=False)
    partitions: list[Any] = field(repr=False)  # there may be thousands
    columns: list[Any] | None
    n_features: int
    labelled: bool
    identity: str
    left_out: dict[Any, str] = field(default_factory=dict)


def read_parquet(
    urls: str | Sequence[str],
    *,
    label: str | None = None,
    domain: str | None = None,
    domain_from_file: bool = False,
    columns: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    storage_options: dict[str, Any] | None = None,
    partition_bytes: int = PARTITION_BYTES,
) -> Parts:
    """Open folders of Parquet files. Workers read the rows later.

    Parameters
    ----------
    urls : str or sequence of str
        Folders or files on any file system that fsspec supports; the same one for all.
    label, domain : str, optional
        Columns that hold the class and the domain of a row. Folder names (``plant=north``) are columns,
        too. Domains are read as text.
    domain_from_file : bool
        Treat each file as a domain with the file's name, preceded by its folder if names repeat.
    columns : sequence of str, optional
        Features (default: all other numeric columns).
    ignore : sequence of str
        Columns to leave out.
    storage_options : dict, optional
        Options of the file system, such as credentials or endpoints.
    partition_bytes : int
        Combine row groups of a file up to this uncompressed size.

    Returns
    -------
    Parts

    Raises
    ------
    InvalidInputError
        If there are no files, a file is listed twice, the folders are on several file systems, a column
        is missing or not numeric, or files differ in a column that is used. A column that is empty in
        some files does not count as different.
    """
    if domain is not None and domain_from_file:
        raise InvalidInputError("domain and domain_from_file exclude each other: leave out one")
    folder = Folder.open(urls, storage_options, partition_bytes)
    roles, mismatches = _Roles(label, domain, columns, ignore), folder.mismatches
    numeric = [name for name, one in mismatches.items() if "number" in one.kinds and name not in ignore]
    refuse_mismatches(mismatches, [*roles.label_and_domain, *(columns or numeric)])
    unusable = {name: f"holds {kind}" for name, kind in folder.types.items() if kind != "number"}
    unusable |= dict.fromkeys(mismatches, "differs between files")
    chosen, left_out = roles.choose([*folder.types, *mismatches], unusable, f" in {folder.url}")
    partitions = folder.partitions
    if domain_from_file:
        names = _name_files(list(folder.versions))
        partitions = [replace(p, folders={**p.folders, _FILE: names[p.path]}) for p in partitions]
    reader = ParquetReader(
        chosen,
        label,
        _FILE if domain_from_file else domain,
        folder=folder.without_partitions(),
        integer_labels=_are_integers(partitions, label),
    )
    identity = _digest(
        [(p.path, p.groups, p.n_rows) for p in partitions],
        sorted(folder.versions.items()),
        *(chosen, label, domain, domain_from_file),
    )
    return Parts(reader, partitions, chosen, len(chosen), label is not None, identity, left_out)


def from_frame(
    frame: Any,
    *,
    label: Any = None,
    domain: Any = None,
    columns: Sequence[Any] | None = None,
    ignore: Sequence[Any] = (),
) -> Parts:
    """Use the partitions of a Dask data frame.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    label, domain : column, optional
        Columns that hold the class and the domain of a row.
    columns : sequence, optional
        Features (default: all other numeric columns).
    ignore : sequence
        Columns to leave out.

    Returns
    -------
    Parts

    Raises
    ------
    InvalidInputError
        If `frame` is not a Dask data frame, or a column is missing or not numeric.
    """
    if not hasattr(frame, "to_delayed") or not hasattr(frame, "dtypes"):
        raise InvalidInputError(f"expected a Dask data frame, got {type(frame).__name__}")
    if not frame.columns.is_unique:
        repeated = frame.columns[frame.columns.duplicated()].tolist()[0]
        raise InvalidInputError(f"there are several columns called {repeated!r}: rename them")
    is_number = pd.api.types.is_numeric_dtype
    unusable = {name: f"holds {kind}" for name, kind in frame.dtypes.items() if not is_number(kind)}
    roles = _Roles(label, domain, columns, ignore)
    chosen, left_out = roles.choose(frame.columns.tolist(), unusable, "")
    selected = frame[[*chosen, *roles.label_and_domain]]
    identity = _digest(tokenize(selected), chosen, label, domain)
    reader = FrameReader(chosen, label, domain)
    partitions = selected.to_delayed()
    return Parts(reader, partitions, chosen, len(chosen), label is not None, identity, left_out)


def from_arrays(X: Any, y: Any = None, sample_domain: Any = None) -> Parts:
    """Use the blocks of Dask arrays as partitions.

    Parameters
    ----------
    X : dask.array.Array of shape (n_samples, n_features)
    y : dask.array.Array of shape (n_samples,), optional
        The class of each row.
    sample_domain : dask.array.Array of shape (n_samples,), optional
        The domain of each row.

    Returns
    -------
    Parts

    Raises
    ------
    InvalidInputError
        If they are not Dask arrays of these shapes.
    """
    if not hasattr(X, "numblocks") or X.ndim != 2:
        raise InvalidInputError(f"X must be a two-dimensional Dask array, got {type(X).__name__}")
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    blocks = [X.to_delayed().ravel().tolist()]
    for name, column in (("y", y), ("sample_domain", sample_domain)):
        if column is None:
            blocks.append([None] * X.numblocks[0])
            continue
        if not hasattr(column, "numblocks") or column.ndim != 1:
            raise InvalidInputError(f"{name} must be a one-dimensional Dask array, got {column!r}")
        if column.shape[0] != X.shape[0]:  # also if both are unknown
            raise InvalidInputError(
                f"X has {X.shape[0]} rows, {name} has {column.shape[0]}: if the numbers of rows are "
                "unknown, call compute_chunk_sizes() first"
            )
        blocks.append(column.rechunk((X.chunks[0],)).to_delayed().ravel().tolist())
    d, as_frame = int(X.shape[1]), delayed(_as_frame)
    reader = FrameReader(
        list(range(d)),
        None if y is None else "y",
        None if sample_domain is None else "sample_domain",
    )
    partitions = [as_frame(*some) for some in zip(*blocks, strict=True)]
    return Parts(reader, partitions, None, d, y is not None, _digest(tokenize(X, y, sample_domain)))


def _as_frame(X: Any, y: Any, sample_domain: Any) -> Any:
    """Return a block of each array as a data frame; runs on a worker."""
    given = {"y": y, "sample_domain": sample_domain}
    return pd.DataFrame(X).assign(**{name: one for name, one in given.items() if one is not None})


def require_parts(parts: Any) -> None:
    """Raise an error unless `parts` is a Parts with at least one partition."""
    if not isinstance(parts, Parts):
        raise InvalidInputError(
            f"expected the result of read_parquet, from_frame or from_arrays, got {type(parts).__name__}"
        )
    if not parts.partitions:
        raise InvalidInputError("there are no rows: expected at least one partition")


# -- choosing columns ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Roles:
    """The columns that the caller named."""

    label: Any
    domain: Any
    features: Sequence[Any] | None
    ignore: Sequence[Any]

    @property
    def label_and_domain(self) -> list[Any]:
        """The columns of label and domain, if there are any."""
        return [name for name in (self.label, self.domain) if name is not None]

    def choose(
        self, known: Sequence[Any], unusable: dict[Any, str], where: str
    ) -> tuple[list[Any], dict[Any, str]]:
        """Return the features, and the other columns with the reason why they are left out."""
        reserved, features = self.label_and_domain, list(self.features or ())
        for name in (*reserved, *self.ignore, *features):
            if name not in known:
                names = ", ".join(map(str, known))
                raise InvalidInputError(f"there is no column {name!r}{where}; columns: {names}")
        for name in reserved:
            if name in features or reserved.count(name) > 1:
                raise InvalidInputError(
                    f"column {name!r} has two roles: label, domain and features must be distinct columns"
                )
        free = [name for name in known if name not in reserved and name not in self.ignore]
        chosen = features or [name for name in free if name not in unusable]
        if not chosen:
            raise InvalidInputError(f"there is no numeric column{where}: features must be numbers")
        for name in chosen:
            if name in unusable:
                raise InvalidInputError(
                    f"column {name!r} {unusable[name]}{where}: features must be numbers"
                )
        return chosen, {name: unusable[name] for name in free if name in unusable}


def _name_files(paths: list[str]) -> dict[str, str]:
    """Return a unique name for each file: its stem, with its folder, or the whole path."""
    ways = (lambda p: p.stem.strip(), lambda p: f"{p.parent.name}/{p.stem}".strip(), str)
    found: dict[str, str] = {}
    for way in ways:
        left = {path: way(PurePosixPath(path)) for path in paths if path not in found}
        times = Counter(left.values())
        found |= {path: name for path, name in left.items() if times[name] == 1 or way is str}
    return found


def _are_integers(partitions: Sequence[Partition], column: str | None) -> bool:
    """Return whether all folder names for a column are integers."""
    names = {one.folders[column] for one in partitions if column in one.folders} - {*NO_VALUE}
    labels = {_as_label(name) for name in names} - {None}
    return bool(labels) and all(WHOLE.fullmatch(label) for label in labels)


def _digest(*values: Any) -> str:
    # Another version may compute something else, so it does not reuse checkpoints of this one.
    return hashlib.sha256(f"{version('baryflow')} {values!r}".encode()).hexdigest()[:16]


# -- reading rows ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Block:
    """Usable rows, with their labels and domains; NaN marks a missing value.

    `labels` and `domains` list the names that occur, [None] if rows have none; `label_codes` and
    `domain_codes` index them. Rows without a label or domain, or with numbers out of range, are counted
    and left out.
    """

    X: Floats
    labels: list[Any]
    label_codes: Integers
    domains: list[Any]
    domain_codes: Integers
    without_label: int = 0
    without_domain: int = 0
    out_of_range: int = 0

    @classmethod
    def of(cls, X: Floats, label: tuple[Any, Any] | None, domain: tuple[Any, Any] | None) -> Block:
        """Leave out unusable rows. `label` and `domain` are codes (-1: missing) and their names."""
        label_codes, labels = label or (np.zeros(len(X), dtype=np.intp), [None])
        domain_codes, domains = domain or (np.zeros(len(X), dtype=np.intp), [None])
        in_range = ~(np.abs(X) > LARGEST).any(axis=1)
        labelled, has_domain = label_codes >= 0, domain_codes >= 0
        usable = in_range & labelled & has_domain
        if not usable.all():
            X, label_codes, domain_codes = X[usable], label_codes[usable], domain_codes[usable]
        return cls(
            X,
            labels,
            np.asarray(label_codes, dtype=np.intp),
            domains,
            np.asarray(domain_codes, dtype=np.intp),
            int((~labelled).sum()),
            int((labelled & ~has_domain).sum()),
            int((labelled & has_domain & ~in_range).sum()),
        )


@dataclass(frozen=True)
class Reader(ABC):
    """Reads these columns of a partition, and label and domain if they are named."""

    columns: Any
    label: Any = None
    domain: Any = None

    @abstractmethod
    def blocks(self, partition: Any) -> Iterator[Block]:
        """Yield the rows of a partition in blocks of moderate size."""

    def names_only(self) -> Reader:
        """Return a reader of labels and domains without features."""
        return replace(self, columns=[])

    def features_only(self, columns: list[Any] | None = None) -> Reader:
        """Return a reader of these columns that ignores labels and domains."""
        return replace(self, columns=columns or self.columns, label=None, domain=None)


@dataclass(frozen=True)
class ParquetReader(Reader):
    """Reads partitions of Parquet files. `folder` is without them: they are sent one by one."""

    folder: Folder = field(kw_only=True)
    integer_labels: bool = field(kw_only=True)  # whether labels from folder names are integers

    def blocks(self, partition: Partition) -> Iterator[Block]:
        """Yield the rows of a partition in blocks of moderate size."""
        names = [name for name in (self.label, self.domain) if name is not None]
        for batch in self.folder.batches(partition, [*self.columns, *names]):
            X = np.empty((batch.num_rows, len(self.columns)))
            for number, name in enumerate(self.columns):
                X[:, number] = batch.column(name).to_numpy(zero_copy_only=False)
            label = self._encode(self.label, batch, partition, _as_label)
            yield Block.of(X, label, self._encode(self.domain, batch, partition, _as_domain))

    def _encode(
        self, column: str | None, batch: Any, partition: Partition, convert: Callable[[Any], Any]
    ) -> tuple[Any, Any] | None:
        if column is None:
            return None
        if column not in partition.folders:
            # Keep integers beside missing values: as floats, large ones would become equal.
            return _encode(batch.column(column).to_pandas(integer_object_nulls=True), convert)
        value = partition.folders[column]
        name = None if value in NO_VALUE else convert(value)
        if name is None:
            return np.full(batch.num_rows, -1), []
        if self.integer_labels and column == self.label:
            name = int(name.partition(".")[0])  # 1.0 is 1, as in a column of numbers
        return np.zeros(batch.num_rows, dtype=np.intp), [name]


@dataclass(frozen=True)
class FrameReader(Reader):
    """Reads partitions of a Dask data frame, which are pandas data frames."""

    def blocks(self, partition: Any) -> Iterator[Block]:
        """Yield the rows of a partition in blocks of moderate size."""
        size = rows_per_batch(len(self.columns))
        for start in range(0, len(partition), size):
            part = partition.iloc[start : start + size]
            yield Block.of(
                np.ascontiguousarray(part[self.columns].to_numpy(dtype=np.float64, na_value=np.nan)),
                None if self.label is None else _encode(part[self.label]),
                None if self.domain is None else _encode(part[self.domain]),
            )


def _as_name(value: Any) -> Any:
    """Return a value as a string or number that prints as people write it: 3, not 3.0."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float | Decimal):
        return int(value) if math.isfinite(value) and value == int(value) else float(value)
    return value if isinstance(value, str | int) else str(value)  # dates, for example


def _as_label(value: Any) -> Any:
    """Return the name of a class as a fit in memory reads it from a file; None if it is missing."""
    name = _as_name(value)
    if not isinstance(name, str):
        return name
    text = as_text(name)
    return None if text.casefold() in UNLABELLED else text


def _as_domain(value: Any) -> str | None:
    """Return the name of a domain as text, as a fit in memory reads it; None if it is missing."""
    return as_text(_as_name(value)) or None


def _encode(values: Any, convert: Callable[[Any], Any] = _as_name) -> tuple[Any, Any]:
    """Return a code for each value, -1 for a missing one, and the names of the codes."""
    try:
        codes, found = pd.factorize(values)
    except TypeError as error:  # lists, for example
        raise InvalidInputError(
            f"labels and domains must be names or integers ({error}): check the column"
        ) from error
    converted = [convert(value) for value in found.tolist()]
    # Different spellings of a name, for example with spaces around it, get the same code.
    names = [name for name in dict.fromkeys(converted) if name is not None]
    code_of = {name: code for code, name in enumerate(names)}
    return np.array([*(code_of.get(name, -1) for name in converted), -1])[codes], names
