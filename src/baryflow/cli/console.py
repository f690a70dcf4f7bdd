"""What the command line prints: text, one line that overwrites itself, warnings and errors."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import stat
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import IO, Any, Self

import click

from baryflow.exceptions import BaryflowError, InvalidInputError

#: Control characters but for line feeds and tabs, marks that reverse the order of letters, line
#: separators and halves of surrogate pairs. In names from a file they could rewrite a terminal.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: Letters of a bar.
_WIDTH = 24
#: Python parameters in messages of the library, and the options that set them.
_OPTIONS = {
    "sample_domain": "--domain",
    "domain_from_file": "--domain-from-file",
    "class_prior": "--usual",
    "batch_size": "--batch",
    "n_jobs": "--jobs",
    "random_state": "--seed",
    "keep_sources=True": "--keep-rows",
    "keep_sources": "--keep-rows",
    "in_memory": "--in-memory",
    "state_dir": "--state",
    "snapshot_every": "--snapshot-every",
}
_PARAMETERS = re.compile(rf"(?<![\w'\"-])(?:{'|'.join(map(re.escape, _OPTIONS))})(?![\w'\"])")
#: Packages that are not always installed, and the extra that brings each.
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
    "pyarrow": "parquet",
    "starlette": "serve",
    "tep_studio": "tep",
    "uvicorn": "serve",
}


def safe(text: str) -> str:
    r"""Return text for a terminal: control characters are shown as escapes such as ``\x1b``."""
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text, which may hold names from files, on standard output or standard error."""
    click.echo(safe(text), err=err, nl=nl)


def bar(share: float) -> str:
    """Return a bar that is filled in part, and the share."""
    return f"{'█' * int(share * _WIDTH):░<{_WIDTH}} {share:.0%}"


def duration(seconds: float) -> str:
    """Return a duration in the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Line:
    """A line on the terminal that overwrites itself.

    Where nobody watches (a log file), a line is written every `log_every` seconds, or none without it.
    """

    def __init__(self, log_every: float | None = None) -> None:
        self._watched = sys.stderr.isatty()
        self._shown = False
        self._log_every = math.inf if log_every is None else log_every
        self._logged = monotonic()

    def show(self, words: str) -> None:
        """Replace the line."""
        if self._watched:
            width = shutil.get_terminal_size().columns - 1
            click.echo(f"\r{safe(words)[:width]:<{width}}", err=True, nl=False)
            self._shown = True
        elif monotonic() - self._logged >= self._log_every:
            echo(words, err=True)
            self._logged = monotonic()

    def step(self, words: str) -> None:
        """Replace the line; where nobody watches, write every one."""
        if self._watched:
            self.show(words)
        else:
            echo(words, err=True)

    def say(self, words: str) -> None:
        """Write a line that stays."""
        if self._shown:
            click.echo(err=True)
            self._shown = False
        echo(words, err=True)

    def __enter__(self) -> Self:
        _open_lines.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _open_lines.remove(self)
        if self._shown:
            click.echo(err=True)
            self._shown = False


#: Lines on the terminal now; a warning must not be written into one.
_open_lines: list[Line] = []


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print warnings as sentences, without the place in the code that they come from."""
    before = warnings.showwarning

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        words = f"warning: {in_options(str(message))}"
        if _open_lines:
            _open_lines[-1].say(words)
        else:
            echo(words, err=True)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def in_options(message: str) -> str:
    """Return a message of the library in which parameters of Python are options of the command line."""
    return _PARAMETERS.sub(lambda found: _OPTIONS[found[0]], message)


class WholeNumber(click.ParamType[int]):
    """A whole number that is not too small."""

    name = "number"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        try:
            number = int(value)
        except ValueError:
            number = self._least - 1
        if number < self._least:
            self.fail(f"expected a whole number, {self._least} or larger, got {value}.", param, ctx)
        return number


#: How the names of figures end.
FIGURES = (".png", ".svg", ".pdf")


