"""Options and parameter types that several commands share, and what they resolve to."""

from __future__ import annotations

import contextlib
import difflib
import functools
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import click
import numpy as np

from baryflow.alarms import AlarmConfig
from baryflow.estimators._unknown import list_answers
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.features import SignalModel
from baryflow.persistence import load
from baryflow.runtime.outbox import Outbox, Sender, SinkSender
from baryflow.streams import Credentials, Sink, Source, open_sink, open_source, read_credentials
from baryflow.streams.sampling.clock import parse_duration
from baryflow.streams.sinks import find_last_line, parse_size
from baryflow.streams.urls import is_url
from baryflow.streams.webhook import Webhook

log = logging.getLogger("baryflow.cli")
#: Suffixes of figures.
FIGURES = (".png", ".svg", ".pdf")
#: Seconds after which a command that waits for rows checks whether to stop.
_IDLE = 0.5
#: Seconds for which a row of a live input waits for a full batch, by default.
_MAX_LATENCY = 1.0


class Command(click.Command):
    """A command with an example and a page of the documentation at the end of its help.

    An error in a value from the environment or from the configuration file says where the value comes
    from.
    """

    def __init__(self, *args: Any, example: str, docs: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example, self.docs = example, docs

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options; ignore unknown variables with a warning."""
        known = {_variable(option, ctx) for option in self.params if isinstance(option, click.Option)}
        for variable in sorted(set(os.environ) - known):
            if variable.startswith(f"{ctx.auto_envvar_prefix}_"):
                close = difflib.get_close_matches(variable, known, 1)
                hint = f" (did you mean {close[0]}?)" if close else ""
                click.echo(f"warning: {variable} is ignored: it is not an option{hint}", err=True)
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter:
            raise
        except click.BadParameter as error:
            raise _add_origin(error, ctx) from error

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the example and the page."""
        with formatter.section("Example"):
            for line in self.example.splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        with formatter.section("Documentation"):
            formatter.write(f"{'':>{formatter.current_indent}}{self.docs}\n")


def _variable(option: click.Option, ctx: click.Context) -> str:
    """Return the environment variable of an option."""
    return f"{ctx.auto_envvar_prefix}_{option.name}".upper()


def _add_origin(error: click.BadParameter, ctx: click.Context) -> click.BadParameter:
    """Return an error that names the origin of the value, unless it is on the command line."""
    message = error.message.replace("is not a valid integer range", "is not a whole number")
    option, hint = error.param, error.param_hint
    if isinstance(option, click.Option) and option.name is not None:
        source = ctx.get_parameter_source(option.name)
        if source is click.core.ParameterSource.ENVIRONMENT:
            hint = f"'{option.opts[-1]}' (from {_variable(option, ctx)})"
        elif source is click.core.ParameterSource.DEFAULT_MAP:
            hint = f"'{option.opts[-1]}' (from the configuration file)"
    return click.BadParameter(message, ctx, option, hint)


# -- parameter types ---------------------------------------------------------------------------------


class Count(click.IntRange):
    """A number of at least 1, or another minimum, called after what it counts: rows."""

    def __init__(self, what: str, minimum: int = 1) -> None:
        super().__init__(minimum)
        self.name = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        if isinstance(value, str) and not value.strip().lstrip("+-").isdigit():
            self.fail(f"{value!r} is not a whole number.", param, ctx)
        return super().convert(value, param, ctx)


class Duration(click.ParamType[float]):
    """Seconds, written with a unit: 3min, 500ms."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        try:
            return parse_duration(str(value))
        except InvalidInputError as error:
            self.fail(str(error), param, ctx)


class Size(click.ParamType[int]):
    """Bytes, written with a unit: 500MB, 2GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        try:
            return parse_size(str(value))
        except InvalidInputError as error:
            self.fail(str(error), param, ctx)


class OutputFile(click.ParamType[Path]):
    """A file to be written at the end of a long run, checked for being writable at the beginning."""

    name = "file"

    def __init__(self, *suffixes: str) -> None:
        self._suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path of a file that can be written."""
        path = Path(value)
        if path.is_dir():
            self.fail(f"{path} is a folder; name a file in it.", param, ctx)
        if self._suffixes and path.suffix.lower() not in self._suffixes:
            self.fail(f"expected a file named *{', *'.join(self._suffixes)}, got {path}.", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"folder {path.parent} does not exist; create it first.", param, ctx)
        is_new = not path.exists()
        try:
            # Permissions do not show a full or read-only disk: try.
            with path.open("ab"):
                pass
            if is_new:
                path.unlink()
        except OSError as error:
            self.fail(f"cannot write {path}: {error.strerror}; choose another file.", param, ctx)
        return path


# -- options -----------------------------------------------------------------------------------------

existing_file = click.Path(exists=True, dir_okay=False, path_type=Path)
model_argument = click.argument("model", type=existing_file)
model_output = click.option(
    "-o", "--output", required=True, type=OutputFile(".bary"), help="Write the model here (.bary)."
)
label = click.option("--label", required=True, metavar="COLUMN", help="Column of the classes.")
plain_time = click.option("--time", metavar="COLUMN", help="Timestamp column; not a feature.")
batch_size = click.option(
    "--batch-size", type=Count("rows"), default=32, help="Rows the model learns from at a time."
)
drift = click.option(
    "--drift",
    type=click.Choice(["report", "forget", "restart", "off"]),
    default="report",
    help="When a target changes: report it; forget: also discount older rows; restart: also start "
    "over; off: do not watch for drift.",
)
time = click.option("--time", metavar="COLUMN", help="Timestamp column; copied to each prediction.")


def seed_option(default: int) -> Callable[[Any], Any]:
    """Return the option of the seed."""
    return click.option(
        "--seed", type=Count("number", 0), default=default, help="Seed of the random numbers."
    )


seed = seed_option(0)
jobs = click.option("--jobs", type=Count("number"), default=2, help="Number of processes.")
fit_jobs = click.option(
    "--jobs",
    type=Count("number"),
    help="Number of processes.  [default: one per core if the fit takes long]",
)
quarantine = click.option(
    "--quarantine", metavar="FILE", help="Write unusable rows and the reasons here, as NDJSON."
)
workers = click.option(
    "--workers",
    type=Count("number"),
    help="Worker processes of '--dask local'.  [default: one per core]",
)
log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Messages on standard error: text, or one JSON object per line.",
)
credentials = click.option(
    "--credentials",
    metavar="FILE",
    help="JSON file with user, password and certificates of each address (or set "
    "BARYFLOW_INPUT_USERNAME, BARYFLOW_OUTPUT_USERNAME and so on).",
)
rotate = click.option(
    "--rotate",
    type=Size(),
    help="Start another output file after this many bytes, such as 500MB.  [default: never]",
)


def declare(decorator: Callable[[Any], Any]) -> Any:
    """Return the field of a dataclass that has the value of this option or argument."""
    return field(metadata={"click": decorator})


def option(*names: str, **how: Any) -> Any:
    """Return the field of a dataclass that has the value of this option."""
    return declare(click.option(*names, **how))


def collect(kind: Any, name: str) -> Callable[[Any], Any]:
    """Return a decorator that adds the options of a dataclass; the command gets it by this name."""

    def decorate(command: Any) -> Any:
        @functools.wraps(command)
        def collected(**values: Any) -> Any:
            mine = {one.name: values.pop(one.name) for one in fields(kind)}
            return command(**values, **{name: kind(**mine)})

        for one in reversed(fields(kind)):
            collected = one.metadata["click"](collected)
        return collected

    return decorate


def refuse_options(reasons: dict[str, str], unless: str) -> None:
    """Refuse options of the current command that were given but do not apply, each with a reason."""
    context = click.get_current_context()
    names = {option.name: option.opts[-1] for option in context.command.params}
    for name, reason in reasons.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name not in ("DEFAULT", "PROMPT"):
            raise InvalidInputError(f"{names[name]} does not apply {unless}: {reason}")


# -- streams of rows ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamOptions:
    """The input of ``run`` and ``forward``."""

    source: str = declare(click.argument("source", metavar="INPUT"))
    time: str | None = declare(time)
    key: str | None = option(
        "--key",
        metavar="COLUMN",
        help="Column that names the target of a row; each target has its own model. @topic and @key "
        "are read from the message.",
    )
    max_latency: float | None = option(
        "--max-latency",
        type=Duration(),
        help="Process a partial batch after this long.  [default: 1s for live inputs]",
    )
    sample_interval: float | None = option(
        "--sample-interval",
        type=Duration(),
        help="Make a row of the latest tag values at this interval, such as 3min.",
    )
    tags: str | None = option(
        "--tags", metavar="FILE", help="CSV file that names the tags to sample, and their columns."
    )
    max_age: float | None = option(
        "--max-age",
        type=Duration(),
        help="Treat tag values older than this as missing.  [default: never]",
    )
    credentials: str | None = declare(credentials)
    tail: bool = option("--tail", is_flag=True, help="Wait for more rows at the end of a growing file.")

    @property
    def live(self) -> bool:
        """Whether more rows may arrive at any time."""
        return self.tail or self.source == "-" or is_url(self.source)

    @property
    def timeout(self) -> float | None:
        """Seconds after which a partial batch is processed."""
        return _MAX_LATENCY if self.max_latency is None and self.live else self.max_latency

    @property
    def files(self) -> list[str | None]:
        """Files that are read."""
        return [self.source, self.tags, self.credentials]

    def shaping(self) -> dict[str, Any]:
        """Return the options that shape results; a checkpoint is resumed only with the same ones."""
        return {
            "time": self.time,
            "key": self.key,
            "sample-interval": self.sample_interval,
            "max-age": self.max_age,
        }

    def open(self, columns: list[str] | None, *, durable: bool = False) -> Source:
        """Open the input for some of its columns, None for all; `durable` if there is a checkpoint."""
        if not is_url(self.source):
            for option in ("sample_interval", "tags", "max_age"):
                if getattr(self, option) is not None:
                    raise InvalidInputError(
                        f"--{option.replace('_', '-')} is for inputs that send one value at a time; "
                        f"{self.source} has rows"
                    )
        if self.tail and self.source == "-":
            raise InvalidInputError("--tail needs a file; standard input is followed without it")
        return open_source(
            self.source,
            columns=columns,
            time=self.time,
            key=self.key,
            tail=self.tail,
            idle=_IDLE if self.live else None,
            credentials=read_credentials("input", [self.source], self.credentials).get(self.source),
            sample_interval=self.sample_interval,
            tags=self.tags,
            max_age=self.max_age,
            durable=durable,
        )


stream_options = collect(StreamOptions, "stream")


# -- alarms ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AlarmOptions:
    """Where the alarms of ``run`` and ``serve`` are sent; the rest is in the configuration file."""

    alarms: tuple[str, ...] = option(
        "--alarms",
        multiple=True,
        metavar="OUTPUT",
        help="Send alarms here: an mqtt://, kafka:// or opc.tcp:// URL, or a .ndjson file. Repeatable.",
    )
    alarm_webhook: str | None = option(
        "--alarm-webhook", metavar="URL", help="Send alarms here in signed POST requests."
    )
    alarm_secret_file: Path | None = option(
        "--alarm-secret-file",
        type=existing_file,
        help="File holding the secret that signs them (or set BARYFLOW_WEBHOOK_SECRET).",
    )
    latch: tuple[str, ...] = option(
        "--latch",
        multiple=True,
        metavar="CLASS",
        help="Keep the alarm of this class, or of 'all', active until it is acknowledged. Repeatable.",
    )

    def config(self, model: Any) -> AlarmConfig | None:
        """Return the settings of the configuration file, checked for a model; None: alarms are off."""
        table = click.get_current_context().find_root().obj
        if table is None:
            if self.alarms or self.alarm_webhook or self.latch:
                raise InvalidInputError(
                    "alarms are off: add a section [alarms] to baryflow.toml; it may be empty"
                )
            return None
        found = AlarmConfig.from_table(table).latch(self.latch)
        answers = list_answers(inner_model(model)).tolist()
        for warning in found.check_classes(map(str, answers)):
            log.warning("%s", warning)
        return found

    def open(self, credentials: Mapping[str, Credentials]) -> Outbox | None:
        """Open the outputs with the credentials of each."""
        found: list[Sender] = []
        try:
            for name in self.alarms:
                open_alarms = functools.partial(_open_alarms, name, credentials.get(name))
                found.append(SinkSender(name.partition("?")[0], open_alarms))
            if self.alarm_webhook is not None:
                found.append(Webhook(self.alarm_webhook, self._secret()))
        except BaseException:
            for sender in found:
                sender.close()
            raise
        return Outbox(found) if found else None

    def _secret(self) -> str:
        secret = os.environ.get("BARYFLOW_WEBHOOK_SECRET", "")
        if self.alarm_secret_file is not None:
            secret = self.alarm_secret_file.read_text(encoding="utf-8")
        if not secret.strip():
            raise InvalidInputError(
                "--alarm-webhook needs a secret to sign messages: name a file with --alarm-secret-file, "
                "or set BARYFLOW_WEBHOOK_SECRET"
            )
        return secret


def _open_alarms(name: str, credentials: Credentials | None) -> Sink:
    if not is_url(name) and Path(name).suffix.lower() not in (".ndjson", ".jsonl"):
        raise InvalidInputError(f"--alarms is a .ndjson file or a URL, got {name}")
    resume = not is_url(name) and Path(name).exists()
    sink = open_sink(name, resume=resume, credentials=credentials)
    if resume and (end := find_last_line(Path(name))) < sink.position:
        sink.truncate(end)
    return sink


alarm_options = collect(AlarmOptions, "alarm")


# -- models ------------------------------------------------------------------------------------------


def load_model(path: Path, stream_columns: dict[str, str | None]) -> tuple[Any, list[str] | None]:
    """Return a model that can follow a target, and the columns it needs.

    `stream_columns` are columns of the input with another role, by option; they cannot be features.
    """
    with expect_bary(path):
        model = load(path)
    if not isinstance(model, OnlineDaDiL | SignalModel):
        kind = getattr(type(model), "kind", type(model).__name__)
        raise InvalidInputError(f"{path} holds a {kind}; expected a model written by 'baryflow fit'")
    names = getattr(model, "feature_names_in_", None)
    columns = None if names is None else names.tolist()
    for option, column in stream_columns.items():
        if column is not None and column in (columns or ()):
            raise InvalidInputError(f"--{option} {column}: the column is a feature of the model")
    return model, columns


def inner_model(fitted: Any) -> Any:
    """Return the model without its feature extraction."""
    return fitted.model if isinstance(fitted, SignalModel) else fitted


def find_class(name: str, y: Any, option: str) -> Any:
    """Return the class of this name among labels; it may be a number."""
    classes = {str(known): known for known in np.unique(y).tolist()}
    if name not in classes:
        known = ", ".join(classes)
        raise InvalidInputError(f"{option}: {name!r} is not a class; classes are: {known}")
    return classes[name]


@contextlib.contextmanager
def expect_bary(path: Path) -> Iterator[None]:
    """Say that a .bary file was expected if a file of another kind cannot be read."""
    try:
        yield
    except FileFormatError as error:
        if path.suffix == ".bary":
            raise
        raise InvalidInputError(
            f"expected a .bary file, got {path}; 'baryflow fit' writes one"
        ) from error


# -- files -------------------------------------------------------------------------------------------


def protect_inputs(inputs: Iterable[str | Path | None], outputs: Iterable[str | Path | None]) -> None:
    """Refuse outputs that would overwrite an input or each other, also through links."""
    needed: dict[Path | tuple[int, int], str | Path] = {}
    for one in local_files(inputs):
        needed |= dict.fromkeys(_identities(Path(one)), one)
    taken: set[Path | tuple[int, int]] = set()
    for one in local_files(outputs):
        path = Path(one).resolve()
        for identity in _identities(path):
            if identity in needed:
                other = needed[identity]
                link = "" if Path(one).absolute() == Path(other).absolute() else f" (a link to {other})"
                raise InvalidInputError(
                    f"{one}{link} is an input and would be overwritten: name another file"
                )
            if identity in taken:
                raise InvalidInputError(f"{one} is named for two outputs: give each its own file")
        if not path.parent.is_dir():
            raise InvalidInputError(f"folder {path.parent} does not exist; create it first")
        taken |= _identities(path)


def local_files(names: Iterable[str | Path | None]) -> Iterator[str | Path]:
    """Yield the names that are files: neither missing, nor standard input or output, nor URLs."""
    for name in names:
        if name is not None and str(name) != "-" and "://" not in str(name):
            yield name


def _identities(path: Path) -> set[Path | tuple[int, int]]:
    """Return what identifies a file: its path without symbolic links, and its number on the disk."""
    found: set[Path | tuple[int, int]] = {path.resolve()}
    with contextlib.suppress(OSError):  # it does not exist yet
        status = path.stat()
        if stat.S_ISREG(status.st_mode):  # not a device: several outputs may go to /dev/null
            found.add((status.st_dev, status.st_ino))
    return found
