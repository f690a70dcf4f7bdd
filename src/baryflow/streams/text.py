"""Rows of CSV and NDJSON, from whatever gives bytes."""

from __future__ import annotations

import csv
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Rejected
from baryflow.streams.blocks import Block, Selection
from baryflow.streams.decoding import CsvDecoder, Decoded, Decoder, JsonDecoder, begin, parse_object
from baryflow.streams.dialects import (
    Dialect,
    are_units,
    declared_delimiter,
    decode_beginning,
    looks_like_data,
    may_be_units,
    read_header,
)
from baryflow.streams.lines import Feed, Line, Lines, Overlong, Turn

#: So many lines are searched for the first object that tells the names.
_SEARCHED = 1000


class TextReader:
    """Reads blocks of rows from lines of text.

    A row is a line: a quoted cell with a line break in it is not one. Blank lines are passed over.

    Parameters
    ----------
    feed : Feed
    name : str
        For messages.
    kind : {"csv", "ndjson"} or None
        None looks at the first line.
    selection : Selection
    lazy : bool
        Whether the header may come later, as in a file that is followed.
    idle : float or None
        Seconds without a row after which an empty block is returned.
    """

    def __init__(
        self,
        feed: Feed,
        name: str,
        *,
        kind: str | None,
        selection: Selection,
        lazy: bool = False,
        idle: float | None = None,
    ) -> None:
        self._feed = feed
        self._name = name
        self._kind = kind
        self._selection = selection
        self._idle = idle
        self._lines = Lines(feed)
        self._decoder: Decoder | None = None
        self._last: Decoder | None = None  # of the file before
        self._fresh = True  # no row of the file was read, so the next may be one of units
        self._position = 0
        self._error: Exception | None = None
        try:
            if self._start(wait=0.0 if lazy else None) is None and not lazy:
                raise InvalidInputError(f"{name} is empty; expected a header or a JSON object, and rows")
        except InvalidInputError as error:
            if not lazy:
                feed.close()
                raise
            self._error = error  # it may be a file that goes on without a header: a cursor would tell

    @property
    def columns(self) -> list[str]:
        """All columns that the input has; those that are wanted, as long as it has no header yet."""
        known = list(self._selection.numbers or ())
        return known if self._decoder is None else self._decoder.columns

    @property
    def chosen(self) -> list[str]:
        """The columns of numbers."""
        known = list(self._selection.numbers or ())
        return known if self._decoder is None else self._decoder.chosen

    def block(self, n: int, timeout: float | None) -> Block | None:
        """Return the next `n` rows."""
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
                self._error = error  # what came before it is good
                break
            if not more:
                break
            if not lines and timeout is not None:
                deadline = monotonic() + timeout
            lines += more
        if not lines and self._lines.ended:
            return None
        return self._decode(lines)

    def _rows(self, n: int, wait: float | None, *, begun: bool) -> list[Line]:
        """Return lines that are rows; none if nothing came in time, or if the block ends here.

        It ends at the end, and where another file begins: its header may order the columns differently.
        """
        while True:
            if self._decoder is None and self._start(wait) is None:
                return []
            taken = self._lines.take(n, wait)
            if isinstance(taken, Turn):
                if begun:
                    self._lines.turn_back()
                    return []
                self._last, self._decoder, self._fresh = self._decoder, None, True
            elif not taken:
                return []
            else:
                if self._fresh and any(map(_is_row, taken)):
                    taken = self._pass_units(taken, n, wait)
                    if not taken:
                        return []
                rows = list(filter(_is_row, taken))
                if rows:
                    return rows

    def _decode(self, lines: list[Line]) -> Block:
        count = len(lines)
        if self._decoder is None:  # a file that is followed and has no header yet
            decoded = Decoded([], np.empty((0, len(self.chosen))), [{} for _ in self.chosen], [], {})
            decoded.texts.extend([] for _ in self._selection.texts)
        else:
            decoded = self._decoder.decode(lines)
        first = self._position + 1
        self._position += count
        return Block(
            numbers=decoded.numbers,
            strange=decoded.strange,
            texts=decoded.texts,
            positions=np.array(decoded.good, dtype=np.intp) + first,
            rejected=[
                Rejected(first + at, reason, begin(lines[at]))
                for at, reason in sorted(decoded.reasons.items())
            ],
            beginning=lambda row: begin(lines[decoded.good[row]]),
            cursor=self._cursor(),
        )

    # -- what stands above the rows ----

    def _start(self, wait: float | None) -> Decoder | None:
        """Read the header, or the first object; None if it has not come yet."""
        delimiter = None
        above: list[Line] = []
        while self._decoder is None:
            taken = self._lines.take(1, wait)
            if isinstance(taken, Turn):
                above = []
                continue
            if not taken:
                self._lines.put_back(above)
                return None
            above += taken
            text, encoding = decode_beginning(_kept(taken[0]), self._name)
            if not text.strip(" \r"):
                continue
            is_json = text.lstrip().startswith("{") if self._kind is None else self._kind == "ndjson"
            declared = None if is_json else declared_delimiter(text)
            if is_json:
                self._decoder = self._start_json(text, above)
            elif declared is not None:
                delimiter = declared
            elif isinstance(taken[0], Overlong):
                raise InvalidInputError(
                    f"{self._name} begins with a line of {taken[0].length} bytes; expected a header"
                )
            else:
                self._decoder = self._start_csv(text, encoding, delimiter, above)
        if self._selection.numbers is None:  # files that follow must have the same
            self._selection = replace(self._selection, numbers=self._decoder.chosen)
        return self._decoder

    def _start_json(self, text: str, above: list[Line]) -> JsonDecoder | None:
        """Take the names from the first object, unless they are known; it is a row too."""
        found = parse_object(text)
        known = self._selection.numbers
        if isinstance(found, str) and known is None:
            if len(above) < _SEARCHED and not self._lines.ended:
                return None  # the next line may tell
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
            # After a rotation some programs go on without a header.
            cells = text.split(last.dialect.delimiter)
            if len(cells) == len(last.columns) and looks_like_data(cells, last.dialect):
                self._lines.put_back(above)
                self._fresh = False
                return last
        return CsvDecoder(
            read_header(text, encoding, delimiter, self._name), self._selection, self._name
        )

    def _pass_units(self, taken: list[Line], n: int, wait: float | None) -> list[Line]:
        """Return lines without a row of units at their beginning; none if it cannot be told yet."""
        decoder = self._decoder
        first = next(filter(_is_row, taken))
        text, encoding = decode_beginning(_kept(first), self._name)
        cells = _split(decoder, text)
        if not isinstance(decoder, CsvDecoder) or not may_be_units(cells, decoder.dialect):
            self._fresh = False
            return taken
        while sum(map(_is_row, taken)) < 2:
            more = self._lines.take(1, wait)
            if isinstance(more, Turn):
                self._lines.turn_back()
                break
            if not more and not self._lines.ended:
                self._lines.put_back(taken)
                return []
            if not more:
                break
            taken = taken + more
        self._fresh = False
        below = [line for line in taken if _is_row(line)][1:2]
        if below and are_units(
            cells, _split(decoder, decode_beginning(_kept(below[0]), self._name)[0]), decoder.dialect
        ):
            if encoding != decoder.encoding:  # the first sign that is no ASCII is often a degree
                dialect = replace(decoder.dialect, encoding=encoding)
                self._decoder = CsvDecoder(dialect, self._selection, self._name)
            return taken[taken.index(first) + 1 :]
        if len(taken) > n:
            self._lines.put_back(taken[n:])
        return taken[:n]

    # -- where it stands ----

    def _cursor(self) -> dict[str, Any]:
        cursor = self._feed.mark(0 if self._lines.turned else self._lines.offset)
        cursor["position"] = self._position
        decoder = None if self._lines.turned else self._decoder
        if decoder is not None:
            cursor["columns"] = decoder.columns
            cursor["encoding"] = decoder.encoding
            cursor["delimiter"] = decoder.dialect.delimiter if isinstance(decoder, CsvDecoder) else ""
            cursor["fresh"] = self._fresh
        return cursor

    def seek(self, cursor: dict[str, Any]) -> None:
        """Go on after the block that `cursor` is from."""
        offset = self._feed.find(cursor)
        self._position = int(cursor["position"])
        if offset is None:  # a pipe: its header was read, its rows are new
            return
        self._feed.jump(offset)
        self._lines = Lines(self._feed, offset)
        self._decoder, self._error, self._fresh = None, None, True
        if offset and "columns" in cursor:
            columns, delimiter = list(cursor["columns"]), cursor["delimiter"]
            self._fresh = bool(cursor["fresh"])
            if delimiter:
                dialect = Dialect(cursor["encoding"], delimiter, columns)
                self._decoder = CsvDecoder(dialect, self._selection, self._name)
            else:
                self._decoder = JsonDecoder(columns, self._selection, self._name)

    def close(self) -> None:
        """Let go of the input."""
        self._feed.close()


def _is_row(line: Line) -> bool:
    return isinstance(line, Overlong) or bool(line.strip(b" \r"))


def _kept(line: Line) -> bytes:
    return line.beginning if isinstance(line, Overlong) else line


def _split(decoder: Decoder | None, text: str) -> list[str]:
    """Return the cells of a line, none if they cannot be told apart."""
    try:
        return decoder.dialect.split(text) if isinstance(decoder, CsvDecoder) else []
    except csv.Error:
        return []
