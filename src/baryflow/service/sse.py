"""Server-sent events, at most five a second for each client.

Each client has one slot in which updates accumulate until they are sent: a slow client receives fewer
messages, and memory stays bounded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from baryflow.service.errors import RequestError, busy
from baryflow.service.parsing import to_json

_log = logging.getLogger("baryflow.service")
#: The shortest time between two messages to a client, in seconds.
PACE = 0.2
#: Seconds without a message after which a comment keeps the connection alive.
HEARTBEAT = 10.0
#: The most predictions and events in a message; older ones are dropped.
_MAX_RECORDS = 20
#: The most targets in a message about all targets; beyond it, clients request the list.
_MAX_NAMES = 200

Describe = Callable[[str], Awaitable["dict[str, Any] | None"]]


class _Slot:
    """Updates waiting for one client."""

    def __init__(self) -> None:
        self.updated = asyncio.Event()
        self.records: list[Any] = []
        self.events: list[Any] = []
        self.names: set[str] = set()
        self.deleted = False

    def add(self, name: str, answer: dict[str, Any] | None) -> None:
        if len(self.names) <= _MAX_NAMES:
            self.names.add(name)
        if answer is not None:
            predictions = answer.get("predictions", [])  # an answer to labels has none
            self.records = [*self.records, *predictions[-_MAX_RECORDS:]][-_MAX_RECORDS:]
            self.events = [*self.events, *answer["events"][-_MAX_RECORDS:]][-_MAX_RECORDS:]
        self.deleted = answer is None
        self.updated.set()

    def clear(self) -> tuple[list[Any], list[Any], set[str], bool]:
        found = self.records, self.events, self.names, self.deleted
        self.records, self.events, self.names, self.deleted = [], [], set(), False
        self.updated.clear()
        return found


class Hub:
    """Publishes updates to connected clients, ``max_clients`` at a time; ``slots`` has those of each."""

    def __init__(self, max_clients: int) -> None:
        self._max_clients = max_clients
        self.slots: dict[str | None, set[_Slot]] = {}
        self._closed = False

    def __len__(self) -> int:
        return sum(map(len, self.slots.values()))

    def publish(self, name: str, body: bytes) -> None:
        """Publish the answer to a batch of a target as JSON; empty if the target was deleted."""
        slots = (*self.slots.get(name, ()), *self.slots.get(None, ()))
        answer = msgspec.json.decode(body) if body else None
        for slot in slots:
            slot.add(name, answer)

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        for slots in self.slots.values():
            for slot in slots:
                slot.updated.set()

    def listen(self, name: str | None, describe: Describe) -> AsyncIterator[bytes]:
        """Return the events of a target, or of all targets if the name is None.

        ``describe`` returns the description of a target, or None if it was deleted.
        """
        if len(self) >= self._max_clients:
            raise busy(f"{self._max_clients} clients are connected to live updates already", 10)
        return self._stream(name, describe)

    async def _stream(self, name: str | None, describe: Describe) -> AsyncIterator[bytes]:
        messages, slot = _overview if name is None else _detail, _Slot()
        self.slots.setdefault(name, set()).add(slot)
        try:
            yield b"retry: 2000\n\n"
            while not self._closed:
                try:
                    await asyncio.wait_for(slot.updated.wait(), HEARTBEAT)
                except TimeoutError:
                    yield b": keep-alive\n\n"
                    continue
                began = time.monotonic()
                async for message in messages(slot, describe):
                    yield message
                # A description may cost the worker much: it is asked for a small share of its time.
                await asyncio.sleep(max(PACE, 5.0 * (time.monotonic() - began)))
        except (OSError, RequestError) as error:  # too late for another status: the client reconnects
            _log.error("cannot read %s for a live update: %s", name, error)
        finally:
            slots = self.slots[name]
            slots.remove(slot)
            if not slots:
                del self.slots[name]


async def _overview(slot: _Slot, describe: Describe) -> AsyncIterator[bytes]:
    _, _, names, _ = slot.clear()
    found = {name: await describe(name) for name in sorted(names)[:_MAX_NAMES]}
    content = {
        "targets": [summary for summary in found.values() if summary is not None],
        "gone": [name for name, summary in found.items() if summary is None],
        "all": len(names) <= _MAX_NAMES,
    }
    yield _event("targets", content)


async def _detail(slot: _Slot, describe: Describe) -> AsyncIterator[bytes]:
    records, events, names, deleted = slot.clear()
    for event in events:
        if event["event"] in ("drift", "alarm"):
            yield _event(event["event"], event)
    for name in names:
        summary = await describe(name)
        if deleted or summary is None:
            yield _event("gone", {"name": name})
        else:
            yield _event("batch", {"records": records, "events": events, "summary": summary})


def _event(kind: str, content: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + to_json(content) + b"\n\n"
