"""Waiting for what other threads and processes do, on machines that may be busy."""

import signal
import time
from pathlib import Path

#: Seconds after which something has gone wrong, however busy the machine is.
PATIENCE = 300.0


def wait_until(condition, what="", step=0.02):
    """Wait until a condition holds.

    `what` is what to say if it never does, or a function that returns it; `step` is the time to sleep
    between two looks, or a function to call.
    """
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what() if callable(what) else what)
        step() if callable(step) else time.sleep(step)


def ask_to_end(process, number=signal.SIGTERM):
    """Signal a process once it catches the signal: before, it would just be ended by it."""

    def caught():
        status = Path(f"/proc/{process.pid}/status").read_text()
        mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
        return int(mask, 16) >> (number - 1) & 1

    wait_until(lambda: process.poll() is not None or caught())
    process.send_signal(number)
