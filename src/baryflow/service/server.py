"""Serve the application until a signal arrives, or in a thread.

:class:`_Protocol` extends uvicorn's HTTP protocol because uvicorn limits neither the time in which the
headers of a request must arrive nor the number of connections that wait for a request: clients that send
half of a request could otherwise lock out all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from baryflow.exceptions import InvalidInputError, UnreachableError

_log = logging.getLogger("baryflow.service")

#: The most open connections; fewer if the limit on file descriptors is low.
_CONNECTIONS = 1024
#: File descriptors kept free for the journal, snapshots and target files.
_RESERVED = 192
#: Connections accepted in one iteration of the event loop. The connections they replace are closed a few
#: iterations later, so this must stay far below the number of reserved file descriptors.
_ACCEPTED = 16
#: Connections that may wait in the kernel to be accepted.
_BACKLOG = 1024
#: Seconds between two log lines about connections closed at the limit.
_LOG_INTERVAL = 60.0
#: Seconds for a client to confirm the end of a TLS connection; idle clients never do.
_TLS_CLOSE = 1.0
#: Seconds for running requests to finish during shutdown.
_GRACE = 30

Path = str | os.PathLike[str]


def run(
    app: Starlette,
    host: str = "127.0.0.1",
    port: int = 8000,
    listening: Callable[[str], None] | None = None,
    *,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
) -> int | None:
    """Serve until SIGINT or SIGTERM; then finish running requests and write a snapshot.

    Parameters
    ----------
    app : Starlette
        The application, from :func:`~baryflow.service.create_app`.
    host : str
        Address to listen at.
    port : int
        Port to listen at; 0 chooses a free one.
    listening : callable, optional
        Called with the URL once the port is bound.
    tls_cert : path, optional
        PEM file with the certificate chain; the service then accepts HTTPS only.
    tls_key : path, optional
        PEM file with the unencrypted private key; without it the key is read from ``tls_cert``.

    Returns
    -------
    int or None
        The signal that stopped the server.

    Raises
    ------
    InvalidInputError
        If the host is unknown, or the certificate or key cannot be read.
    UnreachableError
        If the port cannot be bound.
    BaryflowError
        If the state folder cannot be read.
    """
    context = _tls_context(tls_cert, tls_key)
    with _bound(host, port) as sock:
        server = _Server(app, context)
        if listening is not None:
            listening(_url(sock, context))
        server.run(sockets=[sock])
    if server.failure is not None:
        raise server.failure
    return server.signal


@contextlib.contextmanager
def background(
    app: Starlette,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
) -> Iterator[str]:
    """Serve in a thread while the block runs.

    Parameters
    ----------
    app : Starlette
        The application, from :func:`~baryflow.service.create_app`.
    host : str
        Address to listen at.
    port : int
        Port to listen at; 0 chooses a free one.
    tls_cert, tls_key : path, optional
        As for :func:`run`.

    Yields
    ------
    str
        The URL, once the service accepts requests.
    """
    context = _tls_context(tls_cert, tls_key)
    with _bound(host, port) as sock:
        url = _url(sock, context)  # a server that fails to start closes the socket
        server = _Server(app, context)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([sock])))
        thread.start()
        try:
            while thread.is_alive() and app.state.service.state == "starting":
                time.sleep(0.01)
            yield url
        finally:
            server.should_exit = True
            thread.join()
    if server.failure is not None:
        raise server.failure


class _Server(uvicorn.Server):
    """Closes event streams, which never end by themselves, before it waits for other requests."""

    def __init__(self, app: Starlette, tls: ssl.SSLContext | None) -> None:
        config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="on",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
            timeout_keep_alive=30,
            backlog=_ACCEPTED,
        )
        super().__init__(config)
        self.failure: Exception | None = None
        self.signal: int | None = None
        self._app = app
        app.state.service.on_failure, app.state.connections = self._fail, _Connections(app, tls)

    def _fail(self, error: Exception) -> None:
        self.failure, self.should_exit = error, True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Shut down on the first SIGINT or SIGTERM, at once on the second; keep the signal's number."""

        def handle(number: int, _: Any) -> None:
            self.force_exit, self.signal, self.should_exit = self.should_exit, number, True

        if threading.current_thread() is not threading.main_thread():  # signals go to the main thread
            yield
            return
        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. For asyncio, ``backlog`` is also the number of connections to accept at a time."""
        await super().startup(sockets)
        for sock in sockets or ():
            sock.listen(_BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down."""
        self._app.state.service.hub.close()
        await super().shutdown(sockets)


