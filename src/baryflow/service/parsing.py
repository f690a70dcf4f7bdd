"""Rows in the bodies of requests: received within limits, then taken apart.

A body is counted while it comes in, before anybody makes sense of it. One row that cannot be used
refuses all of them and nothing is taken, so that whoever sends a batch again need not know how far it
got.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from starlette.requests import ClientDisconnect, Request

from baryflow.service.errors import RequestError, busy
from baryflow.service.limits import BATCH_ID, TIME_LENGTH, Limits, is_batch_id
from baryflow.streams.numbers import valid_text
from baryflow.validation import LARGEST, Floats

JSON = "application/json"
NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
#: The header that holds the id of a batch.
ID_HEADER = "Idempotency-Key"
#: Seconds and bytes for which the rest of a body that is too long is read: only who has sent it listens.
_LINGER_SECONDS, _LINGER_BYTES = 3.0, 256 * 2**20
#: Digits of a length that can be meant.
_DIGITS = 15
_NUMBERS = {float, int, type(None)}
_CLOSE = {"Connection": "close"}


@dataclass(frozen=True, eq=False)
class Posted:
    """What a request brought.

    Attributes
    ----------
    rows : array of shape (n, d)
    times : list of str
        One for each row; the time at which it came, if it does not say.
    batch_id : str or None
    """

    rows: Floats
    times: list[str]
    batch_id: str | None


class Inbox:
    """Receives bodies, all of them together within limits.

    Parameters
    ----------
    limits : Limits

    Attributes
    ----------
    held : int
        Bytes in memory at present.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits, self.held = limits, 0

    @contextlib.asynccontextmanager
    async def receive(self, request: Request) -> AsyncIterator[bytes]:
        """Hand over the body of a request, and count it until it is done with.

        Parameters
        ----------
        request : Request

        Yields
        ------
        bytes

        Raises
        ------
        Refusal
            If it is too long, too slow, or too much for now.
        """
        chunks: list[bytes] = []
        taken, stream = 0, request.stream()
        try:
            declared = request.headers.get("content-length", "0")
            is_number = declared.isdecimal() and len(declared) <= _DIGITS
            is_long = not is_number or int(declared) > self.limits.body
            try:
                async with asyncio.timeout(self.limits.seconds):
                    while not is_long and (chunk := await anext(stream, None)) is not None:
                        if taken + len(chunk) > self.limits.body:
                            is_long = True
                            break
                        if self.held + len(chunk) > self.limits.buffered:
                            raise busy("too much is coming in at once: send it more slowly", 2)
                        chunks.append(chunk)
                        taken += len(chunk)
                        self.held += len(chunk)
            except TimeoutError as error:
                raise RequestError(
                    408, f"the body did not arrive within {self.limits.seconds:g} s", _CLOSE
                ) from error
            except ClientDisconnect as error:  # nobody will read this
                raise RequestError(400, "the body ended before its end", _CLOSE) from error
            if is_long:
                chunks.clear()
                await _linger(stream)
                raise RequestError(
                    413,
                    f"a request may have {self.limits.body:,} bytes: send the rows in several",
                    _CLOSE,
                )
            yield b"".join(chunks)
        finally:
            self.held -= taken


async def _linger(stream: AsyncIterator[bytes]) -> None:
    """Read on for a while, keeping nothing: who is sending does not listen before the end."""
    passed = 0
    with contextlib.suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(_LINGER_SECONDS):
            async for chunk in stream:
                passed += len(chunk)
                if passed > _LINGER_BYTES:
                    break


