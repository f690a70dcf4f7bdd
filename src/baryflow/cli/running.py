"""The command that follows a stream: ``run``."""

from __future__ import annotations

import contextlib
import errno
import signal
import time as clock
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from baryflow.cli.words import Interrupted, Line, WholeNumber, spoken
from baryflow.drift import DriftMonitor
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.persistence import load
from baryflow.runtime import Checkpoint, Event, Outputs, Runner, Totals
from baryflow.streams import open_sink, open_source

#: Events that are told on standard error as they come.
_SPOKEN = ("column", "drift", "warning")
#: Seconds after which a run that waits for rows looks whether it is to stop.
_LOOK_UP = 0.5


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("source", metavar="INPUT")
@click.option(
    "-o", "--output", default="-", show_default=True, metavar="FILE",
    help="Predictions: .ndjson, .csv or .parquet; - is standard output (NDJSON).",
)  # fmt: skip
@click.option("--events", metavar="FILE", help="Batches, drift, checkpoints and bad rows, as NDJSON.")
@click.option("--quarantine", metavar="FILE", help="Rows that cannot be used, and why, as NDJSON.")
@click.option("--checkpoint", metavar="FOLDER", help="Survive kill -9: call it again and it goes on.")
@click.option("--save", "save_to", metavar="FILE", help="The adapted model, at the end.")
@click.option("--time", metavar="COLUMN", help="Is repeated beside each prediction.")
@click.option("--batch", type=WholeNumber(1), default=32, show_default=True, help="Rows at a time.")
@click.option(
    "--wait", type=click.FloatRange(min=0.0, min_open=True), default=None, metavar="SECONDS",
    help="Take a batch as it is after so long; for slow inputs.  [default: 10 with --tail and -]",
)  # fmt: skip
@click.option(
    "--drift", type=click.Choice(["tell", "forget", "restart", "off"]), default="tell",
    show_default=True,
    help="What to do if the target changes: tell, count what was before less, or start anew.",
)  # fmt: skip
@click.option("--tail", is_flag=True, help="The file grows: wait for more of it.")
def run(
    model: Path,
    source: str,
    output: str,
    events: str | None,
    quarantine: str | None,
    checkpoint: str | None,
    save_to: str | None,
    time: str | None,
    batch: int,
    wait: float | None,
    drift: str,
    tail: bool,
) -> None:
    """Follow the rows of INPUT with a fitted MODEL: predict each of them, then learn from it.

    INPUT is a file (CSV, NDJSON, Parquet, NPZ) or - for standard input.
    """
    with spoken("interrupted."), contextlib.ExitStack() as stack:
        fitted = load(model)
        if not isinstance(fitted, OnlineDaDiL):
            raise InvalidInputError(
                f"{model} holds a {getattr(type(fitted), 'kind', type(fitted).__name__)}: 'run' needs a "
                "model that 'fit' has written"
            )
        if time is not None and time in getattr(fitted, "feature_names_in_", ()):
            raise InvalidInputError(f"{time!r} is a feature of the model, not the time")
        names = getattr(fitted, "feature_names_in_", None)
        if wait is None and (tail or source == "-"):
            wait = 10.0
        wanted = None if names is None else names.tolist()
        # Nobody knows when the next row comes: look up now and then whether to stop.
        idle = _LOOK_UP if tail or source == "-" else None
        rows = open_source(source, columns=wanted, time=time, tail=tail, idle=idle)
        stack.callback(rows.close)
        kept = None
        if checkpoint is not None:
            kept = Checkpoint(checkpoint)
            stack.callback(kept.close)
        outputs = _open(output, events, quarantine, kept)
        stop = stack.enter_context(_signals())
        ending = _Ending(outputs)
        stack.callback(ending.close)
        line = stack.enter_context(Line(log_every=60.0))
        if source == "-" and kept is not None and not kept.is_new:
            line.say("going on: standard input is taken to begin where the last run stopped reading")
        teller = _Teller(line)
        runner = Runner(
            fitted, rows, outputs,
            batch_size=batch, timeout=wait, checkpoint=kept, listen=teller,
            monitor=None if drift == "off" else DriftMonitor(fitted, action=drift),
        )  # fmt: skip
        teller.totals = runner.totals
        totals = _run(runner, stop, kept is not None)
        ending.finished = not stop()
        if save_to is not None:
            runner.model.save(save_to)
        line.say(_balance(totals))
    if stop.signal == signal.SIGINT:
        raise Interrupted(
            "interrupted; what was read is done" + (", call it again to go on" if kept else "")
        )


def _run(runner: Runner, stop: _Stop, kept: bool) -> Totals:
    try:
        return runner.run(stop)
    except OSError as error:
        if error.errno == errno.ENOSPC and kept:
            raise InvalidInputError(
                f"no space left on the disk ({error.filename or 'while writing'}): nothing is lost; "
                "make room and call it again"
            ) from error
        raise


class _Ending:
    """Closes outputs; those of a run that did not come to its end can be gone on with."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs, self.finished = outputs, False

    def close(self) -> None:
        for sink in self._outputs.named().values():
            # What went wrong before matters more than that it cannot be closed in order either.
            with contextlib.nullcontext() if self.finished else contextlib.suppress(OSError):
                sink.close(finished=self.finished)


class _Stop:
    """Tells whether to stop, after a signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None


@contextlib.contextmanager
def _signals() -> Iterator[_Stop]:
    """End in order on SIGINT and SIGTERM: after the present batch."""
    stop = _Stop()

    def told(number: int, _: Any) -> None:
        if stop.signal is not None:  # twice: at once
            raise KeyboardInterrupt
        stop.signal = number

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Teller:
    """Tells people about events."""

    def __init__(self, line: Line) -> None:
        self.line, self.began = line, clock.monotonic()
        self.totals = Totals()

    def __call__(self, event: Event) -> None:
        if event.kind in _SPOKEN:
            where = "" if event.kind == "drift" else f"row {event.position}: "  # its words say where
            self.line.say(f"{where}{event.words}")
        elif event.kind == "batch":
            rate = event.position / max(clock.monotonic() - self.began, 1e-9)
            self.line.show(f"{event.position:,} rows  {rate:,.0f}/s  {event.words}")


def _open(output: str, events: str | None, quarantine: str | None, kept: Checkpoint | None) -> Outputs:
    names = [name for name in (output, events, quarantine) if name is not None]
    if len(set(names)) < len(names):
        raise InvalidInputError("predictions, events and quarantine need files of their own")
    if kept is not None and "-" in names:
        raise InvalidInputError(
            "standard output cannot be taken back after a kill: with --checkpoint, write to a file (-o)"
        )
    resume = kept is not None and not kept.is_new
    return Outputs(*(None if name is None else open_sink(name, resume=resume) for name in
                     (output, events, quarantine)))  # fmt: skip


def _balance(totals: Totals) -> str:
    words = f"{totals.read:,} rows = {totals.predicted:,} predicted + {totals.quarantined:,} quarantined"
    times = "once" if totals.drifts == 1 else f"{totals.drifts} times"
    return words + (f"; drift was seen {times}" if totals.drifts else "")
