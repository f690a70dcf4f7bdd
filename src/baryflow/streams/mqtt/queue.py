"""What a connection brings, in the order in which it came, for another thread to take."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from baryflow.exceptions import UnreachableError
from baryflow.streams.mqtt.clients import require_paho
from baryflow.streams.mqtt.dedup import digest_of
from baryflow.streams.urls import Address

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

#: User property by which a publisher can name a message.
NAME = "id"
_REFUSED = 0x80


@dataclass(frozen=True)
class Delivery:
    """A message, as it was delivered.

    Attributes
    ----------
    connection : int
        On which it came.
    mid : int
        Its packet identifier, 0 without guarantee of delivery.
    again : bool
        Whether the broker says that it may have delivered it before.
    topic : str
    payload : bytes
    name : str
        What the publisher calls it; ``""`` if it does not.
    arrived : float
        When it came, in seconds since the epoch.
    """

    connection: int
    mid: int
    again: bool
    topic: str
    payload: bytes
    name: str
    arrived: float = 0.0

    @cached_property
    def digest(self) -> str:
        """Of the name, or else of the content."""
        return digest_of(self.topic, self.name.encode() if self.name else self.payload)

    @property
    def offset(self) -> str:
        """By which it is known: the publisher's name for it, or its content and the broker's number.

        Where messages hold a time or a number of their own, the digest before the colon tells two
        messages apart by itself, also one that a publisher has sent twice.
        """
        return self.name or f"{self.digest}:{self.mid}"


@dataclass(frozen=True)
class Opened:
    """A connection stands."""

    connection: int
    session: bool  # whether the broker remembers us
    at: float


@dataclass(frozen=True)
class Lost:
    """The connection is lost."""

    words: str
    at: float


@dataclass(frozen=True)
class Confirmed:
    """The broker has answered, and so read all that was sent before the question."""

    connection: int


@dataclass(frozen=True)
class Lowered:
    """The broker promises less than we have asked for."""


Item = Delivery | Opened | Lost | Confirmed | Lowered | UnreachableError


class Inbox:
    """Listens to a connection, and asks for messages whenever it stands.

    Parameters
    ----------
    address : Address
        Its path says which topics.
    qos : int
    retained : bool
        Whether the last message that the broker keeps for a topic is wanted at the beginning.
    room : int
        Items that wait here, at most, before nothing more is read.
    """

    def __init__(self, address: Address, qos: int, *, retained: bool, room: int) -> None:
        self._address, self._qos, self._retained, self._room = address, qos, retained, room
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()

    def get(self, timeout: float | None) -> Item | None:
        """Return the next item; None if there was none for so many seconds."""
        try:
            return self._items.get(timeout=timeout) if timeout != 0 else self._items.get_nowait()
        except queue.Empty:
            return None

    # -- in the thread of the connection -------------------------------------------------------------

    def opened(self, client: Client, number: int, session: bool) -> bool:
        """Subscribe; a topic that was subscribed to before brings no retained messages again."""
        self._items.put(Opened(number, session, time.monotonic()))
        options = require_paho().subscribeoptions.SubscribeOptions
        never, if_new = options.RETAIN_DO_NOT_SEND, options.RETAIN_SEND_IF_NEW_SUB
        how = options(qos=self._qos, retainHandling=if_new if self._retained else never)
        client.subscribe(self._address.path, options=how)
        return False

    def subscribed(self, code: int) -> UnreachableError | None:
        """Look whether we are allowed to read."""
        if code >= _REFUSED:
            return UnreachableError(
                f"{self._address}: we may not read there: look at the topic, and at what the broker "
                "allows this user"
            )
        if code < self._qos:
            self._items.put(Lowered())
        return None

    def confirmed(self, number: int) -> None:
        """Take note that the broker has answered."""
        self._items.put(Confirmed(number))

    def closed(self, words: str) -> None:
        """Take note that the connection is lost."""
        self._items.put(Lost(words, time.monotonic()))

    def failed(self, error: UnreachableError) -> None:
        """Take note that there will be no other connection."""
        self._items.put(error)

    def received(self, number: int, message: MQTTMessage) -> None:
        """Take a message."""
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = "\ufffd"
        payload = bytes(message.payload)
        self._items.put(
            Delivery(number, message.mid if message.qos else 0, bool(message.dup), topic, payload,
                     _name_of(message.properties), time.time())
        )  # fmt: skip

    def published(self, mid: int, code: int, name: str) -> None:
        """Do nothing: we send none."""

    def full(self) -> bool:
        """Whether nothing more should be read for now."""
        return self._items.qsize() >= self._room


def _name_of(properties: Any) -> str:
    """Return what the publisher calls a message: its user property ``id``, or its correlation data."""
    for name, value in getattr(properties, "UserProperty", ()):
        if name == NAME:
            return str(value)
    data = getattr(properties, "CorrelationData", b"")
    return data.hex() if isinstance(data, bytes) else ""
