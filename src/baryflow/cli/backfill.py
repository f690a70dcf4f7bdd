"""``run --dask``: a folder of Parquet files with the rows of many machines, on many workers."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, field
from typing import Any

import click
from click.core import ParameterSource

from baryflow.cli.console import Interrupted, Line, bar, duration, spoken
from baryflow.cli.run_stream import Stop, heed_signals
from baryflow.exceptions import InvalidInputError
from baryflow.validation import count_of

#: Options of ``run`` that are for one stream in one process, and what to say about them.
ALONE = {
    "quarantine": "rows that cannot be used are in the folder of predictions, under _quarantine",
    "save_to": "there are many models: --checkpoint keeps them",
    "normal": "it is what is normal on one machine",
    "in_memory": "workers have one group of machines in memory at a time",
    "wait": "files do not wait",
    "every": "a file has rows",
    "tags": "a file has rows",
    "max_age": "a file has rows",
    "credentials": "object stores take them from the environment",
    "tail": "call it again when more files have come",
}
#: Seconds between two lines in a log.
_LOG_EVERY = 30.0
#: Failed machines that are named.
_NAMED = 5
#: How Ctrl-C ends it.
_GO_ON = "interrupted; what is done is kept, call it again to go on"


@dataclass(frozen=True)
class Wish:
    """What is to be done on a cluster.

    Attributes
    ----------
    address : str
        Of a scheduler, or ``"local"``.
    workers : int or None
    source, output : str
    state : str or None
    key, time : str or None
    batch : int
    drift : str
    events : str or None
    """

    address: str
    workers: int | None
    source: str
    output: str
    state: str | None
    key: str | None
    time: str | None
    batch: int
    drift: str
    events: str | None = None


def refuse_options(context: click.Context, alone: dict[str, str]) -> None:
    """Refuse options that were given and are for one process.

    Parameters
    ----------
    context : click.Context
        Of the command.
    alone : dict of str → str
        Their names, and what to say about them.

    Raises
    ------
    InvalidInputError
        If there is one.
    """
    options = {option.name: option.opts[-1] for option in context.command.params}
    for name, reason in alone.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InvalidInputError(f"{options[name]} is not for --dask: {reason}")


def follow_on_cluster(model: Any, wish: Wish) -> None:
    """Follow all machines in a folder, telling how far it is.

    Parameters
    ----------
    model : OnlineDaDiL or SignalModel
    wish : Wish

    Raises
    ------
    InvalidInputError
        If something is missing that a cluster needs.
    """
    if wish.key is None:
        raise InvalidInputError("--dask is for many machines: --key COLUMN says whose a row is")
    if wish.output == "-":
        raise InvalidInputError("--dask writes a folder of Parquet files: name it, -o FOLDER")
    if wish.events == "-":
        raise InvalidInputError("--dask writes a folder of events: name it, --events FOLDER")
    if wish.state is None:
        raise InvalidInputError("--dask keeps the state of each machine: --checkpoint FOLDER says where")
    from baryflow.distributed.cluster import connect
    from baryflow.distributed.fleet.backfill import backfill

    with heed_signals() as stop, spoken(_GO_ON), Line(log_every=_LOG_EVERY) as line:
        with connect(wish.address, wish.workers) as client:
            found = backfill(
                model, wish.source, key=wish.key, output=wish.output, state=wish.state, client=client,
                batch_size=wish.batch, drift=wish.drift, time=wish.time, events=wish.events,
                progress=Bar(line, stop),
            )  # fmt: skip
        used = f"{found.predicted:,} predicted"
        if found.predicted != found.used:
            used = f"{found.used:,} in {count_of(found.predicted, 'window')} predicted"
        drifts = (
            f"; drift was seen in {count_of(found.drifts, 'batch', 'batches')}" if found.drifts else ""
        )
        line.say(
            f"{count_of(found.rows, 'row')} of {count_of(found.targets, 'machine')} = {used} + "
            f"{found.quarantined:,} quarantined{drifts}"
        )
        for key in list(found.failed)[:_NAMED]:
            line.say(f"{key}: {found.failed[key]}")
        if len(found.failed) > _NAMED:
            line.say(f"... and {len(found.failed) - _NAMED:,} more")
    if found.failed:
        raise click.ClickException(
            f"{len(found.failed):,} of {count_of(found.targets, 'machine')} not done: run the same "
            "command again to continue"
        )


@dataclass
class Bar:
    """A bar that shows how far it is, how fast, and how long it takes.

    Attributes
    ----------
    line : Line
    stop : Stop
        Asked whenever there is something to show: that is a moment at which it can be stopped in order.
    unit : str
        What is counted.
    stopped : str
        Said when it was stopped.
    """

    line: Line
    stop: Stop
    unit: str = "rows"
    stopped: str = _GO_ON
    _began: dict[str, tuple[float, int]] = field(default_factory=dict)

    def __call__(self, done: int, total: int, what: str) -> None:
        """Show it."""
        if self.stop():
            raise Interrupted(self.stopped)
        now = clock.monotonic()
        # What was done before this call says nothing about how fast it is.
        start, before = self._began.setdefault(what, (now, done))
        rate = (done - before) / max(now - start, 1e-9)
        share = done / max(total, 1)
        left = f", {duration((total - done) / rate)} left" if rate and done < total else ""
        words = f"{what} {bar(share)}  {done:,} of {total:,} {self.unit}  {rate:,.0f}/s{left}"
        self.line.show(words)
