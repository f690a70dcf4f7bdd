"""``baryflow run``: follow a stream with a model."""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from baryflow.alarms import AlarmConfig
from baryflow.cli import options
from baryflow.cli.console import (
    ConsoleReporter,
    Line,
    Stop,
    raise_if_interrupted,
    report_errors,
    stop_on_signals,
)
from baryflow.cli.metrics import RunMetrics
from baryflow.cli.options import (
    AlarmOptions,
    Command,
    Count,
    StreamOptions,
    local_files,
    protect_inputs,
)
from baryflow.estimators._input import InOrder
from baryflow.estimators._sensors import describe_new_faults
from baryflow.exceptions import InvalidInputError, StoppedError
from baryflow.features import SignalModel
from baryflow.runtime import Outputs, PartitionRunner, Runner, SessionConfig, Store, Totals
from baryflow.runtime.session import FirstRows
from baryflow.runtime.store import is_checkpoint_file
from baryflow.streams import Credentials, open_sink, open_source, read_credentials
from baryflow.streams.label_records import CommandFormat, LabelFormat, parse_time
from baryflow.streams.labels import LabelledSource, open_labels
from baryflow.streams.sinks import is_full_file
from baryflow.streams.urls import is_url
from baryflow.validation import count_of

#: Rows read and learned from at a time, at most, if they all exist already or have keys.
LARGEST_BATCH = 1024
#: Seconds to wait for another process to release a partition.
_PATIENCE = 60.0
#: Once the rows have ended: seconds without a label after which a topic holds no more of them.
_LAST_LABELS = 2.0
log = logging.getLogger("baryflow.cli.run")


@dataclass(frozen=True)
class RunOptions:
    """What ``run`` writes, what it learns from besides rows, and how."""

    output: str = options.option(
        "-o",
        "--output",
        default="-",
        metavar="FILE",
        help="Predictions: a .ndjson, .csv or .parquet file, a URL, or - for standard output (NDJSON).",
    )
    events: str | None = options.option(
        "--events",
        metavar="FILE",
        help="Write events here, as NDJSON: batches, drift, alarms, labels, checkpoints, bad rows.",
    )
    quarantine: str | None = options.declare(options.quarantine)
    checkpoint: str | None = options.option(
        "--checkpoint",
        metavar="FOLDER",
        help="Save progress here; after a crash or kill -9 the same command resumes.",
    )
    save: str | None = options.option(
        "--save", metavar="FILE", help="Write the adapted model here at the end."
    )
    baseline: str | None = options.option(
        "--baseline",
        metavar="FILE",
        help="File of rows of this target in normal operation: they show how it is calibrated.",
    )
    baseline_rows: int | None = options.option(
        "--baseline-rows",
        type=Count("number"),
        help="Use this many first rows of every target, known to be normal operation, as its baseline.",
    )
    normal_until: str | None = options.option(
        "--normal-until",
        metavar="TIME",
        help="Use all rows up to this time (ISO 8601), known to be normal operation, as a baseline.",
    )
    normal_class: str | None = options.option(
        "--normal-class",
        metavar="CLASS",
        help="Class of a baseline.  [default: that of 'baryflow fit --normal-class']",
    )
    in_memory: int | None = options.option(
        "--in-memory",
        type=Count("number"),
        help="With --key: models kept in memory; others are written to disk.  [default: as many as "
        "fit into 512 MB]",
    )
    labels: str | None = options.option(
        "--labels",
        metavar="FILE",
        help="Labels of rows by position, offset or time: a CSV, NDJSON or JSON file, or a topic "
        "(mqtt://, kafka://). A file is followed if the input is live.",
    )
    labels_certify: bool = options.option(
        "--labels-certify",
        is_flag=True,
        help="Count the labels for the certificate: their rows were chosen at random.",
    )
    labels_normal: str | None = options.option(
        "--labels-normal",
        metavar="CLASS",
        help="Class of the spans that a file of AWS Lookout for Equipment rates NO_ANOMALY.",
    )
    alarm_commands: str | None = options.option(
        "--alarm-commands",
        metavar="FILE",
        help="Commands that acknowledge or shelve alarms: a CSV, NDJSON or JSON file, or a topic.",
    )
    batch_size: int | None = options.option(
        "--batch-size",
        type=Count("rows"),
        help="Rows the model learns from at a time.  [default: 32; of a file up to 1,024 between two "
        "adaptations]",
    )
    drift: str = options.declare(options.drift)
    rotate: int | None = options.declare(options.rotate)
    metrics_port: int | None = options.option(
        "--metrics-port",
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help="Serve /metrics (Prometheus) and /health on this port of 127.0.0.1; 0 picks a free one.",
    )

    @property
    def outputs(self) -> tuple[str | None, ...]:
        """Where predictions, events and quarantined rows are written."""
        return self.output, self.events, self.quarantine

    def check(
        self, inputs: Sequence[str | Path | None], stream: StreamOptions, alarm: AlarmOptions
    ) -> None:
        """Refuse outputs that cannot be written, or would overwrite an input or each other."""
        if self.output.startswith(("http://", "https://")):
            raise InvalidInputError(
                f"cannot write predictions to {self.output}; to send rows to a service, use 'baryflow "
                "forward INPUT URL'"
            )
        if self.save is not None and not self.save.endswith(".bary"):
            raise InvalidInputError(f"--save writes a .bary file, got {self.save}")
        if self.save is not None and stream.key is not None:
            raise InvalidInputError("--save is for one model, and --key has many: use --checkpoint")
        outputs = [*self.outputs, self.save]
        inputs = [*inputs, *stream.files, self.baseline, self.labels, self.alarm_commands]
        inputs.append(alarm.alarm_secret_file)
        protect_inputs(inputs, alarm.alarms)
        partial = [f"{name}.partial.ndjson" for name in outputs if str(name).endswith(".parquet")]
        protect_inputs(inputs, [*outputs, *partial])
        for output in local_files(self.outputs if self.rotate is not None else ()):
            for file in local_files([*inputs, *outputs]):
                if is_full_file(Path(file), Path(output)):
                    raise InvalidInputError(
                        f"{file} has the name of a full file of {output} and would be overwritten: name "
                        "another file"
                    )
        folder = Path(self.checkpoint or "")
        if self.checkpoint is not None and folder.is_dir():
            protect_inputs(inputs, [path for path in folder.iterdir() if is_checkpoint_file(path)])

    def shaping(self) -> dict[str, Any]:
        """Return the options that shape results; a checkpoint is resumed only with the same ones."""
        names = (
            "batch_size",
            "drift",
            "rotate",
            "baseline",
            "baseline_rows",
            "normal_until",
            "normal_class",
        )
        return {name.replace("_", "-"): getattr(self, name) for name in names}


