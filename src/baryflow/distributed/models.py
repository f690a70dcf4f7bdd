"""Models on their way to workers: as bytes, read once in each process."""

from __future__ import annotations

from functools import lru_cache
from threading import Lock
from typing import Any

from baryflow import container
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.persistence import open_content


def pack(model: Any) -> bytes:
    """Return a fitted model as bytes, which are the same for the same model.

    Parameters
    ----------
    model : OnlineDaDiL

    Returns
    -------
    bytes

    Raises
    ------
    InvalidInputError
        If it is something else.
    NotFittedError
        If it was not fitted.
    """
    if not isinstance(model, OnlineDaDiL):
        raise InvalidInputError(f"expected an OnlineDaDiL, got a {type(model).__name__}")
    return model.to_bytes()


#: Threads of a worker ask for a model at the same time; one of them reads it. Beside being done once, it
#: silences warnings, which is a matter of the whole process.
READING = Lock()


def unpack(packed: bytes) -> Any:
    """Return the model; it is shared by all tasks of the process, so nobody may change it.

    Parameters
    ----------
    packed : bytes

    Returns
    -------
    OnlineDaDiL
    """
    with READING:
        return _open(packed)


@lru_cache(maxsize=4)
def _open(packed: bytes) -> Any:
    return open_content(container.from_bytes(packed))
