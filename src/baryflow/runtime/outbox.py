"""Messages to receivers that may be away: sent in the background, retried with backoff.

The store keeps them (:meth:`~baryflow.runtime.loop.Loop.post`) until all receivers have them. So every
message is sent at least once, and again only if the process is killed between sending it and noting
that it was sent.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from baryflow.exceptions import RefusedError
from baryflow.runtime.session import describe_error
from baryflow.runtime.store import Message
from baryflow.streams import Sink

_log = logging.getLogger("baryflow.runtime")
#: Messages that wait for a receiver, at most; with more, the oldest are dropped.
MOST = 10_000
#: The first and the longest pause between two attempts, in seconds.
PAUSES = (1.0, 60.0)
#: Seconds for which the last records are sent when the process ends.
_GRACE = 5.0
#: Called with a message, the receivers that have it, and whether these are all; from any thread.
Note = Callable[[Message, set[str], bool], None]


class Sender(Protocol):
    """Sends one record after the other."""

    @property
    def name(self) -> str:
        """Of the receiver, for messages."""

    def send(self, name: str, record: dict[str, Any]) -> None:
        """Send a record; raise RefusedError if it will never be accepted."""

    def stop_when(self, stop: Callable[[], bool]) -> None:
        """Do not wait long for the receiver once `stop` returns True."""

    def close(self) -> None:
        """Disconnect."""


class SinkSender:
    """Sends records to a sink, which is opened again after an error.

    Parameters
    ----------
    name : str
    open_sink : callable
        Returns the sink.
    """

    def __init__(self, name: str, open_sink: Callable[[], Sink]) -> None:
        self.name, self._open = name, open_sink
        self._sink: Sink | None = open_sink()
        self._position = self._sink.position
        self._stop: Callable[[], bool] = lambda: False

    def stop_when(self, stop: Callable[[], bool]) -> None:
        """Do not wait long for the receiver once `stop` returns True."""
        self._stop = stop
        if self._sink is not None:
            self._sink.stop_when(stop)

    def send(self, name: str, record: dict[str, Any]) -> None:
        """Write a record, and return when it is delivered."""
        del name
        if self._sink is None:
            self._sink = self._open()
            self.stop_when(self._stop)
            if self._sink.position > self._position:  # a full disk has left a part of a record
                self._sink.truncate(self._position)
        try:
            self._sink.write([record])
            self._sink.flush()
            self._position = self._sink.position
        except Exception:
            self.close(finished=False)
            raise

    def close(self, finished: bool = True) -> None:
        """Close the sink."""
        sink, self._sink = self._sink, None
        if sink is not None:
            try:
                sink.close(finished=finished)
            except Exception as error:
                _log.warning("%s: %s", self.name, describe_error(error))


class _Lane:
    """A thread that sends messages to one receiver in order, and again until they arrive."""

    def __init__(self, sender: Sender, most: int, pauses: tuple[float, float]) -> None:
        self.sender, self._most, self._pauses = sender, most, pauses
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Message, Callable[[], None]]] = deque()
        self._ending = self._closing = False
        sender.stop_when(lambda: self._ending)
        self._thread = threading.Thread(target=self._run, name="baryflow-outbox", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, message: Message, done: Callable[[], None]) -> None:
        """Queue a message; `done` is called when it has arrived, or was refused or dropped."""
        dropped = None
        with self._changed:
            self._waiting.append((message, done))
            if len(self._waiting) > self._most:
                dropped = self._waiting.popleft()
            self._changed.notify_all()
        if dropped is not None:
            _log.error("%s: %d messages wait; the oldest is dropped", self.sender.name, self._most)
            dropped[1]()

    def end(self) -> None:
        """Ask the sender not to wait long."""
        self._ending = True

    def close(self, until: float) -> None:
        """Send what can be sent until a time, and stop."""
        with self._changed:
            while self._waiting and (left := until - time.monotonic()) > 0.0:
                self._changed.wait(left)
            self._closing = True
            self._changed.notify_all()
        self._thread.join(2.0 * _GRACE)  # a sender that waits gives up after its own grace period
        if self._waiting:
            _log.warning("%s: %d messages are not sent", self.sender.name, len(self._waiting))

    def _run(self) -> None:
        pause = self._pauses[0]
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if self._closing:
                    break
                first = message, done = self._waiting[0]
            try:
                self.sender.send(message.name, message.record)
            except RefusedError as error:
                _log.error("%s: the message is dropped", error)
            except Exception as error:
                _log.warning("%s; trying again in %.0f s", describe_error(error), pause)
                with self._changed:
                    wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 - so that not all come at once
                    self._changed.wait_for(lambda: self._closing, wait)
                pause = min(2.0 * pause, self._pauses[1])
                continue
            pause = self._pauses[0]
            with self._changed:
                is_first = bool(self._waiting) and self._waiting[0] is first
                if is_first:  # otherwise it was dropped meanwhile
                    self._waiting.popleft()
                    self._changed.notify_all()
            if is_first:
                done()
        self.sender.close()


class Outbox:
    """Sends messages and never waits: each receiver has a thread.

    Parameters
    ----------
    senders : sequence of Sender
    most : int, optional
        Messages that wait for a receiver, at most.
    pauses : (float, float), optional
        The first and the longest pause between two attempts, in seconds.
    """

    def __init__(
        self, senders: Sequence[Sender], most: int = MOST, pauses: tuple[float, float] = PAUSES
    ) -> None:
        self._lanes = [_Lane(sender, most, pauses) for sender in senders]
        self._lock = threading.Lock()  # each receiver has a thread

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    def send(self, messages: Iterable[Message], note: Note) -> None:
        """Queue messages for the receivers that do not have them.

        Parameters
        ----------
        messages : iterable of Message
        note : callable
            Called when a receiver has a message.
        """
        receivers = {lane.sender.name for lane in self._lanes}
        for message in messages:
            received = message.received & receivers
            missing = receivers - received
            if not missing:
                note(message, received, True)

            def done(name: str, message: Message = message, received: set[str] = received) -> None:
                with self._lock:  # that all have it is noted once, after everything else
                    received.add(name)
                    note(message, set(received), received == receivers)

            for lane in self._lanes:
                if lane.sender.name in missing:
                    lane.add(message, partial(done, lane.sender.name))

    def close(self, finished: bool = True) -> None:
        """Send what can be sent within a few seconds, and stop; the next process sends the rest.

        Parameters
        ----------
        finished : bool, default=True
            If not, do not wait.
        """
        until = time.monotonic() + (_GRACE if finished else 0.0)
        for lane in self._lanes:
            lane.end()
        for lane in self._lanes:
            lane.close(until)
