"""The OpenAPI document of the service, for one model and its limits.

Paths come from the table of operations in :mod:`baryflow.service.routes`; this module holds the schemas.
Those of labels, baselines and commands are made from the types by which they are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    Limits,
)
from baryflow.validation import LARGEST, TARGET_NAME

Schema = dict[str, Any]
_REFERENCE = "#/components/schemas/{name}"

_NUMBER: Schema = {"type": ["number", "null"], "minimum": -LARGEST, "maximum": LARGEST}
_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_ID: Schema = {"type": "string", "pattern": f"^{BATCH_ID}$"}
_TIME: Schema = {"type": "string", "maxLength": TIME_LENGTH}
_LABEL: Schema = {"type": ["string", "number", "boolean", "null"]}
_POSITION: Schema = {"type": "integer", "minimum": 1}
_SHARES: Schema = {"type": "object", "additionalProperties": {"type": ["number", "null"]}}
_SECONDS: Schema = {"type": ["number", "null"], "minimum": 0}
_SOME_SHARE: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_ALARM_SUMMARY: Schema = {
    "type": ["object", "null"],
    "properties": {
        **dict.fromkeys(("active", "unacknowledged", "shelved", "suppressed"), _COUNT),
        "priority": {"enum": [*PRIORITIES, None]},
        "flood": {"type": "boolean"},
    },
    "required": ["active", "unacknowledged", "shelved", "suppressed", "priority", "flood"],
}
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
    endpoint: Callable[[Request], Awaitable[Response]]
    schema: Schema | None = field(default_factory=lambda: {"type": "object"})  # None: no content
    errors: dict[str, str] = field(default_factory=dict)
    media_type: str = JSON
    body: str = ""  # "Rows", "Labels", or "" if it takes none
    query: dict[str, Schema] = field(default_factory=dict)  # parameters after the question mark
    is_open: bool = False  # needs no token
    is_listed: bool = True  # in the OpenAPI document


def document(
    operations: Sequence[Operation],
    n_columns: int,
    columns: list[str] | None,
    n_features: int,
    limits: Limits,
) -> Schema:
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
            "schemas": {
                "Error": object_schema({"error": _TEXT}),
                "Row": _row(n_columns, columns),
                "Rows": _rows(n_columns, columns, limits),
                "LabelAnswer": _label_answer(),
                "Query": _query(),
                "Certificate": _certificate(),
                "Alarms": object_schema(_alarms()),
                "AlarmAnswer": object_schema(
                    {"target": _TEXT, "events": {"type": "array", "items": {"type": "object"}}}
                    | _alarms()
                ),
                "Prediction": _prediction(),
                "Answer": _answer(),
                "Target": object_schema(_summary()),
                "TargetDetail": object_schema(_summary() | _detail()),
                **_requests(n_features, limits),
            },
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
    for code, text in (_ERRORS | operation.errors).items():
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


def object_schema(properties: Schema) -> Schema:
    """Return the schema of an object with required properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def reference(name: str) -> Schema:
    """Return a reference to a schema of the document."""
    return {"$ref": _REFERENCE.format(name=name)}


def _row(n_columns: int, columns: list[str] | None) -> Schema:
    numbers = {"type": "array", "items": _NUMBER, "minItems": n_columns, "maxItems": n_columns}
    forms = [numbers]
    if "values" not in (columns or ()):
        timed = {"values": numbers} | ({} if "time" in (columns or ()) else {"time": _TIME})
        forms.append(object_schema(timed) | {"required": ["values"], "additionalProperties": False})
    if columns is not None:
        named = {"time": _TIME} | dict.fromkeys(columns, _NUMBER)
        forms.append({"type": "object", "properties": named, "additionalProperties": False})
    return {"anyOf": forms}


def _rows(n_columns: int, columns: list[str] | None, limits: Limits) -> Schema:
    names: Schema = {
        "type": ["array", "null"],
        "minItems": n_columns,
        "maxItems": n_columns,
        "items": _TEXT if columns is None else {"enum": columns},
        "uniqueItems": columns is not None,
        "description": "Column names of rows that are lists, if their order differs from the model's.",
    }
    rows = {"type": "array", "items": reference("Row"), "minItems": 1, "maxItems": limits.rows}
    batch_id = _ID | {"type": ["string", "null"]}
    found = object_schema({"rows": rows, "columns": names, "batch_id": batch_id})
    return found | {"required": ["rows"], "additionalProperties": False}


def _requests(n_features: int, limits: Limits) -> dict[str, Schema]:
    """Return the schemas of labels, baselines and commands: their types, and what depends on a model."""
    _, found = schema_components([Labels, Baseline, Command], ref_template=_REFERENCE)
    label, labels, baseline = found["GivenLabel"], found["Labels"], found["Baseline"]
    some: Schema = {"minItems": 1, "maxItems": limits.rows}
    row: Schema = {"minItems": n_features, "maxItems": n_features}
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


def _label_answer() -> Schema:
    rejected = {
        "position": {"type": ["integer", "null"]},
        "time": {"type": ["string", "null"]},
        "reason": _TEXT,
    }
    event = object_schema({"event": _TEXT, "position": _COUNT, "message": _TEXT})
    return object_schema(
        {
            "target": _TEXT,
            "id": {"type": ["string", "null"]},
            "learned": _COUNT,
            "pending": _COUNT | {"description": "Labels of rows that are not learned from yet."},
            "rejected": {"type": "array", "items": object_schema(rejected)},
            "repeated": {"type": "boolean", "description": "The labels were accepted before."},
            "classes": _TEXTS,
            "certificate": reference("Certificate"),
            "events": {"type": "array", "items": event},
        }
    )


