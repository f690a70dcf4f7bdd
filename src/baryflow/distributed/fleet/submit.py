"""Tasks that may be done twice, brought to their ends however often workers die."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

from baryflow.distributed.cluster import Attendance, require
from baryflow.exceptions import UnreachableError

#: Seconds after which the caller is heard again while tasks are under way.
_EVERY = 0.25
#: Times in a row that Dask may give a task up without that it has got on: perhaps it was only waiting at
#: a worker that died of something else.
_PATIENCE = 3


def complete(
    client: Any,
    work: Callable[[Any], Any],
    jobs: Sequence[Any],
    *,
    progress: Callable[[Any], int],
    listen: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, Any]]:
    """Do all jobs; a worker that dies costs what it did since it last wrote something down.

    Dask gives a task up once a few workers died while they had it. Long tasks on machines that come and
    go are not to blame for that: they are submitted again as long as they get on,
    and a few times if they do not.

    Parameters
    ----------
    client : distributed.Client
    work : callable
        Does a job. If it is done again, or twice at a time, the same must come of it.
    jobs : sequence
    progress : callable
        Gives how much of a job is done, by what was written down.
    listen : callable
        Called several times a second.

    Yields
    ------
    number, outcome : int and object
        Which job is done, and what `work` returned; or the exception that it raised.

    Raises
    ------
    UnreachableError
        If the scheduler is gone, or there are no workers.
    """
    distributed = require()
    workers = Attendance(client)
    before: dict[int, int] = {}
    in_vain: dict[int, int] = {}

    def submit(number: int) -> Any:
        name = f"{work.__name__}-{number}-{uuid4().hex}"
        return client.submit(work, jobs[number], key=name, pure=False)

    under_way = {submit(number): number for number in range(len(jobs))}
    try:
        while under_way:
            done = _wait(distributed, list(under_way))
            listen()
            workers.check()
            for future in done:
                number = under_way.pop(future)
                outcome = _outcome(future)
                if isinstance(outcome, distributed.KilledWorker):
                    now = progress(jobs[number])
                    got_on = now > before.get(number, 0)
                    before[number], in_vain[number] = now, 0 if got_on else in_vain.get(number, 0) + 1
                    if in_vain[number] <= _PATIENCE:
                        under_way[submit(number)] = number
                        continue
                yield number, outcome
    finally:
        if under_way:
            with contextlib.suppress(Exception):  # what went wrong before matters more
                client.cancel(list(under_way))


def _wait(distributed: Any, futures: list[Any]) -> list[Any]:
    try:
        with futures[0].client.as_current():  # not necessarily the default client
            return list(distributed.wait(futures, timeout=_EVERY, return_when="FIRST_COMPLETED").done)
    except (TimeoutError, distributed.TimeoutError):
        return []
    except distributed.CancelledError:
        return [future for future in futures if future.done()]


def _outcome(future: Any) -> Any:
    if future.status == "finished":
        return future.result()
    if future.status == "error":
        return future.exception()
    raise UnreachableError(
        "the Dask scheduler has forgotten the work, or is gone: nothing is lost; call it again to go on"
    )
