"""Records for receivers that may be away: kept on disk, sent in the background, retried with backoff."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from baryflow import container
from baryflow.exceptions import RefusedError
from baryflow.runtime.session import describe_error
from baryflow.streams import Sink
from baryflow.streams.base import MessageSink
from baryflow.streams.sinks import encode_record

_log = logging.getLogger("baryflow.runtime")
#: Records that wait, at most; with more, the oldest are dropped.
MOST = 10_000
#: The first and the longest pause between two attempts, in seconds.
PAUSES = (1.0, 60.0)
#: Seconds for which the last records are sent when the process ends.
_GRACE = 5.0


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
        try:
            self._sink.write([record])
            self._sink.flush()
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


class Outbox(MessageSink):
    """A sink that never waits: a thread sends its records in order, and again until they arrive.

    Every record is sent at least once. One that is written again, because a killed process replays its
    journal, is recognised by its content.

    Parameters
    ----------
    sender : Sender
    path : path, optional
        File of what is not sent yet; without it, records do not survive the process.
    most : int, optional
        Records that wait, at most.
    pauses : (float, float), optional
        The first and the longest pause between two attempts, in seconds.
    """

    def __init__(
        self,
        sender: Sender,
        path: str | os.PathLike[str] | None = None,
        most: int = MOST,
        pauses: tuple[float, float] = PAUSES,
    ) -> None:
        self._sender, self._most, self._pauses = sender, most, pauses
        self._changed = threading.Condition()
        self._waiting: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()  # ids of the last records, also of sent ones
        self._ending = self._closing = False
        sender.stop_when(lambda: self._ending)
        self._path = None if path is None else Path(path)
        self._n_lines = 0
        self._unwritten = b""  # lines, or the rest of one: the disk may be full
        if self._path is not None and self._path.exists():
            self._read(self._path)
        self._file = None if self._path is None else self._path.open("ab", buffering=0)
        self._thread = threading.Thread(target=self._run, name="baryflow-outbox", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def write(self, records: list[dict[str, Any]]) -> None:
        """Queue records, unless they are known.

        Parameters
        ----------
        records : list of dict

        Raises
        ------
        OSError
            If they cannot be written to disk. They are sent all the same, but do not survive the
            process; write them again to try again.
        """
        with self._changed:
            for record in records:
                plain = json.loads(encode_record(record))
                content = json.dumps(plain, sort_keys=True).encode()  # whatever the order of its fields
                name = hashlib.sha256(content).hexdigest()[:32]
                if name in self._known:
                    continue
                self._add(name, plain)
                self._append({"id": name, "record": plain})
            self.position += len(records)
            self._changed.notify_all()
            self._write_lines()

    def _add(self, name: str, record: dict[str, Any]) -> None:
        self._waiting[name] = record
        self._known[name] = None
        while len(self._waiting) > self._most:
            old, _ = self._waiting.popitem(last=False)
            self._append({"done": old})
            _log.error("%s: %d messages wait; the oldest is dropped", self._sender.name, self._most)
        while len(self._known) > 2 * self._most:
            self._known.popitem(last=False)

    def flush(self) -> None:
        """Return when all records are on disk, from where they are sent."""
        with self._changed:
            if self._file is None:
                return
            self._write_lines()
            copy = os.dup(self._file.fileno())
        try:
            os.fsync(copy)  # without the lock: others may write
        finally:
            os.close(copy)

    def close(self, finished: bool = True) -> None:
        """Send what can be sent within a few seconds, and stop.

        Parameters
        ----------
        finished : bool, default=True
            If not, do not wait.
        """
        until = time.monotonic() + (_GRACE if finished else 0.0)
        self._ending = True
        with self._changed:
            while self._waiting and (left := until - time.monotonic()) > 0.0:
                self._changed.wait(left)
            self._closing = True
            self._changed.notify_all()
        self._thread.join(2.0 * _GRACE)  # a sender that waits gives up after its own grace period
        if self._waiting:
            rest = "the next process sends them" if self._path is not None else "they are lost"
            _log.warning("%s: %d messages are not sent; %s", self._sender.name, len(self._waiting), rest)
        with self._changed:
            if self._file is not None:
                self._try_to_write()
                self._file.close()
                self._file = None

    # -- the file --------------------------------------------------------------------------------

    def _read(self, path: Path) -> None:
        """Read what an earlier process has left."""
        for line in path.read_bytes().splitlines():
            self._n_lines += 1
            try:
                found = json.loads(line)
                if "done" in found:
                    self._waiting.pop(found["done"], None)
                else:
                    self._waiting[found["id"]] = found["record"]
                    self._known[found["id"]] = None
            except (ValueError, TypeError, KeyError):  # a kill has cut it off
                continue
        # The leading newline ends a line that a kill has cut off.
        with path.open("ab") as file:
            file.write(b"\n")

    def _append(self, content: dict[str, Any]) -> None:
        """Add a line that is to be written; the lock is held."""
        if self._file is None:
            return
        self._unwritten += encode_record(content).encode()
        self._n_lines += 1

    def _write_lines(self) -> None:
        """Write all lines, or raise OSError; the lock is held."""
        if self._file is None or self._path is None:
            return
        if self._n_lines > 8 * self._most:  # half of them at most are needed
            self._compact(self._path)
            self._unwritten = b""
            self._file.close()
            self._file = self._path.open("ab", buffering=0)
        while self._unwritten:
            self._unwritten = self._unwritten[self._file.write(self._unwritten) :]

    def _try_to_write(self) -> None:
        try:
            self._write_lines()
        except OSError as error:
            _log.error("cannot write %s: %s; messages may be sent again", self._path, error)

    def _compact(self, path: Path) -> None:
        """Write the file again, without records that were sent; their ids are kept."""
        lines = [{"id": name, "record": self._waiting.get(name, {})} for name in self._known] + [
            {"done": name} for name in self._known if name not in self._waiting
        ]
        container.write_bytes(path, "".join(map(encode_record, lines)).encode())
        self._n_lines = len(lines)

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = self._pauses[0]
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if self._closing:
                    break
                name, record = next(iter(self._waiting.items()))
            try:
                self.flush()  # before anything is sent that might be forgotten
            except OSError as error:  # better sent twice than not at all
                _log.error("cannot write %s: %s; messages may be sent again", self._path, error)
            try:
                self._sender.send(name, record)
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
                if self._waiting.pop(name, None) is not None:
                    self._append({"done": name})
                self._try_to_write()
                self._changed.notify_all()
        self._sender.close()


class Outboxes(Sink):
    """Several outboxes as one sink.

    Parameters
    ----------
    sinks : sequence of Sink
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)

    @property
    def position(self) -> int:
        """Records written."""
        return max((sink.position for sink in self._sinks), default=0)

    def write(self, records: list[dict[str, Any]]) -> None:
        """Write records to all; raise OSError if one of them cannot write."""
        errors = []
        for sink in self._sinks:
            try:
                sink.write(records)
            except OSError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def truncate(self, position: int) -> None:
        """Reset the counts."""
        for sink in self._sinks:
            sink.truncate(position)

    def flush(self) -> None:
        """Flush all."""
        for sink in self._sinks:
            sink.flush()

    def close(self, finished: bool = True) -> None:
        """Close all."""
        for sink in self._sinks:
            sink.close(finished)
