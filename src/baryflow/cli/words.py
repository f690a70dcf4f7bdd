"""How the command line speaks: one line that overwrites itself, and errors in words."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import stat
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import IO, Any, Self, TextIO

import click

from baryflow.exceptions import BaryflowError, InvalidInputError


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
            click.echo(f"\r{words[:width]:<{width}}", err=True, nl=False)
            self._shown = True
        elif monotonic() - self._logged >= self._log_every:
            click.echo(words, err=True)
            self._logged = monotonic()

    def say(self, words: str) -> None:
        """Write a line that stays."""
        if self._shown:
            click.echo(err=True)
            self._shown = False
        click.echo(words, err=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo(err=True)


@contextmanager
def warnings_said(shown: Line) -> Iterator[None]:
    """Say warnings that are for users as lines that stay, without where in the code they come from."""
    before = warnings.showwarning

    def say(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, UserWarning):
            shown.say(f"warning: {message}")
        else:
            before(message, category, filename, lineno, file, line)

    warnings.showwarning = say
    try:
        yield
    finally:
        warnings.showwarning = before


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
    """Turn errors a user can do something about into words and exit code 1, Ctrl-C into 130."""
    try:
        yield
    except BrokenPipeError:  # nobody reads on: that is how `| head` ends
        # What is still to be flushed goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:  # its number means nothing to a reader
        known = error.strerror and error.filename
        words = f"{error.filename}: {error.strerror}" if known else str(error)
        raise click.ClickException(words) from error
    except (BaryflowError, ModuleNotFoundError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt as error:
        raise Interrupted(interrupted) from error
