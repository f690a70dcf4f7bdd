"""Server-sent events: what happens, told at most five times a second, to readers of any speed.

Each listener has one slot in which news gathers until it is sent: who reads slowly hears less often, and
nothing grows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from baryflow.service.errors import busy, to_json

_log = logging.getLogger("baryflow.service")
#: Seconds between two messages to a listener, at least.
PACE = 0.2
#: Seconds of silence after which a comment says that the line is alive.
HEARTBEAT = 10.0
#: Records and events of a message, at most; the last ones.
_MOST = 20
#: Names in a message about all targets, at most; with more, who listens asks for the list.
_MOST_NAMES = 200

Describe = Callable[[str], Awaitable["dict[str, Any] | None"]]


class _Slot:
    """News for one listener."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.records: list[Any] = []
        self.events: list[Any] = []
        self.names: set[str] = set()
        self.gone = False

    def add(self, name: str, answer: dict[str, Any] | None) -> None:
        if len(self.names) <= _MOST_NAMES:
            self.names.add(name)
        if answer is not None:
            self.records = [*self.records, *answer["predictions"][-_MOST:]][-_MOST:]
            self.events = [*self.events, *answer["events"][-_MOST:]][-_MOST:]
        self.gone = answer is None
        self.news.set()

    def empty(self) -> tuple[list[Any], list[Any], set[str], bool]:
        found = self.records, self.events, self.names, self.gone
        self.records, self.events, self.names, self.gone = [], [], set(), False
        self.news.clear()
        return found


class Hub:
    """Passes on what happens to those who listen.

    Parameters
    ----------
    most : int
        Listeners.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._slots: dict[str | None, set[_Slot]] = {}
        self._closed = False

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def publish(self, name: str, answer: dict[str, Any] | None) -> None:
        """Pass on what came of rows of a target.

        Parameters
        ----------
        name : str
        answer : dict or None
            None: it is gone.
        """
        for slot in (*self._slots.get(name, ()), *self._slots.get(None, ())):
            slot.add(name, answer)

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        for slots in self._slots.values():
            for slot in slots:
                slot.news.set()

    def listen(self, name: str | None, describe: Describe) -> AsyncIterator[bytes]:
        """Return the stream of what happens to a target, or to all of them.

        Parameters
        ----------
        name : str or None
        describe : callable
            Returns what is said of a target; None if it is gone.

        Returns
        -------
        asynchronous iterator of bytes

        Raises
        ------
        Refusal
            If there are too many listeners.
        """
        if len(self) >= self._most:
            raise busy(f"{self._most} readers are listening already", 10)
        return self._stream(name, describe)

    async def _stream(self, name: str | None, describe: Describe) -> AsyncIterator[bytes]:
        message, slot = _overview if name is None else _about, _Slot()
        self._slots.setdefault(name, set()).add(slot)
        try:
            yield b"retry: 2000\n\n"
            while not self._closed:
                try:
                    await asyncio.wait_for(slot.news.wait(), HEARTBEAT)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                async for part in message(slot, describe):
                    yield part
                await asyncio.sleep(PACE)
        except OSError as error:  # too late for another status: the reader connects again
            _log.error("cannot read %s for a live update: %s", name, error)
        finally:
            slots = self._slots[name]
            slots.remove(slot)
            if not slots:
                del self._slots[name]


async def _overview(slot: _Slot, describe: Describe) -> AsyncIterator[bytes]:
    _, _, names, _ = slot.empty()
    found = {name: await describe(name) for name in sorted(names)[:_MOST_NAMES]}
    yield _event("targets", {
        "targets": [line for line in found.values() if line is not None],
        "gone": [name for name, line in found.items() if line is None],
        "all": len(names) <= _MOST_NAMES,
    })  # fmt: skip


async def _about(slot: _Slot, describe: Describe) -> AsyncIterator[bytes]:
    records, events, names, gone = slot.empty()
    for event in events:
        if event["event"] == "drift":
            yield _event("drift", event)
    for name in names:
        summary = await describe(name)
        if gone or summary is None:
            yield _event("gone", {"name": name})
        else:
            yield _event("batch", {"records": records, "events": events, "summary": summary})


def _event(kind: str, content: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + to_json(content) + b"\n\n"
