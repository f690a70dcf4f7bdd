"""Waiting for what other threads and processes do, on machines that may be busy."""

import time

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
