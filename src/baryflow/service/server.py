"""Runs the application: until a signal, or beside something else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from baryflow.exceptions import InvalidInputError, UnreachableError

#: Connections at a time, listeners included.
_CONNECTIONS = 1024
#: Seconds for which requests that run may go on once the service is told to end.
_GRACE = 30


def run(app: Starlette, host: str = "127.0.0.1", port: int = 8000, ready: Any = None) -> None:
    """Serve until SIGINT or SIGTERM; then finish what runs and put everything on disk.

    Parameters
    ----------
    app : Starlette
        From :func:`~baryflow.service.create_app`.
    host : str
    port : int
        0: any that is free.
    ready : callable, optional
        Called with the address once it is heard.

    Raises
    ------
    UnreachableError
        If the address cannot be had.
    BaryflowError
        If the state of an earlier life cannot be read.
    """
    with _bound(host, port) as sock:
        server = _Server(app)
        if ready is not None:
            ready(_address(sock))
        server.run(sockets=[sock])
    if server.failure is not None:
        raise server.failure


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
        The address.
    """
    with _bound(host, port) as sock:
        server = _Server(app)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve_quietly(sock)))
        thread.start()
        try:
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
        self._app = app
        app.state.on_failure = self._fail

    def _fail(self, error: Exception) -> None:
        self.failure, self.should_exit = error, True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        self._app.state.desk.hub.close()
        await super().shutdown(sockets)

    async def serve_quietly(self, sock: socket.socket) -> None:
        """Serve without a hand on signals, which belong to the main thread."""
        await self._serve([sock])


class _Protocol(H11Protocol):
    """Closes connections on which no request comes, or only half of its headers."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        seconds = self.app_limits().seconds
        self._patience = self.loop.call_later(seconds, self._give_up)

    def app_limits(self) -> Any:
        """Return the limits of the service."""
        return self.config.app.state.desk.limits  # type: ignore[union-attr]

    def _give_up(self) -> None:
        if self.cycle is None:  # not one request was complete
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        if self._patience is not None:
            self._patience.cancel()
        super().connection_lost(exc)


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
