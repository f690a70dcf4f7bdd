"""The log of a service: requests that come together share one trip to the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from baryflow.runtime import Checkpoint
from baryflow.runtime.checkpoint import Snapshot
from baryflow.streams import Batch

Value = TypeVar("Value")


class Log:
    """Appends batches to the journal of a checkpoint, in a thread of its own.

    While one lot of batches is on its way to the disk the next one gathers.

    Parameters
    ----------
    checkpoint : Checkpoint
        Nobody else uses it from the first :meth:`append` on.

    Attributes
    ----------
    commits, batches : int
        Trips to the disk so far, and batches that made them.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.commits = self.batches = 0
        self._checkpoint = checkpoint
        self._thread = ThreadPoolExecutor(1, "baryflow-log")
        self._gathered: list[tuple[Batch, asyncio.Future[None]]] = []
        self._running: asyncio.Task[None] | None = None

    async def append(self, batch: Batch) -> None:
        """Return when a batch is on the disk.

        Parameters
        ----------
        batch : Batch

        Raises
        ------
        OSError
            If it cannot be written; the log holds what it held before.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gathered.append((batch, done))
        if self._running is None:
            self._running = asyncio.create_task(self._commit())
        await done

    async def _commit(self) -> None:
        try:
            while self._gathered:
                lot, self._gathered = self._gathered, []
                try:
                    await self._call(self._checkpoint.append, *(batch for batch, _ in lot))
                except Exception as error:
                    failure: Exception | None = error
                else:
                    failure = None
                    self.commits, self.batches = self.commits + 1, self.batches + len(lot)
                for _, done in lot:
                    if done.done():
                        continue
                    if failure is None:
                        done.set_result(None)
                    else:
                        done.set_exception(failure)
        finally:
            self._running = None

    async def turn(self) -> None:
        """Begin a new journal: what was appended before is in the ones before it."""
        await self._call(self._checkpoint.turn)

    async def save(self, snapshot: Snapshot) -> list[dict[str, str]]:
        """Make the snapshot for the journal begun by :meth:`turn`.

        Parameters
        ----------
        standing : Standing

        Returns
        -------
        list of dict
            The tables of files that snapshots name.
        """
        await self._call(self._checkpoint.save_turned, snapshot)
        return await self._call(self._checkpoint.tables)

    async def close(self) -> None:
        """Write what has gathered and let go of the folder."""
        while self._running is not None:
            await asyncio.wait([self._running])
        await self._call(self._checkpoint.close)
        self._thread.shutdown()

    async def _call(self, function: Callable[..., Value], *arguments: Any) -> Value:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