class OutputFile(click.ParamType[Path]):
    """A file that will be written at the end of a long run; whether it can be is found out before."""

    name = "file"

    def __init__(self, *endings: str) -> None:
        self._endings = endings

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path of a file that can be written."""
        path = Path(value)
        if self._endings and path.suffix.lower() not in self._endings:
            self.fail(
                f"expected a file that ends with {', '.join(self._endings)}, got {path}.", param, ctx
            )
        if path.is_dir():
            self.fail(f"{path} is a folder; name a file in it.", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"there is no folder {path.parent} for {path.name}; make it first.", param, ctx)
        is_new = not path.exists()
        try:
            # Only an attempt tells: permissions are silent about disks that are full or read-only.
            with path.open("ab"):
                pass
            if is_new:
                path.unlink()
        except OSError as error:
            self.fail(f"cannot write {path}: {error.strerror}; choose another file.", param, ctx)
        return path


def keep_inputs(inputs: Iterable[str | Path | None], outputs: Iterable[str | Path | None]) -> None:
    """Refuse to write over what is read, or two things to one file, also under other names of a file.

    Raises
    ------
    InvalidInputError
        If one of the outputs is one of the inputs, or another output; a link is the file it leads to.
    """
    needed: dict[Path | tuple[int, int], str | Path] = {}
    for one in inputs:
        if one is not None and str(one) != "-" and "://" not in str(one):
            needed |= dict.fromkeys(_identities(Path(one)), one)
    taken: set[Path | tuple[int, int]] = set()
    for one in outputs:
        if one is None or str(one) == "-" or "://" in str(one):
            continue
        path = Path(one).resolve()
        for identity in _identities(path):
            if identity in needed:
                other = needed[identity]
                link = "" if Path(one).absolute() == Path(other).absolute() else f" (a link to {other})"
                raise InvalidInputError(
                    f"{one}{link} would be written over, but is needed: name another file"
                )
            if identity in taken:
                raise InvalidInputError(f"outputs need files of their own: {one} is named twice")
        if not path.parent.is_dir():
            raise InvalidInputError(f"there is no folder {path.parent} for {path.name}; make it first")
        taken |= _identities(path)


def _identities(path: Path) -> set[Path | tuple[int, int]]:
    """Return by what a file is known: its path without symbolic links, and its number on the disk."""
    found: set[Path | tuple[int, int]] = {path.resolve()}
    with contextlib.suppress(OSError):  # it is not there yet
        status = path.stat()
        if stat.S_ISREG(status.st_mode):  # not a device: /dev/null may take several outputs
            found.add((status.st_dev, status.st_ino))
    return found


class Interrupted(click.ClickException):
    """Ctrl-C: not an error, but the shell is told."""

    exit_code = 130  # as of any program that SIGINT ended

    def show(self, file: IO[Any] | None = None) -> None:
        """Say what was left, without calling it an error."""
        click.echo(self.format_message(), file=file, err=True)


@contextmanager
def spoken(interrupted: str = "interrupted.") -> Iterator[None]:
    """Print warnings as sentences; turn errors a user can act on into exit code 1, Ctrl-C into 130."""
    try:
        with plain_warnings():
            yield
    except BrokenPipeError:  # nobody reads on: that is how `| head` ends
        # What is still to be flushed goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except BaryflowError as error:
        raise _failure(in_options(str(error))) from error
    except OSError as error:  # its number means nothing to a reader
        known = error.strerror and error.filename
        words = f"{error.filename}: {error.strerror}" if known else str(error)
        raise _failure(words) from error
    except ImportError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if "pip install" in str(error) or extra is None:
            raise _failure(str(error)) from error
        package = str(error.name).partition(".")[0]
        raise _failure(f"{package} is not installed: pip install 'baryflow[{extra}]'") from error
    except KeyboardInterrupt as error:
        raise Interrupted(safe(interrupted)) from error


def _failure(words: str) -> click.ClickException:
    return click.ClickException(safe(words))