run_options = options.collect(RunOptions, "how")


@click.command(
    cls=Command,
    example="baryflow run pumps.bary pump_e.csv --time time -o predictions.csv --checkpoint state",
    docs="docs/howto/historian-export.md",
)
@options.model_argument
@options.stream_options
@run_options
@options.alarm_options
@options.log_format
def run(
    model: Path, stream: StreamOptions, how: RunOptions, alarm: AlarmOptions, *, log_format: str
) -> None:
    """Follow the rows of INPUT with a fitted MODEL: predict each row, then learn from it.

    INPUT is a file (CSV, NDJSON, Parquet, NPZ), - for standard input, or a URL that begins with
    mqtt://, mqtts://, kafka:// or opc.tcp://. Outputs can be URLs, too.
    """
    with (
        report_errors(log_format=log_format),
        fail_without_result(kept=how.quarantine is not None) as count,
        contextlib.ExitStack() as stack,
    ):
        how.check([model], stream, alarm)
        fitted, columns = options.load_model(model, {"time": stream.time, "key": stream.key})
        first = _read_first_rows(fitted, how, stream)
        if how.baseline is not None:
            _learn_baseline(fitted, how.baseline, columns, how.normal_class, stream.key)
        alarms = alarm.config(fitted)
        _check_alarms(alarms, how.alarm_commands, stream)
        metrics = stack.enter_context(RunMetrics(how.metrics_port))
        credentials = (
            read_credentials("output", how.outputs, stream.credentials)
            | read_credentials("labels", [how.labels], stream.credentials)
            | read_credentials("alarms", [*alarm.alarms, how.alarm_commands], stream.credentials)
        )
        rows = metrics.observe(stream.open(columns, durable=how.checkpoint is not None))
        if how.alarm_commands is not None:
            rows = _add_labels(
                rows, how.alarm_commands, CommandFormat(stream.key), how, stream, credentials
            )
        if how.labels is not None:
            form = LabelFormat(
                # Labels may bring their row, unless windows of rows are what is predicted.
                () if isinstance(fitted, SignalModel) else tuple(columns or ()),
                time=stream.time,
                key=stream.key,
                certify=how.labels_certify,
                normal=how.labels_normal,
            )
            rows = _add_labels(rows, how.labels, form, how, stream, credentials)
        stack.callback(rows.close)
        stop = stack.enter_context(stop_on_signals())  # not before: Ctrl-C interrupts a slow connection
        line = stack.enter_context(Line(log))
        if metrics.url:
            log.info("metrics: %s/metrics", metrics.url)
        if is_url(stream.source):
            log.info("following %s; press Ctrl-C to stop", stream.source.partition("?")[0])
        fades = options.inner_model(fitted).half_life is not None
        forgets = fades or how.drift in ("forget", "restart")  # which rows it has learned before matters
        is_fixed = how.batch_size or stream.live or how.labels or forgets
        batch_size = how.batch_size or SessionConfig.batch_size
        largest = 0 if is_fixed else LARGEST_BATCH
        config = SessionConfig(fitted, batch_size, how.drift, alarms, first, largest)
        report = ConsoleReporter(log, line, keeps_quarantine=how.quarantine is not None)
        job = _Run(how, stream, alarm, config, rows, credentials, report, stop, metrics)
        log.info("%s", job.follow(stack))
        if not stop():
            count(job.totals.read, job.totals.quarantined)
            _check_first_rows(first, job.totals, keyed=stream.key is not None)
        raise_if_interrupted(stop, how.checkpoint)


