"""Open a source or a sink by its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Sink, Source
from baryflow.streams.blocks import Reader, RowSource, Selection
from baryflow.streams.bytesource import open_feed, open_standard_input
from baryflow.streams.columnar import NpzReader, ParquetReader
from baryflow.streams.sinks import CsvSink, NdjsonSink, ParquetSink
from baryflow.streams.tail import TailFeed
from baryflow.streams.text import TextReader
from baryflow.streams.transports import Wanted, find_transport
from baryflow.streams.urls import Credentials, is_url, parse_address

#: Suffix → kind of text; None looks at the first line.
_TEXT = {".csv": "csv", ".tsv": "csv", ".txt": None, ".ndjson": "ndjson", ".jsonl": "ndjson"}
_READ = (*_TEXT, ".parquet", ".npz")


def open_source(
    what: str | Path,
    *,
    columns: Sequence[str] | None,
    time: str | None = None,
    key: str | None = None,
    tail: bool = False,
    idle: float | None = None,
    credentials: Credentials | None = None,
    every: float | None = None,
    tags: str | None = None,
    max_age: float | None = None,
) -> Source:
    r"""Open a stream of rows.

    CSV may come from a historian: with a byte order mark; with comma, semicolon, tab or bar as
    delimiter, and a decimal comma unless that is it; with a row of units under the header, and words
    where there is no value. Rows that cannot be used do not end the stream; they are in
    :attr:`Batch.rejected`.

    Parameters
    ----------
    what : str or path
        A file ``.csv``, ``.tsv``, ``.txt``, ``.ndjson`` or ``.jsonl``, each also with ``.gz``; a
        ``.parquet`` or ``.npz`` file; ``"-"`` for standard input, CSV or NDJSON; or a URL that begins
        with ``mqtt://``, ``mqtts://``, ``kafka://`` or ``opc.tcp://``.
    columns : sequence of str or None
        Those wanted, in this order, wherever they stand in the input; None for all but `time` and `key`.
    time, key : str, optional
        Columns that are handed over as they are written.
    tail : bool, default=False
        Follow a growing text file, through rotation and truncation; there is no end then.
    idle : float, optional
        Seconds without a row after which :meth:`Source.read` returns what there is, be it nothing;
        without it, it waits.
    credentials : Credentials, optional
        For a URL.
    every, tags, max_age : optional
        For a URL whose values come one by one; see :class:`~baryflow.streams.transports.Wanted`.

    Returns
    -------
    Source

    Raises
    ------
    InvalidInputError
        If wanted columns are missing, names occur twice, or the input is of no known kind.
    FileNotFoundError
        If there is no such file; with `tail` it is waited for.
    ModuleNotFoundError
        For Parquet, without ``baryflow[parquet]``.

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
    if is_url(what):
        address = parse_address(str(what))
        wanted = Wanted(columns, time, key, idle, every, tags, max_age)
        transport = find_transport(address.scheme)
        return transport.open_source(address, credentials or Credentials(), wanted)
    if key is not None and key.startswith("@"):
        raise InvalidInputError(f"{key} is something that messages have; for a file, name a column")
    if every is not None or tags is not None:
        raise InvalidInputError("every and tags are for values that come one by one; a file has rows")
    texts = [column for column in (time, key) if column is not None]
    selection = Selection(None if columns is None else list(columns), texts)
    reader = open_reader(what, selection, tail=tail, idle=idle)
    return RowSource(reader, has_time=time is not None, has_key=key is not None)


def open_reader(
    what: str | Path, selection: Selection, *, tail: bool = False, idle: float | None = None
) -> Reader:
    """Open what reads the selected columns; see :func:`open_source`."""
    if str(what) == "-":
        if tail:
            raise InvalidInputError("standard input cannot be followed; name a file, or leave out tail")
        return TextReader(
            open_standard_input(), "standard input", kind=None, selection=selection, idle=idle
        )
    path = Path(what)
    suffix = path.suffix.lower()
    packed = suffix == ".gz"
    if packed:
        suffix = path.with_suffix("").suffix.lower()
    if suffix not in _READ or (packed and suffix not in _TEXT):
        raise InvalidInputError(
            f"expected a file that ends with {', '.join(_READ)}, or .gz behind one of text, got "
            f"{path.name}"
        )
    if tail:
        if packed or suffix not in _TEXT:
            raise InvalidInputError(f"only uncompressed text can be followed, got {path.name}")
        return TextReader(
            TailFeed(path), str(path), kind=_TEXT[suffix], selection=selection, lazy=True, idle=idle
        )
    if suffix == ".parquet":
        return ParquetReader(path, selection)
    if suffix == ".npz":
        return NpzReader(path, selection)
    return TextReader(open_feed(path), str(path), kind=_TEXT[suffix], selection=selection, idle=idle)


def open_sink(what: str | Path, *, resume: bool = False, credentials: Credentials | None = None) -> Sink:
    r"""Open a place for records.

    Parameters
    ----------
    what : str or path
        A file ``.ndjson``, ``.jsonl``, ``.csv`` or ``.parquet``, or ``"-"`` for NDJSON on standard
        output. A Parquet file cannot be appended to or cut, so records are kept as NDJSON beside it,
        under its name with ``.partial.ndjson`` behind it, until the sink is closed; positions are those
        in that file. Or a URL, as in :func:`open_source`: each record is a message.
    resume : bool, default=False
        Keep what is there and append to it, instead of beginning anew.
    credentials : Credentials, optional
        For a URL.

    Returns
    -------
    Sink

    Raises
    ------
    InvalidInputError
        If the name ends otherwise, or there is nothing that could be gone on with.
    ModuleNotFoundError
        For Parquet, without ``baryflow[parquet]``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from baryflow.streams import open_sink
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "out.csv"
    >>> sink = open_sink(path)
    >>> sink.write([{"position": 1, "label": "normal"}])
    >>> sink.close()
    >>> path.read_text(encoding="utf-8")
    'position,label\n1,normal\n'
    """
    if str(what) == "-":
        return NdjsonSink(None)
    if is_url(what):
        address = parse_address(str(what))
        return find_transport(address.scheme).open_sink(address, credentials or Credentials())
    path = Path(what)
    kinds = {".ndjson": NdjsonSink, ".jsonl": NdjsonSink, ".csv": CsvSink, ".parquet": ParquetSink}
    if path.suffix.lower() not in kinds:
        raise InvalidInputError(f"expected a file that ends with {', '.join(kinds)}, got {path.name}")
    sink: Sink = kinds[path.suffix.lower()](path, resume)
    return sink
