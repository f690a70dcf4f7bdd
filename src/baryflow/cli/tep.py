"""``baryflow tep``: build the Tennessee Eastman benchmark from the plant up."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import click

from baryflow.cli import tep_publish as publishing
from baryflow.cli.console import Line, OutputFile, WholeNumber, echo, keep_inputs, spoken
from baryflow.streams import read_credentials
from baryflow.tep.encoders import encoding
from baryflow.tep.plant import simulation
from baryflow.tep.plant.plan import Plan
from baryflow.tep.plant.playing import play
from baryflow.tep.tables import FAULTS, MAGNITUDES, MODES
from baryflow.validation import count_of

_KEPT = "interrupted; what was finished is kept, and the same command goes on from there."


class Numbers(click.ParamType[tuple[int, ...]]):
    """Numbers and ranges from `low` to `high`: ``1,3-5``."""

    name = "numbers"

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers in rising order."""
        if isinstance(value, tuple):
            return value
        numbers: set[int] = set()
        for part in str(value).split(","):
            match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
            if match is None:
                self.fail(f"{value!r} is not a list of numbers and ranges such as 1,3-5", param, ctx)
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                self.fail(f"the range {part.strip()!r} runs backwards", param, ctx)
            if first < self._low or last > self._high:
                self.fail(f"expected {self._low} to {self._high}, got {part.strip()!r}", param, ctx)
            numbers |= set(range(first, last + 1))
        return tuple(sorted(numbers))


class Magnitude(click.ParamType[tuple[tuple[int, int], float]]):
    """The size of a fault in a mode: ``MODE:FAULT=SHARE``."""

    name = "mode:fault=share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[int, int], float]:
        """Return ((mode, fault), share)."""
        match = re.fullmatch(r"(\d+):(\d+)=(\d*\.?\d+)", str(value))
        if match is None:
            self.fail(f"{value!r} is not of the form MODE:FAULT=SHARE, for instance 4:6=0.5", param, ctx)
        return (int(match[1]), int(match[2])), float(match[3])


_modes = Numbers(1, max(MODES))
_faults = Numbers(0, len(FAULTS) - 1)


@click.group("tep")
def group() -> None:
    """Build the Tennessee Eastman benchmark: simulate the plant, encode its signals, let it run live."""


@group.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--modes", type=_modes, default="1-6", show_default=True)
@click.option(
    "--faults", type=_faults, default=f"0-{len(FAULTS) - 1}", show_default=True, help="0: no fault."
)
@click.option(
    "--runs", type=WholeNumber(1), default=50, show_default=True, help="Of each mode and fault."
)
@click.option("--seed", type=WholeNumber(0), default=2024, show_default=True)
@click.option(
    "--lead", default=5.0, show_default=True, help="Hours of normal operation before the fault."
)
@click.option("--hours", default=30.0, show_default=True, help="Hours recorded from the fault on.")
@click.option(
    "--magnitude", "magnitudes", type=Magnitude(), multiple=True, help="Size of a fault, e.g. 4:6=0.5."
)
@click.option(
    "--jobs", type=WholeNumber(1), default=os.cpu_count(), show_default=True, help="Processes."
)
def simulate(folder: Path, jobs: int, magnitudes: tuple[Any, ...], **options: Any) -> None:
    """Run the plant and keep its signals in FOLDER.

    An interrupted simulation is continued, a finished one can be extended by further runs and modes.
    """
    with spoken(interrupted=_KEPT):
        plan = Plan(magnitudes={**MAGNITUDES, **dict(magnitudes)}, **options)
        with Line(log_every=60) as line:
            done = simulation.simulate(folder, plan, jobs=jobs, progress=_teller(line))
    echo(f"{count_of(done.total, 'file')} in {folder}, {done.total - done.found} of them new", err=True)
    for trip in done.redrawn:
        echo(
            f"mode {trip.mode}, fault {trip.fault}, run {trip.run}: tripped {trip.hours:.1f} h after "
            f"the fault ({trip.reason}); drawn again",
            err=True,
        )