def _certificate() -> Schema:
    return object_schema(
        {
            "labels": _COUNT | {"description": "Labels of rows chosen at random."},
            "accuracy": _SOME_SHARE,
            "advantage": {"type": ["number", "null"], "minimum": -1, "maximum": 1},
            "harm": {"type": "boolean", "description": "Adapting was shown to be worse."},
            "sentences": _TEXTS,
        }
    )


def _alarms() -> Schema:
    case = {"class": _TEXT, "source": {"type": ["string", "null"]}, "distance": {"type": "number"}}
    number: Schema = {"type": ["number", "null"]}
    column = {"name": _TEXT, "value": number, "usual": number, "rival": number, "share": number}
    evidence = {
        "cases": {"type": "array", "items": object_schema(case)},
        "compared_with": {"type": ["string", "null"]},
        "columns": {"type": "array", "items": object_schema(column)},
    }
    alarm = {
        "alarm": _TEXT | {"description": "The class."},
        "number": _COUNT | {"description": "Counts the alarms of the target; 0: there was none."},
        "priority": {"enum": list(PRIORITIES)},
        "state": {
            "enum": [
                *("normal", "unacknowledged", "acknowledged", "returned", "reclassified"),
                *("shelved", "suppressed"),
            ]
        },
        "active": {"type": "boolean"},
        "acknowledged": {"type": "boolean"},
        "occurrences": _COUNT,
        "chattering": {"type": "boolean"},
        "since_row": _COUNT,
        "since": _TEXT | {"description": "Time of the row that raised it."},
        "cleared": {"type": ["string", "null"]},
        "probability": _SHARE,
        "by": _TEXT,
        "comment": _TEXT,
        "shelved_for": {"type": ["string", "null"], "description": "What is left, such as 300 s."},
        "evidence": {"type": "object", "properties": evidence},
    }
    return {
        "enabled": {"type": "boolean"},
        "summary": _ALARM_SUMMARY,
        "alarms": {"type": "array", "items": object_schema(alarm)},
    }


def _query() -> Schema:
    row = {
        "position": _POSITION,
        "time": _TEXT,
        "label": _LABEL,
        "probability": _SHARE,
        "novelty": _SHARE,
        "values": {"type": "array", "items": _NUMBER},
    }
    return object_schema({"rows": {"type": "array", "items": object_schema(row)}})


def _prediction() -> Schema:
    required = {
        "position": _POSITION,
        "time": _TEXT,
        "label": _LABEL,
        "probability": _SHARE,
        "novelty": {"type": "number"},
    }
    found = object_schema(required)
    found["properties"] = required | {"reliability": _SHARE, "rows_seen": _COUNT}
    return found


def _answer() -> Schema:
    event = object_schema({"event": _TEXT, "position": _POSITION, "message": _TEXT})
    quarantined = "Rows quarantined because the model failed on them; events give the reasons."
    repeated = "The batch was accepted before; the answer holds what is still known of it."
    return object_schema(
        {
            "target": _TEXT,
            "batch_id": {"type": ["string", "null"]},
            "rows": _COUNT,
            "first": _POSITION,
            "last": _POSITION,
            "quarantined": _COUNT | {"description": quarantined},
            "repeated": {"type": "boolean", "description": repeated},
            "predictions": {"type": "array", "items": reference("Prediction")},
            "events": {"type": "array", "items": event},
        }
    )


def _summary() -> Schema:
    return {
        "name": _TEXT,
        "rows_seen": _COUNT | {"description": "Rows acknowledged."},
        "rows_learned": _COUNT | {"description": "Rows that the model has learned from."},
        "reliability": _SHARE | {"description": "Estimated accuracy for the last batch."},
        "coverage": _SHARE | {"description": "Share of the classes that were seen."},
        "novelty": _SHARE | {"description": "Share of novel rows in the last batch."},
        "n_labels": _COUNT | {"description": "Labels accepted."},
        "n_baseline_rows": _COUNT | {"description": "Rows known to be of one class."},
        "n_commands": _COUNT | {"description": "Commands about alarms."},
        "certified_accuracy": _SOME_SHARE | {"description": "Lower bound that labels prove."},
        "new_classes": _TEXTS | {"description": "Classes that no source has."},
        "nearest": {"type": ["string", "null"], "description": "The source it resembles most."},
        "last_label": _LABEL,
        "last_time": {"type": ["string", "null"]},
        "drifts": _COUNT,
        "alarms": _ALARM_SUMMARY | {"description": "None if alarms are off."},
        "state": {"enum": ["in memory", "on disk"]},
        "rows_per_second": {"type": "number"},
        "seconds_since_rows": _SECONDS | {"description": "None: no rows since the service started."},
        "seconds_between_rows": _SECONDS | {"description": "The longest lately between two requests."},
    }


def _detail() -> Schema:
    return {
        "resemblance": _SHARES,
        "proportions": _SHARES,
        "classes": _TEXTS,
        "certificate": reference("Certificate"),
        "sources": _TEXTS,
        "columns": _TEXTS | {"type": ["array", "null"]},
        "report": _TEXT,
    }
