"""Giving up on a broker that does not answer, once the process is asked to stop."""

from __future__ import annotations

import time
from collections.abc import Callable

from baryflow.exceptions import StoppedError

#: Seconds for which a broker is still waited for then.
GRACE = 5.0


class Stopping:
    """Ends waits for a broker soon after the process is asked to stop.

    Attributes
    ----------
    stop : callable
        Returns whether to stop.
    """

    def __init__(self) -> None:
        self.stop: Callable[[], bool] = lambda: False
        self._since: float | None = None  # the first check of this wait that was told to stop
        self._gave_up = False

    def begin(self) -> None:
        """Begin another wait; if the one before was given up, this one is, too."""
        self._since = self._since if self._gave_up else None

    def check(self, what: str) -> None:
        """Raise StoppedError if the wait is to end; `what` is waited for."""
        if not self.stop():
            return
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= GRACE:
            self._gave_up = True
            raise StoppedError(f"stopped while {what} does not answer")
