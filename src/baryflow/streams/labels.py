"""Streams of labels or of commands, and rows together with them as one stream."""

from __future__ import annotations

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
from baryflow.streams.bytesource import ByteSource, open_bytes
from baryflow.streams.decoding import Selection, parse_objects
from baryflow.streams.label_records import CommandFormat, LabelFormat
from baryflow.streams.registry import SourceOptions, open_transport
from baryflow.streams.text import CsvDecoder, Dialect, TextReader
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
    """Open a stream of labels, or of commands: batches hold them instead of rows.

    `what` is a CSV or NDJSON file, which `tail` follows as it grows; a ``.json`` file with a list of
    objects, or with what ``aws lookoutequipment list-labels`` prints; or the URL of a broker whose
    messages are JSON objects. Records that cannot be used are in the notices of the batches.
    """
    if is_url(what):
        options = SourceOptions((), idle=_IDLE, labels=how, durable=durable)
        return open_transport(str(what), credentials, options)
    path = Path(what)
    if path.suffix.lower() == ".json":
        return _LabelFile(_ListReader(path, how), how)
    if path.suffix.lower() not in (".csv", ".tsv", ".txt", ".ndjson", ".jsonl"):
        raise InvalidInputError(
            f"expected a file of {how.what} that ends with .csv, .ndjson or .json, got {path.name}"
        )
    return _LabelFile(_RecordReader(open_bytes(path, tail=tail), str(path), how), how)


class _LabelFile(Source):
    """Labels from the records of a file."""

    def __init__(self, reader: _RecordReader | _ListReader, how: LabelFormat | CommandFormat) -> None:
        self._reader, self._decoder = reader, LabelDecoder(how)

    @property
    def columns(self) -> list[str]:
        return []

    wanted = columns

    def read(self, n: int, timeout: float | None = None) -> Batch | None:
        """Return at most `n` labels that are there, and None at the end."""
        del timeout
        records = self._reader.read_records(n)
        if records is None:
            return None
        batch = self._decoder.decode(records, self._reader.cursor())
        return replace(batch, notices=[*self._reader.pop_notices(), *batch.notices])

    def seek(self, cursor: dict[str, Any]) -> None:
        self._reader.seek(cursor)
        self._decoder.position = int(cursor["position"])

    def close(self) -> None:
        self._reader.close()


class _RecordReader(TextReader):
    """Reads the records that are there, with text in all columns."""

    def __init__(self, source: ByteSource, name: str, how: LabelFormat | CommandFormat) -> None:
        self._how = how
        super().__init__(source, name, kind=None, selection=Selection([]), lazy=True, idle=0.0)

    def read_records(self, n: int) -> list[dict[str, Any] | str] | None:
        """Return the record in each line, or what is wrong with it; None at the end."""
        lines, decoder = self.read_lines(n, None), self._decoder
        if lines is None or not isinstance(decoder, CsvDecoder):
            return None if lines is None else parse_objects(lines)
        columns, reasons = decoder.split(lines)
        with_point = _with_point if decoder.dialect.decimal_comma else str.strip
        rows = zip(*(map(with_point, column) for column in columns), strict=True)
        return [
            reasons.get(at) or dict(zip(decoder.columns, next(rows), strict=True))
            for at in range(len(lines))
        ]

    def _check_header(self, dialect: Dialect, number: int) -> tuple[Dialect, int]:
        self._fresh = False  # labels have no units
        columns = dialect.columns
        if len(columns) == len(_WITHOUT_HEADER) and dialect.is_data(columns):
            return replace(dialect, columns=_WITHOUT_HEADER), 0
        self._how.check_columns(columns, self._name)
        return dialect, number

    def _make_csv(self, dialect: Dialect) -> CsvDecoder:
        return CsvDecoder(dialect, Selection([]), self._name)


class _ListReader:
    """The records of a JSON document: a list of objects, or an object with no other list."""

    def __init__(self, path: Path, how: LabelFormat | CommandFormat) -> None:
        try:
            found = json.loads(path.read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"{path} is not valid JSON ({error})") from error
        if isinstance(found, dict):
            lists = [value for value in found.values() if isinstance(value, list)]
            found = lists[0] if len(lists) == 1 else None
        if not isinstance(found, list):
            raise InvalidInputError(f"{path} holds no list of {how.what}")
        self._records = [one if isinstance(one, dict) else "it is not a JSON object." for one in found]
        self._position = 0

    def read_records(self, n: int) -> list[dict[str, Any] | str] | None:
        found = self._records[self._position : self._position + n]
        self._position += len(found)
        return found or None

    def cursor(self) -> dict[str, Any]:
        return {"position": self._position}

    def pop_notices(self) -> list[str]:
        return []

    def seek(self, cursor: dict[str, Any]) -> None:
        self._position = int(cursor["position"])

    def close(self) -> None:
        self._records = []


class LabelledSource(Source):
    """A stream of rows and a stream of their labels, or of commands, as one source.

    Labels that are there are delivered before more rows are read, in batches of their own. At the end of
    the rows all labels that are there are delivered; a broker has `patience` seconds for more of them.
    `name` is that of their place in the cursor.
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
    cell = cell.strip()
    pointed = cell.replace(",", ".")
    try:
        float(pointed)
    except ValueError:
        return cell
    return pointed
