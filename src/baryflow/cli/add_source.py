"""``baryflow add-source``: add one labelled source to a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from baryflow.cli import options
from baryflow.cli.console import Line, Progress, echo, file_size, report_errors
from baryflow.cli.labelled_files import describe, refuse_empty_columns
from baryflow.cli.options import Command, protect_inputs
from baryflow.estimators._input import InOrder
from baryflow.exceptions import InvalidInputError
from baryflow.features import SignalModel
from baryflow.streams import Table, read_table


@click.command(
    cls=Command,
    example="baryflow add-source pumps.bary pump_f.csv --label condition --time time -o pumps6.bary",
    docs="docs/howto/historian-export.md",
)
@options.model_argument
@click.argument("files", nargs=-1, required=True, type=options.existing_file)
@options.label
@click.option("--name", metavar="NAME", help="Name of the source.  [default: that of the only file]")
@options.plain_time
@options.model_output
@options.fit_jobs
def add_source(
    model: Path,
    files: tuple[Path, ...],
    *,
    label: str,
    name: str | None,
    time: str | None,
    output: Path,
    jobs: int | None,
) -> None:
    """Add the rows of FILES to MODEL as one more labelled source, which may have new classes.

    MODEL must hold the rows of its sources ('baryflow fit --keep-rows'). A target that it has followed
    is kept.
    """
    with report_errors():
        protect_inputs([model, *files], [output])
        if name is None and len(files) > 1:
            raise InvalidInputError("several files become one source: add --name NAME")
        fitted, columns = options.load_model(model, {"time": time, "label": label})
        if isinstance(fitted, SignalModel):
            raise InvalidInputError(
                f"{model} makes features of raw signals, which all sources shape: fit it again with the "
                "files of all sources"
            )
        table = read_table(files, label=label, time=time)
        source = _source_name(name or files[0].stem, fitted)
        if source in list(fitted.sources_):
            raise InvalidInputError(
                f"{model} already has a source {source!r}: choose another name with --name NAME"
            )
        table = replace(table, domain=np.full(len(table.X), str(source)))
        rows, labels = _match(table, columns, fitted)
        refuse_empty_columns(table)
        echo(describe(table), err=True)
        with Line() as line:
            fitted.set_params(n_jobs=jobs, verbose=Progress(line))
            fitted.add_source(InOrder(rows), labels, source)
        fitted.set_params(verbose=False)
        fitted.save(output)
        echo(fitted.report())
        echo(f"model: {output} ({file_size(output)})", err=True)


def _match(table: Table, columns: list[str] | None, fitted: Any) -> tuple[Any, Any]:
    """Return the rows with the columns of the model, and the labels in the type of its classes."""
    rows = table.X
    if columns is not None:
        missing = [column for column in columns if column not in table.columns]
        if missing:
            raise InvalidInputError(
                f"the files have no numeric column {missing[0]!r}, a feature of the model"
            )
        rows = table.X[:, [table.columns.index(column) for column in columns]]
    numbered, given = fitted.classes_.dtype.kind in "iu", table.y.dtype.kind in "iu"
    if numbered and not given:
        raise InvalidInputError(
            f"the classes of the model are numbers, but the files have labels such as {table.y[0]!r}"
        )
    return rows, table.y if numbered else np.array([str(label) for label in table.y.tolist()])


def _source_name(name: str, fitted: Any) -> str | int:
    """Return the name as the sources of the model have theirs: text or a number."""
    if isinstance(fitted.sources_[0], str):
        return name
    if not name.isdecimal():
        raise InvalidInputError(f"the sources of the model are numbered: --name NUMBER, got {name!r}")
    return int(name)
