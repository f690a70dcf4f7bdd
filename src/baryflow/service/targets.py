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
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from baryflow.exceptions import BaryflowError, InvalidInputError
from baryflow.runtime import SessionConfig, Store
from baryflow.runtime.outbox import Outbox
from baryflow.runtime.store import Message
from baryflow.service.errors import RequestError, busy
from baryflow.service.layout import PATIENCE, prepare
from baryflow.service.metrics import Metrics, TargetCollector
from baryflow.service.parsing import Inbox, Limits, Parser
from baryflow.service.sse import Hub
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
from baryflow.service.worker_targets import WorkerTargets, assign, quarantine_name, store_names

_log = logging.getLogger("baryflow.service")
#: Seconds over which rows per second are averaged.
_WINDOW = 10.0
#: Views of targets that are kept until their targets change.
_VIEWS = 16
#: Every change of a target changes at least one of these figures of its summary.
_VERSION = ("rows_seen", "n_labels", "n_baseline_rows", "n_commands")


@dataclass(frozen=True, eq=False)
class _Call:
    """A request to a worker that is not answered yet."""

    what: str
    name: str
    worker: int
    answer: asyncio.Future[Reply]


@dataclass
class _Pace:
    """How fast rows of a target have come: when the last, how many a second, the longest gap lately."""

    at: float
    speed: float = 0.0
    gap: float | None = None

    def count(self, n_rows: int) -> None:
        """Count rows that have come now."""
        now = time.monotonic()
        if self.speed:
            self.gap = max(now - self.at, 0.8 * (self.gap or 0.0))
        self.speed, self.at = self.rows_per_second(now) + n_rows / _WINDOW, now

    def rows_per_second(self, now: float) -> float:
        """Return an average that forgets."""
        return self.speed * math.exp((self.at - now) / _WINDOW)


