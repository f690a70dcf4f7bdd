"""The simulated plant as a server and at a broker: what arrives are its signals, bit for bit."""

import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import numpy as np
import pytest
from click.testing import CliRunner

from baryflow.cli import main
from baryflow.cli import tep as publishing
from baryflow.streams import Credentials, open_source
from baryflow.tep import VARIABLES
from baryflow.tep.plant import settling
from baryflow.tep.plant.simulation import Plan, draw
from tests.streams.files import require
from tests.waiting import PATIENCE, ask_to_end

LABELS = [variable.label for variable in VARIABLES]
TAGS = [variable.tag for variable in VARIABLES]
START = 1_800_000_000 - 1_800_000_000 % 180


@pytest.fixture(scope="module")
def signal_(plant, settled):
    """An hour of mode 1 with fault 4, as it is simulated offline."""
    return draw(plant, settled[1], Plan(modes=(1,), faults=(4,), hours=1.0), 1, 4, 0)[0]


def collect(source, count, seconds=300):
    rows, times, until = [], [], time.monotonic() + seconds
    while len(rows) < count:
        assert time.monotonic() < until, len(rows)
        batch = source.read(32, 0.1)
        rows += batch.rows.tolist()
        times += batch.times
    return np.array(rows), times


def publish(signal_, publisher, speed=36_000.0):
    stop = threading.Event()
    thread = threading.Thread(
        target=publishing.publish_rows, args=(signal_, publisher),
        kwargs={"start": START, "speed": speed, "stop": stop},
    )  # fmt: skip
    thread.start()
    return thread


def test_settling_leads_to_the_states_that_are_shipped(plant, settled):
    for found, expected in zip(settling.settle(plant, [1])[1], settled[1], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_opc_ua_brings_the_signals(signal_):
    require("asyncua")
    from tests.streams.opcua_plant import free_port

    with ExitStack() as stack:
        url = f"opc.tcp://127.0.0.1:{free_port()}/tep"
        publisher = publishing.Server(url, Credentials(), stack)
        where = publisher.example.split("'")[1]
        thread = publish(signal_, publisher)
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START))
        source = open_source(f"{where}&since={since}", columns=LABELS, sample_interval=180, idle=0.1)
        stack.callback(source.close)
        rows, times = collect(source, len(signal_))
        thread.join()
    assert np.array_equal(rows, signal_.astype(np.float64))
    assert times[0] == since


@pytest.fixture
def broker(tmp_path):
    require("paho.mqtt.client")
    from tests.streams.mosquitto import PASSWORD, USER, Broker

    with Broker(tmp_path) as broker:
        yield f"mqtt://127.0.0.1:{broker.port}/tep", Credentials(USER, PASSWORD)


def test_mqtt_brings_the_signals(signal_, broker):
    url, credentials = broker
    with ExitStack() as stack:
        source = open_source(url, columns=LABELS, time="time", idle=0.1, credentials=credentials)
        stack.callback(source.close)
        source.read(1, 0.1)
        publisher = publishing.Topics(url, credentials, stack)
        thread = publish(signal_, publisher)
        rows, times = collect(source, len(signal_))
        thread.join()
    assert np.array_equal(rows, signal_.astype(np.float64))
    assert times[0] == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START))


def test_mqtt_brings_each_value(signal_, broker):
    url, credentials = broker
    with ExitStack() as stack:
        source = open_source(
            f"{url}/+", columns=["value"], time="time", key="@topic", idle=0.1, credentials=credentials
        )
        stack.callback(source.close)
        source.read(1, 0.1)
        thread = publish(signal_, publishing.Topics(url, credentials, stack, per_tag=True))
        found, until = {}, time.monotonic() + PATIENCE
        while len(found) < signal_.size:
            assert time.monotonic() < until
            batch = source.read(100, 0.1)
            source.acknowledge(batch.cursor)
            found |= dict(zip(zip(batch.times, batch.keys, strict=True), batch.rows[:, 0], strict=True))
        thread.join()
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START + 180 * 7))
    assert [found[moment, f"tep/{tag}"] for tag in TAGS] == signal_[7].tolist()


_SCRIPT = """
import numpy as np
from baryflow.cli import main, tep
from tests.waiting import PATIENCE
tep.play = lambda **options: np.zeros((100000, 34), np.float32)
main()
"""


def test_it_ends_in_order():
    require("asyncua")
    from tests.streams.opcua_plant import free_port

    url = f"opc.tcp://127.0.0.1:{free_port()}/tep"
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, "tep", "publish", "--opc-ua", url],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ),
    )  # fmt: skip
    with process:
        told = process.stdout.readline()
        ask_to_end(process)
        out, words = process.communicate(timeout=300)
    assert url in told
    assert process.returncode == 0, words
    assert "of 100,000 rows published" in words
    assert "Traceback" not in words
    assert not out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--opc-ua, --mqtt URL and --csv"),
        (["--opc-ua", "opc.tcp://127.0.0.1:1/x", "--mqtt", "mqtt://h/t"], "--opc-ua, --mqtt"),
        (["--opc-ua", "opc.tcp://127.0.0.1:1/x", "--per-tag"], "--per-tag"),
        (["--opc-ua", "opc.tcp://127.0.0.1:1/x", "--start", "noon"], "expected a time such as"),
        (["--opc-ua", "opc.tcp://0.0.0.0:4840/x"], "reachable from other computers"),
        (["--opc-ua", "http://127.0.0.1/x"], "begins with opc.tcp://"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, words):
    found = CliRunner().invoke(main, ["tep", "publish", *arguments])
    assert found.exit_code != 0
    assert words in found.output


def test_rows_can_be_written_to_a_file(signal_, tmp_path, capsys):
    publishing.write_table(signal_, tmp_path / "rows.csv", START)
    assert "20 rows" in capsys.readouterr().err
    source = open_source(tmp_path / "rows.csv", columns=LABELS, time="time")
    batch = source.read(100)
    source.close()
    assert np.array_equal(batch.rows, signal_.astype(np.float64))
    assert batch.times[0] == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START))