def _check_alarms(alarms: AlarmConfig | None, commands: str | None, stream: StreamOptions) -> None:
    if alarms is None:
        if commands is not None:
            raise InvalidInputError("--alarm-commands: alarms are off: add [alarms] to baryflow.toml")
    elif alarms.needs_times and stream.time is None and not is_url(stream.source):
        raise InvalidInputError(
            "a delay in [alarms] is a time, but rows have no times: name their column with --time, or "
            "give delays in rows"
        )


def _add_labels(
    rows: Any,
    labels: str,
    form: LabelFormat | CommandFormat,
    how: RunOptions,
    stream: StreamOptions,
    credentials: Mapping[str, Credentials],
) -> LabelledSource:
    """Return rows together with their labels, or with commands."""
    try:
        if rows.shared:
            option = "--labels" if isinstance(form, LabelFormat) else "--alarm-commands"
            raise InvalidInputError(
                f"{option} does not work with a shared input: leave out group= in its URL, or send rows "
                f"and {form.what} to a service ('baryflow serve')"
            )
        durable = how.checkpoint is not None
        found = open_labels(
            labels, form, tail=stream.live, credentials=credentials.get(labels), durable=durable
        )
        return LabelledSource(rows, found, _LAST_LABELS if is_url(labels) else 0.0, form.what)
    except BaseException:
        rows.close()
        raise


def _find_normal(fitted: Any, name: str | None) -> Any:
    """Return the class of a baseline: the one of this name, or the one that the model remembers."""
    model = options.inner_model(fitted)
    if name is not None:
        return options.find_class(name, model.classes_, "--normal-class")
    if (remembered := getattr(model, "normal_class_", None)) is None:
        known = ", ".join(map(str, model.classes_.tolist()))
        raise InvalidInputError(
            f"name the class of the baseline with --normal-class; classes are: {known}"
        )
    return remembered


def _read_first_rows(fitted: Any, how: RunOptions, stream: StreamOptions) -> FirstRows | None:
    """Return which rows of the stream are a baseline."""
    until = how.normal_until
    if how.baseline_rows is None and until is None:
        return None
    if how.baseline_rows is not None and until is not None:
        raise InvalidInputError("--baseline-rows and --normal-until exclude each other: give one")
    if until is not None and parse_time(until) is None:
        raise InvalidInputError(f"--normal-until must be a time such as 2026-11-17T09:30, got {until!r}")
    if until is not None and stream.time is None and not is_url(stream.source):
        raise InvalidInputError("--normal-until needs the times of rows: name their column with --time")
    return FirstRows(_find_normal(fitted, how.normal_class), how.baseline_rows or 0, until or "")


def _check_first_rows(first: FirstRows | None, totals: Totals, *, keyed: bool) -> None:
    """Warn if fewer rows than wanted were a baseline."""
    if first is None:
        return
    if first.until and not totals.baseline:
        log.warning(
            "no baseline: no row has a time up to --normal-until %s; correct the time, or leave out the "
            "option",
            first.until,
        )
    elif not keyed and totals.predicted < first.n_rows:
        came = count_of(totals.predicted, "row")
        log.warning("the baseline is shorter than --baseline-rows %d: only %s came", first.n_rows, came)


