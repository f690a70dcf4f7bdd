"""What the routes of a service share: targets, live updates, metrics, the parser of bodies."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import msgspec

from baryflow.runtime import SessionConfig
from baryflow.runtime.outbox import Outbox
from baryflow.service.errors import RequestError
from baryflow.service.layout import prepare
from baryflow.service.metrics import Metrics
from baryflow.service.parsing import Inbox, Limits, Parser
from baryflow.service.sse import Hub
from baryflow.service.targets import Targets
from baryflow.service.worker import Reply

#: Seconds over which rows per second are averaged.
_WINDOW = 10.0
#: Pictures that are cached.
_PICTURES = 16


class ServiceState:
    """The targets of a service, its live updates, metrics, limits, and the parser of bodies."""

    def __init__(
        self,
        config: SessionConfig,
        folder: Path | None,
        limits: Limits,
        alarm_output: Outbox | None = None,
        n_workers: int = 1,
    ) -> None:
        self.limits, self.metrics, self.hub = limits, Metrics(), Hub(limits.listeners)
        if folder is not None:  # it has its own model
            config = prepare(folder, config, n_workers, limits.in_memory)
        names = getattr(config.base, "feature_names_in_", None)
        columns = None if names is None else [str(name) for name in names]
        n_columns = config.model.n_features_in_ if columns is None else len(columns)
        n_features = int(config.model.n_features_in_)
        self.inbox = Inbox(limits)
        self.parser = Parser(int(n_columns), columns, limits.rows, n_features)
        self.targets = Targets(config, folder, limits, self.parser, self._publish, n_workers)
        self.targets.outbox = alarm_output
        self._views: dict[tuple[Any, ...], asyncio.Future[bytes]] = {}  # that are being prepared
        self._speeds: dict[str, tuple[float, float]] = {}
        self._intervals: dict[str, float] = {}  # longest lately between requests with rows, in seconds
        self._pictures: OrderedDict[str, tuple[tuple[int, ...], bytes]] = OrderedDict()

    def _publish(self, name: str, reply: Reply) -> None:
        """Count the rows or labels of an answer, and pass it to live clients."""
        for what, n in reply.counts.items():
            getattr(self.metrics, what).inc(n)
        if n_rows := reply.counts.get("rows"):
            if (age := self._age(name)) is not None:
                self._intervals[name] = max(age, 0.8 * self._intervals.get(name, 0.0))
            self._speeds[name] = (self._speed(name) + n_rows / _WINDOW, time.monotonic())
        if not reply.body:  # it was deleted
            self._speeds.pop(name, None)
            self._intervals.pop(name, None)
            self._pictures.pop(name, None)
        self.hub.publish(name, reply.body)

    def _speed(self, name: str) -> float:
        speed, at = self._speeds.get(name, (0.0, 0.0))
        return speed * math.exp((at - time.monotonic()) / _WINDOW)

    def _age(self, name: str) -> float | None:
        """Return the seconds since the last rows of a target; None if this process has had none."""
        return time.monotonic() - self._speeds[name][1] if name in self._speeds else None

    def entry(self, name: str) -> dict[str, Any] | None:
        """Return the entry of a target in the list of targets; None if there is no such target."""
        summary = self.targets.summaries.get(name)
        if summary is None:
            return None
        age, interval = self._age(name), self._intervals.get(name)
        in_memory = self.targets.has_in_memory(name)
        return {
            "name": name,
            **summary,
            "state": "in memory" if in_memory else "on disk",
            "rows_per_second": round(self._speed(name), 3),
            "seconds_since_rows": None if age is None else round(age, 1),
            "seconds_between_rows": None if interval is None else round(interval, 1),
        }

    def entries(self) -> list[dict[str, Any]]:
        """Return the list of targets, sorted by name."""
        found = map(self.entry, sorted(self.targets.summaries))
        return [entry for entry in found if entry is not None]

    async def describe(self, name: str, report: bool = False) -> dict[str, Any] | None:
        """Return everything about a target, with its report if wanted; None if it does not exist.

        Concurrent requests share one view, because a worker prepares a limited number at a time.
        """
        kind = "report" if report else "detail"
        key = (name, kind, *self._version(name))
        if key not in self._views:
            self._views[key] = asyncio.ensure_future(self.targets.view(name, kind))
            self._views[key].add_done_callback(lambda _: self._views.pop(key))
        try:
            found = await asyncio.shield(self._views[key])  # others wait for it if a client is gone
        except RequestError as error:
            if error.status != 404:
                raise
            return None
        entry = self.entry(name)
        return None if entry is None else entry | msgspec.json.decode(found)

    def _version(self, name: str) -> tuple[int, ...]:
        """Return numbers that change with every change of a target."""
        summary = self.targets.summaries.get(name, {})
        counts = ("rows_seen", "n_labels", "n_baseline_rows", "n_commands")
        return tuple(summary.get(count, -1) for count in counts)

    async def picture(self, name: str) -> bytes:
        """Return what the live page draws of a target, as JSON; cached until something changes."""
        state = self._version(name)
        cached = self._pictures.get(name)
        if cached is not None and cached[0] == state:
            return cached[1]
        drawn = await self.targets.view(name, "picture")
        self._pictures[name] = (state, drawn)
        self._pictures.move_to_end(name)
        while len(self._pictures) > _PICTURES:
            self._pictures.popitem(last=False)
        return drawn
