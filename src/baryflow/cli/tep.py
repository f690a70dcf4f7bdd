"""``baryflow tep``: build the Tennessee Eastman benchmark from the simulated plant, or run it live."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from baryflow.cli import options as shared
from baryflow.cli.console import Line, Progress, Stop, echo, report_errors, stop_on_signals
from baryflow.cli.options import Command, Count, OutputFile, existing_file, protect_inputs, seed_option
from baryflow.exceptions import InvalidInputError
from baryflow.streams import Credentials, open_sink, read_credentials
from baryflow.streams.sampling.clock import SECOND, instant_text
from baryflow.streams.urls import Endpoint
from baryflow.tep.encoders import encoding
from baryflow.tep.plant import simulation
from baryflow.tep.plant.simulation import Plan, play
from baryflow.tep.tables import FAULTS, MAGNITUDES, MODES, VARIABLES
from baryflow.validation import count_of

#: Seconds of plant time from one row to the next.
INTERVAL = 180
#: Default address of the OPC UA server.
SERVER = "opc.tcp://127.0.0.1:4840/tep"
_FOLDER, _CLOCK = "Plant", "Clock"
#: A model of the plant, fitted on modes 2 to 6, that is part of the package.
_MODEL = files("baryflow.datasets") / "data" / "tep_plant.bary"
_INTERRUPTED = "interrupted; finished work is kept, run the same command again to resume."
_DOCS = "docs/benchmarks/tennessee-eastman.md"


class Numbers(click.ParamType[tuple[int, ...]]):
    """Numbers and ranges from `low` to `high`, such as ``1,3-5``."""

    name = "numbers"

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers in ascending order."""
        if isinstance(value, tuple):
            return value
        numbers: set[int] = set()
        for part in str(value).split(","):
            match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
            if match is None:
                self.fail(f"expected numbers and ranges such as 1,3-5, got {value!r}", param, ctx)
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                self.fail(f"the range {part.strip()!r} is reversed", param, ctx)
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
            self.fail(f"expected MODE:FAULT=SHARE, such as 4:6=0.5, got {value!r}", param, ctx)
        return (int(match[1]), int(match[2])), float(match[3])


_modes = Numbers(1, max(MODES))
_faults = Numbers(0, len(FAULTS) - 1)
_folder = click.Path(file_okay=False, path_type=Path)
_existing_folder = click.Path(file_okay=False, exists=True, path_type=Path)
_jobs = click.option("--jobs", type=Count("number"), default=os.cpu_count(), help="Number of processes.")
_all_runs = click.option(
    "--runs", type=Count("number"), help="Runs of each mode and fault to use.  [default: all]"
)


@click.group()
def tep() -> None:
    """Build the Tennessee Eastman benchmark: simulate the plant, encode its signals, run it live."""


# -- simulate ----------------------------------------------------------------------------------------


@tep.command(cls=Command, example="baryflow tep simulate tep-data --faults 0-5 --runs 10", docs=_DOCS)
@click.argument("folder", type=_folder)
@click.option("--modes", type=_modes, default="1-6", help="Operating modes.")
@click.option(
    "--faults", type=_faults, default=f"0-{len(FAULTS) - 1}", help="Faults; 0 is normal operation."
)
@click.option("--runs", type=Count("number"), default=50, help="Runs of each mode and fault.")
@seed_option(2024)
@click.option("--lead", default=5.0, help="Hours of normal operation before the fault.")
@click.option("--hours", default=30.0, help="Hours recorded from the fault on.")
@click.option(
    "--magnitude",
    type=Magnitude(),
    multiple=True,
    help="Size of a fault in a mode, such as 4:6=0.5; repeatable.",
)
@_jobs
def simulate(folder: Path, jobs: int, magnitude: tuple[Any, ...], **options: Any) -> None:
    """Simulate the plant and write its signals to FOLDER.

    The same command resumes an interrupted simulation; other runs and modes extend a finished one.
    """
    with report_errors(_INTERRUPTED):
        plan = Plan(magnitudes={**MAGNITUDES, **dict(magnitude)}, **options)
        with Line() as line:
            done = simulation.simulate(folder, plan, jobs=jobs, progress=make_progress(line))
    echo(f"{count_of(done.total, 'file')} in {folder}, {done.total - done.found} of them new", err=True)
    for trip in done.redrawn:
        echo(
            f"mode {trip.mode}, fault {trip.fault}, run {trip.run}: the plant tripped {trip.hours:.1f} "
            f"h after the fault ({trip.reason}); the run was drawn again",
            err=True,
        )


def make_progress(line: Line) -> Callable[[simulation.Progress], None]:
    """Return a callback that shows the files done and the time left."""
    progress = Progress(line, "simulate", "file", resumes=True)

    def show(found: simulation.Progress) -> None:
        progress(found.done, found.total, count_of(len(found.redrawn), "trip"))

    return show


