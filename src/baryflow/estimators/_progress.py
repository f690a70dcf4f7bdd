"""How far a fit is, estimated from the time that its tasks take."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable

#: Called with how much is done, of how much, and what is being done.
Progress = Callable[[int, int, str], None]
#: Parts into which all of the work is divided.
_PARTS = 100


class Schedule:
    """Tasks of several kinds, one kind after the other, and how long they take.

    A task takes time in proportion to its size. The rate of a kind is measured on its tasks that are
    done; before one is, it is taken to be that of all tasks that are.

    Parameters
    ----------
    report : callable, optional
    sizes : dict of kind → list of float
        Sizes of the tasks, in any unit.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self,
        report: Progress | None,
        sizes: dict[str, list[float]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report, self._clock = report, clock
        self._left = {kind: sum(some) for kind, some in sizes.items()}
        self._measured: dict[str, tuple[float, float]] = {}  # seconds and size of tasks that are done
        self._began = self._started = clock()
        self._workers, self._finished, self._shown = 1, 0.0, 0

    def start(self, workers: int) -> None:
        """Note that this many tasks run at the same time from now on."""
        self._started, self._workers, self._finished = self._clock(), workers, 0.0

    def finish(self, kind: str, size: float, seconds: float) -> None:
        """Note that a task is done, and report. What was reported as done stays done."""
        self._left[kind] -= size
        if not self._finished:  # processes take a while to start
            self._started = max(self._started, self._clock() - seconds)
        self._finished += seconds
        before = self._measured.get(kind, (0.0, 0.0))
        self._measured[kind] = before[0] + seconds, before[1] + size
        self._shown = max(self._shown, min(int(_PARTS * self.share()), _PARTS - 1))
        self._tell(kind)

    def end(self, what: str) -> None:
        """Report that all is done."""
        self._shown = _PARTS
        self._tell(what)

    def share(self) -> float:
        """Return the estimated share of the time that has passed."""
        now, left = self._clock(), self._estimate_left()
        # Tasks that are running are done in part.
        running = self._workers * (now - self._started) - self._finished
        left = (left - min(max(running, 0.0), left)) / self._workers
        return (now - self._began) / max(now - self._began + left, 1e-12)

    def _estimate_left(self) -> float:
        """Return the seconds that the tasks that are not done will take, one after the other."""
        seconds, size = (sum(part) for part in zip(*self._measured.values(), strict=True))
        left = 0.0
        for kind, waiting in self._left.items():
            spent, done = self._measured.get(kind, (seconds, size))
            left += waiting * spent / done
        return left

    def _tell(self, what: str) -> None:
        if self._report is not None:
            self._report(self._shown, _PARTS, what)


def time_left(done: int, total: int, elapsed: float) -> float | None:
    """Return the seconds that are left at the rate so far; None if it is not known."""
    return elapsed * (total - done) / done if 0 < done < total else None


class ConsoleLine:
    """Print progress to standard error: on a terminal one line that overwrites itself, else lines."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, clock()

    def __call__(self, done: int, total: int, what: str) -> None:
        """Print the progress."""
        left = time_left(done, total, self._clock() - self._began)
        ending = "" if left is None else f", {left:.0f} s left"
        text = f"baryflow: {done / total:.0%}, {what}{ending}"
        if not sys.stderr.isatty():
            sys.stderr.write(f"{text}\n")
            return
        width = shutil.get_terminal_size().columns - 1
        newline = "\n" if done == total else ""
        sys.stderr.write(f"\r{text[:width]:<{width}}{newline}")
        sys.stderr.flush()
