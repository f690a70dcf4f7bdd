"""The targets of a service, seen from the event loop: limits, workers, and what is known of each target.

Each target belongs to one worker, found from its name. Requests for a target are sent to its worker,
which answers them in order; the summaries that it sends along are kept here, so that the list of targets
and the metrics need no worker.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from baryflow.exceptions import BaryflowError, InvalidInputError
from baryflow.runtime import Checkpoint, SessionConfig
from baryflow.service.errors import RequestError, busy
from baryflow.service.layout import assign, folders, redistribute
from baryflow.service.parsing import Limits, Parser
from baryflow.service.target_store import TargetStore
from baryflow.service.worker import (
    NO_ALARMS,
    ProcessChannel,
    Reply,
    Request,
    ThreadChannel,
    Worker,
    fork,
    read_failure,
)

_log = logging.getLogger("baryflow.service")
#: Called on the event loop with the name of a target and the answer to its rows or labels; the answer
#: to a deletion has no body.
Listener = Callable[[str, Reply], None]
#: Called on the event loop with the name of a target and events of its alarms; keeps them, or raises
#: OSError, and is called again then. After a kill it may be called with events that it has kept before.
Keeper = Callable[[str, list[dict[str, Any]]], None]
#: Seconds to wait for workers of a service that was killed to end.
_PATIENCE = 60.0


@dataclass(frozen=True, eq=False)
class _Call:
    """A request to a worker that is not answered yet."""

    what: str
    name: str
    worker: int
    answer: asyncio.Future[Reply]


@dataclass(frozen=True, eq=False)
class _Alarms:
    """Events of alarms that are not kept yet, by target, in the reply to a request."""

    worker: int
    id: int
    events: list[tuple[str, list[dict[str, Any]]]]


class Targets:
    """The targets of a service.

    Parameters
    ----------
    config : SessionConfig
    checkpoint : Checkpoint or None
        Without it targets do not survive the process.
    limits : Limits
    parser : Parser
    listen : callable
        See :data:`Listener`.
    keep : callable
        See :data:`Keeper`.
    n_workers : int
        One worker is a thread of this process; more than one are processes.

    Attributes
    ----------
    channels : sequence of ThreadChannel or ProcessChannel
        To the workers.
    state : {"starting", "ready", "stopping", "stopped", "failed"}
    summaries : dict of str → dict
        The entry of each target in the list of targets, also of those on disk.
    on_failure : callable or None
        Called with the error if the service cannot continue.
    """

    def __init__(
        self,
        config: SessionConfig,
        checkpoint: Checkpoint | None,
        limits: Limits,
        parser: Parser,
        listen: Listener,
        keep: Keeper,
        n_workers: int = 1,
    ) -> None:
        self.limits, self.state = limits, "starting"
        self.summaries: dict[str, dict[str, Any]] = {}
        self.on_failure: Callable[[Exception], None] | None = None
        self._checkpoint, self._listen, self._keep = checkpoint, listen, keep
        self._unkept: deque[_Alarms] = deque()
        self._pending: dict[int, _Call] = {}
        self._serial = 0
        self._queued: Counter[str] = Counter()  # requests that change a target
        self._new: set[str] = set()  # targets whose first rows are being processed
        self._idle = asyncio.Event()
        self._started = [asyncio.Event() for _ in range(n_workers)]
        self._ended, self._closing = [False] * n_workers, False
        self._failure: Exception | None = None
        self._totals: list[dict[str, int]] = [{} for _ in range(n_workers)]
        self._in_memory: list[set[str]] = [set() for _ in range(n_workers)]
        if checkpoint is not None:
            redistribute(checkpoint, config, n_workers, limits.in_memory, _PATIENCE)
        self.channels = _start_workers(config, checkpoint, limits, parser, n_workers)

    # -- start and end ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Resume from the checkpoint; raise BaryflowError if that is impossible."""
        for number, channel in enumerate(self.channels):
            await channel.open(partial(self._receive, number))
        for one in self._started:
            await one.wait()
        if self._failure is not None:
            raise self._failure
        if self.state == "starting":
            self.state = "ready"

    async def close(self) -> None:
        """Finish all requests, and save a snapshot."""
        if self.state == "stopped":
            return
        self.state = "stopping"
        while self._pending:
            self._idle.clear()
            await self._idle.wait()
        self._keep_alarms()
        self._closing = True
        for channel, has_ended in zip(self.channels, self._ended, strict=True):
            if not has_ended:
                channel.send(Request(0, "close"))
        for channel in self.channels:
            await channel.join()
        if self._checkpoint is not None and len(self.channels) > 1:
            self._checkpoint.close()
        self.state = "stopped"

    def require_ready(self) -> None:
        """Refuse requests while the journal is replayed and while the service stops."""
        if self.state != "ready":
            raise RequestError(503, f"the service is {self.state}: retry", {"Retry-After": "1"})

    # -- requests --------------------------------------------------------------------------------

    async def take(self, name: str, kind: str, batch_id: str | None, body: bytes) -> Reply:
        """Journal, predict and learn rows of a target; a new target begins with them.

        Raise RequestError if the rows are invalid, there are too many targets or requests, or the disk
        is full; the rows are not taken then.
        """
        self._require_room(name)
        known = self.summaries
        if name not in known and name not in self._new:
            if len(known) + sum(new not in known for new in self._new) >= self.limits.targets:
                raise RequestError(
                    409,
                    f"there are {self.limits.targets} targets already, and no room for {name!r}: delete "
                    "some",
                )
            self._new.add(name)
        return await self._call("rows", name, kind, batch_id, body)

    async def label(self, name: str, request_id: str | None, body: bytes, what: str = "labels") -> Reply:
        """Journal and learn labels of a target, or if they are `what`, a baseline.

        Raise RequestError if there is no such target, the labels are invalid, there are too many
        requests, or the disk is full; the labels are not taken then.
        """
        self._require_room(name)
        return await self._call(what, name, "", request_id, body)

    async def command(self, name: str, action: str, body: bytes) -> Reply:
        """Journal and carry out a command about an alarm of a target.

        Raise RequestError if it is invalid or refused, there is no such target, there are too many
        requests, or the disk is full.
        """
        self._require_room(name)
        return await self._call("command", name, action, body=body)

    async def delete(self, name: str) -> None:
        """Delete a target; raise RequestError if there is none, or the disk is full."""
        self.require_ready()
        await self._call("delete", name)

    async def view(self, name: str, kind: str, *arguments: int) -> bytes:
        """Return a view of a target as JSON, see :data:`~baryflow.service.worker.VIEWS`."""
        self.require_ready()
        return (await self._call("view", name, kind, arguments=arguments)).body

    def _require_room(self, name: str) -> None:
        """Refuse a request if too many are waiting."""
        self.require_ready()
        if self.n_waiting >= self.limits.requests:
            raise busy(f"{self.n_waiting} requests are waiting: send more slowly")
        if self._queued[name] >= self.limits.waiting:
            raise busy(f"{self._queued[name]} requests for {name} are waiting: send one at a time")

    async def _call(
        self,
        what: str,
        name: str,
        kind: str = "",
        batch_id: str | None = None,
        body: bytes = b"",
        arguments: Sequence[int] = (),
    ) -> Reply:
        """Send a request to the worker of a target, which finishes it even if the client is gone."""
        self._serial += 1
        worker = assign(name, len(self.channels))
        call = _Call(what, name, worker, asyncio.get_running_loop().create_future())
        self._pending[self._serial] = call
        if what != "view":
            self._queued[name] += 1
        self.channels[worker].send(
            Request(self._serial, what, name, kind, batch_id, body, list(arguments))
        )
        reply = await call.answer
        if reply.status >= 400:
            raise RequestError(reply.status, reply.error, reply.headers)
        return reply

    @property
    def n_waiting(self) -> int:
        """Requests with rows or labels, or deletions, that are being processed."""
        return self._queued.total()

    # -- what workers send -----------------------------------------------------------------------

    def total(self, what: str) -> int:
        """Return a number that all workers count: see :attr:`~baryflow.service.worker.Reply.totals`."""
        return sum(totals.get(what, 0) for totals in self._totals)

    @property
    def n_in_memory(self) -> int:
        """Targets in memory."""
        return sum(map(len, self._in_memory))

    def has_in_memory(self, name: str) -> bool:
        """Return whether a target is in memory."""
        return name in self._in_memory[assign(name, len(self.channels))]

    def worker_memory(self) -> list[float]:
        """Return the bytes of memory of each worker process; empty if they are not known."""
        try:
            return [channel.memory() for channel in self.channels if isinstance(channel, ProcessChannel)]
        except OSError:  # not on this platform, or a worker has ended
            return []

    def _receive(self, worker: int, reply: Reply | None) -> None:
        """Handle a reply of a worker; None: it has ended."""
        if reply is None:
            self._on_end(worker)
            return
        if reply.totals:
            self._totals[worker] = reply.totals
        if reply.in_memory is not None:
            self._in_memory[worker] = set(reply.in_memory)
        if reply.id:
            self._finish(reply)
        elif reply.status >= 400:
            self._fail(read_failure(reply))
            self._started[worker].set()
        elif reply.body:  # the worker has resumed from its checkpoint
            self.summaries |= msgspec.json.decode(reply.body)
            self._unkept.append(_Alarms(worker, 0, msgspec.json.decode(reply.alarms)))
            self._keep_alarms()
            self._started[worker].set()

    def _finish(self, reply: Reply) -> None:
        """Answer a request."""
        call = self._pending.pop(reply.id)
        name = call.name
        if call.what != "view":
            self._queued[name] -= 1
            if not self._queued[name]:
                del self._queued[name]
                self._new.discard(name)
        if call.what == "delete" and reply.status < 400:
            del self.summaries[name]
            self._listen(name, reply)
        elif reply.summary:
            self.summaries[name] = msgspec.json.decode(reply.summary)
            self._listen(name, reply)
            if reply.alarms != NO_ALARMS:
                events = msgspec.json.decode(reply.alarms)
                self._unkept.append(_Alarms(call.worker, reply.id, [(name, events)]))
            self._keep_alarms()
        if not call.answer.done():
            call.answer.set_result(reply)
        if not self._pending:
            self._idle.set()

    def _keep_alarms(self) -> None:
        """Keep alarms, and those that could not be kept before; tell their workers."""
        while self._unkept:
            first = self._unkept[0]
            try:
                for name, events in first.events:
                    self._keep(name, events)
            except OSError as error:  # the rows are accepted all the same
                _log.error("alarms cannot be kept: %s; trying again with the next rows", error)
                return
            self._unkept.popleft()
            if not self._ended[first.worker]:
                self.channels[first.worker].send(Request(first.id, "noted"))

    def _on_end(self, worker: int) -> None:
        """Fail, unless the worker was to end."""
        self._ended[worker] = True
        if not self._closing and self._failure is None:
            self._fail(
                BaryflowError(
                    "a worker process has ended: no acknowledged row is lost; start the service again "
                    "to resume"
                )
            )
        message = "the service failed; the rows may be stored: send them again with the same batch id"
        for number in [number for number, call in self._pending.items() if call.worker == worker]:
            self._finish(Reply(number, 503, error=message, headers={"Retry-After": "1"}))
        self._started[worker].set()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        is_running, self.state = self.state == "ready", "failed"
        _log.error("%s", error)
        if is_running and self.on_failure is not None:
            self.on_failure(error)


