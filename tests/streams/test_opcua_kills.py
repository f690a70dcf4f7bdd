"""Runs, servers and wires that end at the worst moment: with a history, nothing is missing."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from baryflow.streams import open_source
from tests.streams.files import require
from tests.streams.following import (
    COLUMNS,
    FILES,
    ROOT,
    Follower,
    kill_again_and_again,
    read_records,
    save_model,
)
from tests.streams.proxy import Proxy

require("asyncua")

from tests.streams.plants import Plant  # noqa: E402

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


class Run(Follower):
    """``baryflow run`` on a server, from a checkpoint."""

    def __init__(self, folder, url, every):
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        self._before = self.journalled()
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        places = [self.folder / FILES[name] for name in ("predictions", "events", "quarantine")]
        outputs = zip(("-o", "--events", "--quarantine"), places, strict=True)
        options = ["--every", every, "--checkpoint", self.folder / "checkpoint", "--batch", 8]
        options += [*(one for pair in outputs for one in pair), "--wait", "200ms"]
        with (self.folder / "words.txt").open("ab") as words:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "baryflow", "run", self.folder.parent / "model.bary", url,
                 *map(str, options)],
                env=os.environ | one_thread, cwd=ROOT, stderr=words, stdout=words,
            )  # fmt: skip

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


class Telling:
    """Tells rows in a thread, one for each second of the plant, so many in a real second."""

    def __init__(self, plant, rows, count, rate):
        self.plant, self.rows, self.count, self.rate = plant, rows, count, rate
        plant.begin += 100_000
        self.told = 0
        self.tell(0)
        self.thread = threading.Thread(target=self._run)

    def tell(self, number):
        values = self.rows[number % len(self.rows)].tolist()
        stamp = self.plant.begin + number
        self.plant.write(*((name, value, stamp) for name, value in zip(COLUMNS, values, strict=True)))
        self.told = number

    def _run(self):
        for number in range(1, self.count + 1):
            time.sleep(1 / self.rate)
            self.tell(number)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.thread.join()


def expected_times(plant, count):
    return [
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(plant.begin + number)) for number in range(count)
    ]


def killed_again_and_again(plant, rows, folder, kills, count, rate):
    """Return the times of all predictions of a run that was killed so often, and what should be."""
    telling = Telling(plant, rows, count, rate)

    def follow():
        return Run(folder, f"{plant.url}{NODE}&since={expected_times(plant, 1)[0]}", "1s")

    first = follow()
    with telling:
        first.wait_until_working()
        first.kill()
        last = kill_again_and_again(follow, kills - 1)
    try:
        last.wait_for(count - 3)
    finally:
        last.end()
    found = [record["time"] for record in read_records(folder, "predictions")]
    return found, expected_times(plant, len(found)), last.words()


def test_killed_again_and_again_nothing_is_missing(model, plant):
    folder, rows = model
    found, expected, words = killed_again_and_again(plant, rows, folder / "killed", 3, 300, 40)
    assert found == expected, words
    assert len(found) >= 290


def gather(source, count, seconds=60.0):
    rows, times, notices, until = [], [], [], time.monotonic() + seconds
    while len(rows) < count:
        assert time.monotonic() < until, (len(rows), notices)
        batch = source.read(32, 0.1)
        rows += batch.rows.tolist()
        times += batch.times
        notices += batch.notices
    return rows, times, notices


def disturbed(plant, rows, count, rate, url, disturb):
    """Return what a source makes of rows while something happens to it, and what it should."""
    telling = Telling(plant, rows, count, rate)
    source = open_source(url, columns=COLUMNS, every=1, idle=0.1)
    try:
        source.read(1, 0.1)
        thread = threading.Thread(target=disturb)
        with telling:
            thread.start()
            found, times, notices = gather(source, count - 3, count / rate + 60)
        thread.join()
    finally:
        source.close()
    every = np.array([rows[number % len(rows)] for number in range(count)])
    begin = expected_times(plant, count).index(times[0])
    assert times == expected_times(plant, count)[begin : begin + len(times)]
    assert np.array_equal(found, every[begin : begin + len(found)])
    assert begin <= 1
    return notices


def test_a_server_that_is_restarted(model, plant):
    """It is away for a while, and its plant goes on: what it tells then is in its history."""

    def restart():
        time.sleep(0.5)
        plant.stop()
        plant.start()

    notices = disturbed(plant, model[1], 200, 40, plant.url + NODE, restart)
    assert any(notice.startswith("lost the connection") for notice in notices)
    assert any(" again, after" in notice for notice in notices)
    assert not any("missing" in notice for notice in notices)


def test_a_wire_that_is_cut(model, plant, monkeypatch):
    monkeypatch.setattr("baryflow.streams.opcua.connecting.TIMEOUT", 1.0)
    with Proxy(plant.port) as wire:

        def cut():
            time.sleep(0.5)
            wire.cut()
            time.sleep(3.0)
            wire.heal()

        url = f"opc.tcp://127.0.0.1:{wire.port}/plant{NODE}"
        notices = disturbed(plant, model[1], 200, 40, url, cut)
    assert any(notice.startswith("lost the connection") for notice in notices)
    assert not any("missing" in notice for notice in notices)


def count_changes(names, rate, seconds):
    """Change each variable so often; return what was told, heard, in order, and the CPU share of it."""
    plant = Plant(names, history=False)
    heard, stop = {name: [] for name in names}, threading.Event()
    plant.write(*((name, 0.0, BEGIN) for name in names))
    source = open_source(plant.url + NODE, columns=names, every=1, idle=0.1)
    update = source._sampler.update

    def note(address, value, *rest):
        heard[address.removeprefix("ns=2;s=")].append(value)
        return update(address, value, *rest)

    source._sampler.update = note
    try:
        source.read(1, 0.1)
        for values in heard.values():
            values.clear()

        def read():
            while not stop.is_set():
                source.read(32, 0.1)

        reader = threading.Thread(target=read)
        reader.start()
        begin, told = time.monotonic(), int(rate * seconds)
        for number in range(1, told + 1):
            time.sleep(max(0.0, begin + number / rate - time.monotonic()))
            plant.write(*((name, float(number), BEGIN + number / rate) for name in names))
        until = time.monotonic() + 10
        while any(len(values) < told for values in heard.values()) and time.monotonic() < until:
            time.sleep(0.05)
        stop.set()
        reader.join()
    finally:
        source.close()
        plant.close()
    return told, heard


def test_no_change_is_lost():
    told, heard = count_changes([f"t{number}" for number in range(41)], 10, 2)
    for values in heard.values():
        assert [value for value in values if value] == list(range(1, told + 1))
