"""Messages that are rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from baryflow.streams.base import Batch
from baryflow.streams.messages import Message, Messages
from baryflow.streams.mqtt.queue import Delivery


class RowMaker:
    """Each message is a row: a JSON object.

    Parameters
    ----------
    columns : sequence of str
    time, key : str, optional
        Names in the object, or ``"@topic"`` for a key.
    """

    waiting = False

    def __init__(self, columns: Sequence[str], time: str | None, key: str | None) -> None:
        self.columns = list(columns)
        self._messages = Messages(columns, time, key)

    def limit(self, n: int, inflight: int) -> int:
        """Return how many messages make a batch; the broker sends no more before it hears of them."""
        return min(n, inflight)

    def batch(self, deliveries: list[Delivery], n: int, cursor: dict[str, Any]) -> Batch:
        """Return the batch that messages make."""
        del n
        messages = [Message(one.payload, one.offset, names={"@topic": one.topic}) for one in deliveries]
        cursor["position"] = self._messages.position + len(messages)
        return self._messages.batch(messages, cursor)

    def resume(self, cursor: dict[str, Any]) -> None:
        """Go on from a cursor."""
        self._messages.position = int(cursor["position"])
