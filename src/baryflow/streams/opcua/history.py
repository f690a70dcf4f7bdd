"""What a server has kept of the time when nobody listened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from baryflow.streams.opcua.packages import ua
from baryflow.streams.opcua.values import Value, to_datetime

#: Seconds of history that are read at a time, at first; then more or less by how much there was.
_WINDOW = 600.0
_FEW, _MANY = 20_000, 100_000
#: Seconds before the last known value, from which on it is looked for: histories may round times.
_MARGIN = 1.0
#: So many nodes are asked at a time.
_AT_ONCE = 8
#: What is said when it is not the history that cannot be read.
_LOST = frozenset([
    "BadCommunicationError", "BadConnectionClosed", "BadRequestTimeout", "BadSecureChannelClosed",
    "BadServerHalted", "BadServerNotConnected", "BadSessionClosed", "BadSessionIdInvalid",
    "BadShutdown", "BadTimeout",
])  # fmt: skip


class History:
    """Reads the raw history of nodes in the order of time.

    Parameters
    ----------
    nodes : dict of str → Node
        By address of the tag.
    convert : callable
        ``DataValue`` → Value.
    latest : dict of str → float
        Time of the newest value of each tag that is known already: only what is newer is returned.
    """

    def __init__(
        self, nodes: dict[str, Any], convert: Callable[[str, Any], Value], latest: dict[str, float]
    ) -> None:
        self._nodes, self._convert = nodes, convert
        self._latest = dict(latest)
        #: Tags whose history does not reach back to what is known → where it begins.
        self.begins: dict[str, float] = {}
        #: Tags whose history cannot be read after all.
        self.failed: set[str] = set()

    async def read(self, end: float) -> AsyncIterator[list[Value]]:
        """Yield what was missed up to a time, piece by piece.

        Parameters
        ----------
        end : float
            Seconds since the epoch.

        Yields
        ------
        list of Value
            By time.
        """
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
        for begin in range(0, len(addresses), _AT_ONCE):
            group = addresses[begin : begin + _AT_ONCE]
            lists = await asyncio.gather(*(self._read_node(one, start, stop) for one in group))
            for address, values in zip(group, lists, strict=True):
                found += self._keep_new(address, values, first)
        return sorted(found, key=lambda value: value.time or 0.0)

    async def _read_node(self, address: str, start: float, stop: float) -> list[Any]:
        try:
            values: list[Any] = await self._nodes[address].read_raw_history(
                to_datetime(start), to_datetime(stop), return_bounds=False
            )
        except AttributeError:  # there is no list, where there is nothing to list
            return []
        except ua.UaStatusCodeError as error:
            kind = type(error).__name__
            if kind in _LOST:
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
