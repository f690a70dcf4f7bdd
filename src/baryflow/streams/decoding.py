"""Decode lines of CSV and NDJSON into columns, and recognise how a CSV file is written."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import RAW_LENGTH, Rejected
from baryflow.streams.blocks import Block, Selection
from baryflow.streams.bytesource import LONGEST_LINE, Line, Overlong
from baryflow.streams.numbers import (
    convert_values,
    first_duplicates,
    is_missing,
    parse_column,
    parse_matrix,
    parse_number,
    valid_text,
)
from baryflow.validation import Floats

_BOM = b"\xef\xbb\xbf"
#: In order of precedence: those that are never part of a name come first.
_DELIMITERS = ("\t", ";", ",", "|")
#: A row of a historian has a timestamp even where it has no numbers; a row of units has none.
_TIMESTAMP = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}|\d{1,2}:\d{2}")
_DECLARED = re.compile(r'"?sep=([^\w."])"?')


# -- CSV dialects --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dialect:
    """How the rows of a CSV file are written."""

    encoding: str
    delimiter: str
    columns: list[str]

    @property
    def decimal_comma(self) -> bool:
        """Whether a comma in a cell can only be a decimal comma."""
        return self.delimiter != ","

    def split(self, text: str) -> list[str]:
        """Return the cells of a line; raises csv.Error if quotes do not match."""
        if '"' not in text:
            return text.split(self.delimiter)
        return next(csv.reader([text], delimiter=self.delimiter, strict=True), [])


def decode_beginning(line: bytes, name: str) -> tuple[str, str]:
    """Return a first line as text, and its encoding: UTF-8, or else Windows' cp1252."""
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidInputError(
            f"{name} is written in UTF-16; save it as UTF-8 (“CSV UTF-8” in a spreadsheet)"
        )
    if line.startswith(b"\x1f\x8b"):
        raise InvalidInputError(f"{name} is compressed; add .gz to its name, or pipe it through gunzip")
    line = line.removeprefix(_BOM).rstrip(b"\r")
    try:
        return line.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return line.decode("cp1252", "replace"), "cp1252"


def declared_delimiter(text: str) -> str | None:
    """Return the delimiter that a line ``sep=;`` above the header declares."""
    found = _DECLARED.fullmatch(text.strip())
    return found[1] if found else None


def read_header(text: str, encoding: str, delimiter: str | None, name: str) -> Dialect:
    """Return the dialect of a file with this header, or raise if names are missing or not unique."""
    if delimiter is None:
        unquoted = re.sub(r'"[^"]*"', "", text)
        delimiter = next((one for one in _DELIMITERS if one in unquoted), ",")
    try:
        names = [cell.strip() for cell in Dialect(encoding, delimiter, []).split(text)]
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
            f"the header of {name} has {', '.join(map(repr, twice))} more than once; rename the columns"
        )
    return Dialect(encoding, delimiter, names)


def is_data(cells: Sequence[str], dialect: Dialect) -> bool:
    """Return whether cells are a row rather than a header: one is a number or a time."""
    return any(_is_value(cell, dialect) for cell in cells)


def may_be_units(cells: Sequence[str], dialect: Dialect) -> bool:
    """Return whether the first row may hold units: words, but no number and no time."""
    return not is_data(cells, dialect) and not all(map(is_missing, cells))


def are_units(cells: Sequence[str], below: Sequence[str], dialect: Dialect) -> bool:
    """Return whether a row that may hold units does, judged by the row below it.

    That row must have values. A word that is in both rows is a label, not a unit.
    """
    if not is_data(below, dialect):
        return False
    return not any(a == b and not is_missing(a) for a, b in zip(cells, below, strict=False))


def _is_value(cell: str, dialect: Dialect) -> bool:
    if is_missing(cell):
        return False
    return parse_number(cell, dialect.decimal_comma) is not None or bool(_TIMESTAMP.match(cell.strip()))


