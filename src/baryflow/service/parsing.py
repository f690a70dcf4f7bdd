"""Bodies of requests: received within limits, then parsed and validated; JSON of responses.

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
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Self

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import ClientDisconnect, Request

from baryflow.alarms import Span
from baryflow.exceptions import InvalidInputError
from baryflow.service.binary import ARROW, NPY, read_arrow, read_npy
from baryflow.service.errors import RequestError, busy
from baryflow.streams import Label
from baryflow.streams.base import AlarmCommand
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


Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Values = list[Number | None]
Name = Annotated[str, Meta(pattern=r"\S")] | Number
#: Numbers that are whole, but may be written as 3.0.
Count = Annotated[float, Meta(ge=0, le=10**_DIGITS - 1, multiple_of=1)]
Position = Annotated[float, Meta(ge=1, le=10**_DIGITS - 1, multiple_of=1)]
Time = Annotated[str, Meta(max_length=TIME_LENGTH, min_length=1)]
Text = Annotated[str, Meta(max_length=1000)]
#: A pattern of msgspec would also match before a line break at the end.
Id = Annotated[str, Meta(extra_json_schema={"pattern": f"^{BATCH_ID}$"})]
Duration = Annotated[str, Meta(extra_json_schema={"pattern": r"^[1-9][0-9]{0,5} ?(rows|s|min|h|d)$"})]


class GivenLabel(msgspec.Struct, forbid_unknown_fields=True):
    """The label of a row, which is given by its position, its time or its values."""

    label: Name
    position: Position | None = None
    time: Time | None = None
    values: Annotated[Values, Meta(description="The row itself; features of raw signals.")] | None = None


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
    number: Count | None = None
    duration: Duration | Count | None = msgspec.field(default=None, name="for")
    by: Text | None = None
    comment: Text | None = None


_LABELS, _BASELINE = msgspec.json.Decoder(Labels), msgspec.json.Decoder(Baseline)
_COMMAND = msgspec.json.Decoder(Command)
#: Errors of older versions of msgspec are no ValueErrors.
_MALFORMED = (ValueError, msgspec.MsgspecError)
#: What msgspec says of a place in a body: the row or label, the column, the field.
_PLACE = re.compile(r"(.*) - at `\$(?:\.(rows|labels))?\[(\d+)\](?:\.values)?(?:\[(\d+)\])?\.?(.*)`")


@dataclass(frozen=True, eq=False)
class Posted:
    """The rows of a request, the time of each (that of arrival if it has none) and the batch id.

    ``digest`` identifies rows and times as they were sent, in whatever format.
    """

    rows: Floats
    times: list[str]
    id: str | None
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
        row, rows = _row_types(columns or [])
        self._row, self._rows = msgspec.json.Decoder(row), msgspec.json.Decoder(rows)
        # A value of two bytes becomes an object of many. Bodies with more values than the allowed rows
        # or labels can have are refused before they are parsed.
        in_names = sum(map(_count_values, map(str.encode, columns or ())))
        width = max(n_columns, self.n_features)
        self.max_values = 200 + (max_rows + 1) * (8 + TIME_LENGTH + width + in_names)

    @classmethod
    def of_model(cls, base: Any, max_rows: int) -> Self:
        """Return the parser of bodies for a fitted model."""
        names = getattr(base, "feature_names_in_", None)
        columns = None if names is None else [str(name) for name in names]
        n_features = int(getattr(base, "model", base).n_features_in_)
        return cls(n_features if columns is None else len(columns), columns, max_rows, n_features)

    # -- rows ------------------------------------------------------------------------------------

    def parse(self, body: bytes, kind: str, header_id: str | None) -> Posted:
        """Return the rows of a body. A batch id in the body takes precedence over that of the header."""
        batch_id = None
        if kind == NPY:
            rows = read_npy(body, self._check_shape)
            times = [""] * len(rows)
        elif kind == ARROW:
            has_time = "time" not in (self.columns or ())
            rows, times = read_arrow(body, has_time, self._order, self._check_shape)
        else:
            self._check_size(body, "rows")
            if kind in NDJSON:
                self._check_number(sum(bool(line.strip()) for line in io.BytesIO(body)))
                items, columns = self._decode(self._row.decode_lines, body), None
            else:
                content = self._decode(self._rows.decode, body)
                items, columns, batch_id = content.rows, content.columns, content.batch_id
                self._check_number(len(items))
            rows, times = self._read_rows(items, self._order(columns))
        batch_id = _check_id("batch_id", batch_id, header_id)
        digest = _digest(np.where(np.isnan(rows), np.nan, rows).tobytes(), times)  # one kind of NaN
        for i, j in np.argwhere(np.abs(rows) > LARGEST)[:1].tolist():
            raise _invalid(i, f"{self._name(j)} is {rows[i, j]:g}, beyond ±{LARGEST:g}")
        for i, time in enumerate(times):
            if len(time) > TIME_LENGTH:
                raise _invalid(i, f"time is {_shown(time)}: expected at most {TIME_LENGTH} characters")
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return Posted(rows, [time or now for time in times], batch_id, digest)

    def _read_rows(self, items: list[Any], order: list[int] | None) -> tuple[Floats, list[str]]:
        """Return rows that are lists or objects as an array, and their times."""
        rows = []
        for i, item in enumerate(items):
            cells = item if isinstance(item, list) else getattr(item, "values", UNSET)
            named = () if cells is item else msgspec.structs.astuple(item)[: len(self.columns or ())]
            if cells is UNSET:
                if self.columns is None:
                    raise _invalid(i, 'the model has no column names: send lists, or {"values": […]}')
                rows.append([None if cell is UNSET else cell for cell in named])
                continue
            if any(cell is not UNSET for cell in named):
                raise _invalid(i, "it has both values and columns: send one of them")
            if len(cells) != self.n_columns:
                raise _invalid(i, f"expected {self.n_columns} numbers, got {len(cells)}")
            rows.append(cells if order is None else [cells[j] for j in order])
        times = [getattr(item, "time", "") for item in items]
        return np.array(rows, dtype=np.float64), times  # None becomes NaN

    # -- labels and commands ---------------------------------------------------------------------

    def parse_labels(self, body: bytes, header_id: str | None) -> PostedLabels:
        """Return the labels of a body. An id in the body takes precedence over that of the header."""
        self._check_size(body, "labels")
        content: Labels = self._decode(_LABELS.decode, body)
        self._check_number(len(content.labels), "labels")
        labels = [self._label(one, i, content.certify) for i, one in enumerate(content.labels)]
        given = [(one.label, one.position, one.time, one.values) for one in labels]
        digest = _digest(b"", [content.certify, given])
        return PostedLabels(labels, _check_id("id", content.id, header_id), digest)

    def parse_baseline(self, body: bytes, header_id: str | None, normal: Any) -> PostedLabels:
        """Return the baseline in a body as labels; without a label, its class is `normal`."""
        self._check_size(body, "rows")
        content: Baseline = self._decode(_BASELINE.decode, body)
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
        self._check_number(len(items))
        labels = [self._label(item, i, False) for i, item in enumerate(items)]
        labels = [replace(one, until=content.until or "", baseline=True) for one in labels]
        digest = _digest(b"baseline", [(o.label, o.position, o.time, o.until, o.values) for o in labels])
        return PostedLabels(labels, _check_id("id", content.id, header_id), digest)

    def parse_command(self, body: bytes, action: str) -> AlarmCommand:
        """Return the command about an alarm in a body."""
        hint = '; expected {"alarm": "class"}, and number, for, by and comment if needed'
        content: Command = self._decode(_COMMAND.decode, body, hint)
        duration = int(content.duration) if isinstance(content.duration, float) else content.duration
        if duration is not None:
            try:
                Span.read(duration)
            except InvalidInputError as error:
                raise RequestError(422, f"for: {error}") from None
        number = None if content.number is None else int(content.number)
        return AlarmCommand(
            action, content.alarm, number, duration, content.by or "", content.comment or ""
        )

    def _label(self, given: GivenLabel, i: int, certify: bool) -> Label:
        label, position, values = given.label, given.position, given.values
        if isinstance(label, float) and label.is_integer() and abs(label) < 10**_DIGITS:
            label = int(label)
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

    # -- checks ----------------------------------------------------------------------------------

    def _decode(self, decode: Callable[[bytes], Any], body: bytes, hint: str = "") -> Any:
        """Return the content of a body; raise RequestError if it is not JSON, or of another type."""
        try:
            return decode(body)
        except msgspec.ValidationError as error:  # JSON, but of another type, or with too large a number
            raise RequestError(422, f"{self._explain(str(error))}{hint}; nothing was stored") from error
        except _MALFORMED as error:  # JSON or UTF-8
            hint = "; send null for a missing value" if b"NaN" in body else ""
            raise RequestError(400, f"the body is not JSON: {str(error)[:120]}{hint}") from error

    def _explain(self, message: str) -> str:
        """Return an error of msgspec with the row and the column instead of a path."""
        if (found := _PLACE.fullmatch(message)) is None:
            return f"the body: {message}"
        problem, of, row, column, field = found.groups()
        places = [f"{'label' if of == 'labels' else 'row'} {int(row) + 1}"]
        places += [] if column is None else [self._name(int(column))]
        places += [field] if field else []
        if "unknown field" in problem and self.columns is not None:
            names = ", ".join(self.columns[:5]) + (", …" if self.n_columns > 5 else "")
            problem += f"; the columns are {names}"
        return f"{', '.join(places)}: {problem[0].lower()}{problem[1:]}"

    def _name(self, j: int) -> str:
        columns = (self.columns or [])[j : j + 1]
        return f"column {columns[0]!r}" if columns else f"column {j + 1}"

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
        missing = [name for name in self.columns if name not in set(columns)]
        unknown = [name for name in columns if name not in set(self.columns)]
        for problem, names in (("missing", missing), ("unknown", unknown)):
            if names:
                more = f" and {len(names) - 5} more" if len(names) > 5 else ""
                listed = ", ".join(map(_shown, names[:5]))
                raise RequestError(409, f"{problem} columns: {listed}{more}; nothing was stored")
        if len(columns) != self.n_columns:
            twice = next(name for name in columns if columns.count(name) > 1)
            raise RequestError(409, f"column {_shown(twice)} is named twice; nothing was stored")
        return [columns.index(name) for name in self.columns]

    def _check_size(self, body: bytes, what: str) -> None:
        """Refuse a body with more values than the allowed rows or labels can have."""
        if len(body) > self.max_values and _count_values(body) > self.max_values:
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

    def _check_number(self, n: int, what: str = "rows") -> None:
        """Refuse a batch without rows or labels, or with too many."""
        if not n:
            raise RequestError(422, f"the batch has no {what}: send at least one")
        if n > self.max_rows:
            raise RequestError(
                413,
                f"expected at most {self.max_rows:,} {what}, got {n:,}: split them into several "
                "requests",
            )


def _row_types(columns: list[str]) -> tuple[Any, Any]:
    """Return the types of a row in JSON and of a body of rows.

    A row is a list, or an object by column or with ``values``. Fields of columns are numbered, since
    columns may have any names.
    """
    cells = list[float | None]
    fields: list[Any] = [
        (f"column_{j}", float | None | UnsetType, msgspec.field(name=name, default=UNSET))
        for j, name in enumerate(columns)
    ]
    if "values" not in columns:
        fields.append(("values", cells | UnsetType, UNSET))
    if "time" not in columns:
        fields.append(("time", Annotated[str, Meta(max_length=TIME_LENGTH)], ""))
    row: Any = cells | msgspec.defstruct("Row", fields, forbid_unknown_fields=True)
    body: list[Any] = [
        ("rows", list[row]),
        ("columns", list[str] | None, None),
        ("batch_id", Id | None, None),
    ]
    return row, msgspec.defstruct("Rows", body, forbid_unknown_fields=True)


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


def _check_id(name: str, given: str | None, header: str | None) -> str | None:
    """Return the id of a batch: that of the body, else that of the header."""
    for one in (given, header):
        if one is not None and re.fullmatch(BATCH_ID, one) is None:
            raise RequestError(422, f"{name} must match {BATCH_ID}, got {_shown(one)}")
    return header if given is None else given


def _invalid(i: int, problem: str, what: str = "row") -> RequestError:
    return RequestError(422, f"{what} {i + 1}: {problem}; nothing was stored")


def _shown(text: str) -> str:
    """Return text of any length and alphabet for a message."""
    text = ascii(text)
    return text if len(text) <= 40 else f"{text[:40]}…"


def to_json(content: Any) -> bytes:
    """Encode as JSON. Arrays become lists; NaN and infinity become null."""
    try:
        return msgspec.json.encode(content, enc_hook=_to_builtin)
    except UnicodeEncodeError:
        # A lone surrogate, for instance in a source named after an undecodable file name. UTF-8 cannot
        # encode it, but a JSON escape can.
        text = json.dumps(content, default=_to_builtin)
        return json.dumps(json.loads(text, parse_constant=lambda _: None)).encode()


def _to_builtin(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"cannot encode {type(value).__name__} as JSON")
