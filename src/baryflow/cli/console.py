"""Print to the terminal: text, progress, warnings, errors and log records; and stop on signals."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import click

from baryflow.estimators._progress import time_left
from baryflow.exceptions import BaryflowError
from baryflow.validation import count_of

if TYPE_CHECKING:
    from baryflow.runtime import Event

#: Control characters other than line feed and tab, marks that reverse the text direction, line
#: separators and halves of surrogate pairs. In names from a file they could rewrite a terminal.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: Characters of a progress bar.
_WIDTH = 24
#: Seconds between two checks for a signal.
_POLL = 0.1
#: Python parameters in messages of the library, and the options that set them.
_OPTIONS = {
    "sample_domain": "--domain",
    "domain_from_file": "--domain-from-file",
    "class_prior": "--class-prior",
    "class_proportions": "--class-proportions",
    "baseline_rows": "--baseline-rows",
    "batch_size": "--batch-size",
    "n_jobs": "--jobs",
    "random_state": "--seed",
    "keep_sources=True": "--keep-rows",
    "keep_sources": "--keep-rows",
    "add_source": "add-source",
    "in_memory": "--in-memory",
    "state_dir": "--checkpoint",
    "snapshot_every": "--snapshot-every",
}
_PARAMETERS = re.compile(rf"(?<![\w'\"-])(?:{'|'.join(map(re.escape, _OPTIONS))})(?![\w'\"])")
#: Optional packages, and the extra that installs each.
_EXTRAS = {
    "asyncua": "opcua",
    "confluent_kafka": "kafka",
    "dask": "dask",
    "distributed": "dask",
    "fsspec": "dask",
    "h11": "serve",
    "httpx": "client",
    "matplotlib": "plot",
    "numba": "tep",
    "onnxruntime": "encode",
    "paho": "mqtt",
    "prometheus_client": "serve",
    "pyarrow": "parquet",
    "starlette": "serve",
    "tep_studio": "tep",
    "uvicorn": "serve",
}
#: Logger of the messages that people see as plain text; each command has a child of it.
LOGGER = "baryflow.cli"
_log = logging.getLogger(LOGGER)
_WARNINGS = "baryflow.warnings"
#: Events of a stream that are logged as they come.
_LOGGED = dict.fromkeys(("column", "drift", "alarm", "warning"), logging.WARNING)
_LOGGED["watch"] = logging.INFO


# -- text and progress -------------------------------------------------------------------------------


def safe(text: str) -> str:
    r"""Return text for a terminal, with control characters as escapes such as ``\x1b``."""
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def echo(text: str = "", *, err: bool = False) -> None:
    """Print text that may hold names from files, on standard output or standard error."""
    click.echo(safe(text), err=err)


def bar(share: float) -> str:
    """Return a progress bar and the share as a percentage."""
    return f"{'█' * int(share * _WIDTH):░<{_WIDTH}} {share:.0%}"


def duration(seconds: float) -> str:
    """Return a duration in a suitable unit."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def file_size(path: Path) -> str:
    """Return the size of a file in a suitable unit."""
    n = path.stat().st_size
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} bytes"


class Line:
    """A status line that overwrites itself on a terminal.

    Without a terminal, the status is logged every `every` seconds.
    """

    def __init__(self, log: logging.Logger = _log, every: float = 60.0) -> None:
        self._watched = sys.stderr.isatty() and not _logs_json()
        self._shown = False
        self._every, self._log, self._logged = every, log, time.monotonic()

    def show(self, text: str, **fields: Any) -> None:
        """Replace the line; `fields` are added to a JSON log."""
        if self._watched:
            width = shutil.get_terminal_size().columns - 1
            click.echo(f"\r{safe(text)[:width]:<{width}}", err=True, nl=False)
            self._shown = True
        elif time.monotonic() - self._logged >= self._every:
            self._logged = time.monotonic()
            self._log.info("%s", text, extra={"fields": fields})

    def end(self) -> None:
        """Keep the line and start another."""
        if self._shown:
            click.echo(err=True)
            self._shown = False

    def __enter__(self) -> Self:
        _open_lines.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _open_lines.remove(self)
        self.end()


