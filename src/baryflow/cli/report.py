"""``baryflow report``: what a model has learned and decided, as text or as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from baryflow.cli.console import echo, report_errors
from baryflow.cli.options import Command, OutputFile, existing_file, expect_bary, protect_inputs
from baryflow.estimators._adapter import Adapter
from baryflow.exceptions import InvalidInputError
from baryflow.features import SignalModel
from baryflow.page import html_report
from baryflow.persistence import load

model_argument = click.argument("model", type=click.Path(dir_okay=False, path_type=Path))


@click.command(
    cls=Command,
    example="baryflow report pump_e.bary --html pump_e.html --events events.ndjson",
    docs="docs/howto/historian-export.md",
)
@model_argument
@click.option("--html", type=OutputFile(), help="Write a self-contained HTML page here instead.")
@click.option(
    "--events",
    type=existing_file,
    help="With --html: events that 'baryflow run --events' wrote: drift, alarms and labels.",
)
def report(model: Path, html: Path | None, events: Path | None) -> None:
    """Print what a MODEL has learned and decided, and what its target looks like."""
    with report_errors():
        if events is not None and html is None:
            raise InvalidInputError("--events needs --html FILE: only the page shows events")
        found, about = load_adapter(model)
        if html is None:
            echo("\n".join([*([about] if about else []), found.report()]))
            return
        protect_inputs([model, events], [html])
        listed = None if events is None else _read_events(events)
        page = html_report(found, title=model.stem, events=listed, about=about)
        html.write_text(page, encoding="utf-8")
        echo(f"page: {html}", err=True)


def load_adapter(path: Path) -> tuple[Any, str]:
    """Return the model in a file, and a sentence on its features if its rows are raw signals."""
    with expect_bary(path):
        found = load(path)
    if isinstance(found, SignalModel):
        return found.model, found.describe()
    if not isinstance(found, Adapter):
        raise InvalidInputError(f"{path} holds a {found.kind}, which does not adapt")
    return found, ""


def _read_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a file about drift, alarms and labels, refused ones included."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            event = json.loads(line)
        except ValueError as error:
            raise InvalidInputError(f"{path}, line {number}: not an event: {error}") from error
        kind = event.get("event") if isinstance(event, dict) else None
        if kind == "warning" and ("label" in event or "labels" in event):
            kind = "label"
        if kind in ("drift", "watch", "alarm", "label"):
            found.append(event | {"event": kind})
    return found
