"""Rows sampled from the variables of an OPC UA server."""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Batch, Source
from baryflow.streams.opcua.connection import check_security, silence_logging
from baryflow.streams.opcua.feed import ClockTick, Feed, FeedItem, Gap
from baryflow.streams.opcua.nodes import to_seconds
from baryflow.streams.registry import SourceOptions
from baryflow.streams.sampling.sampler import Sampler
from baryflow.streams.sampling.tags import Tag, read_tags
from baryflow.streams.urls import Endpoint

OPTIONS = ("node", "security", "mode", "uncertain", "clock", "since")


class OpcUaSource(Source):
    """Rows from a connected feed; `since` is where to begin in the server's history, by default now."""

    def __init__(
        self,
        feed: Feed,
        sampler: Sampler,
        tags: Sequence[Tag],
        idle: float | None,
        since: float | None,
    ) -> None:
        self._feed, self._sampler, self._idle = feed, sampler, idle
        self._tags = [tag.address for tag in tags]
        self._since = since
        self._started = False
        self._notices: list[str] = []

    @property
    def columns(self) -> list[str]:
        """All columns."""
        return list(self._sampler.columns)

    @property
    def wanted(self) -> list[str]:
        """The columns of the rows."""
        return list(self._sampler.columns)

    def read(self, n: int, timeout: float | None = None) -> Batch | None:
        """Return the next `n` rows, or fewer if they do not arrive in time; the stream never ends."""
        if not self._started:
            self._start()
        begin = time.monotonic()
        first: float | None = None
        while self._sampler.prepare(n) < n:
            now = time.monotonic()
            if first is None and self._sampler.prepare(1):
                first = now
            limits = ((first, timeout), (begin, self._idle))
            ends = [start + limit for start, limit in limits if start is not None and limit is not None]
            if ends and now >= min(ends):
                break
            try:
                self._handle(self._feed.items.get(timeout=min(ends) - now if ends else None))
            except queue.Empty:
                continue
        batch = self._sampler.batch(n)
        batch.notices[:0] = self._notices
        self._notices = []
        return batch

    def _start(self) -> None:
        self._started = True
        known = ((address, self._sampler.newest(address)) for address in self._tags)
        latest = {address: moment for address, moment in known if moment is not None}
        continued = bool(latest)
        if not latest and self._since is not None:
            self._sampler.skip(self._since)
            latest = dict.fromkeys(self._tags, self._since - 1e-6)  # include values at that very moment
        self._feed.start(latest, continued)

    def _handle(self, item: FeedItem) -> None:
        if isinstance(item, str):
            self._notices.append(item)
        elif isinstance(item, ClockTick):
            self._sampler.advance(item.time)
        elif isinstance(item, Gap):
            self._skip(item)
        else:
            for address, value, moment, good in item:
                self._sampler.update(address, value, moment, good)  # type: ignore[arg-type]  # counted

    def _skip(self, gap: Gap) -> None:
        if gap.begin is None:
            self._sampler.skip(gap.end)
        elif gap.end - gap.begin > self._sampler.interval:
            self._sampler.skip(gap.end, gap.reason)
        elif gap.end > gap.begin:
            self._notices.append(f"changes in {gap.end - gap.begin:g} s may be missing: {gap.reason}")

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume after a batch; the server's history since then is read first."""
        self._sampler.resume(cursor["sampler"])

    def close(self) -> None:
        """Disconnect."""
        self._feed.close()


def open_source(endpoint: Endpoint, options: SourceOptions) -> OpcUaSource:
    """Open a source of rows; see the package."""
    endpoint.check_options(*OPTIONS)
    if options.labels is not None:
        raise InvalidInputError(
            f"{options.labels.what} cannot be read from {endpoint}: use a file, MQTT or Kafka"
        )
    if options.sample_interval is None:
        raise InvalidInputError(
            "OPC UA values arrive one at a time: set how often to sample a row, --sample-interval 10s"
        )
    if options.time is not None:
        raise InvalidInputError("OPC UA rows have the plant's time: leave out the time column")
    if options.key not in (None, "@node"):
        raise InvalidInputError(
            "the key of OPC UA rows is in the column key of the tag list, or --key @node for the "
            f"objects under ?node=, got {options.key!r}"
        )
    if endpoint.option("uncertain", "missing") not in ("missing", "good"):
        raise InvalidInputError("uncertain must be missing or good")
    since = _parse_since(endpoint.option("since", ""))
    tags = None if options.tags is None else read_tags(options.tags)
    node = endpoint.option("node", "")
    if (tags is None) == (not node):
        raise InvalidInputError(
            "choose the variables: either with a tag list, or with ?node= for the variables under a "
            "node, whose names are the columns"
        )
    check_security(endpoint)
    silence_logging()
    feed = Feed(endpoint)
    try:
        feed.open()
        if tags is None:
            tags = feed.find_tags(node, options.columns, options.key == "@node")
        columns = options.columns or list(dict.fromkeys(tag.column for tag in tags))
        sampler = Sampler(columns, tags, options.sample_interval, options.max_age)
        feed.check(tags)
    except BaseException:
        feed.close()
        raise
    return OpcUaSource(feed, sampler, tags, options.idle, since)


def _parse_since(text: str) -> float | None:
    if not text:
        return None
    try:
        since = to_seconds(datetime.fromisoformat(text))
    except ValueError:
        since = None
    if since is None:
        raise InvalidInputError(f"since must be a time like 2026-01-31T12:00:00Z, got {text!r}")
    return since
