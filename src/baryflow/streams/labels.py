"""Streams of labels or of commands, and rows together with them as one stream."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Batch, Source
from baryflow.streams.brokers import LabelDecoder
from baryflow.streams.bytesource import FileChange, Line, Lines, Overlong, TailBytes, open_bytes
from baryflow.streams.decoding import (
    Dialect,
    declared_delimiter,
    decode_beginning,
    looks_like_data,
    parse_object,
    read_header,
)
from baryflow.streams.label_records import CommandFormat, LabelFormat
from baryflow.streams.registry import SourceOptions, open_transport
from baryflow.streams.urls import Credentials, is_url

#: Seconds for which a broker is asked for labels, and between two attempts that found none.
_IDLE, _INTERVAL = 0.02, 0.25
#: Labels in a batch, at most.
_AT_ONCE = 1000
#: Columns of a file without a header: label files of AWS Lookout for Equipment.
_WITHOUT_HEADER = ["start", "end"]


def open_labels(
    what: str | Path,
    how: LabelFormat | CommandFormat,
    *,
    tail: bool = False,
    credentials: Credentials | None = None,
    durable: bool = False,
) -> Source:
    """Open a stream of labels, or of commands.

    Parameters
    ----------
    what : str or path
        A CSV or NDJSON file; a ``.json`` file with a list of objects, or with what
        ``aws lookoutequipment list-labels`` prints; or a URL with ``mqtt://``, ``mqtts://``,
        ``kafka://`` or ``kafka+ssl://`` whose messages are JSON objects.
    how : LabelFormat or CommandFormat
    tail : bool, default=False
        Follow a growing CSV or NDJSON file; the stream never ends.
    credentials : Credentials, optional
        For a URL.
    durable : bool, default=False
        As in :func:`open_source`.

    Returns
    -------
    Source
        Its batches hold labels or commands instead of rows. Records that are none are in their notices.

    Raises
    ------
    InvalidInputError
        If the format is unknown.
    FileNotFoundError
        If the file does not exist. With `tail`, the source waits for it instead.
    """
    if is_url(what):
        options = SourceOptions((), idle=_IDLE, labels=how, durable=durable)
        return open_transport(str(what), credentials, options)
    if Path(what).suffix.lower() == ".json":
        return LabelList(Path(what), how)
    return LabelFile(Path(what), how, tail=tail)


class _Labels(Source):
    """A source without columns."""

    @property
    def columns(self) -> list[str]:
        """None: labels are no rows."""
        return []

    wanted = columns


class LabelFile(_Labels):
    """Labels from lines of CSV or NDJSON; the first line decides which."""

    def __init__(self, path: Path, how: LabelFormat | CommandFormat, *, tail: bool = False) -> None:
        if path.suffix.lower() not in (".csv", ".tsv", ".txt", ".ndjson", ".jsonl"):
            raise InvalidInputError(
                f"expected a file of {how.what} that ends with .csv, .ndjson or .json, got {path.name}"
            )
        self._name, self._how, self._decoder = str(path), how, LabelDecoder(how)
        self._source = TailBytes(path) if tail else open_bytes(path)
        self._lines = Lines(self._source)
        self._dialect: Dialect | None = None  # None before the header, and for NDJSON
        self._begun = False

    def read(self, n: int, timeout: float | None = None) -> Batch | None:
        """Return at most `n` labels that are there, and None at the end."""
        del timeout
        records: list[dict[str, Any] | str] = []
        while len(records) < n:
            taken = self._lines.take(1, 0.0)
            if isinstance(taken, FileChange):
                self._dialect, self._begun = None, False
            elif not taken:
                break
            else:
                records += self._read_line(taken[0])
        if not records and self._lines.ended:
            return None
        batch = self._decoder.decode(records, self._cursor())
        notices, self._source.notices = self._source.notices, []
        return replace(batch, notices=[*notices, *batch.notices])

    def _read_line(self, line: Line) -> list[dict[str, Any] | str]:
        """Return the record in a line, or what is wrong with it; none for a blank line or a header."""
        if isinstance(line, Overlong):
            return [f"it is {line.length} bytes long."]
        text, encoding = decode_beginning(line, self._name)
        if not text.strip():
            return []
        if not self._begun:
            self._begun = True
            if not text.lstrip().startswith("{"):
                return self._begin_csv(text, encoding)
        if self._dialect is None:
            return [parse_object(text)]
        try:
            cells = [cell.strip() for cell in self._dialect.split(text)]
        except csv.Error as error:
            return [f"its quotes do not match ({error})."]
        if self._dialect.decimal_comma:
            cells = [_with_point(cell) for cell in cells]
        return [dict(zip(self._dialect.columns, cells, strict=False))]

    def _begin_csv(self, text: str, encoding: str) -> list[dict[str, Any] | str]:
        if declared_delimiter(text) is not None:
            self._begun = False
            return []
        self._dialect = read_header(text, encoding, None, self._name)
        cells = self._dialect.columns
        if len(cells) == len(_WITHOUT_HEADER) and looks_like_data(cells, self._dialect):
            self._dialect = replace(self._dialect, columns=_WITHOUT_HEADER)
            return self._read_line(text.encode())
        self._how.check_columns(cells, self._name)
        return []

    def _cursor(self) -> dict[str, Any]:
        dialect = self._dialect
        return self._source.mark(0 if self._lines.at_change else self._lines.offset) | {
            "position": self._decoder.position,
            "begun": self._begun,
            "columns": [] if dialect is None else dialect.columns,
            "delimiter": "" if dialect is None else dialect.delimiter,
            "encoding": "" if dialect is None else dialect.encoding,
        }

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume after a batch that an earlier process has read."""
        offset = self._source.locate(cursor)
        self._decoder.position = int(cursor["position"])
        if offset is None:
            return
        self._source.seek(offset)
        self._lines = Lines(self._source, offset)
        self._begun = bool(offset and cursor["begun"])
        columns, delimiter = list(cursor["columns"]), str(cursor["delimiter"])
        has_header = self._begun and delimiter
        self._dialect = Dialect(str(cursor["encoding"]), delimiter, columns) if has_header else None

    def close(self) -> None:
        """Close the file."""
        self._source.close()


