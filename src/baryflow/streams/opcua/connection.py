"""What OPC UA sources and sinks share: an event loop, secure connections, nodes and values."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.sampling.clock import SECOND
from baryflow.streams.sampling.tags import Tag
from baryflow.streams.urls import Endpoint, is_loopback

# As Any, because its annotations do not declare what it exports.
asyncua: Any = import_module("asyncua")
ua: Any = import_module("asyncua.ua")

_T = TypeVar("_T")
PORT = 4840
#: Seconds within which a server must answer at the start.
PATIENCE = 10.0
#: Supported values of ``security=``; older policies are insecure.
POLICIES = ("Basic256Sha256", "Aes128Sha256RsaOaep", "Aes256Sha256RsaPss")
MODES = ("SignAndEncrypt", "Sign")
#: Timeout of a request in seconds.
TIMEOUT = 5.0
#: How errors begin with which a server refuses the user, and our certificate.
_ACCESS_DENIED = ("BadUserAccessDenied", "BadIdentityToken", "BadUserSignatureInvalid")
_UNTRUSTED = ("BadSecurityChecksFailed", "BadCertificate")


class EventLoopThread:
    """An event loop in a thread of its own, for callers without one."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        """Run a coroutine and return its result; cancel it after `timeout` seconds."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine in the background until the loop is closed."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel everything that runs, and end the thread."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _cancel_all() -> None:
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def silence_logging() -> None:
    """Keep asyncua from logging to the terminal unless logging is configured.

    It logs a stack trace for each lost connection. What matters is in notices and errors.
    """
    logger = logging.getLogger("asyncua")
    if logger.level == logging.NOTSET and not logger.handlers and not logging.getLogger().handlers:
        logger.setLevel(logging.CRITICAL + 1)


def server_url(endpoint: Endpoint) -> str:
    """Return the URL without our options."""
    return f"opc.tcp://{endpoint.bracketed_host}:{endpoint.port or PORT}/{endpoint.path}"


def check_security(endpoint: Endpoint) -> None:
    """Refuse invalid or insecure options before anything is sent."""
    policy, mode = endpoint.option("security", ""), endpoint.option("mode", MODES[0])
    if policy and policy not in POLICIES:
        raise InvalidInputError(f"security must be one of {', '.join(POLICIES)}, got {policy!r}")
    if mode not in MODES:
        raise InvalidInputError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    if policy and not (endpoint.credentials.cert_file and endpoint.credentials.key_file):
        raise InvalidInputError(
            "security needs a client certificate and its key: set cert_file and key_file"
        )
    if policy and not endpoint.credentials.ca_file:
        raise InvalidInputError(
            "security needs a trusted certificate: set ca_file to the certificate of the server, or of "
            "the authority that signed it"
        )
    if endpoint.credentials.password and not policy and not is_loopback(endpoint.host):
        raise InvalidInputError(
            f"the password would be sent to {endpoint.host} unencrypted: add ?security={POLICIES[0]}"
        )


async def connect(endpoint: Endpoint) -> Any:
    """Return a connected client.

    Raise UnreachableError with the reason if access is denied, OSError or TimeoutError if there is no
    answer.
    """
    client = asyncua.Client(server_url(endpoint), timeout=TIMEOUT, watchdog_intervall=TIMEOUT / 2)
    client.name = client.description = "baryflow"
    client.session_timeout = 60_000
    if endpoint.credentials.username is not None:
        client.set_user(endpoint.credentials.username)
        client.set_password(endpoint.credentials.password or "")
    try:
        if endpoint.option("security", ""):
            await _secure(client, endpoint)
        await client.connect()
    except (ua.UaError, ConnectionError) as error:
        refusal = _explain(error, endpoint)
        if refusal is None:
            raise
        raise UnreachableError(refusal) from None  # asyncua's message may contain the password
    return client


async def disconnect(client: Any) -> None:
    """Close a connection, even a broken one."""
    with suppress(Exception):
        await asyncio.wait_for(client.disconnect(), TIMEOUT)


