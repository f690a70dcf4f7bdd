"""Parse numbers from cells and JSON values, with the words that historians write for missing ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from baryflow.validation import LARGEST, Floats

_WORDS = (
    "na; n/a; n.a.; nan; null; none; nil; -; --; ---; ?; .; missing; undefined; #n/a; #na; #value!; "
    "#ref!; #div/0!; #null!; #num!; #name?; <na>; <null>; bad; bad input; bad data; bad value; "
    "bad quality; set to bad; no data; nodata; no good data; no good data for calculation; no value; "
    "no result; no sample; error; invalid; i/o timeout; io timeout; timeout; configure; comm fail; "
    "not connected; disconnected; scan off; scan timeout; pt created; calc off; calc failed; "
    "calc timeout; calc overflow; shutdown; intf shut; over range; under range; out of range; "
    "out of serv; out of service; arc off-line; arc offline; sample bad; tag not found; "
    "digital state; questionable"
)
#: Cells that mark a missing value, in lower case: from spreadsheets, programs and plant historians.
MISSING = frozenset(["", *_WORDS.split("; ")])
_TRUTH = {"true": 1.0, "false": 0.0}
#: Separates joined cells; does not occur in typed text.
_SEPARATOR = "\x1f"
_SHOWN = 40
#: A character that is not part of a plain number or a separator.
_NOT_PLAIN = re.compile(r"[^0-9+\-.eE, ]")


def is_missing(cell: str) -> bool:
    """Return whether a cell marks a missing value."""
    return cell.strip().casefold() in MISSING


def parse_number(cell: str, decimal_comma: bool = False) -> float | None:
    """Return the number in a cell, NaN if it marks a missing value, or None if it is neither."""
    text = cell.strip()
    folded = text.casefold()
    if folded in MISSING:
        return math.nan
    if folded in _TRUTH:
        return _TRUTH[folded]
    if decimal_comma and "," in text and "." not in text:
        text = text.replace(",", ".")
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def parse_column(cells: Sequence[str], decimal_comma: bool = False) -> tuple[Floats, dict[int, str]]:
    """Return the numbers in a column of cells, NaN where missing, and the invalid cells by row.

    A cell is invalid if it is neither a usable number nor a mark for a missing value. With
    `decimal_comma`, ``1,5`` is one and a half.
    """
    numbers = _parse_all(cells, decimal_comma)
    invalid: dict[int, str] = {}
    if numbers is None:
        numbers = np.full(len(cells), math.nan)
        for row, cell in enumerate(cells):
            number = parse_number(cell, decimal_comma)
            if number is None:
                invalid[row] = cell
            else:
                numbers[row] = number
    return _without_huge(numbers, invalid, cells)


def _parse_all(cells: Sequence[str], decimal_comma: bool) -> Floats | None:
    """Convert a column of numbers and empty cells quickly; None if it has other cells."""
    joined = _SEPARATOR.join(cells)
    if "_" in joined:  # Python accepts 1_000 as a number; other programs do not
        return None
    if decimal_comma and "," in joined:
        cells = joined.replace(",", ".").split(_SEPARATOR)
    count = len(cells)
    try:
        return np.fromiter(map(float, cells), np.float64, count)
    except ValueError:
        pass
    try:
        return np.fromiter((float(cell or "nan") for cell in cells), np.float64, count)
    except ValueError:
        return None


def parse_matrix(bodies: Sequence[str], width: int, delimiter: str) -> Floats | None:
    """Convert lines of `width` cells quickly; None if a cell is neither a number nor missing.

    The numbers equal those of :func:`parse_column` bit for bit. It takes half the time, because no line
    is split.
    """
    body = delimiter.join(bodies)
    if delimiter != ",":
        body = body.replace(",", ".").replace(delimiter, ",")
    # NumPy stops silently at an invalid cell. The extra number at the end is missing then.
    plain = _without_words(f",{body},0")
    if plain is None:
        return None
    if ",," in plain:
        plain = plain.replace(",,", ",nan,").replace(",,", ",nan,")
    try:
        numbers = np.fromstring(plain[1:], sep=",")
    except (ValueError, DeprecationWarning):  # the latter if warnings are errors
        return None
    if len(numbers) != len(bodies) * width + 1:
        return None
    matrix: Floats = numbers[:-1].reshape(len(bodies), width)
    return None if (np.abs(matrix) > LARGEST).any() else matrix


def _without_words(body: str) -> str | None:
    """Replace words for missing values by nan; None if there are other words."""
    parts, done = [], 0
    for odd in _NOT_PLAIN.finditer(body):
        if odd.start() < done:
            continue
        start, end = body.rfind(",", 0, odd.start()) + 1, body.find(",", odd.end())
        word = body[start:end]
        if "." in word or not is_missing(word):  # the dot may have been a comma
            return None
        parts += [body[done:start], "nan"]
        done = end
    return "".join([*parts, body[done:]])


def convert_values(values: Sequence[Any]) -> tuple[Floats, dict[int, str]]:
    """Convert a column of JSON values like :func:`parse_column`; None is a missing value."""
    if set(map(type, values)) <= {float, int, type(None)}:
        try:
            return _without_huge(np.array(values, dtype=np.float64), {}, values)
        except OverflowError:  # an integer with hundreds of digits
            pass
    numbers = np.full(len(values), math.nan)
    invalid: dict[int, str] = {}
    for row, value in enumerate(values):
        number = _convert_value(value)
        if number is None:
            invalid[row] = valid_text(value if isinstance(value, str) else repr(value)[:_SHOWN])
        else:
            numbers[row] = number
    return _without_huge(numbers, invalid, values)


def _convert_value(value: Any) -> float | None:
    if value is None:
        return math.nan
    if isinstance(value, str):
        return parse_number(value)
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _without_huge(
    numbers: Floats, invalid: dict[int, str], cells: Sequence[Any]
) -> tuple[Floats, dict[int, str]]:
    huge = np.abs(numbers) > LARGEST
    for row in np.flatnonzero(huge).tolist():
        invalid[row] = str(cells[row]) if not isinstance(cells[row], int) else f"{numbers[row]:g}"
        numbers[row] = math.nan
    return numbers, invalid


def describe_invalid(column: str, cell: str) -> str:
    """Return one sentence on what is wrong with a cell."""
    shown = cell if len(cell) <= _SHOWN else f"{cell[:_SHOWN]}…"
    number = parse_number(cell, decimal_comma=True)
    if number is None:
        return f"column {column!r} holds {shown!r}, which is not a number."
    return f"column {column!r} holds {shown!r}; infinity and numbers beyond ±{LARGEST:g} cannot be used."


def valid_text(text: str) -> str:
    """Return text that can be encoded: lone surrogates, which JSON may hold, are replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def first_duplicates(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for name in names:
        if name in seen:
            twice[name] = None
        seen.add(name)
    return list(twice)
