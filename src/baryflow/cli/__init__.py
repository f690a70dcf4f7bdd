"""The command line. Data go to standard output, words to standard error."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource
from threadpoolctl import threadpool_limits

from baryflow import demo as demonstration
from baryflow.cli import demo as showing
from baryflow.cli import fit as labelled
from baryflow.cli import inspect_commands as looking
from baryflow.cli import run as running
from baryflow.cli import serve as serving
from baryflow.cli import tep
from baryflow.cli.console import Line, OutputFile, WholeNumber, echo, spoken
from baryflow.datasets.tennessee_eastman import Features
from baryflow.exceptions import InvalidInputError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="baryflow")
def main() -> None:
    """Adapt a classifier from many labelled histories to one live, unlabelled stream."""


for command in (
    labelled.fit,
    labelled.evaluate,
    running.run,
    serving.serve,
    looking.report,
    looking.plot,
    looking.inspect,
    tep.group,
):
    main.add_command(command)


def _drawable(context: click.Context, option: click.Parameter, path: Path) -> Path | None:
    """Find out before the run whether its figure can be drawn; none is, if nobody asked for it."""
    if context.params.get("live"):  # the page is the figure
        return None
    try:
        demonstration.check_figure(path)
    except InvalidInputError as error:
        raise click.BadParameter(str(error)) from error
    except ModuleNotFoundError as error:
        if context.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT:
            raise click.BadParameter(str(error)) from error
        echo(f"no figure will be drawn: {error}", err=True)
        return None
    return path


@main.command()
@click.option(
    "--seed",
    type=WholeNumber(0),
    default=0,
    show_default=True,
    help="Order in which the stream flows.",
)
@click.option(
    "--figure",
    type=OutputFile(),
    callback=_drawable,
    default="baryflow-demo.png",
    show_default=True,
    help="Write a picture of the run to this file (PNG, SVG or PDF).",
)
@click.option("--live", is_flag=True, is_eager=True, help="Show it on a page in the browser.")
@click.option(
    "--plant",
    is_flag=True,
    help="With --live: the simulated plant itself, its faults and modes by buttons on the page.",
)
@click.option(
    "--speed",
    type=click.FloatRange(0.0, min_open=True),
    help="With --live: runs in a second, 20 without it; with --plant simulated hours, 5 without it.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="With --live: of the page; 0: any free one."
)
@click.option("--browser/--no-browser", default=True, help="With --live: whether to open the page.")
def demo(
    seed: int,
    figure: Path | None,
    *,
    live: bool,
    plant: bool,
    speed: float | None,
    port: int,
    browser: bool,
) -> None:
    """Five modes of the Tennessee Eastman plant are known; adapt to the sixth as its stream flows."""
    with spoken():
        if live:
            showing.show(seed, speed, port, plant=plant, browser=browser)
            return
        if plant or speed is not None:
            raise InvalidInputError("--plant and --speed are for the page: add --live")
        outcome = _follow(demonstration.problem(), seed)
        echo(_table(outcome))
        if figure is not None:
            demonstration.draw(outcome, str(figure))
            echo(f"figure: {figure}", err=True)


def _follow(data: Features, seed: int) -> demonstration.Result:
    """Run the demo and tell where it stands."""
    n_known = int((~data.is_target).sum())
    echo(f"learning modes 2 to 6 of the plant: {n_known} labelled runs, 29 classes ...", err=True)
    # Matrices of this size are multiplied faster by one thread than by two that wait for each other.
    with Line() as line, threadpool_limits(limits=1):

        def learning(done: int, total: int, what: str) -> None:
            line.show(f"{done}/{total} steps  {what}")

        for event in demonstration.stream(data, seed, learning):
            if isinstance(event, demonstration.Result):
                return event
            line.show(_standing(event))
    raise click.ClickException("the stream was empty")


def _standing(progress: demonstration.Progress) -> str:
    nearest = sorted(progress.shares.items(), key=lambda item: -item[1])[:3]
    words = ", ".join(f"{name} {share:.0%}" for name, share in nearest)
    return (
        f"{progress.n_rows:5d}/{progress.n_rows_total} rows  {progress.adapted:6.1%} right "
        f"(source-only {progress.source_only:6.1%})  like modes {words}"
    )


def _table(outcome: demonstration.Result) -> str:
    rows = [
        ("source-only", outcome.source_only),
        ("adapting, while the stream flows", outcome.history[-1].adapted),
        ("adapted, after the stream", outcome.after_stream),
        ("trained on the target's labels", outcome.target_trained),
    ]
    lines = ["accuracy on mode 1", *(f"  {name:<34}{value:7.1%}" for name, value in rows)]
    return "\n".join([*lines, "", outcome.report])
