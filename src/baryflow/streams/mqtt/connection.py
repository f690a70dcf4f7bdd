"""A connection to an MQTT broker that reconnects by itself, in a thread of its own.

All calls of paho happen in that thread, and each connection has its own paho client. So nothing that was
meant for one connection can be sent on the next: an acknowledgement names a message by a packet
identifier, which may belong to another message by then.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.backoff import Backoff
from baryflow.streams.urls import Endpoint

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

#: Seconds to wait for a connection, and then for the broker's first packet.
ANSWER = 5.0
#: Seconds that the first attempt may take, the confirmation of a subscription included.
_FIRST = 30.0
#: This many connections in a row that last less than a second mean that another client uses our id. A
#: broker that restarts is away in between.
_TAKEOVERS, _SHORT = 20, 1.0
#: Seconds to send what is left when the connection is closed.
_FAREWELL = 2.0
_UNSPECIFIED = 0x80
_NO_TLS = "it closed the connection at once: if the port uses TLS, use mqtts://"
_NO_MQTT = "the answer is not MQTT: check the port, or use mqtts:// if it uses TLS"
_SILENT = "it accepts connections but does not answer: check the port, or use mqtts:// if it uses TLS"

# -- clients -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClientConfig:
    """How to register with the broker."""

    client_id: str = ""
    expiry: int = 0  # seconds for which the broker keeps the session while we are away
    inflight: int = 256  # messages that it may send before the first is acknowledged
    keepalive: int = 30  # seconds of silence after which each end checks the connection


def _make_client(endpoint: Endpoint, config: ClientConfig, tls: ssl.SSLContext | None) -> Client:
    """Return a paho client that acknowledges nothing by itself."""
    mqtt = require_paho().client
    client: Client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,
        client_id=config.client_id,
        protocol=mqtt.MQTTv5,
        manual_ack=True,
    )
    client.connect_timeout = ANSWER
    if endpoint.credentials.username is not None:
        client.username_pw_set(endpoint.credentials.username, endpoint.credentials.password)
    if tls is not None:
        client.tls_set_context(tls)
    return client


class _TlsContext(ssl.SSLContext):
    """Performs the handshake at once, and closes the socket if it fails."""

    def wrap_socket(self, sock: socket.socket, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Return the socket after the handshake."""
        wrapped = super().wrap_socket(sock, *args, **options)
        try:
            wrapped.settimeout(ANSWER)
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
        return wrapped


def _make_tls(endpoint: Endpoint) -> ssl.SSLContext | None:
    """Return a context that verifies the broker's certificate and host name; None without TLS."""
    if endpoint.scheme != "mqtts":
        return None
    try:
        context = _TlsContext(ssl.PROTOCOL_TLS_CLIENT)
        if endpoint.credentials.ca_file is not None:
            context.load_verify_locations(endpoint.credentials.ca_file)
        else:
            context.load_default_certs()
        if endpoint.credentials.cert_file is not None:
            # An empty password, because OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(
                endpoint.credentials.cert_file, endpoint.credentials.key_file, lambda: b""
            )
    except (ssl.SSLError, OSError) as error:
        raise InvalidInputError(
            "ca_file must hold certificates, cert_file the client certificate and key_file its key, all "
            f"as PEM ({error})"
        ) from error
    return context


def require_paho() -> Any:
    """Return paho's package, or raise an error that names the extra."""
    try:
        import paho.mqtt.client
        import paho.mqtt.packettypes
        import paho.mqtt.properties
        import paho.mqtt.subscribeoptions
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "mqtt:// and mqtts:// need paho-mqtt: pip install 'baryflow[mqtt]'", name=error.name
        ) from error
    return paho.mqtt


# -- the connection ------------------------------------------------------------------------------------


