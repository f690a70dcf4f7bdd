"""The files of a backfill: plan, model, states of targets, predictions, quarantine and events."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from baryflow import container
from baryflow.distributed.files import Files
from baryflow.exceptions import FileFormatError
from baryflow.persistence import open_content
from baryflow.runtime import Event, SessionConfig
from baryflow.runtime.session import SessionState
from baryflow.streams.base import Rejected
from baryflow.streams.sinks import encode_record

#: Bytes of a folder name that file systems allow.
_MAX_NAME_BYTES = 255


@dataclass(frozen=True)
class Summary:
    """Result of all calls of :func:`backfill` with the same state folder, for all targets or some.

    Attributes
    ----------
    targets : int
    rows, used, predicted, quarantined : int
        ``rows == used + quarantined``. Every row that is used is predicted. Of raw signals, windows are.
    drifts : int
        Number of detected drifts.
    failed : dict of str → str
        Targets that could not be followed to their end, with the reason. The same call tries them again.
    unlearned : int
        Rows that were predicted, but from which the model failed to learn; an event gives the reason.
    """

    targets: int = 0
    rows: int = 0
    used: int = 0
    predicted: int = 0
    quarantined: int = 0
    drifts: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    unlearned: int = 0

    def __add__(self, other: Summary) -> Summary:
        counts = {name: n + vars(other)[name] for name, n in vars(self).items() if name != "failed"}
        return Summary(**counts, failed=self.failed | other.failed)


@dataclass(frozen=True, eq=False)
class TargetSnapshot:
    """Content of a state file: everything that is known of a target after an epoch.

    Not called TargetState: the session holds a class of this name, and the codec keeps class names.
    """

    name: str
    counts: Summary
    session: SessionState | None  # None for rows that name no target


@dataclass(frozen=True)
class BackfillPlan:
    """Settings of the first call; later calls with the same state folder must use the same."""

    source: str  # URLs of folders, as for output and events
    output: str
    key: str  # column that names the target
    time: str | None  # timestamp column
    columns: list[str]  # of the model
    batch_size: int
    drift: str
    epoch_rows: int
    events: str | None = None


@dataclass(frozen=True)
class Job:
    """A backfill, as its workers get it; they read the model themselves."""

    plan: BackfillPlan
    source: Files
    state: Files
    output: Files
    events: Files | None = None

    @cached_property
    def config(self) -> SessionConfig:
        """How targets are followed."""
        return load_config(self.state, self.plan)


def load_config(state: Files, plan: BackfillPlan) -> SessionConfig:
    """Read the model with which targets are followed."""
    content = state.read("model.bary")
    if content is None:
        raise FileFormatError(f"cannot resume: {state.url}/model.bary is missing")
    base = open_content(container.from_bytes(content, name="model.bary"))
    return SessionConfig(base, plan.batch_size, plan.drift)


def states(state: Files, target: str) -> Files:
    """Return the folder of a target's states."""
    return state / "targets" / target_folder(target)


def latest_state(state: Files, target: str) -> tuple[int, TargetSnapshot] | None:
    """Return the last finished epoch of a target and the state after it; None if there is none."""
    return states(state, target).latest(TargetSnapshot)


def target_folder(target: str) -> str:
    """Return the name of a target's folder: valid for every target, and different for each."""
    name = f"target={quote(target, safe='')}"
    if len(name) <= _MAX_NAME_BYTES:
        return name
    # Shorten it, at a whole character, and add a digest. Quoted names have no "!", so none can be equal.
    digest = sha256(target.encode()).hexdigest()
    beginning = target[:_MAX_NAME_BYTES]
    while len(quote(beginning, safe="")) > _MAX_NAME_BYTES - len(f"target=!{digest}"):
        beginning = beginning[:-1]
    return f"target={quote(beginning, safe='')}!{digest}"


def write_predictions(
    files: Files, name: str, target: str, records: Sequence[dict[str, Any]], labels: Sequence[Any]
) -> None:
    """Write predictions as Parquet; equal records give equal bytes.

    `labels` lists all possible predictions, so that the column has the same type in every file.
    """
    try:
        label_type = pa.array(labels).type
    except pa.ArrowException:  # numbers, and a name for unknown rows
        label_type = pa.string()
    types = {
        "position": pa.int64(),
        "time": pa.string(),
        "label": label_type,
        "probability": pa.float64(),
        "reliability": pa.float64(),
        "novelty": pa.float64(),
        "rows_seen": pa.int64(),
    }
    columns = {"key": pa.array([target] * len(records), pa.string())}
    for column, kind in types.items():
        values = [_finite(record[column]) for record in records]
        columns[column] = pa.array(map(str, values) if kind == pa.string() else values, kind)
    content = io.BytesIO()
    pq.write_table(pa.table(columns), content)
    files.write(name, content.getvalue())


def write_quarantine(files: Files, name: str, target: str, rejected: Sequence[Rejected]) -> None:
    """Write unusable rows with the reason as NDJSON: readers of the Parquet files must not get them."""
    records = (
        {"key": target, "position": row.position, "reason": row.reason, "raw": row.raw}
        for row in rejected
    )
    files.write(name, "".join(map(encode_record, records)).encode())


def write_events(files: Files, name: str, events: Sequence[Event]) -> None:
    """Write events as NDJSON, like ``baryflow run --events``."""
    files.write(name, "".join(encode_record(event.record()) for event in events).encode())


def _finite(value: Any) -> Any:
    """Return a value, or None for NaN and infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
