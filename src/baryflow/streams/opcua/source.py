"""Rows sampled from the variables of an OPC UA server.

A thread of its own subscribes to the variables, through reconnections, and reads the history of what was
missed. It tells the reader what to do with the sampler, in order, through a queue.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.backoff import Backoff
from baryflow.streams.base import Batch, Source
from baryflow.streams.opcua.connection import (
    PATIENCE,
    Converter,
    EventLoopThread,
    Value,
    check_nodes,
    check_security,
    connect,
    disconnect,
    find_node,
    find_tags,
    has_overflowed,
    silence_logging,
    split_requests,
    to_datetime,
    to_seconds,
    to_value,
    ua,
)
from baryflow.streams.registry import SourceOptions
from baryflow.streams.sampling.clock import SECOND, duration_text, instant_text
from baryflow.streams.sampling.sampler import Sampler
from baryflow.streams.sampling.tags import read_tags
from baryflow.streams.urls import Endpoint

_log = logging.getLogger("baryflow.streams")
OPTIONS = ("node", "security", "mode", "uncertain", "clock", "since")
#: Seconds after which a connection counts as stable, so that the next pause is short again.
_STABLE = 60.0
#: Items that may wait to be read; with more, the server's queue holds the changes.
_WAITING = 500
#: Values per item.
_VALUES = 2000
#: Node id of the server's own clock.
_SERVER_CLOCK = "i=2258"


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
    if (options.tags is None) == (not endpoint.option("node", "")):
        raise InvalidInputError(
            "choose the variables: either with a tag list, or with ?node= for the variables under a "
            "node, whose names are the columns"
        )
    check_security(endpoint)
    silence_logging()
    return OpcUaSource(endpoint, options, options.sample_interval)


def _parse_since(text: str) -> float | None:
    """Return where to begin in the server's history; None for now."""
    if not text:
        return None
    try:
        since = to_seconds(datetime.fromisoformat(text))
    except ValueError:
        since = None
    if since is None:
        raise InvalidInputError(f"since must be a time like 2026-01-31T12:00:00Z, got {text!r}")
    return since