# -- encode and apply --------------------------------------------------------------------------------


@tep.command(cls=Command, example="baryflow tep encode tep-data tep-features", docs=_DOCS)
@click.argument("folder", type=_existing_folder)
@click.argument("out", type=_folder)
@click.option(
    "--encoder", type=click.Choice(encoding.ENCODERS), default=encoding.DEFAULT, help="Network to train."
)
@click.option("--targets", type=_modes, default="1-6", help="Target modes.")
@_all_runs
@shared.seed
@_jobs
@click.option(
    "--validate", is_flag=True, help="Only print leave-one-source-out accuracy; write nothing."
)
def encode(
    folder: Path, out: Path, seed: int, validate: bool, targets: tuple[int, ...], **options: Any
) -> None:
    """Train an encoder for every target mode on the other five and write its features to OUT.

    FOLDER holds signals from 'baryflow tep simulate'. Training needs PyTorch; applying does not.
    """
    with report_errors("interrupted." if validate else _INTERRUPTED):
        if validate:
            options.pop("jobs")
            echo("encoder,runs,target,left_out,accuracy")
            for target, left_out, accuracy in encoding.leave_one_out(
                folder, random_state=seed, **options
            ):
                how = f"{options['encoder']},{options['runs'] or 'all'}"
                echo(f"{how},{target},{left_out},{accuracy:.5f}")
            return
        with Line() as line:
            found = encoding.encode(
                folder,
                out,
                targets=targets,
                random_state=seed,
                progress=lambda done, total: line.show(f"{done}/{total} encoders trained"),
                **options,
            )
    for file in found:
        echo(os.fspath(file))


@tep.command(
    cls=Command,
    example="baryflow tep apply tep-features/target1.onnx tep-data features.bary --modes 1",
    docs=_DOCS,
)
@click.argument("encoder", type=existing_file)
@click.argument("folder", type=_existing_folder)
@click.argument("out", type=OutputFile())
@click.option("--modes", type=_modes, default="1-6", help="Operating modes.")
@_all_runs
def apply(encoder: Path, folder: Path, out: Path, modes: tuple[int, ...], runs: int | None) -> None:
    """Encode the signals in FOLDER with a trained ENCODER (.onnx) and write OUT (.bary)."""
    with report_errors():
        protect_inputs([encoder], [out])
        found = encoding.apply_encoder(encoder, folder, modes=modes, runs=runs)
        found.save(out)
    echo(f"{count_of(len(found), 'run')}, {count_of(found.X.shape[1], 'feature')} each: {out}", err=True)


# -- publish -----------------------------------------------------------------------------------------


@tep.command(
    cls=Command,
    example="baryflow tep publish --opc-ua --mode 1 --fault 4 --speed 600",
    docs="docs/howto/opcua.md",
)
@click.option(
    "--opc-ua",
    metavar="[URL]",
    is_flag=False,
    flag_value=SERVER,
    help=f"Run an OPC UA server; without a URL at {SERVER}.",
)
@click.option("--mqtt", metavar="URL", help="Send rows to a topic: mqtt://HOST/TOPIC.")
@click.option("--per-tag", is_flag=True, help="With --mqtt: use one topic for each variable.")
@click.option("--csv", type=OutputFile(".csv"), help="Write all rows to this file at once.")
@click.option("--mode", type=click.IntRange(1, max(MODES)), default=1, help="Operating mode.")
@click.option(
    "--fault",
    type=click.IntRange(0, len(FAULTS) - 1),
    default=0,
    help="Fault, from the first row on; 0 is normal operation.",
)
@click.option(
    "--speed",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    help="Factor by which plant time runs faster; the plant makes a row every 3 minutes.",
)
@click.option(
    "--hours", type=click.FloatRange(0, min_open=True), default=30.0, help="Hours of plant time."
)
@seed_option(2024)
@click.option("--start", metavar="TIME", help="Plant time of the first row (ISO 8601).  [default: now]")
@shared.credentials
def publish(
    opc_ua: str | None,
    mqtt: str | None,
    per_tag: bool,
    csv: Path | None,
    speed: float,
    start: str | None,
    credentials: str | None,
    **options: Any,
) -> None:
    """Run the simulated plant live, as an OPC UA server or with an MQTT broker.

    Variables are named with their unit, "A feed (kscmh)"; the topics of --per-tag are XMEAS1 to XMV12.
    Timestamps are plant time. Press Ctrl-C to stop.
    """
    if [opc_ua, mqtt, csv].count(None) != 2:
        raise click.UsageError("expected one of --opc-ua, --mqtt URL and --csv FILE.")
    if per_tag and mqtt is None:
        raise click.UsageError("--per-tag needs --mqtt.")
    first = parse_start(start)
    with report_errors(), stop_on_signals() as stop, ExitStack() as stack:
        if csv is not None:
            write_table(play(**options), csv, first)
            return
        url = opc_ua or mqtt or ""
        login = read_credentials("output", [url], credentials).get(url)
        publisher: Server | Topics
        if opc_ua:
            publisher = Server(url, login, stack)
        else:
            publisher = Topics(url, login, stack, stop, per_tag=per_tag)
        echo("simulating the plant ...", err=True)
        rows = play(**options)
        echo(publisher.example)
        count = publish_rows(rows, publisher, start=first, speed=speed, stop=stop)
        echo(f"{count} of {count_of(len(rows), 'row')} published", err=True)
        if opc_ua and not stop():
            echo("the server keeps running, with its history; press Ctrl-C to stop", err=True)
            stop.wait()


