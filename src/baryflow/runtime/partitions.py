"""An input whose partitions are shared by several processes.

Kafka assigns the partitions of a topic to the members of a group, and revokes them again. Each
partition has a runner, a checkpoint and outputs of its own. A partition that is assigned to this
process resumes from its checkpoint, even if another process wrote it; a partition that is revoked is
saved first. So no target is ever followed by two processes, as long as all its rows are in one
partition.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

from baryflow.runtime.runner import Runner, Totals
from baryflow.runtime.session import Event
from baryflow.streams import Source


class PartitionRunner:
    """Follows the partitions of a shared input.

    Parameters
    ----------
    source : Source
    make : callable
        Takes the name of a partition and an ExitStack for what must be closed with it; returns its
        Runner.
    read_size : int
    timeout, listen : optional
        As for :class:`~baryflow.runtime.Runner`; notices that concern no partition go to `listen` only.

    Attributes
    ----------
    runners : dict of str → Runner
        Of the partitions that are assigned to this process.
    """

    def __init__(
        self,
        source: Source,
        make: Callable[[str, ExitStack], Runner],
        read_size: int = 32,
        timeout: float | None = None,
        listen: Callable[[Event], None] | None = None,
    ) -> None:
        self.source, self.read_size, self.timeout, self.listen = source, read_size, timeout, listen
        self.runners: dict[str, Runner] = {}
        self._make = make
        self._stacks: dict[str, ExitStack] = {}
        self._before: dict[str, Totals] = {}  # totals of a partition when it was assigned
        self._totals = Totals()  # totals of revoked partitions while they were assigned

    def run(self, stop: Callable[[], bool] = lambda: False) -> Totals:
        """Follow until the source ends or `stop` returns True.

        Parameters
        ----------
        stop : callable
            Called before every batch.

        Returns
        -------
        Totals
            Of all partitions, while they were assigned to this process.

        Raises
        ------
        OSError
            If something cannot be written; with checkpoints the same call resumes.
        """
        self.source.attach(self._assigned, self._revoked)
        try:
            while not stop():
                batch = self.source.read(self.read_size, self.timeout)
                if batch is None:
                    break
                if batch.partition:
                    self.runners[batch.partition].handle(batch)
                elif self.listen is not None:
                    for notice in batch.notices:
                        self.listen(Event("warning", 0, notice))
            for partition in list(self.runners):
                self._revoked(partition)
        finally:
            for stack in self._stacks.values():
                stack.close()
        return self._totals

    def _assigned(self, partition: str) -> dict[str, Any] | None:
        stack = ExitStack()
        try:
            runner = self._make(partition, stack)
            cursor = runner.recover()
        except BaseException:
            stack.close()
            raise
        self.runners[partition], self._stacks[partition] = runner, stack
        self._before[partition] = replace(runner.totals)
        return cursor

    def _revoked(self, partition: str) -> None:
        runner = self.runners.pop(partition, None)
        if runner is None:
            return
        with self._stacks.pop(partition):
            runner.save()
        before = asdict(self._before.pop(partition))
        for name, count in asdict(runner.totals).items():
            setattr(self._totals, name, getattr(self._totals, name) + count - before[name])
