"""A connection to an MQTT broker: paho's client, its reconnection, and explained errors.

paho's thread reads, writes and connects again. An acknowledgement names a message by a packet
identifier, which may belong to another message on the next connection, so it is sent on its own
connection or not at all.
"""

from __future__ import annotations

import socket
import ssl
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.backoff import Backoff
from baryflow.streams.urls import Endpoint

#: Seconds to wait for a connection, and then for the broker's first packet.
ANSWER = 5.0
#: Seconds that the confirmation of the first subscription may take.
_FIRST = 30.0
#: This many connections in a row that last less than a second mean that another client uses our id; not
#: all brokers report that. A broker that restarts is away in between.
_TAKEOVERS, _SHORT = 20, 1.0
_UNSPECIFIED, _PROTOCOL_ERROR = 0x80, 0x82
_NO_TLS = "it closed the connection at once: if the port uses TLS, use mqtts://"
_NO_MQTT = "the answer is not MQTT: check the port, or use mqtts:// if it uses TLS"
_SILENT = "it does not answer: check host, port and firewall, or use mqtts:// if the port uses TLS"

# -- clients -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClientConfig:
    """How to register with the broker."""

    client_id: str = ""
    expiry: int = 0  # seconds for which the broker keeps the session while we are away
    inflight: int = 256  # messages that it may send before the first is acknowledged
    keepalive: int = 30  # seconds of silence after which each end checks the connection


