"""The HTTP routes. To add one, write its handler, with a line that begins with ``@_route``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from baryflow.alarms.machine import ACTIONS
from baryflow.service.errors import RequestError, no_target
from baryflow.service.openapi import Handler, Operation, Schema, document, reference
from baryflow.service.parsing import ID_HEADER, JSON, content_type, to_json
from baryflow.service.targets import Targets
from baryflow.validation import TARGET_NAME, is_target_name

STATIC = Path(__file__).parent / "static"
#: The most digits of a row's position.
_DIGITS = 15
#: The most rows that a query returns.
_ASKED = 100


def reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response. Bytes are sent unchanged: they are JSON already."""
    if not isinstance(content, bytes):
        content = to_json(content)
    return Response(content, status, headers, media_type=JSON)


_TARGET = "/v1/targets/{name}"
_NAME_ERRORS = {"404": "The target does not exist.", "422": "The name is invalid."}
_LABELS_ERRORS = _NAME_ERRORS | {
    "400": "The body is not JSON.",
    "408": "The body arrived too slowly.",
    "413": "The body has too many bytes or labels.",
    "415": "The content type is not supported.",
    "422": "A label, the name or the id is invalid; nothing was stored.",
    "429": "Too many requests are waiting.",
}
_ALARM_ERRORS = _LABELS_ERRORS | {
    "409": "The command cannot be carried out: the class has no such alarm, or alarms are off.",
    "413": "The body has too many bytes.",
    "422": "A field or the name is invalid.",
}
_ROWS_ERRORS = {code: text for code, text in _LABELS_ERRORS.items() if code != "404"} | {
    "400": "The body is not what its content type says.",
    "409": "There are too many targets, or the columns differ from the model's.",
    "413": "The body has too many bytes or rows.",
    "422": "A row, the name or the batch id is invalid; nothing was stored.",
}
_FULL = {"429": "Too many clients are connected to live updates."}
_OBJECT: Schema = {"type": "object"}
_TEXT: Schema = {"type": "string"}
#: Every route, with its entry in the OpenAPI document.
OPERATIONS: list[Operation] = []


def _route(
    method: str, path: str, schema: str | Schema | None = None, **options: Any
) -> Callable[[Handler], Handler]:
    """Add a handler to the routes.

    Its name is the id of the operation, the first line of its docstring the summary; `schema` is that of
    the answer, or the name of one, and the options are those of an :class:`Operation`.
    """

    def add(handler: Handler) -> Handler:
        found = reference(schema) if isinstance(schema, str) else schema
        OPERATIONS.append(Operation(method, path, handler, found, **options))
        return handler

    return add


def _targets(request: Request) -> Targets:
    targets: Targets = request.app.state.service
    return targets


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if not is_target_name(name):
        raise RequestError(
            422,
            "invalid target name: use at most 128 letters, digits and . _ : @ -, starting with a letter "
            f"or digit ({TARGET_NAME})",
        )
    return name


