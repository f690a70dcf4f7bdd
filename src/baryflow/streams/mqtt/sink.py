"""Records to an MQTT topic, each confirmed by the broker."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from baryflow.exceptions import UnreachableError
from baryflow.streams.backoff import SLICE, Backoff
from baryflow.streams.base import MessageSink
from baryflow.streams.mqtt.connection import ClientConfig, Connection, Listener
from baryflow.streams.sinks import encode_record
from baryflow.streams.urls import Endpoint

_log = logging.getLogger("baryflow.streams")
#: Records that may be unconfirmed; with more, ``write`` waits.
CAPACITY = 10_000
#: Records that are sent but not confirmed, unless the broker accepts fewer.
_INFLIGHT = 100
_REFUSED = 0x80


class MqttSink(Listener, MessageSink):
    """Sends records; paho sends unconfirmed ones again on the next connection.

    A broker that is away is waited for without limit, until the process is asked to stop.
    """

    def __init__(self, endpoint: Endpoint, config: ClientConfig) -> None:
        self._endpoint, self._backoff = endpoint, Backoff(endpoint, endpoint.policy)
        self._queue: deque[bytes] = deque()  # written, but not handed to paho
        self._written = self._sent = self._confirmed = 0
        self._limit = _INFLIGHT
        self._sending = threading.Lock()
        self._answered = threading.Event()
        self._error: UnreachableError | None = None
        self._connection = Connection(endpoint, config, self)
        self._connection.client.max_inflight_messages_set(0)  # the limit is ours
        self._connection.client.on_publish = self._on_publish
        self._connection.start()

    def stop_when(self, stop: Callable[[], bool]) -> None:
        """Do not wait long for the broker once `stop` returns True."""
        self._backoff.stop = stop

    def write(self, records: list[dict[str, Any]]) -> None:
        """Send records; wait if too many are unconfirmed."""
        for record in records:
            payload = encode_record(record).rstrip("\n").encode()
            self._wait(CAPACITY)
            self._queue.append(payload)
            self._written += 1
        self.position += len(records)
        self._send()
        self._raise_error()

    def flush(self) -> None:
        """Return once the broker has confirmed all records."""
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
        while self._error is None and self._written - self._confirmed >= below:
            self._send()
            self._backoff.check()
            self._answered.wait(SLICE)
            self._answered.clear()
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _send(self) -> None:
        """Hand records to paho, up to the limit of unconfirmed ones.

        paho's thread must not wait for a thread that waits for paho. If another one is sending, do
        nothing; `_wait` tries again.
        """
        if self._sending.acquire(blocking=False):
            try:
                while self._queue and self._sent - self._confirmed < self._limit:
                    self._sent += 1
                    client = self._connection.client
                    client.publish(self._endpoint.path, self._queue.popleft(), qos=1)
            finally:
                self._sending.release()

    # -- in paho's thread ------------------------------------------------------------------------------

    def opened(self, session: bool, properties: Any) -> bool:
        """Send no more at a time than the broker accepts."""
        del session
        self._limit = min(_INFLIGHT, getattr(properties, "ReceiveMaximum", _INFLIGHT))
        return True

    def closed(self, reason: str) -> None:
        """Report that the broker is away."""
        _log.warning("%s: no connection (%s); retrying", self._endpoint, reason)

    def failed(self, error: UnreachableError) -> None:
        """Store an error that ends the connection for good."""
        self._error = error
        self._answered.set()

    def _on_publish(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        """Count a confirmed record."""
        if reason.value >= _REFUSED:
            self._error = UnreachableError(
                f"{self._endpoint}: the broker refuses our messages ({reason.getName()}): check the "
                "topic and the permissions of this user"
            )
        self._confirmed += 1
        self._send()
        self._answered.set()
