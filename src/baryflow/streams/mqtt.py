"""The MQTT 5 transport: ``mqtt://`` and ``mqtts://``, as input and output.

paho's thread reads, writes and connects again; a queue takes its messages to :meth:`MqttSource.read`.

A broker delivers a message again if the connection ended before it received our acknowledgement: with
the same packet identifier, and marked as a duplicate. A publisher, too, sends a message again if it did
not receive the broker's acknowledgement. For the broker that is a new message, and only an id that the
publisher has given to the message shows that it is not. Correlation data is no such id: all messages of
one request share it.

A broker should send at most ``inflight`` messages before it has read the acknowledgement of the first,
but mosquitto 2.0.11 sends up to ``inflight`` more with each acknowledgement. So a broker is asked now
and then whether it has read the acknowledgements, and until it answers their messages can be delivered
again. The question is to subscribe again: a broker answers what it reads on a connection in order.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import queue
import socket
import ssl
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, cast

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.backoff import SLICE, Backoff
from baryflow.streams.base import Batch, MessageSink, Rejected, Source
from baryflow.streams.brokers import LabelDecoder, Message, MessageDecoder
from baryflow.streams.decoding import excerpt, parse_number
from baryflow.streams.label_records import parse_time
from baryflow.streams.registry import SourceOptions
from baryflow.streams.sampling.sampler import Sampler
from baryflow.streams.sampling.tags import Tag, read_tags
from baryflow.streams.sinks import encode_record
from baryflow.streams.urls import Endpoint, is_loopback
from baryflow.validation import as_count

# As Any, because the annotations of its callbacks change between versions.
paho: Any = import_module("paho.mqtt.client")
_packets: Any = import_module("paho.mqtt.packettypes")
_properties: Any = import_module("paho.mqtt.properties")
_subscribing: Any = import_module("paho.mqtt.subscribeoptions")

_log = logging.getLogger("baryflow.streams")
#: Seconds for which the broker keeps a durable session while no process reads: a week.
_EXPIRY = 7 * 24 * 3600
#: Reason codes from here on are failures.
_FAILURE = 0x80


def open_source(endpoint: Endpoint, options: SourceOptions) -> MqttSource:
    """Subscribe to a topic, in which ``+`` stands for one level and ``#`` for all that follow.

    Each message is a row, a JSON object; the key may be ``"@topic"``. With a sample interval, each
    message is the value of one tag instead: a number, or an object with ``value`` and, optionally,
    ``time`` and ``quality``.

    If `options` ask for a durable source, the broker keeps the session while we are away; otherwise the
    session ends with the connection.

    URL options: ``client``, the client id; ``expiry``, the seconds for which a durable session is kept;
    ``qos``, 1 or 0; ``inflight``, the number of unacknowledged messages, which also limits a batch;
    ``keepalive``, the seconds of silence after which the connection is checked; ``plaintext=yes``, which
    permits a password without TLS.
    """
    endpoint.check_options("client", "expiry", "qos", "inflight", "keepalive", "plaintext")
    _check_password(endpoint)
    topic = endpoint.path
    levels = topic.split("/")
    if not topic or any("#" in level and level != "#" for level in levels) or "#" in levels[:-1]:
        raise InvalidInputError(
            f"{endpoint} must name a topic, in which # can only be the last level, got {topic!r}"
        )
    if any("+" in level and level != "+" for level in levels):
        raise InvalidInputError(f"{endpoint}: + stands for a whole level of a topic, got {topic!r}")
    if options.columns is None:
        raise InvalidInputError(f"{endpoint}: MQTT messages have no header: name the columns")
    if options.key is not None and options.key.startswith("@") and options.key != "@topic":
        raise InvalidInputError(f"the key of a message is @topic or a column, got {options.key!r}")
    return MqttSource(endpoint, options)


def open_sink(endpoint: Endpoint) -> MqttSink:
    """Open a topic for records.

    URL options: ``keepalive`` and ``plaintext`` as in :func:`open_source`.
    """
    endpoint.check_options("keepalive", "plaintext")
    _check_password(endpoint)
    if not endpoint.path or "+" in endpoint.path or "#" in endpoint.path:
        raise InvalidInputError(f"{endpoint} must name one topic to write to, without + and #")
    return MqttSink(endpoint)


def _check_password(endpoint: Endpoint) -> None:
    """Refuse to send a password unencrypted over a network, unless the URL permits it."""
    permission = endpoint.option("plaintext", "no")
    if permission not in ("yes", "no"):
        raise InvalidInputError(f"{endpoint}: plaintext must be yes or no, got {permission!r}")
    encrypted = endpoint.scheme == "mqtts" or is_loopback(endpoint.host)
    if endpoint.credentials.password is not None and not encrypted and permission == "no":
        raise InvalidInputError(
            f"the password would be sent to {endpoint.host} unencrypted: use mqtts://, or "
            "?plaintext=yes in a trusted network"
        )


# -- the connection ------------------------------------------------------------------------------------

#: Seconds to wait for a connection; with the broker's first packet it may take three times as long.
ANSWER = 5.0
#: Seconds that opening may take, the confirmation of the subscription included.
_FIRST = 30.0
#: A connection that ends within this many seconds is short. After short ones without a session, pauses
#: go on growing: some brokers hang up every time. This many of them in a row with a session mean that
#: another client uses our id; not all brokers report that. One that restarts is away in between.
_SHORT, _TAKEOVERS = 1.0, 20


class _Connection:
    """Stays connected, with backoff, until it is closed or access is denied.

    ``client`` is paho's; ``number`` counts connections, and is 0 while there is none. An acknowledgement
    names a message by a packet identifier, which may belong to another message on the next connection,
    so it is sent on its own connection or not at all.
    """

    def __init__(self, endpoint: Endpoint, client_id: str, expiry: int = 0, inflight: int = 256) -> None:
        self.endpoint, self.client_id = endpoint, client_id
        self.number = 0
        self.error: UnreachableError | None = None
        self._expiry = expiry
        self._connections, self._short, self._opened = 0, 0, 0.0
        self._lock = threading.Lock()  # no acknowledgement is queued while `number` changes
        self._tried = threading.Event()  # the first attempt has succeeded or failed
        self._ended = threading.Event()
        self._lost_at: float | None = None
        self._refusal, self._reason = "", None  # why the last attempt failed, and the connection ended
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=paho.MQTTv5,
            manual_ack=True,
        )
        self.client.connect_timeout = ANSWER
        self.client.max_inflight_messages_set(0)  # paho forgets its own limit when it connects again
        if endpoint.credentials.username is not None:
            self.client.username_pw_set(endpoint.credentials.username, endpoint.credentials.password)
        if endpoint.scheme == "mqtts":
            self.client.tls_set_context(_make_tls(endpoint))
        properties = _properties.Properties(_packets.PacketTypes.CONNECT)
        properties.ReceiveMaximum = inflight
        properties.SessionExpiryInterval = expiry
        self.client.connect_async(
            endpoint.host,
            endpoint.port or (8883 if endpoint.scheme == "mqtts" else 1883),
            keepalive=endpoint.int_option("keepalive", 30, 1, 65535),
            clean_start=not expiry,
            properties=properties,
        )
        self.client.loop_forever = self._run
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect

    def start(self) -> None:
        """Return after the first attempt to connect, which is repeated; raise if access is denied."""
        self.client.loop_start()
        self._tried.wait(_FIRST)
        if self.error is not None:
            self.disconnect()
            raise self.error

    def send_ack(self, number: int, mid: int, then: Callable[[], None] = lambda: None) -> None:
        """Acknowledge a message that arrived on connection `number`, unless that is lost.

        `then` sends something more on the same connection.
        """
        with self._lock:
            if number == self.number:
                self.client.ack(mid, 1)
                then()

    def disconnect(self) -> None:
        """Send what is left, disconnect, and end the thread."""
        self._ended.set()
        self.client.disconnect()
        self.client.loop_stop()

    # -- in paho's thread ------------------------------------------------------------------------------

    def opened(self, session: bool, properties: Any) -> None:
        """Handle a new connection; `session` says whether the broker has kept our session."""
        raise NotImplementedError

    def lost(self, reason: str) -> None:
        """Handle a lost connection, or that the first attempt has failed; it is made again by itself."""
        raise NotImplementedError

    def failed(self) -> None:
        """Handle an ``error`` that ends the connection for good."""
        raise NotImplementedError

    def fail(self, reason: str) -> None:
        """End the connection for good."""
        self.error = self.error or UnreachableError(f"{self.endpoint}: {reason}")
        self._ended.set()
        self.failed()
        self._tried.set()

    def _run(self, **_: Any) -> None:
        backoff = Backoff(self.endpoint, self.endpoint.policy)
        while not self._ended.is_set():
            before = self._connections
            try:
                reason = self._connect()
            except Exception as error:  # such as a malformed packet
                self.fail(f"{_NO_MQTT} ({error!r})")
                break
            if not self._ended.is_set():
                if self._lost_at is None:  # report it once, until the broker answers again
                    self._lost_at = time.monotonic()
                    self.lost(reason)
                self._tried.set()
                if self._connections > before and (not self._short or self._expiry):
                    backoff.begin()
                self._ended.wait(backoff.next_pause())
        self.client.disconnect()
        until = time.monotonic() + 1.0
        while self.client.want_write() and time.monotonic() < until and not self.client.loop(SLICE):
            pass

    def _connect(self) -> str:
        """Connect, and return why the connection has ended, or could not be made."""
        self._refusal, self._reason, until = "", None, time.monotonic() + 3 * ANSWER
        try:
            self.client.reconnect()
        except OSError as error:
            reason, final = _explain_error(error, self.endpoint)
            if final:
                self.fail(reason)
            self._short = 0
            return reason
        while not self.client.loop(1.0) and not self._ended.is_set():
            if not self.number and time.monotonic() > until:
                return _SILENT
        with self._lock:
            was_open, self.number = self.number > 0, 0
        code = _UNSPECIFIED if self._reason is None else self._reason.value
        if not was_open:
            return self._refusal or (_NO_MQTT if code == _PROTOCOL_ERROR else _NO_TLS)
        self._short = self._short + 1 if time.monotonic() - self._opened < _SHORT else 0
        if code == _TAKEN_OVER or (self._expiry and self._short >= _TAKEOVERS):
            self.fail(
                f"another process uses the client id {self.client_id!r}: each run needs its own, set "
                "one with ?client=NAME"
            )
        # Without a reason from the broker, paho reports an unspecified error.
        return "closed" if code == _UNSPECIFIED else str(self._reason).lower()

    def _on_connect(self, _: Any, __: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._refusal = f"the broker refuses the connection for now: {reason.getName()}"
            if reason.value not in _TRANSIENT:
                self.fail(_explain_refusal(reason, self.endpoint, self.client_id))
            return
        self._connections += 1
        with self._lock:
            self.number = self._connections
        self._opened = time.monotonic()
        self.opened(bool(flags.session_present), properties)
        self._lost_at = None

    def _on_disconnect(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        self._reason = self._reason or reason


class _TlsSocket(ssl.SSLSocket):
    """Closes itself if the handshake fails, which paho does not do."""

    def do_handshake(self, block: bool = False) -> None:
        """Perform the handshake."""
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise


def _make_tls(endpoint: Endpoint) -> ssl.SSLContext:
    """Return a context that verifies the broker's certificate and host name."""
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


