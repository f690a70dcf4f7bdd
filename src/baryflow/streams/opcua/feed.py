"""Value changes of an OPC UA server, through reconnections, with the history of what was missed."""

from __future__ import annotations

import asyncio
import logging
import queue
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from baryflow.exceptions import UnreachableError
from baryflow.streams.backoff import Backoff
from baryflow.streams.opcua.connection import PATIENCE, EventLoopThread, connect, disconnect, ua
from baryflow.streams.opcua.nodes import (
    Converter,
    Value,
    check_nodes,
    find_node,
    find_tags,
    has_overflowed,
    make_converter,
    split_requests,
    to_datetime,
    to_seconds,
)
from baryflow.streams.sampling.clock import SECOND, duration_text, instant_text
from baryflow.streams.sampling.tags import Tag
from baryflow.streams.urls import Endpoint

_log = logging.getLogger("baryflow.streams")
#: Seconds after which a connection counts as stable, so that the next pause is short again.
_STABLE = 60.0
#: Items that may wait to be read; with more, the server's queue holds the changes.
_WAITING = 500
#: Values per item.
_VALUES = 2000
#: Node id of the server's own clock.
_SERVER_CLOCK = "i=2258"


# -- subscription --------------------------------------------------------------------------------------

#: Milliseconds between messages of the server.
_INTERVAL = 100.0
#: Intervals without changes after which the server sends a sign of life ...
_KEEP_ALIVE = 20
#: ... and without a sign of life from us after which it drops the subscription.
_LIFETIME = 600
#: Changes of one node that the server keeps until the next message: a minute of 100 per second.
_QUEUE = 6000
#: Seconds without any message after which the connection counts as lost.
_SILENCE = 12.0
#: Messages that may wait here; with more, the server is not asked for the next.
_MESSAGES = 200