def _number(text: str, least: int, most: int, what: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS and least <= int(text) <= most:
        return int(text)
    raise RequestError(422, f"{what} must be a whole number from {least} to {most}")


async def _change(request: Request, what: str, kind: str = "") -> Response:
    """Send the body of a request to the worker of its target."""
    targets, name = _targets(request), _name(request)
    kind = kind or content_type(request, rows=what == "rows")
    targets.require_ready()
    async with targets.inbox.receive(request) as body:
        return reply(await targets.change(what, name, body, kind, request.headers.get(ID_HEADER)))


async def _learn(request: Request, what: str) -> Response:
    try:
        return await _change(request, what)
    except RequestError:
        _targets(request).metrics.counters["refused"].inc()
        raise


@_route("POST", f"{_TARGET}/rows", "Answer", errors=_ROWS_ERRORS, body="Rows")
async def post_rows(request: Request) -> Response:
    """Predict rows of a target, then learn from them; a new name creates a target."""
    return await _learn(request, "rows")


@_route("POST", f"{_TARGET}/labels", "LabelAnswer", errors=_LABELS_ERRORS, body="Labels")
async def post_labels(request: Request) -> Response:
    """Learn labels of rows of a target."""
    return await _learn(request, "labels")


@_route("POST", f"{_TARGET}/baseline", "LabelAnswer", errors=_LABELS_ERRORS, body="Baseline")
async def post_baseline(request: Request) -> Response:
    """Learn how a target is calibrated from rows that are known to be of one class."""
    return await _learn(request, "baseline")


@_route("GET", f"{_TARGET}/alarms", "Alarms", errors=_NAME_ERRORS)
async def get_alarms(request: Request) -> Response:
    """List the alarms of a target, the most urgent first."""
    return reply(await _targets(request).view(_name(request), "alarms"))


@_route("POST", f"{_TARGET}/alarms/{{action}}", "AlarmAnswer", errors=_ALARM_ERRORS, body="Command")
async def post_alarm(request: Request) -> Response:
    """Acknowledge, shelve, unshelve, suppress or unsuppress an alarm of a target."""
    action = request.path_params["action"]
    if action not in ACTIONS:
        raise RequestError(404, f"no action {action!r}: the actions are {', '.join(ACTIONS)}")
    content_type(request, rows=False)
    return await _change(request, "command", action)


@_route(
    "GET",
    f"{_TARGET}/query",
    "Query",
    errors=_NAME_ERRORS | {"422": "The name or the number is invalid."},
    query={"n": {"type": "integer", "minimum": 1, "maximum": _ASKED, "default": 10}},
)
async def get_query(request: Request) -> Response:
    """Return the recent rows of a target that are most worth a label."""
    n = _number(request.query_params.get("n", "10"), 1, _ASKED, "n")
    return reply(await _targets(request).view(_name(request), "query", n))


@_route("GET", "/v1/targets", "Targets")
async def list_targets(request: Request) -> Response:
    """List all targets with a summary of each, and whether the token only allows reading."""
    targets = _targets(request)
    targets.require_ready()
    read_only = getattr(request.state, "read_only", False)
    found = [targets.entry(name) for name in sorted(targets.summaries)]
    return reply({"targets": found, "read_only": read_only})


@_route("GET", _TARGET, "TargetDetail", errors=_NAME_ERRORS)
async def get_target(request: Request) -> Response:
    """Describe a target in detail, with a report."""
    name = _name(request)
    found = await _targets(request).describe(name, "report")
    if found is None:
        raise no_target(name)
    return reply(found)


@_route("DELETE", _TARGET, None, errors=_NAME_ERRORS)
async def delete_target(request: Request) -> Response:
    """Delete a target and everything learned from it."""
    await _targets(request).change("delete", _name(request))
    return Response(status_code=204)


@_route("GET", f"{_TARGET}/view", _OBJECT, errors=_NAME_ERRORS)
async def get_view(request: Request) -> Response:
    """Return the data that the live page draws of a target."""
    return reply(await _targets(request).shared_view(_name(request), "picture"))


@_route("GET", f"{_TARGET}/why/{{position}}", _OBJECT, errors=_NAME_ERRORS)
async def get_why(request: Request) -> Response:
    """Explain the prediction for a recent row."""
    name = _name(request)
    position = _number(request.path_params["position"], 0, 10**_DIGITS - 1, "the position")
    found = await _targets(request).view(name, "why", position)
    if found == b"null":
        raise RequestError(404, f"row {position} of {name} is not among its recent rows")
    return reply(found)


@_route("GET", "/v1/live", _TEXT, errors=_FULL, media_type="text/event-stream")
async def get_live(request: Request) -> Response:
    """Stream the summaries of targets as they change, as server-sent events."""
    targets = _targets(request)
    targets.require_ready()

    async def describe(name: str) -> dict[str, Any] | None:
        return targets.entry(name)

    return _stream(targets.hub.listen(None, describe))


@_route("GET", f"{_TARGET}/live", _TEXT, errors=_NAME_ERRORS | _FULL, media_type="text/event-stream")
async def get_target_live(request: Request) -> Response:
    """Stream the predictions and events of a target, as server-sent events."""
    targets, name = _targets(request), _name(request)
    targets.require_ready()
    if name not in targets.summaries:
        raise no_target(name)
    return _stream(targets.hub.listen(name, targets.describe))


def _stream(events: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream")


@_route("GET", "/metrics", _TEXT, media_type="text/plain")
async def get_metrics(request: Request) -> Response:
    """Return metrics in the Prometheus text format."""
    text = generate_latest(_targets(request).metrics.registry)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@_route("GET", "/healthz", _OBJECT, is_open=True)
async def get_health(_: Request) -> Response:
    """Return 200 while the process runs."""
    return reply({"alive": True})


@_route("GET", "/readyz", _OBJECT, is_open=True)
async def get_readiness(request: Request) -> Response:
    """Return 200 if the service accepts requests, else 503."""
    state = _targets(request).state
    if state != "ready":
        return reply({"state": state, "error": f"the service is {state}"}, 503, {"Retry-After": "1"})
    return reply({"state": state})


@_route("GET", "/openapi.json", _OBJECT, is_open=True, is_listed=False)
async def get_description(request: Request) -> Response:
    """Return the OpenAPI document."""
    return reply(document(OPERATIONS, _targets(request).parser))


@_route("GET", "/", _OBJECT, is_open=True, is_listed=False)
async def get_page(_: Request) -> Response:
    """Return the live page."""
    return FileResponse(STATIC / "index.html", media_type="text/html")


def routes() -> list[BaseRoute]:
    """Return the routes that require the token, if there is one."""
    return [Route(one.path, one.endpoint, methods=[one.method]) for one in OPERATIONS if not one.is_open]


def open_routes() -> list[BaseRoute]:
    """Return the routes without a token: health checks, the OpenAPI document and the page's files."""
    files = Mount("/static", StaticFiles(directory=STATIC, check_dir=False), name="static")
    found = [Route(one.path, one.endpoint, methods=[one.method]) for one in OPERATIONS if one.is_open]
    return [*found, files]
