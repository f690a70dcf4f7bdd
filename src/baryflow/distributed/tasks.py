"""Run tasks on Dask: one per partition merged in a tree, or long jobs that survive killed workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import distributed
from dask.base import compute, is_dask_collection, persist
from dask.delayed import delayed

from baryflow.distributed.cluster import WorkerWatch, current_client, scheduler_errors
from baryflow.distributed.store import Store, numbered
from baryflow.estimators._progress import Progress
from baryflow.exceptions import FileFormatError, UnreachableError

#: Number of results that one task merges.
_FAN_IN = 8
#: Seconds between two reports of progress.
_POLL_INTERVAL = 0.25
#: States of a Dask task that is not finished.
_UNFINISHED = ("released", "waiting", "queued", "processing", "no-worker")
#: How often in a row a job that makes no progress is resubmitted after its worker died. It may only have
#: been queued at a worker that died of something else.
_MAX_FUTILE_ATTEMPTS = 3


@dataclass(frozen=True)
class TaskRunner:
    """Runs a task per partition and merges the results in a tree.

    With a `store`, results are kept there and not computed again after a crash. `progress` is called as
    ``progress(done, total, what)``. The default `client` is Dask's current one, or threads.
    """

    client: Any = None
    store: Store | None = None
    progress: Progress | None = None

    def reduce(
        self,
        name: str,
        kind: type[Any],
        partitions: Sequence[Any],
        task: Callable[..., Any],
        merge: Callable[[list[Any]], Any],
        *shared: Any,
    ) -> Any:
        """Return a delayed object that merges ``task(partition, *shared)`` over all partitions.

        Tasks and files are called `name`; results are dataclasses of type `kind`. The tree depends on
        the number of partitions only, so sums are added in the same order on every cluster.
        """
        store = self.store
        if store is not None and f"{name}.bary" in store.names():
            return delayed(_load)(store, kind, f"{name}.bary")
        folder = None if store is None else store / name
        run, join, token = delayed(_load_or_run), delayed(merge), uuid4().hex
        results = [
            run(
                folder,
                kind,
                f"{numbered(number)}.bary",
                task,
                partition,
                *shared,
                dask_key_name=f"{name}-{token}-{number}",
            )
            for number, partition in enumerate(self._drop_finished(folder, kind, partitions))
        ]
        while len(results) > 1:
            n = len(results)
            results = [
                join(results[i : i + _FAN_IN], dask_key_name=f"merge-{name}-{token}-{n}-{i}")
                for i in range(0, n, _FAN_IN)
            ]
        if store is not None:
            return delayed(_save_merged)(store, results[0], name, dask_key_name=f"keep-{name}-{token}")
        return results[0]

    def _drop_finished(
        self, folder: Store | None, kind: type[Any], partitions: Sequence[Any]
    ) -> list[Any]:
        """Replace partitions whose results are stored by None: Dask would compute them."""
        stored = [] if folder is None or not any(map(_holds_tasks, partitions)) else folder.names()
        if not stored:
            return list(partitions)
        check = delayed(_is_readable)
        checks = delayed(list)([check(folder, kind, name) for name in stored])
        readable = self.compute(checks, "reading the checkpoint")
        done = {name for name, is_readable in zip(stored, readable, strict=True) if is_readable}
        return [None if f"{numbered(n)}.bary" in done else one for n, one in enumerate(partitions)]

    def compute(self, task: Any, what: str) -> Any:
        """Return the result of a delayed object; raise UnreachableError if the cluster is lost."""
        client = current_client(self.client)
        if client is None:
            return compute(task)[0]  # type: ignore[no-untyped-call]
        future = client.compute(task)
        try:
            with _cluster_errors(what):
                self._watch(client, future, task, what)
                return future.result()
        finally:
            with suppress(Exception):  # do not hide the first error
                future.cancel()

    def persist(self, task: Any, what: str) -> Any:
        """Run a delayed object now, and return it with its result left on the workers.

        Tasks that read the same rows must not be submitted together: workers would keep the rows of the
        first pass in memory for the second.
        """
        client = current_client(self.client)
        if client is None:
            return persist(task)[0]  # type: ignore[no-untyped-call]
        held = client.persist(task)
        (future,) = distributed.futures_of(held)  # type: ignore[no-untyped-call]
        with _cluster_errors(what):
            self._watch(client, future, task, what)
            if future.status != "finished":
                future.result()  # raises the error
        return held

    def _watch(self, client: Any, future: Any, task: Any, what: str) -> None:
        """Wait for a future, reporting progress, as long as the cluster has workers."""
        workers, total = WorkerWatch(client), len(dict(task.__dask_graph__()))
        while not future.done():
            _wait([future])
            if self.progress is not None:
                left = client.run_on_scheduler(count_unfinished, root=future.key)
                self.progress(0 if left is None else max(0, total - left), total, what)
            workers.check()


def complete(
    client: Any,
    work: Callable[[Any], Any],
    jobs: Sequence[Any],
    *,
    progress: Callable[[Any], int],
    on_poll: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, Any]]:
    """Run long jobs; yield the number of each finished job with its result or its exception.

    Dask fails a task after several workers died while they held it. A long job on workers that come and
    go is not to blame, so it is resubmitted as long as ``progress(job)``, which counts what the job has
    stored, increases, and a few times if it does not. `work` must be idempotent. `on_poll` is called
    several times a second.
    """
    workers = WorkerWatch(client)
    progress_before: dict[int, int] = {}
    futile: dict[int, int] = {}

    def submit(number: int) -> Any:
        key = f"{work.__name__}-{number}-{uuid4().hex}"
        return client.submit(work, jobs[number], key=key, pure=False)

    pending = {submit(number): number for number in range(len(jobs))}
    try:
        while pending:
            done = _wait(list(pending))
            on_poll()
            workers.check()
            for future in done:
                number = pending.pop(future)
                result = _result_or_error(future)
                if isinstance(result, distributed.KilledWorker):
                    now = progress(jobs[number])
                    advanced = now > progress_before.get(number, 0)
                    progress_before[number] = now
                    futile[number] = 0 if advanced else futile.get(number, 0) + 1
                    if futile[number] <= _MAX_FUTILE_ATTEMPTS:
                        pending[submit(number)] = number
                        continue
                yield number, result
    finally:
        if pending:
            with suppress(Exception):  # do not hide the first error
                client.cancel(list(pending))


def count_unfinished(dask_scheduler: Any, root: Any) -> int | None:
    """Count the unfinished tasks that a task depends on, itself included; runs on the scheduler.

    Returns None if the scheduler does not know the task. Work of other clients is not counted.
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