class OpcUaSource(Source):
    """Rows from the variables of a server."""

    def __init__(self, endpoint: Endpoint, options: SourceOptions, interval: float) -> None:
        self._endpoint, self._idle = endpoint, options.idle
        self._since = _parse_since(endpoint.option("since", ""))
        tags = None if options.tags is None else read_tags(options.tags)
        self._convert = partial(to_value, endpoint.option("uncertain", "missing") == "good")
        self._backoff = Backoff(endpoint, endpoint.policy)
        self._started = False
        self._notices: list[str] = []
        #: What the reader does next.
        self._queue: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._client: Any = None
        self._latest: dict[str, float] = {}  # time of the newest value of each tag that was delivered
        # Whether the values at these times are known, so that a history which does not reach back to
        # them leaves a gap.
        self._continued = False
        self._loop = EventLoopThread("baryflow-opcua")
        try:
            self._loop.call(self._connect(first=True))
            if tags is None:
                node, by_target = endpoint.options["node"], options.key == "@node"
                tags = self._loop.call(find_tags(self._client, node, options.columns, by_target))
            columns = options.columns or list(dict.fromkeys(tag.column for tag in tags))
            self._sampler = Sampler(columns, tags, interval, options.max_age)
            self._tags = [tag.address for tag in tags]
            self._loop.call(self._find_nodes())
        except BaseException:
            self.close()
            raise

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
            with suppress(queue.Empty):
                self._queue.get(timeout=min(ends) - now if ends else None)()
        batch = self._sampler.batch(n)
        batch.notices[:0] = self._notices
        self._notices = []
        return batch

    def _start(self) -> None:
        """Begin to read, first the history since the newest value of each tag."""
        self._started = True
        known = ((address, self._sampler.newest(address)) for address in self._tags)
        self._latest = {address: moment for address, moment in known if moment is not None}
        self._continued = bool(self._latest)
        if not self._latest and self._since is not None:
            self._sampler.skip(self._since)
            # Include values at that very moment.
            self._latest = dict.fromkeys(self._tags, self._since - 1e-6)
        self._loop.start(self._run())

    def _update(self, values: Sequence[Value]) -> None:
        for value in values:
            self._sampler.update(*value)  # type: ignore[arg-type]  # values without a time are counted

    def _skip(self, begin: float, end: float, reason: str) -> None:
        """Leave out a time span with unknown values."""
        if end - begin > self._sampler.interval:
            self._sampler.skip(end, reason)
        elif end > begin:
            self._notices.append(f"changes in {end - begin:g} s may be missing: {reason}")

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume after a batch; the server's history since then is read first."""
        self._sampler.resume(cursor["sampler"])

    def close(self) -> None:
        """Disconnect."""
        with suppress(TimeoutError):
            if self._client is not None:
                self._loop.call(disconnect(self._client), 2.0)
        self._loop.close()

    # -- in the event loop -----------------------------------------------------------------------------

    async def _connect(self, first: bool = False) -> None:
        """Connect, with backoff; the `first` time, raise if access is denied, and warn once."""
        reported = not first
        while True:
            try:
                self._client = await asyncio.wait_for(connect(self._endpoint), PATIENCE)
            except Exception as error:
                away = isinstance(error, OSError | ua.UaError)
                if first and (isinstance(error, UnreachableError) or not away):
                    raise
                if not reported:
                    _log.warning(
                        "there is no OPC UA server at %s (%s); retrying", self._endpoint, _reason(error)
                    )
                reported = True
            else:
                return
            await asyncio.sleep(self._backoff.next_pause())

    async def _find_nodes(self) -> tuple[dict[str, Any], set[str]]:
        """Return the nodes of all tags, and those that have a history."""
        nodes = {address: await find_node(self._client, address) for address in self._tags}
        return nodes, await check_nodes(self._client, nodes)

    async def _run(self) -> None:
        """Deliver changes, and connect again whenever the connection breaks."""
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
            lost = time.monotonic()
            self._report(f"lost the connection to {self._endpoint} ({reason})")
            await asyncio.sleep(self._backoff.next_pause())
            await self._connect()
            away = duration_text(int(round(time.monotonic() - lost, 1) * SECOND))
            self._report(f"connected to {self._endpoint} again, after {away}")

    def _later(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._queue.put(partial(function, *arguments))

    def _report(self, notice: str) -> None:
        self._later(lambda: self._notices.append(notice))

    async def _deliver(self, values: list[Value]) -> None:
        """Deliver values, and wait while too many are not read."""
        for at in range(0, len(values), _VALUES):
            while self._queue.qsize() > _WAITING:
                await asyncio.sleep(0.02)
            self._later(self._update, values[at : at + _VALUES])
        for value in values:
            if value.time is not None:
                self._latest[value.address] = max(value.time, self._latest.get(value.address, 0.0))

    async def _listen(self) -> None:
        """Subscribe, read what was missed, and deliver changes until the connection breaks."""
        nodes, with_history = await self._find_nodes()
        clock = self._endpoint.option("clock", "")
        name = _SERVER_CLOCK if clock == "server" else clock
        clocks = [await find_node(self._client, name)] if clock else []
        subscription = _Subscription(self._client, [*nodes.values(), *clocks])
        await subscription.open()
        try:
            found = await subscription.read_values(list(nodes.values()))
            current = [self._convert(*pair) for pair in zip(nodes, found, strict=True)]
            await self._catch_up(current, {one: nodes[one] for one in nodes if one in with_history})
            await self._deliver(current)
            # Messages that have come meanwhile may hold values older than these.
            known, overlap = dict(self._latest), subscription.waiting
            while True:
                for changes in await subscription.next():
                    await self._handle(changes, list(nodes), known if overlap > 0 else {})
                overlap -= 1
        finally:
            subscription.close()

    async def _handle(self, changes: Sequence[Any], tags: list[str], known: dict[str, float]) -> None:
        """Deliver changes, unless they are older than the `known` time of their tag, and clock ticks."""
        values, overflowed, now = [], set(), None
        for item in changes:
            tag = tags[item.ClientHandle] if item.ClientHandle < len(tags) else ""
            value = self._convert(tag, item.Value)
            if not tag:  # a clock
                now = to_seconds(value.value) or value.time or now
            elif value.time is None or value.time >= known.get(tag, 0.0):
                values.append(value)
            if tag and has_overflowed(item.Value):
                overflowed.add(tag)
        # A server reports all changes of one node, then all of the next. Rows need them by time.
        await self._deliver(sorted(values, key=lambda value: value.time or 0.0))
        if now is not None:
            self._later(self._sampler.advance, now)
        if overflowed:
            self._report(
                f"the server dropped changes of {len(overflowed)} tags, among them {min(overflowed)}, "
                "because they came faster than it could send them"
            )

    async def _catch_up(self, current: list[Value], nodes: dict[str, Any]) -> None:
        """Deliver the history of `nodes` since the latest known values, and report gaps."""
        times = [value.time for value in current if value.time is not None]
        if not times:
            return
        end = max(times)
        if not self._latest:
            self._later(self._sampler.skip, end)
            return
        begin = max(self._latest.values())
        if all(value.time == self._latest.get(value.address) for value in current):
            return
        await asyncio.sleep(0.3)  # a server may write its history with a delay
        known = {address: self._latest[address] for address in nodes if address in self._latest}
        history, reported = _History(nodes, self._convert, known), False
        if nodes:
            since = instant_text(round(begin * SECOND))
            self._report(f"reading the history of {self._endpoint} since {since}")
        async for values in history.read(end):
            if history.begins and self._continued and not reported:
                reported = True
                reason = "the server's history does not reach back"
                self._later(self._skip, begin, min(history.begins), reason)
            await self._deliver(values)
        self._continued = True
        without = len(self._tags) - len(nodes) + len(history.failed)
        if without == len(self._tags):
            self._later(self._skip, begin, end, f"the server has no history of {without} tags")
        elif without:
            self._report(
                f"{without} of {len(self._tags)} tags have no history: their changes in the last "
                f"{duration_text(round((end - begin) * SECOND))} are missing, and older values were held"
            )


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


class _Subscription:
    """Changes of nodes, in the order in which the server reports them; none is dropped here.

    asyncua's own subscription drops changes that are not read in time. This one asks for no more
    meanwhile, so that the server's queue holds them. The number of a node is its ``ClientHandle``.
    """

    def __init__(self, client: Any, nodes: Sequence[Any]) -> None:
        self._client, self._session, self._nodes = client, client.uaclient.session, nodes
        self._messages: asyncio.Queue[Any] = asyncio.Queue(_MESSAGES)
        self._sequence: int | None = None

    @property
    def waiting(self) -> int:
        """How many messages have come that were not read."""
        return self._messages.qsize()

    async def open(self) -> None:
        """Subscribe; nothing is missed from here on."""
        self._client.connection_lost_callback = self._messages.put
        request = ua.CreateSubscriptionParameters()
        request.RequestedPublishingInterval = _INTERVAL
        request.RequestedLifetimeCount = _LIFETIME
        request.RequestedMaxKeepAliveCount = _KEEP_ALIVE
        request.MaxNotificationsPerPublish = 0
        request.PublishingEnabled = True
        created = await self._session.create_subscription(request, self._messages.put)
        # An unchanged value with a new time is not outdated, so the time must be reported as well. Not
        # all servers can do that.
        for trigger in (ua.DataChangeTrigger.StatusValueTimestamp, None):
            items = [_monitored_item(node, number, trigger) for number, node in enumerate(self._nodes)]
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

    async def read_values(self, nodes: Sequence[Any]) -> list[Any]:
        """Return the current values of nodes."""
        found: list[Any] = []
        for some in split_requests(nodes):
            request = ua.ReadParameters()
            request.TimestampsToReturn = ua.TimestampsToReturn.Both
            for node in some:
                one = ua.ReadValueId()
                one.NodeId, one.AttributeId = node.nodeid, ua.AttributeIds.Value
                request.NodesToRead.append(one)
            found += await self._session.read(request)
        return found

    async def next(self) -> list[Sequence[Any]]:
        """Return the changes in the next message, several lists of them.

        Raise ConnectionError if the connection or a message is lost.
        """
        try:
            message = await asyncio.wait_for(self._messages.get(), _SILENCE)
        except TimeoutError:
            raise ConnectionError("the server does not respond") from None
        if isinstance(message, Exception):
            raise ConnectionError("the connection broke") from None
        self._check_sequence(message.NotificationMessage)
        parts = message.NotificationMessage.NotificationData or []
        if any(isinstance(part, ua.StatusChangeNotification) for part in parts):
            raise ConnectionError("the server ended the subscription")
        return [part.MonitoredItems for part in parts if isinstance(part, ua.DataChangeNotification)]

    def _check_sequence(self, message: Any) -> None:
        """Raise if a message was lost; one without changes has the number of the next."""
        number, last = int(message.SequenceNumber), self._sequence
        if message.NotificationData:
            self._sequence = number
            if last is not None and number not in (last + 1, 1):
                raise ConnectionError(f"{number - last - 1} messages of the server were lost")

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
#: How errors of the connection begin, rather than of the history.
_CONNECTION_ERRORS = (
    *("BadCommunication", "BadConnection", "BadRequestTimeout", "BadSecureChannel"),
    *("BadServer", "BadSession", "BadShutdown", "BadTimeout"),
)


class _History:
    """Reads the raw history of nodes by time, after the `latest` known time of each tag.

    ``begins`` has where histories begin that do not reach back to that time; ``failed`` has the tags
    whose history cannot be read.
    """

    def __init__(self, nodes: dict[str, Any], convert: Converter, latest: dict[str, float]) -> None:
        self._nodes, self._convert = nodes, convert
        self._latest = dict(latest)
        self.begins: list[float] = []
        self.failed: set[str] = set()

    async def read(self, end: float) -> AsyncIterator[list[Value]]:
        """Yield what was missed up to a time, in seconds since the epoch."""
        start, window = min(self._latest.values(), default=end) - _MARGIN, _WINDOW
        first = True
        while start < end or first:
            stop = min(start + window, end)
            found: list[Value] = []
            addresses = [address for address in self._nodes if address not in self.failed]
            for begin in range(0, len(addresses), _CONCURRENT):
                group = addresses[begin : begin + _CONCURRENT]
                reading = (self._read_node(address, start, stop, first) for address in group)
                found += [value for values in await asyncio.gather(*reading) for value in values]
            if found:
                yield sorted(found, key=lambda value: value.time or 0.0)
            if len(found) < _FEW:
                window *= 2
            elif len(found) > _MANY:
                window = max(1.0, window / 2)
            start, first = stop, False

    async def _read_node(self, address: str, start: float, stop: float, first: bool) -> list[Value]:
        """Return the values of a node in a window that are new."""
        try:
            found = await self._nodes[address].read_raw_history(
                to_datetime(start), to_datetime(stop), return_bounds=False
            )
        except AttributeError:  # asyncua fails so if the answer has no list
            return []
        except ua.UaStatusCodeError as error:
            kind = type(error).__name__
            if kind.startswith(_CONNECTION_ERRORS):
                raise ConnectionError(kind) from None
            if kind != "BadNoData":
                self.failed.add(address)
            return []
        timed = [(value.time, value) for value in (self._convert(address, one) for one in found)]
        values = [(moment, value) for moment, value in timed if moment is not None]
        if not values:
            return []
        known, times = self._latest.get(address), [moment for moment, _ in values]
        if first and known is not None and min(times) > known:
            self.begins.append(min(times))
        self._latest[address] = max(*times, known or 0.0)
        return [value for moment, value in values if known is None or moment > known]
