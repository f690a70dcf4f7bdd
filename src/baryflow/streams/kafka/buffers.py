"""Messages on their way to a batch, and how far they were read."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE
from confluent_kafka import Message as Delivered

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Batch
from baryflow.streams.messages import Message, Messages


@dataclass
class Lane:
    """Partitions whose rows are counted together: all of a topic, or the one that is a shard.

    Attributes
    ----------
    name : str
        Of the shard; ``""`` if all are counted together.
    rows : Messages
    offsets : dict of str → int
        Partition → the message with which to go on after the batches that were taken.
    held : bool
        Whether the offsets say more than could be found out again.
    restored : bool
        Whether it resumes from the cursor of an earlier life: the offsets then are all that was read.
    topic_id : str or None
        Id of the topic to which the offsets belong, if it is known.
    """

    name: str
    rows: Messages
    offsets: dict[str, int] = field(default_factory=dict)
    held: bool = False
    restored: bool = field(default=False, init=False)
    topic_id: str | None = field(default=None, init=False)
    since: float = field(default=0.0, init=False)
    _waiting: deque[tuple[str, int, Message]] = field(default_factory=deque, init=False)

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, partition: str, delivered: Delivered) -> None:
        """Let a message wait for its batch."""
        if not self._waiting:
            self.since = time.monotonic()
        offset = delivered.offset() or 0
        self._waiting.append((partition, offset, _message(delivered, offset)))

    def restore(self, cursor: dict[str, Any], topic: str) -> None:
        """Go on after a batch of an earlier life."""
        offsets, position = cursor.get("offsets"), cursor.get("position", 0)
        if (
            not isinstance(offsets, dict)
            or not isinstance(position, int)
            or not all(isinstance(offset, int) and offset >= 0 for offset in offsets.values())
        ):
            raise InvalidInputError("where to go on must be offsets of a topic of Kafka; start anew")
        strange = [name for name in offsets if not is_partition(name, topic)]
        if strange or (self.name and set(offsets) - {self.name}):
            raise InvalidInputError(
                f"what was read before is not {self.name or topic}, but {', '.join(offsets)}: "
                f"name the topic that was read then, or start anew"
            )
        self.offsets, self.rows.position, self.restored = dict(offsets), position, True
        self.topic_id = cursor.get("topic_id")

    def cursor(self) -> dict[str, Any]:
        """Return where to go on after what was taken."""
        found = {"offsets": dict(self.offsets), "position": self.rows.position}
        return found if self.topic_id is None else found | {"topic_id": self.topic_id}

    def take(self, n: int, notices: list[str]) -> Batch:
        """Return the first `n` messages that wait, as a batch."""
        taken = [self._waiting.popleft() for _ in range(min(n, len(self._waiting)))]
        if taken:
            self.since = time.monotonic()
        for partition, offset, _ in taken:
            self.offsets[partition] = offset + 1
        batch = self.rows.batch([message for _, _, message in taken], {})
        held, self.held = self.held, False
        return replace(batch, cursor=self.cursor(), notices=notices, held=held, partition=self.name)


def name_partition(topic: str, partition: int) -> str:
    """Return the name of a partition: ``plant-3``."""
    return f"{topic}-{partition}"


def number_of(name: str) -> int:
    """Return the number in the name of a partition."""
    return int(name.rpartition("-")[2])


def is_partition(name: str, topic: str) -> bool:
    """Return whether a name is that of a partition of a topic."""
    head, _, tail = name.rpartition("-")
    return head == topic and tail.isascii() and tail.isdecimal()


def _message(delivered: Delivered, offset: int) -> Message:
    value, key = delivered.value(), delivered.key()
    return Message(
        payload=_as_bytes(value),
        offset=f"{delivered.partition()}:{offset}",
        time=_time(*delivered.timestamp()),
        names={
            "@topic": delivered.topic() or "",
            "@key": _as_bytes(key).decode("utf-8", "replace"),
        },
    )


def _as_bytes(value: bytes | str | None) -> bytes:
    """Return what a message holds; one without a value is empty."""
    return value.encode() if isinstance(value, str) else value or b""


def _time(kind: int, milliseconds: int) -> str:
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, OSError, ValueError):
        return ""  # anybody can write any number there