def _explain(error: Exception, endpoint: Endpoint) -> str | None:
    """Return why access is denied, or None if a retry may succeed."""
    kind = type(error).__name__
    if kind.startswith(_ACCESS_DENIED):
        user = endpoint.credentials.username
        what = f"access for {user!r} with this password" if user else "anonymous access: set a username"
        return f"{endpoint} denies {what}"
    if kind.startswith(_UNTRUSTED):
        return f"{endpoint} does not trust the client certificate ({kind}): its operator must accept it"
    if isinstance(error, ua.UaStatusCodeError) and "Security" in kind:
        return f"{endpoint} refuses this security policy ({kind}): check ?security= and ?mode="
    if isinstance(error, ua.UaError) and "No matching endpoints" in str(error):
        asked = endpoint.option("security", "") or "connections without security"
        return f"{endpoint} does not offer {asked}: check ?security= and ?mode="
    if isinstance(error, ua.UaError) and "certificate mismatch" in str(error):
        return f"{endpoint} presents two different certificates: the connection may be intercepted"
    return None


async def _secure(client: Any, endpoint: Endpoint) -> None:
    """Get the certificate of the server, verify it, and accept no other."""
    from asyncua.crypto import security_policies
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    policy = getattr(security_policies, f"SecurityPolicy{endpoint.options['security']}")
    mode = getattr(ua.MessageSecurityMode, endpoint.option("mode", MODES[0]))
    endpoints = await client.connect_and_get_server_endpoints()
    offered = asyncua.Client.find_endpoint(endpoints, mode, policy.URI)
    if not offered.ServerCertificate:
        raise UnreachableError(f"{endpoint} presents no certificate")
    certificate = x509.load_der_x509_certificate(offered.ServerCertificate)
    trusted = read_certificates(endpoint.credentials.ca_file or "")
    reason = find_certificate_fault(certificate, trusted, endpoint.host)
    if reason:
        raise UnreachableError(f"the certificate of {endpoint} is not trusted: {reason}; check ca_file")
    ours = read_certificates(endpoint.credentials.cert_file or "")[0]
    with suppress(x509.ExtensionNotFound):
        names = ours.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        for uri in names.get_values_for_type(x509.UniformResourceIdentifier)[:1]:
            client.application_uri = uri  # servers compare it with the certificate
    await client.set_security(
        policy,
        certificate=endpoint.credentials.cert_file,
        private_key=endpoint.credentials.key_file,
        server_certificate=certificate.public_bytes(Encoding.DER),
        mode=mode,
    )


def read_certificates(path: str) -> list[Any]:
    """Return the certificates in a PEM or DER file."""
    from cryptography import x509

    data = Path(path).read_bytes()
    try:
        if b"-----BEGIN" in data:
            return x509.load_pem_x509_certificates(data)
        return [x509.load_der_x509_certificate(data)]
    except ValueError:
        raise InvalidInputError(f"{path} must hold a certificate as PEM or DER") from None


def find_certificate_fault(certificate: Any, trusted: list[Any], host: str) -> str:
    """Return why a certificate is not trusted, or nothing if it is."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    now = datetime.now(UTC)
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        return (
            f"it is valid from {certificate.not_valid_before_utc} to {certificate.not_valid_after_utc}"
        )
    if certificate in trusted:
        return ""
    for authority in trusted:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        if not authority.not_valid_before_utc <= now <= authority.not_valid_after_utc:
            return "the authority that signed it has expired"
        with suppress(x509.ExtensionNotFound):
            limits = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
            if limits.ca:
                return _wrong_name(certificate, host)
    return "neither the certificate nor its issuer is in ca_file"


def _wrong_name(certificate: Any, host: str) -> str:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return "it is for no host"
    kinds = (x509.DNSName, x509.IPAddress)
    hosts = [str(name) for kind in kinds for name in names.get_values_for_type(kind)]
    if host in hosts or (host == "localhost" and {"127.0.0.1", "::1"} & set(hosts)):
        return ""
    return f"it is for {', '.join(hosts) or 'no host'}, not for {host}"


# -- nodes ---------------------------------------------------------------------------------------------

_NODE_ID = re.compile(r"(ns=\d+;)?[isgb]=.+")
#: Bit of the access level that is set if the history can be read.
_HISTORY = 1 << 2
#: Nodes per request; servers refuse more than some hundreds.
_NODES = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Bits of a status that mark an overflow of the server's queue before this value.
_OVERFLOW = 0x480


def split_requests(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Split items into groups that fit in one request."""
    for begin in range(0, len(items), _NODES):
        yield items[begin : begin + _NODES]


