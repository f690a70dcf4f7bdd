"""Records to an MQTT topic, each confirmed by the broker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from baryflow.exceptions import UnreachableError
from baryflow.streams.backoff import SLICE, Backoff
from baryflow.streams.base import MessageSink
from baryflow.streams.mqtt.connection import ClientConfig, Connection, Listener
from baryflow.streams.sinks import encode_record
from baryflow.streams.urls import Endpoint

if TYPE_CHECKING:
    from paho.mqtt.client import Client

_log = logging.getLogger("baryflow.streams")
#: Records that may be unconfirmed; with more, ``write`` waits.
ROOM = 10_000
#: Records that are sent but not confirmed, at most.
_INFLIGHT = 100
_REFUSED = 0x80


class MqttSink(Listener, MessageSink):
    """Sends records, and sends unconfirmed ones again on the next connection.

    A broker that is away is waited for without limit, until the process is asked to stop.
    """

    def __init__(self, endpoint: Endpoint, config: ClientConfig) -> None:
        self._endpoint, self._backoff = endpoint, Backoff(endpoint, endpoint.policy)
        self._changed = threading.Condition()
        self._queue: dict[int, bytes] = {}  # record number → message, until it is confirmed
        self._next = 0  # number of the next record
        self._sent: dict[int, int] = {}  # packet identifier → record number, on this connection
        self._unsent = 0  # number of the first record not sent on this connection
        self._error: UnreachableError | None = None
        self._connection = Connection(endpoint, config, self)
        self._connection.start()

    def stop_when(self, stop: Callable[[], bool]) -> None:
        """Do not wait long for the broker once `stop` returns True."""
        self._backoff.stop = stop

    def write(self, records: list[dict[str, Any]]) -> None:
        """Queue records for sending; wait if too many are unconfirmed."""
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
        self._raise_error()

    def flush(self) -> None:
        """Return once the broker has confirmed all records."""
        with self._changed:
            self._wait(1)

    def close(self, finished: bool = True) -> None:
        """Wait until the broker has confirmed all records, and disconnect."""
        try:
            if finished:
                self.flush()
        finally:
            self._connection.close()

    def _wait(self, below: int) -> None:
        """Wait until fewer than `below` records are unconfirmed."""
        self._backoff.begin()
        while self._error is None and len(self._queue) >= below:
            self._backoff.check()
            self._changed.wait(SLICE)
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    # -- in the thread of the connection ---------------------------------------------------------------

    def _send(self, client: Client, connection: int) -> None:
        """Send what was not sent on this connection, up to the limit of unconfirmed records."""
        del connection
        with self._changed:
            while self._unsent < self._next and len(self._sent) < _INFLIGHT:
                number = self._unsent
                self._unsent += 1
                info = client.publish(self._endpoint.path, self._queue[number], qos=1)
                self._sent[info.mid] = number

    def opened(self, client: Client, number: int, session: bool) -> bool:
        """Send unconfirmed records again, in order."""
        del client, number, session
        with self._changed:
            self._sent.clear()
            self._unsent = min(self._queue, default=self._next)
        self._connection.post(self._send)
        return True

    def closed(self, reason: str) -> None:
        """Report that the broker is away."""
        _log.warning("%s: no connection (%s); retrying", self._endpoint, reason)

    def published(self, mid: int, code: int, name: str) -> None:
        """Remove a confirmed record."""
        with self._changed:
            if code >= _REFUSED:
                self._error = UnreachableError(
                    f"{self._endpoint}: the broker refuses our messages ({name}): check the topic and "
                    "the permissions of this user"
                )
            number = self._sent.pop(mid, None)
            if number is not None:
                self._queue.pop(number, None)
            self._changed.notify_all()
        if self._unsent < self._next:
            self._connection.post(self._send)

    def failed(self, error: UnreachableError) -> None:
        """Store an error that ends the connection for good."""
        with self._changed:
            self._error = error
            self._changed.notify_all()
