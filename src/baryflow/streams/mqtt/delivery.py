"""Deliveries of an MQTT broker: each message is taken once, and acknowledged once it is on disk.

A broker delivers a message again if the connection ended before it received our acknowledgement: with
the same packet identifier, and marked as a duplicate. A publisher, too, sends a message again if it did
not receive the broker's acknowledgement. For the broker that is a new message, and only an id that the
publisher has given to the message shows that it is not. Correlation data is no such id: all messages of
one request share it.
"""

from __future__ import annotations

import hashlib
import queue
import time
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from baryflow.exceptions import UnreachableError
from baryflow.streams.mqtt.connection import Connection, Listener, require_paho
from baryflow.streams.urls import Endpoint

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

#: User property that holds a publisher's id for a message.
_ID_PROPERTY = "id"
_REFUSED = 0x80
#: No client subscribes to this topic, so unsubscribing from it changes nothing.
_UNUSED_TOPIC = "baryflow/none"
_MID_DIGITS = 4  # hexadecimal digits of a packet identifier
_DIGEST_DIGITS = 12  # of a message digest: 48 bits
_WITH_ID, _WITHOUT_ID = "n", "-"


# -- what a connection brings --------------------------------------------------------------------------


@dataclass(frozen=True)
class Delivery:
    """A delivered message."""

    connection: int  # number of the connection
    mid: int  # packet identifier; 0 for QoS 0
    duplicate: bool  # whether the broker marked it as possibly delivered before
    topic: str
    payload: bytes
    message_id: str  # the publisher's id for it, "" without one
    arrived: float = 0.0  # seconds since the epoch

    @cached_property
    def digest(self) -> str:
        """A short digest of the topic, the id and the content.

        A message that reuses an id with other content is not the same message.
        """
        data = b"\0".join((self.topic.encode(), self.message_id.encode(), self.payload))
        return hashlib.blake2b(data, digest_size=_DIGEST_DIGITS // 2).hexdigest()

    @property
    def offset(self) -> str:
        """The publisher's id, or the digest and the packet identifier.

        If messages contain a time or a number of their own, the digest alone identifies a message, even
        one that a publisher has sent twice.
        """
        return self.message_id or f"{self.digest}:{self.mid}"


@dataclass(frozen=True)
class Connected:
    """A connection was made; `session` says whether the broker has kept our session."""

    connection: int
    session: bool
    at: float


@dataclass(frozen=True)
class Disconnected:
    """The connection is lost."""

    reason: str
    at: float


@dataclass(frozen=True)
class Confirmed:
    """The broker has answered, so it has read all that was sent before the request."""

    connection: int


@dataclass(frozen=True)
class QosLowered:
    """The broker granted a lower QoS than requested."""


Item = Delivery | Connected | Disconnected | Confirmed | QosLowered | UnreachableError


class Inbox(Listener):
    """Subscribes on each connection, and queues what arrives for another thread.

    `retained` asks for retained messages when the subscription is new. With `room` items queued, nothing
    more is read from the network.
    """

    def __init__(self, endpoint: Endpoint, qos: int, *, retained: bool, room: int) -> None:
        self._endpoint, self._qos, self._retained, self._room = endpoint, qos, retained, room
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()

    def get(self, timeout: float | None) -> Item | None:
        """Return the next item, or None if none arrives in time."""
        try:
            return self._items.get(timeout=timeout) if timeout != 0 else self._items.get_nowait()
        except queue.Empty:
            return None

    # -- in the thread of the connection -------------------------------------------------------------

    def opened(self, client: Client, number: int, session: bool) -> bool:
        """Subscribe; an existing subscription brings no retained messages again."""
        self._items.put(Connected(number, session, time.monotonic()))
        options = require_paho().subscribeoptions.SubscribeOptions
        never, if_new = options.RETAIN_DO_NOT_SEND, options.RETAIN_SEND_IF_NEW_SUB
        chosen = options(qos=self._qos, retainHandling=if_new if self._retained else never)
        client.subscribe(self._endpoint.path, options=chosen)
        return False

    def subscribed(self, code: int) -> UnreachableError | None:
        """Check whether the subscription was granted."""
        if code >= _REFUSED:
            return UnreachableError(
                f"{self._endpoint}: not permitted to read this topic: check the topic, and the "
                "permissions of this user"
            )
        if code < self._qos:
            self._items.put(QosLowered())
        return None

    def confirmed(self, number: int) -> None:
        """Queue the answer."""
        self._items.put(Confirmed(number))

    def closed(self, reason: str) -> None:
        """Queue the loss of the connection."""
        self._items.put(Disconnected(reason, time.monotonic()))

    def failed(self, error: UnreachableError) -> None:
        """Queue an error that ends the connection for good."""
        self._items.put(error)

    def received(self, number: int, message: MQTTMessage) -> None:
        """Queue a message."""
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = "\ufffd"
        self._items.put(
            Delivery(
                connection=number,
                mid=message.mid if message.qos else 0,
                duplicate=bool(message.dup),
                topic=topic,
                payload=bytes(message.payload),
                message_id=_find_id(message.properties),
                arrived=time.time(),
            )
        )

    def full(self) -> bool:
        """Return whether to stop reading for now."""
        return self._items.qsize() >= self._room


def _find_id(properties: Any) -> str:
    """Return the publisher's id for a message: its user property ``id``, or nothing."""
    found = getattr(properties, "UserProperty", ())
    return next((str(value) for name, value in found if name == _ID_PROPERTY), "")


# -- duplicates ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Taken:
    """A message that was taken."""

    mid: int  # packet identifier; 0 if it has none, or none that is still valid
    digest: str
    has_id: bool  # whether the publisher gave it an id, which is part of the digest
    number: int  # messages taken so far, this one included


class Deduplicator:
    """Remembers the last `size` messages that were taken."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._order: deque[Taken] = deque()
        self._by_mid: dict[int, Taken] = {}
        self._by_id: dict[str, Taken] = {}

    def add(self, taken: Taken) -> None:
        """Remember a message, and forget the oldest one."""
        self._order.append(taken)
        if taken.mid:
            self._by_mid[taken.mid] = taken
        if taken.has_id:
            self._by_id[taken.digest] = taken
        while len(self._order) > self._size:
            oldest = self._order.popleft()
            if self._by_mid.get(oldest.mid) is oldest:
                del self._by_mid[oldest.mid]
            if self._by_id.get(oldest.digest) is oldest:
                del self._by_id[oldest.digest]

    def find(self, mid: int, digest: str, *, has_id: bool, duplicate: bool) -> Taken | None:
        """Return the message that this one repeats, if any."""
        if has_id and digest in self._by_id:
            return self._by_id[digest]
        same = self._by_mid.get(mid) if duplicate and mid else None
        return same if same is not None and same.digest == digest else None

    def forget_mids(self) -> None:
        """Forget packet identifiers, because the broker has lost the session and reuses them."""
        kept = [Taken(0, one.digest, one.has_id, one.number) for one in self._order if one.has_id]
        self._order.clear()
        self._by_mid.clear()
        self._by_id.clear()
        for one in kept:
            self.add(one)

    def to_text(self) -> str:
        """Return the messages in short form, for a cursor."""
        return "".join(
            f"{one.mid:0{_MID_DIGITS}x}{_WITH_ID if one.has_id else _WITHOUT_ID}{one.digest}"
            for one in self._order
        )

    def add_text(self, text: str) -> None:
        """Remember what :meth:`to_text` returned; all of these messages are on disk."""
        width = _MID_DIGITS + 1 + _DIGEST_DIGITS
        for at in range(0, len(text), width):
            mid, kind = text[at : at + _MID_DIGITS], text[at + _MID_DIGITS]
            digest = text[at + _MID_DIGITS + 1 : at + width]
            self.add(Taken(int(mid, 16), digest, kind == _WITH_ID, 0))


# -- acknowledgements ----------------------------------------------------------------------------------


class _Pending(NamedTuple):
    """An acknowledgement that is not sent yet."""

    number: int  # of the message, which must be on disk first
    connection: int
    mid: int


class Acknowledger:
    """Acknowledges messages in order of arrival, once they are on disk.

    An acknowledgement is sent only on the connection on which the message arrived. On another connection
    the broker delivers the message again, and its packet identifier may belong to another one by then.

    MQTT does not confirm acknowledgements, but a broker reads in order: when it answers a request, it
    has read all acknowledgements before it. The request is to unsubscribe from an unused topic.
    """

    def __init__(self) -> None:
        self.on_disk = 0  # number of the last message that is on disk
        self.confirmed = 0  # number of the last message whose acknowledgement the broker has read
        self._pending: deque[_Pending] = deque()
        self._connection = 0
        self._requested: int | None = None  # what the next answer confirms
        self._outdated = False  # whether it confirms nothing

    def begin(self, connection: int) -> None:
        """Start with a new connection: requests on the last one will not be answered."""
        self._connection, self._requested, self._outdated = connection, None, False

    def add(self, number: int, connection: int, mid: int) -> None:
        """Acknowledge a delivery once message `number` is on disk."""
        self._pending.append(_Pending(number, connection, mid))

    def invalidate(self) -> None:
        """Ignore the next answer, because a message was delivered again after the request."""
        self._outdated = self._requested is not None

    def confirm(self, connection: int) -> None:
        """Handle an answer."""
        if connection == self._connection and self._requested is not None:
            if not self._outdated:
                self.confirmed = max(self.confirmed, self._requested)
            self._requested, self._outdated = None, False

    def send(self, wire: Connection) -> None:
        """Send the acknowledgements that are due, and a request that confirms them."""
        due = []
        while self._pending and self._pending[0].number <= self.on_disk:
            due.append(self._pending.popleft())
        connection = self._connection
        request = bool(connection) and self._requested is None and self.confirmed < self.on_disk
        if not due and not request:
            return
        if request:
            self._requested = self.on_disk

        def send(client: Any, number: int) -> None:
            for one in due:
                if one.connection == number:
                    client.ack(one.mid, 1)
            if request and connection == number:
                client.unsubscribe(_UNUSED_TOPIC)

        wire.post(send)
