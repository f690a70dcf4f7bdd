"""The service as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
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

from baryflow.alarms import AlarmConfig
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.features import SignalModel
from baryflow.persistence import load
from baryflow.runtime import SessionConfig
from baryflow.runtime.outbox import Outbox
from baryflow.service.auth import AuthMiddleware, check_read_token
from baryflow.service.errors import RequestError, storage_error
from baryflow.service.parsing import Limits
from baryflow.service.routes import open_routes, routes
from baryflow.service.targets import Targets

_log = logging.getLogger("baryflow.service")


def create_app(
    model: OnlineDaDiL | SignalModel | str | os.PathLike[str],
    *,
    state_dir: str | os.PathLike[str] | None = None,
    token: str | None = None,
    read_token: str | None = None,
    limits: Limits | None = None,
    batch_size: int = 32,
    drift: str = "report",
    alarms: AlarmConfig | None = None,
    alarm_output: Outbox | None = None,
    extra_routes: Sequence[BaseRoute] = (),
    workers: int = 1,
) -> Starlette:
    """Return the service as an ASGI application.

    Parameters
    ----------
    model : OnlineDaDiL, SignalModel or path
        A fitted model, or the file of one; each target starts with a copy of it.
    state_dir : path, optional
        Folder that keeps the targets; without it they are lost when the process ends.
    token : str, optional
        Bearer token. Every route requires it except the health checks, ``/openapi.json`` and the files
        of the live page.
    read_token : str, optional
        Second bearer token that allows GET and HEAD only; requires ``token``.
    limits : Limits, optional
        Limits on requests, targets and memory.
    batch_size : int
        Rows per update: a target's model learns once this many of its rows are waiting.
    drift : {"off", "report", "forget", "restart"}
        What to do when a target drifts; "off" does not look for drift.
    alarms : AlarmConfig, optional
        When predictions raise alarms; without it they raise none.
    alarm_output : Outbox, optional
        Sends events of alarms. It is closed with the service.
    extra_routes : sequence of routes
        Additional routes, matched before the service's own. They require the token, too.
    workers : int
        More than one: processes that share the targets among them. They are forked at once, so do this
        before the process has other threads.

    Returns
    -------
    Starlette
        The application, to be passed to :func:`run` or to any ASGI server.

    Raises
    ------
    InvalidInputError
        If the model cannot adapt to a target, another process uses the folder, or ``read_token`` is
        given without ``token``.
    """
    check_read_token(token, read_token)
    fitted = _load(Path(model)) if isinstance(model, str | os.PathLike) else model
    folder = None if state_dir is None else Path(state_dir)
    config = SessionConfig(fitted, batch_size, drift, alarms)
    targets = Targets(config, folder, limits or Limits(), alarm_output, workers)
    without_token = open_routes()
    auth = Middleware(
        AuthMiddleware,
        token=token,
        read_token=read_token,
        metrics=targets.metrics,
        open_routes=without_token,
    )
    app = Starlette(
        routes=[*extra_routes, *routes(), *without_token],
        middleware=[auth],
        exception_handlers={
            RequestError: _on_request_error,
            HTTPException: _on_http_exception,
            OSError: _on_os_error,
            500: _on_internal_error,
        },
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False
    app.state.service = targets
    return app


def _load(path: Path) -> Any:
    fitted = load(path)
    if not isinstance(fitted, OnlineDaDiL | SignalModel):
        raise InvalidInputError(
            f"{path} holds no model that can adapt to a target: use a file written by 'baryflow fit'"
        )
    return fitted


@contextlib.asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    targets: Targets = app.state.service
    # The journal is replayed in the background, so that /readyz answers "not ready" meanwhile.
    starting = asyncio.create_task(targets.start())
    try:
        yield
    finally:
        await asyncio.wait([starting])
        await targets.close()


async def _on_request_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, RequestError):
        raise error
    return error.response()


async def _on_http_exception(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    messages = {
        404: "unknown path: /openapi.json lists the paths",
        405: "method not allowed: /openapi.json lists the methods",
    }
    message = messages.get(error.status_code, error.detail)
    return RequestError(error.status_code, message, error.headers).response()


async def _on_os_error(_: Request, error: Exception) -> Response:
    """Answer 507 if the state cannot be written."""
    refusal = storage_error(error) if isinstance(error, OSError) else None
    if refusal is None:
        raise error
    return refusal.response()


async def _on_internal_error(_: Request, __: Exception) -> Response:
    return RequestError(500, "internal error: see the service's log").response()
