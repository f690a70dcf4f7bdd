"""Connect to a Dask cluster, and notice when its scheduler is gone."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from typing import Any

import dask
import distributed

from baryflow.exceptions import InvalidInputError, UnreachableError

#: Seconds within which a scheduler must answer.
_CONNECT_TIMEOUT = 10.0
#: How long a local worker may take to restart. Dask's default is too short for a busy machine.
_RESTART_TIMEOUT = "10 minutes"


@contextmanager
def connect(address: str, workers: int | None = None) -> Iterator[Any]:
    """Connect to a Dask cluster, or start a local one, and close it at the end of the context.

    Parameters
    ----------
    address : str
        Address of a scheduler (``tcp://10.0.0.7:8786``), or ``"local"`` to start worker processes on
        this computer. Local workers listen on the loopback interface only.
    workers : int, optional
        Number of worker processes for ``"local"`` (default: one per core).

    Yields
    ------
    distributed.Client

    Raises
    ------
    InvalidInputError
        If no scheduler answers at the address, or `workers` is given for a remote cluster.
    """
    if address != "local":
        if workers is not None:
            raise InvalidInputError(
                f"the number of workers can be set for 'local' only, not for the cluster at {address}"
            )
        try:
            client = distributed.Client(address, timeout=_CONNECT_TIMEOUT)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise InvalidInputError(
                f"no Dask scheduler answers at {address} ({error}): expected 'local', or an address "
                "such as tcp://host:8786"
            ) from error
        with client:
            yield client
        return
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": _RESTART_TIMEOUT}),
        ExitStack() as stack,
    ):
        with _interrupts_blocked():
            cluster = distributed.LocalCluster(  # type: ignore[no-untyped-call]
                n_workers=workers or os.cpu_count() or 1,
                threads_per_worker=1,  # the work is numerical: threads would compete for the core
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",  # any free port
                silence_logs=logging.CRITICAL,  # errors in tasks are raised in the caller
            )
            stack.enter_context(cluster)
        yield stack.enter_context(distributed.Client(cluster))  # type: ignore[no-untyped-call]


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Delay Ctrl-C, and let processes started meanwhile inherit a mask that ignores it.

    A terminal sends SIGINT to all processes of the group; the caller alone should handle it.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # otherwise it starts inside, and unblocks SIGINT for this process
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def current_client(client: Any = None) -> Any:
    """Return the given client, else Dask's current client, else None."""
    if client is not None:
        return client
    try:
        return distributed.get_client()
    except ValueError:
        return None


@contextmanager
def scheduler_errors() -> Iterator[None]:
    """Raise UnreachableError for the various errors by which Dask reports a lost scheduler."""
    lost = (
        distributed.CancelledError,
        distributed.client.ClosedClientError,
        distributed.comm.core.CommClosedError,
    )
    try:
        yield
    except lost as error:
        raise UnreachableError(
            "the Dask scheduler is gone, or was restarted: finished work is kept; start the scheduler, "
            "and repeat the call to resume"
        ) from error
