"""A small OPC UA server: variables that clients can read and subscribe to, with their history, and
alarms as events of conditions.
"""

from __future__ import annotations

import hmac
from contextlib import suppress
from datetime import datetime
from typing import Any

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.opcua.connection import (
    EventLoopThread,
    asyncua,
    server_url,
    silence_logging,
    to_datetime,
    ua,
)
from baryflow.streams.urls import Credentials, Endpoint, is_loopback

_NAMESPACE = "urn:baryflow"
#: Severity of each priority of an alarm, from 1 to 1000.
_SEVERITIES = {"low": 200, "medium": 400, "high": 700, "critical": 900}
#: Values of each variable that the history keeps.
_KEPT = 100_000


class _OneUser:
    """Grants access to one user with a password."""

    def __init__(self, credentials: Credentials) -> None:
        self._name = credentials.username or ""
        self._password = credentials.password or ""

    def get_user(
        self, _server: Any, username: Any = None, password: Any = None, certificate: Any = None
    ) -> Any:
        del certificate
        from asyncua.crypto.permission_rules import User, UserRole

        given = password.decode("utf-8", "replace") if isinstance(password, bytes) else str(password)
        known = hmac.compare_digest(str(username).encode(), self._name.encode())
        if known & hmac.compare_digest(given.encode(), self._password.encode()):
            return User(role=UserRole.User)
        return None


