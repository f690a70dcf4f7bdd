"""A run as it goes: what is opened for it, who is told, and how it ends."""

from __future__ import annotations

import contextlib
import errno
import signal
import time as clock
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from baryflow.cli.console import Line
from baryflow.exceptions import InvalidInputError, StoppedError
from baryflow.features import SignalModel
from baryflow.runtime import Checkpoint, Event, Outputs, PartitionRunner, Runner, SessionConfig, Totals
from baryflow.streams import Batch, Credentials, open_sink
from baryflow.streams.urls import is_url
from baryflow.validation import count_of

#: Events that are told on standard error as they come.
_SPOKEN = ("column", "drift", "warning")
#: Reasons for which rows are quarantined that are reported on standard error, each once.
_REPORTED = 100
#: Seconds in which another process leaves a part of a shared input.
_PATIENCE = 60.0


@dataclass
class Plan:
    """What is to be done, and how."""

    config: SessionConfig
    rows: Any
    names: tuple[str | None, ...]
    credentials: Credentials
    checkpoint: str | None
    read_size: int
    wait: float | None
    in_memory: int | None
    teller: ConsoleReporter
    stop: Stop
    keyed: bool = False
    #: Those that shape results: a checkpoint can only be resumed with the same ones.
    options: dict[str, Any] = field(default_factory=dict)

    def follow(self, source: str, stack: contextlib.ExitStack, save_to: str | None) -> str:
        """Follow the input to its end, or until told to stop; return the balance of rows in words."""
        if (self.names[0] or "").startswith(("http://", "https://")):
            return self.feed(stack, save_to)
        windows = isinstance(self.config.base, SignalModel)
        try:
            if getattr(self.rows, "shared", False):
                if save_to is not None:
                    raise InvalidInputError("--save is for one model, but a shared input has many")
                self._check_shared()
                partitions = PartitionRunner(
                    self.rows, self.runner, self.read_size, self.wait, self.teller
                )
                return _balance(partitions.run(self.stop), windows)
            runner = self.runner("", stack)
            if source == "-" and runner.checkpoint is not None and not runner.checkpoint.is_new:
                self.teller.line.say(
                    "going on: standard input is taken to begin where the last run stopped reading"
                )
            totals = runner.run(self.stop)
        except StoppedError as error:  # no snapshot: what was read last is in the journal
            lost = (
                "nothing is lost, call it again" if self.checkpoint else "its last records may be lost"
            )
            return f"{error}: {lost}"
        except OSError as error:
            if error.errno == errno.ENOSPC and self.checkpoint is not None:
                raise InvalidInputError(
                    f"no space left on the disk ({error.filename or 'while writing'}): nothing is lost; "
                    "make room and call it again"
                ) from error
            raise
        if save_to is not None:
            _save(runner, save_to)
        return _balance(totals, windows)

    def feed(self, stack: contextlib.ExitStack, save_to: str | None) -> str:
        """Send the rows to a service, which has the models."""
        from baryflow.client import forward, open_target

        if save_to is not None or self.names[1] is not None or getattr(self.rows, "shared", False):
            raise InvalidInputError(
                "a service keeps models and events itself: leave out --save, --events and groups"
            )
        client, name = open_target(str(self.names[0]), self.stop)
        stack.callback(client.close)
        kept = None if self.checkpoint is None else Checkpoint(self.checkpoint)
        if kept is not None:
            stack.callback(kept.close)
            learning = ("batch", "drift")  # here only the service learns
            kept.keep_options({k: v for k, v in self.options.items() if k not in learning})
        aside = _open((self.names[2],), kept, self.credentials).predictions
        if aside is not None:
            stack.callback(aside.close)
        self._heed(self.rows, aside)

        reported: set[str] = set()

        def heard(batch: Batch, _: list[dict[str, Any]]) -> None:
            for notice in batch.notices:
                self.teller(Event("warning", int(max(batch.positions, default=0)), notice))
            for row in batch.rejected[:1]:
                if row.reason not in reported and len(reported) < _REPORTED:
                    reported.add(row.reason)
                    self.teller(Event("warning", row.position, f"quarantined: {row.reason}"))

        columns = getattr(self.config.base, "feature_names_in_", None)
        fed = forward(
            self.rows, client, name, keyed=self.keyed, columns=columns, checkpoint=kept,
            read_size=self.read_size, timeout=self.wait, stop=self.stop, listen=heard, quarantine=aside,
        )  # fmt: skip
        rows = count_of(fed.rows + fed.rejected, "row")
        words = f"{rows} = {fed.rows:,} sent + {fed.rejected:,} quarantined"
        if fed.stopped:
            words += "; stopped before the service had answered for all rows that were read"
            words += ": the rest is in the checkpoint" if kept is not None else ""
        return words

    def _heed(self, *ends: Any) -> None:
        """Let sources and sinks that may have to wait for a broker know when to stop."""
        for end in ends:
            if hasattr(end, "stop_when"):
                end.stop_when(self.stop)

    def _check_shared(self) -> None:
        """Parts come and go and come again: each needs files of its own that can be gone on with."""
        files = [name for name in self.names if name not in (None, "-") and not is_url(name)]
        if files and self.checkpoint is None:
            raise InvalidInputError(f"to write {files[0]}, a shared input needs --checkpoint FOLDER")
        if any(str(name).lower().endswith(".parquet") for name in files):
            raise InvalidInputError("a shared input has no end, at which Parquet is made: use .ndjson")

    def runner(self, partition: str, stack: contextlib.ExitStack) -> Runner:
        """Open what a runner needs; `stack` closes it. A part of a shared input has its own files."""
        kept = None
        if self.checkpoint is not None:
            # Whoever had a part before may need a moment to leave it.
            kept = Checkpoint(
                Path(self.checkpoint) / partition, patience=_PATIENCE if partition else 0.0
            )
            stack.callback(kept.close)
            kept.keep_options(self.options)
        names = self.names
        if partition and kept is not None:
            names = tuple(None if name is None else _of_shard(name, partition) for name in names)
        outputs = _open(names, kept, self.credentials)
        self._heed(self.rows, *outputs.named().values())
        runner = Runner(
            self.config, self.rows, outputs, read_size=self.read_size, timeout=self.wait,
            checkpoint=kept, listen=self.teller, in_memory=self.in_memory, keyed=self.keyed,
        )  # fmt: skip
        stack.callback(runner.close)
        stack.push(_Ending(outputs, self.stop).close)
        return runner