_NO_TLS = "it closed the connection at once: if the port uses TLS, use mqtts://"
_NO_MQTT = "the answer is not MQTT: check the port, or use mqtts:// if it uses TLS"
_SILENT = "it does not answer: check host, port and firewall, or use mqtts:// if the port uses TLS"
#: MQTT 5 reason codes after which a retry may succeed.
_TRANSIENT = {0x80, 0x81, 0x83, 0x88, 0x89, 0x8B, 0x8D, 0x93, 0x97, 0x9C, 0x9F}
_UNSPECIFIED, _PROTOCOL_ERROR, _TAKEN_OVER = 0x80, 0x82, 0x8E
#: OpenSSL's codes for a certificate with another host name or endpoint.
_OTHER_HOST = (62, 64)
#: The other end has closed the connection, perhaps only for now.
_HUNG_UP = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError)


def _explain_error(error: OSError, endpoint: Endpoint) -> tuple[str, bool]:
    """Return why a connection cannot be made, and whether it never can."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_HOST:
            reason = f"the certificate is for another host than {endpoint.host}: use the name in it"
        else:
            reason = (
                f"the certificate is not trusted ({error.verify_message}): set ca_file in its "
                "credentials to the authority that signed it"
            )
        return reason, True
    if isinstance(error, ssl.SSLError) and not isinstance(error, _HUNG_UP):
        code = (error.reason or "").upper()
        reason = "the port does not use TLS: use another port, or mqtt:// without TLS"
        if "ALERT" in code or "CERTIFICATE" in code:
            reason = (
                f"the broker refuses the TLS connection ({code.lower().replace('_', ' ')}): it may "
                "require a client certificate, cert_file and key_file"
            )
        return reason, True
    if isinstance(error, socket.gaierror):  # perhaps a name server is away
        reason = f"there is no host {endpoint.host!r}: check its name"
    elif isinstance(error, ConnectionRefusedError):
        reason = "the connection is refused: check host and port, and whether the broker runs"
    elif endpoint.scheme == "mqtts" and isinstance(error, _HUNG_UP):
        reason = "it closes TLS connections: use the port for TLS, or mqtt:// without TLS"
    else:
        reason = f"no answer ({str(error) or type(error).__name__}): check host, port and firewall"
    return reason, False


def _explain_refusal(reason: Any, endpoint: Endpoint, client_id: str) -> str:
    """Return why the broker refuses a connection."""
    if reason.value in (0x86, 0x87, 0x8C, 4, 5):
        user = endpoint.credentials.username
        if user is None:
            return "the broker requires a user: set username and password in its credentials"
        return f"access denied for {user!r} with this password: check both, and this user's permissions"
    if reason.value in (0x84, 1):
        return "the broker does not support MQTT 5, which is required: mosquitto does since 2.0"
    if reason.value in (0x85, 2):
        return f"the broker does not accept the client id {client_id!r}: set another with ?client=NAME"
    return f"the broker refuses the connection: {reason.getName()}"


# -- source --------------------------------------------------------------------------------------------

#: User property that holds a publisher's id for a message.
_ID_PROPERTY = "id"
#: Remembered messages per message in flight. More than one, because a broker that is killed forgets the
#: last acknowledgements and delivers those messages again, too.
_REMEMBERED = 2
#: Messages that a broker can have sent without having read their acknowledgements: one per identifier.
_MOST_UNREAD = 65_535
#: Items that may be queued, as a multiple of ``inflight``; only messages with QoS 0 can be as many.
_CAPACITY = 4


@dataclass(frozen=True)
class _Delivery(Message):
    """A delivered message.

    Its ``key`` is a short digest of topic, id and content. Without a publisher's id, the packet
    identifier is a part of it. A message that reuses an id with other content is not the same message.
    """

    topic: str = ""
    connection: int = 0  # number of the connection
    mid: int = 0  # packet identifier; 0 for QoS 0
    key: str = ""
    repeatable: bool = False  # whether it may have been delivered before
    arrived: float = 0.0  # seconds since the epoch


def _read_delivery(connection: int, message: Any) -> _Delivery:
    """Return the delivery of a paho message.

    Its offset is the publisher's id, or else the key: if messages contain a time or a number of their
    own, the digest alone identifies a message, even one that a publisher has sent twice.
    """
    try:
        topic = message.topic
    except UnicodeDecodeError:
        topic = "\ufffd"
    found = getattr(message.properties, "UserProperty", ())
    name = next((str(value) for title, value in found if title == _ID_PROPERTY), "")
    mid, payload = message.mid if message.qos else 0, bytes(message.payload)
    data = b"\0".join((topic.encode(), name.encode(), payload))
    digest = hashlib.blake2b(data, digest_size=6).hexdigest()
    key = digest if name else f"{digest}:{mid}"
    return _Delivery(
        payload,
        offset=name or key,
        properties={"@topic": topic},
        topic=topic,
        connection=connection,
        mid=mid,
        key=key,
        repeatable=bool(name or (mid and message.dup)),
        arrived=time.time(),
    )


@dataclass(frozen=True)
class _NewSession:
    """The broker has kept no session; `again` is whether there was a connection before."""

    again: bool


class MqttSource(_Connection, Source):
    """Rows from a broker. No message is acknowledged before it is on disk, and none is used twice."""

    def __init__(self, endpoint: Endpoint, options: SourceOptions) -> None:
        self._columns, self._idle = list(options.columns or ()), options.idle
        self._decoder, self._sampler = _make_decoder(endpoint, options)
        self._qos = endpoint.int_option("qos", 1, 0, 1)
        self._inflight = endpoint.int_option("inflight", 256, 1, 65535)
        self._items: queue.Queue[_Delivery | _NewSession | str | None]
        self._items = queue.Queue(_CAPACITY * self._inflight)
        #: Key → number of the messages that can be delivered again, the oldest first; those up to
        #: `_on_disk` are on disk. With QoS 0 the number is 0.
        self._known: dict[str, int] = {}
        #: The broker has read the acknowledgements up to this message, and was asked up to this one.
        self._settled = self._asked = 0
        self._question: int | None = None  # packet identifier of the last question
        self._acks: deque[tuple[int, _Delivery]] = deque()  # to send once this message is on disk
        self._received = self._on_disk = 0
        self._has_rows = False  # whether more sampled rows are due
        self._ignored = False  # whether a message on the topic of no tag has arrived
        self._has_qos0 = False  # whether a message with QoS 0 has arrived
        self._resumed = self._subscribed = self._closed = False
        client_id = endpoint.option("client", _default_client_id(endpoint, options.durable))
        expiry = endpoint.int_option("expiry", _EXPIRY, 1, 2**32 - 2) if options.durable else 0
        super().__init__(endpoint, client_id, expiry, self._inflight)
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = self._on_message
        self.start()

    @property
    def wanted(self) -> list[str]:
        """The columns of the rows."""
        return list(self._columns)

    @property
    def reached(self) -> bool:
        """Whether the broker has granted the subscription once: it misses no later message."""
        return self._subscribed

    def read(self, n: int, timeout: float | None = None) -> Batch | None:
        """Return the next rows; the stream never ends."""
        n = as_count(n, "n")
        # The broker sends no more before they are acknowledged. The cursor holds sampled values that are
        # in no row yet, so they are acknowledged before there is one.
        limit = min(n, self._inflight) if self._sampler is None else max(1, self._inflight // 2)
        deliveries, notices = self._gather(limit, timeout)
        if self.error is not None and not deliveries:
            raise self.error
        if self._sampler is None:
            batch = self._decoder.batch(deliveries)
        else:
            batch = self._sample(self._sampler, deliveries, n)
        cursor = {
            "topic": self.endpoint.path,
            "client": self.client_id,
            "received": self._received,
            "known": " ".join(self._known),
        }
        return replace(batch, cursor=cursor | batch.cursor, notices=[*notices, *batch.notices])

    def _sample(self, sampler: Sampler, deliveries: list[_Delivery], n: int) -> Batch:
        """Return the rows that are due."""
        rejected, notices = [], []
        for one in deliveries:
            found = read_reading(one.payload)
            if found is None:
                reason = f"the message on {one.topic} holds no value."
                rejected.append(Rejected(sampler.position + 1, reason, excerpt(one.payload), one.offset))
                continue
            moment = one.arrived if found.time is None else found.time
            if not sampler.update(one.topic, found.value, moment, found.good) and not self._ignored:
                self._ignored = True
                notices.append(f"messages on {one.topic} are ignored: it is not the topic of a tag")
        batch = sampler.batch(n)
        self._has_rows = len(batch.rows) == n
        notices += batch.notices
        return replace(batch, rejected=rejected, notices=notices, held=bool(deliveries))

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume after a batch of an earlier process, and recognise what is delivered again."""
        for name, value in (("topic", self.endpoint.path), ("client", self.client_id)):
            if cursor.get(name) != value:
                raise InvalidInputError(
                    f"cannot resume: the checkpoint is of {name} {cursor.get(name)!r}, not {value!r}; "
                    "use the same, or another checkpoint folder"
                )
        self._received = self._on_disk = int(cursor["received"])
        self._known = dict.fromkeys(cursor["known"].split(), self._received)
        self._asked = self._received + 1 - self._inflight  # the next message asks
        if self._sampler is None:
            self._decoder.position = int(cursor["position"])
        else:
            self._sampler.resume(cursor["sampler"])
        self._resumed = True

    def acknowledge(self, cursor: dict[str, Any]) -> None:
        """Acknowledge the messages up to a batch."""
        self._on_disk = max(self._on_disk, int(cursor["received"]))
        self._send_acks()

    def _send_acks(self) -> None:
        """Acknowledge what is on disk, in order of arrival."""
        while self._acks and self._acks[0][0] <= self._on_disk:
            number, delivery = self._acks.popleft()
            is_due = number >= self._asked + self._inflight
            then = partial(self._check_read, number) if is_due else lambda: None
            self.send_ack(delivery.connection, delivery.mid, then)

    def _check_read(self, number: int) -> None:
        """Make the broker confirm that it has read the acknowledgements up to a message.

        Older messages are settled as well: what the broker did not know to be acknowledged, it has
        delivered before this one.
        """
        self._asked = number
        self._question = self._subscribe()

    def close(self) -> None:
        """Disconnect; for a durable source the broker keeps what arrives from now on."""
        self._closed = True
        self.disconnect()

    # -- messages --------------------------------------------------------------------------------------

    def _gather(self, limit: int, timeout: float | None) -> tuple[list[_Delivery], list[str]]:
        """Wait until there are enough messages, or for long enough; return them with notices."""
        deliveries: list[_Delivery] = []
        notices: list[str] = []
        repeated = 0
        until: float | None = 0.0 if self._has_rows else None
        while len(deliveries) < limit and self.error is None:
            wait = self._idle if until is None else max(0.0, until - time.monotonic())
            try:
                item = self._items.get(block=wait != 0, timeout=wait)
            except queue.Empty:
                break
            if isinstance(item, str):
                notices.append(item)
            elif isinstance(item, _NewSession):
                notices += filter(None, [self._forget(item)])
            elif item is not None and self._is_new(item):
                deliveries.append(item)
            elif item is not None:
                repeated += 1
                self._send_acks()
            if until is None and timeout is not None and deliveries:
                until = time.monotonic() + timeout
            if notices and not deliveries:
                until = 0.0  # report notices at once
        if repeated:
            count = "1 message was" if repeated == 1 else f"{repeated} messages were"
            notices.append(f"{count} delivered a second time, and skipped")
        return deliveries, notices

    def _is_new(self, item: _Delivery) -> bool:
        """Return whether a message was not received before; acknowledge it later in either case."""
        number = self._known.get(item.key) if item.repeatable else None
        new = number is None
        if number is None:
            self._received += 1
            number = self._received
            if item.mid or item.repeatable:  # any other is delivered at most once
                self._known.pop(item.key, None)
                self._known[item.key] = number if item.mid else 0
                self._forget_settled()
        if item.mid:
            self._acks.append((number, item))
        return new

    def _forget_settled(self) -> None:
        """Forget the oldest messages, unless the broker may not have read their acknowledgements."""
        while len(self._known) > _REMEMBERED * self._inflight:
            oldest = next(iter(self._known))
            if self._known[oldest] > self._settled and len(self._known) <= _MOST_UNREAD:
                break
            del self._known[oldest]

    def _forget(self, session: _NewSession) -> str:
        """Forget packet identifiers, which a new session uses again; return what is lost."""
        self._known = {key: number for key, number in self._known.items() if ":" not in key}
        if not session.again and not self._resumed:
            return ""
        if self._expiry:
            return (
                f"{self.endpoint}: the broker has lost the session {self.client_id!r}: earlier "
                "messages that were not read are lost; see docs/howto/mosquitto.conf"
            )
        return (
            f"{self.endpoint}: messages that were sent meanwhile are lost: the broker keeps them only "
            "for a run with a checkpoint"
        )

    # -- in paho's thread ------------------------------------------------------------------------------

    def _put(self, item: _Delivery | _NewSession | str | None) -> None:
        """Queue an item; while the queue is full, nothing more is read from the network."""
        while not self._closed:
            try:
                self._items.put(item, timeout=SLICE)
            except queue.Full:
                continue
            return

    def opened(self, session: bool, properties: Any) -> None:
        """Subscribe; an existing subscription brings no retained messages again."""
        del properties
        again = self._connections > 1
        if self._lost_at is not None:
            away = f"{'again ' * again}after {time.monotonic() - self._lost_at:.1f} s"
            self._put(f"{self.endpoint}: connected {away}")
        if not session:
            self._put(_NewSession(again))
        self._subscribe()

    def _subscribe(self) -> int | None:
        """Subscribe, and return the packet identifier; None if the connection is lost."""
        options = _subscribing.SubscribeOptions
        # A retained row is from the past; a retained value of a tag is the last one.
        rows = self._sampler is None
        retained = options.RETAIN_DO_NOT_SEND if rows else options.RETAIN_SEND_IF_NEW_SUB
        _, mid = self.client.subscribe(
            self.endpoint.path, options=options(qos=self._qos, retainHandling=retained)
        )
        return cast("int | None", mid)

    def lost(self, reason: str) -> None:
        """Report the loss of the connection."""
        what = "connection lost" if self._connections else "no connection yet"
        self._put(f"{self.endpoint}: {what} ({reason}); retrying")

    def failed(self) -> None:
        """Wake the reader, which raises the error."""
        self._put(None)

    def _on_subscribe(self, _: Any, __: Any, mid: int, reasons: Any, ____: Any) -> None:
        """Check whether the subscription was granted; it may have been a question."""
        if reasons[0].value >= _FAILURE:
            self.fail(
                "not permitted to read this topic: check the topic, and the permissions of this user"
            )
            return
        if reasons[0].value < self._qos:
            self._put(f"{self.endpoint}: the broker granted less than QoS 1: messages may be lost")
        with self._lock:
            if mid == self._question:
                self._settled = self._asked
        self._subscribed = True
        self._tried.set()

    def _on_message(self, _: Any, __: Any, message: Any) -> None:
        delivery = _read_delivery(self.number, message)
        self._put(delivery)
        if not delivery.mid and not self._has_qos0:
            self._has_qos0 = True
            self._put(
                f"messages on {delivery.topic} are published with QoS 0: those that are sent while we "
                "are not connected are lost; publish with QoS 1"
            )


