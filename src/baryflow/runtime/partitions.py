"""An input that several processes share: each part has a runner, a checkpoint and files of its own.

Kafka gives the partitions of a topic to the members of a group, and takes them away again. A part that
comes to us goes on from where its folder says, whoever had it before; a part that leaves is written down
first. So no machine is ever followed by two processes, as long as its rows are all in one part.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any, Protocol

from baryflow.runtime.events import Event
from baryflow.runtime.runner import Runner, Totals
from baryflow.streams import Source


class SharedSource(Source, Protocol):
    """A source whose parts come and go, if it is `shared`; each batch is then from one of them."""

    shared: bool

    def attach(
        self, assigned: Callable[[str], dict[str, Any] | None], revoked: Callable[[str], None]
    ) -> None:
        """Say whom to tell.

        Parameters
        ----------
        assigned : callable
            Called with the name of a part that has become ours, before the first batch of it; returns
            the cursor from which it goes on, None for the beginning.
        revoked : callable
            Called before a part is given to somebody else.
        """


class PartitionRunner:
    """Follows the parts of a shared input.

    Parameters
    ----------
    source : SharedSource
    make : callable
        Takes the name of a part and an ExitStack for what has to be closed with it; returns its Runner.
    read_size : int
    timeout, listen : optional
        As for :class:`~baryflow.runtime.Runner`; what concerns no part in particular is only told.

    Attributes
    ----------
    runners : dict of str → Runner
        Of the parts that are ours at present.
    """

    def __init__(
        self,
        source: SharedSource,
        make: Callable[[str, ExitStack], Runner],
        read_size: int = 32,
        timeout: float | None = None,
        listen: Callable[[Event], None] | None = None,
    ) -> None:
        self.source, self.read_size, self.timeout, self.listen = source, read_size, timeout, listen
        self.runners: dict[str, Runner] = {}
        self._make = make
        self._stacks: dict[str, ExitStack] = {}
        self._before: dict[str, Totals] = {}  # what had come of a part when it came to us
        self._left = Totals()  # what has come of parts while they were ours

    def run(self, stop: Callable[[], bool] = lambda: False) -> Totals:
        """Follow until the source ends or `stop` says so.

        Parameters
        ----------
        stop : callable
            Asked before every batch.

        Returns
        -------
        Totals
            Of all parts, while they were ours.

        Raises
        ------
        OSError
            If something cannot be written; with checkpoints the same call goes on.
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
        return self._left

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
            runner.rest()
        before = asdict(self._before.pop(partition))
        for name, count in asdict(runner.totals).items():
            setattr(self._left, name, getattr(self._left, name) + count - before[name])