# -- decoders ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Decoded:
    """Lines as columns: `good` lines are rows; `reasons` has the reason for each other line.

    The other fields are those of :class:`~baryflow.streams.blocks.Block`.
    """

    good: list[int]
    numbers: Floats
    invalid: list[dict[int, str]]
    texts: list[list[str]]
    reasons: dict[int, str]

    def to_block(
        self, lines: Sequence[Line], first: int, cursor: dict[str, Any], notices: list[str]
    ) -> Block:
        """Return the rows of `lines`, the first of which has position `first`."""
        return Block(
            numbers=self.numbers,
            invalid=self.invalid,
            texts=self.texts,
            positions=np.array(self.good, dtype=np.intp) + first,
            rejected=[
                Rejected(first + at, reason, excerpt(lines[at]))
                for at, reason in sorted(self.reasons.items())
            ],
            excerpt=lambda row: excerpt(lines[self.good[row]]),
            cursor=cursor,
            notices=notices,
        )


class Decoder(Protocol):
    """Turns lines into columns."""

    columns: list[str]
    chosen: list[str]
    encoding: str

    def decode(self, lines: Sequence[Line]) -> Decoded:
        """Return the columns of the lines."""


def excerpt(line: Line) -> str:
    """Return the beginning of a line as valid text."""
    start = line.beginning if isinstance(line, Overlong) else line
    return start[: 4 * RAW_LENGTH].decode("utf-8", "replace").rstrip("\r")[:RAW_LENGTH]


class CsvDecoder:
    """Decodes lines with the cells of a header."""

    def __init__(self, dialect: Dialect, selection: Selection, name: str) -> None:
        self.columns = dialect.columns
        self.chosen = selection.choose(dialect.columns, name)
        self.dialect = dialect
        self.encoding = dialect.encoding
        self._numbers = [dialect.columns.index(column) for column in self.chosen]
        self._texts = [dialect.columns.index(column) for column in selection.texts]

    def decode(self, lines: Sequence[Line]) -> Decoded:
        """Return the columns of the lines."""
        reasons: dict[int, str] = {}
        texts = decode_lines(lines, self.encoding, reasons)
        fast = None if reasons else self._decode_fast(texts)
        if fast is not None:
            return fast
        rows = self._split(texts, reasons)
        good = (
            [at for at in range(len(rows)) if at not in reasons] if reasons else list(range(len(rows)))
        )
        columns = list(zip(*([rows[at] for at in good] if reasons else rows), strict=True))
        if not columns:
            columns = [()] * len(self.columns)
        converted = [parse_column(columns[j], self.dialect.decimal_comma) for j in self._numbers]
        return Decoded(
            good=good,
            numbers=stack([numbers for numbers, _ in converted], len(good)),
            invalid=[invalid for _, invalid in converted],
            texts=[[cell.strip() for cell in columns[j]] for j in self._texts],
            reasons=reasons,
        )

    def _decode_fast(self, texts: Sequence[str]) -> Decoded | None:
        """Decode lines of plain numbers with other columns only before and after them, or None."""
        delimiter, width = self.dialect.delimiter, len(self.columns)
        if not self._numbers or any(text.count(delimiter) != width - 1 or '"' in text for text in texts):
            return None
        before, after = min(self._numbers), width - 1 - max(self._numbers)
        if any(before <= column < width - after for column in self._texts):
            return None
        heads = [text.split(delimiter, before) for text in texts]
        tails = [head.pop().rsplit(delimiter, after) for head in heads]
        numbers = parse_matrix([tail[0] for tail in tails], width - before - after, delimiter)
        if numbers is None:
            return None
        inner = [column - before for column in self._numbers]
        pairs = list(zip(heads, tails, strict=True))
        return Decoded(
            good=list(range(len(texts))),
            numbers=numbers if inner == list(range(numbers.shape[1])) else numbers[:, inner],
            invalid=[{} for _ in inner],
            texts=[
                [(head[j] if j < before else tail[j - width]).strip() for head, tail in pairs]
                for j in self._texts
            ],
            reasons={},
        )

    def _split(self, texts: Sequence[str], reasons: dict[int, str]) -> list[list[str]]:
        """Split lines into cells; add a reason where their number differs from the header's."""
        delimiter, width = self.dialect.delimiter, len(self.columns)
        rows = [text.split(delimiter) for text in texts]
        for at, text in enumerate(texts):
            if '"' in text:
                try:
                    rows[at] = self.dialect.split(text)
                except csv.Error as error:
                    reasons.setdefault(at, f"its quotes do not match ({error}).")
                    continue
            row = rows[at]
            if len(row) == width or at in reasons:
                continue
            if len(row) > width and not any(cell.strip() for cell in row[width:]):
                del row[width:]  # delimiters at the end of the line
            else:
                cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
                reasons[at] = f"it has {cells} where the header has {width}."
        return rows


