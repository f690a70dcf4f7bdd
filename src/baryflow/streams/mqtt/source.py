"""Rows from MQTT messages: one row per message, or rows sampled from tag values."""

from __future__ import annotations

import json
import math
import queue
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.backoff import SLICE
from baryflow.streams.base import Batch, Rejected, Source
from baryflow.streams.brokers import LabelDecoder, Message, MessageDecoder
from baryflow.streams.decoding import excerpt
from baryflow.streams.label_records import parse_time
from baryflow.streams.mqtt.connection import ClientConfig, Connection, Listener, require_paho
from baryflow.streams.mqtt.delivery import Deduplicator, Delivery
from baryflow.streams.numbers import parse_number
from baryflow.streams.sampling.sampler import Sampler
from baryflow.streams.sampling.tags import Tag, read_tags
from baryflow.streams.urls import Endpoint
from baryflow.validation import as_count

#: Remembered messages per message in flight. More than one, because a broker that is killed forgets the
#: last acknowledgements and delivers those messages again, too.
_REMEMBERED = 2
#: Items that may be queued, as a multiple of ``inflight``; only messages with QoS 0 can be as many.
_CAPACITY = 4
_REFUSED = 0x80
#: A time above this is in milliseconds: in seconds it would be in the year 5138.
_MILLISECONDS = 1e11
#: OPC's numbers for good quality.
_GOOD = range(192, 256)


# -- rows from messages --------------------------------------------------------------------------------


class RowBuilder(Protocol):
    """Builds batches from messages."""

    columns: list[str]

    def limit(self, n: int, inflight: int) -> int:
        """Return the most messages to take for a batch of `n` rows."""

    def batch(self, deliveries: list[Delivery], n: int, cursor: dict[str, Any]) -> Batch:
        """Return the batch of these messages."""

    def resume(self, cursor: dict[str, Any]) -> None:
        """Restore the state in a cursor."""

    @property
    def has_rows(self) -> bool:
        """Whether there are rows without another message."""


class MessageRows:
    """Each message is a row, or a label: a JSON object."""

    has_rows = False

    def __init__(self, columns: Sequence[str], decoder: MessageDecoder | LabelDecoder) -> None:
        self.columns = list(columns)
        self._decoder = decoder

    def limit(self, n: int, inflight: int) -> int:
        """Return the most messages in a batch; the broker sends no more before they are acknowledged."""
        return min(n, inflight)

    def batch(self, deliveries: list[Delivery], n: int, cursor: dict[str, Any]) -> Batch:
        """Return the batch of these messages."""
        del n
        messages = [
            Message(one.payload, one.offset, properties={"@topic": one.topic}) for one in deliveries
        ]
        cursor["position"] = self._decoder.position + len(messages)
        return self._decoder.batch(messages, cursor)

    def resume(self, cursor: dict[str, Any]) -> None:
        """Restore the state in a cursor."""
        self._decoder.position = int(cursor["position"])


