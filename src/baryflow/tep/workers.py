"""Work in several processes, which end with the one that began them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
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

    `start` is called with `arguments` once in every process. After an error or an interruption, what has
    not begun is not begun.
    """
    tasks = list(tasks)
    n_jobs = min(as_count(jobs or os.cpu_count() or 1, "jobs"), max(1, len(tasks)))
    with ProcessPoolExecutor(n_jobs, get_context("spawn"), _begin, (start, arguments)) as pool:
        futures = [pool.submit(work, task) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            raise BaryflowError(
                "a worker process was killed, perhaps for lack of memory: try again with fewer jobs; "
                "what was finished is kept"
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin(start: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    parent = parent_process()
    if parent is not None:  # a parent killed without warning leaves no worker behind
        threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    if start is not None:
        start(*arguments)


def _follow(parent: Any) -> None:
    """End this process when its parent has ended."""
    parent.join()
    os._exit(1)