def _default_client_id(endpoint: Endpoint, durable: bool) -> str:
    """Return a random id, or for a durable session the same for the same topics of the same broker."""
    if not durable:
        return f"baryflow-{uuid.uuid4().hex[:12]}"
    location = f"{endpoint.host}:{endpoint.port}/{endpoint.path}"
    return f"baryflow-{hashlib.blake2b(location.encode(), digest_size=6).hexdigest()}"


def _make_decoder(
    endpoint: Endpoint, options: SourceOptions
) -> tuple[MessageDecoder | LabelDecoder, Sampler | None]:
    """Return what makes rows or labels of messages, and the sampler if they are values of tags."""
    columns = options.columns or ()
    if options.labels is not None:
        return LabelDecoder(options.labels), None
    decoder = MessageDecoder(columns, options.time, options.key)
    if options.sample_interval is None:
        if options.tags is not None:
            raise InvalidInputError(
                "tag values arrive one at a time: set how often to sample a row, --sample-interval 3min"
            )
        return decoder, None
    if options.time is not None or options.key is not None:
        raise InvalidInputError(
            "sampled rows have the plant's time and the key of the tag list: leave out time and key"
        )
    tags = _find_tags(endpoint, columns, options.tags)
    return decoder, Sampler(columns, tags, options.sample_interval, options.max_age)


