"""Parts of the reference that come from the code, as Markdown: commands, HTTP operations and metrics."""

import functools
import json
import re
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import click
from prometheus_client.parser import text_string_to_metric_families

from baryflow import OnlineDaDiL
from baryflow.cli import main
from baryflow.cli.metrics import RunMetrics
from baryflow.client import Client
from baryflow.datasets import make_domains
from baryflow.service import Limits, background, create_app

#: Words of a help text that are typed as they stand.
_TYPED = re.compile(
    r"(?<![\w`/])"
    r"(--[a-z][\w-]*|\w+=\w+|\w+_\w+|[a-z0-9.]+://[\w/:.]*\w|[a-z0-9.]+://|/[a-z]+\b|\.[a-z]{3,7}\b)"
)
#: Bounds of a number, as click writes them.
_BOUNDS = re.compile(r"(?:([\d.]+)<=)?x(?:(>=?|<=)([\d.]+))?")


def _escape(text: str) -> str:
    """Return text as Markdown, with what is typed as it stands as code."""
    parts = _TYPED.split(text)
    return "".join(
        f"`{part}`" if number % 2 else re.sub(r"([\\`*_\[\]<>|$])", r"\\\1", part)
        for number, part in enumerate(parts)
    )


# -- commands ------------------------------------------------------------------------------------------


def iterate_commands() -> Iterator[tuple[str, click.Context]]:
    """Yield the path of each command, such as ``tep publish``, with its context."""

    def walk(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Context]]:
        if not isinstance(command, click.Group):
            yield context.command_path.removeprefix("baryflow "), context
            return
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                inner = click.Context(found, context, name, **command.context_settings)
                inner.auto_envvar_prefix = f"{context.auto_envvar_prefix}_{name}".replace(
                    "-", "_"
                ).upper()
                yield from walk(found, inner)

    root = click.Context(main, info_name="baryflow", **main.context_settings)
    yield from walk(main, root)


def describe_command(path: str) -> str:
    """Return what ``--help`` shows of a command, as Markdown."""
    context = dict(iterate_commands())[path]
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = ["```text", usage, "```", ""]
    for paragraph in re.split(r"\n\s*\n", (command.help or "").replace("\b", "")):
        lines += [_escape(" ".join(paragraph.split())), ""]
    lines += ["```sh", command.example, "```", "", f"````{{program}} {context.command_path}", "````", ""]
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            lines += _describe_option(option, context)
    return "\n".join(lines)


def _describe_option(option: click.Option, context: click.Context) -> list[str]:
    record = option.get_help_record(context)
    if record is None:
        return []
    metavar = option.make_metavar(context).removesuffix(" RANGE")
    value = "" if option.is_flag else f" {metavar}"
    names = ", ".join(f"{name}{value}" for name in (*option.opts, *option.secondary_opts))
    sentences = [_escape(record[1].partition("  [")[0])]
    extra = option.get_help_extra(context)
    if extra.get("required"):
        sentences.append("Required.")
    if "range" in extra:
        sentences.append(_describe_bounds(extra["range"]))
    default = re.search(r"  \[default: (.*?)[\];]", record[1])
    if default:
        sentences.append(f"Default: {_escape(default[1])}.")
    return [f"````{{option}} {names}", "", " ".join(sentences), "````", ""]


def _describe_bounds(written: str) -> str:
    low, sign, bound = _BOUNDS.fullmatch(written).groups()  # type: ignore[union-attr]
    if low is not None:
        return f"From {low} to {bound}."
    return {">=": f"At least {bound}.", ">": f"More than {bound}.", "<=": f"At most {bound}."}[sign]


# -- the service ---------------------------------------------------------------------------------------


