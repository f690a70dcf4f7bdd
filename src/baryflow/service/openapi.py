"""The description of the service's interface, written by hand and true for one model and its limits."""

from __future__ import annotations

from typing import Any

from baryflow.service.limits import BATCH_ID, NAME, TIME_LENGTH, Limits
from baryflow.validation import LARGEST

Schema = dict[str, Any]

_NUMBER: Schema = {"type": ["number", "null"], "minimum": -LARGEST, "maximum": LARGEST}
_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_ID: Schema = {"type": "string", "pattern": f"^{BATCH_ID}$"}
_TIME: Schema = {"type": "string", "maxLength": TIME_LENGTH}
_LABEL: Schema = {"type": ["string", "number", "boolean", "null"]}
_POSITION: Schema = {"type": "integer", "minimum": 1}
_SHARES: Schema = {"type": "object", "additionalProperties": {"type": "number"}}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
#: Answers that any route may give.
_REFUSALS = {
    "400": "The request is malformed.",
    "401": "The token is missing or wrong.",
    "403": "Without a token: the request comes from a page of another origin.",
    "421": "Without a token: the Host header holds neither localhost nor an IP address.",
    "503": "The journal is being replayed, or the service is stopping.",
    "507": "The disk is full, or the state folder cannot be written.",
}