def _find_tags(endpoint: Endpoint, columns: Sequence[str], path: str | None) -> list[Tag]:
    """Return the topic of each column: from a tag list, or by the last level of the topic."""
    if path is not None:
        return read_tags(path)
    above = endpoint.path.removesuffix("+")
    if above == endpoint.path or "+" in above or "#" in above:
        raise InvalidInputError(
            f"{endpoint}: map topics to columns with a tag list; without one, the topic must end with "
            "its only +, which stands for the column names"
        )
    return [Tag(above + column, column) for column in columns]


# -- values of tags ------------------------------------------------------------------------------------

#: A time above this is in milliseconds: in seconds it would be in the year 5138.
_MILLISECONDS = 1e11
#: OPC's numbers for good quality.
_GOOD = range(192, 256)


class Reading(NamedTuple):
    """The value of a tag in a message; without a time, the time of arrival counts."""

    value: Any
    time: float | None
    good: bool


def read_reading(payload: bytes) -> Reading | None:
    """Return the value in a message: a number, or an object with value, time and quality."""
    try:
        text = payload.decode("utf-8").strip()
        found = json.loads(text)
    except UnicodeDecodeError:
        return None
    except (ValueError, RecursionError):
        number = parse_number(text, decimal_comma=True)
        return None if number is None or math.isnan(number) else Reading(number, None, good=True)
    if isinstance(found, dict):
        return _read_object(found)
    return Reading(found, None, good=True) if isinstance(found, str | int | float) else None