class _Connections:
    """The open connections, fewer than the process may have file descriptors.

    At the limit, the connection that has waited longest for a complete request is closed, so that
    clients that send half a request cannot lock out others. Complete requests are never interrupted.
    """

    def __init__(self, app: Starlette, tls: ssl.SSLContext | None) -> None:
        self.limit, self.tls = max_connections(), tls
        self._app = app
        self._open: set[_Protocol] = set()
        self._incomplete: dict[_Protocol, None] = {}  # longest waiting first
        self._n_closed, self._logged = 0, -_LOG_INTERVAL

    def add(self, connection: _Protocol) -> None:
        """Add a new connection, and close waiting ones if there are too many."""
        self._open.add(connection)
        self._incomplete[connection] = None
        while len(self._open) > self.limit and self._incomplete:
            oldest = next(iter(self._incomplete))
            self.remove(oldest)
            oldest.transport.abort()  # without waiting for the client to read
            self._app.state.service.metrics.counters["shed"].inc()
            self._n_closed += 1
        if self._n_closed and time.monotonic() - self._logged >= _LOG_INTERVAL:
            _log.warning(
                "%d connections are open: closed %d that were waiting for a complete request",
                self.limit,
                self._n_closed,
            )
            self._n_closed, self._logged = 0, time.monotonic()

    def mark(self, connection: _Protocol, complete: bool) -> None:
        """Record whether a connection has a complete request."""
        if complete:
            self._incomplete.pop(connection, None)
        elif connection in self._open:
            self._incomplete.setdefault(connection)

    def remove(self, connection: _Protocol) -> None:
        """Remove a closed connection."""
        self._open.discard(connection)
        self._incomplete.pop(connection, None)


class _Protocol(H11Protocol):
    """Closes a connection whose request does not arrive in time, or whose body is not wanted.

    The TLS handshake is part of that time and of the connection limit. With ``ssl=`` of uvicorn it would
    be neither: asyncio calls ``connection_made`` only after the handshake.
    """

    _timeout: asyncio.TimerHandle | None = None
    _handshake: asyncio.Task[None] | None = None
    _received = b""  # during the handshake
    _lost = False

    def connection_made(self, transport: Any) -> None:
        """Wait for the TLS handshake, if there is one, and the first request."""
        super().connection_made(transport)
        app: Any = self.config.app
        self._all: _Connections = app.state.connections
        self._start_timer()
        self._all.add(self)
        if self._all.tls is not None:
            transport.pause_reading()
            self._handshake = self.loop.create_task(self._start_tls(transport, self._all.tls))

    async def _start_tls(self, transport: Any, context: ssl.SSLContext) -> None:
        encrypted, failure = None, None
        try:
            encrypted = await self.loop.start_tls(
                transport, self, context, server_side=True, ssl_shutdown_timeout=_TLS_CLOSE
            )
        except OSError as error:  # ssl.SSLError, too
            failure = error
            transport.abort()
        if encrypted is None and not self._lost:  # failed, or closed during the handshake
            self.connection_lost(failure)
        if encrypted is None or self._lost:
            return
        super().connection_made(encrypted)
        self._handshake = None
        if self._received:
            self.data_received(self._received)

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of the headers, or of the body of a refused request."""
        if self._handshake is not None:  # asyncio delivers data before start_tls() returns
            self._received += data
            return
        super().data_received(data)
        unwanted = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        if unwanted or self.conn.their_state is h11.IDLE:
            self._start_timer()
        else:
            self._stop_timer()
        self._all.mark(self, self.conn.their_state is h11.DONE)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._all.mark(self, self.conn.their_state is h11.DONE)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._lost = True
        self._stop_timer()
        self._all.remove(self)
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        if self._timeout is None:
            app: Any = self.config.app
            self._timeout = self.loop.call_later(app.state.service.limits.seconds, self._time_out)

    def _time_out(self) -> None:
        self.transport.close()  # not bound earlier: the handshake replaces the transport

    def _stop_timer(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None


def max_connections() -> int:
    """Return how many connections may be open: fewer than the process may have file descriptors."""
    try:
        import resource
    except ImportError:  # no limit on this platform
        return _CONNECTIONS
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _CONNECTIONS
    return max(1, min(_CONNECTIONS, limit - min(_RESERVED, limit // 2)))


def _tls_context(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if cert is None:
        if key is not None:
            raise InvalidInputError(f"the TLS key {key} needs a certificate: use --tls-cert")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # With an empty password an encrypted key is an error; without one OpenSSL asks the terminal.
        context.load_cert_chain(cert, key, password="")
    except OSError as error:  # ssl.SSLError, too
        files = f"{cert}" if key is None else f"{cert} and {key}"
        raise InvalidInputError(
            f"cannot load the TLS certificate and its unencrypted key from {files}: {error}"
        ) from error
    return context


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        # With the protocol, or asyncio does not disable Nagle's algorithm: the body of a response would
        # wait until the client confirms its headers, which takes 40 ms.
        sock = socket.socket(found[0][0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise InvalidInputError(f"{host} is not an address of this computer: {error}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(found[0][4])
        except OSError as error:
            raise UnreachableError(f"cannot listen at {host}:{port}: {error.strerror}") from error
        sock.listen(_BACKLOG)
        sock.setblocking(False)
        yield sock
    finally:
        sock.close()


def _url(sock: socket.socket, tls: ssl.SSLContext | None) -> str:
    host, port = sock.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
