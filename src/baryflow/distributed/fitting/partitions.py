"""Rows in partitions: what a fit, a summary or a prediction over many of them is given."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import Any

from baryflow.distributed.blocks import ArrayReader, FrameReader, ParquetReader, Reader, as_label
from baryflow.distributed.columns import agree, refuse_odd
from baryflow.distributed.parquet import NOTHING, PIECE, Folder
from baryflow.distributed.store import open_system
from baryflow.exceptions import InvalidInputError
from baryflow.streams.tables import WHOLE


@dataclass(frozen=True)
class Parts:
    """Rows in pieces, each of which fits into the memory of a worker.

    Made by :func:`read_parquet`, :func:`from_frame` or :func:`from_arrays`.

    Attributes
    ----------
    reader : Reader
        Makes rows of a piece.
    pieces : list
    columns : list or None
        Names of the features.
    n_features : int
    labelled : bool
    identity : str
        The same for the same rows in the same pieces, as far as that can be told without reading them.
    left_out : dict of str → str
        Columns that are no features, and why.
    """

    reader: Reader = field(repr=False)
    pieces: list[Any] = field(repr=False)  # there may be thousands
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
    piece_bytes: int = PIECE,
) -> Parts:
    """Look at folders of Parquet files; rows are read by workers, when they are needed.

    Parameters
    ----------
    urls : str or sequence of str
        Folders or files on any file system that fsspec knows; one file system for all of them.
    label, domain : str, optional
        Columns of the class and of the domain of a row; a folder ``plant=north`` is a column, too.
        Domains are text, whatever the column holds.
    domain_from_file : bool
        Each file is a domain of its own, called like it; after its folder, too, if two are called alike.
    columns : sequence of str, optional
        The features; without it all columns of numbers that are not named here otherwise.
    ignore : sequence of str
        Columns to leave out.
    storage_options : dict, optional
        For the file system: credentials, endpoints.
    piece_bytes : int
        Row groups of a file are taken together up to so many bytes, uncompressed.

    Returns
    -------
    Parts

    Raises
    ------
    InvalidInputError
        If there is nothing to read, a file would be read twice, folders are on several file systems, a
        column is missing or holds no numbers, or files differ in one that is used. A column without any
        value in some files is no difference.
    """
    places = [urls] if isinstance(urls, str) else [str(url) for url in urls]
    if domain is not None and domain_from_file:
        raise InvalidInputError("the domain is in a column or in the files' names, and not in both")
    _refuse_several_systems(places, storage_options or {})
    folders = [Folder.open(name, storage_options, piece_bytes) for name in places]
    _refuse_twice(folders)
    first = folders[0]
    types, odd = agree({folder.url: folder.types for folder in folders})
    for folder in folders:
        odd |= folder.odd  # says it better: which file it is
    roles = _Roles(label, domain, columns, ignore)
    numbers = [name for name, one in odd.items() if "number" in one.kinds and name not in ignore]
    refuse_odd(odd, [*roles.apart, *(columns or numbers)])
    others = {name: f"holds {kind}" for name, kind in types.items() if kind != "number"}
    others |= dict.fromkeys(odd, "is not the same in all files")
    chosen, left_out = roles.choose([*types, *odd], others, f" in {first.url}")
    pieces = [piece for folder in folders for piece in folder.pieces]
    bare = replace(first, pieces=[], types={}, marks={}, odd={})
    if domain_from_file:
        names = _name_files([path for folder in folders for path in folder.marks])
        pieces = [replace(p, folders={**p.folders, _FILE: names[p.path]}) for p in pieces]
    reader = ParquetReader(
        bare, chosen, label, _FILE if domain_from_file else domain, whole=_are_whole(pieces, label)
    )
    marks = [sorted(folder.marks.items()) for folder in folders]
    told = repr(
        ([(p.path, p.groups, p.n_rows) for p in pieces], marks, chosen, label, domain, domain_from_file)
    )
    return Parts(reader, pieces, chosen, len(chosen), label is not None, _digest(told), left_out)


def from_frame(
    frame: Any,
    *,
    label: Any = None,
    domain: Any = None,
    columns: Sequence[Any] | None = None,
    ignore: Sequence[Any] = (),
) -> Parts:
    """Take the partitions of a Dask data frame.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    label, domain : column, optional
        Of the class and of the domain of a row.
    columns : sequence, optional
        The features; without it all columns of numbers that are not named here otherwise.
    ignore : sequence
        Columns to leave out.

    Returns
    -------
    Parts

    Raises
    ------
    InvalidInputError
        If it is no Dask frame, or a column is missing or holds no numbers.
    """
    import pandas as pd
    from dask.base import tokenize

    if not hasattr(frame, "to_delayed") or not hasattr(frame, "dtypes"):
        raise InvalidInputError(f"expected a Dask data frame, got a {type(frame).__name__}")
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()].tolist()[0]
        raise InvalidInputError(f"there are several columns called {twice!r}: rename them")
    is_number = pd.api.types.is_numeric_dtype
    others = {name: f"holds {kind}" for name, kind in frame.dtypes.items() if not is_number(kind)}
    roles = _Roles(label, domain, columns, ignore)
    chosen, left_out = roles.choose(frame.columns.tolist(), others, "")
    kept = frame[[*chosen, *roles.apart]]
    told = repr((tokenize(kept), chosen, label, domain))
    return Parts(
        FrameReader(chosen, label, domain), kept.to_delayed(), chosen, len(chosen), label is not None,
        _digest(told), left_out,
    )  # fmt: skip


def from_arrays(X: Any, y: Any = None, sample_domain: Any = None) -> Parts:
    """Take the blocks of Dask arrays.

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
        If they are no Dask arrays of such shapes.
    """
    from dask.base import tokenize

    if not hasattr(X, "numblocks") or X.ndim != 2:
        raise InvalidInputError(f"X must be a Dask array of rows and columns, got {type(X).__name__}")
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    beside: list[list[Any]] = []
    for name, column in (("y", y), ("sample_domain", sample_domain)):
        if column is None:
            beside.append([None] * X.numblocks[0])
            continue
        if not hasattr(column, "numblocks") or column.ndim != 1:
            raise InvalidInputError(f"{name} must be a Dask array of one column, got {column!r}")
        if column.shape[0] != X.shape[0]:  # also if neither is known
            raise InvalidInputError(
                f"X has {X.shape[0]} rows, {name} {column.shape[0]}: with unknown numbers of rows, call "
                "compute_chunk_sizes() first"
            )
        same = column if column.chunks[0] == X.chunks[0] else column.rechunk((X.chunks[0],))
        beside.append(same.to_delayed().ravel().tolist())
    pieces = list(zip(X.to_delayed().ravel().tolist(), *beside, strict=True))
    told = repr(tokenize(X, y, sample_domain))
    return Parts(ArrayReader(), pieces, None, int(X.shape[1]), y is not None, _digest(told))


def require_parts(parts: Any) -> None:
    """Refuse what is no partitions of ours.

    Parameters
    ----------
    parts : object

    Raises
    ------
    InvalidInputError
        If it is anything else; the message says what makes them.
    """
    if not isinstance(parts, Parts):
        raise InvalidInputError(
            f"expected rows in partitions, as read_parquet, from_frame or from_arrays gives them, got a "
            f"{type(parts).__name__}"
        )


#: The column in which names of files are, as if they were names of folders.
_FILE = "<name of the file>"


def _refuse_several_systems(places: list[str], options: dict[str, Any]) -> None:
    """Refuse what workers could not read, since they open one file system for all pieces."""
    systems = [open_system(place, options)[0] for place in places]
    for place, system in zip(places, systems, strict=True):
        if system != systems[0]:
            raise InvalidInputError(
                f"{places[0]} and {place} are on different file systems: expected one for all folders; "
                "copy the rows to one of them"
            )


def _refuse_twice(folders: list[Folder]) -> None:
    """Refuse files that are in two of the folders: their rows would count twice."""
    known: dict[str, str] = {}
    for folder in folders:
        for path in folder.marks:
            if path in known:
                raise InvalidInputError(
                    f"{path} would be read twice, in {known[path]} and in {folder.url}: expected each "
                    "file once; leave out one of the two"
                )
            known[path] = folder.url


def _name_files(paths: list[str]) -> dict[str, str]:
    """Return a name for each file: no two are the same."""
    # Blanks around a name are no part of it.
    ways = (lambda p: p.stem.strip(), lambda p: f"{p.parent.name}/{p.stem}".strip(), str)
    found: dict[str, str] = {}
    for way in ways:
        left = {path: way(PurePosixPath(path)) for path in paths if path not in found}
        often = Counter(left.values())
        found |= {path: name for path, name in left.items() if often[name] == 1 or way is str}
    return found


def _are_whole(pieces: Sequence[Any], column: str | None) -> bool:
    """Tell whether all names of folders for a column are whole numbers."""
    names = {piece.folders[column] for piece in pieces if column in piece.folders} - {*NOTHING}
    labels = {as_label(name) for name in names} - {None}
    return bool(labels) and all(WHOLE.fullmatch(label) for label in labels)


@dataclass(frozen=True)
class _Roles:
    """Which columns are what, as far as it was said."""

    label: Any
    domain: Any
    features: Sequence[Any] | None
    ignore: Sequence[Any]

    @property
    def apart(self) -> list[Any]:
        """Columns beside the features."""
        return [name for name in (self.label, self.domain) if name is not None]

    def choose(
        self, known: Sequence[Any], others: dict[Any, str], where: str
    ) -> tuple[list[Any], dict[Any, str]]:
        """Return the features, and columns that are left out for what they hold: no numbers."""
        apart, wanted = self.apart, list(self.features or ())
        for name in (*apart, *self.ignore, *wanted):
            if name not in known:
                names = ", ".join(map(str, known))
                raise InvalidInputError(f"there is no column {name!r}{where}; columns are: {names}")
        for name in apart:
            if name in wanted or apart.count(name) > 1:
                raise InvalidInputError(
                    f"column {name!r} has two roles: expected the label, the domain and the features to "
                    "be different columns"
                )
        free = [name for name in known if name not in apart and name not in self.ignore]
        left_out = {name: others[name] for name in free if name in others}
        chosen = wanted or [name for name in free if name not in others]
        wrong = [name for name in chosen if name in others]
        if wrong or not chosen:
            what = (
                f"column {wrong[0]!r} {others[wrong[0]]}" if wrong else "there is no column of numbers"
            )
            raise InvalidInputError(f"{what}{where}: features are numbers")
        return chosen, left_out


def _digest(words: str) -> str:
    # Another version may count otherwise: it begins anew.
    return hashlib.sha256(f"{version('baryflow')} {words}".encode()).hexdigest()[:16]
