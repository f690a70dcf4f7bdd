"""Messages that an MQTT broker delivered, and which of them it delivered before.

A broker delivers a message again if the connection ended before it received our acknowledgement: with
the same packet identifier, and marked as a duplicate. A publisher, too, sends a message again if it did
not receive the broker's acknowledgement. For the broker that is a new message, and only an id that the
publisher has given to the message shows that it is not. Correlation data is no such id: all messages of
one request share it.

A broker sends at most ``inflight`` messages before it has read the acknowledgement of the first. So what
it can deliver again is among the last ``inflight`` messages, even if it has read no acknowledgement.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import Any

#: User property that holds a publisher's id for a message.
_ID_PROPERTY = "id"
_MID_DIGITS = 4  # hexadecimal digits of a packet identifier
_DIGEST_DIGITS = 12  # of a message digest: 48 bits
_WITH_ID, _WITHOUT_ID = "n", "-"


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

    @classmethod
    def from_paho(cls, connection: int, message: Any) -> Delivery:
        """Return the delivery of a paho message."""
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = "\ufffd"
        found = getattr(message.properties, "UserProperty", ())
        return cls(
            connection=connection,
            mid=message.mid if message.qos else 0,
            duplicate=bool(message.dup),
            topic=topic,
            payload=bytes(message.payload),
            message_id=next((str(value) for name, value in found if name == _ID_PROPERTY), ""),
            arrived=time.time(),
        )

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
class _Remembered:
    """A message that was received."""

    mid: int  # packet identifier; 0 if it has none, or none that is still valid
    digest: str
    has_id: bool  # whether the publisher gave it an id, which is part of the digest
    number: int  # messages received so far, this one included


class Deduplicator:
    """Remembers the last `size` messages that could be delivered again."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._order: deque[_Remembered] = deque()
        self._by_mid: dict[int, _Remembered] = {}
        self._by_id: dict[str, _Remembered] = {}

    def add(self, delivery: Delivery, number: int) -> None:
        """Remember message `number`, and forget the oldest one."""
        if delivery.mid or delivery.message_id:  # any other is delivered at most once
            has_id = bool(delivery.message_id)
            self._add(_Remembered(delivery.mid, delivery.digest, has_id, number))

    def _add(self, one: _Remembered) -> None:
        self._order.append(one)
        if one.mid:
            self._by_mid[one.mid] = one
        if one.has_id:
            self._by_id[one.digest] = one
        while len(self._order) > self._size:
            oldest = self._order.popleft()
            if self._by_mid.get(oldest.mid) is oldest:
                del self._by_mid[oldest.mid]
            if self._by_id.get(oldest.digest) is oldest:
                del self._by_id[oldest.digest]

    def find(self, delivery: Delivery) -> int | None:
        """Return the number of the message that this one repeats, if any."""
        if delivery.message_id and delivery.digest in self._by_id:
            return self._by_id[delivery.digest].number
        same = self._by_mid.get(delivery.mid) if delivery.duplicate and delivery.mid else None
        return same.number if same is not None and same.digest == delivery.digest else None

    def forget_mids(self) -> None:
        """Forget packet identifiers, because the broker has lost the session and reuses them."""
        kept = [_Remembered(0, one.digest, True, one.number) for one in self._order if one.has_id]
        self._order.clear()
        self._by_mid.clear()
        self._by_id.clear()
        for one in kept:
            self._add(one)

    def to_text(self) -> str:
        """Return the messages in short form, for a cursor."""
        return "".join(
            f"{one.mid:0{_MID_DIGITS}x}{_WITH_ID if one.has_id else _WITHOUT_ID}{one.digest}"
            for one in self._order
        )

    def add_text(self, text: str) -> None:
        """Remember what :meth:`to_text` returned; all of these messages are on disk."""
        width = _MID_DIGITS + 1 + _DIGEST_DIGITS
        self._size = max(self._size, len(text) // width)  # the limit may have been higher then
        for at in range(0, len(text), width):
            mid, kind = text[at : at + _MID_DIGITS], text[at + _MID_DIGITS]
            digest = text[at + _MID_DIGITS + 1 : at + width]
            self._add(_Remembered(int(mid, 16), digest, kind == _WITH_ID, 0))
