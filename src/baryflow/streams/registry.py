"""Open sources and sinks by file name or URL.

File formats are chosen by suffix, transports by URL scheme. A transport is an object (or a module) with
the two functions of :class:`Transport`. Built-in ones are listed in ``_TRANSPORTS``; others are added
with :func:`register_transport`, or by a package that declares an entry point in the group
``baryflow.transports``, named after the scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Batch, Sink, Source
from baryflow.streams.bytesource import open_bytes
from baryflow.streams.columnar import ColumnReader, NpzReader, ParquetReader
from baryflow.streams.decoding import Block, Selection, list_names, reject_invalid, suggest
from baryflow.streams.label_records import CommandFormat, LabelFormat
from baryflow.streams.sinks import CsvSink, NdjsonSink, ParquetSink, parse_size
from baryflow.streams.text import TextReader
from baryflow.streams.urls import Credentials, Endpoint, is_url
from baryflow.validation import as_count

Reader = TextReader | ColumnReader
#: Suffix → text format; None decides by the first line.
_TEXT = {".csv": "csv", ".tsv": "csv", ".txt": None, ".ndjson": "ndjson", ".jsonl": "ndjson"}
#: Suffix → reader of a columnar format.
_COLUMNAR = {".parquet": ParquetReader, ".npz": NpzReader}
_SPREADSHEETS = (".xlsx", ".xls", ".ods")
#: Suffix → sink that appends text.
_TEXT_SINKS = {".ndjson": NdjsonSink, ".jsonl": NdjsonSink, ".csv": CsvSink}


@dataclass(frozen=True)
class SourceOptions:
    """The arguments of :func:`open_source` that a transport receives.

    Attributes
    ----------
    columns : sequence of str or None
        The columns of a row, in order; None for all.
    time, key : str or None
        Columns that are copied as text. A key that begins with ``@`` is a property of the message
        instead of a column: ``"@topic"``, ``"@key"``.
    idle : float or None
        ``read`` returns what it has, even nothing, after this many seconds without a row.
    sample_interval : float or None
        Seconds between rows, if values arrive one at a time and rows are sampled from them.
    tags : str or None
        File that lists the tags whose values arrive one at a time.
    max_age : float or None
        Treat tag values older than this many seconds as missing.
    labels : LabelFormat, CommandFormat or None
        Messages are labels or commands in this format, and no rows.
    durable : bool
        Whether the broker keeps messages while no process reads, because a checkpoint resumes.
    """

    columns: Sequence[str] | None = None
    time: str | None = None
    key: str | None = None
    idle: float | None = None
    sample_interval: float | None = None
    tags: str | None = None
    max_age: float | None = None
    labels: LabelFormat | CommandFormat | None = None
    durable: bool = False


class Transport(Protocol):
    """Opens sources and sinks for a URL scheme; a module with these two functions will do."""

    def open_source(self, endpoint: Endpoint, options: SourceOptions) -> Source:
        """Open a source of rows.

        Parameters
        ----------
        endpoint : Endpoint
        options : SourceOptions

        Returns
        -------
        Source
            A broker that is away, also at the start, is not an error: the source waits for it without
            limit, and reports it in the notices of its batches.

        Raises
        ------
        InvalidInputError
            If the address is invalid.
        UnreachableError
            If access is denied.
        """

    def open_sink(self, endpoint: Endpoint) -> Sink:
        """Open a sink for records.

        Parameters
        ----------
        endpoint : Endpoint

        Returns
        -------
        Sink
            Sent records cannot be taken back, so ``truncate`` does nothing. After a kill, some records
            are sent again, byte for byte the same. A broker that is away, also at the start, is not an
            error: ``flush`` waits for it, as the policy of the endpoint says.

        Raises
        ------
        InvalidInputError
            If the address is invalid.
        UnreachableError
            If access is denied.
        """


#: Scheme → transport, or the module that holds it, which is imported on first use.
_TRANSPORTS: dict[str, Transport | str] = {
    "mqtt": "baryflow.streams.mqtt",
    "mqtts": "baryflow.streams.mqtt",
    "kafka": "baryflow.streams.kafka",
    "kafka+ssl": "baryflow.streams.kafka",
    "opc.tcp": "baryflow.streams.opcua",
}
_ENTRY_POINTS = "baryflow.transports"


def register_transport(scheme: str, transport: Transport) -> None:
    """Let :func:`open_source` and :func:`open_sink` open URLs with this scheme.

    A package can do without this call: an entry point in the group ``baryflow.transports``, named after
    the scheme, is found by itself.

    Parameters
    ----------
    scheme : str
        What stands before ``://``, in lower case.
    transport : Transport

    Raises
    ------
    InvalidInputError
        If the scheme is not in lower case, or is registered already.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from baryflow.streams import open_sink, register_transport
    >>> register_transport("null", SimpleNamespace(open_sink=lambda endpoint: f"opened {endpoint}"))
    >>> open_sink("null://host/topic")
    'opened null://host/topic'
    """
    if not scheme or scheme != scheme.lower() or "://" in scheme:
        raise InvalidInputError(f"scheme must be in lower case and without ://, got {scheme!r}")
    if scheme in _TRANSPORTS:
        raise InvalidInputError(f"{scheme}:// is registered already; choose another scheme")
    _TRANSPORTS[scheme] = transport


def _find_transport(scheme: str) -> Transport:
    known = _TRANSPORTS.get(scheme)
    if known is None:
        installed = {point.name: point for point in entry_points(group=_ENTRY_POINTS)}
        if scheme not in installed:
            schemes = ", ".join(f"{name}://" for name in (*_TRANSPORTS, *installed))
            raise InvalidInputError(f"expected a file or one of {schemes}, got {scheme}://")
        found: Transport = installed[scheme].load()
        return found
    if not isinstance(known, str):
        return known
    try:
        return import_module(known)
    except ModuleNotFoundError as error:  # an extra is named like the module that needs it
        raise ModuleNotFoundError(
            f"{scheme}:// needs the package {error.name}: pip install "
            f"'baryflow[{known.rpartition('.')[2]}]'",
            name=error.name,
        ) from error


def open_source(
    what: str | Path | Endpoint,
    *,
    columns: Sequence[str] | None,
    time: str | None = None,
    key: str | None = None,
    tail: bool = False,
    idle: float | None = None,
    credentials: Credentials | None = None,
    sample_interval: float | None = None,
    tags: str | None = None,
    max_age: float | None = None,
    durable: bool = False,
) -> Source:
    r"""Open a stream of rows.

    CSV exports of plant historians are read without any settings: with a byte order mark; with comma,
    semicolon, tab or bar as delimiter; with decimal commas unless the comma is the delimiter; with a
    row of units below the header, and with words like ``Bad`` for missing values. Rows that cannot
    be used do not end the stream; they are in ``Batch.rejected``.

    Parameters
    ----------
    what : str or path
        A ``.csv``, ``.tsv``, ``.txt``, ``.ndjson`` or ``.jsonl`` file, optionally with ``.gz``; a
        ``.parquet`` or ``.npz`` file; ``"-"`` for CSV or NDJSON on standard input; or a URL with
        ``mqtt://``, ``mqtts://``, ``kafka://``, ``kafka+ssl://``, ``opc.tcp://`` or a registered scheme;
        or an :class:`Endpoint`, which has credentials and says how to wait.
    columns : sequence of str or None
        The columns of a row, in this order, wherever they are in the input; None for all columns except
        `time` and `key`.
    time, key : str, optional
        Columns that are copied as text.
    tail : bool, default=False
        Follow a growing text file through rotation and truncation; the stream never ends.
    idle : float, optional
        :meth:`Source.read` returns what it has, even nothing, after this many seconds without a row.
        By default it waits.
    credentials : Credentials, optional
        For a URL.
    sample_interval, tags, max_age : optional
        For a URL whose values arrive one at a time; see :class:`SourceOptions`.
    durable : bool, default=False
        For ``mqtt://``: let the broker keep messages while no process reads, for one that resumes with
        :meth:`Source.seek`. Other inputs can always be resumed.

    Returns
    -------
    Source

    Raises
    ------
    InvalidInputError
        If columns are missing or occur twice, or the format is unknown.
    FileNotFoundError
        If the file does not exist. With `tail`, the source waits for it instead.
    ModuleNotFoundError
        If the format or transport needs an extra that is not installed, like ``baryflow[parquet]``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from baryflow.streams import open_source
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "pump.csv"
    >>> _ = path.write_text("flow;speed\nm3/h;rpm\n1,5;900\noff;910\n", encoding="utf-8")
    >>> source = open_source(path, columns=["speed", "flow"])
    >>> batch = source.read(100)
    >>> source.close()
    >>> batch.rows.tolist(), [(row.position, row.reason) for row in batch.rejected]
    ([[900.0, 1.5]], [(2, "column 'flow' holds 'off', which is not a number.")])
    """
    if columns is not None and not columns:
        raise InvalidInputError("columns must name at least one column, or be None for all, got none")
    if isinstance(what, Endpoint) or is_url(what):
        options = SourceOptions(
            columns, time, key, idle, sample_interval, tags, max_age, durable=durable
        )
        return open_transport(what if isinstance(what, Endpoint) else str(what), credentials, options)
    if key is not None and key.startswith("@"):
        raise InvalidInputError(f"key {key} is a property of messages; for a file, name a column")
    if sample_interval is not None or tags is not None:
        raise InvalidInputError(
            "sample interval and tags are for values that arrive one at a time; a file has rows"
        )
    texts = [column for column in (time, key) if column is not None]
    selection = Selection(None if columns is None else list(columns), texts)
    reader = open_reader(what, selection, tail=tail, idle=idle)
    return RowSource(reader, has_time=time is not None, has_key=key is not None)


def open_transport(
    url: str | Endpoint, credentials: Credentials | None, options: SourceOptions
) -> Source:
    """Open the source that a URL names."""
    endpoint = url if isinstance(url, Endpoint) else Endpoint.parse(url, credentials)
    return _find_transport(endpoint.scheme).open_source(endpoint, options)


def open_reader(
    what: str | Path, selection: Selection, *, tail: bool = False, idle: float | None = None
) -> Reader:
    """Open a reader of the selected columns; see :func:`open_source`."""
    path, name = Path(what), str(what)
    suffix = path.suffix.lower()
    compressed = suffix == ".gz"
    if compressed:
        suffix = path.with_suffix("").suffix.lower()
    if name == "-":
        name, suffix = "standard input", ".txt"
    elif suffix in _COLUMNAR and not compressed and not tail:
        return _COLUMNAR[suffix](path, selection)
    elif path.is_dir():
        raise InvalidInputError(f"{path} is a folder; name a file in it")
    elif suffix not in _TEXT and (compressed or suffix not in _COLUMNAR):
        hint = "; save the sheet as CSV" if suffix in _SPREADSHEETS else ""
        raise InvalidInputError(
            f"expected a file that ends with {', '.join((*_TEXT, *_COLUMNAR))}, or text with .gz, got "
            f"{path.name}{hint}"
        )
    if tail and (compressed or suffix not in _TEXT or str(what) == "-"):
        raise InvalidInputError(f"can only follow files of uncompressed text, got {name}")
    data = open_bytes(what, tail=tail)
    return TextReader(data, name, kind=_TEXT[suffix], selection=selection, lazy=tail, idle=idle)


class RowSource(Source):
    """The row stream of a reader, whose text columns are the time and the key, if there are any."""

    def __init__(self, reader: Reader, *, has_time: bool, has_key: bool) -> None:
        self._reader = reader
        self._has_time = has_time
        self._has_key = has_key
        self._checked = False  # whether the first rows were searched for absent columns

    @property
    def columns(self) -> list[str]:
        """All columns of the input."""
        return self._reader.columns

    @property
    def wanted(self) -> list[str]:
        """The columns of the rows."""
        return self._reader.chosen

    def read(self, n: int, timeout: float | None = None) -> Batch | None:
        """Return the next `n` rows, rejected ones included, or None at the end."""
        block = self._reader.block(as_count(n, "n"), timeout)
        if block is None:
            return None
        notices = self._reader.pop_notices()
        if not self._checked and len(block.positions):
            notices += self._find_absent(block)
            self._checked = True
        good, rejected = reject_invalid(block, self.wanted)
        numbers, positions, texts = block.numbers, block.positions, block.texts
        if len(good) < len(positions):
            numbers, positions = numbers[good], positions[good]
            texts = [[text[row] for row in good] for text in texts]
        return Batch(
            rows=numbers,
            positions=positions,
            times=texts[0] if self._has_time else [""] * len(good),
            keys=texts[-1] if self._has_key else [""] * len(good),
            rejected=rejected,
            cursor=self._reader.cursor(),
            notices=notices,
        )

    def _find_absent(self, block: Block) -> list[str]:
        """Report columns that none of the first rows has, for inputs without a header."""
        count = len(block.positions)
        first = "the first row has no" if count == 1 else f"none of the first {count} rows has a"
        absent = [
            name
            for j, name in enumerate(self.wanted)
            if name not in self.columns and not block.invalid[j] and np.isnan(block.numbers[:, j]).all()
        ]
        notices = []
        if absent:
            others = [name for name in self.columns if name not in self.wanted]
            notices.append(f"{first} column {list_names(absent)}{suggest(absent, others)}.")
        if self._has_time and not any(block.texts[0]):
            notices.append(f"{first} value in the time column.")
        return notices

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume after a batch that an earlier process has read."""
        self._checked = True  # by that process
        self._reader.seek(cursor)

    def close(self) -> None:
        """Close the input."""
        self._reader.close()