class Subscription:
    """Changes of nodes, in the order in which the server reports them.

    `nodes` are by tag address; `clocks` are variables that hold the plant's time.
    """

    def __init__(
        self, client: Any, nodes: dict[str, Any], clocks: Sequence[Any], convert: Converter
    ) -> None:
        self._client, self._session = client, client.uaclient.session
        self._nodes, self._clocks, self._convert = nodes, clocks, convert
        self._addresses = list(nodes)
        self._messages: asyncio.Queue[Any] = asyncio.Queue(_MESSAGES)
        self._sequence: int | None = None
        self._known: dict[str, float] = {}
        self._overlap = 0

    async def open(self) -> None:
        """Subscribe; nothing is missed from here on."""
        self._client.connection_lost_callback = self._on_connection_lost
        request = ua.CreateSubscriptionParameters()
        request.RequestedPublishingInterval = _INTERVAL
        request.RequestedLifetimeCount = _LIFETIME
        request.RequestedMaxKeepAliveCount = _KEEP_ALIVE
        request.MaxNotificationsPerPublish = 0
        request.PublishingEnabled = True
        created = await self._session.create_subscription(request, self._messages.put)
        nodes = [*self._nodes.values(), *self._clocks]
        # An unchanged value with a new time is not outdated, so the time must be reported as well. Not
        # all servers can do that.
        for trigger in (ua.DataChangeTrigger.StatusValueTimestamp, None):
            items = [_monitored_item(node, number, trigger) for number, node in enumerate(nodes)]
            results = []
            for some in split_requests(items):
                parameters = ua.CreateMonitoredItemsParameters()
                parameters.SubscriptionId = created.SubscriptionId
                parameters.ItemsToCreate = list(some)
                parameters.TimestampsToReturn = ua.TimestampsToReturn.Both
                results += await self._session.create_monitored_items(parameters)
            bad = [one.StatusCode for one in results if not one.StatusCode.is_good()]
            if not bad:
                return
            if trigger is None or len(bad) < len(results) or "Filter" not in bad[0].name:
                raise UnreachableError(f"the server refuses the subscription ({bad[0].name})")

    async def read_current(self) -> list[Value]:
        """Return the current values."""
        found = []
        for some in split_requests(list(self._nodes.values())):
            request = ua.ReadParameters()
            request.TimestampsToReturn = ua.TimestampsToReturn.Both
            for node in some:
                one = ua.ReadValueId()
                one.NodeId, one.AttributeId = node.nodeid, ua.AttributeIds.Value
                request.NodesToRead.append(one)
            found += await self._session.read(request)
        return [self._convert(*pair) for pair in zip(self._addresses, found, strict=True)]

    def skip_known(self, latest: dict[str, float]) -> None:
        """Drop values from the messages received so far if they are older than `latest` of their tag."""
        self._known, self._overlap = dict(latest), self._messages.qsize()

    async def follow(self) -> AsyncIterator[list[Value] | float | str]:
        """Yield changed values, the plant's time, and notices.

        Raise ConnectionError when the connection or a message is lost.
        """
        last = time.monotonic()
        while True:
            try:
                message = await asyncio.wait_for(self._messages.get(), 1.0)
            except TimeoutError:
                if time.monotonic() - last > _SILENCE:
                    raise ConnectionError("the server does not respond") from None
                continue
            if isinstance(message, Exception):
                raise ConnectionError("the connection broke") from None
            last = time.monotonic()
            self._check_sequence(message.NotificationMessage)
            for part in message.NotificationMessage.NotificationData or []:
                if isinstance(part, ua.DataChangeNotification):
                    for item in self._split(part.MonitoredItems):
                        yield self._keep_new(item) if isinstance(item, list) else item
                elif isinstance(part, ua.StatusChangeNotification):
                    raise ConnectionError("the server ended the subscription")
            self._overlap = max(0, self._overlap - 1)

    def _split(self, monitored: Sequence[Any]) -> list[list[Value] | float | str]:
        rest: list[list[Value] | float | str] = []
        values, overflowed = [], set()
        for item in monitored:
            if item.ClientHandle < len(self._addresses):
                address = self._addresses[item.ClientHandle]
                values.append(self._convert(address, item.Value))
                if has_overflowed(item.Value):
                    overflowed.add(address)
            else:
                clock = self._convert("", item.Value)
                now = to_seconds(clock.value) or clock.time
                if now is not None:
                    rest.append(now)
        # A server reports all changes of one node, then all of the next. Rows need them by time.
        values.sort(key=lambda value: value.time or 0.0)
        if overflowed:
            rest.append(
                f"the server dropped changes of {len(overflowed)} tags, among them {min(overflowed)}, "
                "because they came faster than it could send them"
            )
        return [values, *rest]

    def _keep_new(self, values: list[Value]) -> list[Value]:
        if not self._overlap:
            return values
        known = self._known
        return [one for one in values if one.time is None or one.time >= known.get(one.address, 0.0)]

    def _check_sequence(self, message: Any) -> None:
        """Raise if a message was lost; one without changes has the number of the next."""
        number, last = int(message.SequenceNumber), self._sequence
        if message.NotificationData:
            self._sequence = number
            if last is not None and number not in (last + 1, 1):
                raise ConnectionError(f"{number - last - 1} messages of the server were lost")

    async def _on_connection_lost(self, error: Exception) -> None:
        while self._messages.full():
            await asyncio.sleep(0.02)
        await self._messages.put(error)

    def close(self) -> None:
        """Stop waiting; the server drops the subscription with the session."""
        self._client.connection_lost_callback = None
        while not self._messages.empty():
            self._messages.get_nowait()


def _monitored_item(node: Any, number: int, trigger: Any) -> Any:
    item = ua.MonitoredItemCreateRequest()
    item.ItemToMonitor.NodeId = node.nodeid
    item.ItemToMonitor.AttributeId = ua.AttributeIds.Value
    item.MonitoringMode = ua.MonitoringMode.Reporting
    parameters = ua.MonitoringParameters()
    parameters.ClientHandle = number
    parameters.SamplingInterval = 0.0  # as fast as the server can
    parameters.QueueSize = _QUEUE
    parameters.DiscardOldest = True
    if trigger is not None:
        parameters.Filter = ua.DataChangeFilter(Trigger=trigger)
    item.RequestedParameters = parameters
    return item


# -- history -------------------------------------------------------------------------------------------

#: Seconds of history per request at first; adjusted to stay between few and many values.
_WINDOW = 600.0
_FEW, _MANY = 20_000, 100_000
#: Seconds before the last known value from which to read, because histories may round times.
_MARGIN = 1.0
#: Nodes that are read concurrently.
_CONCURRENT = 8
#: Errors of the connection rather than of the history.
_CONNECTION_ERRORS = frozenset(
    [
        "BadCommunicationError",
        "BadConnectionClosed",
        "BadRequestTimeout",
        "BadSecureChannelClosed",
        "BadServerHalted",
        "BadServerNotConnected",
        "BadSessionClosed",
        "BadSessionIdInvalid",
        "BadShutdown",
        "BadTimeout",
    ]
)


