"""Request bodies with rows or labels: received within limits, then parsed and validated.

A body is counted while it arrives, before it is parsed. One invalid row refuses the whole batch and
nothing is stored, so a client can send a corrected batch without knowing how far the first one got.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import math
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from starlette.requests import ClientDisconnect, Request

from baryflow.alarms import Span
from baryflow.exceptions import InvalidInputError
from baryflow.service.binary import ARROW, NPY, read_arrow, read_npy
from baryflow.service.errors import RequestError, busy
from baryflow.streams import Label
from baryflow.streams.base import AlarmCommand
from baryflow.streams.numbers import valid_text
from baryflow.validation import LARGEST, Floats

JSON = "application/json"
NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
#: The header that holds the id of a batch.
ID_HEADER = "Idempotency-Key"
#: The pattern of batch ids: visible ASCII characters, which a header can hold.
BATCH_ID = r"[!-~]{1,128}"
#: The longest time of a row, in characters.
TIME_LENGTH = 64
#: How long, and how many bytes of, a body that is too long are read and discarded: clients read the
#: response only after they have sent everything.
_DRAIN_SECONDS, _DRAIN_BYTES = 3.0, 256 * 2**20
#: The most digits of a plausible Content-Length.
_DIGITS = 15
_NUMBERS = {float, int, type(None)}
_CLOSE = {"Connection": "close"}


@dataclass(frozen=True)
class Limits:
    """The limits of a service; requests beyond them are refused.

    Attributes
    ----------
    body : int
        Bytes of one request body.
    rows : int
        Rows of one request.
    targets : int
        Targets, in memory and on disk together.
    in_memory : int
        Targets in memory.
    buffered : int
        Bytes of all request bodies in memory.
    requests : int
        Batches in progress or queued, for all targets.
    waiting : int
        Batches in progress or queued, for one target.
    listeners : int
        Clients connected to live updates.
    seconds : float
        Time for the headers of a request to arrive, and for its body.
    snapshot_every : int
        Batches between two snapshots; at most this many are replayed after a crash.
    snapshot_seconds : float
        Longest time from a batch to the next snapshot.
    target_metrics : int
        Targets with metrics of their own in ``/metrics``, the first by name.
    """

    body: int = 8 * 2**20
    rows: int = 4096
    targets: int = 10_000
    in_memory: int = 256
    buffered: int = 64 * 2**20
    requests: int = 64
    waiting: int = 16
    listeners: int = 64
    seconds: float = 30.0
    snapshot_every: int = 1024
    snapshot_seconds: float = 60.0
    target_metrics: int = 0


class _Plain(msgspec.Struct, forbid_unknown_fields=True):
    """A body of rows that are plain lists without gaps."""

    rows: list[list[float]]
    batch_id: str | None = None


class _Rows(msgspec.Struct, forbid_unknown_fields=True):
    """A body of rows in any form."""

    rows: list[Any]
    columns: list[str] | None = None
    batch_id: str | None = None


def _as(**schema: Any) -> Meta:
    """Describe what is checked after parsing: for a better error, or because 3.0 is whole in JSON."""
    return Meta(extra_json_schema=schema)


def _about(text: str) -> Meta:
    return Meta(description=text)


Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Values = list[Number | None]
Name = Annotated[str, _as(pattern=r"\S")] | Number
Position = Annotated[float, _as(multipleOf=1, minimum=1, maximum=10**_DIGITS - 1)]
Time = Annotated[str, Meta(max_length=TIME_LENGTH), _as(minLength=1)]
Text = Annotated[str, Meta(max_length=1000)]
Id = Annotated[str, _as(pattern=f"^{BATCH_ID}$")]


class GivenLabel(msgspec.Struct, forbid_unknown_fields=True):
    """The label of a row, which is given by its position, its time or its values."""

    label: Name
    position: Position | None = None
    time: Time | None = None
    values: Annotated[Values, _about("The row itself; features of raw signals.")] | None = None


class Labels(msgspec.Struct, forbid_unknown_fields=True):
    """Labels of rows; those of rows chosen at random count for the certificate with `certify`."""

    labels: list[GivenLabel]
    certify: bool = False
    id: Id | None = None


class Baseline(msgspec.Struct, forbid_unknown_fields=True):
    """Rows known to be of one class: rows themselves, positions, or all from one time to another."""

    label: Name | None = None
    rows: list[Values] | None = None
    positions: list[Position] | None = None
    begin: Time | None = msgspec.field(default=None, name="from")
    until: Time | None = None
    id: Id | None = None


class Command(msgspec.Struct, forbid_unknown_fields=True):
    """A command about the alarm of a class, or with * about all; `for` is how long to shelve it."""

    alarm: str
    number: Annotated[float, _as(multipleOf=1, minimum=0, maximum=10**_DIGITS - 1)] | None = None
    duration: (
        Annotated[str, _as(pattern=r"^[1-9][0-9]{0,5} ?(rows|s|min|h|d)$")]
        | Annotated[float, _as(multipleOf=1, minimum=0, maximum=10**_DIGITS - 1)]
        | None
    ) = msgspec.field(default=None, name="for")
    by: Text | None = None
    comment: Text | None = None


_PLAIN = msgspec.json.Decoder(_Plain)
_ANY, _ROWS = msgspec.json.Decoder(), msgspec.json.Decoder(_Rows)
_LABELS, _BASELINE = msgspec.json.Decoder(Labels), msgspec.json.Decoder(Baseline)
_COMMAND = msgspec.json.Decoder(Command)
#: Errors of older versions of msgspec are no ValueErrors.
_MALFORMED = (ValueError, msgspec.MsgspecError)


@dataclass(frozen=True, eq=False)
class Posted:
    """The rows of a request, the time of each (that of arrival if it has none) and the batch id.

    ``digest`` identifies rows and times as they were sent, in whatever format.
    """

    rows: Floats
    times: list[str]
    batch_id: str | None
    digest: str = ""


@dataclass(frozen=True, eq=False)
class PostedLabels:
    """The labels of a request, its id, and a digest of the labels."""

    labels: list[Label]
    id: str | None
    digest: str = ""


class Inbox:
    """Receives request bodies; ``held`` is the number of bytes in memory at present."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.held = limits, 0

    @contextlib.asynccontextmanager
    async def receive(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the body of a request, and count its bytes until the block ends."""
        chunks: list[bytes] = []
        size, stream = 0, request.stream()
        try:
            declared = request.headers.get("content-length", "0")
            is_number = declared.isdecimal() and len(declared) <= _DIGITS
            too_long = not is_number or int(declared) > self.limits.body
            try:
                async with asyncio.timeout(self.limits.seconds):
                    while not too_long and (chunk := await anext(stream, None)) is not None:
                        if size + len(chunk) > self.limits.body:
                            too_long = True
                            break
                        if self.held + len(chunk) > self.limits.buffered:
                            raise busy("too many bytes are arriving at once: retry more slowly", 2)
                        chunks.append(chunk)
                        size += len(chunk)
                        self.held += len(chunk)
            except TimeoutError as error:
                raise RequestError(
                    408, f"the body did not arrive within {self.limits.seconds:g} s", _CLOSE
                ) from error
            except ClientDisconnect as error:  # no client is left to read this
                raise RequestError(
                    400, "the client disconnected before the body ended", _CLOSE
                ) from error
            if too_long:
                chunks.clear()
                await _drain(stream)
                raise RequestError(
                    413,
                    f"the body is longer than {self.limits.body:,} bytes: split the rows into several "
                    "requests",
                    _CLOSE,
                )
            yield b"".join(chunks)
        finally:
            self.held -= size


async def _drain(stream: AsyncIterator[bytes]) -> None:
    """Read and discard the rest of a body, within bounds."""
    size = 0
    with contextlib.suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for chunk in stream:
                size += len(chunk)
                if size > _DRAIN_BYTES:
                    break


class Parser:
    """Parses bodies for a model with ``n_columns`` columns, named ``columns`` if they have names.

    Labels may bring rows of ``n_features`` features, which are the columns unless rows are raw signals.
    """

    def __init__(
        self,
        n_columns: int,
        columns: list[str] | None,
        max_rows: int,
        n_features: int | None = None,
    ) -> None:
        self.n_columns, self.columns, self.max_rows = n_columns, columns, max_rows
        self.n_features = n_columns if n_features is None else n_features
        self._index = {name: j for j, name in enumerate(columns or ())}
        # A value of two bytes becomes an object of many. Bodies with more values than the allowed rows
        # or labels can have are refused before they are parsed.
        in_names = sum(map(_count_values, map(str.encode, columns or ())))
        width = max(n_columns, self.n_features)
        self.max_values = 200 + (max_rows + 1) * (8 + TIME_LENGTH + width + in_names)

    def parse(self, body: bytes, kind: str, header_id: str | None) -> Posted:
        """Return the rows of a body. A batch id in the body takes precedence over that of the header."""
        if kind in (NPY, ARROW):
            rows, times = self._read_binary(body, kind)
            batch_id = _check_id("batch_id", None, header_id)
        else:
            rows, times, batch_id = self._read_json(body, kind, header_id)
        digest = _digest(np.where(np.isnan(rows), np.nan, rows).tobytes(), times)  # one kind of NaN
        for i, j in np.argwhere(np.abs(rows) > LARGEST)[:1].tolist():
            raise _invalid(i, f"{self._name(j)} is {rows[i, j]:g}, beyond ±{LARGEST:g}")
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return Posted(rows, [time or now for time in times], batch_id, digest)

    def _read_json(
        self, body: bytes, kind: str, header_id: str | None
    ) -> tuple[Floats, list[str], str | None]:
        """Return the rows of a JSON or NDJSON body, their times, and the batch id."""
        self._check_size(body, "rows")
        columns = None
        if kind in NDJSON:
            items, batch_id = self._decode_lines(body), None
        else:
            with contextlib.suppress(*_MALFORMED):  # then something else than plain rows, or invalid
                plain = _PLAIN.decode(body)
                self._check_number(len(plain.rows))
                if set(map(len, plain.rows)) == {self.n_columns}:
                    batch_id = _check_id("batch_id", plain.batch_id, header_id)
                    return np.array(plain.rows), [""] * len(plain.rows), batch_id
            content: _Rows = _decode(body, "the body", _ROWS)
            items, batch_id, columns = content.rows, content.batch_id, content.columns
        batch_id = _check_id("batch_id", batch_id, header_id)
        self._check_number(len(items))
        return *self._rows(items, self._order(columns)), batch_id

    def _read_binary(self, body: bytes, kind: str) -> tuple[Floats, list[str]]:
        """Return the rows of an NPY body or an Arrow stream, and their times."""
        if kind == NPY:
            rows = read_npy(body, self._check_shape)
            return rows, [""] * len(rows)
        rows, times = read_arrow(body, "time" not in self._index, self._order, self._check_shape)
        for i, time in enumerate(times):
            _check_time(time, i)
        return rows, times

    def _decode_lines(self, body: bytes) -> list[Any]:
        """Return the values of NDJSON lines, or one more than the allowed rows."""
        lines = ((number, line) for number, line in enumerate(io.BytesIO(body), 1) if line.strip())
        some = islice(lines, self.max_rows + 1)
        return [_decode(line, f"line {number}") for number, line in some]

    def _check_size(self, body: bytes, what: str) -> None:
        """Refuse a body with more values than the allowed rows or labels can have."""
        if _count_values(body) > self.max_values:
            raise RequestError(
                413,
                f"more than {self.max_rows:,} {what}, or far too long ones: split them into "
                "several requests",
            )

    def _check_shape(self, n: int, n_columns: int) -> None:
        """Refuse a table of another shape than the rows may have."""
        self._check_number(n)
        if n_columns != self.n_columns:
            raise RequestError(422, f"expected {self.n_columns} columns, got {n_columns:,}")

    def _check_number(self, n: int) -> None:
        """Refuse a batch without rows, or with too many."""
        if not n:
            raise RequestError(422, "the batch has no rows: send at least one")
        if n > self.max_rows:
            raise RequestError(
                413,
                f"expected at most {self.max_rows:,} rows, got {n:,}: split them into several requests",
            )

    def parse_labels(self, body: bytes, header_id: str | None) -> PostedLabels:
        """Return the labels of a body. An id in the body takes precedence over that of the header."""
        self._check_size(body, "labels")
        content: Labels = _decode(body, "the body", _LABELS)
        if not 0 < len(content.labels) <= self.max_rows:
            raise RequestError(
                413 if content.labels else 422,
                f"expected 1 to {self.max_rows:,} labels, got {len(content.labels):,}",
            )
        labels = [self._label(one, i, content.certify) for i, one in enumerate(content.labels)]
        given = [(one.label, one.position, one.time, one.values) for one in labels]
        digest = _digest(b"", [content.certify, given])
        return PostedLabels(labels, _check_id("id", content.id, header_id), digest)

    def parse_baseline(self, body: bytes, header_id: str | None, normal: Any) -> PostedLabels:
        """Return the baseline in a body as labels; without a label, its class is `normal`."""
        self._check_size(body, "rows")
        content: Baseline = _decode(body, "the body", _BASELINE)
        label = normal if content.label is None else content.label
        if label is None:
            raise RequestError(422, "name the class as label: the model remembers no normal class")
        rows, positions, begin = content.rows, content.positions, content.begin
        if [rows, positions, begin].count(None) != 2 or (begin is None) != (content.until is None):
            raise RequestError(422, "give either rows, positions, or from and until")
        if rows is not None:
            items = [GivenLabel(label, values=row) for row in rows]
        elif positions is not None:
            items = [GivenLabel(label, position) for position in positions]
        else:
            items = [GivenLabel(label, time=begin)]
        if not 0 < len(items) <= self.max_rows:
            raise RequestError(422, f"expected 1 to {self.max_rows:,} rows, got {len(items):,}")
        labels = [self._label(item, i, False) for i, item in enumerate(items)]
        labels = [replace(one, until=content.until or "", baseline=True) for one in labels]
        digest = _digest(b"baseline", [(o.label, o.position, o.time, o.until, o.values) for o in labels])
        return PostedLabels(labels, _check_id("id", content.id, header_id), digest)

    def parse_command(self, body: bytes, action: str) -> AlarmCommand:
        """Return the command about an alarm in a body."""
        hint = '; expected {"alarm": "class"}, and number, for, by and comment if needed'
        content: Command = _decode(body, "the body", _COMMAND, hint)
        number, duration = content.number, content.duration
        if isinstance(duration, float):
            duration = int(duration) if duration.is_integer() else str(duration)
        if duration is not None:
            try:
                Span.read(duration)
            except InvalidInputError as error:
                raise RequestError(422, f"for: {error}") from None
        if number is not None and not (number.is_integer() and 0 <= number < 10**_DIGITS):
            raise RequestError(422, f"number must be a whole number, got {number:g}")
        texts = valid_text(content.by or ""), valid_text(content.comment or "")
        return AlarmCommand(
            action, content.alarm, None if number is None else int(number), duration, *texts
        )

    def _label(self, given: GivenLabel, i: int, certify: bool) -> Label:
        label, position, values = given.label, given.position, given.values
        if isinstance(label, str) and not label.strip():
            raise _invalid(i, "it is empty: name a class", "label")
        if isinstance(label, float) and label.is_integer() and abs(label) < 10**_DIGITS:
            label = int(label)
        if position is not None and not (position.is_integer() and 0 < position < 10**_DIGITS):
            raise _invalid(i, f"position must be a whole number from 1, got {position:g}", "label")
        if values is not None and len(values) != self.n_features:
            raise _invalid(i, f"expected {self.n_features} numbers, got {len(values)}", "label")
        if position is None and not given.time and values is None:
            raise _invalid(i, "give the position, the time or the values of its row", "label")
        return Label(
            label,
            None if position is None else int(position),
            given.time or "",
            values=None if values is None else [math.nan if one is None else one for one in values],
            certify=certify,
        )

    def _order(self, columns: list[str] | None) -> list[int] | None:
        """Return the position of each of the model's columns in rows whose columns have these names.

        Columns that differ from the model's are a conflict (409), not invalid rows (422): the client
        expects another model, so every row it sends would be refused.
        """
        if columns is None:
            return None
        if len(columns) != self.n_columns and self.columns is None:
            raise RequestError(409, f"the model has {self.n_columns} columns, got {len(columns)} names")
        if self.columns is None or columns == self.columns:
            return None
        given = set(columns)
        missing = [name for name in self.columns if name not in given]
        unknown = [name for name in columns if name not in self._index]
        for problem, names in (("missing", missing), ("unknown", unknown)):
            if names:
                more = f" and {len(names) - 5} more" if len(names) > 5 else ""
                listed = ", ".join(map(_shown, names[:5]))
                raise RequestError(409, f"{problem} columns: {listed}{more}; nothing was stored")
        if len(columns) != self.n_columns:
            twice = next(name for name in columns if columns.count(name) > 1)
            raise RequestError(409, f"column {_shown(twice)} is named twice; nothing was stored")
        return [columns.index(name) for name in self.columns]

    def _rows(self, items: list[Any], order: list[int] | None = None) -> tuple[Floats, list[str]]:
        rows = np.empty((len(items), self.n_columns))
        times = [""] * len(items)
        for i, item in enumerate(items):
            cells, named = item, False
            if isinstance(item, dict):
                cells, times[i], named = self._cells(item, i)
            if not isinstance(cells, list):
                raise _invalid(i, f"expected a list or an object, got {_shown(item)}")
            if len(cells) != self.n_columns:
                raise _invalid(i, f"expected {self.n_columns} numbers, got {len(cells)}")
            if order is not None and not named:
                cells = [cells[j] for j in order]
            if not set(map(type, cells)) <= _NUMBERS:
                j = next(j for j, cell in enumerate(cells) if type(cell) not in _NUMBERS)
                raise _invalid(i, f"{self._name(j)} is {_shown(cells[j])}, not a number or null")
            try:
                rows[i] = cells
            except OverflowError:  # an integer of hundreds of digits
                raise _invalid(i, f"a number is beyond ±{LARGEST:g}") from None
        return rows, times

    def _cells(self, item: dict[str, Any], i: int) -> tuple[Any, str, bool]:
        """Return the cells of a row that is an object, its time, and whether the cells are in order."""
        index = self._index
        time = item.get("time", "") if "time" not in index else ""
        _check_time(time, i)
        if "values" in item and "values" not in index and item.keys() <= {"values", "time"}:
            return item["values"], time, False
        if self.columns is None:
            raise _invalid(i, 'the model has no column names: send lists, or {"values": […]}')
        unknown = [name for name in item if name not in index and name != "time"]
        if unknown:
            names = ", ".join(self.columns[:5]) + (", …" if self.n_columns > 5 else "")
            raise _invalid(i, f"unknown column {_shown(unknown[0])}; the columns are {names}")
        return [item.get(name) for name in self.columns], time, True

    def _name(self, j: int) -> str:
        return f"column {j + 1}" if self.columns is None else f"column {self.columns[j]!r}"


def content_type(request: Request, *, rows: bool = True) -> str:
    """Return the content type of a request; refuse types other than JSON, and those of `rows`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON and not (rows and kind in (*NDJSON, NPY, ARROW)):
        expected = f"{JSON}, {NDJSON[0]}, {NPY} or {ARROW}" if rows else JSON
        raise RequestError(415, f"expected Content-Type {expected}, got {_shown(kind)}")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError(415, "Content-Encoding is not supported: send the body uncompressed")
    return kind


def _count_values(text: bytes) -> int:
    """Return how many values a JSON text has, at most; those in strings are counted, too."""
    return sum(map(text.count, (b"[", b"{", b",")))


def _digest(content: bytes, rest: Any) -> str:
    return hashlib.blake2b(content + msgspec.json.encode(rest), digest_size=16).hexdigest()


def _decode(text: bytes, what: str, decoder: msgspec.json.Decoder[Any] = _ANY, hint: str = "") -> Any:
    try:
        return decoder.decode(text)
    except RecursionError:
        raise RequestError(400, f"{what} is nested too deeply") from None
    except msgspec.ValidationError as error:  # JSON, but of another type, or with too large a number
        raise RequestError(422, f"{what}: {error}{hint}; nothing was stored") from error
    except _MALFORMED as error:  # JSON or UTF-8
        hint = "; send null for a missing value" if b"NaN" in text else ""
        raise RequestError(400, f"{what} is not JSON: {str(error)[:120]}{hint}") from error


def _check_id(name: str, given: str | None, header: str | None) -> str | None:
    """Return the id of a batch: that of the body, else that of the header."""
    for one in (given, header):
        if one is not None and re.fullmatch(BATCH_ID, one) is None:
            raise RequestError(422, f"{name} must match {BATCH_ID}, got {_shown(one)}")
    return header if given is None else given


def _check_time(time: Any, i: int) -> None:
    if not isinstance(time, str) or len(time) > TIME_LENGTH or valid_text(time) != time:
        raise _invalid(i, f"time is {_shown(time)}: expected text of at most {TIME_LENGTH} characters")


def _invalid(i: int, problem: str, what: str = "row") -> RequestError:
    return RequestError(422, f"{what} {i + 1}: {problem}; nothing was stored")


def _shown(value: Any) -> str:
    """Return a short text for a value of any size."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) and value.bit_length() > 200:
        return "a very long number"
    text = ascii(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
