"""A connection to a broker that is made anew for ever, in a thread of its own.

Everything of paho happens in that thread, and each connection has a paho client of its own. So nothing
that was meant for one connection can be sent on the next: an acknowledgement names a message by a number
that may mean another one by then.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from baryflow.exceptions import UnreachableError
from baryflow.streams.mqtt.clients import ANSWER, Session, make_client, make_tls, require_paho
from baryflow.streams.mqtt.errors import (
    explain_absence,
    explain_failure,
    explain_farewell,
    explain_fight,
    explain_refusal,
)
from baryflow.streams.urls import Address, Credentials

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

#: Seconds after which a broker that does not answer at the start is given up.
PATIENCE = 10.0
#: Seconds for which one that has let us in may be busy.
_BUSY = 30.0
#: Seconds to wait before trying again: doubled each time, up to the second.
_DELAYS = (0.25, 15.0)
#: So many connections in a row that stand at once but not for so many seconds: somebody takes them from
#: us. A broker that comes and goes is away in between.
_FIGHTS, _SHORT = 20, 1.0
#: Seconds for what is still to be sent when it is closed.
_FAREWELL = 2.0
_FOR_EVER = 0xFFFFFFFF
_UNSPECIFIED = 0x80
_NO_TLS = "it closed the connection without a word: if that port speaks TLS, use mqtts://"
_NO_MQTT = "what answers there does not speak MQTT: look at the port, or use mqtts:// if it speaks TLS"
_SILENT = "it takes the connection but says nothing: look at the port, or use mqtts:// if it speaks TLS"


class Listener(Protocol):
    """Is told what happens, in the thread of the connection."""

    def opened(self, client: Client, number: int, session: bool) -> bool:
        """Begin with a connection; return whether that is all, or a subscription is to be answered.

        `session` says whether the broker remembers us.
        """

    def closed(self, words: str) -> None:
        """Take note that the connection is lost."""

    def received(self, number: int, message: MQTTMessage) -> None:
        """Take a message."""

    def subscribed(self, code: int) -> UnreachableError | None:
        """Look at the answer to what we asked for; an error that is returned ends all."""

    def confirmed(self, number: int) -> None:
        """Take note that the broker has answered a question of ours, and so read what came before it."""

    def published(self, mid: int, code: int, name: str) -> None:
        """Take note that the broker has, or refuses, a message of ours."""

    def failed(self, error: UnreachableError) -> None:
        """Take note that we are not let in, and will not be."""

    def full(self) -> bool:
        """Whether nothing more should be read for now."""


class Connection:
    """Stays connected.

    Parameters
    ----------
    address : Address
    credentials : Credentials
    session : Session
    listener : Listener
    """

    def __init__(
        self, address: Address, credentials: Credentials, session: Session, listener: Listener
    ) -> None:
        self._paho = require_paho()
        self._address, self._credentials, self._session = address, credentials, session
        self._listener = listener
        self._tls = make_tls(address, credentials)
        self._jobs: deque[Callable[[Client, int], None]] = deque()
        self._told, self._tell = socket.socketpair()
        for end in (self._told, self._tell):
            end.setblocking(False)
        self._ended = threading.Event()
        self._connected, self._answered = threading.Event(), threading.Event()
        self._error: UnreachableError | None = None
        self._trouble: Exception | str = "no answer"  # the last one
        self._number = 0  # of the connection
        self._open, self._since = False, 0.0
        self._thread = threading.Thread(target=self._run, name="baryflow-mqtt", daemon=True)

    def start(self) -> None:
        """Connect, and return when it stands; after some seconds without an answer it is an error."""
        began = time.monotonic()
        self._thread.start()
        if self._connected.wait(PATIENCE):
            self._answered.wait(_BUSY)  # if it takes longer, what it answers is heard of later
        elif self._error is None:
            self._error = explain_absence(self._trouble, self._address, time.monotonic() - began)
        if self._error is not None:
            self.close()
            raise self._error

    def post(self, job: Callable[[Client, int], None]) -> None:
        """Do something with the client and the number of the connection, in its thread."""
        self._jobs.append(job)
        self._wake()

    def close(self) -> None:
        """Say goodbye, and end the thread."""
        self._ended.set()
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        for end in (self._told, self._tell):
            end.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake already; closed: it is over
            self._tell.send(b".")

    # -- in the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        delay, short = _DELAYS[0], 0
        while not self._ended.is_set():
            self._open = False
            try:
                self._live()
            except UnreachableError as error:
                self._fail(error)
                return
            except OSError as error:
                self._trouble = error
                final = explain_failure(error, self._address)
                if final is not None:
                    self._fail(final)
                    return
            except Exception as error:
                self._fail(UnreachableError(f"{self._address}: the connection broke down ({error!r})"))
                raise
            if self._open:
                delay = _DELAYS[0]
                self._listener.closed(str(self._trouble))
                short = short + 1 if time.monotonic() - self._since < _SHORT else 0
                if short >= _FIGHTS and self._session.lasting:
                    self._fail(explain_fight(self._address, self._session.client))
                    return
            else:
                short = 0
            self._ended.wait(delay)
            delay = min(2 * delay, _DELAYS[1])

    def _fail(self, error: UnreachableError) -> None:
        self._error = error
        self._listener.failed(error)
        self._connected.set()
        self._answered.set()

    def _live(self) -> None:
        """Connect and stay so, until it is over."""
        self._number += 1
        self._jobs.clear()
        client = make_client(self._session, self._credentials, self._tls)
        verdict: list[UnreachableError] = []
        self._listen(client, verdict)
        properties = self._paho.properties.Properties(self._paho.packettypes.PacketTypes.CONNECT)
        properties.ReceiveMaximum = self._session.inflight
        if self._session.lasting:
            properties.SessionExpiryInterval = _FOR_EVER
        address = self._address
        client.connect(
            address.host,
            address.port or (1883 if self._tls is None else 8883),
            keepalive=self._session.keepalive,
            clean_start=not self._session.lasting,
            properties=properties,
        )
        wire: Any = client.socket()
        try:
            self._serve(client, wire, verdict)
            if self._ended.is_set():
                self._part(client, wire)
        finally:
            wire.close()
        if verdict:
            raise verdict[0]

    def _serve(self, client: Client, wire: Any, verdict: list[UnreachableError]) -> None:
        began, before = time.monotonic(), self._trouble
        with selectors.DefaultSelector() as selector:
            selector.register(self._told, selectors.EVENT_READ)
            selector.register(wire, selectors.EVENT_READ)
            while not self._ended.is_set() and not verdict and client.socket() is not None:
                reading = 0 if self._listener.full() else selectors.EVENT_READ
                writing = selectors.EVENT_WRITE if client.want_write() else 0
                _watch(selector, wire, reading | writing)
                pending = bool(reading) and self._tls is not None and wire.pending() > 0
                ready = {key.fileobj: events for key, events in selector.select(0 if pending else 0.5)}
                if self._told in ready:
                    self._told.recv(4096)
                if pending or ready.get(wire, 0) & selectors.EVENT_READ:
                    self._read(client, verdict)
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

    def _read(self, client: Client, verdict: list[UnreachableError]) -> None:
        """Read what has come; give up if the first words are not those of a broker."""
        code = client.loop_read()
        if code == self._paho.client.MQTT_ERR_PROTOCOL and not self._connected.is_set():
            verdict.extend([] if verdict else [UnreachableError(f"{self._address}: {_NO_MQTT}")])

    def _part(self, client: Client, wire: Any) -> None:
        """Send what is still to be sent, and say goodbye."""
        until = time.monotonic() + _FAREWELL
        while self._jobs and client.socket() is not None and self._open:
            self._jobs.popleft()(client, self._number)
        client.disconnect()
        while client.socket() is not None and client.want_write() and time.monotonic() < until:
            with selectors.DefaultSelector() as selector:
                selector.register(wire, selectors.EVENT_WRITE)
                selector.select(0.1)
            client.loop_write()

    def _listen(self, client: Client, verdict: list[UnreachableError]) -> None:
        listener, number = self._listener, self._number

        def connected(client: Client, _: Any, flags: Any, reason: Any, __: Any) -> None:
            if reason.is_failure:
                self._trouble = f"it refuses us for now: {reason.getName()}"
                told = (reason.value, reason.getName(), self._address)
                error = explain_refusal(*told, self._credentials, self._session.client)
                verdict.extend([error] if error else [])
                return
            self._open, self._trouble, self._since = True, "closed", time.monotonic()
            self._connected.set()
            if listener.opened(client, number, bool(flags.session_present)):
                self._answered.set()

        def disconnected(_: Client, __: Any, ___: Any, reason: Any, ____: Any) -> None:
            if self._open:
                # Of its own accord paho knows only that it is over, or that there was no answer.
                self._trouble = "closed" if reason.value == _UNSPECIFIED else reason.getName().lower()
                error = explain_farewell(
                    reason.value, reason.getName(), self._address, self._session.client
                )
                verdict.extend([error] if error and not verdict else [])

        def subscribed(_: Client, __: Any, ___: Any, reasons: Any, ____: Any) -> None:
            error = listener.subscribed(reasons[0].value)
            verdict.extend([error] if error else [])
            if error is None:
                self._answered.set()

        client.on_connect, client.on_disconnect, client.on_subscribe = (
            connected,
            disconnected,
            subscribed,
        )
        client.on_message = lambda _, __, message: listener.received(number, message)
        client.on_unsubscribe = lambda *_: listener.confirmed(number)
        client.on_publish = lambda _, __, mid, reason, ___: listener.published(
            mid, reason.value, reason.getName()
        )


def _watch(selector: selectors.BaseSelector, wire: Any, events: int) -> None:
    """Wait for these events of a socket, be it none."""
    known = selector.get_map().get(wire)
    if known is None and events:
        selector.register(wire, events)
    elif known is not None and not events:
        selector.unregister(wire)
    elif known is not None and known.events != events:
        selector.modify(wire, events)