def _read_object(found: dict[str, Any]) -> Reading | None:
    value = found.get("value")
    if "value" not in found or not (value is None or isinstance(value, str | int | float)):
        return None
    stamp = next((found[name] for name in ("time", "timestamp") if found.get(name) is not None), None)
    moment = None if stamp is None else _read_time(stamp)
    good = next((_is_good(found[name]) for name in ("good", "quality") if name in found), True)
    # With an invalid time the value has no time at all: the sampler counts it.
    return Reading(value, math.nan if stamp is not None and moment is None else moment, good)


def _read_time(stamp: Any) -> float | None:
    seconds = parse_time(stamp) if isinstance(stamp, str) else stamp
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return seconds / 1000 if seconds > _MILLISECONDS else float(seconds)


def _is_good(quality: Any) -> bool:
    if isinstance(quality, str):
        return quality.strip().lower().startswith("good")
    return quality is True or (not isinstance(quality, bool) and quality in _GOOD)


# -- sink ----------------------------------------------------------------------------------------------

#: Records that may be unconfirmed; with more, ``write`` waits.
CAPACITY = 10_000
#: Records that are sent but not confirmed, unless the broker accepts fewer.
_INFLIGHT = 100


class MqttSink(_Connection, MessageSink):
    """Sends records; paho sends unconfirmed ones again on the next connection.

    A broker that is away is waited for without limit, until the process is asked to stop.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._backoff = Backoff(endpoint, endpoint.policy)
        self._queue: deque[bytes] = deque()  # written, but not handed to paho
        self._written = self._sent = self._confirmed = 0
        self._limit = _INFLIGHT
        self._sending = threading.Lock()
        self._answered = threading.Event()
        # A random client id, because no session is kept.
        super().__init__(endpoint, f"baryflow-out-{uuid.uuid4().hex[:16]}")
        self.client.on_publish = self._on_publish
        self.start()

    def stop_when(self, stop: Callable[[], bool]) -> None:
        """Do not wait long for the broker once `stop` returns True."""
        self._backoff.stop = stop

    def write(self, records: list[dict[str, Any]]) -> None:
        """Send records; wait if too many are unconfirmed."""
        for record in records:
            payload = encode_record(record).rstrip("\n").encode()
            self._wait(CAPACITY)
            self._queue.append(payload)
            self._written += 1
        self.position += len(records)
        self._wait(CAPACITY + 1)

    def flush(self) -> None:
        """Return once the broker has confirmed all records."""
        self._wait(1)

    def close(self, finished: bool = True) -> None:
        """Wait until the broker has confirmed all records, and disconnect."""
        try:
            if finished:
                self.flush()
        finally:
            self.disconnect()

    def _wait(self, below: int) -> None:
        """Send, and wait until fewer than `below` records are unconfirmed."""
        self._backoff.begin()
        self._send()
        while self.error is None and self._written - self._confirmed >= below:
            self._backoff.check()
            self._answered.wait(SLICE)
            self._answered.clear()
            self._send()
        if self.error is not None:
            raise self.error

    def _send(self) -> None:
        """Hand records to paho, up to the limit of unconfirmed ones.

        paho's thread must not wait for a thread that waits for paho. If another one is sending, do
        nothing; `_wait` tries again.
        """
        if self._sending.acquire(blocking=False):
            try:
                while self._queue and self._sent - self._confirmed < self._limit:
                    self._sent += 1
                    self.client.publish(self.endpoint.path, self._queue.popleft(), qos=1)
            finally:
                self._sending.release()

    # -- in paho's thread ------------------------------------------------------------------------------

    def opened(self, session: bool, properties: Any) -> None:
        """Send no more at a time than the broker accepts."""
        del session
        self._limit = min(_INFLIGHT, getattr(properties, "ReceiveMaximum", _INFLIGHT))
        self._tried.set()

    def lost(self, reason: str) -> None:
        """Report that the broker is away."""
        _log.warning("%s: no connection (%s); retrying", self.endpoint, reason)

    def failed(self) -> None:
        """Wake the writer, which raises the error."""
        self._answered.set()

    def _on_publish(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        """Count a confirmed record."""
        if reason.value >= _FAILURE:
            self.fail(
                f"the broker refuses our messages ({reason.getName()}): check the topic and the "
                "permissions of this user"
            )
        self._confirmed += 1
        self._send()
        self._answered.set()