class JsonDecoder:
    """Decodes lines that are one JSON object each; an absent name is a missing value."""

    encoding = "utf-8"

    def __init__(self, columns: list[str], selection: Selection, name: str) -> None:
        self.columns = columns
        # An object need not have all names, so selected columns are not checked against the first one.
        self.chosen = (
            selection.choose(columns, name) if selection.numbers is None else list(selection.numbers)
        )
        self._wanted = frozenset(self.chosen)
        self._texts = list(selection.texts)

    def decode(self, lines: Sequence[Line]) -> Decoded:
        """Return the columns of the lines."""
        reasons: dict[int, str] = {}
        objects: list[dict[str, Any]] = []
        good: list[int] = []
        for at, text in enumerate(decode_lines(lines, self.encoding, reasons)):
            if at in reasons:
                continue
            found = parse_object(text)
            reason = found if isinstance(found, str) else self._refuse(found)
            if reason:
                reasons[at] = reason
            elif not isinstance(found, str):
                objects.append(found)
                good.append(at)
        converted = [convert_values([one.get(name) for one in objects]) for name in self.chosen]
        return Decoded(
            good=good,
            numbers=stack([numbers for numbers, _ in converted], len(good)),
            invalid=[invalid for _, invalid in converted],
            texts=[[as_text(one.get(name)) for one in objects] for name in self._texts],
            reasons=reasons,
        )

    def _refuse(self, found: dict[str, Any]) -> str:
        """Return why an object is not a row, or nothing if it is one."""
        if self._wanted.isdisjoint(found):
            return "it has none of the wanted columns."
        nested = [name for name in self._texts if isinstance(found.get(name), dict | list)]
        return f"column {nested[0]!r} holds more than one value." if nested else ""


def parse_object(text: str) -> dict[str, Any] | str:
    """Return the object in a line, or the reason why there is none."""
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return "it is not valid JSON."
    return found if isinstance(found, dict) else "it is not a JSON object."


def parse_objects(lines: Sequence[Line]) -> list[dict[str, Any] | str]:
    """Return the object in each line, or the reason why there is none."""
    reasons: dict[int, str] = {}
    texts = decode_lines(lines, "utf-8", reasons)
    return [reasons.get(at) or parse_object(text) for at, text in enumerate(texts)]


def as_text(value: Any) -> str:
    """Return a JSON value as text, ``""`` for null."""
    if value is None:
        return ""
    return valid_text(value.strip() if isinstance(value, str) else json.dumps(value))


def stack(columns: Sequence[Floats], count: int) -> Floats:
    """Return columns of `count` rows as a matrix, even if there are no columns."""
    return np.column_stack(columns) if columns else np.empty((count, 0))


def decode_lines(lines: Sequence[Line], encoding: str, reasons: dict[int, str]) -> list[str]:
    """Return lines as text; lines that are too long or not text are empty and get a reason."""
    try:
        whole: bytes = b"\n".join((*lines, b""))  # type: ignore[arg-type]  # an Overlong raises TypeError
        return whole.decode(encoding).replace("\r\n", "\n").split("\n")[:-1]
    except (TypeError, UnicodeDecodeError):
        pass
    texts = []
    for at, line in enumerate(lines):
        text = ""
        if isinstance(line, Overlong):
            reasons[at] = f"it is {line.length} bytes long; the limit is {LONGEST_LINE}."
        else:
            try:
                text = line.decode(encoding).removesuffix("\r")
            except UnicodeDecodeError as error:
                written = "UTF-8" if encoding == "utf-8" else encoding
                reasons[at] = f"byte {error.start + 1} of it is not {written}."
        texts.append(text)
    return texts
