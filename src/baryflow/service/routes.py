"""The routes of a service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from baryflow.service.errors import RequestError, reply
from baryflow.service.limits import NAME, is_name
from baryflow.service.openapi import description
from baryflow.service.parsing import ID_HEADER, kind_of
from baryflow.service.state import ServiceState
from baryflow.service.view import explain, picture

STATIC = Path(__file__).parent / "static"
#: Digits of a position, at most.
_DIGITS = 15


def routes() -> list[BaseRoute]:
    """Return the routes that need the token, if there is one.

    Returns
    -------
    list of routes
    """
    one = "/v1/targets/{name}"
    return [
        Route(f"{one}/rows", post_rows, methods=["POST"]),
        Route("/v1/targets", list_targets),
        Route(one, get_target, methods=["GET"]),
        Route(one, delete_target, methods=["DELETE"]),
        Route(f"{one}/picture", get_picture),
        Route(f"{one}/why/{{position}}", get_why),
        Route("/v1/live", get_live),
        Route(f"{one}/live", get_target_live),
        Route("/metrics", get_metrics),
    ]


def open_routes() -> list[BaseRoute]:
    """Return the routes that never need the token: health, the description and the files of the page.

    Returns
    -------
    list of routes
    """
    return [
        Route("/healthz", get_health),
        Route("/readyz", get_readiness),
        Route("/openapi.json", get_description),
        Route("/", get_page),
        Mount("/static", StaticFiles(directory=STATIC, check_dir=False), name="static"),
    ]


def _desk(request: Request) -> ServiceState:
    found: ServiceState = request.app.state.desk
    return found


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if not is_name(name):
        raise RequestError(
            422, f"a target cannot have this name: letters, digits and . _ : @ - are allowed ({NAME})"
        )
    return name


async def post_rows(request: Request) -> Response:
    """Take rows of a target."""
    desk = _desk(request)
    try:
        name, kind = _name(request), kind_of(request)
        desk.targets.require_ready()
        async with desk.inbox.receive(request) as body:
            # Text becomes numbers in another thread: a long one must not keep others waiting.
            header = request.headers.get(ID_HEADER)
            posted = await asyncio.to_thread(desk.parser.parse, body, kind, header)
            del body
        answer = await desk.targets.take(name, posted)
    except (RequestError, OSError):
        desk.metrics.refused += 1
        raise
    desk.metrics.repeated += answer["repeated"]
    return reply(answer)


async def list_targets(request: Request) -> Response:
    """List all targets."""
    desk = _desk(request)
    desk.targets.require_ready()
    return reply({"targets": desk.lines()})


async def get_target(request: Request) -> Response:
    """Say all about a target."""
    name = _name(request)
    found = await _desk(request).describe(name, report=True)
    if found is None:
        _desk(request).targets.require_ready()
        raise RequestError(404, f"there is no target {name!r}: post rows to it, and there is")
    return reply(found)


async def delete_target(request: Request) -> Response:
    """Forget a target."""
    await _desk(request).targets.delete(_name(request))
    return Response(status_code=204)


async def get_picture(request: Request) -> Response:
    """Say what is drawn of a target."""
    return reply(await _desk(request).picture(_name(request), picture))


async def get_why(request: Request) -> Response:
    """Say why a recent row was called what it was."""
    name, text = _name(request), request.path_params["position"]
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise RequestError(422, "a position is a whole number, as in the predictions")
    found: Any = await _desk(request).targets.look(name, lambda session: explain(session, int(text)))
    if found is None:
        raise RequestError(404, f"row {int(text)} of {name} is not among the recent ones")
    return reply(found)


async def get_live(request: Request) -> Response:
    """Tell which targets change, as they do."""
    desk = _desk(request)
    desk.targets.require_ready()

    async def describe(name: str) -> dict[str, Any] | None:
        return desk.line(name)

    return _stream(desk.hub.listen(None, describe))


async def get_target_live(request: Request) -> Response:
    """Tell what comes of a target's rows, as they come."""
    desk, name = _desk(request), _name(request)
    desk.targets.require_ready()
    if desk.line(name) is None:
        raise RequestError(404, f"there is no target {name!r}: post rows to it, and there is")
    return _stream(desk.hub.listen(name, desk.describe))


def _stream(events: Any) -> Response:
    return StreamingResponse(events, media_type="text/event-stream")


async def get_metrics(request: Request) -> Response:
    """Return figures for Prometheus."""
    text = _desk(request).figures()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def get_health(_: Request) -> Response:
    """Say that the process is there."""
    return reply({"alive": True})


async def get_readiness(request: Request) -> Response:
    """Say whether requests are taken."""
    state = _desk(request).targets.state
    if state != "ready":
        return reply({"state": state, "error": f"the service is {state}"}, 503, {"Retry-After": "1"})
    return reply({"state": state})


async def get_description(request: Request) -> Response:
    """Return the description of this interface."""
    desk = _desk(request)
    return reply(description(desk.parser.n_columns, desk.parser.columns, desk.limits))


async def get_page(_: Request) -> Response:
    """Return the page."""
    return FileResponse(STATIC / "index.html", media_type="text/html")