#: Status lines on the terminal now, which other output must not be written into.
_open_lines: list[Line] = []


@dataclass
class Progress:
    """Show how much is done, and how long the rest takes.

    It is called with what is done, the total, and a description. With a `unit` both are shown. If the
    work `resumes`, the rate is, too; what the first call has done does not count towards it. If `stop`
    returns True, :class:`Interrupted` is raised with the text `stopped`.
    """

    line: Line
    name: str = "fit"
    unit: str = ""
    resumes: bool = False
    stop: Callable[[], bool] = lambda: False
    stopped: str = ""
    _created: float = field(default_factory=time.monotonic)
    _began: dict[str, tuple[float, int]] = field(default_factory=dict)

    def __call__(self, done: int, total: int, what: str) -> None:
        """Show the progress."""
        if self.stop():
            raise Interrupted(self.stopped)
        now = time.monotonic()
        first = (now, done) if self.resumes else (self._created, 0)
        start, before = self._began.setdefault(what if self.resumes else "", first)
        left = time_left(done - before, total - before, now - start)
        ending = "" if left is None else f", {duration(left)} left"
        rate = (done - before) / max(now - start, 1e-9)
        if self.resumes and rate >= 1.0:
            ending = f"  {rate:,.0f}/s{ending}"
        counts = f"{done:,} of {count_of(total, self.unit)}: " if self.unit else ""
        text = f"{self.name} {bar(done / max(total, 1))}  {counts}{what}{ending}"
        self.line.show(text, event="progress", done=done, total=total)


class ConsoleReporter:
    """Log the events of a stream that people should see, and show batches on the status line."""

    def __init__(self, log: logging.Logger, line: Line | None = None, *, keeps_quarantine: bool) -> None:
        self.log, self.line, self.began = log, line, time.monotonic()
        self.keeps_quarantine, self.has_quarantined = keeps_quarantine, False

    def __call__(self, event: Event) -> None:
        """Report an event."""
        fields = {"event": event.kind, "position": event.position, **event.details}
        if event.kind in _LOGGED:
            # Drift names its own rows.
            where = "" if event.kind in ("drift", "watch") else f"row {event.position}: "
            self.log.log(_LOGGED[event.kind], "%s%s", where, event.message, extra={"fields": fields})
        elif event.kind == "label" and event.details["new_classes"]:
            self.log.info("row %d: %s", event.position, event.message, extra={"fields": fields})
        elif event.kind == "quarantine" and not self.has_quarantined:
            self.has_quarantined = True
            hint = "" if self.keeps_quarantine else "; --quarantine FILE keeps all such rows"
            text = f"quarantined {event.message.rstrip('.')}{hint}"
            self.log.warning("%s", text, extra={"fields": fields})
        elif event.kind == "batch" and self.line is not None:
            rate = event.position / max(time.monotonic() - self.began, 1e-9)
            rows = count_of(event.position, "row")
            self.line.show(f"{rows}  {rate:,.0f}/s  {event.message}", **fields)


# -- log records -------------------------------------------------------------------------------------


class _Handler(logging.Handler):
    """Print records below the status line."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        if _open_lines:
            _open_lines[-1].end()
        click.echo(self.format(record), err=True)


class _TextFormatter(logging.Formatter):
    """Messages of the command line as plain text, and others with time and level."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        if record.name == LOGGER or record.name.startswith(f"{LOGGER}."):
            return safe(record.getMessage())
        if record.name == _WARNINGS:
            return safe(f"warning: {record.getMessage()}")
        return safe(super().format(record))


class _JsonFormatter(logging.Formatter):
    """Each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a line of JSON: ASCII only, which is safe for a terminal."""
        fields = dict(getattr(record, "fields", {}))
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        own = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        # The second `own` keeps its fields from being replaced.
        line = json.dumps(own | fields | own, default=_to_plain)
        if "NaN" in line or "Infinity" in line:  # which JSON does not have
            line = json.dumps(json.loads(line, parse_constant=lambda _: None))
        return line


