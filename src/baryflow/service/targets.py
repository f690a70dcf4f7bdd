"""Many targets at once: each row is in the log before anybody is told, and each target waits for itself.

Requests meet on the event loop. Two threads do the work: one writes the log, one has the models. Each
target has a lock from the moment at which its rows go to the log until they are learned, so that the
log tells them in the order in which they were taken. A snapshot stops nobody: a new journal is begun,
every target that has changed is written when its turn comes, and what the files know already is left out
of a replay.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from baryflow.runtime import Checkpoint, Session, SessionConfig
from baryflow.runtime.store import sync
from baryflow.service.errors import RequestError, busy
from baryflow.service.group_commit import Log
from baryflow.service.machines import Machines, batch_of, deletion_of
from baryflow.service.parsing import Limits, Posted

_log = logging.getLogger("baryflow.service")
Value = TypeVar("Value")
#: Called on the event loop with the name of a target and what came of its rows; None: it is gone.
Listener = Callable[[str, "dict[str, Any] | None"], None]


class _Line:
    """Those who wait for a target."""

    def __init__(self) -> None:
        self.lock, self.length = asyncio.Lock(), 0


class Targets:
    """The targets of a service.

    Parameters
    ----------
    recipe : Recipe
        How they are followed.
    checkpoint : Checkpoint or None
        Where they are kept.
    limits : Limits
    listen : callable
        Told what came of rows.

    Attributes
    ----------
    state : {"starting", "ready", "stopping", "failed"}
    snapshots : int
        Made in this life.
    n_replayed : int
        Batches of the log that were carried out again at the start.
    n_inside : int
        Requests with rows that are being worked on.
    """

    def __init__(
        self, config: SessionConfig, checkpoint: Checkpoint | None, limits: Limits, listen: Listener
    ) -> None:
        self.limits, self.state = limits, "starting"
        self.snapshots = self.n_replayed = 0
        self.machines = Machines(config, checkpoint, limits.in_memory)
        self.log = None if checkpoint is None else Log(checkpoint)
        self._checkpoint, self._listen = checkpoint, listen
        self._thread = ThreadPoolExecutor(1, "baryflow-models")
        self._lines: dict[str, _Line] = {}
        self.n_inside = 0
        self._new: set[str] = set()  # names on the way
        self._tasks: set[asyncio.Task[Any]] = set()
        self._since = 0  # batches since the last snapshot
        self._first_since = 0.0
        self._snapshot: asyncio.Task[None] | None = None

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Go on from where the folder says.

        Raises
        ------
        BaryflowError
            If nothing in it can be read.
        """
        try:
            if self._checkpoint is not None:
                self.n_replayed = await self._compute(self.machines.recover, self._checkpoint)
        except BaseException:
            self.state = "failed"
            raise
        if self.state == "starting":
            self.state = "ready"

    async def close(self) -> None:
        """Finish what runs, put everything on disk, and let go."""
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
            if self.log is not None:
                await self.log.close()
            await self._compute(self.machines.close)
            self._thread.shutdown()
            self.state = "stopped"

    def require_ready(self) -> None:
        """Refuse what cannot be done before the log is replayed, or while the service ends."""
        if self.state != "ready":
            raise RequestError(503, f"the service is {self.state}: try again soon", {"Retry-After": "1"})

    # -- requests --------------------------------------------------------------------------------

    async def take(self, name: str, posted: Posted) -> dict[str, Any]:
        """Take rows of a target: in the log, predicted, learned.

        Parameters
        ----------
        name : str
            Of a target; one that is new begins.
        posted : Posted

        Returns
        -------
        dict
            Predictions and events.

        Raises
        ------
        Refusal
            If there are too many targets or requests.
        OSError
            If there is no room on the disk; nothing is taken.
        """
        self.require_ready()
        if self.n_inside >= self.limits.requests:
            raise busy(f"{self.n_inside} requests are waiting already: send them more slowly")
        line = self._lines.get(name)
        if line is not None and line.length >= self.limits.waiting:
            raise busy(f"{line.length} requests for {name} are waiting already: send one at a time")
        known = self.machines.summaries
        if name not in known and name not in self._new:
            if len(known) + sum(new not in known for new in self._new) >= self.limits.targets:
                raise RequestError(
                    409,
                    f"there are {self.limits.targets} targets, and no room for {name!r}: delete some",
                )
            self._new.add(name)
        self.n_inside += 1
        return await self._whole(self._take(name, posted))

    async def _take(self, name: str, posted: Posted) -> dict[str, Any]:
        try:
            async with self._turn(name):
                rows, answer = await self._compute(self.machines.prepare, name, posted.batch_id)
                if answer is None:
                    batch = batch_of(name, posted.rows, posted.times, rows, posted.batch_id)
                    answer = await self._carry_out(batch)
                    self._listen(name, answer)
                return {"target": name, **answer}
        finally:
            self.n_inside -= 1
            self._new.discard(name)

    async def delete(self, name: str) -> None:
        """Forget a target.

        Parameters
        ----------
        name : str

        Raises
        ------
        Refusal
            If there is none of this name.
        OSError
            If there is no room on the disk; it is still there.
        """
        self.require_ready()
        await self._whole(self._delete(name))

    async def _delete(self, name: str) -> None:
        async with self._turn(name):
            self._require_known(name)
            await self._carry_out(deletion_of(name, self.machines.config.model.n_features_in_))
            self._listen(name, None)

    async def look(self, name: str, function: Callable[[Session], Value]) -> Value:
        """Return what a function says of a target.

        Parameters
        ----------
        name : str
        function : callable
            Takes a Followed, which it does not change, where models are at home.

        Returns
        -------
        whatever the function returns

        Raises
        ------
        Refusal
            If there is none of this name.
        """
        self.require_ready()

        def call() -> Value:
            self._require_known(name)
            found = self.machines.look(name)
            if found is None:
                raise RequestError(404, f"there is no target {name!r}")
            return function(found)

        return await self._compute(call)

    def _require_known(self, name: str) -> None:
        if name not in self.machines.summaries:
            raise RequestError(404, f"there is no target {name!r}: post rows to it, and there is")

    # -- how -------------------------------------------------------------------------------------

    async def _carry_out(self, batch: Any) -> dict[str, Any]:
        """Put a batch into the log, then do what it says."""
        if self.log is not None:
            await self.log.append(batch)
        answer = await self._compute(self.machines.take, batch)
        if not self._since:
            self._first_since = time.monotonic()
        self._since += 1
        self.consider_snapshot()
        return answer

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """Wait for one's turn with a target."""
        line = self._lines.setdefault(name, _Line())
        line.length += 1
        try:
            async with line.lock:
                yield
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[name]

    async def _whole(self, doing: Coroutine[Any, Any, Value]) -> Value:
        """Do something to its end, also if nobody waits for it any more: it is in the log."""
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _compute(self, function: Callable[..., Value], *arguments: Any) -> Value:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    # -- snapshots -------------------------------------------------------------------------------

    def consider_snapshot(self) -> None:
        """Begin a snapshot if it is time for one; called every so often."""
        if self.log is None or self.state != "ready" or self._snapshot is not None or not self._since:
            return
        waited = time.monotonic() - self._first_since
        if self._since >= self.limits.snapshot_every or waited >= self.limits.snapshot_seconds:
            self._snapshot = asyncio.create_task(self._try_snapshot())

    async def _try_snapshot(self) -> None:
        try:
            await self.snapshot()
        except Exception as error:
            words = "cannot write a snapshot: %s; the journal still holds everything"
            _log.error(words, error, exc_info=not isinstance(error, OSError))
            self._since = max(self._since, 1)  # try again later
        finally:
            self._snapshot = None

    async def snapshot(self) -> None:
        """Put every target on disk, one by one, while others go on.

        Raises
        ------
        OSError
            If there is no room; nothing is lost.
        """
        if self.log is None:
            return
        self._since, self._first_since = 0, time.monotonic()
        await self.log.turn()
        # Whatever is in the journals before is in these: learned already, or about to be.
        for name in sorted({*await self._compute(lambda: self.machines.changed), *self._lines}):
            async with self._turn(name):
                await self._compute(self.machines.write, name)
        snapshot, paths = await self._compute(self.machines.hand_over)
        await asyncio.to_thread(sync, paths)
        await self._compute(self.machines.mark_synced, paths)
        tables = await self.log.save(snapshot)
        await self._compute(self.machines.tidy, tables)
        self.snapshots += 1
