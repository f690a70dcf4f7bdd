"""Cells and JSON values to blocks of rows: numbers, text, and what is wrong with the others."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import RAW_LENGTH, Rejected
from baryflow.validation import LARGEST, Floats, Integers

#: Longest line or message that is a row; only the beginning of longer ones is kept.
LONGEST_LINE = 1 << 20
#: Bytes that are kept of a line that is too long.
KEPT = 1024
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
_VALUES = dict.fromkeys(MISSING, math.nan) | {"true": 1.0, "false": 0.0}
#: Separates joined cells; does not occur in typed text.
_SEPARATOR = "\x1f"
#: Characters of a cell, and columns, that a message shows.
_SHOWN, _LISTED = 40, 20
_NUMBER = re.compile(r"\s*[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?\s*")


# -- values --------------------------------------------------------------------------------------------


def is_missing(cell: str) -> bool:
    """Return whether a cell marks a missing value."""
    return cell.strip().casefold() in MISSING


def parse_number(value: Any, decimal_comma: bool = False) -> float | None:
    """Return the number in a cell or JSON value, NaN if it is missing, or None if it is neither."""
    if isinstance(value, str):
        value = value.strip()
        word = _VALUES.get(value.casefold())
        if word is not None:
            return word
        if "_" in value:  # Python accepts 1_000 as a number; other programs do not
            return None
        if decimal_comma and "." not in value:
            value = value.replace(",", ".")
    try:
        return math.nan if value is None else float(value)
    except (TypeError, ValueError):
        return None
    except OverflowError:  # an integer with hundreds of digits
        return math.inf


def parse_column(values: Sequence[Any], decimal_comma: bool = False) -> tuple[Floats, dict[int, str]]:
    """Return the numbers in a column, NaN where missing, and by row the values that cannot be used.

    Parameters
    ----------
    values : array of numbers, or sequence of cells or of JSON values
    decimal_comma : bool, default=False
        Whether the cell ``1,5`` is one and a half.
    """
    numbers = _parse_plain(values, decimal_comma)
    invalid: dict[int, str] = {}
    if numbers is None:
        found = [parse_number(value, decimal_comma) for value in values]
        invalid = {row: _show(values[row]) for row, number in enumerate(found) if number is None}
        numbers = np.array(found, dtype=np.float64)
    for row in np.flatnonzero(np.abs(numbers) > LARGEST).tolist():
        invalid[row] = _show(values[row])
        numbers[row] = math.nan
    return numbers, invalid


def _parse_plain(values: Any, decimal_comma: bool) -> Floats | None:
    """Convert a column of nothing but numbers and empty cells quickly; None if it has other values."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.astype(np.float64)
    try:
        if values and isinstance(values[0], str):
            joined = _SEPARATOR.join(values)  # a TypeError shows that there are other values
            count = len(values)
            if decimal_comma and "," in joined:
                values = joined.replace(",", ".").split(_SEPARATOR)
            if "_" in joined or len(values) != count:
                return None
            try:
                return np.fromiter(map(float, values), np.float64, count)
            except ValueError:
                return np.fromiter((float(cell or "nan") for cell in values), np.float64, count)
        if set(map(type, values)) <= {float, int, type(None)}:
            return np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    return None


def _show(value: Any) -> str:
    if isinstance(value, str):
        return valid_text(value)
    number = parse_number(value)
    return valid_text(repr(value)[:_SHOWN]) if number is None else f"{number:g}"


def describe_invalid(column: str, cell: str) -> str:
    """Return one sentence on what is wrong with a cell."""
    shown = cell if len(cell) <= _SHOWN else f"{cell[:_SHOWN]}…"
    if parse_number(cell, decimal_comma=True) is None:
        return f"column {column!r} holds {shown!r}, which is not a number."
    return f"column {column!r} holds {shown!r}; infinity and numbers beyond ±{LARGEST:g} cannot be used."