def _to_plain(value: Any) -> Any:
    """Return a NumPy scalar or array as Python numbers, and anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _logs_json() -> bool:
    return any(isinstance(one.formatter, _JsonFormatter) for one in logging.getLogger().handlers)


def _is_for_console(record: logging.LogRecord) -> bool:
    """Return whether to print a record: our own, and warnings of packages that print none themselves."""
    if record.name.partition(".")[0] == "baryflow":
        return True
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None and logger.parent is not None:
        if logger.handlers:
            return False
        logger = logger.parent
    return record.levelno >= logging.WARNING


@contextmanager
def _log_to_console(log_format: str) -> Iterator[None]:
    """Send log records to standard error, and Python's warnings with them."""
    handler = _Handler()
    handler.addFilter(_is_for_console)
    text = _TextFormatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(_JsonFormatter() if log_format == "json" else text)
    root, shown, level = logging.getLogger(), warnings.showwarning, _log.level

    def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
        logging.getLogger(_WARNINGS).warning("%s", in_options(str(message)))

    root.addHandler(handler)
    _log.setLevel(logging.INFO)
    warnings.showwarning = show_warning
    try:
        yield
    finally:
        warnings.showwarning = shown
        _log.setLevel(level)
        root.removeHandler(handler)


# -- errors and signals ------------------------------------------------------------------------------


def in_options(message: str) -> str:
    """Return a message of the library with command-line options in place of Python parameters."""
    return _PARAMETERS.sub(lambda found: _OPTIONS[found[0]], message)


class CommandError(click.ClickException):
    """An error for the user."""

    level = logging.ERROR

    def __init__(self, message: str) -> None:
        super().__init__(safe(message))


class Interrupted(CommandError):  # noqa: N818 - Ctrl-C is no error
    """Ctrl-C: not an error, but the exit code tells the shell."""

    exit_code = 130  # the usual code of a program ended by SIGINT
    level = logging.INFO

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message without calling it an error."""
        click.echo(self.message, file=file, err=True)


@contextmanager
def report_errors(interrupted: str = "interrupted.", log_format: str = "text") -> Iterator[None]:
    """Print log records and warnings; exit with 1 on errors a user can act on, with 130 on Ctrl-C."""
    with _log_to_console(log_format):
        try:
            with _translate_errors(interrupted):
                yield
        except CommandError as error:
            if log_format == "text":
                raise
            fields = {"exit_code": error.exit_code}
            _log.log(error.level, "%s", error.message, extra={"fields": fields})
            raise click.exceptions.Exit(error.exit_code) from error


@contextmanager
def _translate_errors(interrupted: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader has closed its end, as in `| head`
        # Whatever is still buffered has no reader either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except BaryflowError as error:
        raise CommandError(in_options(str(error))) from error
    except OSError as error:  # leave out its number
        known = error.strerror and error.filename
        raise CommandError(f"{error.filename}: {error.strerror}" if known else str(error)) from error
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if "pip install" in str(error) or package not in _EXTRAS:
            raise CommandError(str(error)) from error
        raise CommandError(
            f"{package} is not installed: pip install 'baryflow[{_EXTRAS[package]}]'"
        ) from error
    except KeyboardInterrupt as error:
        raise Interrupted(interrupted) from error


class Stop:
    """Whether a signal has asked the process to stop; `signal` is its number."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Return whether to stop."""
        return self.signal is not None

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for a signal, at most this long; return whether there was one."""
        # Not a threading.Event: setting one in a signal handler can deadlock with its wait().
        end = math.inf if seconds is None else time.monotonic() + seconds
        while self.signal is None and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _POLL))
        return self.signal is not None

    def receive(self, number: int, _: Any) -> None:
        """Handle a signal; the second one interrupts at once."""
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Note SIGINT and SIGTERM instead of ending: the command stops after the current batch."""
    stop = Stop()
    before = {number: signal.signal(number, stop.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_if_interrupted(stop: Stop, checkpoint: object) -> None:
    """Raise :class:`Interrupted` after Ctrl-C; with a checkpoint, say how to resume."""
    if stop.signal == signal.SIGINT:
        hint = "; run the same command again to resume" if checkpoint else ""
        raise Interrupted(f"interrupted{hint}")
