"""The service as an application: routes, and what stands behind them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.features import SignalModel
from baryflow.persistence import load
from baryflow.runtime import Checkpoint, SessionConfig
from baryflow.service.auth import Guard
from baryflow.service.errors import RequestError, reply
from baryflow.service.limits import Limits
from baryflow.service.routes import open_routes, routes
from baryflow.service.state import ServiceState

_log = logging.getLogger("baryflow.service")
#: Errors of the operating system for which the state cannot be written.
_STORAGE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
#: Seconds between two looks whether it is time for a snapshot.
_TICK = 0.25


def create_app(
    model: OnlineDaDiL | SignalModel | str | os.PathLike[str],
    *,
    state_dir: str | os.PathLike[str] | None = None,
    token: str | None = None,
    limits: Limits | None = None,
    batch_size: int = 32,
    drift: str = "report",
    extra_routes: Sequence[BaseRoute] = (),
) -> Starlette:
    """Return the service as an ASGI application.

    Parameters
    ----------
    model : OnlineDaDiL, SignalModel or path
        Fitted; each target begins with its own copy of it.
    state_dir : path, optional
        Where targets are kept; without it they go with the process.
    token : str, optional
        Bearer token; every route needs it but health, ``/openapi.json`` and the files of the page.
    limits : Limits, optional
    batch_size : int
        A target's model learns once so many of its rows are waiting.
    drift : {"off", "report", "forget", "restart"}
        Whether drift is watched for, and what to do about it.
    extra_routes : sequence of routes
        Tried before the service's own routes. They need the token, too.

    Returns
    -------
    Starlette
        ``app.state.desk`` is the :class:`~baryflow.service.state.Desk`.

    Raises
    ------
    InvalidInputError
        If the model cannot follow a target, or the folder is in use.
    """
    fitted = _load(Path(model)) if isinstance(model, str | os.PathLike) else model
    checkpoint = None if state_dir is None else Checkpoint(state_dir)
    try:
        desk = ServiceState(SessionConfig(fitted, batch_size, drift), checkpoint, limits or Limits())
    except BaseException:
        if checkpoint is not None:
            checkpoint.close()
        raise
    open_ = open_routes()
    app = Starlette(
        routes=[*extra_routes, *routes(), *open_],
        middleware=[Middleware(Guard, token=token, metrics=desk.metrics, open_routes=open_)],
        exception_handlers={
            RequestError: _refused,
            HTTPException: _unknown,
            OSError: _cannot_store,
            500: _failed,
        },
        lifespan=_life,
    )
    app.router.redirect_slashes = False
    app.state.desk = desk
    app.state.on_failure = None
    return app


def _load(path: Path) -> Any:
    fitted = load(path)
    if not isinstance(fitted, OnlineDaDiL | SignalModel):
        raise InvalidInputError(f"{path} holds no model that can follow a target: 'fit' writes one")
    return fitted


@contextlib.asynccontextmanager
async def _life(app: Starlette) -> AsyncIterator[None]:
    desk: ServiceState = app.state.desk
    # In the background, so that whoever asks whether the service is ready hears that it is not yet.
    starting = asyncio.create_task(_start(app))
    ticking = asyncio.create_task(_tick(desk))
    try:
        yield
    finally:
        ticking.cancel()
        await asyncio.wait([starting, ticking])
        desk.hub.close()
        await desk.targets.close()


async def _start(app: Starlette) -> None:
    try:
        await app.state.desk.targets.start()
    except Exception as error:
        if app.state.on_failure is None:
            raise
        app.state.on_failure(error)


async def _tick(desk: ServiceState) -> None:
    while True:
        await asyncio.sleep(_TICK)
        desk.targets.consider_snapshot()


async def _refused(_: Request, error: Exception) -> Response:
    if not isinstance(error, RequestError):
        raise error
    return error.response()


async def _unknown(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    words = {
        404: "no such path: /openapi.json lists the paths",
        405: "method not allowed: /openapi.json lists the methods",
    }
    return reply({"error": words.get(error.status_code, error.detail)}, error.status_code, error.headers)


async def _cannot_store(_: Request, error: Exception) -> Response:
    """Answer 507, whatever it was that could not be written."""
    if not isinstance(error, OSError) or error.errno not in _STORAGE_ERRORS:
        raise error
    _log.error("cannot write the state: %s", error)
    words = f"cannot store the state ({error.strerror}): nothing was changed; free disk space and retry"
    return reply({"error": words}, 507, {"Retry-After": "10"})


async def _failed(_: Request, __: Exception) -> Response:
    return reply({"error": "internal error: see the log of the service"}, 500)