def _make_client(endpoint: Endpoint, config: ClientConfig) -> Any:
    """Return a paho client that acknowledges nothing by itself."""
    mqtt, tls = require_paho().client, _make_tls(endpoint)
    client = mqtt.Client(
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


class _TlsSocket(ssl.SSLSocket):
    """Closes itself if the handshake fails, which paho does not do."""

    def do_handshake(self, block: bool = False) -> None:
        """Perform the handshake."""
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise


def _make_tls(endpoint: Endpoint) -> ssl.SSLContext | None:
    """Return a context that verifies the broker's certificate and host name; None without TLS."""
    if endpoint.scheme != "mqtts":
        return None
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.sslsocket_class = _TlsSocket
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
    """Handles the events of a connection, in paho's thread. By default, an event is ignored."""

    def opened(self, session: bool, properties: Any) -> bool:  # noqa: ARG002
        """Handle a new connection; return False if a subscription must be confirmed first.

        `session` says whether the broker has kept our session.
        """
        return True

    def closed(self, reason: str) -> None:
        """Handle a lost connection, or that the first attempt has failed; it is made again by itself."""

    def failed(self, error: UnreachableError) -> None:
        """Handle an error that ends the connection for good."""


class Connection:
    """Stays connected, with backoff, until it is closed or access is denied.

    ``client`` is paho's; ``number`` counts connections, and is 0 while there is none.
    """

    def __init__(self, endpoint: Endpoint, config: ClientConfig, listener: Listener) -> None:
        self.client = _make_client(endpoint, config)
        self.number = 0
        self._endpoint, self._config, self._listener = endpoint, config, listener
        self._backoff = Backoff(endpoint, endpoint.policy)
        self._lock = threading.Lock()  # no acknowledgement is queued while `number` changes
        self._tried = threading.Event()  # the first attempt has succeeded or failed
        self._connections, self._opened = 0, 0.0
        self._short = 0  # short connections in a row
        self._trouble: str | None = None  # why the broker refuses a connection for now
        self._reported = self._ended = False
        self._error: UnreachableError | None = None
        self._loop, self.client.loop_forever = self.client.loop_forever, self._run
        self.client.on_connect = self._on_connect
        self.client.on_connect_fail = self._on_connect_fail
        self.client.on_disconnect = self._on_disconnect

    def start(self) -> None:
        """Return after the first attempt to connect, which is repeated; raise if access is denied."""
        mqtt = require_paho()
        properties = mqtt.properties.Properties(mqtt.packettypes.PacketTypes.CONNECT)
        properties.ReceiveMaximum = self._config.inflight
        properties.SessionExpiryInterval = self._config.expiry
        self.client.connect_async(
            self._endpoint.host,
            self._endpoint.port or (8883 if self._endpoint.scheme == "mqtts" else 1883),
            keepalive=self._config.keepalive,
            clean_start=not self._config.expiry,
            properties=properties,
        )
        self._pause()
        self.client.loop_start()
        if not self._tried.wait(2 * ANSWER):  # to connect, and for the answer
            if self.number:
                self._tried.wait(_FIRST)
            else:
                self._report(_SILENT)
        if self._error is not None:
            self.close()
            raise self._error

    def answered(self) -> None:
        """Report that the first attempt has succeeded, the subscription included."""
        self._tried.set()

    def fail(self, error: UnreachableError) -> None:
        """End the connection for good."""
        self._error = self._error or error
        self._listener.failed(error)
        self._ended = True
        self.client.disconnect()
        self._tried.set()

    def acknowledge(self, number: int, mid: int) -> None:
        """Acknowledge a message that arrived on connection `number`, unless it was lost."""
        with self._lock:
            if number == self.number:
                self.client.ack(mid, 1)

    def close(self) -> None:
        """Send what is left, disconnect, and end the thread."""
        self._ended = True
        self.client.disconnect()
        self.client.loop_stop()

    # -- in paho's thread ------------------------------------------------------------------------------

    def _run(self, **options: Any) -> Any:
        """Run paho's loop; an error that would end its thread, such as a malformed packet, is final."""
        try:
            return self._loop(**options)
        except Exception as error:
            self.fail(UnreachableError(f"{self._endpoint}: {_NO_MQTT} ({error!r})"))

    def _on_connect(self, _: Any, __: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._trouble = f"the broker refuses the connection for now: {reason.getName()}"
            error = _explain_refusal(
                reason.value, reason.getName(), self._endpoint, self._config.client_id
            )
            if error is not None:
                self.fail(error)
            return
        self._connections += 1
        with self._lock:
            self.number = self._connections
        self._opened, self._reported, self._trouble = time.monotonic(), False, None
        if self._listener.opened(bool(flags.session_present), properties):
            self._tried.set()

    def _on_disconnect(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        with self._lock:
            was_open, self.number = self.number > 0, 0
        if self._ended:
            return
        if was_open:
            self._short = self._short + 1 if time.monotonic() - self._opened < _SHORT else 0
            competes = self._short >= _TAKEOVERS and self._config.expiry
            error = _explain_disconnect(
                _TAKEN_OVER if competes else reason.value,
                reason.getName(),
                self._endpoint,
                self._config.client_id,
            )
            if error is not None:
                self.fail(error)
                return
            # Without a reason from the broker, paho reports an unspecified error.
            self._report("closed" if reason.value == _UNSPECIFIED else reason.getName().lower())
            if not self._short or self._config.expiry:  # a broker may refuse what it is sent every time
                self._backoff.begin()
        else:
            absence = _NO_MQTT if reason.value == _PROTOCOL_ERROR else _NO_TLS
            self._report(self._trouble or absence)
        self._pause()

    def _on_connect_fail(self, _: Any, __: Any) -> None:
        self._short, error = 0, sys.exception()  # paho calls this while it handles the error
        final = _explain_failure(error, self._endpoint)
        if final is not None:
            self.fail(final)
            return
        self._report(_explain_absence(error, self._endpoint))
        self._pause()

    def _report(self, reason: str) -> None:
        """Report once that the broker is away, until it answers again."""
        if not self._reported:
            self._reported = True
            self._listener.closed(reason)
        self._tried.set()

    def _pause(self) -> None:
        """Set how long paho waits before the next attempt."""
        self.client.reconnect_delay_set(self._backoff.next_pause(), self._endpoint.policy.longest)


# -- errors --------------------------------------------------------------------------------------------

#: MQTT 5 reason codes after which a retry may succeed.
_TRANSIENT = {0x80, 0x81, 0x83, 0x88, 0x89, 0x8B, 0x8D, 0x93, 0x97, 0x9C, 0x9F}
#: OpenSSL's codes for a certificate with another host name or endpoint.
_OTHER_HOST = (62, 64)
#: The other end has closed the connection, perhaps only for now.
_HUNG_UP = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError)
_BAD_CLIENT_ID = 0x85
_TAKEN_OVER = 0x8E


def _explain_failure(error: BaseException | None, endpoint: Endpoint) -> UnreachableError | None:
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


def _explain_absence(error: BaseException | None, endpoint: Endpoint) -> str:
    """Return why a broker may not have answered."""
    if isinstance(error, socket.gaierror):
        return f"there is no host {endpoint.host!r}: check its name"
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused: check host and port, and whether the broker runs"
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
        return UnreachableError(
            f"{endpoint}: another process uses the client id {client_id!r}: each run needs its own, set "
            "one with ?client=NAME"
        )
    if code in (0x87, 0x8A, 0x98):
        return UnreachableError(f"{endpoint}: the broker has disconnected us: {name}")
    return None
