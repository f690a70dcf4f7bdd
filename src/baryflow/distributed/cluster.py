"""Workers: those of a scheduler somewhere, or processes on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from baryflow.exceptions import InvalidInputError

#: Seconds in which a scheduler must answer.
_PATIENCE = 10.0
#: A worker that died has so long to come back, on a machine that is busy: else it would be given up.
_RESTART = "10 minutes"


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
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": _RESTART}),
        distributed.LocalCluster(
            n_workers=workers or os.cpu_count() or 1,
            threads_per_worker=1,  # the work is numerical: threads get in each other's way
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # any port that is free
            silence_logs=40,
            preload=["baryflow.distributed.heedless"],
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


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
