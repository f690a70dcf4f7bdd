"""Commands that look at a model: ``inspect``, ``report`` and ``plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from baryflow.cli import inspection
from baryflow.cli.words import OutputFile, spoken
from baryflow.estimators.base import Adapter
from baryflow.exceptions import InvalidInputError
from baryflow.persistence import load

_MODEL = click.argument("model", type=click.Path(dir_okay=False, path_type=Path))


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def inspect(file: Path) -> None:
    """Say in words what is inside a .bary file, who wrote it and when."""
    with spoken():
        words = inspection.describe(file)
    click.echo(words)


@click.command()
@_MODEL
def report(model: Path) -> None:
    """Say what a MODEL has learned and decided, and how its target looks."""
    with spoken():
        words = _adapter(model).report()
    click.echo(words)


@click.command()
@_MODEL
@click.option("-o", "--output", required=True, type=OutputFile(), help="PNG, SVG or PDF.")
def plot(model: Path, output: Path) -> None:
    """Draw how a MODEL has followed its target."""
    with spoken():
        found = _adapter(model)
        if not len(found.history_):
            raise InvalidInputError(
                f"{model} has followed no target yet: 'baryflow run {model} INPUT --save FILE' first"
            )
        found.plot().savefig(output, dpi=150)
        click.echo(f"figure: {output}", err=True)


def _adapter(path: Path) -> Any:
    found = load(path)
    if not isinstance(found, Adapter):
        raise InvalidInputError(f"{path} holds a {found.kind}, not a model that adapts")
    return found