def open_sink(
    what: str | Path | Endpoint,
    *,
    resume: bool = False,
    credentials: Credentials | None = None,
    rotate: int | str | None = None,
) -> Sink:
    r"""Open a destination for records.

    Parameters
    ----------
    what : str or path
        A ``.ndjson``, ``.jsonl``, ``.csv`` or ``.parquet`` file, or ``"-"`` for NDJSON on standard
        output. Parquet files cannot be appended to, so records are collected in a file with
        ``.partial.ndjson`` added to the name until the sink is closed; positions refer to that file.
        Or a URL or an :class:`Endpoint`, as in :func:`open_source`: each record becomes a message.
    resume : bool, default=False
        Append to the existing output. By default it is replaced, rotated files included.
    credentials : Credentials, optional
        For a URL.
    rotate : int or str, optional
        For NDJSON and CSV: once the file has reached this size, in bytes or as ``"100MB"``, the next
        record starts a new one, and the full file is renamed to ``name-000001.ndjson`` and so on. A CSV
        header is repeated in each file. Full files may be moved away once a checkpoint was made after
        the rotation.

    Returns
    -------
    Sink

    Raises
    ------
    InvalidInputError
        If the format is unknown, the output cannot be rotated, or there is nothing to resume.
    ModuleNotFoundError
        If the format or transport needs an extra that is not installed, like ``baryflow[parquet]``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from baryflow.streams import open_sink
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "out.csv"
    >>> sink = open_sink(path, rotate="1kB")
    >>> sink.write([{"position": 1, "label": "normal"}])
    >>> sink.close()
    >>> path.read_text(encoding="utf-8")
    'position,label\n1,normal\n'
    """
    limit = None if rotate is None else parse_size(rotate)
    if isinstance(what, Endpoint) and limit is None:
        return _find_transport(what.scheme).open_sink(what)
    path = Path(str(what))
    suffix = "" if str(what) == "-" or is_url(what) else path.suffix.lower()
    if suffix in _TEXT_SINKS:
        return _TEXT_SINKS[suffix](path, resume, limit)
    if limit is not None:
        raise InvalidInputError(f"only {', '.join(_TEXT_SINKS)} files can be rotated, got {what}")
    if str(what) == "-":
        return NdjsonSink(None)
    if is_url(what):
        return open_sink(Endpoint.parse(str(what), credentials))
    if suffix == ".parquet":
        return ParquetSink(path, resume)
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder; name a file in it")
    raise InvalidInputError(
        f"expected a file that ends with {', '.join(_TEXT_SINKS)} or .parquet, got {path.name}"
    )
