"""Work that is done here or in several processes, and comes back piece by piece."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor


def pieces(work, tasks, jobs=1):
    """Yield every piece that ``work(task)`` yields, as soon as it is there.

    With several jobs tasks run in as many processes, and what one of them raised is raised at the end,
    when all the others have come back.
    """
    if jobs == 1:
        for task in tasks:
            yield from work(task)
        return
    with multiprocessing.Manager() as manager, ProcessPoolExecutor(jobs) as pool:
        queue = manager.Queue()
        futures = [pool.submit(_send, work, task, queue) for task in tasks]
        for future in futures:
            future.add_done_callback(lambda _: queue.put(None))  # also if its process was killed
        for _ in futures:
            while (piece := queue.get()) is not None:
                yield piece
        for future in futures:
            future.result()


def _send(work, task, queue):
    for piece in work(task):
        queue.put(piece)
