"""What the routes of a service share: targets, live updates, metrics, the parser of bodies."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from baryflow.runtime import Checkpoint, Session, SessionConfig
from baryflow.service.errors import RequestError, to_json
from baryflow.service.metrics import Metrics
from baryflow.service.parsing import Inbox, Limits, Parser
from baryflow.service.sse import Hub
from baryflow.service.target_record import alarm_events, detail
from baryflow.service.targets import Targets
from baryflow.streams import Sink

_log = logging.getLogger("baryflow.service")
#: Seconds over which rows per second are averaged.
_WINDOW = 10.0
#: Pictures that are cached.
_PICTURES = 16


class ServiceState:
    """The targets of a service, its live updates, metrics, limits, and the parser of bodies."""

    def __init__(
        self,
        config: SessionConfig,
        checkpoint: Checkpoint | None,
        limits: Limits,
        alarm_output: Sink | None = None,
    ) -> None:
        self.alarm_output = alarm_output
        self.limits, self.metrics, self.hub = limits, Metrics(), Hub(limits.listeners)
        self.targets = Targets(config, checkpoint, limits, self._publish)
        config = self.targets.store.config  # a checkpoint has its own model
        names = getattr(config.base, "feature_names_in_", None)
        columns = None if names is None else [str(name) for name in names]
        n_columns = config.model.n_features_in_ if columns is None else len(columns)
        n_features = int(config.model.n_features_in_)
        self.inbox = Inbox(limits)
        self.parser = Parser(int(n_columns), columns, limits.rows, n_features)
        self._speeds: dict[str, tuple[float, float]] = {}
        self._intervals: dict[str, float] = {}  # longest lately between requests with rows, in seconds
        self._pictures: OrderedDict[str, tuple[tuple[int, int, int], bytes]] = OrderedDict()

    def _publish(self, name: str, answer: dict[str, Any] | None) -> None:
        """Count the rows or labels of an answer, and pass it to live clients."""
        if answer is None:
            self._speeds.pop(name, None)
            self._intervals.pop(name, None)
            self._pictures.pop(name, None)
        elif "learned" in answer:
            self.metrics.labels.inc(answer["learned"] + answer["pending"])
            self.metrics.rejected_labels.inc(len(answer["rejected"]))
        elif "rows" in answer:
            self.metrics.rows.inc(answer["rows"])
            self.metrics.quarantined.inc(answer["quarantined"])
            self.metrics.batches.inc()
            self.metrics.drifts.inc(sum(event["event"] == "drift" for event in answer["events"]))
            if (age := self._age(name)) is not None:
                self._intervals[name] = max(age, 0.8 * self._intervals.get(name, 0.0))
            self._speeds[name] = (self._speed(name) + answer["rows"] / _WINDOW, time.monotonic())
        if answer is not None:
            self._send_alarms(name, alarm_events(answer))
        self.hub.publish(name, answer)

    def send_replayed(self) -> None:
        """Send alarms of replayed batches; those that were sent before are recognised."""
        for name, events in self.targets.store.replayed:
            self._send_alarms(name, events)
        self.targets.store.replayed.clear()

    def _send_alarms(self, name: str, events: list[dict[str, Any]]) -> None:
        self.metrics.alarms.inc(sum(event["change"] == "raised" for event in events))
        if self.alarm_output is None or not events:
            return
        try:
            self.alarm_output.write([{"key": name, **event} for event in events])
        except OSError as error:  # the rows are accepted all the same
            _log.error("alarms of %s cannot be kept: %s", name, error)

    def _speed(self, name: str) -> float:
        speed, at = self._speeds.get(name, (0.0, 0.0))
        return speed * math.exp((at - time.monotonic()) / _WINDOW)

    def _age(self, name: str) -> float | None:
        """Return the seconds since the last rows of a target; None if this process has had none."""
        return time.monotonic() - self._speeds[name][1] if name in self._speeds else None

    def entry(self, name: str) -> dict[str, Any] | None:
        """Return the entry of a target in the list of targets; None if there is no such target."""
        summary = self.targets.store.summaries.get(name)
        if summary is None:
            return None
        age, interval = self._age(name), self._intervals.get(name)
        in_memory = self.targets.store.sessions.has_in_memory(name)
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
        found = map(self.entry, sorted(self.targets.store.summaries.copy()))
        return [entry for entry in found if entry is not None]

    async def describe(self, name: str, report: bool = False) -> dict[str, Any] | None:
        """Return everything about a target, with its report if wanted; None if it does not exist."""

        def look(session: Session) -> dict[str, Any]:
            text = {"report": session.model.report()} if report else {}
            return detail(session) | text

        try:
            more = await self.targets.look(name, look)
        except RequestError:
            return None
        entry = self.entry(name)
        return None if entry is None else entry | more

    async def picture(self, name: str, draw: Callable[[Session], dict[str, Any]]) -> bytes:
        """Return what the live page draws of a target, as JSON; cached until rows, labels or commands
        arrive.
        """
        summary = self.targets.store.summaries.get(name, {})
        state = summary.get("rows_seen", -1), summary.get("n_labels", -1), summary.get("n_commands", 0)
        cached = self._pictures.get(name)
        if cached is not None and cached[0] == state:
            return cached[1]
        drawn = await self.targets.look(name, lambda session: to_json(draw(session)))
        self._pictures[name] = (state, drawn)
        self._pictures.move_to_end(name)
        while len(self._pictures) > _PICTURES:
            self._pictures.popitem(last=False)
        return drawn
