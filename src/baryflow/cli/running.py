"""The command that follows a stream: ``run``."""

from __future__ import annotations

import contextlib
import errno
import signal
import time as clock
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from baryflow.cli.words import Interrupted, Line, WholeNumber, spoken
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.features import SignalModel
from baryflow.persistence import load
from baryflow.runtime import Checkpoint, Event, Outputs, Recipe, Runner, Shards, Totals
from baryflow.streams import Credentials, open_sink, open_source, read_credentials
from baryflow.streams.addresses import is_url
from baryflow.streams.clock import parse_duration

#: Events that are told on standard error as they come.
_SPOKEN = ("column", "drift", "warning")
#: Seconds after which a run that waits for rows looks whether it is to stop.
_LOOK_UP = 0.5
#: Seconds for which a row of a live input waits for others, before it is predicted.
_WAIT = 1.0
#: Seconds in which another process leaves a part of a shared input.
_PATIENCE = 60.0
#: Of many machines so many rows are read at a time: each model is looked up once for all of its own.
_READ_BY_KEY = 1024


class Duration(click.ParamType[float]):
    """Seconds, written as people do: 3min, 500ms."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        try:
            return parse_duration(value)
        except InvalidInputError as error:
            self.fail(str(error), param, ctx)


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
@click.option(
    "--normal", metavar="FILE",
    help="Raw rows of this machine in normal operation, for a model fitted with --window and --normal.",
)  # fmt: skip
@click.option(
    "--key", metavar="COLUMN",
    help="Many machines in one stream: each has a model of its own. @topic, @key: of the message.",
)  # fmt: skip
@click.option(
    "--in-memory", type=WholeNumber(1), metavar="NUMBER",
    help="Machines whose models are kept in memory; others are written out.  [default: 512 MB of them]",
)  # fmt: skip
@click.option("--batch", type=WholeNumber(1), default=32, show_default=True, help="Rows to learn from.")
@click.option(
    "--wait", type=Duration(), metavar="DURATION",
    help="Predict what has come after so long; for slow inputs.  [default: 1s if the input is live]",
)  # fmt: skip
@click.option(
    "--drift", type=click.Choice(["tell", "forget", "restart", "off"]), default="tell",
    show_default=True,
    help="What to do if the target changes: tell, count what was before less, or start anew.",
)  # fmt: skip
@click.option("--every", type=Duration(), metavar="DURATION", help="Make a row of tags so often: 3min.")
@click.option("--tags", metavar="FILE", help="List of tags that come one by one, for --every.")
@click.option("--max-age", type=Duration(), metavar="DURATION", help="Older values are not believed.")
@click.option(
    "--credentials", metavar="FILE",
    help="User, password and certificates, as JSON; or BARYFLOW_USERNAME and so on.",
)  # fmt: skip
@click.option("--tail", is_flag=True, help="The file grows: wait for more of it.")
def run(
    model: Path,
    source: str,
    *,
    output: str,
    events: str | None,
    quarantine: str | None,
    checkpoint: str | None,
    save_to: str | None,
    time: str | None,
    normal: str | None,
    key: str | None,
    in_memory: int | None,
    batch: int,
    wait: float | None,
    drift: str,
    every: float | None,
    tags: str | None,
    max_age: float | None,
    credentials: str | None,
    tail: bool,
) -> None:
    """Follow the rows of INPUT with a fitted MODEL: predict each of them, then learn from it.

    INPUT is a file (CSV, NDJSON, Parquet, NPZ), - for standard input, or mqtt://, mqtts://, kafka:// or
    opc.tcp://. Outputs may be such URLs, too.
    """
    with spoken("interrupted."), contextlib.ExitStack() as stack:
        fitted, columns = _load(model, time, key)
        if save_to is not None and key is not None:
            raise InvalidInputError("with --key there are many models: --checkpoint keeps them")
        if normal is not None:
            _learn_normal(fitted, normal, columns)
        known = read_credentials(credentials)
        live = tail or source == "-" or is_url(source)
        # Nobody knows when the next row comes: look up now and then whether to stop.
        rows = open_source(
            source, columns=columns, time=time, key=key, tail=tail, idle=_LOOK_UP if live else None,
            credentials=known, every=every, tags=tags, max_age=max_age,
        )  # fmt: skip
        stack.callback(rows.close)
        stop = stack.enter_context(_signals())
        line = stack.enter_context(Line(log_every=60.0))
        plan = _Plan(
            Recipe(fitted, batch, drift), rows, (output, events, quarantine), known, checkpoint,
            batch if key is None else max(batch, _READ_BY_KEY),
            _WAIT if wait is None and live else wait, in_memory, _Teller(line), stop,
        )  # fmt: skip
        totals = plan.follow(source, stack, save_to)
        line.say(_balance(totals, isinstance(fitted, SignalModel)))
    if stop.signal == signal.SIGINT:
        raise Interrupted(
            "interrupted; what was read is done" + (", call it again to go on" if checkpoint else "")
        )


def _load(
    path: Path, time: str | None, key: str | None
) -> tuple[OnlineDaDiL | SignalModel, list[str] | None]:
    """Return a model that can follow, and the columns it wants."""
    fitted = load(path)
    if not isinstance(fitted, OnlineDaDiL | SignalModel):
        raise InvalidInputError(
            f"{path} holds a {getattr(type(fitted), 'kind', type(fitted).__name__)}: 'run' needs a "
            "model that 'fit' has written"
        )
    names = getattr(fitted, "feature_names_in_", None)
    columns = None if names is None else names.tolist()
    for what, column in (("time", time), ("key", key)):
        if column is not None and column in (columns or ()):
            raise InvalidInputError(f"{column!r} is a feature of the model, not the {what}")
    return fitted, columns


def _learn_normal(fitted: OnlineDaDiL | SignalModel, path: str, columns: list[str] | None) -> None:
    """Tell a model of raw signals what is normal on the machine that it will follow."""
    if not isinstance(fitted, SignalModel):
        raise InvalidInputError("--normal is for raw signals: fit the model with --window and --normal")
    source = open_source(path, columns=columns)
    try:
        found = []
        while (batch := source.read(_READ_BY_KEY)) is not None:
            found.append(batch.rows)
    finally:
        source.close()
    fitted.learn_normal(np.concatenate(found))


@dataclass
class _Plan:
    """What is to be done, and how."""

    recipe: Recipe
    rows: Any
    names: tuple[str | None, ...]
    credentials: Credentials
    checkpoint: str | None
    read_size: int
    wait: float | None
    in_memory: int | None
    teller: _Teller
    stop: _Stop

    def follow(self, source: str, stack: contextlib.ExitStack, save_to: str | None) -> Totals:
        """Follow the input to its end, or until told to stop."""
        try:
            if getattr(self.rows, "shared", False):
                if save_to is not None:
                    raise InvalidInputError("--save is for one model, but a shared input has many")
                shards = Shards(self.rows, self.runner, self.read_size, self.wait, self.teller)
                return shards.run(self.stop)
            runner = self.runner("", stack)
            if source == "-" and runner.checkpoint is not None and not runner.checkpoint.is_new:
                self.teller.line.say(
                    "going on: standard input is taken to begin where the last run stopped reading"
                )
            totals = runner.run(self.stop)
        except OSError as error:
            if error.errno == errno.ENOSPC and self.checkpoint is not None:
                raise InvalidInputError(
                    f"no space left on the disk ({error.filename or 'while writing'}): nothing is lost; "
                    "make room and call it again"
                ) from error
            raise
        if save_to is not None:
            _save(runner, save_to)
        return totals

    def runner(self, shard: str, stack: contextlib.ExitStack) -> Runner:
        """Open what a runner needs; `stack` closes it. A part of a shared input has its own files."""
        kept = None
        if self.checkpoint is not None:
            # Whoever had a part before may need a moment to leave it.
            kept = Checkpoint(Path(self.checkpoint) / shard, patience=_PATIENCE if shard else 0.0)
            stack.callback(kept.close)
        names = self.names
        if shard and kept is not None:
            names = tuple(None if name is None else _of_shard(name, shard) for name in names)
        outputs = _open(names, kept, self.credentials)
        runner = Runner(
            self.recipe, self.rows, outputs, read_size=self.read_size, timeout=self.wait,
            checkpoint=kept, listen=self.teller, in_memory=self.in_memory,
        )  # fmt: skip
        stack.callback(runner.close)
        stack.push(_Ending(outputs, self.stop).close)
        return runner


def _of_shard(name: str, shard: str) -> str:
    """Return the name of an output for one part of a shared input; a topic can take all of them."""
    if is_url(name) or name == "-":
        return name
    path = Path(name)
    return str(path.with_name(f"{path.stem}-{shard}{path.suffix}"))


def _save(runner: Runner, path: str) -> None:
    """Save the adapted model, with what makes its features if it has that."""
    base, model = runner.recipe.base, runner.followed.model
    if isinstance(base, SignalModel):
        SignalModel(base.features, model, base.step).save(path)
    else:
        model.save(path)


class _Ending:
    """Closes outputs; those of a run that did not come to its end can be gone on with."""

    def __init__(self, outputs: Outputs, stop: _Stop) -> None:
        self._outputs, self._stop = outputs, stop

    def close(self, kind: Any, *_: object) -> None:
        finished = kind is None and not self._stop()
        for sink in self._outputs.named().values():
            # What went wrong before matters more than that it cannot be closed in order either.
            with contextlib.nullcontext() if finished else contextlib.suppress(OSError):
                sink.close(finished=finished)


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

    def __call__(self, event: Event) -> None:
        if event.kind in _SPOKEN:
            where = "" if event.kind == "drift" else f"row {event.position}: "  # its words say where
            self.line.say(f"{where}{event.words}")
        elif event.kind == "batch":
            rate = event.position / max(clock.monotonic() - self.began, 1e-9)
            self.line.show(f"{event.position:,} rows  {rate:,.0f}/s  {event.words}")


def _open(names: tuple[str | None, ...], kept: Checkpoint | None, credentials: Credentials) -> Outputs:
    given = [name for name in names if name is not None]
    if len(set(given)) < len(given):
        raise InvalidInputError("predictions, events and quarantine need files of their own")
    if kept is not None and "-" in given:
        raise InvalidInputError(
            "standard output cannot be taken back after a kill: with --checkpoint, write to a file (-o)"
        )
    resume = kept is not None and not kept.is_new
    return Outputs(
        *(
            None if name is None else open_sink(name, resume=resume, credentials=credentials)
            for name in names
        )
    )


def _balance(totals: Totals, windows: bool) -> str:
    used = f"{totals.predicted:,} predicted"
    if windows:
        used = f"{totals.used:,} in {totals.predicted:,} windows predicted"
    words = f"{totals.read:,} rows = {used} + {totals.quarantined:,} quarantined"
    times = "once" if totals.drifts == 1 else f"{totals.drifts} times"
    return words + (f"; drift was seen {times}" if totals.drifts else "")
