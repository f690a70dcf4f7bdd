"""The targets of a service: rows and labels are in the journal before a model sees them, and targets do
not block each other.

Requests meet on the event loop. Two threads do the work: one writes the journal, one has the models.
(Most of a step through arrays of this size holds the interpreter's lock, so a second model thread would
gain little.) Each target has a lock from the moment at which its rows enter the journal until they are
applied, so that rows are replayed in the order in which they were applied. A snapshot blocks no
request: a new journal is begun, every changed target is written when its turn comes, and batches that
the files contain already are skipped by a replay.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from baryflow import container
from baryflow.exceptions import BaryflowError
from baryflow.runtime import (
    Checkpoint,
    DurableLoop,
    Result,
    Session,
    SessionConfig,
    SessionStore,
    Snapshot,
)
from baryflow.runtime.durable import resume_config
from baryflow.runtime.session import describe_error
from baryflow.runtime.session import rows_of as all_rows
from baryflow.service.errors import RequestError, busy, to_json
from baryflow.service.parsing import Limits, Posted, PostedLabels
from baryflow.service.target_record import (
    alarm_events,
    commands_of,
    find_answer,
    find_label_answer,
    labellings_of,
    record,
    record_commands,
    record_labels,
    rows_of,
    summarize,
)
from baryflow.streams import Batch, Rejected
from baryflow.streams.base import AlarmCommand

_log = logging.getLogger("baryflow.service")
Value = TypeVar("Value")
#: Called on the event loop with the name of a target and the answer to its rows or labels; None: it was
#: deleted.
Listener = Callable[[str, "dict[str, Any] | None"], None]
#: Bytes after which a new quarantine file is begun; only one older file is kept.
_QUARANTINE_BYTES = 64 * 2**20


class TargetStore:
    """All targets, as the application of a durable loop; used by the model thread alone.

    Parameters
    ----------
    config : SessionConfig
    checkpoint : Checkpoint or None
        Without it targets do not survive the process.
    most : int
        Sessions in memory, at most.

    Attributes
    ----------
    summaries : dict of str → dict
        The entry of each target in the list of targets, also of those on disk.
    replayed : list of (str, list of dict)
        Events of alarms in replayed batches, and their targets: they may not have been sent.
    """

    owner = "serve"

    def __init__(self, config: SessionConfig, checkpoint: Checkpoint | None, most: int) -> None:
        if checkpoint is not None:
            config, warning = resume_config(config, checkpoint)
            if warning:
                _log.warning("%s", warning)
            checkpoint.keep_options({"batch-size": config.batch_size, "drift": config.drift})
        self.config = config
        self.summaries: dict[str, dict[str, Any]] = {}
        self.replayed: list[tuple[str, list[dict[str, Any]]]] = []
        self.sessions = SessionStore(config, None if checkpoint is None else checkpoint.targets, most)
        self._quarantine = _QuarantineFile(None if checkpoint is None else checkpoint.folder)
        self._loop = DurableLoop(self, checkpoint)

    def recover(self) -> int:
        """Resume from the checkpoint, and return how many batches were replayed."""
        return self._loop.recover(self._is_applied)

    def take(self, batch: Batch) -> dict[str, Any]:
        """Apply a batch of the journal, and return the answer to the client."""
        return self._loop.apply(batch)  # type: ignore[no-any-return]

    def prepare(self, name: str, batch_id: str | None) -> tuple[int, dict[str, Any] | None]:
        """Return how many rows a target has, and the answer to a batch that was applied already.

        Also make room in memory for the target, while the batch can still be refused.
        """
        self.sessions.make_room(name)
        session = self.look(name)
        if session is None:
            return 0, None
        return rows_of(session), None if batch_id is None else find_answer(session, batch_id)

    def prepare_labels(self, name: str, request_id: str | None) -> tuple[int, dict[str, Any] | None]:
        """Return how many requests with labels a target has had, and the answer to a repeated one."""
        self.sessions.make_room(name)
        session = self.look(name)
        if session is None:
            return 0, None
        answer = None if request_id is None else find_label_answer(session, request_id)
        return labellings_of(session), answer

    def prepare_command(self, name: str) -> int:
        """Return how many commands a target has had, and make room in memory for the target."""
        self.sessions.make_room(name)
        session = self.look(name)
        return 0 if session is None else commands_of(session)

    def look(self, name: str) -> Session | None:
        """Return the session of a target in order to read it; None if there is none."""
        return self.sessions.look(name) if name in self.summaries else None

    def apply(self, batch: Batch) -> Result:
        """Predict and learn the rows of one target, learn its labels, or carry out its commands."""
        if batch.cursor.get("delete"):
            return Result()
        session = self.sessions.hold(batch.cursor["target"])
        if batch.commands:
            return session.command(batch.commands)
        return session.label(batch.labels) if batch.labels else session.take(all_rows(batch))

    def quarantine(self, batch: Batch, reason: str) -> Result:
        """Quarantine all rows of a batch, or refuse its labels; they count as acknowledged."""
        result = Result()
        result.reject(all_rows(batch), reason)
        for label in batch.labels:
            result.refuse(label, reason, 0)
        for command in batch.commands:
            result.refuse_command(command, reason, 0)
        return result

    def finish(self, batch: Batch, result: Result) -> dict[str, Any]:
        """Record a batch, or delete its target, and return the answer to the client."""
        name = batch.cursor["target"]
        if batch.cursor.get("delete"):
            self.sessions.forget(name)
            self.summaries.pop(name, None)
            return {"target": name, "deleted": True}
        session = self.sessions.hold(name)
        if result.rejected:
            self._quarantine.add(batch, result.rejected)
        batch_id = batch.cursor.get("batch_id")
        if batch.labels:
            answer = record_labels(session, batch_id, result)
        elif batch.commands:
            answer = record_commands(session, result)
        else:
            first, last = int(batch.positions[0]), int(batch.positions[-1])
            answer = record(session, batch_id, first, last, result)
        self.summaries[name] = summarize(session)
        if self._loop.replaying and (alarms := alarm_events(answer)):
            self.replayed.append((name, alarms))
        return {"target": name, **answer}

    def _is_applied(self, batch: Batch) -> bool:
        """Return whether the file of a target is newer than a batch of the journal."""
        if batch.cursor.get("delete"):
            return False
        name = batch.cursor["target"]
        if batch.labels:
            return bool(batch.cursor["labelling"] <= self.prepare_labels(name, None)[0])
        if batch.commands:
            return bool(batch.cursor["command"] <= self.prepare_command(name))
        return bool(batch.positions[-1] <= self.prepare(name, None)[0])

    def restore(self, snapshot: Snapshot) -> None:
        """Return to the state of a snapshot."""
        self.sessions.resume(snapshot.targets)
        self.summaries = {name: snapshot.metadata[name] for name in snapshot.targets}

    def snapshot(self) -> Snapshot:
        """Return the present state; all sessions are on disk."""
        return self._snapshot_of(self.sessions.save())

    def begin_snapshot(self) -> tuple[Snapshot, list[Path]]:
        """Return a snapshot of the files on disk, and the paths to sync before it may be saved."""
        files, paths = self.sessions.begin_sync()
        return self._snapshot_of(files), paths

    def _snapshot_of(self, files: dict[str, str]) -> Snapshot:
        known = {name: dict(self.summaries[name]) for name in files if name in self.summaries}
        return Snapshot(self.owner, {name: files[name] for name in known}, metadata=known)

    def discard(self, kept: list[Snapshot]) -> None:
        """Delete files of sessions that are not needed any more."""
        self.sessions.discard(kept)


class _QuarantineFile:
    """Rows on which a model failed: lines of ``quarantine.ndjson`` in the checkpoint folder."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / "quarantine.ndjson"
        self._old = None if folder is None else folder / "quarantine-old.ndjson"
        self._known: set[str] = set()  # ids of batches in the files: a replay finds their rows again
        for path in (self._old, self._path):
            if path is not None and path.exists():
                for line in path.read_bytes().splitlines():
                    try:
                        self._known.add(json.loads(line)["id"])
                    except (ValueError, KeyError, TypeError):  # a kill has cut it off
                        continue

    def add(self, batch: Batch, rejected: Sequence[Rejected]) -> None:
        """Log and write rows of a batch. They are on disk when this returns, unless the disk is full."""
        name, cursor = batch.cursor["target"], batch.cursor
        _log.error("target %s: the model failed on %d rows: %s", name, len(rejected), rejected[0].reason)
        if self._path is None or self._old is None or cursor["id"] in self._known:
            return
        self._known.add(cursor["id"])
        number = {position: i for i, position in enumerate(batch.positions.tolist())}
        lines = [
            to_json(
                {
                    "id": cursor["id"],
                    "target": name,
                    "batch_id": cursor.get("batch_id"),
                    "position": row.position,
                    "reason": row.reason,
                    "quarantined": datetime.now(UTC).isoformat(timespec="seconds"),
                    "time": batch.times[number[row.position]],
                    "values": batch.rows[number[row.position]],
                }
            )
            for row in rejected
        ]
        try:
            if self._path.exists() and self._path.stat().st_size > _QUARANTINE_BYTES:
                self._path.replace(self._old)
            with self._path.open("ab") as file:
                # The leading newline ends a line that a kill has cut off.
                file.write(b"".join(b"\n" + line for line in lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            _log.error("cannot write %s: %s", self._path, error)


class GroupCommit:
    """Writes the journal: batches that arrive while others are being written share the next fsync.

    Attributes
    ----------
    commits, batches : int
        Writes so far, and batches in them.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.commits = self.batches = 0
        self._checkpoint = checkpoint
        self._thread = ThreadPoolExecutor(1, "baryflow-journal")
        self._queue: list[tuple[Batch, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def append(self, batch: Batch) -> None:
        """Return when a batch is on disk; raise OSError if it cannot be written."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((batch, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        await done

    async def _write(self) -> None:
        try:
            while self._queue:
                group, self._queue = self._queue, []
                failure: Exception | None = None
                try:
                    await self.call(self._checkpoint.append, *(batch for batch, _ in group))
                except Exception as error:
                    failure = error
                else:
                    self.commits, self.batches = self.commits + 1, self.batches + len(group)
                for _, done in group:
                    if done.done():
                        continue
                    if failure is None:
                        done.set_result(None)
                    else:
                        done.set_exception(failure)
        finally:
            self._writing = None

    async def close(self) -> None:
        """Write what is queued, and close the checkpoint."""
        while self._writing is not None:
            await asyncio.wait([self._writing])
        await self.call(self._checkpoint.close)
        self._thread.shutdown()

    async def call(self, function: Callable[..., Value], *arguments: Any) -> Value:
        """Call a function of the checkpoint in the journal thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


class _Queue:
    """Requests that wait for a target."""

    def __init__(self) -> None:
        self.lock, self.length = asyncio.Lock(), 0


class Targets:
    """The targets of a service.

    Parameters
    ----------
    config : SessionConfig
    checkpoint : Checkpoint or None
        Without it targets do not survive the process.
    limits : Limits
    listen : callable
        See :data:`Listener`.

    Attributes
    ----------
    store : TargetStore
    journal : GroupCommit or None
    state : {"starting", "ready", "stopping", "stopped", "failed"}
    snapshots : int
        Saved by this process.
    n_replayed : int
        Batches of the journal that were replayed at the start.
    n_waiting : int
        Requests with rows that are being processed.
    on_failure : callable or None
        Called with the error if the service cannot continue.
    """

    def __init__(
        self,
        config: SessionConfig,
        checkpoint: Checkpoint | None,
        limits: Limits,
        listen: Listener,
    ) -> None:
        self.limits, self.state = limits, "starting"
        self.snapshots = self.n_replayed = self.n_waiting = 0
        self.store = TargetStore(config, checkpoint, limits.in_memory)
        self.journal = None if checkpoint is None else GroupCommit(checkpoint)
        self._checkpoint, self._listen = checkpoint, listen
        self._thread = ThreadPoolExecutor(1, "baryflow-models")
        self._queues: dict[str, _Queue] = {}
        self._new: set[str] = set()  # targets whose first rows are being processed
        self._tasks: set[asyncio.Task[Any]] = set()
        self._since = 0  # batches since the last snapshot
        self._first_since = 0.0
        self._snapshot: asyncio.Task[None] | None = None
        self._failed = False  # a batch of the journal is not in its session, or only half of it
        self.on_failure: Callable[[Exception], None] | None = None

    # -- start and end ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Resume from the checkpoint; raise BaryflowError if that is impossible."""
        try:
            if self._checkpoint is not None:
                self.n_replayed = await self._compute(self.store.recover)
        except BaseException:
            self.state = "failed"
            raise
        if self.state == "starting":
            self.state = "ready"

    async def close(self) -> None:
        """Finish all requests, and save a snapshot."""
        if self.state == "stopped":
            return
        was, self.state = self.state, "stopping"
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._snapshot is not None:
            await asyncio.wait([self._snapshot])
        try:
            if was == "ready" and self._since:
                await self._try_snapshot()
        finally:
            if self.journal is not None:
                await self.journal.close()
            await self._compute(self.store.sessions.close)
            self._thread.shutdown()
            self.state = "stopped"

    def require_ready(self) -> None:
        """Refuse requests while the journal is replayed and while the service stops."""
        if self.state != "ready":
            raise RequestError(503, f"the service is {self.state}: retry", {"Retry-After": "1"})

    # -- requests --------------------------------------------------------------------------------

    async def take(self, name: str, posted: Posted) -> dict[str, Any]:
        """Journal, predict and learn rows of a target; a new target begins with them.

        Return predictions and events. Raise RequestError if there are too many targets or requests, and
        OSError if the disk is full; the rows are not taken then.
        """
        self._require_room(name)
        known = self.store.summaries
        if name not in known and name not in self._new:
            if len(known) + sum(new not in known for new in self._new) >= self.limits.targets:
                raise RequestError(
                    409,
                    f"there are {self.limits.targets} targets already, and no room for {name!r}: delete "
                    "some",
                )
            self._new.add(name)
        self.n_waiting += 1
        return await self._finish(self._take(name, posted))

    async def _take(self, name: str, posted: Posted) -> dict[str, Any]:
        try:
            async with self._turn(name):
                n_rows, answer = await self._compute(self.store.prepare, name, posted.batch_id)
                if answer is None:
                    answer = await self._apply(_batch(name, posted, n_rows))
                    self._listen(name, answer)
                return {"target": name, **answer}
        finally:
            self.n_waiting -= 1
            self._new.discard(name)

    def _require_room(self, name: str) -> None:
        """Refuse a request if too many are waiting."""
        self.require_ready()
        if self.n_waiting >= self.limits.requests:
            raise busy(f"{self.n_waiting} requests are waiting: send more slowly")
        queue = self._queues.get(name)
        if queue is not None and queue.length >= self.limits.waiting:
            raise busy(f"{queue.length} requests for {name} are waiting: send one at a time")

    async def label(self, name: str, posted: PostedLabels) -> dict[str, Any]:
        """Journal and learn labels of a target; return what became of them.

        Raise RequestError if there is no such target or there are too many requests, and OSError if the
        disk is full; the labels are not taken then.
        """
        self._require_room(name)
        self.n_waiting += 1
        return await self._finish(self._label(name, posted))

    async def _label(self, name: str, posted: PostedLabels) -> dict[str, Any]:
        try:
            async with self._turn(name):
                self._require_known(name)
                n_before, answer = await self._compute(self.store.prepare_labels, name, posted.id)
                if answer is None:
                    n_columns = self.store.config.model.n_features_in_
                    batch = _label_batch(name, posted, n_before, n_columns)
                    answer = await self._apply(batch)
                    self._listen(name, answer)
                return {"target": name, **answer}
        finally:
            self.n_waiting -= 1

    async def command(self, name: str, command: AlarmCommand) -> dict[str, Any]:
        """Journal and carry out a command about an alarm of a target.

        Raise RequestError if it is refused, there is no such target or there are too many requests, and
        OSError if the disk is full.
        """
        self._require_room(name)
        self.n_waiting += 1
        answer = await self._finish(self._command(name, command))
        if answer["refused"]:
            raise RequestError(409, answer["refused"])
        return answer

    async def _command(self, name: str, command: AlarmCommand) -> dict[str, Any]:
        try:
            async with self._turn(name):
                self._require_known(name)
                n_before = await self._compute(self.store.prepare_command, name)
                cursor = {"target": name, "command": n_before + 1}
                batch = _without_rows(self.store.config.model.n_features_in_, cursor)
                batch.commands.append(command)
                answer = await self._apply(batch)
                self._listen(name, answer)
                return {"target": name, **answer}
        finally:
            self.n_waiting -= 1

    async def delete(self, name: str) -> None:
        """Delete a target; raise RequestError if there is none, and OSError if the disk is full."""
        self.require_ready()
        await self._finish(self._delete(name))

    async def _delete(self, name: str) -> None:
        async with self._turn(name):
            self._require_known(name)
            await self._apply(_deletion(name, self.store.config.model.n_features_in_))
            self._listen(name, None)

    async def look(self, name: str, function: Callable[[Session], Value]) -> Value:
        """Return what a function finds in the session of a target, without changing it."""
        self.require_ready()

        def call() -> Value:
            self._require_known(name)
            session = self.store.look(name)
            if session is None:
                raise RequestError(404, f"there is no target {name!r}")
            return function(session)

        return await self._compute(call)

    def _require_known(self, name: str) -> None:
        if name not in self.store.summaries:
            raise RequestError(404, f"there is no target {name!r}: post rows to create it")

    async def _apply(self, batch: Batch) -> dict[str, Any]:
        if self.journal is not None:
            await self.journal.append(batch)
        try:
            answer = await self._compute(self.store.take, batch)
        except Exception as error:
            if self.journal is not None:
                self._fail(error)
            raise
        if not self._since:
            self._first_since = time.monotonic()
        self._since += 1
        self.consider_snapshot()
        return answer

    def _fail(self, error: Exception) -> None:
        """Accept nothing more: a replay applies the batch that failed before any that would follow it.

        No snapshot may be saved either, since half of the batch may be in its session.
        """
        self._failed, self.state = True, "failed"
        problem = BaryflowError(
            f"rows in the journal cannot be applied ({describe_error(error)}): nothing is lost; start "
            "the service again to resume"
        )
        _log.error("%s", problem)
        if self.on_failure is not None:
            self.on_failure(problem)

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """Wait for exclusive use of a target."""
        queue = self._queues.setdefault(name, _Queue())
        queue.length += 1
        try:
            async with queue.lock:
                yield
        finally:
            queue.length -= 1
            if not queue.length:
                del self._queues[name]

    async def _finish(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Finish work even if the client disconnects: its rows may be in the journal."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _compute(self, function: Callable[..., Value], *arguments: Any) -> Value:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    # -- snapshots -------------------------------------------------------------------------------

    def consider_snapshot(self) -> None:
        """Begin a snapshot if one is due."""
        if (
            self.journal is None
            or self.state != "ready"
            or self._snapshot is not None
            or not self._since
        ):
            return
        waited = time.monotonic() - self._first_since
        if self._since >= self.limits.snapshot_every or waited >= self.limits.snapshot_seconds:
            self._snapshot = asyncio.create_task(self._try_snapshot())

    async def _try_snapshot(self) -> None:
        try:
            await self.snapshot()
        except Exception as error:
            message = "cannot save a snapshot: %s; the journal still holds everything"
            _log.error(message, error, exc_info=not isinstance(error, OSError))
            self._since = max(self._since, 1)  # try again later
        finally:
            self._snapshot = None

    async def snapshot(self) -> None:
        """Write every changed target, one by one, while requests for others continue.

        Raise OSError if the disk is full; nothing is lost.
        """
        if self.journal is None or self._checkpoint is None:
            return
        self._since, self._first_since = 0, time.monotonic()
        await self.journal.call(self._checkpoint.rotate)
        # Batches of the older journals have been applied to these targets, or are about to be.
        changed = await self._compute(lambda: self.store.sessions.changed)
        for name in sorted({*changed, *self._queues}):
            async with self._turn(name):
                await self._compute(self.store.sessions.write, name)
        snapshot, paths = await self._compute(self.store.begin_snapshot)
        for path in paths:
            await asyncio.to_thread(container.sync, path)
        await self._compute(self.store.sessions.end_sync, paths)
        if self._failed:
            return
        await self.journal.call(self._checkpoint.save_rotated, snapshot)
        kept = await self.journal.call(self._checkpoint.snapshots)
        await self._compute(self.store.discard, kept)
        self.snapshots += 1


def _batch(name: str, posted: Posted, n_before: int) -> Batch:
    """Return rows of a target as the journal holds them."""
    n = len(posted.rows)
    positions = np.arange(n_before + 1, n_before + 1 + n, dtype=np.intp)
    cursor = {"target": name, "id": uuid.uuid4().hex}
    if posted.batch_id is not None:
        cursor["batch_id"] = posted.batch_id
    return Batch(posted.rows, positions, posted.times, [name] * n, [], cursor)


def _label_batch(name: str, posted: PostedLabels, n_before: int, n_columns: int) -> Batch:
    """Return labels of a target as the journal holds them."""
    batch = _without_rows(n_columns, {"target": name, "labelling": n_before + 1})
    if posted.id is not None:
        batch.cursor["batch_id"] = posted.id
    batch.labels.extend(posted.labels)
    return batch


def _deletion(name: str, n_columns: int) -> Batch:
    """Return the deletion of a target as the journal holds it."""
    return _without_rows(n_columns, {"target": name, "delete": True})


def _without_rows(n_columns: int, cursor: dict[str, Any]) -> Batch:
    return Batch(np.empty((0, n_columns)), np.empty(0, dtype=np.intp), [], [], [], cursor)