class Parser:
    """Takes bodies apart.

    Parameters
    ----------
    n_columns : int
    columns : list of str or None
        Their names; without them rows are lists of numbers.
    most : int
        Rows of a request.
    """

    def __init__(self, n_columns: int, columns: list[str] | None, most: int) -> None:
        self.n_columns, self.columns, self.most = n_columns, columns, most
        self._place = {name: j for j, name in enumerate(columns or ())}
        # A few bytes of brackets become many of objects: more than rows can have are not even read.
        in_names = sum(map(_count_brackets, map(str.encode, columns or ())))
        self._brackets = 200 + most * (2 + TIME_LENGTH + in_names)

    def parse(self, body: bytes, kind: str, header_id: str | None) -> Posted:
        """Return the rows of a body.

        Parameters
        ----------
        body : bytes
        kind : str
            Type of its content.
        header_id : str or None
            The id of the batch, if a header tells it and the body does not.

        Returns
        -------
        Posted

        Raises
        ------
        Refusal
            If it is not JSON, or a row cannot be used.
        """
        if _count_brackets(body) > self._brackets:
            raise RequestError(413, f"a request may have {self.most:,} rows: send several")
        columns = None
        if kind in NDJSON:
            items, batch_id = _lines(body), None
        else:
            items, batch_id, columns = _fields(_load(body, "the body"))
        if not all(one is None or is_batch_id(one) for one in (batch_id, header_id)):
            raise RequestError(422, f"a batch_id is 1 to 128 characters from ! to ~ ({BATCH_ID})")
        if batch_id is None:
            batch_id = header_id
        if not items:
            raise RequestError(422, "there is no row: send at least one")
        if len(items) > self.most:
            raise RequestError(
                413, f"a request may have {self.most:,} rows, got {len(items):,}: send several"
            )
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        rows, times = self._rows(items, self._order(columns))
        return Posted(rows, [time or now for time in times], batch_id)

    def _order(self, columns: list[str] | None) -> list[int] | None:
        """Return where each column of the model stands in rows whose columns have these names.

        Columns that are not those of the model are a conflict rather than bad rows: the client
        expects another model, so every row of it would be refused.
        """
        if columns is None:
            return None
        if len(columns) != self.n_columns and self.columns is None:
            raise RequestError(409, f"the model has {self.n_columns} columns, got {len(columns)} names")
        if self.columns is None or columns == self.columns:
            return None
        given = set(columns)
        missing = [name for name in self.columns if name not in given]
        unknown = [name for name in columns if name not in self._place]
        for words, names in (("lack", missing), ("have unknown", unknown)):
            if names:
                more = f" and {len(names) - 5} more" if len(names) > 5 else ""
                listed = ", ".join(map(_shown, names[:5]))
                raise RequestError(409, f"the rows {words} columns: {listed}{more}; nothing was taken")
        if len(columns) != self.n_columns:
            twice = next(name for name in columns if columns.count(name) > 1)
            raise RequestError(409, f"the column {_shown(twice)} is named twice; nothing was taken")
        return [columns.index(name) for name in self.columns]

    def _rows(self, items: list[Any], order: list[int] | None = None) -> tuple[Floats, list[str]]:
        rows = np.empty((len(items), self.n_columns))
        times = [""] * len(items)
        for i, item in enumerate(items):
            cells, named = item, False
            if isinstance(item, dict):
                cells, times[i], named = self._cells(item, i)
            if not isinstance(cells, list):
                raise _unusable(i, f"expected a list or an object, got {_shown(item)}")
            if len(cells) != self.n_columns:
                raise _unusable(i, f"expected {self.n_columns} numbers, got {len(cells)}")
            if order is not None and not named:
                cells = [cells[j] for j in order]
            if not set(map(type, cells)) <= _NUMBERS:
                j = next(j for j, cell in enumerate(cells) if type(cell) not in _NUMBERS)
                raise _unusable(i, f"{self._name(j)} is {_shown(cells[j])}, not a number or null")
            try:
                rows[i] = cells
            except OverflowError:  # a whole number of hundreds of digits
                raise _unusable(i, f"a number is beyond ±{LARGEST:g}") from None
        for i, j in np.argwhere(np.abs(rows) > LARGEST)[:1].tolist():
            raise _unusable(i, f"{self._name(j)} is {rows[i, j]:g}: numbers end at ±{LARGEST:g}")
        return rows, times

    def _cells(self, item: dict[str, Any], i: int) -> tuple[Any, str, bool]:
        """Return the cells of a row that is an object, its time, and whether cells go by name."""
        place = self._place
        time = item.get("time", "") if "time" not in place else ""
        if not isinstance(time, str) or not _is_time(time):
            words = f"its time is {_shown(time)}: expected text of {TIME_LENGTH} characters at most"
            raise _unusable(i, words)
        if "values" in item and "values" not in place and item.keys() <= {"values", "time"}:
            return item["values"], time, False
        if self.columns is None:
            raise _unusable(i, 'the model knows no names of columns: send lists, or {"values": […]}')
        unknown = [name for name in item if name not in place and name != "time"]
        if unknown:
            names = ", ".join(self.columns[:5]) + (", …" if self.n_columns > 5 else "")
            raise _unusable(i, f"there is no column {_shown(unknown[0])}; columns are {names}")
        return [item.get(name) for name in self.columns], time, True

    def _name(self, j: int) -> str:
        return f"column {j + 1}" if self.columns is None else f"column {self.columns[j]!r}"


def kind_of(request: Request) -> str:
    """Return the type of what a request brings.

    Parameters
    ----------
    request : Request

    Returns
    -------
    str

    Raises
    ------
    Refusal
        If rows cannot be read from it.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON and kind not in NDJSON:
        raise RequestError(415, f"send rows as {JSON} or {NDJSON[0]} (header Content-Type)")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError(415, "send the body as it is, without Content-Encoding")
    return kind


def _count_brackets(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


def _lines(body: bytes) -> list[Any]:
    lines = body.splitlines() if b"\r" in body else body.split(b"\n")
    return [_load(line, f"line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def _fields(content: Any) -> tuple[list[Any], str | None, list[str] | None]:
    if not isinstance(content, dict):
        raise RequestError(422, f'expected an object {{"rows": […]}}, got {_shown(content)}')
    unknown = content.keys() - {"rows", "batch_id", "columns"}
    if unknown:
        raise RequestError(
            422, f"{_shown(min(unknown))} is not known here: there are rows, columns and batch_id"
        )
    rows, batch_id, columns = (content.get(name) for name in ("rows", "batch_id", "columns"))
    if not isinstance(rows, list):
        raise RequestError(422, f"rows must be a list of rows, got {_shown(rows)}")
    if batch_id is not None and not isinstance(batch_id, str):
        raise RequestError(422, f"batch_id must be text, got {_shown(batch_id)}")
    if columns is not None and not (
        isinstance(columns, list) and all(isinstance(name, str) for name in columns)
    ):
        raise RequestError(422, f"columns must be a list of names, got {_shown(columns)}")
    return rows, batch_id, columns


def _is_time(text: str) -> bool:
    return len(text) <= TIME_LENGTH and valid_text(text) == text


def _load(body: bytes, what: str) -> Any:
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise RequestError(400, f"{what} is nested too deeply") from None
    except (ValueError, OverflowError) as error:
        raise RequestError(400, f"{what} is not JSON: {str(error)[:120]}") from error


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON; send null where there is no value")


def _unusable(i: int, words: str) -> RequestError:
    return RequestError(422, f"row {i + 1}: {words}; nothing was taken")


def _shown(value: Any) -> str:
    """Return the beginning of a value, short whatever it is."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) and value.bit_length() > 200:
        return "a very long number"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = ascii(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