def _of_shard(name: str, partition: str) -> str:
    """Return the name of an output for one part of a shared input; a topic can take all of them."""
    if is_url(name) or name == "-":
        return name
    path = Path(name)
    return str(path.with_name(f"{path.stem}-{partition}{path.suffix}"))


def _save(runner: Runner, path: str) -> None:
    """Save the adapted model, with what makes its features if it has that."""
    base, model = runner.config.base, runner.session.model
    if isinstance(base, SignalModel):
        SignalModel(base.features, model, base.step).save(path)
    else:
        model.save(path)


class _Ending:
    """Closes outputs; those of a run that did not come to its end can be gone on with."""

    def __init__(self, outputs: Outputs, stop: Stop) -> None:
        self._outputs, self._stop = outputs, stop

    def close(self, kind: Any, *_: object) -> None:
        finished = kind is None and not self._stop()
        for sink in self._outputs.named().values():
            # What went wrong before matters more than that it cannot be closed in order either.
            with contextlib.nullcontext() if finished else contextlib.suppress(OSError):
                sink.close(finished=finished)


class Stop:
    """Tells whether to stop, after a signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Tell it."""
        return self.signal is not None


@contextlib.contextmanager
def heed_signals() -> Iterator[Stop]:
    """End in order on SIGINT and SIGTERM: after the present batch."""
    stop = Stop()

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


class ConsoleReporter:
    """Tells people about events."""

    def __init__(self, line: Line) -> None:
        self.line, self.began = line, clock.monotonic()

    def __call__(self, event: Event) -> None:
        """Tell of one."""
        if event.kind in _SPOKEN:
            where = "" if event.kind == "drift" else f"row {event.position}: "  # its words say where
            self.line.say(f"{where}{event.message}")
        elif event.kind == "batch":
            rate = event.position / max(clock.monotonic() - self.began, 1e-9)
            self.line.show(f"{count_of(event.position, 'row')}  {rate:,.0f}/s  {event.message}")


def _open(names: tuple[str | None, ...], kept: Checkpoint | None, credentials: Credentials) -> Outputs:
    given = [name for name in names if name is not None]
    if len(set(given)) < len(given):
        raise InvalidInputError("predictions, events and quarantine need places of their own")
    if kept is not None and "-" in given:
        raise InvalidInputError(
            "standard output cannot be taken back after a kill: with --checkpoint, write to a file (-o)"
        )
    if len(names) > 1 and str(names[1]).lower().endswith(".csv"):
        raise InvalidInputError("events of different kinds have different fields: write them to .ndjson")
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
        used = f"{totals.used:,} in {count_of(totals.predicted, 'window')} predicted"
    words = f"{count_of(totals.read, 'row')} = {used} + {totals.quarantined:,} quarantined"
    times = "once" if totals.drifts == 1 else f"{totals.drifts} times"
    if totals.unlearned:
        words += f"; the model failed to learn from {totals.unlearned:,} of them"
    return words + (f"; drift was seen {times}" if totals.drifts else "")
