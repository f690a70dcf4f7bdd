"""How the command line speaks: one line that overwrites itself, and errors in words."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Self

import click

from baryflow.exceptions import BaryflowError


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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo(err=True)


@contextmanager
def spoken() -> Iterator[None]:
    """Turn the errors a user can do something about into words and exit code 1."""
    try:
        yield
    except (BaryflowError, OSError, ModuleNotFoundError) as error:
        raise click.ClickException(str(error)) from error
