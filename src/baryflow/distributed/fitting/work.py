"""Work on pieces: a task for each, merged as a tree, that can be taken up again after a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from baryflow.distributed.cluster import Attendance, told_if_gone
from baryflow.distributed.store import Store
from baryflow.estimators._leave_one_out import Progress
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
            return delayed(_load)(store, kind, f"{name}.bary")
        folder = None if store is None else store / name
        make, join, token = delayed(_load_or_make), delayed(merge), uuid4().hex
        results = [
            make(
                folder, kind, f"{number:06d}.bary", task, piece, *known,
                dask_key_name=f"{name}-{token}-{number}",
            )
            for number, piece in enumerate(self._spare(folder, kind, pieces))
        ]  # fmt: skip
        while len(results) > 1:
            n = len(results)
            results = [
                join(results[start : start + _WIDTH], dask_key_name=f"merge-{name}-{token}-{n}-{start}")
                for start in range(0, n, _WIDTH)
            ]
        if store is not None:
            return delayed(_keep_whole)(store, results[0], name, dask_key_name=f"keep-{name}-{token}")
        return results[0]

    def _spare(self, folder: Store | None, kind: type[Any], pieces: Sequence[Any]) -> list[Any]:
        """Return pieces, but None for partitions whose results are kept: Dask would make them anew."""
        kept = [] if folder is None or not any(map(_holds_tasks, pieces)) else folder.names()
        if not kept:
            return list(pieces)
        from dask.delayed import delayed

        look = delayed(_is_readable)
        found = self.compute(delayed(list)([look(folder, kind, one) for one in kept]), "what is kept")
        done = {name for name, is_readable in zip(kept, found, strict=True) if is_readable}
        return [None if f"{n:06d}.bary" in done else piece for n, piece in enumerate(pieces)]

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
        client = self._present()
        if client is None:
            from dask.base import compute

            return compute(task)[0]  # type: ignore[no-untyped-call]
        future = client.compute(task)
        with _told(what), _cancelled_in_the_end(future):
            self._watch(client, future, _size(task), what)
            return future.result()

    def hold(self, task: Any, what: str) -> Any:
        """Do a task now, and return it as one that is done: its result stays with the workers.

        Tasks that need the same rows must not be submitted together, or workers keep the rows of the
        first until the last has had them.

        Parameters
        ----------
        task : dask.delayed.Delayed
        what : str
            Told to those who watch.

        Returns
        -------
        dask.delayed.Delayed

        Raises
        ------
        BaryflowError, UnreachableError
            As :meth:`compute`.
        """
        client = self._present()
        if client is None:
            from dask.base import persist

            return persist(task)[0]  # type: ignore[no-untyped-call]
        from distributed import futures_of

        held = client.persist(task)
        (future,) = futures_of(held)  # type: ignore[no-untyped-call]
        with _told(what):
            self._watch(client, future, _size(task), what)
            if future.status != "finished":
                future.result()  # raises what went wrong
        return held

    def _present(self) -> Any:
        """Return the client that was given, or the one that is there, or None."""
        from distributed import get_client

        with suppress(ValueError):  # there is none
            return self.client or get_client()
        return None

    def _watch(self, client: Any, future: Any, total: int, what: str) -> None:
        """Wait, telling how far it is, as long as there is anybody who works."""
        from distributed import wait

        workers = Attendance(client)
        while not future.done():
            with suppress(TimeoutError), client.as_current():  # not necessarily the default client
                wait(future, timeout=_LOOK)  # type: ignore[no-untyped-call]
            if self.progress is not None:
                left = client.run_on_scheduler(count_waiting, root=future.key)
                self.progress(0 if left is None else max(0, total - left), total, what)
            workers.check()


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Say in words what can go wrong with a cluster."""
    from distributed.scheduler import KilledWorker

    try:
        with told_if_gone():
            yield
    except KilledWorker as error:
        raise BaryflowError(
            f"{what}: workers died over one piece again and again, most likely for want of memory: "
            "give them more, or make pieces smaller (piece_bytes, or smaller partitions)"
        ) from error


@contextmanager
def _cancelled_in_the_end(future: Any) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(Exception):  # what went wrong before matters more
            future.cancel()


def _size(task: Any) -> int:
    """Return how many tasks there are for one."""
    return len(dict(task.__dask_graph__()))


def _holds_tasks(piece: Any) -> bool:
    """Tell whether a piece is a partition that Dask has to make, or only the name of one."""
    from dask.base import is_dask_collection

    parts = piece if isinstance(piece, tuple) else (piece,)
    return any(is_dask_collection(one) for one in parts)


def _load_or_make(
    folder: Store | None, kind: type[Any], name: str, task: Callable[..., Any], piece: Any, *known: Any
) -> Any:
    """Do a task, unless its result is there already: a worker that died may have kept it."""
    if folder is None:
        return task(piece, *known)
    result = folder.load(kind, name)
    if result is None:
        result = task(piece, *known)
        folder.keep(result, name)
    return result


def _is_readable(folder: Store, kind: type[Any], name: str) -> bool:
    return folder.load(kind, name) is not None


def _load(store: Store, kind: type[Any], name: str) -> Any:
    found = store.load(kind, name)
    if found is None:
        raise FileFormatError(
            f"{store.url}/{name} is damaged, or a worker does not see it: remove it, and the same call "
            "makes it again, or name a checkpoint that the caller and all workers share"
        )
    return found


def _keep_whole(store: Store, result: Any, name: str) -> Any:
    """Keep what all pieces gave together; what each of them gave is not needed any more."""
    store.keep(result, f"{name}.bary")
    with suppress(OSError):  # somebody who does the same may write there still; it is of no account
        (store / name).remove()
    return result


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
