"""Folders of Parquet files, in pieces that fit into memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from baryflow.distributed.columns import Odd, agree
from baryflow.distributed.store import open_system, told_if_refused
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.streams.columnar import damaged_parquet

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
    unreadable : list of (Piece, str)
        Files that are no Parquet, cut off say, and why; pieces without rows. Only if they are spared.
    """

    url: str
    options: dict[str, Any] = field(repr=False)  # secrets are not for logs
    pieces: list[Piece]
    types: dict[str, str]
    marks: dict[str, str] = field(default_factory=dict, repr=False)
    odd: dict[str, Odd] = field(default_factory=dict, repr=False)
    unreadable: list[tuple[Piece, str]] = field(default_factory=list, repr=False)

    @classmethod
    def open(
        cls, url: str, options: dict[str, Any] | None = None, size: int = PIECE, *, spare: bool = False
    ) -> Folder:
        """Look at what is there, without reading any row.

        Parameters
        ----------
        url : str
            A folder or a file, on any file system that fsspec knows.
        options : dict, optional
            For the file system.
        size : int
            Bytes of a piece, uncompressed.
        spare : bool
            Files that cannot be read are told of, instead of being refused; not if all of them are such.

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
            there = "there is no Parquet file in" if system.exists(root) else "there is no"
            raise InvalidInputError(
                f"{there} {url}: expected a folder with files that end with .parquet, or such a file"
            )
        with ThreadPoolExecutor(min(_READERS, len(paths))) as pool:
            looks = list(pool.map(lambda path: _look(system, path, size), paths))
        wrong = {path: end for path, end in zip(paths, looks, strict=True) if isinstance(end, str)}
        if wrong and (not spare or len(wrong) == len(paths)):
            raise InvalidInputError(next(iter(wrong.values())))
        paths = [path for path in paths if path not in wrong]
        ends = [end for end in looks if not isinstance(end, str)]
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
        unreadable = [(Piece(path, (), 0, _folders(path, root)), why) for path, why in wrong.items()]
        return cls(str(url), dict(options or {}), pieces, types, marks, odd, unreadable)

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

        Raises
        ------
        FileFormatError
            If there is damage in the file.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        system, _ = open_system(self.url, self.options)
        wanted = [name for name in columns if name not in piece.folders]
        size = rows_at_a_time(len(wanted))
        with system.open(piece.path, "rb") as handle:
            file = pq.ParquetFile(handle)
            batches = file.iter_batches(
                size, row_groups=list(piece.groups), columns=wanted, use_threads=False
            )
            while True:
                try:
                    batch = next(batches, None)
                except (pa.ArrowException, OSError) as error:
                    raise FileFormatError(f"{piece.path} is damaged: {error}") from error
                if batch is None:
                    return
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


def _look(
    system: Any, path: str, size: int
) -> tuple[list[tuple[tuple[int, ...], int]], dict[str, str]] | str:
    """Return row groups in pieces, and the kinds of the columns; or why that cannot be told."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with system.open(path, "rb") as handle:
            file = pq.ParquetFile(handle)
            end, schema = file.metadata, file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        return str(damaged_parquet(path, error))
    twice = [name for name, times in Counter(schema.names).items() if times > 1]
    if twice:
        return f"{path} has several columns called {twice[0]!r}: rename them"
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
