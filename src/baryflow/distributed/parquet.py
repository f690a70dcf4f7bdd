"""Folders of Parquet files, in pieces that fit into memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from baryflow.distributed.store import open_system, told_if_refused
from baryflow.exceptions import InvalidInputError

#: Bytes of a piece, uncompressed: row groups of a file are taken together up to this.
PIECE = 32 << 20
#: Rows that are at hand at a time take about so many bytes.
_AT_A_TIME = 16 << 20
#: Names of folders that say that there is no name; the second is what Hive and Spark write.
NOTHING = ("", "__HIVE_DEFAULT_PARTITION__")
#: Files whose ends are looked at in parallel.
_READERS = 16
#: By what file systems tell that a file was written again: by its contents, or by the time.
_MARKS = (
    "ETag", "etag", "md5Hash", "generation", "checksum",
    "mtime", "LastModified", "last_modified", "updated", "modified",
)  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """Some row groups of a Parquet file.

    Attributes
    ----------
    path : str
        On its file system.
    groups : tuple of int
        Row groups.
    n_rows : int
    folders : dict of str → str
        What the names of the folders say: ``machine=7`` is a column, too.
    """

    path: str
    groups: tuple[int, ...]
    n_rows: int
    folders: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Odd:
    """A column that is not the same in all files.

    Attributes
    ----------
    kinds : frozenset of str
        Those it has in some file.
    words : str
        Which file differs from which other, and in what.
    """

    kinds: frozenset[str]
    words: str


@dataclass(frozen=True)
class Folder:
    """A folder of Parquet files, or a single one.

    Attributes
    ----------
    url : str
    options : dict
        For the file system.
    pieces : list of Piece
        In the order of the files' names, numbers in them counting as such.
    types : dict of str → str
        Kind of each column that all files have: "number", "text", "other", or "nothing" if it holds no
        value in any of them; folders' columns are "text".
    marks : dict of str → str
        What the file system says of each file; it is another once the file was written again.
    odd : dict of str → Odd
        Columns in which files differ: all is well as long as they are not used.
    """

    url: str
    options: dict[str, Any] = field(repr=False)  # secrets are not for logs
    pieces: list[Piece]
    types: dict[str, str]
    marks: dict[str, str] = field(default_factory=dict, repr=False)
    odd: dict[str, Odd] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, url: str, options: dict[str, Any] | None = None, size: int = PIECE) -> Folder:
        """Look at what is there, without reading any row.

        Parameters
        ----------
        url : str
            A folder or a file, on any file system that fsspec knows.
        options : dict, optional
            For the file system.
        size : int
            Bytes of a piece, uncompressed.

        Returns
        -------
        Folder

        Raises
        ------
        InvalidInputError
            If there is no Parquet file, or one of them cannot be read.
        UnreachableError
            If the file system refuses us, for want of credentials say.
        """
        system, root = open_system(str(url), options or {})
        system.invalidate_cache()
        with told_if_refused(str(url)):
            found = {root: system.info(root)} if system.isfile(root) else _find(system, root)
        paths = list(found)
        if not paths:
            raise InvalidInputError(
                f"there is no Parquet file in {url}: expected a folder with files that end with .parquet"
            )
        with ThreadPoolExecutor(min(_READERS, len(paths))) as pool:
            ends = list(pool.map(lambda path: _look(system, path, size), paths))
        folders = [_folders(path, root) for path in paths]
        kinds = [
            own | dict.fromkeys(named, "text") for (_, own), named in zip(ends, folders, strict=True)
        ]
        types, odd = agree(dict(zip(paths, kinds, strict=True)))
        pieces = [
            Piece(path, groups, n_rows, named)
            for path, (parts, _), named in zip(paths, ends, folders, strict=True)
            for groups, n_rows in parts
        ]
        marks = {path: _mark(about) for path, about in found.items()}
        return cls(str(url), dict(options or {}), pieces, types, marks, odd)

    @property
    def n_rows(self) -> int:
        """Rows in all pieces."""
        return sum(piece.n_rows for piece in self.pieces)

    @property
    def numbers(self) -> list[str]:
        """Columns that hold numbers."""
        return [name for name, kind in self.types.items() if kind == "number"]

    def batches(self, piece: Piece, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the rows of a piece, some at a time.

        Parameters
        ----------
        piece : Piece
        columns : sequence of str
            Those that are wanted; those of folders are to be had from the piece.

        Yields
        ------
        pyarrow.RecordBatch
            Without views of text, which parts of Arrow do not know.
        """
        import pyarrow.parquet as pq

        system, _ = open_system(self.url, self.options)
        wanted = [name for name in columns if name not in piece.folders]
        size = rows_at_a_time(len(wanted))
        with system.open(piece.path, "rb") as handle:
            file = pq.ParquetFile(handle)
            for batch in file.iter_batches(
                size, row_groups=list(piece.groups), columns=wanted, use_threads=False
            ):
                yield _without_views(batch)


