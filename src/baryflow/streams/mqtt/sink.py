"""Records to a topic: each is a message, and the broker has said that it has it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from baryflow.exceptions import UnreachableError
from baryflow.streams.mqtt.clients import Session
from baryflow.streams.mqtt.connection import Connection
from baryflow.streams.sinks import encode_record
from baryflow.streams.stopping import Stopping
from baryflow.streams.urls import Address, Credentials

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

#: Records that may be under way; with more, ``write`` waits.
ROOM = 10_000
#: Of them, those that the broker may have without having said so.
_AHEAD = 100
#: Seconds after which a sink that waits looks whether it is to stop.
_SLICE = 0.2
_REFUSED = 0x80


class MqttSink:
    """Sends records; those that the broker did not confirm are sent again on the next connection.

    Parameters
    ----------
    address : Address
        Its path is the topic.
    credentials : Credentials
    session : Session
    patience : float
        Seconds to wait for the broker, be it away, before it is an error.
    """

    def __init__(
        self, address: Address, credentials: Credentials, session: Session, patience: float
    ) -> None:
        self.position = 0
        self._address, self._patience, self._stopping = address, patience, Stopping()
        self._changed = threading.Condition()
        self._queue: dict[int, bytes] = {}  # number of a record → its message, until it is confirmed
        self._next = 0  # number of the next record
        self._sent: dict[int, int] = {}  # packet identifier → number of the record, on this connection
        self._unsent = 0  # number of the first record that was not sent on this connection
        self._error: UnreachableError | None = None
        self._connection = Connection(address, credentials, session, self)
        self._connection.start()

    def heed(self, stop: Callable[[], bool]) -> None:
        """Do not wait long for the broker once `stop` returns True."""
        self._stopping.stop = stop

    def write(self, records: list[dict[str, Any]]) -> None:
        """Send records; they are under way when this returns."""
        for record in records:
            payload = encode_record(record).rstrip("\n").encode()
            with self._changed:
                if len(self._queue) >= ROOM:
                    self._connection.post(self._send)
                    self._wait(ROOM)
                self._queue[self._next] = payload
                self._next += 1
        self.position += len(records)
        self._connection.post(self._send)
        self._complain()

    def truncate(self, position: int) -> None:
        """Only count from there: what was sent cannot be taken back, and is sent again as it was."""
        self.position = position

    def flush(self, sync: bool = False) -> None:
        """With `sync`, return once the broker has confirmed all."""
        with self._changed:
            self._wait(1 if sync else ROOM + 1)

    def close(self, finished: bool = True) -> None:
        """Wait until the broker has all, and say goodbye."""
        try:
            if finished:
                self.flush(sync=True)
        finally:
            self._connection.close()

    def _wait(self, below: int) -> None:
        """Wait until fewer records than so many are under way."""
        until = time.monotonic() + self._patience
        self._stopping.begin()
        while self._error is None and len(self._queue) >= below:
            self._stopping.check(str(self._address))
            if not self._changed.wait(_SLICE) and time.monotonic() >= until:
                raise UnreachableError(
                    f"{self._address}: the broker has not confirmed {len(self._queue)} messages within "
                    f"{self._patience:.0f} s: with a checkpoint nothing is lost; call it again"
                )
        self._complain()

    def _complain(self) -> None:
        if self._error is not None:
            raise self._error

    # -- in the thread of the connection ---------------------------------------------------------------

    def _send(self, client: Client, connection: int) -> None:
        """Send what was not sent on this connection, a few ahead of what is confirmed."""
        del connection
        with self._changed:
            while self._unsent < self._next and len(self._sent) < _AHEAD:
                number = self._unsent
                self._unsent += 1
                info = client.publish(self._address.path, self._queue[number], qos=1)
                self._sent[info.mid] = number

    def opened(self, client: Client, number: int, session: bool) -> bool:
        """Send again what is not confirmed, in order."""
        del client, number, session
        with self._changed:
            self._sent.clear()
            self._unsent = min(self._queue, default=self._next)
        self._connection.post(self._send)
        return True

    def published(self, mid: int, code: int, name: str) -> None:
        """Forget a message that the broker has."""
        with self._changed:
            if code >= _REFUSED:
                self._error = UnreachableError(
                    f"{self._address}: the broker refuses what we send ({name}): look at the topic, and "
                    "at what it allows this user"
                )
            number = self._sent.pop(mid, None)
            if number is not None:
                self._queue.pop(number, None)
            self._changed.notify_all()
        if self._unsent < self._next:
            self._connection.post(self._send)

    def closed(self, words: str) -> None:
        """Wait for the next connection."""

    def failed(self, error: UnreachableError) -> None:
        """Take note that there will be no other connection."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def received(self, number: int, message: MQTTMessage) -> None:
        """Do nothing: we asked for none."""

    def confirmed(self, number: int) -> None:
        """Do nothing: we asked for none."""

    def subscribed(self, code: int) -> UnreachableError | None:
        """Do nothing: we asked for none."""
        del code
        return None

    def full(self) -> bool:
        """Whether nothing more should be read for now: never."""
        return False
