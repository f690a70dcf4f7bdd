"""Read folders of Parquet files in partitions that fit into memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from baryflow.distributed.files import filesystem_errors, open_filesystem
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.streams.columnar import damaged_parquet

#: Uncompressed bytes of a partition: row groups of a file are combined up to this size.
PARTITION_BYTES = 32 << 20
#: Approximate bytes of a batch of decoded rows.
_BATCH_BYTES = 16 << 20
#: Values of a folder name (``plant=``) that mean "no value"; Hive and Spark write the second.
NO_VALUE = ("", "__HIVE_DEFAULT_PARTITION__")
#: Number of file footers that are read in parallel.
_READERS = 16
#: Entries of an fsspec listing that change when a file is rewritten.
_VERSION_KEYS = (
    *("ETag", "etag", "md5Hash", "generation", "checksum"),
    *("mtime", "LastModified", "last_modified", "updated", "modified"),
)


@dataclass(frozen=True)
class Partition:
    """Some row groups of a Parquet file.

    `folders` holds the columns that folder names define (``plant=north`` is a column ``plant``).
    """

    path: str
    groups: tuple[int, ...]
    n_rows: int
    folders: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mismatch:
    """A column that differs between files: the kinds it has, and a message that names two files."""

    kinds: frozenset[str]
    message: str


@dataclass(frozen=True)
class Folder:
    """Folders of Parquet files, or single files; `url` is the first of them."""

    url: str
    options: dict[str, Any] = field(repr=False)  # keep credentials out of logs
    #: Ordered by file name; numbers in names are compared as numbers.
    partitions: list[Partition]
    #: Kind of each column that all files share: "number", "text" (also of folder names), "other", or
    #: "nothing" if it is empty in every file.
    types: dict[str, str]
    #: What changes when a file is rewritten: its checksum or modification time, and size.
    versions: dict[str, str] = field(default_factory=dict, repr=False)
    #: Columns that differ between files. They matter only if they are used.
    mismatches: dict[str, Mismatch] = field(default_factory=dict, repr=False)
    #: Files that cannot be read, as empty partitions, with the reason.
    unreadable: list[tuple[Partition, str]] = field(default_factory=list, repr=False)

    @classmethod
    def open(
        cls,
        urls: str | Sequence[str],
        options: dict[str, Any] | None = None,
        size: int = PARTITION_BYTES,
        *,
        skip_unreadable: bool = False,
    ) -> Folder:
        """List the files and read their footers, without reading any rows.

        With `skip_unreadable`, damaged files are listed in `unreadable` instead of raising an error,
        unless all files are damaged. `size` is the uncompressed size of a partition in bytes.
        """
        urls, options = [urls] if isinstance(urls, str) else urls, options or {}
        system, _ = open_filesystem(urls[0], options)
        found: dict[str, tuple[dict[str, Any], str, str]] = {}  # path → what is known, root, URL
        for url in urls:
            here, root = open_filesystem(url, options)
            if here != system:
                raise InvalidInputError(
                    f"{urls[0]} and {url} are on different file systems: copy the files to one of them"
                )
            for path, info in _list_files(system, root, url).items():
                if path in found:
                    raise InvalidInputError(
                        f"{path} would be read twice, from {found[path][2]} and {url}: leave out one"
                    )
                found[path] = info, root, url
        with ThreadPoolExecutor(min(_READERS, len(found))) as pool:
            footers = list(pool.map(lambda path: _read_footer(system, path, size), found))
        damaged = [footer for footer in footers if isinstance(footer, str)]
        if damaged and (not skip_unreadable or len(damaged) == len(footers)):
            raise InvalidInputError(damaged[0])
        partitions, kinds = list[Partition](), dict[str, dict[str, str]]()
        unreadable = list[tuple[Partition, str]]()
        for (path, (_, root, _)), footer in zip(found.items(), footers, strict=True):
            columns = _columns_of_path(path, root)
            if isinstance(footer, str):
                unreadable.append((Partition(path, (), 0, columns), footer))
            else:
                partitions += [Partition(path, groups, n_rows, columns) for groups, n_rows in footer[0]]
                kinds[path] = footer[1] | dict.fromkeys(columns, "text")
        types, mismatches = compare_columns(kinds)
        versions = {path: _version(info) for path, (info, _, _) in found.items()}
        return cls(urls[0], options, partitions, types, versions, mismatches, unreadable)

    @property
    def n_rows(self) -> int:
        """Number of rows in all partitions."""
        return sum(partition.n_rows for partition in self.partitions)

    def without_partitions(self) -> Folder:
        """Return what is needed to read a partition, which is all that a worker gets."""
        return Folder(self.url, self.options, [], {})

    def batches(self, partition: Partition, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the rows of a partition as record batches of moderate size.

        Columns from folder names are not in the batches: take them from the partition.
        """
        system, _ = open_filesystem(self.url, self.options)
        wanted = [name for name in columns if name not in partition.folders]
        with system.open(partition.path, "rb") as handle:
            batches = pq.ParquetFile(handle).iter_batches(
                rows_per_batch(len(wanted)),
                row_groups=list(partition.groups),
                columns=wanted,
                use_threads=False,
            )
            while True:
                try:
                    batch = next(batches, None)
                except (pa.ArrowException, OSError) as error:
                    raise FileFormatError(f"{partition.path} is damaged: {error}") from error
                if batch is None:
                    return
                yield _without_views(batch)


