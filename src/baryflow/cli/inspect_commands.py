"""Commands that look at a model: ``inspect``, ``report`` and ``plot``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from baryflow.cli import inspection
from baryflow.cli.console import FIGURES, OutputFile, echo, keep_inputs, spoken
from baryflow.estimators._adapter import Adapter
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.features import SignalModel
from baryflow.page import html_report
from baryflow.persistence import load

_MODEL = click.argument("model", type=click.Path(dir_okay=False, path_type=Path))


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def inspect(file: Path) -> None:
    """Say in words what is inside a .bary file, who wrote it and when."""
    with spoken(), _named_rightly(file):
        words = inspection.describe(file)
    echo(words)


@click.command()
@_MODEL
@click.option("--html", type=OutputFile(), help="Write it as one self-contained page instead.")
@click.option(
    "--events",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What 'run --events' has written, for the page.",
)
def report(model: Path, html: Path | None, events: Path | None) -> None:
    """Say what a MODEL has learned and decided, and how its target looks."""
    with spoken():
        found, about = _adapter(model)
        if html is None:
            echo("\n".join([*([about] if about else []), found.report()]))
            return
        keep_inputs([model, events], [html])
        happened = None if events is None else _drifts(events)
        page = html_report(found, title=model.stem, events=happened, about=about)
        html.write_text(page, encoding="utf-8")
        echo(f"page: {html}", err=True)


def _drifts(path: Path) -> list[dict[str, Any]]:
    """Return the events of drift in a file of events."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            event = json.loads(line)
        except ValueError as error:
            raise InvalidInputError(f"{path}, line {number}: not an event: {error}") from error
        if isinstance(event, dict) and event.get("event") == "drift" and "words" in event:
            found.append({"event": "drift", "position": event.get("position"), "text": event["words"]})
    return found


@click.command()
@_MODEL
@click.option("-o", "--output", required=True, type=OutputFile(*FIGURES), help="PNG, SVG or PDF.")
def plot(model: Path, output: Path) -> None:
    """Draw how a MODEL has followed its target."""
    with spoken():
        keep_inputs([model], [output])
        found, _ = _adapter(model)
        if not len(found.history_):
            raise InvalidInputError(
                f"{model} has followed no target yet: 'baryflow run {model} INPUT --save FILE' first"
            )
        found.plot().savefig(output, dpi=150)
        echo(f"figure: {output}", err=True)


def _adapter(path: Path) -> tuple[Any, str]:
    """Return the model in a file, and a sentence on what makes its rows, if they are not raw ones."""
    with _named_rightly(path):
        found = load(path)
    if isinstance(found, SignalModel):
        return found.model, found.describe()
    if not isinstance(found, Adapter):
        raise InvalidInputError(f"{path} holds a {found.kind}, not a model that adapts")
    return found, ""


@contextmanager
def _named_rightly(path: Path) -> Iterator[None]:
    """Say of a file that is not even called .bary what was expected, rather than that it is damaged."""
    try:
        yield
    except FileFormatError as error:
        if path.suffix == ".bary":
            raise
        raise InvalidInputError(
            f"expected a .bary file, got {path}: 'baryflow fit' makes one of labelled files"
        ) from error
