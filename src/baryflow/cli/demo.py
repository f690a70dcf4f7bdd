"""``baryflow demo``: adapt to an unseen mode of the Tennessee Eastman plant."""

from __future__ import annotations

import sys
import threading
import webbrowser
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from threadpoolctl import threadpool_limits

from baryflow import demo as demonstration
from baryflow.cli import options
from baryflow.cli.console import Line, Progress, echo, report_errors
from baryflow.cli.options import FIGURES, Command, OutputFile
from baryflow.estimators._plots import new_figure
from baryflow.exceptions import InvalidInputError

#: Default rows, or simulated hours of the plant, per second.
REPLAY_SPEED, PLANT_SPEED = 20.0, 5.0


def _check_figure(context: click.Context, option: click.Parameter, path: Path) -> Path | None:
    """Check before the run that the figure can be drawn; skip it if it was not asked for."""
    if context.params.get("live"):
        return None
    try:
        new_figure(1.0, 1.0)
    except ModuleNotFoundError as error:
        if context.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT:
            raise click.BadParameter(str(error)) from error
        echo(f"no figure will be drawn: {error}", err=True)
        return None
    return path


@click.command(cls=Command, example="baryflow demo --figure demo.png", docs="docs/howto/live-page.md")
@options.seed
@click.option(
    "--figure",
    type=OutputFile(*FIGURES),
    callback=_check_figure,
    default="baryflow-demo.png",
    help="Draw the run here (PNG, SVG or PDF).",
)
@click.option("--live", is_flag=True, is_eager=True, help="Show the run on a page in the browser.")
@click.option(
    "--plant",
    is_flag=True,
    help="With --live: run the simulated plant with alarms; inject faults and change modes on the page.",
)
@click.option(
    "--speed",
    type=click.FloatRange(0.0, min_open=True),
    help=f"With --live: rows per second ({REPLAY_SPEED:g} by default); with --plant: simulated hours "
    f"per second ({PLANT_SPEED:g} by default).",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="With --live: port of the page; 0 picks a free one.",
)
@click.option("--browser/--no-browser", default=True, help="With --live: open the page in a browser.")
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
    """Learn five modes of the Tennessee Eastman plant and adapt to the sixth from its stream."""
    with report_errors():
        if live:
            _show_live(seed, speed, port, plant=plant, browser=browser)
            return
        if plant or speed is not None:
            raise InvalidInputError("--plant and --speed are for the page: add --live")
        result = _follow(demonstration.problem(), seed)
        echo(_format_table(result))
        if figure is not None:
            demonstration.draw(result, str(figure))
            echo(f"figure: {figure}", err=True)


def _announce(data: Any) -> None:
    n_known = int((~data.is_target).sum())
    echo(f"learning modes 2 to 6 of the plant: {n_known} labelled runs, 29 classes ...", err=True)


def _follow(data: Any, seed: int) -> demonstration.Result:
    """Run the demo and show its progress."""
    _announce(data)
    # One thread multiplies matrices of this size faster than two.
    with Line() as line, threadpool_limits(limits=1):
        for event in demonstration.stream(data, seed, Progress(line)):
            if isinstance(event, demonstration.Result):
                return event
            nearest = sorted(event.shares.items(), key=lambda item: -item[1])[:3]
            line.show(
                f"{event.n_rows:5d}/{event.n_rows_total} rows  {event.adapted:6.1%} correct "
                f"(source-only {event.source_only:6.1%})  like modes "
                + ", ".join(f"{name} {share:.0%}" for name, share in nearest)
            )
    raise InvalidInputError("the stream is empty")


def _format_table(result: demonstration.Result) -> str:
    rows = [
        ("source-only", result.source_only),
        ("adapting, during the stream", result.history[-1].adapted),
        ("adapted, after the stream", result.after_stream),
        ("trained on the target's labels", result.target_trained),
    ]
    lines = ["accuracy on mode 1", *(f"  {name:<34}{value:7.1%}" for name, value in rows)]
    return "\n".join([*lines, "", result.report])


# -- on the live page --------------------------------------------------------------------------------


def _show_live(seed: int, speed: float | None, port: int, *, plant: bool, browser: bool) -> None:
    from baryflow.live.controller import PlantController, serve_plant
    from baryflow.live.plant import load_plant_model
    from baryflow.live.replay import serve_replay

    with threadpool_limits(limits=1):
        if plant:
            from baryflow.tep.plant import model  # noqa: F401 - fail early if an extra is missing

            controller = PlantController(load_plant_model(), speed or PLANT_SPEED)
            _watch(serve_plant(controller, port), browser)
        else:
            _watch(serve_replay(_replay(seed), speed or REPLAY_SPEED, port), browser)


def _replay(seed: int) -> Any:
    from baryflow.live.replay import Replay

    data = demonstration.problem()
    _announce(data)
    with Line() as line:
        return Replay.fit(data, seed, lambda done, n, what: line.show(f"{done}/{n} steps  {what}"))


def _watch(page: Any, browser: bool) -> None:
    with page as (url, feeding):
        echo(f"the page: {url}", err=True)
        echo("press Ctrl-C to stop", err=True)
        if browser and not webbrowser.open(url):
            echo("cannot open a browser: open the address above", err=True)
        sys.stderr.flush()
        try:
            feeding.result()
            echo("the stream has ended; the page stays until Ctrl-C", err=True)
            threading.Event().wait()
        except KeyboardInterrupt:
            echo("", err=True)