def _wait(futures: list[Any]) -> list[Any]:
    """Wait for a moment; return the futures that are finished by then."""
    try:
        with futures[0].client.as_current():  # not necessarily the default client
            waited = distributed.wait(  # type: ignore[no-untyped-call]
                futures, timeout=_POLL_INTERVAL, return_when="FIRST_COMPLETED"
            )
            return list(waited.done)
    except (TimeoutError, distributed.TimeoutError):
        return []
    except distributed.CancelledError:
        return [future for future in futures if future.done()]


def _result_or_error(future: Any) -> Any:
    if future.status == "finished":
        return future.result()
    if future.status == "error":
        return future.exception()
    raise UnreachableError(
        "the Dask scheduler is gone, or was restarted: finished work is kept; repeat the call to resume"
    )


@contextmanager
def _cluster_errors(what: str) -> Iterator[None]:
    try:
        with scheduler_errors():
            yield
    except distributed.KilledWorker as error:
        raise UnreachableError(
            f"{what}: a partition killed its workers repeatedly, most likely for lack of memory; give "
            "them more memory, or use smaller partitions (partition_bytes for Parquet files)"
        ) from error


def _holds_tasks(partition: Any) -> bool:
    """Return whether Dask has to compute the partition; Parquet partitions are only descriptions."""
    parts = partition if isinstance(partition, tuple) else (partition,)
    return any(is_dask_collection(part) for part in parts)


def _load_or_run(
    folder: Store | None,
    kind: type[Any],
    name: str,
    task: Callable[..., Any],
    partition: Any,
    *shared: Any,
) -> Any:
    """Run a task, unless its result is stored: a worker may have died after it stored the result."""
    if folder is None:
        return task(partition, *shared)
    result = folder.load(kind, name)
    if result is None:
        result = task(partition, *shared)
        folder.save(result, name)
    return result


def _is_readable(folder: Store, kind: type[Any], name: str) -> bool:
    return folder.load(kind, name) is not None


def _load(store: Store, kind: type[Any], name: str) -> Any:
    found = store.load(kind, name)
    if found is None:
        raise FileFormatError(
            f"cannot resume: {store.url}/{name} is damaged, or a worker cannot see it; delete the file "
            "to compute it again, or use a checkpoint folder that the caller and all workers share"
        )
    return found


def _save_merged(store: Store, result: Any, name: str) -> Any:
    """Store the merged result, and delete the results of the single partitions."""
    store.save(result, f"{name}.bary")
    with suppress(OSError):  # a worker that repeats the same task may still write there
        (store / name).delete_all()
    return result