class Host:
    """A server with variables; with `keep`, it keeps their history.

    Without a user in `credentials`, access is anonymous, and only loopback addresses are allowed. Any
    other address needs a user, a password, a certificate and its key, and all traffic is encrypted.
    """

    def __init__(self, endpoint: Endpoint, keep: bool = False) -> None:
        encrypted = bool(endpoint.credentials.cert_file and endpoint.credentials.key_file)
        if not is_loopback(endpoint.host) and not (endpoint.credentials.password and encrypted):
            raise InvalidInputError(
                f"{endpoint} is reachable from other computers: set username, password, cert_file and "
                "key_file, or listen on 127.0.0.1 only"
            )
        silence_logging()
        self.endpoint, self._encrypted = endpoint, encrypted
        self._nodes: dict[str, Any] = {}
        self._history: Any = None
        self._conditions: dict[str, Any] = {}
        self._loop = EventLoopThread("baryflow-opcua-host")
        try:
            self._loop.call(self._start(keep))
        except BaseException:
            self.close()
            raise

    async def _start(self, keep: bool) -> None:
        from asyncua.server.history import HistoryDict

        known = self.endpoint.credentials.username is not None
        self._server = asyncua.Server(
            user_manager=_OneUser(self.endpoint.credentials) if known else None
        )
        self._server.iserver.bind_condition_methods = True  # ConditionRefresh
        await self._server.init()
        self._server.set_endpoint(server_url(self.endpoint))
        self._server.set_server_name("baryflow")
        self._server.allow_remote_admin(False)
        policies = [ua.SecurityPolicyType.NoSecurity]
        if self._encrypted:
            policies = [ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt]
            await self._server.load_certificate(self.endpoint.credentials.cert_file)
            await self._server.load_private_key(self.endpoint.credentials.key_file)
        self._server.set_security_policy(policies)
        token = ua.UserNameIdentityToken if known else ua.AnonymousIdentityToken
        self._server.set_identity_tokens([token])
        if keep:
            self._history = HistoryDict()
            self._server.iserver.history_manager.set_storage(self._history)
        self._space = await self._server.register_namespace(_NAMESPACE)
        try:
            await self._server.start()
        except OSError as error:
            raise UnreachableError(f"cannot listen at {self.endpoint}: {error.strerror}") from None

    @property
    def url(self) -> str:
        """The URL of the server."""
        return server_url(self.endpoint)

    def add(self, folder: str, names: dict[str, Any]) -> None:
        """Add variables to a folder, ``line4/pump7``, which is created if necessary.

        `names` maps each name to a value of its type. Variable ``label`` in folder ``pump7`` has the id
        ``ns=2;s=pump7.label``; without a folder, ``ns=2;s=label``.
        """
        self._loop.call(self._add(folder, names))

    async def _add(self, folder: str, names: dict[str, Any]) -> str:
        """Add what is not there yet, and return the prefix of the names of variables."""
        where, path = self._server.nodes.objects, ""
        for part in filter(None, folder.split("/")):
            path = f"{path}.{part}" if path else part
            if path not in self._nodes:
                id_ = ua.NodeId(path, self._space)
                self._nodes[path] = await where.add_folder(id_, f"{self._space}:{part}")
            where = self._nodes[path]
        prefix = f"{path}." if path else ""
        for name, example in names.items():
            if prefix + name in self._nodes:
                continue
            node = await where.add_variable(
                ua.NodeId(prefix + name, self._space), f"{self._space}:{name}", to_variant(example)
            )
            self._nodes[prefix + name] = node
            await self._put(node, ua.DataValue(StatusCode=_status("BadWaitingForInitialData")))
            if self._history is not None:
                for level in (ua.AttributeIds.AccessLevel, ua.AttributeIds.UserAccessLevel):
                    await node.set_attr_bit(level, ua.AccessLevel.HistoryRead)
                await self._history.new_historized_node(node.nodeid, None, _KEPT)
        return prefix

    def write(self, folder: str, values: dict[str, Any], time: float) -> None:
        """Write variables of a folder, at a time in seconds since the epoch; new ones are added.

        The value None is written as missing.
        """
        self._loop.call(self._write(folder, values, time))

    async def _write(self, folder: str, values: dict[str, Any], time: float) -> None:
        prefix, moment = await self._add(folder, values), to_datetime(time)
        for name, value in values.items():
            node = self._nodes[prefix + name]
            found = ua.DataValue(to_variant(value), SourceTimestamp=moment)
            if value is None:
                found = ua.DataValue(StatusCode=_status("BadNoData"), SourceTimestamp=moment)
            if self._history is not None:
                await self._history.save_node_value(node.nodeid, found)
            await self._put(node, found)

    def signal(self, folder: str, alarm: dict[str, Any], time: float) -> None:
        """Send the state of an alarm to clients, as an event of type AlarmConditionType.

        The condition is the object ``pump7.alarms.leak`` if the folder is ``pump7``. Clients that come
        later get the state with ConditionRefresh.
        """
        self._loop.call(self._signal(folder, alarm, time))

    async def _signal(self, folder: str, alarm: dict[str, Any], time: float) -> None:
        full = f"{await self._add(f'{folder}/alarms', {})}{alarm['alarm']}"
        if full not in self._conditions:
            id_ = ua.NodeId(full, self._space)
            path = folder.replace("/", ".")
            alarms = self._nodes[f"{path}.alarms"]
            await alarms.add_object(id_, ua.QualifiedName(alarm["alarm"], self._space))
            # A client that subscribes to the events of the server gets those of all targets.
            kind = ua.ObjectIds.AlarmConditionType
            self._conditions[full] = await self._server.get_event_generator(kind)
            event = self._conditions[full].event
            event.NodeId, event.SourceNode = id_, self._nodes[path].nodeid
            event.SourceName = folder.rpartition("/")[2]
            event.ConditionName = alarm["alarm"]
            event.Quality = ua.StatusCode(ua.StatusCodes.Good)
            _set_state(event, "EnabledState", True, "Enabled", "Disabled")
        generator = self._conditions[full]
        event, hidden = generator.event, alarm["state"] in ("shelved", "suppressed")
        event.Severity = _SEVERITIES[alarm["priority"]]
        event.SuppressedOrShelved = hidden
        event.Comment = ua.LocalizedText(alarm["comment"])
        event.ClientUserId = alarm["by"]
        event.Retain = not hidden and alarm["state"] != "normal"
        _set_state(event, "ActiveState", alarm["active"], "Active", "Inactive")
        _set_state(event, "AckedState", alarm["acknowledged"], "Acknowledged", "Unacknowledged")
        await generator.trigger(to_datetime(time), alarm["message"])

    async def _put(self, node: Any, value: Any) -> None:
        space = self._server.iserver.aspace
        await space.write_attribute_value(node.nodeid, ua.AttributeIds.Value, value)

    def close(self) -> None:
        """Stop the server."""
        with suppress(Exception):
            self._loop.call(self._server.stop(), 10.0)
        self._loop.close()


def _status(name: str) -> Any:
    return ua.StatusCode(getattr(ua.StatusCodes, name))


def _set_state(event: Any, name: str, value: bool, if_true: str, if_false: str) -> None:
    setattr(event, name, ua.LocalizedText(if_true if value else if_false))
    setattr(event, f"{name}/Id", value)


def to_variant(value: Any) -> Any:
    """Return a value as an OPC UA variant: string, boolean, integer, float or time."""
    kind = ua.VariantType.String
    if isinstance(value, bool):
        kind = ua.VariantType.Boolean
    elif isinstance(value, int):
        kind = ua.VariantType.Int64
    elif isinstance(value, float):
        kind = ua.VariantType.Double
    elif isinstance(value, datetime):
        kind = ua.VariantType.DateTime
    else:
        value = "" if value is None else str(value)
    return ua.Variant(value, kind)
