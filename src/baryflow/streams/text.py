"""Read rows of CSV and NDJSON from a byte source, and recognise how a CSV file is written."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from baryflow.exceptions import InvalidInputError
from baryflow.streams.bytesource import ByteSource, Lines
from baryflow.streams.decoding import (
    Block,
    JsonDecoder,
    Line,
    Overlong,
    Selection,
    block_of_lines,
    decode_lines,
    first_duplicates,
    is_missing,
    kept,
    parse_number,
    parse_objects,
)

_BOM = b"\xef\xbb\xbf"
#: In order of precedence: those that are never part of a name come first.
_DELIMITERS = ("\t", ";", ",", "|")
#: A row of a historian has a timestamp even where it has no numbers; a row of units has none.
_TIMESTAMP = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}|\d{1,2}:\d{2}")
_DECLARED = re.compile(r'\s*"?sep=([^\w."])"?\s*')
#: Lines that are searched for a first object with the column names.
_SEARCHED = 1000


# -- CSV -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dialect:
    """How the rows of a CSV file are written."""

    encoding: str
    delimiter: str
    columns: list[str]

    @classmethod
    def of_header(cls, text: str, encoding: str, delimiter: str | None, name: str) -> Dialect:
        """Return the dialect of a file with this header, or raise if names are missing or not unique."""
        if delimiter is None:
            unquoted = re.sub(r'"[^"]*"', "", text)
            delimiter = next((one for one in _DELIMITERS if one in unquoted), ",")
        try:
            names = [cell.strip() for cell in cls(encoding, delimiter, []).split(text)]
        except csv.Error as error:
            raise InvalidInputError(
                f"the header of {name} cannot be read ({error}): {text[:100]!r}"
            ) from error
        while names and not names[-1]:  # each line ends with a delimiter
            names.pop()
        if not names:
            raise InvalidInputError(
                f"{name} begins with a line without names; expected a header: {text[:100]!r}"
            )
        twice = first_duplicates(cell for cell in names if cell)
        if twice:
            raise InvalidInputError(
                f"the header of {name} has {', '.join(map(repr, twice))} more than once; rename the "
                "columns"
            )
        return cls(encoding, delimiter, names)

    @property
    def decimal_comma(self) -> bool:
        """Whether a comma in a cell can only be a decimal comma."""
        return self.delimiter != ","

    def split(self, text: str) -> list[str]:
        """Return the cells of a line; raises csv.Error if quotes do not match."""
        if '"' not in text:
            return text.split(self.delimiter)
        return next(csv.reader([text], delimiter=self.delimiter, strict=True), [])

    def is_data(self, cells: Sequence[str]) -> bool:
        """Return whether cells are a row rather than a header or units: one is a number or a time."""
        return any(
            parse_number(cell, self.decimal_comma) is not None or _TIMESTAMP.match(cell.strip())
            for cell in cells
            if not is_missing(cell)
        )

    def are_units(self, cells: Sequence[str], below: Sequence[str] | None = None) -> bool:
        """Return whether the first row may hold units, or does, judged by the row `below` it.

        That row must have values. A word that is in both rows is a label, not a unit.
        """
        if below is None:
            return not self.is_data(cells) and not all(map(is_missing, cells))
        return self.is_data(below) and not any(
            a == b and not is_missing(a) for a, b in zip(cells, below, strict=False)
        )


def decode_beginning(line: Line, name: str) -> tuple[str, str]:
    """Return a first line as text, and its encoding: UTF-8, or else Windows' cp1252."""
    data = kept(line)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidInputError(
            f"{name} is written in UTF-16; save it as UTF-8 (“CSV UTF-8” in a spreadsheet)"
        )
    if data.startswith(b"\x1f\x8b"):
        raise InvalidInputError(f"{name} is compressed; add .gz to its name, or pipe it through gunzip")
    data = data.removeprefix(_BOM).rstrip(b"\r")
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace"), "cp1252"


