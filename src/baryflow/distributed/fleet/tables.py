"""Records as Parquet, events as NDJSON: the same records are the same bytes."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from baryflow.distributed.store import Store
from baryflow.runtime import Event
from baryflow.streams.base import Rejected
from baryflow.streams.sinks import encode_record


def write_predictions(
    store: Store, name: str, key: str, records: Sequence[dict[str, Any]], labels: Sequence[Any]
) -> None:
    """Write what was predicted, as ``baryflow run --key`` does.

    Parameters
    ----------
    store : Store
    name : str
        Of the file.
    key : str
        Of the target.
    records : sequence of dict
        As :meth:`Followed.take` gives them.
    labels : sequence
        All that can be predicted: every file must have the same columns, whatever is in it.
    """
    import pyarrow as pa

    numbers = dict.fromkeys(("probability", "reliability", "novelty"), pa.float64())
    counts = dict.fromkeys(("position", "rows_seen"), pa.int64())
    kinds = numbers | counts | {"label": _kind(labels)}
    names = ("position", "time", "label", "probability", "reliability", "novelty", "rows_seen")
    columns = {"key": pa.array([key] * len(records), pa.string())}
    for one in names:
        kind, values = kinds.get(one, pa.string()), [_known(record[one]) for record in records]
        columns[one] = pa.array(map(str, values) if kind == pa.string() else values, kind)
    store.write(name, _pack(pa.table(columns)))


def write_quarantine(store: Store, name: str, key: str, rejected: Sequence[Rejected]) -> None:
    """Write rows that could not be used, and why, a line each.

    No Parquet: whoever reads the folder of predictions with Dask would get them, too.

    Parameters
    ----------
    store : Store
    name : str
        Of the file.
    key : str
        Of the target.
    rejected : sequence of Rejected
    """
    records = (
        {"key": key, "position": row.position, "reason": row.reason, "raw": row.raw} for row in rejected
    )
    store.write(name, "".join(map(encode_record, records)).encode())


def write_events(store: Store, name: str, events: Sequence[Event]) -> None:
    """Write what happened, a line each, as ``baryflow run --events`` does.

    Parameters
    ----------
    store : Store
    name : str
        Of the file.
    events : sequence of Event
    """
    store.write(name, "".join(encode_record(event.record()) for event in events).encode())


def _kind(labels: Sequence[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(labels).type
    except pa.ArrowException:  # numbers, and a word for what is unknown
        return pa.string()


def _known(value: Any) -> Any:
    """Return a value, or None for what no file of records has: NaN, infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _pack(table: Any) -> bytes:
    import pyarrow.parquet as pq

    content = io.BytesIO()
    pq.write_table(table, content)
    return content.getvalue()
