"""Runs the application: until a signal, or beside something else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
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

#: Open connections at most, fewer if the limit on file descriptors is low.
_CONNECTIONS = 1024
#: File descriptors kept free for the journal, snapshots and target files.
_RESERVED = 192
#: Connections accepted in one turn of the event loop. Others are closed for them only some turns later,
#: so this must stay far below the descriptors that are kept free.
_ACCEPTED = 16
#: Connections that may wait in the kernel to be accepted.
_BACKLOG = 1024
#: Seconds between two log lines about connections closed at the limit.
_LOG_INTERVAL = 60.0
#: Seconds for which requests that run may go on once the service is told to end.
_GRACE = 30


def run(
    app: Starlette,
    host: str = "127.0.0.1",
    port: int = 8000,
    listening: Callable[[str], None] | None = None,
) -> int | None:
    """Serve until SIGINT or SIGTERM; then finish what runs and put everything on disk.

    Parameters
    ----------
    app : Starlette
        From :func:`~baryflow.service.create_app`.
    host : str
    port : int
        0: any that is free.
    listening : callable, optional
        Called with the address.

    Returns
    -------
    int or None
        The signal that ended it.

    Raises
    ------
    UnreachableError
        If the address cannot be had.
    BaryflowError
        If the state of an earlier life cannot be read.
    """
    with _bound(host, port) as sock:
        server = _Server(app)
        if listening is not None:
            listening(_address(sock))
        server.run(sockets=[sock])
    if server.failure is not None:
        raise server.failure
    return server.signal


@contextlib.contextmanager
def background(app: Starlette, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve in a thread, for as long as the block lasts.

    Parameters
    ----------
    app : Starlette
    host : str
    port : int
        0: any that is free.

    Yields
    ------
    str
        The address, once requests are taken.
    """
    with _bound(host, port) as sock:
        server = _Server(app)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([sock])))
        thread.start()
        try:
            while thread.is_alive() and app.state.desk.targets.state == "starting":
                time.sleep(0.01)
            yield _address(sock)
        finally:
            server.should_exit = True
            thread.join()
    if server.failure is not None:
        raise server.failure


class _Server(uvicorn.Server):
    """Ends streams that never end by themselves before it waits for those that do."""

    def __init__(self, app: Starlette) -> None:
        super().__init__(
            uvicorn.Config(
                app, http=_Protocol, ws="none", lifespan="on", log_config=None, access_log=False,
                server_header=False, timeout_graceful_shutdown=_GRACE, timeout_keep_alive=30,
                loop="asyncio", backlog=_ACCEPTED,
            )
        )  # fmt: skip
        self.failure: Exception | None = None
        self.signal: int | None = None
        self._app = app
        app.state.on_failure, app.state.connections = self._fail, _Connections(app)

    def _fail(self, error: Exception) -> None:
        self.failure, self.should_exit = error, True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End in order on SIGINT and SIGTERM, at once if told twice; who runs us hears which it was."""

        def told(number: int, _: Any) -> None:
            self.force_exit, self.signal, self.should_exit = self.should_exit, number, True

        if threading.current_thread() is not threading.main_thread():  # signals are not for us
            yield
            return
        before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; to asyncio ``backlog`` is also the number of connections to accept in a turn."""
        await super().startup(sockets)
        for sock in sockets or ():
            sock.listen(_BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        self._app.state.desk.hub.close()
        await super().shutdown(sockets)


class _Connections:
    """The open connections, fewer than there are file descriptors.

    At the limit the connection that has waited longest for the rest of a request is closed, so that
    clients that send half a request cannot keep others out. Complete requests are never interrupted.
    """

    def __init__(self, app: Starlette) -> None:
        self.most = max_connections()
        self._app = app
        self._open: set[_Protocol] = set()
        self._incomplete: dict[_Protocol, None] = {}  # in the order in which they began to wait
        self._n_closed, self._logged = 0, -_LOG_INTERVAL

    def add(self, connection: _Protocol) -> None:
        """Count a new connection, and close others in its place."""
        self._open.add(connection)
        self._incomplete[connection] = None
        while len(self._open) > self.most and self._incomplete:
            oldest = next(iter(self._incomplete))
            self.remove(oldest)
            oldest.transport.abort()  # without waiting for the peer to read
            self._app.state.desk.metrics.shed += 1
            self._n_closed += 1
        if self._n_closed and time.monotonic() - self._logged >= _LOG_INTERVAL:
            _log.warning(
                "%d connections are open: closed %d that were waiting for a request or the rest of one",
                self.most, self._n_closed,
            )  # fmt: skip
            self._n_closed, self._logged = 0, time.monotonic()

    def mark(self, connection: _Protocol, complete: bool) -> None:
        """Note whether a connection has a complete request."""
        if complete:
            self._incomplete.pop(connection, None)
        elif connection in self._open:
            self._incomplete.setdefault(connection)

    def remove(self, connection: _Protocol) -> None:
        """Forget a connection."""
        self._open.discard(connection)
        self._incomplete.pop(connection, None)


class _Protocol(H11Protocol):
    """Close a connection whose request does not arrive in time, or whose body is not wanted."""

    _timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        app: Any = self.config.app
        self._all: _Connections = app.state.connections
        self._start_timer()
        self._all.add(self)

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of the headers, or of the body of a refused request."""
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
        self._stop_timer()
        self._all.remove(self)
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        if self._timeout is None:
            app: Any = self.config.app
            self._timeout = self.loop.call_later(app.state.desk.limits.seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None


def max_connections() -> int:
    """Return how many connections may be open: fewer than the process may have file descriptors.

    Returns
    -------
    int
    """
    try:
        import resource
    except ImportError:  # no such limit on this platform
        return _CONNECTIONS
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _CONNECTIONS
    return max(1, min(_CONNECTIONS, limit - min(_RESERVED, limit // 2)))


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        sock = socket.socket(found[0][0], socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidInputError(f"{host} is no address of this machine: {error}") from error
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


def _address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