def as_text(value: Any) -> str:
    """Return a value as text, ``""`` if it is missing."""
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if missing else valid_text(str(value).strip())


def valid_text(text: str) -> str:
    """Return text that can be encoded: lone surrogates, which JSON may hold, are replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


# -- names of columns ----------------------------------------------------------------------------------


def first_duplicates(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def suggest(names: Iterable[str], columns: Iterable[str]) -> str:
    """Return `` (did you mean …?)`` with the columns that are similar to `names`, or nothing."""
    folded = {column.casefold(): column for column in columns if column}
    found = (get_close_matches(name.casefold(), folded, n=1, cutoff=0.7) for name in names)
    similar = list(dict.fromkeys(folded[close[0]] for close in found if close))
    return f" (did you mean {list_names(similar)}?)" if similar else ""


def list_names(names: Sequence[str]) -> str:
    """Return quoted names for a message, the first twenty of them."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(map(repr, names[:_LISTED])) + more


@dataclass(frozen=True)
class Selection:
    """Which columns to read: `numbers` (None for all others), `texts`, and those to ignore."""

    numbers: Sequence[str] | None
    texts: Sequence[str] = ()
    ignored: Sequence[str] = ()

    def choose(self, columns: Sequence[str], name: str) -> list[str]:
        """Return the numeric columns out of `columns`, or raise if input `name` lacks some."""
        chosen = self.numbers
        if chosen is None:
            out = {*self.texts, *self.ignored}
            chosen = [column for column in columns if column and column not in out]
        missing = [column for column in (*chosen, *self.texts) if column not in columns]
        if missing:
            raise InvalidInputError(f"{name} {self._describe_missing(missing, columns)}")
        return list(chosen)

    def _describe_missing(self, missing: Sequence[str], columns: Sequence[str]) -> str:
        """Return that columns are missing, and what to do."""
        values = [column for column in columns if _NUMBER.fullmatch(column)]
        if 2 * len(values) > len(columns) and not all(map(str.isdecimal, values)):
            return (
                f"has no header: it begins with {list_names(columns)}; add a line with the column names"
            )
        numbers = self.numbers or ()
        others = [column for column in columns if column not in (*numbers, *self.texts)]
        advice = "rename the columns of the file"
        if set(missing) <= set(self.texts):
            advice = "correct the name" + ("" if numbers else ", or leave out the file")
        elif len(numbers) > 1 and not set(numbers) & set(columns):
            advice = "use a model that was fitted on these columns, or another file"
        elif not set(missing) & set(self.texts):
            advice += ", or add an empty column for one that was not measured"
        found = f"{suggest(missing, others)}; it has {list_names(columns)}"
        return f"has no column {list_names(missing)}{found}: {advice}"


# -- blocks --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Block:
    """Rows as they were read."""

    numbers: Floats  # of shape (n, d); NaN where a cell is empty or invalid
    invalid: list[dict[int, str]]  # for each column, row → cell that is not a usable number
    texts: list[list[str]]  # for each text column, one value per row
    positions: Integers
    rejected: list[Rejected]  # rows that could not be split into cells
    excerpt: Callable[[int], str]  # row → its beginning as text


def make_block(
    columns: Sequence[Sequence[Any]],
    texts: list[list[str]],
    positions: Integers,
    excerpt: Callable[[int], str],
    *,
    rejected: Sequence[Rejected] = (),
    decimal_comma: bool = False,
) -> Block:
    """Return rows whose numbers are in columns of cells, JSON values or arrays."""
    parsed = [parse_column(column, decimal_comma) for column in columns]
    numbers = np.array([numbers for numbers, _ in parsed], dtype=np.float64)
    return Block(
        # Sums of the same numbers can differ in the last bit if the memory layout differs.
        np.ascontiguousarray(numbers.reshape(len(parsed), len(positions)).T),
        [invalid for _, invalid in parsed],
        texts,
        positions,
        list(rejected),
        excerpt,
    )