async def find_node(client: Any, text: str) -> Any:
    """Return a node by its id, ``ns=2;s=Plant``, or by its path under Objects, ``2:Plant/2:Flow``."""
    if _NODE_ID.fullmatch(text):
        try:
            return client.get_node(ua.NodeId.from_string(text))
        except (ua.UaError, ValueError):
            raise InvalidInputError(f"expected a node id like ns=2;s=Flow, got {text!r}") from None
    names = [
        name for name in text.strip("/").split("/") if name and name not in ("Objects", "0:Objects")
    ]
    try:
        return await client.nodes.objects.get_child(names)
    except (ua.UaError, ValueError):
        raise UnreachableError(
            f"the server has no node {text!r}; expected an id like ns=2;s=Flow, or a path like "
            "2:Plant/2:Flow"
        ) from None


async def find_children(node: Any, kind: Any) -> dict[str, Any]:
    """Return the nodes of a class directly under a node, by name."""
    found = await node.get_children(nodeclassmask=kind)
    return {(await one.read_browse_name()).Name: one for one in found}


async def find_tags(client: Any, text: str, columns: Sequence[str] | None, by_target: bool) -> list[Tag]:
    """Return the variables under a node as tags, with their names as columns.

    With `by_target`, each object under the node is a target, and its variables are the columns.
    """
    node = await find_node(client, text)
    try:
        targets = {"": node}
        if by_target:
            targets = await find_children(node, ua.NodeClass.Object)
        tags = []
        for key, target in targets.items():
            named = await find_children(target, ua.NodeClass.Variable)
            chosen = list(named) if columns is None else columns
            missing = [name for name in chosen if name not in named]
            if missing or not chosen:
                raise UnreachableError(
                    f"the node {text!r}{f', {key!r},' * bool(key)} has no variable "
                    f"{', '.join(missing)}; it has {', '.join(named) or 'none'}"
                )
            tags += [Tag(named[name].nodeid.to_string(), name, key=key) for name in chosen]
    except ua.UaStatusCodeError as error:
        raise UnreachableError(f"the server has no node {text!r} ({type(error).__name__})") from None
    if not tags:
        raise UnreachableError(f"there are no objects under the node {text!r}")
    return tags


async def check_nodes(client: Any, nodes: dict[str, Any]) -> set[str]:
    """Return which nodes have a history, or raise if one is not a readable variable."""
    ids = [node.nodeid for node in nodes.values()]
    classes, levels = [], []
    session = client.uaclient.session
    for some in split_requests(ids):
        classes += await session.read_attributes(some, ua.AttributeIds.NodeClass)
        levels += await session.read_attributes(some, ua.AttributeIds.UserAccessLevel)
    found = set()
    for text, kind, level in zip(nodes, classes, levels, strict=True):
        if not kind.StatusCode.is_good():
            raise UnreachableError(f"the server has no node {text!r} ({kind.StatusCode.name})")
        if kind.Value.Value != ua.NodeClass.Variable:
            raise UnreachableError(f"the node {text!r} is not a variable; a tag must be one")
        bits = level.Value.Value if level.StatusCode.is_good() and level.Value is not None else 0
        if not bits & 1:
            raise UnreachableError(
                f"not permitted to read the node {text!r}; ask the operator of the server"
            )
        if bits & _HISTORY:
            found.add(text)
    return found


# -- values --------------------------------------------------------------------------------------------


class Value(NamedTuple):
    """A value of a tag."""

    address: str
    value: Any
    time: float | None  # seconds since the epoch
    good: bool


#: From the address of a tag and a ``DataValue``.
Converter = Callable[[str, Any], Value]


def to_seconds(moment: Any) -> float | None:
    """Return a time as seconds since the epoch, exact to the microsecond; None if it is invalid."""
    if not isinstance(moment, datetime):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    stamp = (moment - _EPOCH) // timedelta(microseconds=1)
    return stamp / SECOND if stamp > 0 else None  # servers send the year 1601 for an unknown time


def to_datetime(seconds: float) -> datetime:
    """Return seconds since the epoch as a datetime."""
    return _EPOCH + timedelta(microseconds=round(seconds * SECOND))


def to_value(accept_uncertain: bool, address: str, found: Any) -> Value:
    """Return the value of a tag in a ``DataValue``; with `accept_uncertain`, uncertain ones are good.

    The time is the source's, or else the server's.
    """
    status = found.StatusCode
    good = status is None or status.is_good() or (accept_uncertain and status.is_uncertain())
    moment = found.SourceTimestamp
    time = to_seconds(found.ServerTimestamp if moment is None else moment)
    return Value(address, None if found.Value is None else found.Value.Value, time, good)


def has_overflowed(found: Any) -> bool:
    """Return whether the server dropped values before this one."""
    return found.StatusCode is not None and found.StatusCode.value & _OVERFLOW == _OVERFLOW
