"""A plant that speaks MQTT: alarms to one topic, commands from another."""

import contextlib
import json
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from baryflow import load
from baryflow.client import Client
from tests.streams.files import require
from tests.streams.mosquitto import Broker, Publisher, find_mosquitto, login, panel
from tests.streams.run_process import COLUMNS, make_record, save_model
from tests.waiting import ask_to_end, wait_until

require("paho.mqtt.client")
ENVIRONMENT = {"OMP_NUM_THREADS": "1"} | login("INPUT", "OUTPUT", "LABELS", "ALARMS")
CONFIG = "[alarms]\nnormal = ['0']\non-delay = 2\noff-delay = 2\nprobability = 0.5\n"


@pytest.fixture
def heard(tmp_path):
    """A broker with its publisher, and what a panel hears of alarms."""
    find_mosquitto()
    with (
        Broker(tmp_path / "broker") as broker,
        Publisher(broker.port) as publisher,
        panel(broker) as messages,
    ):
        yield broker, publisher, messages


def away(folder):
    """Return a broker that is not there yet; once it is, it keeps messages for the panel."""
    find_mosquitto()
    broker = Broker(folder / "broker")
    broker.start()
    with panel(broker):
        pass
    broker.stop()
    return broker


def split_rows(folder):
    """Save a model, and return rows of its first class and of its second."""
    rows = save_model(folder / "model.bary")
    labels = load(folder / "model.bary").predict(pd.DataFrame(rows, columns=COLUMNS))
    (folder / "baryflow.toml").write_text(CONFIG)
    return rows[np.flatnonzero(labels == 0)[:40]], rows[np.flatnonzero(labels == 1)[:40]]


@contextlib.contextmanager
def started(folder, *arguments):
    """Yield the process of a command, and a function that returns its log while it runs."""
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "baryflow", *arguments],
            cwd=folder,
            env=os.environ | ENVIRONMENT,
            stderr=log,
        )

    def read_log():
        text = (folder / "log.txt").read_text()
        assert process.poll() is None, text
        return text

    try:
        yield process, read_log
    finally:
        process.kill()
        process.wait()


def test_raise_acknowledge_and_clear_over_mqtt(heard, tmp_path):
    broker, publisher, messages = heard
    normal, faulty = split_rows(tmp_path)
    arguments = [
        "run", "model.bary", broker.url("plant/rows"), "--time", "n", "-o", "out.ndjson",
        "--checkpoint", "state", "--max-latency", "200ms", "--alarms", broker.url("plant/alarms"),
        "--alarm-commands", broker.url("plant/commands"),
    ]  # fmt: skip
    with started(tmp_path, *arguments) as (process, read_log):

        def changes():
            read_log()
            return [one["change"] for one in messages if one["alarm"] == "1"]

        wait_until(lambda: "following" in read_log())
        publisher.send_all("plant/rows", [make_record(normal, n) for n in range(8)])
        publisher.send_all("plant/rows", [make_record(faulty, n) for n in range(8, 24)])
        wait_until(lambda: changes() == ["raised"])
        publisher.send_all("plant/commands", [{"action": "acknowledge", "alarm": "1", "by": "ada"}])
        wait_until(lambda: changes() == ["raised", "acknowledged"])
        publisher.send_all("plant/rows", [make_record(normal, n) for n in range(24, 40)])
        wait_until(lambda: changes() == ["raised", "acknowledged", "cleared"])
        ask_to_end(process)
        process.wait(timeout=300)
    assert messages[0]["state"] == "unacknowledged"
    assert messages[0]["evidence"]["columns"]


def test_a_service_starts_while_the_broker_of_its_alarms_is_away(tmp_path):
    broker = away(tmp_path)
    normal, faulty = split_rows(tmp_path)
    arguments = ["serve", "model.bary", "--port", "0", "--workers", "1", "--batch-size", "8"]
    with started(tmp_path, *arguments, "--alarms", broker.url("plant/alarms")) as (process, read_log):
        wait_until(lambda: "listening at" in read_log())
        url = re.search(r"listening at (\S+)", read_log())[1]
        with Client(url) as client:
            client.send("pump", normal[:8])
            client.send("pump", faulty[:16])
            wait_until(lambda: client.alarms("pump"))
        with broker, panel(broker) as messages:
            wait_until(lambda: read_log() and messages)
            assert [one["alarm"] for one in messages] == ["1"]
        ask_to_end(process)  # with the broker away again
        process.wait(timeout=300)


