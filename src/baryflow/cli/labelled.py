"""Commands that learn from labelled files: ``fit`` and ``evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from baryflow.cli.words import Line, OutputFile, WholeNumber, spoken
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.estimators.plots import new_figure
from baryflow.exceptions import InvalidInputError
from baryflow.model_selection import evaluate as leave_out
from baryflow.streams import Table, read_table

#: Columns, left out or faulty, and names that are listed at most.
_LISTED = 12


def _of_files(command: Any) -> Any:
    """Add the options that say what is what in labelled files."""
    options = [
        click.argument(
            "files",
            nargs=-1,
            required=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
        ),
        click.option("--label", required=True, metavar="COLUMN", help="Holds the classes."),
        click.option("--domain", metavar="COLUMN", help="Holds the machine, plant or mode of a row."),
        click.option("--domain-from-file", is_flag=True, help="Each file is a domain of its own."),
        click.option("--time", metavar="COLUMN", help="Holds the time: not a feature."),
        click.option(
            "--ignore", multiple=True, metavar="COLUMN", help="Leave this column out; repeat it."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@_of_files
@click.option("--usual", multiple=True, metavar="CLASS=SHARE", help="What you know of the target's mix.")
@click.option("-o", "--output", required=True, type=OutputFile(), help="The model, a .bary file.")
@click.option("--keep-rows", is_flag=True, help="Keep the rows in the file, to add sources later.")
@click.option("--seed", type=WholeNumber(0), default=0, show_default=True)
@click.option("--jobs", type=WholeNumber(1), default=2, show_default=True, help="Processes.")
def fit(
    files: tuple[Path, ...],
    label: str,
    domain: str | None,
    domain_from_file: bool,
    time: str | None,
    ignore: tuple[str, ...],
    usual: tuple[str, ...],
    output: Path,
    keep_rows: bool,
    seed: int,
    jobs: int,
) -> None:
    """Learn labelled histories from FILES (CSV, NDJSON, Parquet, NPZ) into one model.

    The domains may be in a column (--domain) or in files of their own (--domain-from-file). Afterwards
    'baryflow run' follows a new machine with the model.
    """
    with spoken():
        _check_domain(domain, domain_from_file)
        table = read_table(
            files,
            label=label,
            domain=domain,
            domain_from_file=domain_from_file,
            time=time,
            ignore=ignore,
        )
        prior = _shares(usual, table.y)
        click.echo(describe_table(table), err=True)
        with Line(log_every=30.0) as line:
            model = OnlineDaDiL(
                class_prior=prior,
                keep_sources=keep_rows,
                n_jobs=jobs,
                random_state=seed,
                verbose=lambda done, total, what: line.show(f"{done}/{total} steps  {what}"),
            )
            model.fit(table.X, table.y, sample_domain=table.domain)
        model.set_params(verbose=False)
        model.feature_names_in_ = np.array(table.columns, dtype=object)
        model.save(output)
        click.echo(model.report())
        click.echo(f"model: {output} ({output.stat().st_size / 1e6:.1f} MB)", err=True)


@click.command()
@_of_files
@click.option(
    "--order",
    type=click.Choice(["as_is", "shuffled", "runs", "by_class"]),
    default="as_is",
    show_default=True,
    help="In which the rows of a domain flow: as they stand in the file, or otherwise.",
)
@click.option("--batch", type=WholeNumber(1), default=32, show_default=True, help="Rows at a time.")
@click.option("--figure", type=OutputFile(), help="Draw it (PNG, SVG or PDF).")
@click.option("--seed", type=WholeNumber(0), default=0, show_default=True)
@click.option("--jobs", type=WholeNumber(1), default=2, show_default=True, help="Processes.")
def evaluate(
    files: tuple[Path, ...],
    label: str,
    domain: str | None,
    domain_from_file: bool,
    time: str | None,
    ignore: tuple[str, ...],
    order: str,
    batch: int,
    figure: Path | None,
    seed: int,
    jobs: int,
) -> None:
    """Would it help on your data? Each domain in FILES is left out in turn and flows past as a stream.

    Beside it stand a classifier that does not adapt, and one that standardises each domain by itself.
    """
    with spoken():
        _check_domain(domain, domain_from_file)
        if figure is not None:
            new_figure(1.0, 1.0)  # if matplotlib is missing, this says so before the work
        table = read_table(
            files,
            label=label,
            domain=domain,
            domain_from_file=domain_from_file,
            time=time,
            ignore=ignore,
        )
        click.echo(describe_table(table, times=len(np.unique(table.domain))), err=True)
        found = leave_out(
            OnlineDaDiL(keep_sources=False, random_state=seed),
            table.X,
            table.y,
            table.domain,
            order=order,
            batch_size=batch,
            n_jobs=jobs,
        )
        click.echo(found.table())
        if figure is not None:
            found.plot().get_figure().savefig(figure, dpi=150)
            click.echo(f"figure: {figure}", err=True)


def _check_domain(column: str | None, from_file: bool) -> None:
    if (column is None) != from_file:
        raise InvalidInputError(
            "say where the domains are: --domain COLUMN, or --domain-from-file if each file is one"
        )


def _shares(usual: tuple[str, ...], y: Any) -> dict[Any, float] | None:
    """Return what is known of the mix: 'normal=0.5' for each class that is named."""
    classes = {str(name): name for name in np.unique(y).tolist()}
    found: dict[Any, float] = {}
    for words in usual:
        name, _, share = words.rpartition("=")
        try:
            number = float(share)
        except ValueError:
            number = -1.0
        if not name or not 0.0 <= number <= 1.0:
            raise InvalidInputError(f"--usual must be CLASS=SHARE with a share of 0 to 1, got {words!r}")
        if name not in classes:
            known = ", ".join(classes)
            raise InvalidInputError(
                f"--usual names {name!r}, which is not a class; classes are: {known}"
            )
        found[classes[name]] = number
    return found or None


def describe_table(table: Table, *, times: int = 1) -> str:
    """Say what was read, and what is going to be done with it."""
    domains, classes = _counted(table.domain), _counted(table.y)
    lines = [
        f"{len(table.X):,} rows, {len(table.columns)} columns: {_some(table.columns)}",
        f"{len(domains)} domains: {_some(domains)}",
        f"{len(classes)} classes: {_some(classes)}",
    ]
    lines += [f"left out: {name}: {why}" for name, why in list(table.left_out.items())[:_LISTED]]
    if table.counts.get("rejected"):
        file, first = table.rejected[0]
        lines.append(
            f"{table.counts['rejected']:,} rows cannot be used, the first in {file}, row "
            f"{first.position}: {first.reason}"
        )
    if table.counts.get("unlabelled"):
        lines.append(f"{table.counts['unlabelled']:,} rows have no label and are not used")
    seconds = times * expect_seconds(len(table.X), len(table.columns), len(classes), len(domains))
    lines.append(f"this takes about {_duration(seconds)}")
    return "\n".join(lines)


def expect_seconds(n_rows: int, n_columns: int, n_classes: int, n_domains: int) -> float:
    """Return about how long learning takes: two regressions, and sources that play targets.

    The rates were measured on one core of an ordinary server.
    """
    width = n_columns if n_columns <= 512 else max(64, 2 * n_classes)
    regressions = 5e-8 * n_rows * width * n_classes
    plays = min(8, n_domains) if n_domains > 1 else 0
    each = 0.4 * regressions * min(1.0, 6000 / n_rows) + 0.5 + 0.02 * min(n_classes, 40)
    return 0.3 + regressions + plays * each


def _duration(seconds: float) -> str:
    return f"{max(1.0, seconds):.0f} s" if seconds < 90.0 else f"{seconds / 60.0:.0f} min"


def _counted(names: Any) -> list[str]:
    """Return each name and how often it occurs."""
    return [f"{n} ({k:,})" for n, k in zip(*np.unique(names, return_counts=True), strict=True)]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(map(str, names[:_LISTED])) + more
