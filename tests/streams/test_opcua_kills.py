"""Runs, servers and networks that fail at the worst moment: with a history, nothing is missing."""

import threading
import time

import pytest

from baryflow.streams import open_source
from tests.streams.files import require
from tests.streams.proxy import Proxy
from tests.streams.run_process import (
    COLUMNS,
    RunProcess,
    kill_again_and_again,
    read_records,
    save_model,
)

require("asyncua")

from tests.streams.opcua_plant import Plant  # noqa: E402
from tests.waiting import PATIENCE, wait_until  # noqa: E402

BEGIN = 1_800_000_000
NODE = "?node=ns=2;s=Plant"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("opcua")
    return folder, save_model(folder / "model.bary")


@pytest.fixture(scope="module")
def plant():
    plant = Plant(COLUMNS)
    plant.begin = BEGIN
    yield plant
    plant.close()


def run(folder, url):
    """Start ``baryflow run`` on a server."""
    return RunProcess(folder, url, {}, "--sample-interval", "1s", "--batch-size", "8")


class RowWriter:
    """Writes rows in a thread, one per second of the plant, `rate` per real second."""

    def __init__(self, plant, rows, count, rate):
        self.plant, self.rows, self.count, self.rate = plant, rows, count, rate
        plant.begin += 100_000
        self.written = 0
        self.write(0)
        self.thread = threading.Thread(target=self._run)

    def write(self, number):
        values = self.rows[number % len(self.rows)].tolist()
        stamp = self.plant.begin + number
        self.plant.write(*((name, value, stamp) for name, value in zip(COLUMNS, values, strict=True)))
        self.written = number

    def _run(self):
        while self.written < self.count:
            time.sleep(1 / self.rate)
            self.write(self.written + 1)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, error, *_):
        if error is not None:
            self.count = 0
        self.thread.join()


def expected_times(plant, count):
    return [
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(plant.begin + number)) for number in range(count)
    ]


def killed_again_and_again(plant, rows, folder, kills, count, rate):
    """Return the times of all predictions of a run that was killed repeatedly, and those expected."""
    writer = RowWriter(plant, rows, count, rate)

    def follow():
        return run(folder, f"{plant.url}{NODE}&since={expected_times(plant, 1)[0]}")

    with writer:
        kill_again_and_again(follow, kills)
    with follow() as last:
        last.wait_for(count - 3)
        last.end()
    found = [record["time"] for record in read_records(folder, "predictions")]
    return found, expected_times(plant, len(found)), last.output()


def test_nothing_is_missing_after_a_kill(model, plant):
    """For many kills, see experiments/plantfloor."""
    folder, rows = model
    found, expected, words = killed_again_and_again(plant, rows, folder / "killed", 1, 150, 40)
    assert found == expected, words
    assert len(found) >= 140


def gather(source, count, seconds=300):
    rows, times, notices, until = [], [], [], time.monotonic() + seconds
    while len(rows) < count:
        assert time.monotonic() < until, (len(rows), notices)
        batch = source.read(32, 0.1)
        rows += batch.rows.tolist()
        times += batch.times
        notices += batch.notices
    return rows, times, notices


def disturbed(plant, rows, count, rate, url, disturb):
    """Disturb a source; return times and rows found, those expected, and notices."""
    writer = RowWriter(plant, rows, count, rate)
    source = open_source(url, columns=COLUMNS, sample_interval=1, idle=0.1)
    try:
        source.read(1, 0.1)
        thread = threading.Thread(target=disturb)
        with writer:
            thread.start()
            found, times, notices = gather(source, count - 3, count / rate + 300)
        thread.join()
    finally:
        source.close()
    every = [rows[number % len(rows)].tolist() for number in range(count)]
    expected = dict(zip(expected_times(plant, count), every, strict=True))
    return list(zip(times, found, strict=True)), expected, notices


def check(found, expected):
    """All rows are there once, in order, from the first or second on, and as they were written."""
    times = list(expected)
    begin = times.index(found[0][0])
    assert begin <= 1
    assert [time for time, _ in found] == times[begin : begin + len(found)]
    assert [row for _, row in found] == [expected[time] for time, _ in found]


def test_a_server_that_is_restarted(model, plant):
    """The server is away for a while, but its plant continues to write to the history."""

    def restart():
        time.sleep(0.5)
        plant.stop()
        plant.start()

    found, expected, notices = disturbed(plant, model[1], 200, 40, plant.url + NODE, restart)
    check(found, expected)
    assert any(notice.startswith("lost the connection") for notice in notices)
    assert any(" again, after" in notice for notice in notices)
    assert not any("missing" in notice for notice in notices)


def test_a_network_that_is_cut(model, plant, monkeypatch):
    monkeypatch.setattr("baryflow.streams.opcua.connection.TIMEOUT", 1.0)
    with Proxy(plant.port) as wire:

        def cut():
            time.sleep(0.5)
            wire.cut()
            time.sleep(3.0)
            wire.heal()

        url = f"opc.tcp://127.0.0.1:{wire.port}/plant{NODE}"
        found, expected, notices = disturbed(plant, model[1], 200, 40, url, cut)
    check(found, expected)
    assert any(notice.startswith("lost the connection") for notice in notices)
    assert not any("missing" in notice for notice in notices)


def count_changes(names, rate, seconds):
    """Change each variable `count` times; return what was sent and received, and the CPU share."""
    plant = Plant(names, history=False)
    received, stop = {name: [] for name in names}, threading.Event()
    plant.write(*((name, 0.0, BEGIN) for name in names))
    source = open_source(plant.url + NODE, columns=names, sample_interval=1, idle=0.1)
    update = source._sampler.update

    def note(address, value, *rest):
        received[address.removeprefix("ns=2;s=")].append(value)
        return update(address, value, *rest)

    source._sampler.update = note
    try:
        # A first value that is sent late would be the first change, and come twice.
        wait_until(lambda: all(received.values()), step=lambda: source.read(1, 0.1))
        for values in received.values():
            values.clear()

        def read():
            while not stop.is_set():
                source.read(32, 0.1)

        reader = threading.Thread(target=read)
        reader.start()
        begin, sent = time.monotonic(), int(rate * seconds)
        for number in range(1, sent + 1):
            time.sleep(max(0.0, begin + number / rate - time.monotonic()))
            plant.write(*((name, float(number), BEGIN + number / rate) for name in names))
        until = time.monotonic() + PATIENCE
        # The first values, sent before, may be among them.
        while any(values[-1:] != [sent] for values in received.values()) and time.monotonic() < until:
            time.sleep(0.05)
        stop.set()
        reader.join()
    finally:
        source.close()
        plant.close()
    return sent, received


def test_no_change_is_lost():
    sent, received = count_changes([f"t{number}" for number in range(41)], 10, 2)
    for values in received.values():
        assert [value for value in values if value] == list(range(1, sent + 1))
