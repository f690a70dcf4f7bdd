"""What happened along a stream, as the caller tells it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from baryflow.exceptions import InvalidInputError
from baryflow.page.tables import draw_table
from baryflow.page.text import count, escape

#: Under which names an event says where it was, and what it was.
_WHERE, _WHAT = ("row", "n_rows", "position", "offset"), ("kind", "event", "type")
#: More are counted, and the last are listed.
_MOST = 200
_LONGEST = 400


@dataclass(frozen=True)
class Event:
    """Where in the stream, when, of what kind, and all else."""

    row: float | None
    time: str
    kind: str
    more: str


def read_events(events: Sequence[Mapping[str, Any]]) -> list[Event]:
    """Return events as they are shown; refuse what is no mapping."""
    found = []
    for number, event in enumerate(events):
        if not isinstance(event, Mapping):
            raise InvalidInputError(
                f"expected events to be mappings such as {{'row': 640, 'kind': 'drift'}}, got "
                f"{type(event).__name__} at position {number}"
            )
        left = {str(key): value for key, value in event.items()}
        where = next((key for key in _WHERE if _is_number(left.get(key))), None)
        row = None if where is None else float(left.pop(where))
        what = next((str(left.pop(key)) for key in _WHAT if key in left), "event")
        time = str(left.pop("time")) if left.get("time") is not None else ""
        words = [f"{key}: {_short(value)}" for key, value in left.items() if value is not None]
        if set(left) == {"text"}:
            words = [str(left["text"])]
        found.append(Event(row, time, what, "; ".join(words)[:_LONGEST]))
    return found


def show_events(events: Sequence[Event] | None) -> str:
    """Return the list of events, or that there were none; nothing if that is not known."""
    if events is None:
        return ""
    if not events:
        return "<h2>Events</h2><p>No drift was seen along the stream.</p>"
    shown = events[-_MOST:]
    timed = any(event.time for event in shown)
    head = ["Event", "Target rows seen", *(["Time"] if timed else []), "What was said"]
    body = [
        [
            escape(event.kind),
            "–" if event.row is None else count(round(event.row)),
            *([escape(event.time)] if timed else []),
            escape(event.more),
        ]
        for event in shown
    ]
    left = f", the last {_MOST} of {count(len(events))}" if len(events) > _MOST else ""
    table = draw_table(f"What happened along the stream{left}", head, body, "tnwt" if timed else "tnt")
    words = "Those that say after how many rows they came are dashed lines in the pictures."
    return f'<h2>Events</h2><p class="note">{words}</p>{table}'


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, (str, bool)) and math.isfinite(value)
    except TypeError:
        return False


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