class SampledRows:
    """Each message is a value of one tag; rows are sampled from them."""

    def __init__(self, sampler: Sampler) -> None:
        self.columns = list(sampler.columns)
        self.has_rows = False
        self._sampler = sampler
        self._ignored = 0  # messages on topics that are not tags

    def limit(self, n: int, inflight: int) -> int:
        """Return the most messages to take; the cursor holds those that are in no row yet."""
        del n
        return max(1, inflight // 2)

    def batch(self, deliveries: list[Delivery], n: int, cursor: dict[str, Any]) -> Batch:
        """Return the rows that are due; the cursor holds the values for later rows."""
        rejected, notices = [], []
        for one in deliveries:
            found = read_reading(one.payload)
            if found is None:
                reason = f"the message on {one.topic} holds no value."
                position = self._sampler.position + 1
                rejected.append(Rejected(position, reason, excerpt(one.payload), one.offset))
                continue
            moment = one.arrived if found.time is None else found.time
            if not self._sampler.update(one.topic, found.value, moment, found.good):
                if not self._ignored:
                    notices.append(f"messages on {one.topic} are ignored: it is not the topic of a tag")
                self._ignored += 1
        batch = self._sampler.batch(n, **cursor)
        self.has_rows = len(batch.rows) == n
        return replace(
            batch, rejected=rejected, notices=[*notices, *batch.notices], held=bool(deliveries)
        )

    def resume(self, cursor: dict[str, Any]) -> None:
        """Restore the state in a cursor."""
        self._sampler.resume(cursor["sampler"])


def find_tags(endpoint: Endpoint, columns: Sequence[str], path: str | None) -> list[Tag]:
    """Return the topic of each column: from a tag list, or by the last level of the topic."""
    if path is not None:
        return read_tags(path)
    above = endpoint.path.removesuffix("+")
    if above == endpoint.path or "+" in above or "#" in above:
        raise InvalidInputError(
            f"{endpoint}: map topics to columns with a tag list; without one, the topic must end with "
            "its only +, which stands for the column names"
        )
    return [Tag(above + column, column) for column in columns]


class Reading(NamedTuple):
    """The value of a tag in a message; without a time, the time of arrival counts."""

    value: Any
    time: float | None
    good: bool


def read_reading(payload: bytes) -> Reading | None:
    """Return the value in a message: a number, or an object with value, time and quality."""
    try:
        text = payload.decode("utf-8").strip()
        found = json.loads(text)
    except UnicodeDecodeError:
        return None
    except (ValueError, RecursionError):
        number = parse_number(text, decimal_comma=True)
        return None if number is None or math.isnan(number) else Reading(number, None, good=True)
    if isinstance(found, dict):
        return _read_object(found)
    return Reading(found, None, good=True) if isinstance(found, str | int | float) else None


def _read_object(found: dict[str, Any]) -> Reading | None:
    value = found.get("value")
    if "value" not in found or not (value is None or isinstance(value, str | int | float)):
        return None
    stamp = next((found[name] for name in ("time", "timestamp") if found.get(name) is not None), None)
    moment = None if stamp is None else _read_time(stamp)
    good = next((_is_good(found[name]) for name in ("good", "quality") if name in found), True)
    # With an invalid time the value has no time at all: the sampler counts it.
    return Reading(value, math.nan if stamp is not None and moment is None else moment, good)


def _read_time(stamp: Any) -> float | None:
    seconds = parse_time(stamp) if isinstance(stamp, str) else stamp
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return seconds / 1000 if seconds > _MILLISECONDS else float(seconds)


def _is_good(quality: Any) -> bool:
    if isinstance(quality, str):
        return quality.strip().lower().startswith("good")
    return quality is True or (not isinstance(quality, bool) and quality in _GOOD)


# -- the source ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Connected:
    """A connection was made; `session` says whether the broker has kept our session."""

    session: bool
    at: float


@dataclass(frozen=True)
class _Disconnected:
    """The connection is lost."""

    reason: str
    at: float


#: What paho's thread queues for the reader, in order; text is a notice.
_Item = Delivery | _Connected | _Disconnected | UnreachableError | str


class MqttSource(Listener, Source):
    """Rows from a broker. No message is acknowledged before it is on disk, and none is used twice.

    `retained` asks for retained messages when the subscription is new.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        config: ClientConfig,
        builder: RowBuilder,
        *,
        qos: int,
        retained: bool,
        idle: float | None,
    ) -> None:
        self._endpoint, self._config = endpoint, config
        self._builder, self._idle = builder, idle
        self._qos, self._retained = qos, retained
        self._items: queue.Queue[_Item] = queue.Queue(_CAPACITY * config.inflight)
        self._dedup = Deduplicator(_REMEMBERED * config.inflight)
        self._acks: deque[tuple[int, Delivery]] = deque()  # to send once this message is on disk
        self._received = self._on_disk = 0  # messages so far, and those on disk
        self._resumed = self._closed = False
        self._lost: _Disconnected | None = None
        self._was_connected = self._subscribed = False
        self._has_qos0 = False  # whether a message with QoS 0 has arrived
        self._error: UnreachableError | None = None
        self._connection = Connection(endpoint, config, self)
        self._connection.client.on_subscribe = self._on_subscribe
        self._connection.client.on_message = self._on_message
        self._connection.start()

    @property
    def columns(self) -> list[str]:
        """The selected columns; messages may have others, which are not known in advance."""
        return list(self._builder.columns)

    @property
    def wanted(self) -> list[str]:
        """The columns of the rows."""
        return list(self._builder.columns)

    @property
    def reached(self) -> bool:
        """Whether the broker has granted the subscription once: it misses no later message."""
        return self._subscribed

    def read(self, n: int, timeout: float | None = None) -> Batch | None:
        """Return the next rows; the stream never ends."""
        n = as_count(n, "n")
        self._raise_error()
        limit = self._builder.limit(n, self._config.inflight)
        deliveries, notices = self._gather(limit, timeout)
        if not deliveries:
            self._raise_error()
        cursor = {
            "topic": self._endpoint.path,
            "client": self._config.client_id,
            "received": self._received,
            "dedup": self._dedup.to_text(),
        }
        batch = self._builder.batch(deliveries, n, cursor)
        return replace(batch, notices=[*notices, *batch.notices])

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume after a batch of an earlier process, and recognise what is delivered again."""
        for name, value in (("topic", self._endpoint.path), ("client", self._config.client_id)):
            if cursor.get(name) != value:
                raise InvalidInputError(
                    f"cannot resume: the checkpoint is of {name} {cursor.get(name)!r}, not {value!r}; "
                    "use the same, or another checkpoint folder"
                )
        self._received = self._on_disk = int(cursor["received"])
        self._dedup.add_text(str(cursor["dedup"]))
        self._builder.resume(cursor)
        self._resumed = True

    def acknowledge(self, cursor: dict[str, Any]) -> None:
        """Acknowledge the messages up to a batch."""
        self._on_disk = max(self._on_disk, int(cursor["received"]))
        self._send_acks()

    def _send_acks(self) -> None:
        """Acknowledge what is on disk, in order of arrival."""
        while self._acks and self._acks[0][0] <= self._on_disk:
            _, delivery = self._acks.popleft()
            self._connection.acknowledge(delivery.connection, delivery.mid)

    def close(self) -> None:
        """Disconnect; for a durable source the broker keeps what arrives from now on."""
        self._closed = True
        self._connection.close()

    # -- messages --------------------------------------------------------------------------------------

    def _gather(self, limit: int, timeout: float | None) -> tuple[list[Delivery], list[str]]:
        """Wait until there are enough messages, or for long enough; return them with notices."""
        deliveries: list[Delivery] = []
        notices: list[str] = []
        repeated = 0
        until: float | None = 0.0 if self._builder.has_rows else None
        while len(deliveries) < limit and self._error is None:
            item = self._next(self._idle if until is None else max(0.0, until - time.monotonic()))
            if item is None:
                break
            if not isinstance(item, Delivery):
                notices.extend(self._handle(item))
            elif self._is_new(item):
                deliveries.append(item)
                if not item.mid and not self._has_qos0:
                    self._has_qos0 = True
                    notices.append(
                        f"messages on {item.topic} are published with QoS 0: those that are sent while "
                        "we are not connected are lost; publish with QoS 1"
                    )
            else:
                repeated += 1
                self._send_acks()
            if until is None and timeout is not None and deliveries:
                until = time.monotonic() + timeout
            if notices and not deliveries:
                until = 0.0  # report notices at once
        if repeated:
            count = "1 message was" if repeated == 1 else f"{repeated} messages were"
            notices.append(f"{count} delivered a second time, and skipped")
        return deliveries, notices

    def _next(self, timeout: float | None) -> _Item | None:
        """Return the next item, or None if none arrives in time."""
        try:
            return self._items.get_nowait() if timeout == 0 else self._items.get(timeout=timeout)
        except queue.Empty:
            return None

    def _is_new(self, item: Delivery) -> bool:
        """Return whether a message was not received before; acknowledge it later in either case."""
        number = known = self._dedup.find(item)
        if number is None:
            self._received += 1
            number = self._received
            self._dedup.add(item, number)
        if item.mid:
            self._acks.append((number, item))
        return known is None

    def _handle(self, item: _Item) -> list[str]:
        """Handle an event of the connection, and return notices of it."""
        if isinstance(item, UnreachableError):
            self._error = item
        elif isinstance(item, _Disconnected):
            self._lost = item
            what = "connection lost" if self._was_connected else "no connection yet"
            return [f"{self._endpoint}: {what} ({item.reason}); retrying"]
        elif isinstance(item, _Connected):
            return self._reconnected(item)
        return [item] if isinstance(item, str) else []

    def _reconnected(self, item: _Connected) -> list[str]:
        notices = []
        if self._lost is not None:
            again = "again " if self._was_connected else ""
            notices.append(f"{self._endpoint}: connected {again}after {item.at - self._lost.at:.1f} s")
        expected = self._was_connected or self._resumed
        self._lost, self._resumed, self._was_connected = None, False, True
        if not item.session:
            self._dedup.forget_mids()
            if expected and self._config.expiry:
                notices.append(
                    f"{self._endpoint}: the broker has lost the session {self._config.client_id!r}: "
                    "earlier messages that were not read are lost; see docs/howto/mosquitto.conf"
                )
            elif expected:
                notices.append(
                    f"{self._endpoint}: messages that were sent meanwhile are lost: the broker keeps "
                    "them only for a run with a checkpoint"
                )
        return notices

    # -- in paho's thread ------------------------------------------------------------------------------

    def _put(self, item: _Item) -> None:
        """Queue an item; while the queue is full, nothing more is read from the network."""
        while not self._closed:
            try:
                self._items.put(item, timeout=SLICE)
            except queue.Full:
                continue
            return

    def opened(self, session: bool, properties: Any) -> bool:
        """Subscribe; an existing subscription brings no retained messages again."""
        del properties
        self._put(_Connected(session, time.monotonic()))
        options = require_paho().subscribeoptions.SubscribeOptions
        never, if_new = options.RETAIN_DO_NOT_SEND, options.RETAIN_SEND_IF_NEW_SUB
        chosen = options(qos=self._qos, retainHandling=if_new if self._retained else never)
        self._connection.client.subscribe(self._endpoint.path, options=chosen)
        return False

    def closed(self, reason: str) -> None:
        """Queue the loss of the connection."""
        self._put(_Disconnected(reason, time.monotonic()))

    def failed(self, error: UnreachableError) -> None:
        """Queue an error that ends the connection for good."""
        self._put(error)

    def _on_subscribe(self, _: Any, __: Any, ___: Any, reasons: Any, ____: Any) -> None:
        """Check whether the subscription was granted."""
        code = reasons[0].value
        if code >= _REFUSED:
            self._connection.fail(
                UnreachableError(
                    f"{self._endpoint}: not permitted to read this topic: check the topic, and the "
                    "permissions of this user"
                )
            )
            return
        if code < self._qos:
            self._put(f"{self._endpoint}: the broker granted less than QoS 1: messages may be lost")
        self._subscribed = True
        self._connection.answered()

    def _on_message(self, _: Any, __: Any, message: Any) -> None:
        self._put(Delivery.from_paho(self._connection.number, message))