def test_a_run_over_a_file_waits_for_the_brokers_of_labels_and_output(tmp_path):
    broker = away(tmp_path)
    normal, faulty = split_rows(tmp_path)
    pd.DataFrame(np.vstack((normal, faulty)), columns=COLUMNS).to_csv(tmp_path / "rows.csv", index=False)
    arguments = ["run", "model.bary", "rows.csv", "--labels", broker.url("plant/labels")]
    with started(tmp_path, *arguments, "-o", broker.url("plant/alarms")) as (process, read_log):
        wait_until(lambda: "no connection yet" in read_log() and "no connection (" in read_log())
        with broker, panel(broker) as messages:
            process.wait(timeout=300)
            assert process.returncode == 0, (tmp_path / "log.txt").read_text()
            wait_until(lambda: len(messages) >= len(normal) + len(faulty))


def n_learned(folder):
    """Return how many labels a run has learned, by its events so far."""
    lines = (folder / "events.ndjson").read_text().splitlines(keepends=True)
    events = [json.loads(line) for line in lines if line.endswith("\n")]
    return sum(one["learned"] for one in events if one["event"] == "label")


def test_labels_by_mqtt_reclassify_an_alarm_and_a_client_of_another_project_hears_it(heard, tmp_path):
    broker, publisher, messages = heard
    normal, faulty = split_rows(tmp_path)
    arguments = [
        "run", "model.bary", broker.url("plant/rows"), "--time", "n", "-o", "out.ndjson",
        "--max-latency", "200ms", "--batch-size", "8", "--events", "events.ndjson",
        "--labels", broker.url("plant/labels"), "--alarms", broker.url("plant/alarms"),
    ]  # fmt: skip
    with started(tmp_path, *arguments) as (process, read_log):

        def changes():
            read_log()
            return [one["change"] for one in messages if one["alarm"] == "1"]

        wait_until(lambda: "following" in read_log())
        publisher.send_all("plant/rows", [make_record(normal, n) for n in range(16)])
        publisher.send_all("plant/rows", [make_record(faulty, n) for n in range(16, 40)])
        wait_until(lambda: changes() == ["raised"])
        publisher.send_all("plant/labels", [{"position": n, "label": 0} for n in range(17, 41)])
        wait_until(lambda: read_log() and n_learned(tmp_path) == 24)
        publisher.send_all("plant/rows", [make_record(faulty, n) for n in range(16, 24)])
        wait_until(lambda: changes() == ["raised", "reclassified"])
        ask_to_end(process)
        process.wait(timeout=300)
    assert messages[-1]["state"] == "reclassified"


def test_a_baseline_by_mqtt_is_learned(heard, tmp_path):
    broker, publisher, _ = heard
    normal, _ = split_rows(tmp_path)
    arguments = [
        "run", "model.bary", broker.url("plant/rows"), "--time", "n", "-o", "out.ndjson",
        "--max-latency", "200ms", "--batch-size", "8", "--labels", broker.url("plant/labels"),
        "--save", "after.bary", "--events", "events.ndjson",
    ]  # fmt: skip
    with started(tmp_path, *arguments) as (process, read_log):
        wait_until(lambda: "following" in read_log())
        publisher.send_all("plant/rows", [make_record(normal, n) for n in range(16)])
        wait_until(lambda: read_log() and (tmp_path / "out.ndjson").read_text().count("\n") == 16)
        span = {"time": "2", "until": "9", "label": 0, "baseline": True}
        publisher.send_all("plant/labels", [span, {"position": 12, "label": 0, "baseline": True}])
        wait_until(lambda: read_log() and n_learned(tmp_path) == 9)
        ask_to_end(process)
        process.wait(timeout=300)
    (baseline,) = load(tmp_path / "after.bary").state_.baselines
    assert baseline.n_rows == 9