class Targets:
    """The targets of a service, with its limits, metrics and live updates.

    Without a folder targets do not survive the process. One worker is a thread of this process; more
    are processes. The state is starting, ready, stopping, stopped or failed; ``on_failure`` is called
    with the error if the service cannot continue. ``summaries`` has the entry of each target in the
    list of targets, also of those on disk; ``channels`` lead to the workers, ``hub`` sends live updates,
    ``inbox`` receives the bodies of requests, and the outbox sends alarms.
    """

    def __init__(
        self,
        config: SessionConfig,
        folder: Path | None,
        limits: Limits,
        outbox: Outbox | None = None,
        n_workers: int = 1,
    ) -> None:
        self.limits, self.state, self.outbox = limits, "starting", outbox
        self.metrics, self.hub, self.inbox = Metrics(), Hub(limits.listeners), Inbox(limits)
        self.metrics.registry.register(TargetCollector(self))
        self.summaries: dict[str, dict[str, Any]] = {}
        self.on_failure: Callable[[Exception], None] | None = None
        self._pending: dict[int, _Call] = {}
        self._serial = 0
        self._queued: Counter[str] = Counter()  # requests that change a target
        self._new: set[str] = set()  # targets whose first rows are being processed
        self._idle = asyncio.Event()
        self._started = [asyncio.Event() for _ in range(n_workers)]
        self._ended = [False] * n_workers
        self._closing = self._has_failed = False
        self._totals: list[dict[str, int]] = [{} for _ in range(n_workers)]
        self._in_memory: list[set[str]] = [set() for _ in range(n_workers)]
        self._paces: dict[str, _Pace] = {}
        self._views: OrderedDict[tuple[Any, ...], asyncio.Future[bytes]] = OrderedDict()
        if folder is not None:  # it has its own model
            config = prepare(folder, config, n_workers, limits.in_memory)
        self.parser = Parser.of_model(config.base, limits.rows)
        self.channels = _start_workers(config, folder, limits, self.parser, n_workers)

    # -- start and end ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Resume from the checkpoint; if that is impossible, the state is "failed"."""
        self._event_loop = asyncio.get_running_loop()
        for number, channel in enumerate(self.channels):
            await channel.open(partial(self._receive, number))
        for one in self._started:
            await one.wait()
        if self.state == "starting":
            self.state = "ready"

    async def close(self) -> None:
        """Finish all requests, send alarms if that takes no more than seconds, and commit everything."""
        self.hub.close()
        if self.state == "stopped":
            return
        self.state = "stopping"
        while self._pending:
            self._idle.clear()
            await self._idle.wait()
        if self.outbox is not None:
            await asyncio.to_thread(self.outbox.close)
        await asyncio.sleep(0.0)  # what was sent is passed on to the workers
        self._closing = True
        for channel, has_ended in zip(self.channels, self._ended, strict=True):
            if not has_ended:
                channel.send(Request(0, "close"))
        for channel in self.channels:
            await channel.join()
        self.state = "stopped"

    def require_ready(self) -> None:
        """Refuse requests while the journal is replayed and while the service stops."""
        if self.state != "ready":
            raise RequestError(503, f"the service is {self.state}: retry", {"Retry-After": "1"})

    # -- requests --------------------------------------------------------------------------------

    async def change(
        self, what: str, name: str, body: bytes = b"", kind: str = "", request_id: str | None = None
    ) -> bytes:
        """Change a target by rows, labels, a baseline or a command, or delete it; return the answer.

        Raise RequestError if the request is invalid, there is no such target, there are too many targets
        or requests, or the disk is full; nothing is changed then. The first rows create a target.
        """
        self.require_ready()
        if what != "delete":
            self._require_room(name)
        if what == "rows" and name not in self.summaries and name not in self._new:
            n_new = sum(one not in self.summaries for one in self._new)
            if len(self.summaries) + n_new >= self.limits.targets:
                raise RequestError(
                    409,
                    f"there are {self.limits.targets} targets already, and no room for {name!r}: delete "
                    "some",
                )
            self._new.add(name)
        self._queued[name] += 1
        return await self._call(what, name, kind, request_id, body)

    async def view(self, name: str, kind: str, *arguments: int) -> bytes:
        """Return a view of a target as JSON, see :data:`~baryflow.service.worker.VIEWS`."""
        self.require_ready()
        return await self._call("view", name, kind, arguments=arguments)

    async def shared_view(self, name: str, kind: str) -> bytes:
        """Return a view of a target as JSON; until the target changes, it is prepared once for all."""
        summary = self.summaries.get(name, {})
        key = (name, kind, *(summary.get(figure) for figure in _VERSION))
        if key not in self._views:
            self._views[key] = asyncio.ensure_future(self.view(name, kind))
            self._views[key].add_done_callback(partial(self._forget_failed, key))
            while len(self._views) > _VIEWS:
                self._views.popitem(last=False)
        self._views.move_to_end(key)
        return await asyncio.shield(self._views[key])  # others wait for it if a client is gone

    def _forget_failed(self, key: tuple[Any, ...], view: asyncio.Future[bytes]) -> None:
        if view.cancelled() or view.exception() is not None:
            self._views.pop(key, None)

    async def describe(self, name: str, kind: str = "detail") -> dict[str, Any] | None:
        """Return everything about a target, with a "report" if wanted; None if it does not exist."""
        try:
            found = await self.shared_view(name, kind)
        except RequestError as error:
            if error.status != 404:
                raise
            return None
        entry = self.entry(name)
        return None if entry is None else entry | msgspec.json.decode(found)

    def entry(self, name: str) -> dict[str, Any] | None:
        """Return the entry of a target in the list of targets; None if there is no such target."""
        summary = self.summaries.get(name)
        if summary is None:
            return None
        now = time.monotonic()
        pace = self._paces.get(name, _Pace(now))
        in_memory = name in self._in_memory[assign(name, len(self.channels))]
        return {
            "name": name,
            **summary,
            "state": "in memory" if in_memory else "on disk",
            "rows_per_second": round(pace.rows_per_second(now), 3),
            "seconds_since_rows": round(now - pace.at, 1) if pace.speed else None,
            "seconds_between_rows": None if pace.gap is None else round(pace.gap, 1),
        }

    def _require_room(self, name: str) -> None:
        """Refuse a request if too many are waiting."""
        if self.n_waiting >= self.limits.requests:
            raise busy(f"{self.n_waiting} requests are waiting: send more slowly")
        if self._queued[name] >= self.limits.waiting:
            raise busy(f"{self._queued[name]} requests for {name} are waiting: send one at a time")

    async def _call(
        self,
        what: str,
        name: str,
        kind: str,
        request_id: str | None = None,
        body: bytes = b"",
        arguments: Sequence[int] = (),
    ) -> bytes:
        """Send a request to the worker of a target, which finishes it even if the client is gone."""
        self._serial += 1
        worker = assign(name, len(self.channels))
        call = _Call(what, name, worker, asyncio.get_running_loop().create_future())
        self._pending[self._serial] = call
        self.channels[worker].send(
            Request(self._serial, what, name, kind, request_id, body, list(arguments))
        )
        reply = await call.answer
        if reply.status >= 400:
            raise RequestError(reply.status, reply.error, reply.headers)
        return reply.body

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
            self._send_alarms(worker, reply.alarms)
            self._started[worker].set()

    def _finish(self, reply: Reply) -> None:
        """Answer a request."""
        call = self._pending.pop(reply.id)
        name = call.name
        for what, n in reply.counts.items():
            self.metrics.counters[what].inc(n)
        if call.what != "view":
            self._queued[name] -= 1
            if not self._queued[name]:
                del self._queued[name]
                self._new.discard(name)
        is_deleted = call.what == "delete" and reply.status < 400
        if is_deleted:
            self._forget(name)
        elif reply.summary:
            self.summaries[name] = msgspec.json.decode(reply.summary)
            if n_rows := reply.counts.get("rows"):
                self._paces.setdefault(name, _Pace(0.0)).count(n_rows)
            self._send_alarms(call.worker, reply.alarms)
        if self.hub.slots and (is_deleted or reply.summary):
            self.hub.publish(name, reply.body)
        if not call.answer.done():
            call.answer.set_result(reply)
        if not self._pending:
            self._idle.set()

    def _forget(self, name: str) -> None:
        """Forget a target that was deleted."""
        del self.summaries[name]
        self._paces.pop(name, None)
        for key in [key for key in self._views if key[0] == name]:
            del self._views[key]

    def _send_alarms(self, worker: int, content: bytes) -> None:
        """Send alarms; their worker is notified when receivers have them."""
        if content == NO_ALARMS:
            return
        note = partial(self._note_sent, worker)
        for name, target, record, received in msgspec.json.decode(content):
            message = Message(target, 0, 0, 0, "alarms", name, record, set(received))
            if self.outbox is None:
                self._notify(worker, name, set(), True)
            else:
                self.outbox.send([message], note)

    def _note_sent(self, worker: int, message: Message, received: set[str], finished: bool) -> None:
        """Notify the worker of an alarm, from any thread."""
        self._event_loop.call_soon_threadsafe(self._notify, worker, message.name, received, finished)

    def _notify(self, worker: int, name: str, received: set[str], finished: bool) -> None:
        if not self._ended[worker]:
            body = msgspec.json.encode([sorted(received), finished])
            self.channels[worker].send(Request(0, "sent", name, body=body))

    def _on_end(self, worker: int) -> None:
        """Fail, unless the worker was to end."""
        self._ended[worker] = True
        if not self._closing and not self._has_failed:
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
        is_first, self._has_failed, self.state = not self._has_failed, True, "failed"
        _log.error("%s", error)
        if is_first and self.on_failure is not None:
            self.on_failure(error)


def usable_cores() -> int:
    """Return on how many cores this process may run; 1 if it cannot fork workers."""
    if not hasattr(os, "fork"):
        return 1
    affinity = getattr(os, "sched_getaffinity", None)  # not on every platform
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


def _start_workers(
    config: SessionConfig, folder: Path | None, limits: Limits, parser: Parser, n: int
) -> Sequence[ThreadChannel | ProcessChannel]:
    """Start `n` workers, each with its share of the limits."""
    most, every = math.ceil(limits.in_memory / n), math.ceil(limits.snapshot_every / n)

    def make(number: int, patience: float = PATIENCE) -> Worker:
        store = Store(folder, patience, store_names(n)[number])
        quarantine = None if folder is None else folder / quarantine_name(number, n)
        targets = WorkerTargets(config, store, most, quarantine)
        return Worker(targets, parser, every, limits.snapshot_seconds)

    if n == 1:
        return [ThreadChannel(make(0, 0.0))]
    if not hasattr(os, "fork"):
        raise InvalidInputError("this platform cannot fork: use one worker")
    return fork(n, make)
