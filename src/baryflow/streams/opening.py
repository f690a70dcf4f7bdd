"""Open a source or a sink by its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from baryflow.streams.batches import Sink, Source


def open_source(
    what: str | Path,
    *,
    columns: Sequence[str] | None,
    time: str | None = None,
    key: str | None = None,
    tail: bool = False,
    idle: float | None = None,
) -> Source:
    """Open a stream of rows."""
    raise NotImplementedError


def open_sink(what: str | Path, *, resume: bool = False) -> Sink:
    """Open a place for records."""
    raise NotImplementedError