def description(n_columns: int, columns: list[str] | None, limits: Limits) -> dict[str, Any]:
    """Return an OpenAPI description.

    Parameters
    ----------
    n_columns : int
    columns : list of str or None
    limits : Limits

    Returns
    -------
    dict
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "baryflow",
            "version": "1",
            "description": "Many targets, each followed by its own copy of one model.",
        },
        "security": [{}, {"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Error": _object({"error": _TEXT}),
                "Row": _row(n_columns, columns),
                "Rows": _rows(n_columns, columns, limits),
                "Prediction": _prediction(),
                "Answer": _answer(),
                "Target": _object(_line()),
                "TargetDetail": _object(_line() | _detail()),
            },
        },
        "paths": _paths(),
    }


def _paths() -> Schema:
    one, name = "/v1/targets/{name}", _parameter("name", {"type": "string", "pattern": f"^{NAME}$"})
    position = _parameter("position", {"type": "integer", "minimum": 0, "maximum": 10**15 - 1})
    wrong = {"404": "There is no such target.", "422": "The name cannot be one."}
    rows = {
        "operationId": "post_rows",
        "summary": "Take rows of a target: each is predicted, then learned from.",
        "parameters": [
            {"name": "Idempotency-Key", "in": "header", "schema": _ID,
             "description": "The id of the batch, if the body does not tell it."},
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": _reference("Rows")},
                "application/x-ndjson": {"schema": _TEXT | {"description": "A row on each line."}},
            },
        },
        "responses": _responses("What comes of them; they are in the log.", _reference("Answer"), {
            "400": "The body is not JSON.",
            "408": "The body came too slowly.",
            "409": "There are too many targets, or the columns are not those of the model.",
            "413": "The body has too many bytes or rows.",
            "415": "The body is not of a known type.",
            "422": "A row, the name or the id is invalid; nothing was taken.",
            "429": "Too many requests are waiting.",
        }),
    }  # fmt: skip
    some = {"type": "object"}
    return {
        f"{one}/rows": {"parameters": [name], "post": rows},
        "/v1/targets": {"get": _get("list_targets", "List all targets.", _object(
            {"targets": {"type": "array", "items": _reference("Target")}}))},
        one: {
            "parameters": [name],
            "get": _get("get_target", "Say all about a target.", _reference("TargetDetail"), wrong),
            "delete": {
                "operationId": "delete_target",
                "summary": "Forget a target.",
                "responses": {"204": {"description": "It is gone."}}
                | _refusals(wrong),
            },
        },
        f"{one}/picture": {"parameters": [name], "get": _get(
            "get_picture", "Say what is drawn of a target.", some, wrong)},
        f"{one}/why/{{position}}": {"parameters": [name, position], "get": _get(
            "get_why", "Say why a recent row was called what it was.", some, wrong)},
        f"{one}/live": {"parameters": [name], "get": _stream("get_target_live", wrong)},
        "/v1/live": {"get": _stream("get_live", {})},
        "/metrics": {"get": _text("get_metrics", "Figures for Prometheus.", "text/plain")},
        "/healthz": {"get": _get("get_health", "Say that the process is there.", some)},
        "/readyz": {"get": _get("get_readiness", "Say whether requests are taken.", some)},
    }  # fmt: skip


def _row(n_columns: int, columns: list[str] | None) -> Schema:
    numbers = {"type": "array", "items": _NUMBER, "minItems": n_columns, "maxItems": n_columns}
    forms = [numbers]
    if "values" not in (columns or ()):
        timed = {"values": numbers} | ({} if "time" in (columns or ()) else {"time": _TIME})
        forms.append(_object(timed) | {"required": ["values"], "additionalProperties": False})
    if columns is not None:
        named = {"time": _TIME} | dict.fromkeys(columns, _NUMBER)
        forms.append({"type": "object", "properties": named, "additionalProperties": False})
    return {"anyOf": forms}


def _rows(n_columns: int, columns: list[str] | None, limits: Limits) -> Schema:
    many = {"type": "array", "items": _reference("Row"), "minItems": 1, "maxItems": limits.rows}
    names: Schema = {
        "type": ["array", "null"], "minItems": n_columns, "maxItems": n_columns,
        "items": _TEXT if columns is None else {"enum": columns}, "uniqueItems": columns is not None,
        "description": "Names of the columns of rows that are lists, if they are in another order.",
    }  # fmt: skip
    found = _object({"rows": many, "columns": names, "batch_id": _ID | {"type": ["string", "null"]}})
    return found | {"required": ["rows"], "additionalProperties": False}


def _prediction() -> Schema:
    fields = {
        "position": _POSITION, "time": _TEXT, "label": _LABEL, "probability": _SHARE,
        "reliability": _SHARE, "novelty": {"type": "number"}, "rows_seen": _COUNT,
    }  # fmt: skip
    return _object(fields) | {"required": ["position", "time", "label", "probability", "novelty"]}


def _answer() -> Schema:
    event = {"event": _TEXT, "position": _POSITION, "message": _TEXT}
    return _object({
        "target": _TEXT,
        "batch_id": {"type": ["string", "null"]},
        "rows": _COUNT,
        "first": _POSITION,
        "last": _POSITION,
        "quarantined": _COUNT | {"description": "Rows on which the model failed; events say why."},
        "repeated": {"type": "boolean", "description": "Taken before; told again as far as known."},
        "predictions": {"type": "array", "items": _reference("Prediction")},
        "events": {"type": "array", "items": _object(event)},
    })  # fmt: skip


def _line() -> Schema:
    return {
        "name": _TEXT,
        "rows_seen": _COUNT | {"description": "Rows acknowledged."},
        "rows_learned": _COUNT | {"description": "... of them those that the model has learned from."},
        "reliability": _SHARE,
        "nearest": {"type": ["string", "null"]},
        "last_label": _LABEL,
        "last_time": {"type": ["string", "null"]},
        "drifts": _COUNT,
        "state": {"enum": ["in memory", "on disk"]},
        "rows_per_second": {"type": "number"},
    }


def _detail() -> Schema:
    return {
        "resemblance": _SHARES,
        "proportions": _SHARES,
        "classes": _TEXTS,
        "sources": _TEXTS,
        "columns": _TEXTS | {"type": ["array", "null"]},
        "report": _TEXT,
    }


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _parameter(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _get(name: str, words: str, schema: Schema, refusals: dict[str, str] | None = None) -> Schema:
    return {
        "operationId": name,
        "summary": words,
        "responses": _responses("Here.", schema, refusals or {}),
    }


def _stream(name: str, refusals: dict[str, str]) -> Schema:
    found = _text(name, "Tell what happens, as it does.", "text/event-stream")
    found["responses"] |= _refusals(refusals | {"429": "Too many are listening."})
    return found


def _text(name: str, words: str, kind: str) -> Schema:
    responses = {"200": {"description": "Here.", "content": {kind: {"schema": _TEXT}}}}
    return {"operationId": name, "summary": words, "responses": responses | _refusals({})}


def _responses(words: str, schema: Schema, refusals: dict[str, str]) -> Schema:
    found = {"200": {"description": words, "content": {"application/json": {"schema": schema}}}}
    return found | _refusals(refusals)


def _refusals(words: dict[str, str]) -> Schema:
    content = {"application/json": {"schema": _reference("Error")}}
    return {
        code: {"description": text, "content": content} for code, text in (_REFUSALS | words).items()
    }