def usable_cores() -> int:
    """Return on how many cores this process may run; 1 if it cannot fork workers."""
    if not hasattr(os, "fork"):
        return 1
    affinity = getattr(os, "sched_getaffinity", None)  # not on every platform
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


def _start_workers(
    config: SessionConfig, checkpoint: Checkpoint | None, limits: Limits, parser: Parser, n: int
) -> Sequence[ThreadChannel | ProcessChannel]:
    """Start `n` workers, each with its share of the limits."""
    most, every = math.ceil(limits.in_memory / n), math.ceil(limits.snapshot_every / n)
    quarantine = None if checkpoint is None else checkpoint.folder / "quarantine.ndjson"

    def make(opened: Checkpoint | None, path: Path | None) -> Worker:
        store = TargetStore(config, opened, most, path)
        return Worker(store, opened, parser, every, limits.snapshot_seconds)

    if n == 1:
        return [ThreadChannel(make(checkpoint, quarantine))]
    if not hasattr(os, "fork"):
        raise InvalidInputError("this platform cannot fork: use one worker")

    def make_in_process(number: int) -> Worker:
        if checkpoint is None or quarantine is None:
            return make(None, None)
        opened = Checkpoint(folders(checkpoint.folder, n)[number], _PATIENCE)
        return make(opened, quarantine.with_stem(f"quarantine-{number}"))

    # A worker keeps its own folder locked, not that of the service.
    return fork(n, make_in_process, lambda: None if checkpoint is None else checkpoint.close())
