"""Work on pieces: a task for each, merged as a tree, that can be taken up again after a kill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from baryflow.distributed.cluster import Attendance, told_if_gone
from baryflow.distributed.store import Store
from baryflow.estimators.rehearsal import Progress
from baryflow.exceptions import BaryflowError, FileFormatError

#: Results that are merged by one task.
_WIDTH = 8
#: Seconds between two looks at how far the work is.
_LOOK = 0.5
#: States of a task that has to be done still.
_UNFINISHED = ("released", "waiting", "queued", "processing", "no-worker")


@dataclass(frozen=True)
class Work:
    """Where tasks are done, and where their results are kept meanwhile.

    Attributes
    ----------
    client : distributed.Client, optional
        Without it, whatever Dask uses by default.
    store : Store, optional
        Results of pieces are kept there until all is done.
    progress : callable, optional
        Called as ``progress(done, total, what)``.
    """

    client: Any = None
    store: Store | None = None
    progress: Progress | None = None

    def over(
        self,
        name: str,
        kind: type[Any],
        pieces: Sequence[Any],
        task: Callable[..., Any],
        merge: Callable[[list[Any]], Any],
        *known: Any,
    ) -> Any:
        """Return a task that gives the merged results of all pieces.

        With a store, what was done already is read from there, piece by piece or as a whole.

        The tree depends on the number of pieces only: sums are made in the same order, however tasks
        are scheduled.

        Parameters
        ----------
        name : str
            What is done; tasks and files are called so.
        kind : type
            Of the results, a dataclass.
        pieces : sequence
        task : callable
            Called with a piece and what is known.
        merge : callable
            Called with a list of results.
        *known : Delayed
            What all tasks need beside.

        Returns
        -------
        dask.delayed.Delayed
        """
        from dask.delayed import delayed

        store = self.store
        if store is not None and f"{name}.bary" in store.names():
            return delayed(_whole)(store, kind, name)
        folder = None if store is None else store / name
        done = set() if folder is None else set(folder.names())
        step, join, token = delayed(_kept), delayed(merge), uuid4().hex
        results = [
            step(
                folder, f"{number:06d}.bary" in done, kind, task, piece, number, *known,
                dask_key_name=f"{name}-{token}-{number}",
            )
            for number, piece in enumerate(pieces)
        ]  # fmt: skip
        while len(results) > 1:
            n = len(results)
            results = [
                join(results[start : start + _WIDTH], dask_key_name=f"merge-{name}-{token}-{n}-{start}")
                for start in range(0, n, _WIDTH)
            ]
        if store is not None:
            return delayed(_keep)(store, results[0], name, dask_key_name=f"keep-{name}-{token}")
        return results[0]

    def compute(self, task: Any, what: str) -> Any:
        """Return the result of a task.

        Parameters
        ----------
        task : dask.delayed.Delayed
        what : str
            Told to those who watch.

        Returns
        -------
        object

        Raises
        ------
        BaryflowError
            If workers died of it again and again.
        UnreachableError
            If the scheduler is gone, or there are no workers.
        """
        from dask.base import compute
        from distributed import get_client
        from distributed.scheduler import KilledWorker

        client = self.client
        with suppress(ValueError):  # there is none
            client = client or get_client()
        if client is None:
            return compute(task)[0]  # type: ignore[no-untyped-call]
        future = client.compute(task)
        try:
            with told_if_gone():
                self._watch(client, future, len(dict(task.__dask_graph__())), what)
                return future.result()
        except KilledWorker as error:
            raise BaryflowError(
                f"{what}: workers died over one piece again and again, most likely for want of memory: "
                "give them more, or make pieces smaller (piece_bytes, or smaller partitions)"
            ) from error
        finally:
            with suppress(Exception):  # what went wrong before matters more
                future.cancel()

    def _watch(self, client: Any, future: Any, total: int, what: str) -> None:
        """Wait, telling how far it is, as long as there is anybody who works."""
        from distributed import wait

        workers = Attendance(client)
        while not future.done():
            with suppress(TimeoutError):
                wait(future, timeout=_LOOK)  # type: ignore[no-untyped-call]
            if self.progress is not None:
                left = client.run_on_scheduler(count_waiting, root=future.key)
                self.progress(0 if left is None else max(0, total - left), total, what)
            workers.check()


def _kept(
    folder: Store | None, done: bool, kind: type[Any], task: Callable[..., Any], piece: Any, number: int,
    *known: Any,
) -> Any:  # fmt: skip
    """Do a task, unless its result is there already."""
    name = f"{number:06d}.bary"
    if folder is not None and done:
        found = folder.load(kind, name)
        if found is not None:
            return found
    result = task(piece, *known)
    if folder is not None:
        folder.keep(result, name)
    return result


def _keep(store: Store, result: Any, name: str) -> Any:
    """Keep what all pieces gave together; what each of them gave is not needed any more."""
    store.keep(result, f"{name}.bary")
    with suppress(OSError):  # somebody who does the same may write there still; it is of no account
        (store / name).remove()
    return result


def _whole(store: Store, kind: type[Any], name: str) -> Any:
    found = store.load(kind, f"{name}.bary")
    if found is None:
        raise FileFormatError(
            f"{store.url}/{name}.bary is damaged: remove it, and the same call makes it again"
        )
    return found


def count_waiting(dask_scheduler: Any, root: Any) -> int | None:
    """Return how many tasks have to be done for one, itself included; runs on the scheduler.

    Others may have work there, too, which does not count.

    Parameters
    ----------
    dask_scheduler : distributed.Scheduler
    root : key
        Of the task.

    Returns
    -------
    int or None
        None if it is not known: it has not come yet, or has been forgotten.
    """
    task = dask_scheduler.tasks.get(root)
    if task is None:
        return None
    found = {task} if task.state in _UNFINISHED else set()
    left = [*found]
    while left:
        new = set(left.pop().waiting_on or ()) - found
        found |= new
        left += new
    return len(found)