class Listener:
    """Handles the events of a connection, in its thread. By default, an event is ignored."""

    def opened(self, client: Client, number: int, session: bool) -> bool:  # noqa: ARG002
        """Handle a new connection; return False if a subscription must be confirmed first.

        `session` says whether the broker has kept our session.
        """
        return True

    def closed(self, reason: str) -> None:
        """Handle a lost connection, or that the first attempt has failed; it is made again by itself."""

    def received(self, number: int, message: MQTTMessage) -> None:
        """Handle a message."""

    def subscribed(self, code: int) -> UnreachableError | None:  # noqa: ARG002
        """Handle the answer to a subscription; a returned error ends the connection for good."""
        return None

    def confirmed(self, number: int) -> None:
        """Handle an answer which shows that the broker has read all that was sent before."""

    def published(self, mid: int, code: int, name: str) -> None:
        """Handle the broker's confirmation or refusal of a message that we sent."""

    def failed(self, error: UnreachableError) -> None:
        """Handle an error that ends the connection for good."""

    def full(self) -> bool:
        """Return whether to stop reading for now."""
        return False


class Connection:
    """Stays connected, with exponential backoff, until it is closed or access is denied."""

    def __init__(self, endpoint: Endpoint, config: ClientConfig, listener: Listener) -> None:
        self._paho = require_paho()
        self._endpoint, self._config = endpoint, config
        self._listener = listener
        self._tls = _make_tls(endpoint)
        self._jobs: deque[Callable[[Client, int], None]] = deque()
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._ended = threading.Event()
        self._tried = threading.Event()  # the first attempt has succeeded or failed
        self._was_open = False
        self._error: UnreachableError | None = None
        self._trouble: Exception | str = "no answer"  # the last problem
        self._number = 0  # of the connection
        self._open, self._since = False, 0.0
        self._thread = threading.Thread(target=self._run, name="baryflow-mqtt", daemon=True)

    def start(self) -> None:
        """Return after the first attempt to connect, which is repeated; raise if access is denied."""
        self._thread.start()
        self._tried.wait(_FIRST)  # a later answer is handled when it comes
        if self._error is not None:
            self.close()
            raise self._error

    def post(self, job: Callable[[Client, int], None]) -> None:
        """Run a function of the client and the connection number in the thread of the connection."""
        self._jobs.append(job)
        self._wake()

    def close(self) -> None:
        """Disconnect, and end the thread."""
        self._ended.set()
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        for end in (self._woken, self._waker):
            end.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: the thread wakes anyway; closed: it has ended
            self._waker.send(b".")

    # -- in the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        backoff, short = Backoff(self._endpoint, self._endpoint.policy), 0
        while not self._ended.is_set():
            self._open = False
            try:
                self._connect_and_serve()
            except UnreachableError as error:
                self._fail(error)
                return
            except OSError as error:
                self._trouble = error
                final = _explain_failure(error, self._endpoint)
                if final is not None:
                    self._fail(final)
                    return
            except Exception as error:
                self._fail(UnreachableError(f"{self._endpoint}: the connection failed ({error!r})"))
                raise
            if self._open:
                self._listener.closed(str(self._trouble))
                short = short + 1 if time.monotonic() - self._since < _SHORT else 0
                if short >= _TAKEOVERS and self._config.expiry:
                    self._fail(_explain_takeover(self._endpoint, self._config.client_id))
                    return
                if not short or self._config.expiry:  # a broker may refuse what it is sent every time
                    backoff.begin()
            else:
                short = 0
                if self._number == 1:
                    self._listener.closed(_explain_absence(self._trouble, self._endpoint))
            self._tried.set()
            self._ended.wait(backoff.next_pause())

    def _fail(self, error: UnreachableError) -> None:
        self._error = error
        self._listener.failed(error)
        self._tried.set()

    def _connect_and_serve(self) -> None:
        self._number += 1
        self._jobs.clear()
        client = _make_client(self._endpoint, self._config, self._tls)
        fatal: list[UnreachableError] = []
        self._set_callbacks(client, fatal)
        properties = self._paho.properties.Properties(self._paho.packettypes.PacketTypes.CONNECT)
        properties.ReceiveMaximum = self._config.inflight
        properties.SessionExpiryInterval = self._config.expiry
        client.connect(
            self._endpoint.host,
            self._endpoint.port or (1883 if self._tls is None else 8883),
            keepalive=self._config.keepalive,
            clean_start=not self._config.expiry,
            properties=properties,
        )
        wire: Any = client.socket()
        try:
            self._serve(client, wire, fatal)
            if self._ended.is_set():
                self._disconnect(client, wire)
        finally:
            wire.close()
        if fatal:
            raise fatal[0]

    def _serve(self, client: Client, wire: Any, fatal: list[UnreachableError]) -> None:
        began, before = time.monotonic(), self._trouble
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            selector.register(wire, selectors.EVENT_READ)
            while not self._ended.is_set() and not fatal and client.socket() is not None:
                reading = 0 if self._listener.full() else selectors.EVENT_READ
                writing = selectors.EVENT_WRITE if client.want_write() else 0
                _select_events(selector, wire, reading | writing)
                pending = bool(reading) and self._tls is not None and wire.pending() > 0
                ready = {key.fileobj: events for key, events in selector.select(0 if pending else 0.5)}
                if self._woken in ready:
                    self._woken.recv(4096)
                if pending or ready.get(wire, 0) & selectors.EVENT_READ:
                    self._read(client, fatal)
                while self._open and self._jobs and client.socket() is not None:
                    self._jobs.popleft()(client, self._number)
                if client.want_write():
                    client.loop_write()
                client.loop_misc()
                if not self._open and time.monotonic() - began > ANSWER:
                    self._trouble = _SILENT
                    return
        if not self._open and self._trouble is before:
            self._trouble = _NO_TLS

    def _read(self, client: Client, fatal: list[UnreachableError]) -> None:
        """Read packets; give up if the first bytes are not MQTT."""
        code = client.loop_read()
        if code == self._paho.client.MQTT_ERR_PROTOCOL and not self._was_open:
            fatal.extend([] if fatal else [UnreachableError(f"{self._endpoint}: {_NO_MQTT}")])

    def _disconnect(self, client: Client, wire: Any) -> None:
        """Send what is left, and disconnect."""
        until = time.monotonic() + _FAREWELL
        while self._jobs and client.socket() is not None and self._open:
            self._jobs.popleft()(client, self._number)
        client.disconnect()
        while client.socket() is not None and client.want_write() and time.monotonic() < until:
            with selectors.DefaultSelector() as selector:
                selector.register(wire, selectors.EVENT_WRITE)
                selector.select(0.1)
            client.loop_write()

    def _set_callbacks(self, client: Client, fatal: list[UnreachableError]) -> None:
        listener, number = self._listener, self._number

        def connected(client: Client, _: Any, flags: Any, reason: Any, __: Any) -> None:
            if reason.is_failure:
                self._trouble = f"the broker refuses the connection for now: {reason.getName()}"
                error = _explain_refusal(
                    reason.value,
                    reason.getName(),
                    self._endpoint,
                    self._config.client_id,
                )
                fatal.extend([error] if error else [])
                return
            self._open, self._trouble, self._since = True, "closed", time.monotonic()
            self._was_open = True
            if listener.opened(client, number, bool(flags.session_present)):
                self._tried.set()

        def disconnected(_: Client, __: Any, ___: Any, reason: Any, ____: Any) -> None:
            if self._open:
                # Without a reason from the broker, paho reports an unspecified error.
                self._trouble = "closed" if reason.value == _UNSPECIFIED else reason.getName().lower()
                error = _explain_disconnect(
                    reason.value, reason.getName(), self._endpoint, self._config.client_id
                )
                fatal.extend([error] if error and not fatal else [])

        def subscribed(_: Client, __: Any, ___: Any, reasons: Any, ____: Any) -> None:
            error = listener.subscribed(reasons[0].value)
            fatal.extend([error] if error else [])
            if error is None:
                self._tried.set()

        client.on_connect = connected
        client.on_disconnect = disconnected
        client.on_subscribe = subscribed
        client.on_message = lambda _, __, message: listener.received(number, message)
        client.on_unsubscribe = lambda *_: listener.confirmed(number)
        client.on_publish = lambda _, __, mid, reason, ___: listener.published(
            mid, reason.value, reason.getName()
        )


