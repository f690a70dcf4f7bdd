"""``baryflow plot``: draw how a model has followed its target."""

from __future__ import annotations

from pathlib import Path

import click

from baryflow.cli.console import echo, report_errors
from baryflow.cli.options import FIGURES, Command, OutputFile, protect_inputs
from baryflow.cli.report import load_adapter, model_argument
from baryflow.exceptions import InvalidInputError


@click.command(
    cls=Command, example="baryflow plot pump_e.bary -o pump_e.png", docs="docs/howto/historian-export.md"
)
@model_argument
@click.option(
    "-o",
    "--output",
    required=True,
    type=OutputFile(*FIGURES),
    help="Write the figure here (PNG, SVG or PDF).",
)
def plot(model: Path, output: Path) -> None:
    """Draw how a MODEL has followed its target."""
    with report_errors():
        protect_inputs([model], [output])
        found, _ = load_adapter(model)
        if not len(found.history_):
            raise InvalidInputError(
                f"{model} has not followed a target yet: 'baryflow run {model} INPUT --save FILE' "
                "writes one that has"
            )
        found.plot().savefig(output, dpi=150)
        echo(f"figure: {output}", err=True)