def _learn_baseline(
    fitted: Any, path: str, columns: list[str] | None, name: str | None, key: str | None
) -> None:
    """Show a model the normal operation of its target."""
    if key is not None and not isinstance(fitted, SignalModel):
        raise InvalidInputError(
            "--baseline is for one target, and --key has many: use --baseline-rows, or --labels with a "
            "column 'baseline'"
        )
    normal = None if isinstance(fitted, SignalModel) else _find_normal(fitted, name)
    source = open_source(path, columns=columns)
    try:
        found = []
        while (batch := source.read(LARGEST_BATCH)) is not None:
            found.append(batch.rows)
    finally:
        source.close()
    if not found:
        raise InvalidInputError(f"--baseline {path} has no rows")
    if isinstance(fitted, SignalModel):
        fitted.learn_normal(np.concatenate(found))
    else:
        rows = np.concatenate(found)
        before = fitted.columns_
        fitted.set_baseline(InOrder(rows), normal)
        log.info("baseline: %s of %s from %s", count_of(len(rows), "row"), normal, path)
        if problem := describe_new_faults(before, fitted.columns_):
            log.warning("baseline: %s", problem)


@dataclass
class _Run:
    """One run of a stream: what it opens, and how it ends."""

    how: RunOptions
    stream: StreamOptions
    alarm: AlarmOptions
    config: SessionConfig
    rows: Any
    credentials: Mapping[str, Credentials]
    report: ConsoleReporter
    stop: Stop
    metrics: RunMetrics
    #: Of all rows, once the run has ended.
    totals: Totals = field(default_factory=Totals, init=False)

    @property
    def read_size(self) -> int:
        """Rows to read at a time, at most."""
        is_large = self.config.largest_batch or self.stream.key
        return max(self.config.batch_size, LARGEST_BATCH if is_large else 0)

    def follow(self, stack: contextlib.ExitStack) -> str:
        """Follow the input to its end or until a signal; return the balance of rows as text."""
        how = self.how
        try:
            if self.rows.shared:
                if how.save is not None:
                    raise InvalidInputError("--save is for one model, and a shared input has many")
                check_shared(how.outputs, how.checkpoint)
                partitions = PartitionRunner(
                    self.rows, self.open_runner, self.read_size, self.stream.timeout, self.report
                )
                self.totals = partitions.run(self.stop)
            else:
                runner = self.open_runner("", stack)
                if self.stream.source == "-" and runner.store is not None and not runner.store.is_new:
                    log.info("resuming: standard input must begin after the last row that was read")
                self.totals = runner.run(self.stop)
                if how.save is not None:
                    _save(runner, how.save)
        except StoppedError as error:  # no commit: the last batch is in the journal
            if how.checkpoint:
                return f"{error}: nothing is lost, run the same command again to resume"
            return f"{error}: the last records may be lost"
        except OSError as error:
            if error.errno == errno.ENOSPC and how.checkpoint is not None:
                raise InvalidInputError(
                    f"no space left on the disk ({error.filename or 'while writing'}): nothing is lost; "
                    "free disk space and run the same command again"
                ) from error
            raise
        return balance(self.totals, windows=isinstance(self.config.base, SignalModel))

    def open_runner(self, partition: str, stack: contextlib.ExitStack) -> Runner:
        """Open a runner, closed by `stack`; a partition of a shared input has its own files."""
        store, names = None, self.how.outputs
        if self.how.checkpoint is not None:
            # The process that had the partition before may need a moment to release it.
            store = Store(Path(self.how.checkpoint) / partition, _PATIENCE if partition else 0.0)
            stack.callback(store.close)
            store.keep_options(self.how.shaping() | self.stream.shaping())
            if partition:
                names = tuple(name and _for_partition(name, partition) for name in names)
        alarms = self.alarm.open(self.credentials)
        try:
            outputs = Outputs(*open_sinks(names, store, self.credentials, self.how.rotate))
        except BaseException:
            if alarms is not None:
                alarms.close(finished=False)
            raise
        for end in (self.rows, *outputs.named().values()):
            end.stop_when(self.stop)
        runner = Runner(
            self.config,
            self.rows,
            outputs,
            read_size=self.read_size,
            timeout=self.stream.timeout,
            store=store,
            listen=self.report,
            in_memory=self.how.in_memory,
            keyed=self.stream.key is not None,
            alarms=alarms,
        )
        stack.callback(runner.close)
        stack.enter_context(self.metrics.count(partition, runner))

        def close_outputs(error: Any, *_: object) -> None:
            finished = error is None and not self.stop()
            for sink in outputs.named().values():
                # An earlier error matters more than one on closing.
                with contextlib.nullcontext() if finished else contextlib.suppress(OSError):
                    sink.close(finished=finished)
            if alarms is not None:
                alarms.close(finished=finished)

        stack.push(close_outputs)
        return runner