class CsvDecoder:
    """Decodes lines with the cells of a header."""

    def __init__(self, dialect: Dialect, selection: Selection, name: str) -> None:
        self.columns = dialect.columns
        self.chosen = selection.choose(dialect.columns, name)
        self.dialect = dialect
        self.encoding = dialect.encoding
        self._numbers = [dialect.columns.index(column) for column in self.chosen]
        self._texts = [dialect.columns.index(column) for column in selection.texts]

    def decode(self, lines: Sequence[Line], first: int) -> Block:
        """Return the rows in lines; `first` is the position of the first one."""
        columns, reasons = self.split(lines)
        return block_of_lines(
            lines,
            first,
            reasons,
            [columns[j] for j in self._numbers],
            [[cell.strip() for cell in columns[j]] for j in self._texts],
            decimal_comma=self.dialect.decimal_comma,
        )

    def split(self, lines: Sequence[Line]) -> tuple[list[tuple[str, ...]], dict[int, str]]:
        """Return the columns of cells, without the lines that have a reason not to be a row."""
        texts, reasons = decode_lines(lines, self.encoding)
        delimiter, width = self.dialect.delimiter, len(self.columns)
        rows = [text.split(delimiter) for text in texts]
        pairs = enumerate(zip(texts, rows, strict=True))
        for at in [at for at, (text, row) in pairs if len(row) != width or '"' in text]:
            try:
                row = rows[at] = self.dialect.split(texts[at])
            except csv.Error as error:
                reasons.setdefault(at, f"its quotes do not match ({error}).")
                continue
            if len(row) == width or at in reasons:
                continue
            if len(row) > width and not any(cell.strip() for cell in row[width:]):
                del row[width:]  # delimiters at the end of the line
            else:
                cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
                reasons[at] = f"it has {cells} where the header has {width}."
        if reasons:
            rows = [row for at, row in enumerate(rows) if at not in reasons]
        return list(zip(*rows, strict=True)) or [()] * width, reasons


