"""The OpenAPI document of the service, for one model and its limits.

Paths come from the table of operations in :mod:`baryflow.service.routes`. The schemas of requests are
made from the types by which they are parsed, those of answers from the types below.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, defstruct
from msgspec.json import schema_components
from starlette.requests import Request
from starlette.responses import Response

from baryflow.alarms import PRIORITIES
from baryflow.alarms.machine import ACTIONS
from baryflow.service.binary import ARROW, NPY
from baryflow.service.parsing import (
    BATCH_ID,
    ID_HEADER,
    JSON,
    NDJSON,
    TIME_LENGTH,
    Baseline,
    Command,
    Labels,
    Parser,
)
from baryflow.validation import LARGEST, TARGET_NAME

Schema = dict[str, Any]
Handler = Callable[[Request], Awaitable[Response]]
_REFERENCE = "#/components/schemas/{name}"

# -- answers -----------------------------------------------------------------------------------------


def _about(kind: Any, text: str) -> Any:
    return Annotated[kind, Meta(description=text)]


def _object(name: str, fields: dict[str, Any], optional: dict[str, Any] | None = None) -> Any:
    """Return the type of an object with required and optional fields; ``[kind]`` is a list."""
    found: list[Any] = []
    for field_name, kind in (fields | (optional or {})).items():
        read = list[kind[0]] if isinstance(kind, list) else kind  # type: ignore[valid-type]
        found.append((field_name, read) if field_name in fields else (field_name, read, UNSET))
    return defstruct(name, found, kw_only=True)


_COUNT = Annotated[int, Meta(ge=0)]
_POSITION = Annotated[int, Meta(ge=1)]
_SHARE = Annotated[float, Meta(ge=0, le=1)]
_CHANGE = Annotated[float, Meta(ge=-1, le=1)]
_SECONDS = Annotated[float, Meta(ge=0)]
_CLASS = str | float | bool | None
_PRIORITY = Annotated[str, Meta(extra_json_schema={"enum": list(PRIORITIES)})]

_ERROR = _object("Error", {"error": str})
_EVENT = _object("Event", {"event": str, "position": _COUNT, "message": str})
_PREDICTION = _object(
    "Prediction",
    {
        "position": _POSITION,
        "time": str,
        "label": _CLASS,
        "probability": _SHARE,
        "novelty": float,
    },
    optional={"reliability": _SHARE, "rows_seen": _COUNT},
)
_QUARANTINED = "Rows quarantined because the model failed on them; events give the reasons."
_REPEATED = "The batch was accepted before; the answer holds what is still known of it."
_ANSWER = _object(
    "Answer",
    {
        "target": str,
        "batch_id": str | None,
        "rows": _COUNT,
        "first": _POSITION,
        "last": _POSITION,
        "quarantined": _about(_COUNT, _QUARANTINED),
        "repeated": _about(bool, _REPEATED),
        "predictions": [_PREDICTION],
        "events": [_EVENT],
    },
)
_CERTIFICATE = _object(
    "Certificate",
    {
        "labels": _about(_COUNT, "Labels of rows chosen at random."),
        "accuracy": _SHARE | None,
        "advantage": _CHANGE | None,
        "harm": _about(bool, "Adapting was shown to be worse."),
        "sentences": [str],
    },
)
_REJECTED = _object("Rejected", {"position": int | None, "time": str | None, "reason": str})
_LABEL_ANSWER = _object(
    "LabelAnswer",
    {
        "target": str,
        "id": str | None,
        "learned": _COUNT,
        "pending": _about(_COUNT, "Labels of rows that are not learned from yet."),
        "rejected": [_REJECTED],
        "repeated": _about(bool, "The labels were accepted before."),
        "classes": [str],
        "certificate": _CERTIFICATE,
        "events": [_EVENT],
    },
)
_ASKED = _object(
    "Asked",
    {
        "position": _POSITION,
        "time": str,
        "label": _CLASS,
        "probability": _SHARE,
        "novelty": _SHARE,
        "values": [float | None],
    },
)
_QUERY = _object("Query", {"rows": [_ASKED]})
_ALARM_SUMMARY = _object(
    "AlarmSummary",
    {
        **dict.fromkeys(("active", "unacknowledged", "shelved", "suppressed"), _COUNT),
        "priority": _PRIORITY | None,
        "flood": bool,
    },
)
_CASE = _object("Case", {"class": str, "source": str | None, "distance": float})
_COLUMN = _object(
    "Column", {"name": str, **dict.fromkeys(("value", "usual", "rival", "share"), float | None)}
)
_EVIDENCE = _object(
    "Evidence", {}, optional={"cases": [_CASE], "compared_with": str | None, "columns": [_COLUMN]}
)
_STATES = ("normal", "unacknowledged", "acknowledged", "returned", "reclassified", "shelved")
_ALARM = _object(
    "Alarm",
    {
        "alarm": _about(str, "The class."),
        "number": _about(_COUNT, "Counts the alarms of the target; 0: there was none."),
        "priority": _PRIORITY,
        "state": Annotated[str, Meta(extra_json_schema={"enum": [*_STATES, "suppressed"]})],
        "active": bool,
        "acknowledged": bool,
        "occurrences": _COUNT,
        "chattering": bool,
        "since_row": _COUNT,
        "since": _about(str, "Time of the row that raised it."),
        "cleared": str | None,
        "probability": _SHARE,
        "by": str,
        "comment": str,
        "shelved_for": _about(str | None, "What is left, such as 300 s."),
        "evidence": _EVIDENCE,
    },
)
_ALARMS = {"enabled": bool, "summary": _ALARM_SUMMARY | None, "alarms": [_ALARM]}
_TARGET = {
    "name": str,
    "rows_seen": _about(_COUNT, "Rows acknowledged."),
    "rows_learned": _about(_COUNT, "Rows that the model has learned from."),
    "reliability": _about(_SHARE, "Estimated accuracy for the last batch."),
    "coverage": _about(_SHARE, "Share of the classes that were seen."),
    "novelty": _about(_SHARE, "Share of novel rows in the last batch."),
    "n_labels": _about(_COUNT, "Labels accepted."),
    "n_baseline_rows": _about(_COUNT, "Rows known to be of one class."),
    "n_commands": _about(_COUNT, "Commands about alarms."),
    "certified_accuracy": _about(_SHARE | None, "Lower bound that labels prove."),
    "new_classes": _about(list[str], "Classes that no source has."),
    "nearest": _about(str | None, "The source it resembles most."),
    "last_label": _CLASS,
    "last_time": str | None,
    "drifts": _COUNT,
    "alarms": _about(_ALARM_SUMMARY | None, "None if alarms are off."),
    "state": Literal["in memory", "on disk"],
    "rows_per_second": float,
    "seconds_since_rows": _about(_SECONDS | None, "None: no rows since the service started."),
    "seconds_between_rows": _about(_SECONDS | None, "The longest lately between two requests."),
}
_DETAIL = {
    "resemblance": dict[str, float | None],
    "proportions": dict[str, float | None],
    "classes": [str],
    "certificate": _CERTIFICATE,
    "sources": [str],
    "columns": list[str] | None,
    "report": str,
}
_ANSWERS = [
    *(_ERROR, _ANSWER, _LABEL_ANSWER, _QUERY),
    _object("Alarms", _ALARMS),
    _object("AlarmAnswer", {"target": str, "events": [dict[str, Any]]} | _ALARMS),
    _object("Targets", {"targets": [_object("Target", _TARGET)], "read_only": bool}),
    _object("TargetDetail", _TARGET | _DETAIL),
]

# -- the document ------------------------------------------------------------------------------------

_NUMBER: Schema = {"type": ["number", "null"], "minimum": -LARGEST, "maximum": LARGEST}
_TEXT: Schema = {"type": "string"}
_ID: Schema = {"type": "string", "pattern": f"^{BATCH_ID}$"}
_TIME: Schema = {"type": "string", "maxLength": TIME_LENGTH}
#: Schemas of the parameters in paths.
_PARAMETERS: dict[str, Schema] = {
    "name": {"type": "string", "pattern": f"^{TARGET_NAME}$"},
    "position": {"type": "integer", "minimum": 0, "maximum": 10**15 - 1},
    "action": {"enum": list(ACTIONS)},
}
#: Errors of every route.
_ERRORS = {
    "400": "The request is malformed.",
    "401": "The token is missing or wrong.",
    "403": "The token is read-only; without a token: the request comes from another origin.",
    "421": "Without a token: the Host header holds neither a local name nor an IP address.",
    "503": "The journal is being replayed, or the service is stopping.",
    "507": "The disk is full, or the state folder cannot be written.",
}


@dataclass(frozen=True)
class Operation:
    """One method of one path: its handler, and what the OpenAPI document says beside the docstring."""

    method: str
    path: str
    endpoint: Handler
    schema: Schema | None  # None: no content
    errors: dict[str, str] = field(default_factory=dict)
    media_type: str = JSON
    body: str = ""  # "Rows", "Labels", or "" if it takes none
    query: dict[str, Schema] = field(default_factory=dict)  # parameters after the question mark
    is_open: bool = False  # needs no token
    is_listed: bool = True  # in the OpenAPI document


def document(operations: Sequence[Operation], parser: Parser) -> Schema:
    """Return the OpenAPI document."""
    paths: dict[str, Schema] = {}
    for one in operations:
        if one.is_listed:
            paths.setdefault(one.path, {})[one.method.lower()] = _describe(one)
    for path, methods in paths.items():
        names = re.findall(r"{(\w+)}", path)
        if names:
            methods["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": _PARAMETERS[name]}
                for name in names
            ]
    _, answers = schema_components(_ANSWERS, ref_template=_REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "baryflow",
            "version": "1",
            "description": "Many targets, each with its own copy of one fitted model.",
        },
        "security": [{}, {"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Row": _row(parser), "Rows": _rows(parser), **_requests(parser), **answers},
        },
        "paths": paths,
    }


def _describe(operation: Operation) -> Schema:
    summary = (operation.endpoint.__doc__ or "").partition("\n")[0]
    responses: Schema = {"204": {"description": "Done."}}
    if operation.schema is not None:
        content = {operation.media_type: {"schema": operation.schema}}
        responses = {"200": {"description": "Success.", "content": content}}
    error = {"application/json": {"schema": reference("Error")}}
    for code, text in sorted((_ERRORS | operation.errors).items()):
        responses[code] = {"description": text, "content": error}
    found: Schema = {
        "operationId": operation.endpoint.__name__,
        "summary": summary,
        "responses": responses,
    }
    if operation.query:
        found["parameters"] = [
            {"name": name, "in": "query", "schema": schema} for name, schema in operation.query.items()
        ]
    if operation.body and operation.body != "Command":
        description = "The id of the batch, if the body has none."
        found["parameters"] = [
            {"name": ID_HEADER, "in": "header", "schema": _ID, "description": description}
        ]
    if operation.body:
        content = {JSON: {"schema": reference(operation.body)}}
        if operation.body == "Rows":
            content[NDJSON[0]] = {"schema": _TEXT | {"description": "One row per line."}}
            content[NPY] = {"schema": {"description": "An array of shape (rows, columns)."}}
            described = "An uncompressed stream of columns by name; `time`, if there is one, is text."
            content[ARROW] = {"schema": {"description": described}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def reference(name: str) -> Schema:
    """Return a reference to a schema of the document."""
    return {"$ref": _REFERENCE.format(name=name)}


def _row(parser: Parser) -> Schema:
    n, columns = parser.n_columns, parser.columns
    numbers = {"type": "array", "items": _NUMBER, "minItems": n, "maxItems": n}
    forms: list[Schema] = [numbers]
    time = {} if "time" in (columns or ()) else {"time": _TIME}
    if "values" not in (columns or ()):
        forms.append({"type": "object", "properties": {"values": numbers} | time})
        forms[-1]["required"] = ["values"]
    if columns is not None:
        forms.append({"type": "object", "properties": time | dict.fromkeys(columns, _NUMBER)})
    return {"anyOf": [forms[0], *(form | {"additionalProperties": False} for form in forms[1:])]}


def _rows(parser: Parser) -> Schema:
    names: Schema = {
        "type": ["array", "null"],
        "minItems": parser.n_columns,
        "maxItems": parser.n_columns,
        "items": _TEXT if parser.columns is None else {"enum": parser.columns},
        "uniqueItems": parser.columns is not None,
        "description": "Column names of rows that are lists, if their order differs from the model's.",
    }
    rows = {"type": "array", "items": reference("Row"), "minItems": 1, "maxItems": parser.max_rows}
    batch_id = _ID | {"type": ["string", "null"]}
    return {
        "type": "object",
        "properties": {"rows": rows, "columns": names, "batch_id": batch_id},
        "required": ["rows"],
        "additionalProperties": False,
    }


def _requests(parser: Parser) -> dict[str, Schema]:
    """Return the schemas of labels, baselines and commands: their types, and what depends on a model."""
    _, found = schema_components([Labels, Baseline, Command], ref_template=_REFERENCE)
    label, labels, baseline = found["GivenLabel"], found["Labels"], found["Baseline"]
    some: Schema = {"minItems": 1, "maxItems": parser.max_rows}
    row: Schema = {"minItems": parser.n_features, "maxItems": parser.n_features}
    labels["properties"]["labels"] |= some
    label["properties"]["values"]["anyOf"][0] |= row
    baseline["properties"]["positions"]["anyOf"][0] |= some
    rows = baseline["properties"]["rows"]["anyOf"][0]
    rows |= some | {"items": rows["items"] | row}
    label["anyOf"] = [_only([name], []) for name in ("position", "time", "values")]
    ways = ["rows"], ["positions"], ["from", "until"]
    baseline["anyOf"] = [
        _only(["label", *way], [name for other in ways if other != way for name in other])
        for way in ways
    ]
    return found


def _only(there: list[str], missing: list[str]) -> Schema:
    """Return the schema of an object that has some properties, and not others."""
    null = {"type": "null"}
    properties = {name: {"not": null} for name in there} | dict.fromkeys(missing, null)
    return {"required": there, "properties": properties}
