"""Records as OPC UA variables: of our own server, or of an existing one. Alarms are conditions, too."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.backoff import Backoff
from baryflow.streams.base import MessageSink, Sink
from baryflow.streams.opcua.connection import (
    PATIENCE,
    EventLoopThread,
    check_security,
    connect,
    disconnect,
    find_children,
    find_node,
    silence_logging,
    to_datetime,
    to_seconds,
    ua,
)
from baryflow.streams.opcua.server import Host, to_variant
from baryflow.streams.sinks import without_nan
from baryflow.streams.urls import Endpoint
from baryflow.validation import count_of

_log = logging.getLogger("baryflow.streams")
#: Records that may wait while the server is away; with more, `write` waits, too.
_WAITING = 1000
#: Seconds between attempts of `write` to reconnect.
_PAUSE = 5.0


class _OpcUaSink(MessageSink):
    """Each record replaces the last one of its target."""

    def write(self, records: list[dict[str, Any]]) -> None:
        """Write records in order."""
        for record in records:
            fields = {name: _to_scalar(value) for name, value in record.items() if name != "key"}
            key, moment = str(record.get("key") or ""), _moment(record.get("time"))
            self._put(key, fields, moment)
            if record.get("event") == "alarm" and "alarm" in record:  # not a flood
                self._signal(key, record, moment)
        self.position += len(records)

    def _put(self, key: str, fields: dict[str, Any], moment: float) -> None:
        raise NotImplementedError

    def _signal(self, key: str, alarm: dict[str, Any], moment: float) -> None:
        """Send the state of an alarm to clients."""


class ServerSink(_OpcUaSink):
    """Our own server, with a folder for each target and a variable for each field."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._folder = endpoint.path.strip("/").replace("/", "_") or "baryflow"
        self._host = Host(endpoint)

    def _put(self, key: str, fields: dict[str, Any], moment: float) -> None:
        self._host.write(self._target(key), fields, moment)

    def _signal(self, key: str, alarm: dict[str, Any], moment: float) -> None:
        self._host.signal(self._target(key), alarm, moment)

    def _target(self, key: str) -> str:
        target = key.replace("/", "_").replace(".", "_")
        return f"{self._folder}/{target}" if key else self._folder

    def flush(self) -> None:
        """Do nothing: our own server has all records."""

    def close(self, finished: bool = True) -> None:
        """Stop the server."""
        del finished
        self._host.close()