# -- rows ----------------------------------------------------------------------------------------------


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
        self._decoder: CsvDecoder | JsonDecoder | None = None
        self._last: CsvDecoder | JsonDecoder | None = None  # of the previous file
        self._fresh = True  # no row of this file was read, so the next may hold units
        self._position = 0
        self._error: Exception | None = None
        try:
            if not self._start(wait=0.0 if lazy else None) and not lazy:
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
        """Return the next `n` rows, or None at the end."""
        lines = self.read_lines(n, timeout)
        if lines is None:
            return None
        # A followed file without a header yet has no rows: any decoder will do.
        decoder = self._decoder or JsonDecoder([], replace(self._selection, numbers=self.chosen), "")
        return decoder.decode(lines, self._position - len(lines) + 1)

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
            if self._lines.at_change:
                if begun:
                    return []
                self._begin_file()
            if self._decoder is None and not self._start(wait):
                return []
            if self._fresh and not self._skip_units(wait):
                return []
            lines = self._lines.read(n, wait)
            rows = _rows_in(lines)
            if rows or not (lines or self._lines.at_change):
                return rows

    def _begin_file(self) -> None:
        self._lines.begin_file()
        self._last, self._decoder, self._fresh = self._decoder or self._last, None, True

    # -- header and units -----------------------------------------------------------------------------

    def _start(self, wait: float | None) -> bool:
        """Read the header, or the names in the first object; return whether it has arrived."""
        number, delimiter, searched = 0, None, False
        while self._decoder is None:
            lines = self._lines.peek(number + 1, wait)
            if len(lines) <= number and self._lines.changed:
                self._lines.read(number, wait)
                self._begin_file()
                number, delimiter, searched = 0, None, False
                continue
            if searched and (number == _SEARCHED or (len(lines) <= number and self._lines.ended)):
                raise InvalidInputError(f"{self._name} holds no JSON object in its first {number} lines")
            if len(lines) <= number:
                return False
            line, number = lines[number], number + 1
            text, encoding = decode_beginning(line, self._name)
            is_json = text.lstrip().startswith("{") if self._kind is None else self._kind == "ndjson"
            if not text.strip(" \r"):
                continue
            if is_json:
                self._decoder, searched = self._start_json(line), True
            elif declared := _DECLARED.fullmatch(text):
                delimiter = declared[1]
            elif isinstance(line, Overlong):
                raise InvalidInputError(
                    f"{self._name} begins with a line of {line.length} bytes; expected a header"
                )
            else:
                self._decoder = self._start_csv(text, encoding, delimiter, number)
        if self._selection.numbers is None:  # later files must have the same columns
            self._selection = replace(self._selection, numbers=self._decoder.chosen)
        return True

    def _start_json(self, line: Line) -> JsonDecoder | None:
        """Take the names from the first object, unless they are known. It stays to be read as a row."""
        (found,), known = parse_objects([line]), self._selection.numbers
        if isinstance(found, str) and known is None:
            return None  # try the next line
        self._fresh = False
        columns = list(known or ()) if isinstance(found, str) else list(found)
        return JsonDecoder(columns, self._selection, self._name)

    def _start_csv(self, text: str, encoding: str, delimiter: str | None, number: int) -> CsvDecoder:
        """Take the names from the header, which is line `number`."""
        last = self._last
        if isinstance(last, CsvDecoder):
            # After a rotation, some programs do not write the header again.
            cells = text.split(last.dialect.delimiter)
            if len(cells) == len(last.columns) and last.dialect.is_data(cells):
                self._fresh = False
                return last
        dialect = Dialect.of_header(text, encoding, delimiter, self._name)
        dialect, number = self._check_header(dialect, number)
        decoder = self._make_csv(dialect)
        self._lines.read(number, None)
        return decoder

    def _check_header(self, dialect: Dialect, number: int) -> tuple[Dialect, int]:
        """Return the dialect of a file, and how many of its lines are no rows."""
        return dialect, number

    def _make_csv(self, dialect: Dialect) -> CsvDecoder:
        """Return the decoder of a file with this header."""
        return CsvDecoder(dialect, self._selection, self._name)

    def _skip_units(self, wait: float | None) -> bool:
        """Skip a row of units below the header; return False if more lines are needed to decide."""
        decoder, number = self._decoder, 0
        rows: list[tuple[list[str], str]] = []  # cells of the first two rows, and their encoding
        while isinstance(decoder, CsvDecoder) and len(rows) < 2:
            lines = self._lines.peek(number + 1, wait)
            if len(lines) <= number:
                if not (self._lines.ended or self._lines.changed):
                    return False
                break
            number += 1
            if _rows_in(lines[-1:]):
                rows.append(self._split(decoder, lines[-1]))
                if len(rows) == 1:
                    end = number
                    if not decoder.dialect.are_units(rows[0][0]):
                        break
        self._fresh = False
        if isinstance(decoder, CsvDecoder) and len(rows) == 2:
            (cells, encoding), (below, _) = rows
            if decoder.dialect.are_units(cells, below):
                self._lines.read(end, None)
                if encoding != decoder.encoding:  # a degree sign is often the first non-ASCII character
                    self._decoder = self._make_csv(replace(decoder.dialect, encoding=encoding))
        return True

    def _split(self, decoder: CsvDecoder, line: Line) -> tuple[list[str], str]:
        """Return the cells of a line, none if it cannot be split, and its encoding."""
        text, encoding = decode_beginning(line, self._name)
        try:
            return decoder.dialect.split(text), encoding
        except csv.Error:
            return [], encoding

    # -- position -------------------------------------------------------------------------------------

    def cursor(self) -> dict[str, Any]:
        """Return where to resume after the lines that were read."""
        at_change, decoder = self._lines.at_change, self._decoder
        cursor = self._source.mark(0 if at_change else self._lines.offset)
        cursor["position"] = self._position
        if decoder is not None and not at_change:
            cursor["columns"] = decoder.columns
            cursor["encoding"] = decoder.encoding
            cursor["delimiter"] = decoder.dialect.delimiter if isinstance(decoder, CsvDecoder) else ""
            cursor["fresh"] = self._fresh
        return cursor

    def pop_notices(self) -> list[str]:
        """Return the notices of the input, once."""
        notices, self._source.notices = self._source.notices, []
        return notices

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume after the block with this cursor."""
        offset = self._source.locate(cursor)
        self._position = int(cursor["position"])
        if offset is None:  # a pipe: the header was read, and all rows are new
            return
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


def _rows_in(lines: Sequence[Line]) -> list[Line]:
    """Return the lines that are not blank."""
    return [line for line in lines if isinstance(line, Overlong) or line.strip(b" \r")]
