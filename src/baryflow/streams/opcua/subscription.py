"""A subscription to nodes: every change of every one, in the order in which the server tells them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from baryflow.exceptions import UnreachableError
from baryflow.streams.opcua.packages import pieces, ua
from baryflow.streams.opcua.values import Value, has_overflown, to_seconds

#: Milliseconds from one message of the server to the next.
_INTERVAL = 100.0
#: The server says that it is alive after so many intervals without news ...
_KEEP_ALIVE = 20
#: ... and forgets us after so many without a sign of life of ours.
_LIFETIME = 600
#: Changes of one node that the server keeps until the next message: a minute of 100 a second.
_QUEUE = 6000
#: Seconds without any message after which the connection counts as lost.
_SILENCE = 12.0
#: Messages that may wait here; then the server is not asked for more.
_MESSAGES = 200


class Subscription:
    """Changes of nodes.

    Parameters
    ----------
    client : asyncua.Client
        Connected.
    nodes : dict of str → Node
        By address of the tag.
    clocks : sequence of Node
        Variables that tell the plant's time.
    convert : callable
        ``DataValue`` → Value.
    """

    def __init__(
        self,
        client: Any,
        nodes: dict[str, Any],
        clocks: Sequence[Any],
        convert: Callable[[str, Any], Value],
    ) -> None:
        self._client, self._session = client, client.uaclient.session
        self._nodes, self._clocks, self._convert = nodes, clocks, convert
        self._addresses = list(nodes)
        self._messages: asyncio.Queue[Any] = asyncio.Queue(_MESSAGES)
        self._sequence: int | None = None
        self._known: dict[str, float] = {}
        self._overlap = 0

    async def open(self) -> None:
        """Subscribe; from here on nothing is missed."""
        self._client.connection_lost_callback = self._lose
        wanted = ua.CreateSubscriptionParameters()
        wanted.RequestedPublishingInterval = _INTERVAL
        wanted.RequestedLifetimeCount = _LIFETIME
        wanted.RequestedMaxKeepAliveCount = _KEEP_ALIVE
        wanted.MaxNotificationsPerPublish = 0
        wanted.PublishingEnabled = True
        made = await self._session.create_subscription(wanted, self._messages.put)
        nodes = [*self._nodes.values(), *self._clocks]
        # A value that is told again unchanged is not too old: its time is news as well. Not all
        # servers can tell it.
        triggers = (ua.DataChangeTrigger.StatusValueTimestamp, None)
        for trigger in triggers:
            items = [self._item(node, number, trigger) for number, node in enumerate(nodes)]
            results = []
            for some in pieces(items):
                asked = ua.CreateMonitoredItemsParameters()
                asked.SubscriptionId = made.SubscriptionId
                asked.ItemsToCreate = list(some)
                asked.TimestampsToReturn = ua.TimestampsToReturn.Both
                results += await self._session.create_monitored_items(asked)
            bad = [one.StatusCode for one in results if not one.StatusCode.is_good()]
            if not bad:
                return
            if trigger is None or len(bad) < len(results) or "Filter" not in bad[0].name:
                raise UnreachableError(f"the server does not let us subscribe ({bad[0].name})")

    @staticmethod
    def _item(node: Any, number: int, trigger: Any) -> Any:
        item = ua.MonitoredItemCreateRequest()
        item.ItemToMonitor.NodeId = node.nodeid
        item.ItemToMonitor.AttributeId = ua.AttributeIds.Value
        item.MonitoringMode = ua.MonitoringMode.Reporting
        wanted = ua.MonitoringParameters()
        wanted.ClientHandle = number
        wanted.SamplingInterval = 0.0  # as fast as the server can
        wanted.QueueSize = _QUEUE
        wanted.DiscardOldest = True
        if trigger is not None:
            wanted.Filter = ua.DataChangeFilter(Trigger=trigger)
        item.RequestedParameters = wanted
        return item

    async def read_current(self) -> list[Value]:
        """Return the values as they are now."""
        found = []
        for some in pieces(list(self._nodes.values())):
            asked = ua.ReadParameters()
            asked.TimestampsToReturn = ua.TimestampsToReturn.Both
            for node in some:
                one = ua.ReadValueId()
                one.NodeId, one.AttributeId = node.nodeid, ua.AttributeIds.Value
                asked.NodesToRead.append(one)
            found += await self._session.read(asked)
        return [self._convert(*pair) for pair in zip(self._addresses, found, strict=True)]

    def know(self, latest: dict[str, float]) -> None:
        """Let messages that came up to now tell nothing older than what is known of each tag."""
        self._known, self._overlap = dict(latest), self._messages.qsize()

    async def follow(self) -> AsyncIterator[list[Value] | float | str]:
        """Yield what changes, the plant's time, and notices.

        Yields
        ------
        list of Value, float or str

        Raises
        ------
        ConnectionError
            When the connection is lost, or the server has lost a message.
        """
        heard = time.monotonic()
        while True:
            try:
                message = await asyncio.wait_for(self._messages.get(), 1.0)
            except TimeoutError:
                if time.monotonic() - heard > _SILENCE:
                    raise ConnectionError("the server fell silent") from None
                continue
            if isinstance(message, Exception):
                raise ConnectionError("the connection broke") from None
            heard = time.monotonic()
            self._check_sequence(message.NotificationMessage)
            for part in message.NotificationMessage.NotificationData or []:
                if isinstance(part, ua.DataChangeNotification):
                    for news in self._split(part.MonitoredItems):
                        yield self._keep_new(news) if isinstance(news, list) else news
                elif isinstance(part, ua.StatusChangeNotification):
                    raise ConnectionError("the server ended the subscription")
            self._overlap = max(0, self._overlap - 1)

    def _split(self, items: Sequence[Any]) -> list[list[Value] | float | str]:
        news: list[list[Value] | float | str] = []
        values, overflown = [], set()
        for item in items:
            if item.ClientHandle < len(self._addresses):
                address = self._addresses[item.ClientHandle]
                values.append(self._convert(address, item.Value))
                if has_overflown(item.Value):
                    overflown.add(address)
            else:
                told = self._convert("", item.Value)
                now = to_seconds(told.value) or told.time
                if now is not None:
                    news.append(now)
        # A server tells all changes of one node, then all of the next: rows want them by time.
        values.sort(key=lambda value: value.time or 0.0)
        if overflown:
            news.append(
                f"the server dropped changes of {len(overflown)} tags, {min(overflown)} among them, "
                "which came faster than it could tell them"
            )
        return [values, *news]

    def _keep_new(self, values: list[Value]) -> list[Value]:
        if not self._overlap:
            return values
        known = self._known
        return [one for one in values if one.time is None or one.time >= known.get(one.address, 0.0)]

    def _check_sequence(self, message: Any) -> None:
        """Find out whether a message was lost; one without news bears the number of the next."""
        number, last = int(message.SequenceNumber), self._sequence
        if message.NotificationData:
            self._sequence = number
            if last is not None and number not in (last + 1, 1):
                raise ConnectionError(f"{number - last - 1} messages of the server were lost")

    async def _lose(self, error: Exception) -> None:
        while self._messages.full():
            await asyncio.sleep(0.02)
        await self._messages.put(error)

    def close(self) -> None:
        """Wait for nothing more; the server forgets the subscription with the session."""
        self._client.connection_lost_callback = None
        while not self._messages.empty():
            self._messages.get_nowait()
