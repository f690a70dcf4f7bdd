"""Run tasks on Dask: one per partition merged in a tree, or long jobs that survive killed workers."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import distributed
from dask.base import compute, persist
from dask.delayed import delayed

from baryflow.distributed.cluster import current_client, scheduler_errors
from baryflow.distributed.files import Files, numbered
from baryflow.exceptions import FileFormatError, UnreachableError

#: Called with how much is done, of how much, and what is being done.
Progress = Callable[[int, int, str], None]
#: Number of results that one task merges.
_FAN_IN = 8
#: Seconds between two reports of progress.
_POLL_INTERVAL = 0.25
#: Seconds for which a cluster may be without workers.
_NO_WORKER_TIMEOUT = 120.0
#: How often a job is submitted again after Dask has given it up. Dask does so after several workers died
#: that had it, perhaps of something else.
_RESUBMISSIONS = 3


@dataclass(frozen=True)
class TaskRunner:
    """Runs a task per partition and merges the results in a tree.

    With `files`, results are kept there and not computed again after a crash. `progress` is called as
    ``progress(done, total, what)``. The default `client` is Dask's current one, or threads.
    """

    client: Any = None
    files: Files | None = None
    progress: Progress | None = None

    def reduce(
        self,
        what: str,
        kind: type[Any],
        partitions: Sequence[Any],
        task: Callable[..., Any],
        merge: Callable[[list[Any]], Any],
        *shared: Any,
        then: tuple[str, Callable[[Any], Any]] | None = None,
    ) -> Any:
        """Merge ``task(partition, *shared)`` over all partitions; results are dataclasses of a kind.

        `then` is what a worker does with the merged result, and its name. The tree depends on the number
        of partitions only, so results are merged in the same order on every cluster.
        """
        names = [f"{numbered(number)}.bary" for number in range(len(partitions))]
        stored = set() if self.files is None else {*self.files.names()}
        run, join, token = delayed(_run), delayed(merge), f"{what.replace(' ', '-')}-{uuid4().hex}"
        more = [  # one node each in the graph
            delayed(one, name=f"shared-{token}-{number}", traverse=False)
            for number, one in enumerate(shared)
        ]
        pieces = [
            run(
                *(self.files, name, kind, task),
                None if name in stored else partition,  # otherwise Dask would compute it
                *more,
                dask_key_name=f"{token}-{number}",
            )
            for number, (name, partition) in enumerate(zip(names, partitions, strict=True))
        ]
        level = pieces
        while len(level) > 1:
            level = [
                join(level[i : i + _FAN_IN], dask_key_name=f"merge-{token}-{len(level)}-{i}")
                for i in range(0, len(level), _FAN_IN)
            ]
        if then is None:
            return self.compute(what, level[0], pieces)
        name, function = then
        return self.compute(what, delayed(function)(level[0]), pieces, name)

    def compute(self, what: str, root: Any, pieces: Sequence[Any] = (), last: str = "") -> Any:
        """Return the result of a delayed object; raise UnreachableError if the cluster is lost.

        Progress is counted in `pieces`, parts of the graph; the rest of the work is called `last`.
        """
        client = current_client(self.client)
        if client is None:
            return compute(root)[0]  # type: ignore[no-untyped-call]
        *parts, result = client.compute([*pieces, root])
        watch = Watch(client)
        try:
            with scheduler_errors():
                while True:
                    done = sum(part.done() for part in parts)
                    if self.progress is not None and parts:
                        self.progress(done, len(parts), last if last and done == len(parts) else what)
                    if watch.wait([result]):
                        return result.result()
        except distributed.KilledWorker as error:
            raise UnreachableError(
                f"{what}: a partition killed its workers repeatedly, most likely for lack of memory; "
                "give them more memory, or use smaller partitions (partition_bytes for Parquet files)"
            ) from error
        finally:
            if not result.done():
                with suppress(Exception):  # do not hide the first error
                    client.cancel([*parts, result])

    def persist(self, task: Any) -> Any:
        """Return a delayed object with its result left on the workers."""
        client = current_client(self.client)
        if client is None:
            return persist(task)[0]  # type: ignore[no-untyped-call]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # once, for all tasks
            return client.persist(task)


class Watch:
    """Waits for futures, and raises an error when a cluster has had no workers for a while."""

    def __init__(self, client: Any) -> None:
        self._client, self._seen = client, time.monotonic()

    def wait(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for a moment; return the futures that are finished by then."""
        if self._client.nthreads():
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > _NO_WORKER_TIMEOUT:
            raise UnreachableError(
                "the cluster has no workers: start some, and repeat the call to resume"
            )
        gone = (TimeoutError, distributed.TimeoutError, distributed.CancelledError)
        with suppress(*gone), self._client.as_current():  # not necessarily the default client
            distributed.wait(  # type: ignore[no-untyped-call]
                futures, timeout=_POLL_INTERVAL, return_when="FIRST_COMPLETED"
            )
        return [future for future in futures if future.done()]


def complete(
    client: Any,
    work: Callable[[Any], Any],
    jobs: Sequence[Any],
    on_poll: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, Any]]:
    """Run long jobs; yield the number of each finished job with its result or its exception.

    Jobs that Dask gives up because workers died are submitted again, so `work` must be idempotent.
    `on_poll` is called several times a second.
    """
    watch, attempts = Watch(client), [0] * len(jobs)

    def submit(number: int) -> Any:
        attempts[number] += 1
        key = f"{work.__name__}-{number}-{uuid4().hex}"
        return client.submit(work, jobs[number], key=key, pure=False)

    pending = {submit(number): number for number in range(len(jobs))}
    try:
        while pending:
            for future in watch.wait(list(pending)):
                number = pending.pop(future)
                result = future.exception() if future.status == "error" else future.result()
                if isinstance(result, distributed.KilledWorker) and attempts[number] <= _RESUBMISSIONS:
                    pending[submit(number)] = number
                else:
                    yield number, result
            on_poll()
    finally:
        with suppress(Exception):  # do not hide the first error
            client.cancel(list(pending))


def _run(
    files: Files | None,
    name: str,
    kind: type[Any],
    task: Callable[..., Any],
    partition: Any,
    *shared: Any,
) -> Any:
    """Run a task and keep its result, or return what is kept if there is no partition."""
    if partition is None and files is not None:
        if (found := files.load(kind, name)) is None:
            raise FileFormatError(
                f"cannot resume: {files.url}/{name} is damaged, or a worker cannot see it; delete the "
                "file, or use a checkpoint folder that the caller and all workers share"
            )
        return found
    result = task(partition, *shared)
    if files is not None:
        files.save(result, name)
    return result
