"""Lines of text to columns of numbers: CSV by a header, NDJSON by the names in each object."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from baryflow.streams.base import RAW_LENGTH
from baryflow.streams.blocks import Selection
from baryflow.streams.dialects import Dialect
from baryflow.streams.lines import LONGEST_LINE, Line, Overlong
from baryflow.streams.numbers import convert_values, parse_column, parse_matrix, valid_text
from baryflow.validation import Floats


@dataclass(frozen=True, eq=False)
class Decoded:
    """Lines as columns.

    Attributes
    ----------
    good : list of int
        Which of the lines are rows.
    numbers, strange, texts
        As in :class:`~baryflow.streams.blocks.Block`.
    reasons : dict
        Line → why it is no row.
    """

    good: list[int]
    numbers: Floats
    strange: list[dict[int, str]]
    texts: list[list[str]]
    reasons: dict[int, str]


class Decoder(Protocol):
    """Turns lines into columns."""

    columns: list[str]
    chosen: list[str]
    encoding: str

    def decode(self, lines: Sequence[Line]) -> Decoded:
        """Return the columns of lines, and what is wrong with those that are no rows."""


def begin(line: Line) -> str:
    """Return the beginning of a line as valid text."""
    start = line.beginning if isinstance(line, Overlong) else line
    return start[: 4 * RAW_LENGTH].decode("utf-8", "replace").rstrip("\r")[:RAW_LENGTH]


class CsvDecoder:
    """Lines whose cells stand under a header."""

    def __init__(self, dialect: Dialect, selection: Selection, name: str) -> None:
        self.columns = dialect.columns
        self.chosen = selection.choose(dialect.columns, name)
        self.dialect = dialect
        self.encoding = dialect.encoding
        self._numbers = [dialect.columns.index(column) for column in self.chosen]
        self._texts = [dialect.columns.index(column) for column in selection.texts]

    def decode(self, lines: Sequence[Line]) -> Decoded:
        """Return the columns of lines."""
        reasons: dict[int, str] = {}
        texts = decode_lines(lines, self.encoding, reasons)
        quick = None if reasons else self._decode_plain(texts)
        if quick is not None:
            return quick
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
            strange=[strange for _, strange in converted],
            texts=[[cell.strip() for cell in columns[j]] for j in self._texts],
            reasons=reasons,
        )

    def _decode_plain(self, texts: Sequence[str]) -> Decoded | None:
        """Decode lines of plain numbers with at most some other columns before and behind them."""
        delimiter, width = self.dialect.delimiter, len(self.columns)
        if not self._numbers or any(text.count(delimiter) != width - 1 or '"' in text for text in texts):
            return None
        before, behind = min(self._numbers), width - 1 - max(self._numbers)
        if any(before <= column < width - behind for column in self._texts):
            return None
        heads = [text.split(delimiter, before) for text in texts]
        tails = [head.pop().rsplit(delimiter, behind) for head in heads]
        numbers = parse_matrix([tail[0] for tail in tails], width - before - behind, delimiter)
        if numbers is None:
            return None
        inner = [column - before for column in self._numbers]
        pairs = list(zip(heads, tails, strict=True))
        return Decoded(
            good=list(range(len(texts))),
            numbers=numbers if inner == list(range(numbers.shape[1])) else numbers[:, inner],
            strange=[{} for _ in inner],
            texts=[
                [(head[j] if j < before else tail[j - width]).strip() for head, tail in pairs]
                for j in self._texts
            ],
            reasons={},
        )

    def _split(self, texts: Sequence[str], reasons: dict[int, str]) -> list[list[str]]:
        """Split lines into as many cells as there are columns, and note where there are not."""
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
    """Lines that are one JSON object each; a name that is not in it has no value."""

    encoding = "utf-8"

    def __init__(self, columns: list[str], selection: Selection, name: str) -> None:
        self.columns = columns
        # An object need not have all names, so only what the first one must tell is asked of it.
        self.chosen = (
            selection.choose(columns, name) if selection.numbers is None else list(selection.numbers)
        )
        self._wanted = frozenset(self.chosen)
        self._texts = list(selection.texts)

    def decode(self, lines: Sequence[Line]) -> Decoded:
        """Return the columns of lines."""
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
            strange=[strange for _, strange in converted],
            texts=[[_as_text(one.get(name)) for one in objects] for name in self._texts],
            reasons=reasons,
        )

    def _refuse(self, found: dict[str, Any]) -> str:
        """Say why an object is no row, if it is none."""
        if self._wanted.isdisjoint(found):
            return "it has none of the wanted columns."
        nested = [name for name in self._texts if isinstance(found.get(name), dict | list)]
        return f"column {nested[0]!r} holds more than one value." if nested else ""


def parse_object(text: str) -> dict[str, Any] | str:
    """Return the object in a line, or why it holds none."""
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return "it is not valid JSON."
    return found if isinstance(found, dict) else "it is not a JSON object."


def _as_text(value: Any) -> str:
    return "" if value is None else valid_text(value if isinstance(value, str) else json.dumps(value))


def stack(columns: Sequence[Floats], count: int) -> Floats:
    """Return columns as a matrix, also if there are none."""
    return np.column_stack(columns) if columns else np.empty((count, 0))


def decode_lines(lines: Sequence[Line], encoding: str, reasons: dict[int, str]) -> list[str]:
    """Return lines as text; those that are too long or not text are empty, and noted."""
    try:
        whole: bytes = b"\n".join((*lines, b""))  # type: ignore[arg-type]  # one that is too long raises
        return whole.decode(encoding).replace("\r\n", "\n").split("\n")[:-1]
    except (TypeError, UnicodeDecodeError):
        pass
    texts = []
    for at, line in enumerate(lines):
        text = ""
        if isinstance(line, Overlong):
            reasons[at] = f"it is {line.length} bytes long; a row may have {LONGEST_LINE}."
        else:
            try:
                text = line.decode(encoding).removesuffix("\r")
            except UnicodeDecodeError as error:
                written = "UTF-8" if encoding == "utf-8" else encoding
                reasons[at] = f"byte {error.start + 1} of it is not {written}."
        texts.append(text)
    return texts