@functools.cache
def _ask_service() -> tuple[dict[str, Any], str]:
    """Return the OpenAPI document and the metrics of a service that has one target."""
    domains = make_domains(n_sources=2, n_classes=2, n_per_class=20, random_state=0)
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    model.fit(domains.X, domains.y, sample_domain=domains.domain)
    app = create_app(model, limits=Limits(target_metrics=1))
    with background(app) as url, Client(url) as client:
        client.send("target", domains.X_target[:32])
        found = []
        for path in ("/openapi.json", "/metrics"):
            with urllib.request.urlopen(url + path) as answer:  # noqa: S310 - our own service
                found.append(answer.read().decode())
    return json.loads(found[0]), found[1]


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield method, path and description of each operation."""
    document, _ = _ask_service()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method != "parameters":
                yield method.upper(), path, operation


def _common_errors() -> dict[str, str]:
    """Return the errors that every operation has in common."""
    found = [
        {code: one["description"] for code, one in operation["responses"].items() if code >= "400"}
        for _, _, operation in _operations()
    ]
    return {code: text for code, text in found[0].items() if all(one.get(code) == text for one in found)}


def describe_operations() -> str:
    """Return the operations of the service, as Markdown."""
    common = _common_errors()
    lines: list[str] = []
    for method, path, operation in _operations():
        lines += [
            f"(http-{operation['operationId'].replace('_', '-')})=",
            f"````{{describe}} {method} {path}",
            "",
            _escape(operation["summary"]),
            "",
        ]
        for one in operation.get("parameters", ()):
            name = f"Parameter `?{one['name']}=`" if one["in"] == "query" else f"Header `{one['name']}`"
            lines += [f"- {name}: {_escape(one.get('description') or _type(one['schema']))}"]
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]
            others = ", ".join(f"`{kind}`" for kind in content if kind != "application/json")
            lines += [
                f"- Body: {_type(content['application/json']['schema'])}{others and f'; or {others}'}"
            ]
        for code, one in operation["responses"].items():
            if code < "400":
                kinds = [
                    _type(content["schema"]) if kind == "application/json" else f"`{kind}`"
                    for kind, content in one.get("content", {}).items()
                ]
                lines += [f"- {code}: {', '.join(kinds) or 'no content'}"]
            elif code not in common:
                lines += [f"- {code}: {_escape(one['description'])}"]
        lines += ["````", ""]
    return "\n".join(lines)


def describe_errors() -> str:
    """Return the errors that every operation may answer with, as Markdown."""
    rows = [f"| {code} | {_escape(text)} |" for code, text in _common_errors().items()]
    return "\n".join(["| status | meaning |", "|---|---|", *rows])


def describe_schemas() -> str:
    """Return the fields of requests and answers, as Markdown."""
    document, _ = _ask_service()
    lines: list[str] = []
    for name, schema in document["components"]["schemas"].items():
        if "properties" not in schema:
            continue  # a row: the page describes its forms
        required = schema.get("required", ())
        lines += [f"(schema-{name.lower()})=", f"````{{describe}} {name}", ""]
        lines += ["| field | type | |", "|---|---|---|"]
        for field, one in schema["properties"].items():
            text = _escape(one.get("description", ""))
            optional = "" if field in required else "*optional* "
            lines += [f"| `{field}` | {_type(one)} | {optional}{text} |"]
        lines += ["````", ""]
    return "\n".join(lines)


def _type(schema: dict[str, Any]) -> str:
    """Return the type of a value in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return "row" if name == "Row" else f"[{name}](#schema-{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "anyOf" in schema and "properties" not in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    kinds = schema.get("type", "object")
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if "array" in kinds and "items" in schema:
        kinds[kinds.index("array")] = f"list of {_type(schema['items'])}"
    if "object" in kinds and "properties" in schema:
        kinds[kinds.index("object")] = (
            f"object of {', '.join(f'`{name}`' for name in schema['properties'])}"
        )
    return " or ".join(kinds)


# -- metrics -------------------------------------------------------------------------------------------


def describe_metrics(command: str) -> str:
    """Return the metrics of ``run`` or ``serve``, as Markdown."""
    if command == "serve":
        families = list(text_string_to_metric_families(_ask_service()[1]))
    else:
        metrics = RunMetrics(None)
        metrics.last_row = time.monotonic()
        families = list(metrics.collect())
    rows = []
    for family in families:
        if family.name.startswith("baryflow"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            rows += [f"| `{name}` | {family.type} | {_escape(family.documentation)} |"]
    return "\n".join(["| metric | type | meaning |", "|---|---|---|", *rows])