def _select_events(selector: selectors.BaseSelector, wire: Any, events: int) -> None:
    """Wait for these events of a socket, or for none."""
    known = selector.get_map().get(wire)
    if known is None and events:
        selector.register(wire, events)
    elif known is not None and not events:
        selector.unregister(wire)
    elif known is not None and known.events != events:
        selector.modify(wire, events)


# -- errors --------------------------------------------------------------------------------------------

#: MQTT 5 reason codes after which a retry may succeed.
_TRANSIENT = {0x80, 0x81, 0x83, 0x88, 0x89, 0x8B, 0x8D, 0x93, 0x97, 0x9C, 0x9F}
#: OpenSSL's codes for a certificate with another host name or endpoint.
_OTHER_HOST = (62, 64)
#: The other end has closed the connection, perhaps only for now.
_HUNG_UP = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError)
_BAD_CLIENT_ID = 0x85
_TAKEN_OVER = 0x8E


def _explain_failure(error: Exception, endpoint: Endpoint) -> UnreachableError | None:
    """Return why a connection cannot be made, or None if a retry may succeed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_HOST:
            reason = f"the certificate is for another host than {endpoint.host}: use the name in it"
        else:
            reason = (
                f"the certificate is not trusted ({error.verify_message}): set ca_file in its "
                "credentials to the authority that signed it"
            )
        return UnreachableError(f"{endpoint}: {reason}")
    if isinstance(error, ssl.SSLError) and not isinstance(error, _HUNG_UP):
        code = (error.reason or "").upper()
        if "ALERT" in code or "CERTIFICATE" in code:
            reason = (
                f"the broker refuses the TLS connection ({code.lower().replace('_', ' ')}): it may "
                "require a client certificate, cert_file and key_file"
            )
        else:
            reason = "the port does not use TLS: use another port, or mqtt:// without TLS"
        return UnreachableError(f"{endpoint}: {reason}")
    return None  # an unknown host too, because a name server may be away


def _explain_absence(error: Exception | str, endpoint: Endpoint) -> str:
    """Return why a broker may not have answered."""
    if isinstance(error, socket.gaierror):
        return f"there is no host {endpoint.host!r}: check its name"
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused: check host and port, and whether the broker runs"
    if isinstance(error, str):
        return error
    if endpoint.scheme == "mqtts" and isinstance(error, _HUNG_UP):
        return "it closes TLS connections: use the port for TLS, or mqtt:// without TLS"
    return f"no answer ({str(error) or type(error).__name__}): check host, port and firewall"


def _explain_refusal(
    code: int, name: str, endpoint: Endpoint, client_id: str
) -> UnreachableError | None:
    """Return why the broker refuses a connection, or None if a retry may succeed."""
    if code in _TRANSIENT:
        return None
    if code in (0x86, 0x87, 0x8C, 4, 5):
        if endpoint.credentials.username is None:
            reason = "the broker requires a user: set username and password in its credentials"
        else:
            reason = (
                f"access denied for {endpoint.credentials.username!r} with this password: check both, "
                "and the permissions of this user"
            )
    elif code in (0x84, 1):
        reason = "the broker does not support MQTT 5, which is required: mosquitto does since 2.0"
    elif code in (_BAD_CLIENT_ID, 2):
        reason = f"the broker does not accept the client id {client_id!r}: set another with ?client=NAME"
    else:
        reason = f"the broker refuses the connection: {name}"
    return UnreachableError(f"{endpoint}: {reason}")


def _explain_disconnect(
    code: int, name: str, endpoint: Endpoint, client_id: str
) -> UnreachableError | None:
    """Return why the broker has disconnected us for good, or None if a retry may succeed."""
    if code == _TAKEN_OVER:
        return _explain_takeover(endpoint, client_id)
    if code in (0x87, 0x8A, 0x98):
        return UnreachableError(f"{endpoint}: the broker has disconnected us: {name}")
    return None


def _explain_takeover(endpoint: Endpoint, client_id: str) -> UnreachableError:
    """Return the error for another client with our id; not all brokers report it."""
    return UnreachableError(
        f"{endpoint}: another process uses the client id {client_id!r}: each run needs its own, set one "
        "with ?client=NAME"
    )
