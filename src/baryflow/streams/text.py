"""Read rows of CSV and NDJSON from a byte source."""

from __future__ import annotations

import csv
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.streams.blocks import Block, Selection
from baryflow.streams.bytesource import ByteSource, FileChange, Line, Lines, Overlong
from baryflow.streams.decoding import (
    CsvDecoder,
    Decoded,
    Decoder,
    Dialect,
    JsonDecoder,
    are_units,
    declared_delimiter,
    decode_beginning,
    is_data,
    may_be_units,
    parse_object,
    read_header,
)

#: Lines that are searched for a first object with the column names.
_SEARCHED = 1000


class TextReader:
    """Reads blocks of rows from lines of text.

    Each line is a row, so quoted cells cannot contain line breaks. Blank lines are skipped. With `kind`
    None, the first line decides between ``"csv"`` and ``"ndjson"``. With `lazy`, the header may arrive
    later, as in a followed file. After `idle` seconds without a row, an empty block is returned.
    """

    def __init__(
        self,
        source: ByteSource,
        name: str,
        *,
        kind: str | None,
        selection: Selection,
        lazy: bool = False,
        idle: float | None = None,
    ) -> None:
        self._source = source
        self._name = name
        self._kind = kind
        self._selection = selection
        self._idle = idle
        self._lines = Lines(source)
        self._decoder: Decoder | None = None
        self._last: Decoder | None = None  # of the previous file
        self._fresh = True  # no row of this file was read, so the next may hold units
        self._position = 0
        self._error: Exception | None = None
        try:
            if self._start(wait=0.0 if lazy else None) is None and not lazy:
                raise InvalidInputError(f"{name} is empty; expected a header or a JSON object, and rows")
        except InvalidInputError as error:
            if not lazy:
                source.close()
                raise
            self._error = error  # cleared by `seek`: a rotated file may have no header

    @property
    def columns(self) -> list[str]:
        """All columns of the input, or the selected ones until there is a header."""
        known = list(self._selection.numbers or ())
        return known if self._decoder is None else self._decoder.columns

    @property
    def chosen(self) -> list[str]:
        """The numeric columns."""
        known = list(self._selection.numbers or ())
        return known if self._decoder is None else self._decoder.chosen

    def block(self, n: int, timeout: float | None) -> Block | None:
        """Return the next `n` rows."""
        lines = self.read_lines(n, timeout)
        return None if lines is None else self._decode(lines)

    def read_lines(self, n: int, timeout: float | None) -> list[Line] | None:
        """Return the lines of the next `n` rows; None at the end."""
        if self._error is not None:
            raise self._error
        lines: list[Line] = []
        deadline: float | None = None
        while len(lines) < n:
            wait = self._idle if deadline is None else max(0.0, deadline - monotonic())
            try:
                more = self._rows(n - len(lines), wait, begun=bool(lines))
            except InvalidInputError as error:
                if not lines:
                    raise
                self._error = error  # raised by the next call, after these rows
                break
            if not more:
                break
            if not lines and timeout is not None:
                deadline = monotonic() + timeout
            lines += more
        if not lines and self._lines.ended:
            return None
        self._position += len(lines)
        return lines

    def _rows(self, n: int, wait: float | None, *, begun: bool) -> list[Line]:
        """Return lines that are rows, or none if none came in time or the block ends here.

        A block ends with its file, because the next header may order the columns differently.
        """
        while True:
            if self._decoder is None and self._start(wait) is None:
                return []
            lines = self._lines.read(n, wait)
            if isinstance(lines, FileChange):
                if begun:
                    self._lines.put_back_change()
                    return []
                self._last, self._decoder, self._fresh = self._decoder, None, True
            elif not lines:
                return []
            else:
                if self._fresh and any(map(_is_row, lines)):
                    lines = self._skip_units(lines, n, wait)
                    if not lines:
                        return []
                rows = list(filter(_is_row, lines))
                if rows:
                    return rows

    def _decode(self, lines: list[Line]) -> Block:
        if self._decoder is None:  # a followed file without a header yet
            decoded = Decoded([], np.empty((0, len(self.chosen))), [{} for _ in self.chosen], [], {})
            decoded.texts.extend([] for _ in self._selection.texts)
        else:
            decoded = self._decoder.decode(lines)
        first = self._position - len(lines) + 1
        return decoded.to_block(lines, first, self.cursor(), self.pop_notices())

    def pop_notices(self) -> list[str]:
        """Return the notices of the input, once."""
        notices, self._source.notices = self._source.notices, []
        return notices

    # -- header and units -----------------------------------------------------------------------------

    def _start(self, wait: float | None) -> Decoder | None:
        """Read the header or the first object and return its decoder; None if it has not arrived yet."""
        delimiter = None
        above: list[Line] = []
        while self._decoder is None:
            lines = self._lines.read(1, wait)
            if isinstance(lines, FileChange):
                above = []
                continue
            if not lines:
                self._lines.put_back(above)
                return None
            above += lines
            text, encoding = decode_beginning(_kept(lines[0]), self._name)
            if not text.strip(" \r"):
                continue
            is_json = text.lstrip().startswith("{") if self._kind is None else self._kind == "ndjson"
            declared = None if is_json else declared_delimiter(text)
            if is_json:
                self._decoder = self._start_json(text, above)
            elif declared is not None:
                delimiter = declared
            elif isinstance(lines[0], Overlong):
                raise InvalidInputError(
                    f"{self._name} begins with a line of {lines[0].length} bytes; expected a header"
                )
            else:
                self._decoder = self._start_csv(text, encoding, delimiter, above)
        if self._selection.numbers is None:  # later files must have the same columns
            self._selection = replace(self._selection, numbers=self._decoder.chosen)
        return self._decoder

    def _start_json(self, text: str, above: list[Line]) -> JsonDecoder | None:
        """Take the names from the first object, unless they are known. The object is also a row."""
        found = parse_object(text)
        known = self._selection.numbers
        if isinstance(found, str) and known is None:
            if len(above) < _SEARCHED and not self._lines.ended:
                return None  # try the next line
            raise InvalidInputError(f"{self._name} holds no JSON object in its first {len(above)} lines")
        columns = list(known or ()) if isinstance(found, str) else list(found)
        self._lines.put_back(above)
        self._fresh = False
        return JsonDecoder(columns, self._selection, self._name)

    def _start_csv(
        self, text: str, encoding: str, delimiter: str | None, above: list[Line]
    ) -> CsvDecoder:
        last = self._last
        if isinstance(last, CsvDecoder):
            # After a rotation, some programs do not write the header again.
            cells = text.split(last.dialect.delimiter)
            if len(cells) == len(last.columns) and is_data(cells, last.dialect):
                self._lines.put_back(above)
                self._fresh = False
                return last
        return self._make_csv(read_header(text, encoding, delimiter, self._name))

    def _make_csv(self, dialect: Dialect) -> CsvDecoder:
        """Return the decoder of a file with this header."""
        return CsvDecoder(dialect, self._selection, self._name)

    def _skip_units(self, lines: list[Line], n: int, wait: float | None) -> list[Line]:
        """Return lines without a leading row of units; none if more lines are needed to decide."""
        decoder = self._decoder
        first = next(filter(_is_row, lines))
        text, encoding = decode_beginning(_kept(first), self._name)
        cells = _split(decoder, text)
        if not isinstance(decoder, CsvDecoder) or not may_be_units(cells, decoder.dialect):
            self._fresh = False
            return lines
        while sum(map(_is_row, lines)) < 2:
            more = self._lines.read(1, wait)
            if isinstance(more, FileChange):
                self._lines.put_back_change()
                break
            if not more and not self._lines.ended:
                self._lines.put_back(lines)
                return []
            if not more:
                break
            lines = lines + more
        self._fresh = False
        below = [line for line in lines if _is_row(line)][1:2]
        if below and are_units(
            cells, _split(decoder, decode_beginning(_kept(below[0]), self._name)[0]), decoder.dialect
        ):
            if encoding != decoder.encoding:  # a degree sign is often the first non-ASCII character
                self._decoder = self._make_csv(replace(decoder.dialect, encoding=encoding))
            return lines[lines.index(first) + 1 :]
        if len(lines) > n:
            self._lines.put_back(lines[n:])
        return lines[:n]

    # -- position -------------------------------------------------------------------------------------

    def cursor(self) -> dict[str, Any]:
        """Return where to resume after the lines that were read."""
        cursor = self._source.mark(0 if self._lines.at_change else self._lines.offset)
        cursor["position"] = self._position
        decoder = None if self._lines.at_change else self._decoder
        if decoder is not None:
            cursor["columns"] = decoder.columns
            cursor["encoding"] = decoder.encoding
            cursor["delimiter"] = decoder.dialect.delimiter if isinstance(decoder, CsvDecoder) else ""
            cursor["fresh"] = self._fresh
        return cursor

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume after the block with this cursor."""
        offset = self._source.locate(cursor)
        self._position = int(cursor["position"])
        if offset is None:  # a pipe: the header was read, and all rows are new
            return
        self._source.seek(offset)
        self._lines = Lines(self._source, offset)
        self._decoder, self._error, self._fresh = None, None, True
        if offset and "columns" in cursor:
            columns, delimiter = list(cursor["columns"]), cursor["delimiter"]
            self._fresh = bool(cursor["fresh"])
            if delimiter:
                self._decoder = self._make_csv(Dialect(cursor["encoding"], delimiter, columns))
            else:
                self._decoder = JsonDecoder(columns, self._selection, self._name)

    def close(self) -> None:
        """Close the input."""
        self._source.close()


def _is_row(line: Line) -> bool:
    return isinstance(line, Overlong) or bool(line.strip(b" \r"))


def _kept(line: Line) -> bytes:
    return line.beginning if isinstance(line, Overlong) else line


def _split(decoder: Decoder | None, text: str) -> list[str]:
    """Return the cells of a line, or none if it cannot be split."""
    try:
        return decoder.dialect.split(text) if isinstance(decoder, CsvDecoder) else []
    except csv.Error:
        return []
