"""How much a service takes on: every limit in one place, and what names may look like."""

from __future__ import annotations

import re
from dataclasses import dataclass

from baryflow.validation import TARGET_NAME as NAME
from baryflow.validation import is_target_name as is_name

__all__ = ["BATCH_ID", "NAME", "TIME_LENGTH", "Limits", "is_batch_id", "is_name"]

#: Ids of batches: what can be seen, and stands in a header.
BATCH_ID = r"[!-~]{1,128}"
#: Characters of a time, at most.
TIME_LENGTH = 64

_BATCH_ID = re.compile(BATCH_ID)


@dataclass(frozen=True)
class Limits:
    """How much a service takes on before it says no.

    Attributes
    ----------
    body : int
        Bytes of a request.
    rows : int
        Rows of a request.
    targets : int
        Targets in all, in memory and on disk.
    in_memory : int
        Targets in memory.
    buffered : int
        Bytes of all requests that are being received.
    requests : int
        Requests with rows that are being worked on or wait for it.
    waiting : int
        ... of them for one target.
    listeners : int
        Readers of live updates.
    seconds : float
        For the body of a request to arrive, and for its headers.
    snapshot_every : int
        Requests with rows from one snapshot to the next: so many are replayed after a kill, at most.
    snapshot_seconds : float
        ... or so long after the first of them.
    target_metrics : int
        Targets with lines of their own in ``/metrics``; those that were there first.
    """

    body: int = 8 * 2**20
    rows: int = 4096
    targets: int = 10_000
    in_memory: int = 256
    buffered: int = 64 * 2**20
    requests: int = 64
    waiting: int = 16
    listeners: int = 64
    seconds: float = 30.0
    snapshot_every: int = 256
    snapshot_seconds: float = 60.0
    target_metrics: int = 0


def is_batch_id(text: str) -> bool:
    """Tell whether this can be the id of a batch.

    Parameters
    ----------
    text : str

    Returns
    -------
    bool
    """
    return _BATCH_ID.fullmatch(text) is not None