class LabelList(_Labels):
    """Labels from a JSON document: a list of objects, also if an object holds nothing but the list."""

    def __init__(self, path: Path, how: LabelFormat | CommandFormat) -> None:
        self._decoder = LabelDecoder(how)
        try:
            found = json.loads(path.read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"{path} is not valid JSON ({error})") from error
        if isinstance(found, dict):
            lists = [value for value in found.values() if isinstance(value, list)]
            found = lists[0] if len(lists) == 1 else None
        if not isinstance(found, list):
            raise InvalidInputError(f"{path} holds no list of {how.what}")
        self._records = found

    def read(self, n: int, timeout: float | None = None) -> Batch | None:
        """Return the next `n` labels, and None at the end."""
        del timeout
        start = self._decoder.position
        if start >= len(self._records):
            return None
        records = [
            one if isinstance(one, dict) else "it is not a JSON object."
            for one in self._records[start : start + n]
        ]
        return self._decoder.decode(records, {"position": start + len(records)})

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume after a batch that an earlier process has read."""
        self._decoder.position = int(cursor["position"])

    def close(self) -> None:
        """Do nothing: the file was read as a whole."""


class LabelledSource(Source):
    """A stream of rows and a stream of their labels, or of commands, as one source.

    Labels that are there are delivered before more rows are read, in batches of their own. At the end of
    the rows all labels that are there are delivered.

    Parameters
    ----------
    rows, labels : Source
    patience : float, default=0.0
        Seconds to wait for more labels at the end of the rows: a broker does not deliver them at once.
    name : str, default="labels"
        Of the labels' place in the cursor.
    """

    def __init__(
        self, rows: Source, labels: Source, patience: float = 0.0, name: str = "labels"
    ) -> None:
        self._rows, self._labels, self._patience, self._name = rows, labels, patience, name
        self._row_cursor: dict[str, Any] = {}
        self._label_cursor: dict[str, Any] | None = None
        self._quiet_until = 0.0  # no labels are expected before
        self._labels_ended = self._rows_ended = False
        #: How many labels can be taken now, because their rows may be to come.
        self.room: Callable[[], int] = lambda: _AT_ONCE

    @property
    def columns(self) -> list[str]:
        """All columns of the rows."""
        return self._rows.columns

    @property
    def wanted(self) -> list[str]:
        """The columns of :attr:`Batch.rows`."""
        return self._rows.wanted

    def stop_when(self, stop: Callable[[], bool]) -> None:
        """Do not wait long for a broker once `stop` returns True."""
        self._rows.stop_when(stop)
        self._labels.stop_when(stop)

    def read(self, n: int, timeout: float | None = None) -> Batch | None:
        """Return labels, or the next `n` rows, or None after the end of the rows."""
        if not self._rows_ended:
            labels = self._read_labels(self.room())
            if labels is not None:
                return labels
            batch = self._rows.read(n, timeout)
            if batch is not None:
                self._row_cursor = batch.cursor
                return replace(batch, cursor=self._cursor())
            self._rows_ended = True
        until = monotonic() + self._patience
        while True:
            self._quiet_until = 0.0
            labels = self._read_labels(_AT_ONCE)
            if labels is not None or self._labels_ended:
                return labels
            if not self._labels.reached:  # the broker is away, with all labels
                return self._make_empty()
            if monotonic() >= until:
                return None

    def _read_labels(self, room: int) -> Batch | None:
        if self._labels_ended or room <= 0 or monotonic() < self._quiet_until:
            return None
        batch = self._labels.read(min(room, _AT_ONCE), 0.0)
        if batch is None:
            self._labels_ended = True
            return None
        self._label_cursor = batch.cursor
        if not batch:  # a live stream, and nothing came
            self._quiet_until = monotonic() + _INTERVAL
            return None
        empty = np.empty((0, len(self.wanted)))
        return replace(batch, rows=empty, cursor=self._cursor(), partition="")

    def _make_empty(self) -> Batch:
        """Return a batch without rows and labels: nothing has come yet."""
        return Batch(
            rows=np.empty((0, len(self.wanted))),
            positions=np.empty(0, dtype=np.intp),
            times=[],
            keys=[],
            rejected=[],
            cursor=self._cursor(),
        )

    def _cursor(self) -> dict[str, Any]:
        # Those of rows have no such name; so a run with labels resumes one without, and the reverse.
        return self._row_cursor | (
            {} if self._label_cursor is None else {self._name: self._label_cursor}
        )

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume after a batch that an earlier process has read."""
        self._row_cursor = {name: value for name, value in cursor.items() if name != self._name}
        self._label_cursor = cursor.get(self._name)
        if self._row_cursor:
            self._rows.seek(self._row_cursor)
        if self._label_cursor is not None:
            self._labels.seek(self._label_cursor)

    def acknowledge(self, cursor: dict[str, Any]) -> None:
        """Report that every batch up to this one is on disk."""
        rows = {name: value for name, value in cursor.items() if name != self._name}
        if rows:
            self._rows.acknowledge(rows)
        if cursor.get(self._name) is not None:
            self._labels.acknowledge(cursor[self._name])

    def close(self) -> None:
        """Close both."""
        try:
            self._rows.close()
        finally:
            self._labels.close()


def _with_point(cell: str) -> str:
    """Return a number that has a decimal comma with a point, and other text as it is."""
    pointed = cell.replace(",", ".")
    try:
        float(pointed)
    except ValueError:
        return cell
    return pointed