def reject_invalid(block: Block, columns: Sequence[str]) -> tuple[Integers, list[Rejected]]:
    """Return the rows that are valid in all `columns`, and all rejected rows in order."""
    reasons: dict[int, str] = {}
    for column, invalid in zip(columns, block.invalid, strict=True):
        for row, cell in invalid.items():
            reasons.setdefault(row, describe_invalid(column, cell))
    bad = [
        Rejected(int(block.positions[row]), reason, block.excerpt(row))
        for row, reason in reasons.items()
    ]
    good = np.ones(len(block.positions), dtype=bool)
    good[list(reasons)] = False
    return np.flatnonzero(good), sorted([*block.rejected, *bad], key=lambda one: one.position)


# -- lines ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overlong:
    """A line that was too long to keep."""

    beginning: bytes
    length: int

    def __len__(self) -> int:
        return self.length


Line = bytes | Overlong


def kept(line: Line) -> bytes:
    """Return what there is of a line."""
    return line.beginning if isinstance(line, Overlong) else line


def excerpt(line: Line) -> str:
    """Return the beginning of a line as valid text."""
    return kept(line)[: 4 * RAW_LENGTH].decode("utf-8", "replace").rstrip("\r")[:RAW_LENGTH]


def decode_lines(lines: Sequence[Line], encoding: str) -> tuple[list[str], dict[int, str]]:
    """Return lines as text, and the reasons for those that are too long or not text, which are empty."""
    try:
        whole: bytes = b"\n".join((*lines, b""))  # type: ignore[arg-type]  # an Overlong raises TypeError
        return whole.decode(encoding).replace("\r\n", "\n").split("\n")[:-1], {}
    except (TypeError, UnicodeDecodeError):
        pass
    texts, reasons = [], {}
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
    return texts, reasons


def block_of_lines(
    lines: Sequence[Line],
    first: int,
    reasons: dict[int, str],
    columns: Sequence[Sequence[Any]],
    texts: list[list[str]],
    *,
    decimal_comma: bool = False,
) -> Block:
    """Return the rows in lines that begin at position `first`; a line with a reason is none."""
    good = [at for at in range(len(lines)) if at not in reasons]
    return make_block(
        columns,
        texts,
        np.array(good, dtype=np.intp) + first,
        lambda row: excerpt(lines[good[row]]),
        rejected=[
            Rejected(first + at, reason, excerpt(lines[at])) for at, reason in sorted(reasons.items())
        ],
        decimal_comma=decimal_comma,
    )


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

    def decode(self, lines: Sequence[Line], first: int) -> Block:
        """Return the rows in lines; `first` is the position of the first one."""
        objects: list[dict[str, Any]] = []
        reasons: dict[int, str] = {}
        for at, found in enumerate(parse_objects(lines)):
            reason = found if isinstance(found, str) else self._refuse(found)
            if reason:
                reasons[at] = reason
            elif not isinstance(found, str):
                objects.append(found)
        columns = [[one.get(name) for one in objects] for name in self.chosen]
        texts = [[as_text(one.get(name)) for one in objects] for name in self._texts]
        return block_of_lines(lines, first, reasons, columns, texts)

    def _refuse(self, found: dict[str, Any]) -> str:
        """Return why an object is not a row, or nothing if it is one."""
        if self._wanted.isdisjoint(found):
            return "it has none of the wanted columns."
        nested = [name for name in self._texts if isinstance(found.get(name), dict | list)]
        return f"column {nested[0]!r} holds more than one value." if nested else ""


def parse_objects(lines: Sequence[Line]) -> list[dict[str, Any] | str]:
    """Return the JSON object in each line, or the reason why there is none."""
    texts, reasons = decode_lines(lines, "utf-8")
    return [reasons.get(at) or _parse_object(text) for at, text in enumerate(texts)]


def _parse_object(text: str) -> dict[str, Any] | str:
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return "it is not valid JSON."
    return found if isinstance(found, dict) else "it is not a JSON object."
