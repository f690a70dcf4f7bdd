"""Runs the application: until a signal, or beside something else."""

from __future__ import annotations

import asyncio
import contextlib
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

#: Connections at a time, listeners included.
_CONNECTIONS = 1024
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
                server_header=False, limit_concurrency=_CONNECTIONS, timeout_graceful_shutdown=_GRACE,
                timeout_keep_alive=30, loop="asyncio",
            )
        )  # fmt: skip
        self.failure: Exception | None = None
        self.signal: int | None = None
        self._app = app
        app.state.on_failure = self._fail

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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        self._app.state.desk.hub.close()
        await super().shutdown(sockets)


class _Protocol(H11Protocol):
    """Closes a connection on which no request comes, half of its headers, or what nobody listens to."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of the headers, if this is not all of them, or of a refused body."""
        super().data_received(data)
        unheard = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        if unheard or self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._patience is None:
            app: Any = self.config.app
            self._patience = self.loop.call_later(app.state.desk.limits.seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


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
        sock.listen(1024)
        sock.setblocking(False)
        yield sock
    finally:
        sock.close()


def _address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