def rows_per_batch(n_columns: int) -> int:
    """Return how many rows are decoded together."""
    return max(256, _BATCH_BYTES // (8 * max(1, n_columns)))


def compare_columns(found: dict[str, dict[str, str]]) -> tuple[dict[str, str], dict[str, Mismatch]]:
    """Compare the column kinds of several files; return the common ones and the mismatches.

    `found` maps each file to the kinds of its columns. The kind "nothing" agrees with every other.
    """
    # Most files are alike: look at the first file of each schema only.
    schemas = {frozenset(kinds.items()): (path, kinds) for path, kinds in reversed(found.items())}
    distinct = list(reversed(schemas.values()))
    types, mismatches = dict[str, str](), dict[str, Mismatch]()
    for name in dict.fromkeys(name for _, kinds in distinct for name in kinds):
        first: dict[str, str] = {}  # kind → first file that has it
        for path, kinds in distinct:
            first.setdefault(kinds.get(name, "missing"), path)
        without = first.pop("missing", None)
        full = [kind for kind in first if kind != "nothing"]
        if without is None and len(full) <= 1:
            types[name] = full[0] if full else "nothing"
            continue
        if without is not None:
            difference = f"{without} has no column {name!r}, but {next(iter(first.values()))} has"
        else:
            one, other = full[:2]
            difference = f"column {name!r} holds {one} in {first[one]} but {other} in {first[other]}"
        message = f"{difference}: columns that are used must be the same in all files"
        mismatches[name] = Mismatch(frozenset(first), message)
    return types, mismatches


def refuse_mismatches(mismatches: dict[str, Mismatch], used: Sequence[str]) -> None:
    """Raise an error if one of the used columns differs between files."""
    for name in used:
        if name in mismatches:
            raise InvalidInputError(mismatches[name].message)


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts part-10 after part-2."""
    pieces = re.split(r"(\d+)", name)
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces]


def _list_files(system: Any, root: str, url: str) -> dict[str, Any]:
    """Return the Parquet files in order, with what the file system says about each."""
    system.invalidate_cache()
    with filesystem_errors(url):
        if system.isfile(root):
            return {root: system.info(root)}
        found = system.find(root, detail=True)
    paths = [
        path
        for path in found
        if path.endswith((".parquet", ".parq", ".pq"))
        # By convention these are not data: temporary files, metadata.
        and not any(part.startswith(("_", ".")) for part in path[len(root) :].split("/") if part)
    ]
    if not paths:
        reason = "contains no Parquet files" if system.exists(root) else "does not exist"
        raise InvalidInputError(
            f"{url} {reason}: expected a .parquet file, or a folder of .parquet files"
        )
    return {path: found[path] for path in sorted(paths, key=natural_key)}


def _version(info: dict[str, Any]) -> str:
    known = [(name, str(info[name])) for name in _VERSION_KEYS if info.get(name) is not None]
    return repr(known or str(info.get("created"))) + f" {info.get('size')} bytes"


def _read_footer(
    system: Any, path: str, size: int
) -> tuple[list[tuple[tuple[int, ...], int]], dict[str, str]] | str:
    """Return the row groups of each partition and the column kinds, or why the file cannot be read."""
    try:
        with system.open(path, "rb") as handle:
            file = pq.ParquetFile(handle)
            footer, schema = file.metadata, file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        return str(damaged_parquet(path, error))
    repeated = [name for name, times in Counter(schema.names).items() if times > 1]
    if repeated:
        return f"{path} has several columns called {repeated[0]!r}: rename them"
    partitions: list[tuple[list[int], int, int]] = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        if not group.num_rows:
            continue
        if not partitions or partitions[-1][2] + group.total_byte_size > size:
            partitions.append(([], 0, 0))
        groups, n_rows, n_bytes = partitions[-1]
        partitions[-1] = ([*groups, number], n_rows + group.num_rows, n_bytes + group.total_byte_size)
    return [(tuple(groups), n) for groups, n, _ in partitions], {f.name: _kind(f.type) for f in schema}


def _kind(kind: Any) -> str:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):  # pandas writes this for a column without values
        return "nothing"
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    if any(is_one(kind) for is_one in numbers):
        return "number"
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return "text" if any(is_one(kind) for is_one in texts) else "other"


def _without_views(batch: Any) -> Any:
    """Convert string views to strings: Arrow cannot select rows of views."""
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    if not any(kind in plain for kind in batch.schema.types):
        return batch
    columns = [column.cast(plain.get(column.type, column.type)) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _columns_of_path(path: str, root: str) -> dict[str, str]:
    folders = (part.partition("=") for part in path[len(root) :].split("/")[:-1])
    return {unquote(name): unquote(value) for name, equals, value in folders if equals}
