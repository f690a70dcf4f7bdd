"""The command that follows a stream: ``run``."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from baryflow.cli.backfill import ALONE, Wish, follow_on_cluster, refuse_options
from baryflow.cli.console import Interrupted, Line, WholeNumber, keep_inputs, spoken
from baryflow.cli.run_stream import ConsoleReporter, Plan, heed_signals
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.features import SignalModel
from baryflow.persistence import load
from baryflow.runtime import SessionConfig
from baryflow.runtime.checkpoint import is_checkpoint_file
from baryflow.streams import open_source, read_credentials
from baryflow.streams.sampling.clock import parse_duration
from baryflow.streams.urls import is_url

#: Seconds after which a run that waits for rows looks whether it is to stop.
_LOOK_UP = 0.5
#: Seconds for which a row of a live input waits for others, before it is predicted.
_WAIT = 1.0
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
@click.option(
    "--dask", metavar="ADDRESS|local",
    help="INPUT is a folder of Parquet files, with --key: follow it on a cluster. -o, --events and "
    "--checkpoint are folders, too, or URLs such as s3://bucket/folder.",
)  # fmt: skip
@click.option("--workers", type=WholeNumber(1), help="Processes for --dask local.  [default: all cores]")
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
    dask: str | None,
    workers: int | None,
) -> None:
    """Follow the rows of INPUT with a fitted MODEL: predict each of them, then learn from it.

    INPUT is a file (CSV, NDJSON, Parquet, NPZ), - for standard input, or mqtt://, mqtts://, kafka:// or
    opc.tcp://. Outputs may be such URLs, too. With -o http://HOST:PORT/NAME rows go to a service
    ('baryflow serve') instead, which predicts them.
    """
    if dask is not None:
        with spoken():
            refuse_options(click.get_current_context(), ALONE)
            wish = Wish(dask, workers, source, output, checkpoint, key, time, batch, drift, events)
            follow_on_cluster(_load(model, time, key)[0], wish)
        return
    with spoken("interrupted."), contextlib.ExitStack() as stack:
        if workers is not None:
            raise InvalidInputError("--workers is for --dask local")
        if save_to is not None and not save_to.endswith(".bary"):
            raise InvalidInputError(f"--save writes a .bary file, got {save_to}")
        inputs, outputs = [source, normal, tags, credentials], [output, events, quarantine, save_to]
        outputs += [f"{name}.partial.ndjson" for name in outputs if str(name).endswith(".parquet")]
        keep_inputs([model, *inputs], outputs)
        if checkpoint is not None:
            _keep_apart(Path(checkpoint), inputs, save_to)
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
            credentials=known, sample_interval=every, tags=tags, max_age=max_age,
        )  # fmt: skip
        stack.callback(rows.close)
        stop = stack.enter_context(heed_signals())
        line = stack.enter_context(Line(log_every=60.0))
        if is_url(source):
            line.say(f"following {source.partition('?')[0]}; Ctrl-C ends it")
        plan = Plan(
            SessionConfig(fitted, batch, drift), rows, (output, events, quarantine), known, checkpoint,
            batch if key is None else max(batch, _READ_BY_KEY),
            _WAIT if wait is None and live else wait, in_memory, ConsoleReporter(line), stop,
            key is not None,
            {"batch": batch, "drift": drift, "time": time, "key": key, "every": every,
             "max-age": max_age},
        )  # fmt: skip
        line.say(plan.follow(source, stack, save_to))
    if stop.signal == signal.SIGINT:
        raise Interrupted("interrupted" + ("; call it again to resume" if checkpoint else ""))


def _keep_apart(checkpoint: Path, inputs: Sequence[str | None], save_to: str | None) -> None:
    """Refuse inputs that are files of the checkpoint, and a model that would be one of them."""
    if checkpoint.is_dir():
        keep_inputs(inputs, [path for path in checkpoint.iterdir() if is_checkpoint_file(path)])
    path = Path(save_to or "")
    if path.resolve().parent == checkpoint.resolve() and is_checkpoint_file(path):
        raise InvalidInputError(f"{save_to} is a file of the checkpoint: name another file")


def _load(
    path: Path, time: str | None, key: str | None
) -> tuple[OnlineDaDiL | SignalModel, list[str] | None]:
    """Return a model that can follow, and the columns it wants."""
    if path.suffix.lower() != ".bary":
        raise InvalidInputError(f"expected a .bary file first, then the INPUT, got {path} as the model")
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
