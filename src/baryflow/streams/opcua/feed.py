"""Values of a server as they change, through lost connections and restarts, with what was missed."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from baryflow.exceptions import UnreachableError
from baryflow.streams.opcua.connection import connect, disconnect
from baryflow.streams.opcua.history import History
from baryflow.streams.opcua.loop import Loop
from baryflow.streams.opcua.nodes import check_nodes, find_node, find_tags
from baryflow.streams.opcua.packages import ua
from baryflow.streams.opcua.subscription import Subscription
from baryflow.streams.opcua.values import Value, converter
from baryflow.streams.sampling.clock import SECOND, duration_text, instant_text
from baryflow.streams.sampling.tags import Tag
from baryflow.streams.urls import Address, Credentials

#: Seconds in which a server must answer at the start.
PATIENCE = 10.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.25, 30.0
#: So many pieces of news may wait to be read; then the server's queue has to hold them.
_WAITING = 500
_PIECE = 2000


@dataclass(frozen=True)
class Missed:
    """Time of which the values are not known.

    Attributes
    ----------
    begin, end : float
        Seconds since the epoch; with `begin` None, the stream begins at `end`.
    why : str
    """

    begin: float | None
    end: float
    why: str = ""


@dataclass(frozen=True)
class Clock:
    """The plant's time, told while no value may have changed."""

    time: float


#: What happens, one after the other; text is a notice.
News = list[Value] | Missed | Clock | str


class Feed:
    """A server's values, in a thread of its own.

    Parameters
    ----------
    address : Address
    credentials : Credentials
    """

    def __init__(self, address: Address, credentials: Credentials) -> None:
        self.address, self._credentials = address, credentials
        self.news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._loop = Loop("baryflow-opcua")
        self._client: Any = None
        self._tags: list[str] = []
        self._latest: dict[str, float] = {}
        self._continued = True
        self._convert = converter(address.option("uncertain", "missing") == "good")

    def open(self) -> None:
        """Connect; raises UnreachableError if we are not let in, or nobody answers for 10 s."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._client = self._loop.call(connect(self.address, self._credentials), PATIENCE)
            except (OSError, TimeoutError, ua.UaError) as error:
                if isinstance(error, UnreachableError):
                    raise
                if time.monotonic() > deadline - 1:
                    raise UnreachableError(
                        f"there is no OPC UA server at {self.address} ({_reason(error)})"
                    ) from None
                time.sleep(0.5)
            else:
                return

    def find_tags(self, node: str, columns: Sequence[str] | None, by_machine: bool) -> list[Tag]:
        """Return the variables under a node as tags."""
        return self._loop.call(find_tags(self._client, node, columns, by_machine))

    def check(self, tags: Sequence[Tag]) -> None:
        """Refuse tags that the server does not have."""
        self._tags = [tag.address for tag in tags]
        self._loop.call(self._find_nodes())

    def start(self, latest: dict[str, float], continued: bool = True) -> None:
        """Begin to listen.

        Parameters
        ----------
        latest : dict of str → float
            Time of the newest value of each tag that is known; what came since is read from the history.
        continued : bool
            Whether the values of these times are known, so that a history must reach back to them.
        """
        self._continued = continued
        self._latest = dict(latest)
        self._loop.start(self._run())

    def close(self) -> None:
        """Let go of the server."""
        with suppress(TimeoutError):
            if self._client is not None:
                self._loop.call(disconnect(self._client), 2.0)
        self._loop.close()

    async def _find_nodes(self) -> tuple[dict[str, Any], set[str]]:
        nodes = {address: await find_node(self._client, address) for address in self._tags}
        return nodes, await check_nodes(self._client, nodes)

    async def _run(self) -> None:
        pause = _SHORTEST_PAUSE
        while True:
            reason, begin = "it said nothing", time.monotonic()
            try:
                await self._listen()
            except Exception as error:
                reason = _reason(error)
            await disconnect(self._client)
            # A connection that breaks at once, again and again, is not made again at once.
            lasted = time.monotonic() - begin > 2 * _LONGEST_PAUSE
            pause = await self._reconnect(reason, _SHORTEST_PAUSE if lasted else pause)

    async def _reconnect(self, reason: str, pause: float) -> float:
        """Try for ever, less and less often; return the next pause."""
        lost = time.monotonic()
        self.news.put(f"lost the connection to {self.address} ({reason})")
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            with suppress(Exception):
                self._client = await asyncio.wait_for(
                    connect(self.address, self._credentials), 2 * PATIENCE
                )
                away = round(time.monotonic() - lost, 1)
                self.news.put(
                    f"connected to {self.address} again, after {duration_text(int(away * SECOND))}"
                )
                return pause

    async def _listen(self) -> None:
        """Subscribe, make up for what was missed, and hand on what comes until the connection breaks."""
        nodes, with_history = await self._find_nodes()
        clock = self.address.option("clock", "")
        more = [await find_node(self._client, "i=2258" if clock == "server" else clock)] if clock else []
        subscription = Subscription(self._client, nodes, more, self._convert)
        await subscription.open()
        try:
            current = await subscription.read_current()
            await self._catch_up(current, {one: nodes[one] for one in nodes if one in with_history})
            await self._put(current)
            subscription.know(self._latest)
            async for news in subscription.follow():
                if isinstance(news, list):
                    await self._put(news)
                elif isinstance(news, float):
                    self.news.put(Clock(news))
                else:
                    self.news.put(news)
        finally:
            subscription.close()

    async def _catch_up(self, current: list[Value], nodes: dict[str, Any]) -> None:
        times = [value.time for value in current if value.time is not None]
        if not times:
            return
        end = max(times)
        if not self._latest:
            self.news.put(Missed(None, end))
            return
        begin = max(self._latest.values())
        if any(value.time != self._latest.get(value.address) for value in current):
            # What a server writes into its history may be on its way there.
            await asyncio.sleep(0.3)
            history = History(nodes, self._convert, {one: self._latest[one] for one in nodes
                                                     if one in self._latest})  # fmt: skip
            told = False
            if nodes:
                since = instant_text(round(begin * SECOND))
                self.news.put(f"reading what {self.address} has kept since {since}")
            async for values in history.read(end):
                if history.begins and self._continued and not told:
                    told = True
                    self.news.put(Missed(begin, min(history.begins.values()),
                                         "the server's history does not reach back"))  # fmt: skip
                await self._put(values)
            self._continued = True
            without = len(self._tags) - len(nodes) + len(history.failed)
            if without == len(self._tags):
                self.news.put(Missed(begin, end, f"the server has no history of {without} tags"))
            elif without:
                self.news.put(
                    f"{without} of {len(self._tags)} tags have no history: what they told in the last "
                    f"{duration_text(round((end - begin) * SECOND))} is missing, and was held"
                )

    async def _put(self, values: list[Value]) -> None:
        """Hand on values, and wait if nobody takes them."""
        for at in range(0, len(values), _PIECE):
            while self.news.qsize() > _WAITING:
                await asyncio.sleep(0.02)
            self.news.put(values[at : at + _PIECE])
        for value in values:
            if value.time is not None:
                self._latest[value.address] = max(value.time, self._latest.get(value.address, 0.0))


def _reason(error: BaseException) -> str:
    """Say in a few words what went wrong, without what asyncua knows of us."""
    if isinstance(error, UnreachableError):
        return str(error)
    if isinstance(error, ua.UaStatusCodeError):
        return type(error).__name__
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "the connection broke"