class ClientSink(_OpcUaSink):
    """The variables of an existing server under a node, if they have the names of fields.

    An existing server has its own conditions; its variables hold an alarm.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        check_security(endpoint)
        silence_logging()
        self._endpoint, self._backoff = endpoint, Backoff(endpoint, endpoint.policy)
        self._node = endpoint.options["node"]
        self._client: Any = None
        self._folders: dict[str, dict[str, Any]] = {}
        self._waiting: deque[tuple[str, dict[str, Any], float]] = deque()
        self._tried = -math.inf
        self._unknown: set[str] = set()  # targets without variables
        self._loop = EventLoopThread("baryflow-opcua-sink")
        try:
            reason = self._attempt()
        except BaseException:
            self.close(finished=False)
            raise
        if reason is not None:
            _log.warning("the OPC UA server at %s %s; retrying", endpoint, reason)

    async def _connect(self) -> None:
        self._folders = {}
        self._client = await connect(self._endpoint)
        node = await find_node(self._client, self._node)
        if not await self._find("") and not await find_children(node, ua.NodeClass.Object):
            raise UnreachableError(f"there are no variables under the node {self._node!r}")

    async def _find(self, key: str) -> dict[str, Any]:
        """Return the variables of a target by name, each with its type."""
        if key not in self._folders:
            node = await find_node(self._client, self._node)
            node = (await find_children(node, ua.NodeClass.Object)).get(key) if key else node
            found = await find_children(node, ua.NodeClass.Variable) if node else {}
            self._folders[key] = {
                name: (one.nodeid, await one.read_data_type_as_variant_type())
                for name, one in found.items()
            }
        return self._folders[key]

    def stop_when(self, stop: Callable[[], bool]) -> None:
        """Do not wait long for the server once `stop` returns True."""
        self._backoff.stop = stop

    def write(self, records: list[dict[str, Any]]) -> None:
        """Write records, and keep them if the server is away; wait if too many are kept."""
        super().write(records)
        if len(self._waiting) > _WAITING:
            self.flush()
        elif self._client is not None or time.monotonic() - self._tried >= _PAUSE:
            self._attempt()

    def _put(self, key: str, fields: dict[str, Any], moment: float) -> None:
        self._waiting.append((key, fields, moment))

    def flush(self) -> None:
        """Return once the server has all records."""
        self._backoff.begin()
        reported = False
        while self._waiting and (reason := self._attempt()) is not None:
            if not reported:
                count = count_of(len(self._waiting), "record")
                _log.warning("%s %s; not written: %s; retrying", self._endpoint, reason, count)
            reported = True
            self._backoff.sleep()

    def _attempt(self) -> str | None:
        """Connect if necessary, and write all records; return why not if the server is away.

        A record that is not written stays the first of the queue. A server that does not answer costs
        one timeout, however many records wait.
        """
        was_connected = self._client is not None
        try:
            self._loop.call(self._write_all())
        except UnreachableError:
            raise
        except (OSError, ua.UaError) as error:
            if was_connected and not isinstance(error, TimeoutError):
                return self._attempt()  # the server may have been restarted meanwhile
            return "does not answer" if isinstance(error, OSError) else f"fails: {error}"
        return None

    async def _write_all(self) -> None:
        try:
            if self._client is None:
                self._tried = time.monotonic()
                await asyncio.wait_for(self._connect(), PATIENCE)
            while self._waiting:
                await self._write(*self._waiting[0])
                self._waiting.popleft()
        except (OSError, ua.UaError):
            client, self._client = self._client, None
            if client is not None:
                with suppress(Exception):
                    client.disconnect_socket()  # a server that is silent does not answer a goodbye
            raise

    async def _write(self, key: str, fields: dict[str, Any], moment: float) -> None:
        nodes = await self._find(key)
        chosen = [name for name in fields if name in nodes and fields[name] is not None]
        if not nodes and key not in self._unknown:
            self._unknown.add(key)
            _log.warning("%s has no variables for %r: its records are not written", self._endpoint, key)
        if not chosen:
            return
        ids = [nodes[name][0] for name in chosen]
        values = [
            ua.DataValue(_cast(fields[name], nodes[name][1]), SourceTimestamp=to_datetime(moment))
            for name in chosen
        ]
        session = self._client.uaclient.session
        results = await session.write_attributes(ids, values)
        if any(
            one.name == "BadWriteNotSupported" for one in results
        ):  # the server sets timestamps itself
            values = [ua.DataValue(value.Value) for value in values]
            results = await session.write_attributes(ids, values)
        refused = [
            f"{node.to_string()} ({one.name})"
            for node, one in zip(ids, results, strict=True)
            if not one.is_good()
        ]
        if refused:
            raise UnreachableError(
                f"{self._endpoint} refuses to write {', '.join(refused)}: check the type of the "
                "variable and the permissions of this user"
            )

    def close(self, finished: bool = True) -> None:
        """Disconnect; if `finished`, once the server has all records."""
        try:
            if finished:
                self.flush()
        finally:
            client, self._client = self._client, None
            if client is not None:
                self._loop.call(disconnect(client))
            self._loop.close()


def open_sink(endpoint: Endpoint) -> Sink:
    """Open a sink for records; see the package."""
    endpoint.check_options("serve", "node", "security", "mode")
    if ("serve" in endpoint.options) == ("node" in endpoint.options):
        raise InvalidInputError(
            f"choose where to write records: {endpoint}?serve starts a server there, ?node=ns=2;s=Out "
            "writes to the variables under a node of an existing server"
        )
    return ServerSink(endpoint) if "serve" in endpoint.options else ClientSink(endpoint)


def _to_scalar(value: Any) -> Any:
    """Return a value as a scalar: structures as JSON, NaN and infinity as None."""
    value = without_nan(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _cast(value: Any, kind: Any) -> Any:
    """Return a value with the type of a variable, or with its own if it cannot be converted."""
    try:
        if kind in (ua.VariantType.Double, ua.VariantType.Float):
            return ua.Variant(float(value), kind)
        if kind == ua.VariantType.Boolean:
            return ua.Variant(bool(value), kind)
        if kind.name.startswith(("Int", "UInt")):
            return ua.Variant(int(value), kind)
        if kind == ua.VariantType.String:
            return ua.Variant(str(value), kind)
        if kind == ua.VariantType.DateTime:
            return ua.Variant(datetime.fromisoformat(str(value)), kind)
    except (TypeError, ValueError):
        pass
    return to_variant(value)


def _moment(text: Any) -> float:
    """Return the time of a record, or the current time if it has no valid one."""
    try:
        found = to_seconds(datetime.fromisoformat(str(text)))
    except ValueError:
        found = None
    return time.time() if found is None else found
