"""How far a fit is."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable

#: Called with how much is done, of how much, and what is being done.
Progress = Callable[[int, int, str], None]
#: Parts into which all of the work is divided.
_PARTS = 100


class Progressed:
    """How much of the work is done, by the sizes of tasks."""

    def __init__(self, report: Progress | None, size: float) -> None:
        self._report, self._size, self._done = report, size, 0.0

    def finish(self, what: str, size: float) -> None:
        """Report that a task of this size is done."""
        self._done += size
        self._tell(min(int(_PARTS * self._done / self._size), _PARTS - 1), what)

    def end(self, what: str) -> None:
        """Report that all is done."""
        self._tell(_PARTS, what)

    def _tell(self, done: int, what: str) -> None:
        if self._report is not None:
            self._report(done, _PARTS, what)


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
