"""Wait for a broker or server that is away: pauses that grow, and end when the process must stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from baryflow.exceptions import StoppedError

#: Seconds between checks whether to stop.
SLICE = 0.2


@dataclass(frozen=True)
class RetryPolicy:
    """How to wait for a broker or server that is away.

    Attributes
    ----------
    first, longest : float
        The first pause between two attempts, in seconds, and the longest: each is twice the last one.
    grace : float
        Seconds for which it is still waited for after the process was asked to stop.
    """

    first: float = 0.25
    longest: float = 15.0
    grace: float = 5.0


class Backoff:
    """Pauses between attempts to reach `name`, which end soon after `stop` begins to return True."""

    def __init__(
        self, name: object, policy: RetryPolicy, stop: Callable[[], bool] | None = None
    ) -> None:
        self.stop = stop or (lambda: False)
        self._name, self._policy = name, policy
        self._pause = policy.first
        self._since: float | None = None  # first check of this wait at which `stop` returned True
        self._gave_up = False

    def begin(self) -> None:
        """Begin another wait. If an earlier wait was given up, this one gets no further grace period."""
        self._pause = self._policy.first
        self._since = self._since if self._gave_up else None

    def check(self) -> None:
        """Raise StoppedError if the wait must end."""
        if not self.stop():
            return
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= self._policy.grace:
            self._gave_up = True
            raise StoppedError(f"stopped while waiting for {self._name}, which does not answer")

    def next_pause(self) -> float:
        """Return how long to wait before the next attempt."""
        pause, self._pause = self._pause, min(2 * self._pause, self._policy.longest)
        return pause

    def sleep(self, seconds: float | None = None) -> None:
        """Wait before the next attempt, or raise StoppedError; without `seconds` for the next pause."""
        end = time.monotonic() + (self.next_pause() if seconds is None else seconds)
        self.check()
        while (left := end - time.monotonic()) > 0.0:
            time.sleep(min(left, SLICE))
            self.check()
