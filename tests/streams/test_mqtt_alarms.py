"""A plant that speaks MQTT: alarms to one topic, commands from another."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from baryflow import load
from tests.streams.files import require
from tests.streams.mosquitto import PASSWORD, USER, Broker, Publisher, find_mosquitto
from tests.streams.run_process import COLUMNS, make_record, save_model
from tests.waiting import ask_to_end, wait_until

require("paho.mqtt.client")
ENVIRONMENT = {"BARYFLOW_USERNAME": USER, "BARYFLOW_PASSWORD": PASSWORD, "OMP_NUM_THREADS": "1"}
CONFIG = "[alarms]\nnormal = ['0']\non-delay = 2\noff-delay = 2\nprobability = 0.5\n"


@pytest.fixture
def heard(tmp_path):
    """A broker with its publisher, and what a client of another project hears of alarms."""
    import paho.mqtt.client as mqtt

    find_mosquitto()
    with Broker(tmp_path / "broker") as broker, Publisher(broker.port) as publisher:
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "panel")
        client.username_pw_set(USER, PASSWORD)
        messages, ready = [], []
        client.on_message = lambda *more: messages.append(json.loads(more[2].payload))
        client.on_subscribe = lambda *_: ready.append(True)
        client.connect("127.0.0.1", broker.port)
        client.loop_start()
        client.subscribe("plant/alarms", qos=1)
        wait_until(lambda: ready)
        yield broker, publisher, messages
        client.disconnect()
        client.loop_stop()


def test_raise_acknowledge_and_clear_over_mqtt(heard, tmp_path):
    broker, publisher, messages = heard
    rows = save_model(tmp_path / "model.bary")
    labels = load(tmp_path / "model.bary").predict(pd.DataFrame(rows, columns=COLUMNS))
    normal, faulty = rows[np.flatnonzero(labels == 0)[:40]], rows[np.flatnonzero(labels == 1)[:40]]
    (tmp_path / "baryflow.toml").write_text(CONFIG)
    arguments = [
        "run", "model.bary", broker.url("plant/rows"), "--time", "n", "-o", "out.ndjson",
        "--checkpoint", "state", "--max-latency", "200ms", "--alarms", broker.url("plant/alarms"),
        "--alarm-commands", broker.url("plant/commands"),
    ]  # fmt: skip
    with (tmp_path / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "baryflow", *arguments],
            cwd=tmp_path,
            env=os.environ | ENVIRONMENT,
            stderr=log,
        )

    def changes():
        assert process.poll() is None, (tmp_path / "log.txt").read_text()
        return [one["change"] for one in messages if one["alarm"] == "1"]

    try:
        wait_until(lambda: "following" in (tmp_path / "log.txt").read_text() or process.poll())
        publisher.send_all("plant/rows", [make_record(normal, n) for n in range(8)])
        publisher.send_all("plant/rows", [make_record(faulty, n) for n in range(8, 24)])
        wait_until(lambda: changes() == ["raised"])
        publisher.send_all("plant/commands", [{"action": "acknowledge", "alarm": "1", "by": "ada"}])
        wait_until(lambda: changes() == ["raised", "acknowledged"])
        publisher.send_all("plant/rows", [make_record(normal, n) for n in range(24, 40)])
        wait_until(lambda: changes() == ["raised", "acknowledged", "cleared"])
        ask_to_end(process)
        process.wait(timeout=300)
    finally:
        process.kill()
        process.wait()
    assert messages[0]["state"] == "unacknowledged"
    assert messages[0]["evidence"]["columns"]
