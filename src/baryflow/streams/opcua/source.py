"""Rows from the variables of an OPC UA server."""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Batch
from baryflow.streams.opcua.connection import check_security
from baryflow.streams.opcua.feed import Clock, Feed, Missed, News
from baryflow.streams.opcua.packages import quieten
from baryflow.streams.opcua.values import to_seconds
from baryflow.streams.sampling.sampler import Sampler
from baryflow.streams.sampling.tags import Tag, read_tags
from baryflow.streams.transports import Wanted
from baryflow.streams.urls import Address, Credentials

OPTIONS = ("node", "security", "mode", "uncertain", "clock", "since")


class OpcUaSource:
    """Rows from variables; see :func:`baryflow.streams.opcua.open_source`.

    Parameters
    ----------
    feed : Feed
        Connected.
    sampler : Sampler
    tags : sequence of Tag
    idle : float or None
    since : float or None
        Where to begin in the server's history; without it, now.
    """

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
        self._every = sampler.every
        self._since = since
        self._started = False
        self._notices: list[str] = []

    @property
    def columns(self) -> list[str]:
        """All columns."""
        return list(self._sampler.columns)

    @property
    def wanted(self) -> list[str]:
        """The columns of rows."""
        return list(self._sampler.columns)

    def read(self, n: int, timeout: float | None = None) -> Batch | None:
        """Return the next `n` rows, or fewer after a while."""
        if not self._started:
            self._start()
        begin = time.monotonic()
        first: float | None = None
        while self._sampler.prepare(n) < n:
            now = time.monotonic()
            if first is None and self._sampler.prepare(1):
                first = now
            ends = [began + limit for began, limit in ((first, timeout), (begin, self._idle))
                    if began is not None and limit is not None]  # fmt: skip
            if ends and now >= min(ends):
                break
            try:
                self._take(self._feed.news.get(timeout=min(ends) - now if ends else None))
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
            latest = dict.fromkeys(self._tags, self._since - 1e-6)  # what is of that very moment is news
        self._feed.start(latest, continued)

    def _take(self, news: News) -> None:
        if isinstance(news, str):
            self._notices.append(news)
        elif isinstance(news, Clock):
            self._sampler.advance(news.time)
        elif isinstance(news, Missed):
            self._miss(news)
        else:
            for address, value, moment, good in news:
                self._sampler.update(address, value, moment, good)  # type: ignore[arg-type]  # counted

    def _miss(self, missed: Missed) -> None:
        if missed.begin is None:
            self._sampler.skip(missed.end)
        elif missed.end - missed.begin > self._every:
            self._sampler.skip(missed.end, missed.why)
        elif missed.end > missed.begin:
            self._notices.append(
                f"changes in {missed.end - missed.begin:g} s may be missing: {missed.why}"
            )

    def seek(self, cursor: dict[str, Any]) -> None:
        """Go on after a batch; what the server has kept since then is read first."""
        self._sampler.resume(cursor["sampler"])

    def acknowledge(self, cursor: dict[str, Any]) -> None:
        """Do nothing: a server keeps its history as long as it likes."""

    def close(self) -> None:
        """Let go of the server."""
        self._feed.close()


def open_source(address: Address, credentials: Credentials, wanted: Wanted) -> OpcUaSource:
    """Open a source of rows; see the package."""
    address.check_options(*OPTIONS)
    if wanted.every is None:
        raise InvalidInputError(
            "the values of OPC UA come one by one: set how often a row is made of them, "
            "--sample-interval 10s"
        )
    if wanted.time is not None:
        raise InvalidInputError("rows of OPC UA are stamped with the plant's time; no column holds it")
    if wanted.key not in (None, "@node"):
        raise InvalidInputError(
            "machines are told apart by the column key of the tag list, or with --key @node by the "
            f"objects under ?node=, not by {wanted.key!r}"
        )
    if address.option("uncertain", "missing") not in ("missing", "good"):
        raise InvalidInputError("uncertain must be missing or good")
    since = _parse_since(address.option("since", ""))
    tags = None if wanted.tags is None else read_tags(wanted.tags)
    node = address.option("node", "")
    if (tags is None) == (not node):
        raise InvalidInputError(
            "say which variables are the columns: either with a list of tags, or with ?node=, under "
            "which they have the columns' names"
        )
    check_security(address, credentials)
    quieten()
    feed = Feed(address, credentials)
    try:
        feed.open()
        if tags is None:
            tags = feed.find_tags(node, wanted.columns, wanted.key == "@node")
        columns = wanted.columns or list(dict.fromkeys(tag.column for tag in tags))
        sampler = Sampler(columns, tags, wanted.every, wanted.max_age)
        feed.check(tags)
    except BaseException:
        feed.close()
        raise
    return OpcUaSource(feed, sampler, tags, wanted.idle, since)


def _parse_since(text: str) -> float | None:
    if not text:
        return None
    try:
        since = to_seconds(datetime.fromisoformat(text))
    except ValueError:
        since = None
    if since is None:
        raise InvalidInputError(f"since must be a time such as 2026-01-31T12:00:00Z, got {text!r}")
    return since
