"""Workers: those of a scheduler somewhere, or processes on this machine."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from typing import Any

from baryflow.exceptions import InvalidInputError, UnreachableError

#: Seconds in which a scheduler must answer.
_PATIENCE = 10.0
#: A worker that died has so long to come back, on a machine that is busy: else it would be given up.
_RESTART = "10 minutes"
#: Seconds between two looks at who works, and for how long there may be nobody.
_LOOK, _ALONE = 10.0, 120.0


@contextmanager
def connect(address: str, workers: int | None = None) -> Iterator[Any]:
    """Give a client of a Dask cluster, and close what was opened for it.

    Parameters
    ----------
    address : str
        Of a scheduler, such as ``tcp://10.0.0.7:8786``; or ``"local"``: processes on this machine, that
        listen on the loopback interface only.
    workers : int, optional
        Processes, for ``"local"``; without it one for each core.

    Yields
    ------
    distributed.Client

    Raises
    ------
    InvalidInputError
        If nobody answers at that address.
    ModuleNotFoundError
        If Dask is not there: ``pip install 'baryflow[dask]'``.
    """
    distributed = require()
    import dask

    if address != "local":
        if workers is not None:
            raise InvalidInputError("the number of workers is for 'local': a cluster has those it has")
        try:
            client = distributed.Client(address, timeout=_PATIENCE)
        except (OSError, ValueError) as error:
            raise InvalidInputError(
                f"no Dask scheduler answers at {address} ({error}): expected 'local', or an address "
                "such as tcp://host:8786"
            ) from error
        with client:
            yield client
        return
    with dask.config.set({"distributed.deploy.lost-worker-timeout": _RESTART}), ExitStack() as opened:
        with _interrupted_later():
            cluster = distributed.LocalCluster(
                n_workers=workers or os.cpu_count() or 1,
                threads_per_worker=1,  # the work is numerical: threads get in each other's way
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",  # any port that is free
                silence_logs=logging.CRITICAL,  # what goes wrong in a task is raised to the caller
            )
            opened.enter_context(cluster)
        yield opened.enter_context(distributed.Client(cluster))


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Let Ctrl-C wait, and processes that are started meanwhile never hear of it.

    A terminal sends it to all of them, but it is for whoever started them, and ends them in order.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not on this platform
        yield
        return
    resource_tracker.ensure_running()  # or it would be started meanwhile, and end this
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def told_if_gone() -> Iterator[None]:
    """Say in words that the scheduler is gone, of which Dask tells in several ways.

    Raises
    ------
    UnreachableError
        If it is.
    """
    distributed = require()
    lost = (
        distributed.CancelledError, distributed.client.ClosedClientError,
        distributed.comm.CommClosedError,
    )  # fmt: skip
    try:
        yield
    except lost as error:
        raise UnreachableError(
            "the Dask scheduler is gone, or has forgotten the work: start it, and call it again; it "
            "goes on from what was kept"
        ) from error


class Attendance:
    """Sees to it that nobody waits for a cluster without workers for ever.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._asked = self._seen = time.monotonic()

    def check(self) -> None:
        """Ask who is there, unless that was asked a moment ago.

        Raises
        ------
        UnreachableError
            If nobody has been there for long: workers that died may come back.
        """
        now = time.monotonic()
        if now - self._asked < _LOOK:
            return
        self._asked = now
        if self._client.nthreads():
            self._seen = now
        elif now - self._seen > _ALONE:
            raise UnreachableError("the cluster has no worker: start some, and call it again to go on")


def require() -> Any:
    """Return the package ``distributed``, or say how to get it.

    Returns
    -------
    module
    """
    try:
        import distributed
    except ImportError as error:
        raise ModuleNotFoundError(
            f"Dask is not there ({error.name}): pip install 'baryflow[dask]'"
        ) from error
    return distributed