@group.command()
@click.option(
    "--opc-ua",
    "server",
    metavar="[URL]",
    is_flag=False,
    flag_value=publishing.SERVER,
    help=f"Be an OPC UA server; without a URL, {publishing.SERVER}.",
)
@click.option("--mqtt", "topic", metavar="URL", help="Send rows to a topic: mqtt://HOST/TOPIC.")
@click.option("--per-tag", is_flag=True, help="With --mqtt: a topic under it for each variable.")
@click.option("--csv", "table", type=OutputFile(".csv"), help="Write the rows to a file, at once.")
@click.option("--mode", type=click.IntRange(1, max(MODES)), default=1, show_default=True)
@click.option(
    "--fault", type=click.IntRange(0, len(FAULTS) - 1), default=0, show_default=True, help="0: none."
)
@click.option(
    "--speed",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    show_default=True,
    help="Times faster than the plant, which gives a row every three minutes.",
)
@click.option("--hours", type=click.FloatRange(0, min_open=True), default=30.0, show_default=True)
@click.option("--seed", type=WholeNumber(0), default=2024, show_default=True)
@click.option("--start", metavar="TIME", help="The plant's time of the first row; now without it.")
@click.option(
    "--credentials",
    "credentials_file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="JSON file with username, password, ca_file, cert_file, key_file.",
)
def publish(
    server: str | None,
    topic: str | None,
    per_tag: bool,
    table: Path | None,
    speed: float,
    start: str | None,
    credentials_file: Path | None,
    **options: Any,
) -> None:
    """Let the simulated plant run live, as an OPC UA server or at an MQTT broker.

    Its variables bear name and unit, "A feed (kscmh)", single topics their numbers, XMEAS1 to XMV12; all
    have the plant's own time. A fault, if one is asked for, is there from the first row on. Ctrl-C ends
    it.
    """
    if [server, topic, table].count(None) != 2:
        raise click.UsageError("expected either --opc-ua or --mqtt URL or --csv FILE.")
    if per_tag and topic is None:
        raise click.UsageError("--per-tag is for --mqtt.")
    first = publishing.parse_start(start)
    if table is not None:
        with spoken():
            echo(publishing.write_table(play(**options), table, first), err=True)
        return
    with spoken(), publishing.stopped_by_signals() as stop, ExitStack() as stack:
        kind = publishing.Server if server else publishing.Topics if per_tag else publishing.Rows
        publisher = kind(server or topic or "", read_credentials(credentials_file), stack)
        echo("simulating the plant ...", err=True)
        rows = play(**options)
        echo(publisher.example)
        count = publishing.publish(rows, publisher, start=first, speed=speed, stop=stop)
        echo(f"{count} of {count_of(len(rows), 'row')} published", err=True)
        if server and not stop.is_set():
            echo("the server stays, with its history; Ctrl-C ends it", err=True)
            stop.wait()


@group.command()
@click.argument("folder", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--encoder", type=click.Choice(encoding.ENCODERS), default=encoding.DEFAULT, show_default=True
)
@click.option("--targets", type=_modes, default="1-6", show_default=True)
@click.option("--runs", type=WholeNumber(1), help="Of each mode and fault; all without it.")
@click.option("--seed", type=WholeNumber(0), default=0, show_default=True)
@click.option(
    "--jobs", type=WholeNumber(1), default=os.cpu_count(), show_default=True, help="Processes."
)
@click.option("--validate", is_flag=True, help="Only tell how well it does on sources left out.")
def encode(
    folder: Path, out: Path, seed: int, validate: bool, targets: tuple[int, ...], **options: Any
) -> None:
    """Train an encoder for every target mode on the other five and write its features to OUT.

    FOLDER is what 'baryflow tep simulate' made. Training needs PyTorch; using what was trained does not.
    """
    with spoken(interrupted="interrupted." if validate else _KEPT):
        if validate:
            options.pop("jobs")
            echo("encoder,runs,target,left_out,accuracy")
            for target, left_out, accuracy in encoding.leave_one_out(
                folder, random_state=seed, **options
            ):
                words = f"{options['encoder']},{options['runs'] or 'all'}"
                echo(f"{words},{target},{left_out},{accuracy:.5f}")
            return
        with Line(log_every=60) as line:
            files = encoding.encode(
                folder,
                out,
                targets=targets,
                random_state=seed,
                progress=lambda done, total: line.show(f"{done}/{total} encoders trained"),
                **options,
            )
    for file in files:
        echo(os.fspath(file))


@group.command()
@click.argument("encoder", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.argument("out", type=OutputFile())
@click.option("--modes", type=_modes, default="1-6", show_default=True)
@click.option("--runs", type=WholeNumber(1), help="Of each mode and fault; all without it.")
def apply(encoder: Path, folder: Path, out: Path, modes: tuple[int, ...], runs: int | None) -> None:
    """Encode the signals in FOLDER with a trained ENCODER (.onnx) and write OUT (.bary); no PyTorch."""
    with spoken():
        keep_inputs([encoder], [out])
        found = encoding.apply_encoder(encoder, folder, modes=modes, runs=runs)
        found.save(out)
    echo(f"{count_of(len(found), 'run')}, {count_of(found.X.shape[1], 'feature')} each: {out}", err=True)


def _teller(line: Line) -> Callable[[simulation.Progress], None]:
    begin: float | None = None  # of the first file; how long the plant took to settle says nothing of it

    def tell(progress: simulation.Progress) -> None:
        nonlocal begin
        if begin is None and progress.settled:
            begin = monotonic()
        new = progress.done - progress.found
        if begin is None:
            time = "settling the plant in its modes"
        elif not new:
            time = "making the first of them"
        else:
            time = f"{_duration((progress.total - progress.done) * (monotonic() - begin) / new)} left"
        line.show(f"{progress.done}/{progress.total} files  {len(progress.redrawn)} trips  {time}")

    return tell


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return (
        f"{minutes // 60} h {minutes % 60:02d} min"
        if minutes >= 60
        else f"{minutes} min"
        if minutes
        else "< 1 min"
    )
