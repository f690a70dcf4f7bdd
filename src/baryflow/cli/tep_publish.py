"""``baryflow tep publish``: the simulated plant, as a server or at a broker."""

from __future__ import annotations

import csv
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import click
import numpy as np
from numpy.typing import NDArray

from baryflow.exceptions import InvalidInputError
from baryflow.streams import Credentials, open_sink
from baryflow.streams.sampling.clock import SECOND, instant_text
from baryflow.streams.urls import parse_address
from baryflow.tep.tables import VARIABLES
from baryflow.validation import count_of

#: Seconds of the plant's time from one row to the next.
INTERVAL = 180
#: Where the server is if nothing is said.
SERVER = "opc.tcp://127.0.0.1:4840/tep"
_FOLDER, _CLOCK = "Plant", "Clock"
#: A model of the plant that comes along, fitted on modes 2 to 6.
_MODEL = files("baryflow.datasets") / "data" / "tep_plant.bary"


class Publisher(Protocol):
    """Makes rows known."""

    example: str

    def publish(self, row: list[float], stamp: int) -> None:
        """Make a row known; its time is in seconds since the epoch."""

    def finish(self, stamp: int) -> None:
        """Say that there is nothing before this time that was not told."""


class Server:
    """An OPC UA server with a variable for each tag, and their history."""

    def __init__(self, url: str, credentials: Credentials, stack: ExitStack) -> None:
        from baryflow.streams.opcua.server import Host

        address = parse_address(url)
        address.check_options()
        if address.scheme != "opc.tcp":
            raise InvalidInputError(f"expected a URL that begins with opc.tcp://, got {url}")
        self._host = Host(address, credentials, keep=True)
        stack.callback(self._host.close)
        self._host.add(_FOLDER, {variable.label: 0.0 for variable in VARIABLES})
        self._host.add("", {_CLOCK: datetime.now(UTC)})
        where = f"{self._host.url}?node=ns=2;s={_FOLDER}&clock=ns=2;s={_CLOCK}"
        self.example = f"baryflow run {_MODEL} '{where}' --every 3min"

    def publish(self, row: list[float], stamp: int) -> None:
        """Write all variables."""
        names = [f"{_FOLDER}.{variable.label}" for variable in VARIABLES]
        self._host.write(list(zip(names, row, strict=True)), stamp)
        self.finish(stamp)

    def finish(self, stamp: int) -> None:
        """Move the clock on."""
        self._host.write([(_CLOCK, datetime.fromtimestamp(stamp, UTC))], stamp)


class Rows:
    """A topic of MQTT with an object for each row."""

    def __init__(self, url: str, credentials: Credentials, stack: ExitStack) -> None:
        self._sink = open_sink(url, credentials=credentials)
        stack.callback(self._sink.close)
        self.example = f"baryflow run {_MODEL} '{url}' --time time"

    def publish(self, row: list[float], stamp: int) -> None:
        """Send one message."""
        values = {variable.label: value for variable, value in zip(VARIABLES, row, strict=True)}
        self._sink.write([{"time": instant_text(stamp * SECOND), **values}])

    def finish(self, stamp: int) -> None:
        """Wait until the broker has all."""
        del stamp
        self._sink.flush(sync=True)


class Topics:
    """A topic of MQTT for each tag, with an object for each value."""

    def __init__(self, url: str, credentials: Credentials, stack: ExitStack) -> None:
        self._sinks = []
        base, _, options = url.partition("?")
        for variable in VARIABLES:
            topic = f"{base.rstrip('/')}/{variable.tag}{'?' * bool(options)}{options}"
            self._sinks.append(open_sink(topic, credentials=credentials))
            stack.callback(self._sinks[-1].close)
        where = f"{base.rstrip('/')}/+"
        self.example = f"baryflow run {_MODEL} '{where}' --tags TAGS.csv --every 3min"

    def publish(self, row: list[float], stamp: int) -> None:
        """Send a message for each tag."""
        for sink, value in zip(self._sinks, row, strict=True):
            sink.write([{"value": value, "time": instant_text(stamp * SECOND)}])

    def finish(self, stamp: int) -> None:
        """Wait until the broker has all."""
        del stamp
        for sink in self._sinks:
            sink.flush(sync=True)


def publish(
    signal_: NDArray[np.floating[Any]],
    publisher: Publisher,
    *,
    start: int,
    speed: float,
    stop: threading.Event,
) -> int:
    """Make rows known one after the other, in the plant's time times `speed`; return how many."""
    begin = time.monotonic()
    for number, row in enumerate(signal_.astype(np.float64).tolist()):
        if stop.wait(max(0.0, begin + number * INTERVAL / speed - time.monotonic())):
            return number
        publisher.publish(row, start + number * INTERVAL)
    publisher.finish(start + len(signal_) * INTERVAL)
    return len(signal_)


def write_table(signal_: NDArray[np.floating[Any]], path: Path, start: int) -> str:
    """Write rows to a CSV file, with the plant's time; return what was done in words."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["time", *(variable.label for variable in VARIABLES)])
        for number, row in enumerate(signal_.astype(np.float64).tolist()):
            table.writerow([instant_text((start + number * INTERVAL) * SECOND), *row])
    return f"{path}: {count_of(len(signal_), 'row')}"


def parse_start(text: str | None) -> int:
    """Return the plant's time of the first row: now without one, always a multiple of three minutes."""
    try:
        moment = datetime.now(UTC) if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"expected a time such as 2026-01-31T12:00:00Z, got {text!r}") from None
    seconds = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    return seconds - seconds % INTERVAL


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C and SIGTERM set; they end nothing by themselves."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