def rows_at_a_time(n_columns: int) -> int:
    """Return how many rows are decoded and looked at together.

    Parameters
    ----------
    n_columns : int

    Returns
    -------
    int
    """
    return max(256, _AT_A_TIME // (8 * max(1, n_columns)))


def _find(system: Any, root: str) -> dict[str, Any]:
    """Return the files in order, and what the file system says of each."""
    found = system.find(root, detail=True)
    paths = [
        path
        for path in found
        if path.endswith((".parquet", ".parq", ".pq"))
        # What begins so is no data: unfinished, or notes of whoever wrote it.
        and not any(part.startswith(("_", ".")) for part in path[len(root) :].split("/") if part)
    ]
    return {path: found[path] for path in sorted(paths, key=natural)}


def _mark(about: dict[str, Any]) -> str:
    told = [(name, str(about[name])) for name in _MARKS if about.get(name) is not None]
    return repr(told or str(about.get("created"))) + f" {about.get('size')} bytes"


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return what to sort names by, so that part-10 comes after part-2.

    Parameters
    ----------
    name : str

    Returns
    -------
    list
    """
    pieces = re.split(r"(\d+)", name)
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces]


def _look(system: Any, path: str, size: int) -> tuple[list[tuple[tuple[int, ...], int]], dict[str, str]]:
    """Return row groups in pieces, and the kinds of the columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with system.open(path, "rb") as handle:
            file = pq.ParquetFile(handle)
            end, schema = file.metadata, file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(f"{path} cannot be read as Parquet: {error}") from error
    twice = [name for name, times in Counter(schema.names).items() if times > 1]
    if twice:
        raise InvalidInputError(f"{path} has several columns called {twice[0]!r}: rename them")
    pieces: list[tuple[list[int], int, int]] = []
    for number in range(end.num_row_groups):
        group = end.row_group(number)
        if not group.num_rows:
            continue
        if not pieces or pieces[-1][2] + group.total_byte_size > size:
            pieces.append(([], 0, 0))
        groups, n_rows, n_bytes = pieces[-1]
        pieces[-1] = ([*groups, number], n_rows + group.num_rows, n_bytes + group.total_byte_size)
    return [(tuple(groups), n) for groups, n, _ in pieces], {f.name: _kind(f.type) for f in schema}


def _kind(kind: Any) -> str:
    import pyarrow.types as is_

    if is_.is_dictionary(kind):
        kind = kind.value_type
    if is_.is_null(kind):  # what pandas makes of a column without a value
        return "nothing"
    numbers = (is_.is_integer, is_.is_floating, is_.is_boolean, is_.is_decimal)
    if any(is_one(kind) for is_one in numbers):
        return "number"
    texts = (is_.is_string, is_.is_large_string, is_.is_string_view)
    return "text" if any(is_one(kind) for is_one in texts) else "other"


def _without_views(batch: Any) -> Any:
    """Return columns of text in the old way: Arrow can pick rows of them, but not of views."""
    import pyarrow as pa

    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    if not any(kind in plain for kind in batch.schema.types):
        return batch
    columns = [column.cast(plain.get(column.type, column.type)) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _folders(path: str, root: str) -> dict[str, str]:
    parts = path[len(root) :].split("/")[:-1]
    said = (part.partition("=") for part in parts)
    return {unquote(name): unquote(value) for name, is_, value in said if is_}


def agree(found: dict[str, dict[str, str]]) -> tuple[dict[str, str], dict[str, Odd]]:
    """Return the columns that are the same everywhere, and what is wrong with the others.

    Parameters
    ----------
    found : dict of str → dict of str → str
        Of each place, a file say, the kinds of its columns. A column that holds nothing there is of any
        kind.

    Returns
    -------
    types : dict of str → str
    odd : dict of str → Odd
    """
    # Most files are alike: only the first of each sort is looked at.
    sorts = {frozenset(kinds.items()): (place, kinds) for place, kinds in reversed(found.items())}
    several = list(reversed(sorts.values()))
    types, odd = dict[str, str](), dict[str, Odd]()
    for name in dict.fromkeys(name for _, kinds in several for name in kinds):
        where: dict[str, str] = {}  # the first place of each kind
        for place, kinds in several:
            where.setdefault(kinds.get(name, "lacking"), place)
        lacking = where.pop("lacking", None)
        full = [kind for kind in where if kind != "nothing"]
        if lacking is None and len(full) <= 1:
            types[name] = full[0] if full else "nothing"
            continue
        if lacking is not None:
            words = f"{lacking} lacks the column {name!r}, which {next(iter(where.values()))} has"
        else:
            one, other = full[:2]
            words = (
                f"{where[other]} has other values in column {name!r} ({other}) than {where[one]} ({one})"
            )
        words += ": columns that are used must be the same in all files"
        odd[name] = Odd(frozenset(where), words)
    return types, odd


def refuse_odd(odd: dict[str, Odd], used: Sequence[str]) -> None:
    """Refuse columns in which files differ.

    Parameters
    ----------
    odd : dict of str → Odd
    used : sequence of str

    Raises
    ------
    InvalidInputError
        If one of those that are used is among them.
    """
    for name in used:
        if name in odd:
            raise InvalidInputError(odd[name].words)
