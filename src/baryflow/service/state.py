"""What the routes of a service share: its targets, those who listen, and what is counted."""

from __future__ import annotations

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
from baryflow.service.target_record import detail
from baryflow.service.targets import Targets

#: Seconds over which rows per second are averaged.
_WINDOW = 10.0
#: Pictures that are kept for those who ask for the same one.
_PICTURES = 16


class ServiceState:
    """Where requests are dealt with.

    Parameters
    ----------
    recipe : Recipe
    checkpoint : Checkpoint or None
    limits : Limits

    Attributes
    ----------
    targets : Targets
    hub : Hub
    metrics : Metrics
    inbox : Inbox
    parser : Parser
    """

    def __init__(self, config: SessionConfig, checkpoint: Checkpoint | None, limits: Limits) -> None:
        self.limits, self.metrics, self.hub = limits, Metrics(), Hub(limits.listeners)
        self.targets = Targets(config, checkpoint, limits, self._heard)
        config = self.targets.store.config  # that of the folder, perhaps
        names = getattr(config.base, "feature_names_in_", None)
        columns = None if names is None else [str(name) for name in names]
        n_columns = config.model.n_features_in_ if columns is None else len(columns)
        self.inbox, self.parser = Inbox(limits), Parser(int(n_columns), columns, limits.rows)
        self._speeds: dict[str, tuple[float, float]] = {}
        self._pictures: OrderedDict[str, tuple[int, bytes]] = OrderedDict()

    def _heard(self, name: str, answer: dict[str, Any] | None) -> None:
        """Count what came of rows, and pass it on."""
        if answer is None:
            self._speeds.pop(name, None)
            self._pictures.pop(name, None)
        else:
            self.metrics.rows.inc(answer["rows"])
            self.metrics.quarantined.inc(answer["quarantined"])
            self.metrics.batches.inc()
            self.metrics.drifts.inc(sum(event["event"] == "drift" for event in answer["events"]))
            self._speeds[name] = (self._speed(name) + answer["rows"] / _WINDOW, time.monotonic())
        self.hub.publish(name, answer)

    def _speed(self, name: str) -> float:
        speed, at = self._speeds.get(name, (0.0, 0.0))
        return speed * math.exp((at - time.monotonic()) / _WINDOW)

    # -- what is said ----------------------------------------------------------------------------

    def line(self, name: str) -> dict[str, Any] | None:
        """Return what a list says of a target; None if there is none of this name.

        Parameters
        ----------
        name : str

        Returns
        -------
        dict or None
        """
        summary = self.targets.store.summaries.get(name)
        if summary is None:
            return None
        here = self.targets.store.sessions.has_in_memory(name)
        return {
            "name": name,
            **summary,
            "state": "in memory" if here else "on disk",
            "rows_per_second": round(self._speed(name), 3),
        }

    def lines(self) -> list[dict[str, Any]]:
        """Return the list of targets, by name.

        Returns
        -------
        list of dict
        """
        found = map(self.line, sorted(self.targets.store.summaries.copy()))
        return [line for line in found if line is not None]

    async def describe(self, name: str, report: bool = False) -> dict[str, Any] | None:
        """Return all that is said of a target; None if it is gone.

        Parameters
        ----------
        name : str
        report : bool
            Whether to say it in words, too.

        Returns
        -------
        dict or None
        """

        def call(session: Session) -> dict[str, Any]:
            words = {"report": session.model.report()} if report else {}
            return detail(session) | words

        try:
            more = await self.targets.look(name, call)
        except RequestError:
            return None
        line = self.line(name)
        return None if line is None else line | more

    async def picture(self, name: str, draw: Callable[[Session], dict[str, Any]]) -> bytes:
        """Return a picture as JSON; nobody draws the same one twice.

        Parameters
        ----------
        name : str
        draw : callable

        Returns
        -------
        bytes
        """
        summary = self.targets.store.summaries.get(name, {})
        rows = summary.get("rows_seen", -1)
        known = self._pictures.get(name)
        if known is not None and known[0] == rows:
            return known[1]
        drawn = await self.targets.look(name, lambda session: to_json(draw(session)))
        self._pictures[name] = (rows, drawn)
        self._pictures.move_to_end(name)
        while len(self._pictures) > _PICTURES:
            self._pictures.popitem(last=False)
        return drawn
