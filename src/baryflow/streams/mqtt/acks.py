"""What the broker is still to be told, and what it surely has heard.

MQTT does not confirm an acknowledgement. But a broker reads in order: when it answers a question that
was asked after some acknowledgements, it has read them. The question is to unsubscribe from a topic that
nobody has subscribed to, which changes nothing.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from baryflow.streams.mqtt.connection import Connection

_NO_TOPIC = "baryflow/none"


class _Owed(NamedTuple):
    """An acknowledgement that is still to be sent."""

    number: int  # of the message that must be safe
    connection: int
    mid: int


class Debts:
    """Acknowledges messages in the order in which they came, once they are safe.

    A message that came on a connection that is no more is not acknowledged on another: it will come
    again there, and is acknowledged then. Its packet identifier may mean another message in between.
    """

    def __init__(self) -> None:
        self.safe = 0  # number of the last message that is on disk
        self.confirmed = 0  # number of the last message of which the broker surely knows that
        self._owed: deque[_Owed] = deque()
        self._connection = 0
        self._asked: int | None = None  # what an answer will confirm
        self._stale = False  # whether it will confirm nothing

    def begin(self, connection: int) -> None:
        """Take note of a new connection: what was asked on the last one is not answered any more."""
        self._connection, self._asked, self._stale = connection, None, False

    def owe(self, number: int, connection: int, mid: int) -> None:
        """Acknowledge a delivery as soon as message `number` is safe."""
        self._owed.append(_Owed(number, connection, mid))

    def doubt(self) -> None:
        """Take note that messages come again: an answer that is under way does not cover them."""
        self._stale = self._asked is not None

    def confirm(self, connection: int) -> None:
        """Take note of an answer."""
        if connection == self._connection and self._asked is not None:
            if not self._stale:
                self.confirmed = max(self.confirmed, self._asked)
            self._asked, self._stale = None, False

    def pay(self, wire: Connection) -> None:
        """Send what is due, and ask whether it has arrived."""
        due = []
        while self._owed and self._owed[0].number <= self.safe:
            due.append(self._owed.popleft())
        connection = self._connection
        ask = bool(connection) and self._asked is None and self.confirmed < self.safe
        if not due and not ask:
            return
        if ask:
            self._asked = self.safe

        def pay(client: Any, number: int) -> None:
            for one in due:
                if one.connection == number:
                    client.ack(one.mid, 1)
            if ask and connection == number:
                client.unsubscribe(_NO_TOPIC)

        wire.post(pay)
