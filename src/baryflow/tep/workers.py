"""Work in several processes, which end with the one that began them, and at once on Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process, resource_tracker
from typing import Any, TypeVar

from baryflow.exceptions import BaryflowError
from baryflow.validation import as_count

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_parallel(
    work: Callable[[Task], Result],
    tasks: Iterable[Task],
    *,
    jobs: int | None = None,
    start: Callable[..., None] | None = None,
    arguments: tuple[Any, ...] = (),
) -> Generator[Result]:
    """Yield what `work` makes of every task, in the order in which they are done.

    `start` is called with `arguments` once in every process. After an error, what has not begun is not
    begun; after an interruption, or when the generator is closed, what has begun is given up, too.
    """
    tasks = list(tasks)
    n_jobs = min(as_count(jobs or os.cpu_count() or 1, "jobs"), max(1, len(tasks)))
    with ProcessPoolExecutor(n_jobs, get_context("spawn"), _begin, (start, arguments)) as pool:
        try:
            with _without_interruptions():
                futures = [pool.submit(work, task) for task in tasks]
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            raise BaryflowError(
                "a worker process was killed, perhaps for lack of memory: try again with fewer jobs; "
                "what was finished is kept"
            ) from error
        except (KeyboardInterrupt, GeneratorExit):
            _end(pool)
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _without_interruptions() -> Iterator[None]:
    """Hold back Ctrl-C, here for a moment, and for good in the processes that are started meanwhile.

    A terminal sends it to them as well. They would answer with a traceback each, although it is for
    this process to end them.
    """
    if os.name != "posix":
        yield
        return
    resource_tracker.ensure_running()  # its own start would let Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(pool: ProcessPoolExecutor) -> None:
    """End the processes in the midst of what they do; public from Python 3.14 on."""
    for process in list((pool._processes or {}).values()):  # noqa: SLF001
        process.terminate()


def _begin(start: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:  # a parent killed without warning leaves no worker behind
        threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    if start is not None:
        start(*arguments)


def _follow(parent: Any) -> None:
    """End this process when its parent has ended."""
    parent.join()
    os._exit(1)
