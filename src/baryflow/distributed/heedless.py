"""Loaded by worker processes on this machine: Ctrl-C is for whoever started them."""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(worker: Any) -> None:  # noqa: ARG001 - Dask calls it so
    """Let SIGINT pass, which a terminal sends to all processes: the caller ends workers in order.

    Parameters
    ----------
    worker : distributed.Worker
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
