"""One target of a fleet, out of its state: an ordinary model again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from baryflow.distributed.fleet.worker import JobContext
from baryflow.distributed.store import place
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError


def open_target(
    state: str | Path, key: str, *, storage_options: dict[str, Any] | None = None
) -> OnlineDaDiL:
    """Return the model of one target, as it stood after the last epoch that :func:`follow` has done.

    It is a copy of the fleet's model that has seen the target: it predicts, reports which sources the
    target resembles, and can be saved. What is done with it does not touch the fleet.

    Parameters
    ----------
    state : str or path
        The folder of states that was given to :func:`follow`.
    key : str
        Of the target.
    storage_options : dict, optional
        For file systems other than this machine's.

    Returns
    -------
    OnlineDaDiL
        Of features, if the fleet follows raw signals.

    Raises
    ------
    InvalidInputError
        If there is no state of such a target.
    FileFormatError
        If there are no states of a fleet, or they are damaged.
    """
    where = place(state, storage_options)
    fleet = JobContext(where, where, where, mark="")
    config = fleet.read_recipe()
    found = fleet.last(key)
    if found is None:
        raise InvalidInputError(f"{where.url} holds no state of a target called {key!r}")
    return config.resume(found[1].state).model