class Server:
    """An OPC UA server with a variable for each tag, and their history."""

    def __init__(self, url: str, credentials: Credentials | None, stack: ExitStack) -> None:
        from baryflow.streams.opcua.server import Host

        endpoint = Endpoint.parse(url, credentials)
        endpoint.check_options()
        if endpoint.scheme != "opc.tcp":
            raise InvalidInputError(f"expected a URL that begins with opc.tcp://, got {url}")
        self._host = Host(endpoint, keep=True)
        stack.callback(self._host.close)
        self._host.add(_FOLDER, {variable.label: 0.0 for variable in VARIABLES})
        self._host.add("", {_CLOCK: datetime.now(UTC)})
        where = f"{self._host.url}?node=ns=2;s={_FOLDER}&clock=ns=2;s={_CLOCK}"
        self.example = f"baryflow run {_MODEL} '{where}' --sample-interval 3min"

    def publish(self, row: list[float], stamp: int) -> None:
        """Write all variables."""
        labels = [variable.label for variable in VARIABLES]
        self._host.write(_FOLDER, dict(zip(labels, row, strict=True)), stamp)
        self.finish(stamp)

    def finish(self, stamp: int) -> None:
        """Advance the clock."""
        self._host.write("", {_CLOCK: datetime.fromtimestamp(stamp, UTC)}, stamp)


class Topics:
    """An MQTT topic with an object for each row; with `per_tag`, one for each tag with its values."""

    def __init__(
        self,
        url: str,
        credentials: Credentials | None,
        stack: ExitStack,
        stop: Callable[[], bool] = lambda: False,
        *,
        per_tag: bool = False,
    ) -> None:
        address, mark, options = url.partition("?")
        base = address.rstrip("/")
        urls = [f"{base}/{variable.tag}{mark}{options}" for variable in VARIABLES] if per_tag else [url]
        self._per_tag, self._sinks = per_tag, []
        for one in urls:
            self._sinks.append(open_sink(one, credentials=credentials))
            self._sinks[-1].stop_when(stop)
            stack.callback(self._sinks[-1].close)
        how = f"'{base}/+' --tags TAGS.csv --sample-interval 3min" if per_tag else f"'{url}' --time time"
        self.example = f"baryflow run {_MODEL} {how}"

    def publish(self, row: list[float], stamp: int) -> None:
        """Send the row in one message, or a message for each tag."""
        record = _to_record(row, stamp)
        messages = [record]
        if self._per_tag:
            messages = [{"value": value, "time": record["time"]} for value in row]
        for sink, message in zip(self._sinks, messages, strict=True):
            sink.write([message])

    def finish(self, stamp: int) -> None:
        """Wait until the broker has all messages."""
        del stamp
        for sink in self._sinks:
            sink.flush()


def publish_rows(
    rows: NDArray[np.floating[Any]], publisher: Server | Topics, *, start: int, speed: float, stop: Stop
) -> int:
    """Publish rows in plant time, `speed` times as fast; return how many."""
    begin = time.monotonic()
    for number, row in enumerate(rows.astype(np.float64).tolist()):
        if stop.wait(max(0.0, begin + number * INTERVAL / speed - time.monotonic())):
            return number
        publisher.publish(row, start + number * INTERVAL)
    publisher.finish(start + len(rows) * INTERVAL)
    return len(rows)


def write_table(rows: NDArray[np.floating[Any]], path: Path, start: int) -> None:
    """Write rows with plant time to a CSV file."""
    table = open_sink(path)
    numbered = enumerate(rows.astype(np.float64).tolist())
    table.write([_to_record(row, start + number * INTERVAL) for number, row in numbered])
    table.close()
    echo(f"{path}: {count_of(len(rows), 'row')}", err=True)


def _to_record(row: list[float], stamp: int) -> dict[str, Any]:
    labels = (variable.label for variable in VARIABLES)
    return {"time": instant_text(stamp * SECOND), **dict(zip(labels, row, strict=True))}


def parse_start(text: str | None) -> int:
    """Return the plant time of the first row, now by default, rounded down to three minutes."""
    try:
        moment = datetime.now(UTC) if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"expected a time such as 2026-01-31T12:00:00Z, got {text!r}") from None
    seconds = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    return seconds - seconds % INTERVAL