class History:
    """Reads the raw history of nodes by time, after the `latest` known time of each tag.

    ``begins`` has the tags whose history does not reach back to that time, and where it begins;
    ``failed`` has the tags whose history cannot be read.
    """

    def __init__(self, nodes: dict[str, Any], convert: Converter, latest: dict[str, float]) -> None:
        self._nodes, self._convert = nodes, convert
        self._latest = dict(latest)
        self.begins: dict[str, float] = {}
        self.failed: set[str] = set()

    async def read(self, end: float) -> AsyncIterator[list[Value]]:
        """Yield what was missed up to a time, in seconds since the epoch."""
        start, window = min(self._latest.values(), default=end) - _MARGIN, _WINDOW
        first = True
        while start < end or first:
            stop = min(start + window, end)
            found = await self._read_window(start, stop, first)
            if found:
                yield found
            if len(found) < _FEW:
                window *= 2
            elif len(found) > _MANY:
                window = max(1.0, window / 2)
            start, first = stop, False

    async def _read_window(self, start: float, stop: float, first: bool) -> list[Value]:
        addresses = [address for address in self._nodes if address not in self.failed]
        found: list[Value] = []
        for begin in range(0, len(addresses), _CONCURRENT):
            group = addresses[begin : begin + _CONCURRENT]
            lists = await asyncio.gather(*(self._read_node(one, start, stop) for one in group))
            for address, values in zip(group, lists, strict=True):
                found += self._keep_new(address, values, first)
        return sorted(found, key=lambda value: value.time or 0.0)

    async def _read_node(self, address: str, start: float, stop: float) -> list[Any]:
        try:
            values: list[Any] = await self._nodes[address].read_raw_history(
                to_datetime(start), to_datetime(stop), return_bounds=False
            )
        except AttributeError:  # asyncua fails so if the answer has no list
            return []
        except ua.UaStatusCodeError as error:
            kind = type(error).__name__
            if kind in _CONNECTION_ERRORS:
                raise ConnectionError(kind) from None
            if kind != "BadNoData":
                self.failed.add(address)
            return []
        return values

    def _keep_new(self, address: str, found: list[Any], first: bool) -> list[Value]:
        values = [value for value in (self._convert(address, one) for one in found) if value.time]
        known = self._latest.get(address)
        times = [value.time for value in values if value.time is not None]
        if first and known is not None and times and min(times) > known:
            self.begins[address] = min(times)
        if known is not None:
            values = [value for value in values if value.time is not None and value.time > known]
        if times:
            self._latest[address] = max(*times, known or 0.0)
        return values


# -- feed ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gap:
    """A time span with unknown values, in seconds since the epoch.

    With `begin` None, the stream begins at `end`.
    """

    begin: float | None
    end: float
    reason: str = ""


@dataclass(frozen=True)
class ClockTick:
    """The plant's time, even if no value has changed."""

    time: float


#: What a feed delivers, in order; text is a notice.
FeedItem = list[Value] | Gap | ClockTick | str


