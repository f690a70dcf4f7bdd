"""What a CSV file looks like: its encoding, its delimiter, its header, its row of units."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass

from baryflow.exceptions import InvalidInputError
from baryflow.streams.numbers import first_duplicates, is_missing, parse_number

_BOM = b"\xef\xbb\xbf"
#: In the order in which they are looked for: those that are never part of a name first.
_DELIMITERS = ("\t", ";", ",", "|")
#: A historian's row has a time even where it has no numbers; a row of units has none.
_TIMESTAMP = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}|\d{1,2}:\d{2}")
_DECLARED = re.compile(r'"?sep=([^\w."])"?')


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
        """Return the cells of a line; raises csv.Error where quotes do not match."""
        if '"' not in text:
            return text.split(self.delimiter)
        return next(csv.reader([text], delimiter=self.delimiter, strict=True), [])


def decode_beginning(line: bytes, name: str) -> tuple[str, str]:
    """Return a first line as text, and the encoding: UTF-8 or, if it cannot be that, Windows' own."""
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidInputError(
            f"{name} is written in UTF-16; save it as UTF-8 (“CSV UTF-8” in a spreadsheet)"
        )
    if line.startswith(b"\x1f\x8b"):
        raise InvalidInputError(
            f"{name} is compressed; its name must end with .gz, or pipe it through gunzip"
        )
    line = line.removeprefix(_BOM).rstrip(b"\r")
    try:
        return line.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        # Every byte has a meaning in Latin-1; cp1252 is it with the signs that people use.
        return line.decode("cp1252", "replace"), "cp1252"


def declared_delimiter(text: str) -> str | None:
    """Return the delimiter that a line ``sep=;`` above the header declares."""
    found = _DECLARED.fullmatch(text.strip())
    return found[1] if found else None


def read_header(text: str, encoding: str, delimiter: str | None, name: str) -> Dialect:
    """Return the dialect that a header tells of.

    Raises
    ------
    InvalidInputError
        If names occur twice, there is none, or quotes do not match.
    """
    if delimiter is None:
        bare = re.sub(r'"[^"]*"', "", text)
        delimiter = next((one for one in _DELIMITERS if one in bare), ",")
    try:
        names = [cell.strip() for cell in Dialect(encoding, delimiter, []).split(text)]
    except csv.Error as error:
        raise InvalidInputError(
            f"the header of {name} cannot be read ({error}): {text[:100]!r}"
        ) from error
    while names and not names[-1]:  # a delimiter at the end of each line
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


def looks_like_data(cells: Sequence[str], dialect: Dialect) -> bool:
    """Tell whether cells are of a row rather than of a header: a number or a time is among them."""
    return any(_is_value(cell, dialect) for cell in cells)


def may_be_units(cells: Sequence[str], dialect: Dialect) -> bool:
    """Tell whether the first row may be one of units: words, no number, no time."""
    return not looks_like_data(cells, dialect) and not all(map(is_missing, cells))


def are_units(cells: Sequence[str], below: Sequence[str], dialect: Dialect) -> bool:
    """Tell whether a row that may be one of units is one, from the row below it.

    That one must have values; and a word that stands in both is no unit but a label.
    """
    if not looks_like_data(below, dialect):
        return False
    return not any(a == b and not is_missing(a) for a, b in zip(cells, below, strict=False))


def _is_value(cell: str, dialect: Dialect) -> bool:
    if is_missing(cell):
        return False
    return parse_number(cell, dialect.decimal_comma) is not None or bool(_TIMESTAMP.match(cell.strip()))