@contextlib.contextmanager
def fail_without_result(*, kept: bool) -> Iterator[Callable[[int, int], None]]:
    """Raise at the end if all rows were quarantined; call what it yields with both numbers."""
    counts: list[int] = []
    yield lambda n_rows, n_quarantined: counts.extend((n_rows, n_quarantined))
    if counts and 0 < counts[0] == counts[1]:
        where = "the quarantine file has the reasons" if kept else "--quarantine FILE keeps the reasons"
        rows = "the only row was" if counts[0] == 1 else f"all {counts[0]:,} rows were"
        raise InvalidInputError(f"{rows} quarantined, so there is no result: {where}")


def check_shared(names: Sequence[str | None], checkpoint: str | None) -> None:
    """Check that partitions of a shared input can have their own files, which are resumed later."""
    files = [name for name in names if name not in (None, "-") and not is_url(str(name))]
    if files and checkpoint is None:
        raise InvalidInputError(f"to write {files[0]}, a shared input needs --checkpoint FOLDER")
    if any(str(name).lower().endswith(".parquet") for name in files):
        raise InvalidInputError(
            "a shared input never ends, and Parquet is written at the end: use .ndjson"
        )


def open_sinks(
    names: Sequence[str | None],
    store: Store | None,
    credentials: Mapping[str, Credentials],
    rotate: int | None = None,
) -> list[Any]:
    """Open the outputs: predictions, events, quarantine; None where there is no name."""
    given = [name for name in names if name is not None]
    if len(set(given)) < len(given):
        raise InvalidInputError("give predictions, events and quarantine a file each")
    if store is not None and "-" in given:
        raise InvalidInputError(
            "standard output cannot be resumed: with --checkpoint, write to a file (-o FILE)"
        )
    if len(names) > 1 and str(names[1]).lower().endswith(".csv"):
        raise InvalidInputError("events differ in their fields and do not fit CSV: use a .ndjson file")
    resume = store is not None and not store.is_new
    for file in local_files(given) if store is not None and store.is_new else ():
        if Path(file).is_file() and Path(file).stat().st_size:
            log.warning("%s is overwritten: the checkpoint is new, nothing can be resumed", file)
    sinks: list[Any] = []
    for name in names:
        size = None if name in (None, "-") or is_url(str(name)) else rotate
        sinks.append(
            name and open_sink(name, resume=resume, credentials=credentials.get(name), rotate=size)
        )
    return sinks


def _for_partition(name: str, partition: str) -> str:
    """Return the file of one partition; a topic takes the records of all."""
    if is_url(name) or name == "-":
        return name
    path = Path(name)
    return str(path.with_name(f"{path.stem}-{partition}{path.suffix}"))


def _save(runner: Runner, path: str) -> None:
    """Save the adapted model, together with its features if it has them."""
    base, model = runner.config.base, runner.session.model
    if isinstance(base, SignalModel):
        SignalModel(base.features, model, base.step).save(path)
    else:
        model.save(path)


def balance(totals: Totals, *, windows: bool, of: str = "") -> str:
    """Return what became of the rows that were read, for example those `of` some targets."""
    used = f"{totals.predicted:,} predicted"
    if windows:
        used = f"{totals.used:,} in {count_of(totals.predicted, 'window')} predicted"
    text = f"{count_of(totals.read, 'row')}{of} = {used} + {totals.quarantined:,} quarantined"
    if totals.unlearned:
        text += f"; the model failed to learn from {totals.unlearned:,} of them"
    if totals.labels:
        text += f"; {count_of(totals.labels, 'label')} used"
    if totals.baseline:
        text += f"; {count_of(totals.baseline, 'row')} used as a baseline"
    if totals.alarms:
        text += f"; {count_of(totals.alarms, 'alarm')} raised"
    times = "once" if totals.drifts == 1 else f"{totals.drifts} times"
    return text + (f"; drift detected {times}" if totals.drifts else "")