class Feed:
    """The values of a server, read by a thread of its own."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self._backoff = endpoint, Backoff(endpoint, endpoint.policy)
        self.items: queue.SimpleQueue[FeedItem] = queue.SimpleQueue()
        self._loop = EventLoopThread("baryflow-opcua")
        self._client: Any = None
        self._tags: list[str] = []
        self._latest: dict[str, float] = {}
        self._continued = True
        self._convert = make_converter(endpoint.option("uncertain", "missing") == "good")

    def open(self) -> None:
        """Wait until connected; raise UnreachableError if access is denied."""
        reported = False
        while True:
            try:
                self._client = self._loop.call(connect(self.endpoint), PATIENCE)
            except (OSError, TimeoutError, ua.UaError) as error:
                if isinstance(error, UnreachableError):
                    raise
                if not reported:
                    _log.warning(
                        "there is no OPC UA server at %s (%s); retrying", self.endpoint, _reason(error)
                    )
                reported = True
                self._backoff.sleep()
            else:
                return

    def find_tags(self, node: str, columns: Sequence[str] | None, by_target: bool) -> list[Tag]:
        """Return the variables under a node as tags."""
        return self._loop.call(find_tags(self._client, node, columns, by_target))

    def check(self, tags: Sequence[Tag]) -> None:
        """Refuse tags that the server does not have."""
        self._tags = [tag.address for tag in tags]
        self._loop.call(self._find_nodes())

    def start(self, latest: dict[str, float], continued: bool = True) -> None:
        """Begin to read, first the history since the `latest` time of each tag.

        `continued` says whether the values at these times are known, so that a history which does not
        reach back to them leaves a gap.
        """
        self._continued = continued
        self._latest = dict(latest)
        self._loop.start(self._run())

    def close(self) -> None:
        """Disconnect."""
        with suppress(TimeoutError):
            if self._client is not None:
                self._loop.call(disconnect(self._client), 2.0)
        self._loop.close()

    async def _find_nodes(self) -> tuple[dict[str, Any], set[str]]:
        nodes = {address: await find_node(self._client, address) for address in self._tags}
        return nodes, await check_nodes(self._client, nodes)

    async def _run(self) -> None:
        while True:
            reason, begin = "no reason given", time.monotonic()
            try:
                await self._listen()
            except Exception as error:
                reason = _reason(error)
            await disconnect(self._client)
            # Keep the longer pause if connections break again and again right after they are made.
            if time.monotonic() - begin > _STABLE:
                self._backoff.begin()
            await self._reconnect(reason)

    async def _reconnect(self, reason: str) -> None:
        """Retry with backoff until connected."""
        lost = time.monotonic()
        self.items.put(f"lost the connection to {self.endpoint} ({reason})")
        while True:
            await asyncio.sleep(self._backoff.next_pause())
            with suppress(Exception):
                self._client = await asyncio.wait_for(connect(self.endpoint), 2 * PATIENCE)
                away = round(time.monotonic() - lost, 1)
                self.items.put(
                    f"connected to {self.endpoint} again, after {duration_text(int(away * SECOND))}"
                )
                return

    async def _listen(self) -> None:
        """Subscribe, read what was missed, and deliver changes until the connection breaks."""
        nodes, with_history = await self._find_nodes()
        clock = self.endpoint.option("clock", "")
        name = _SERVER_CLOCK if clock == "server" else clock
        clocks = [await find_node(self._client, name)] if clock else []
        subscription = Subscription(self._client, nodes, clocks, self._convert)
        await subscription.open()
        try:
            current = await subscription.read_current()
            await self._catch_up(current, {one: nodes[one] for one in nodes if one in with_history})
            await self._put(current)
            subscription.skip_known(self._latest)
            async for item in subscription.follow():
                if isinstance(item, list):
                    await self._put(item)
                elif isinstance(item, float):
                    self.items.put(ClockTick(item))
                else:
                    self.items.put(item)
        finally:
            subscription.close()

    async def _catch_up(self, current: list[Value], nodes: dict[str, Any]) -> None:
        """Deliver the history since the latest known values, and report gaps."""
        times = [value.time for value in current if value.time is not None]
        if not times:
            return
        end = max(times)
        if not self._latest:
            self.items.put(Gap(None, end))
            return
        begin = max(self._latest.values())
        if all(value.time == self._latest.get(value.address) for value in current):
            return
        await asyncio.sleep(0.3)  # a server may write its history with a delay
        known = {address: self._latest[address] for address in nodes if address in self._latest}
        history = History(nodes, self._convert, known)
        reported = False
        if nodes:
            since = instant_text(round(begin * SECOND))
            self.items.put(f"reading the history of {self.endpoint} since {since}")
        async for values in history.read(end):
            if history.begins and self._continued and not reported:
                reported = True
                reason = "the server's history does not reach back"
                self.items.put(Gap(begin, min(history.begins.values()), reason))
            await self._put(values)
        self._continued = True
        without = len(self._tags) - len(nodes) + len(history.failed)
        if without == len(self._tags):
            self.items.put(Gap(begin, end, f"the server has no history of {without} tags"))
        elif without:
            self.items.put(
                f"{without} of {len(self._tags)} tags have no history: their changes in the last "
                f"{duration_text(round((end - begin) * SECOND))} are missing, and older values were held"
            )

    async def _put(self, values: list[Value]) -> None:
        """Deliver values, and wait while the queue is full."""
        for at in range(0, len(values), _VALUES):
            while self.items.qsize() > _WAITING:
                await asyncio.sleep(0.02)
            self.items.put(values[at : at + _VALUES])
        for value in values:
            if value.time is not None:
                self._latest[value.address] = max(value.time, self._latest.get(value.address, 0.0))


def _reason(error: BaseException) -> str:
    """Return a short reason that contains nothing of our credentials."""
    if isinstance(error, UnreachableError):
        return str(error)
    if isinstance(error, ua.UaStatusCodeError):
        return type(error).__name__
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "the connection broke"
