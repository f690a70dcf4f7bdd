"""Runs, brokers and networks that fail at the worst moment: no row is missing or doubled."""

import contextlib
import json
import random
import signal
import time

import pytest

from baryflow.streams import open_source
from baryflow.streams.label_records import LabelFormat
from baryflow.streams.labels import open_labels
from baryflow.streams.urls import Credentials
from tests.streams.files import require
from tests.streams.mosquitto import PASSWORD, USER, Broker, Publisher, Sending, find_mosquitto, login
from tests.streams.proxy import Proxy
from tests.streams.run_process import (
    COLUMNS,
    FILES,
    RunProcess,
    kill_again_and_again,
    make_record,
    mutate,
    read_records,
    save_model,
)
from tests.waiting import wait_until

require("paho.mqtt.client")
ENVIRONMENT = login("INPUT", "LABELS", "OUTPUT")
TOPIC = "plant/pump1"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    find_mosquitto()
    folder = tmp_path_factory.mktemp("mqtt")
    return folder, save_model(folder / "model.bary")


def follow(folder, url):
    return RunProcess(folder, url, ENVIRONMENT, "--time", "n", "--batch-size", "8")


def subscribe(url):
    """Create the session on the broker, which keeps nothing before that."""
    open_source(url, columns=COLUMNS, credentials=Credentials(USER, PASSWORD), durable=True).close()


def numbers(folder):
    return [int(record["time"]) for record in read_records(folder, "predictions")]


def test_each_message_is_predicted_once_despite_a_kill(model, tmp_path):
    """For many kills, see experiments/plantfloor."""
    folder, rows = model
    out, count = folder / "killed", 200
    with Broker(tmp_path) as broker:
        url = broker.url(TOPIC)
        subscribe(url)
        with Sending(broker.port, TOPIC, rows, range(count), 150, named=False):
            kill_again_and_again(lambda: follow(out, url), 1)
        with follow(out, url) as last:
            last.wait_for(count)
            last.end()
    assert numbers(out) == list(range(count))


def learned(folder):
    path = folder / FILES["events"]
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return sum(event.get("learned", 0) for event in map(json.loads, lines))


def test_each_label_is_learned_once_despite_a_kill(model, tmp_path):
    folder, rows = model
    out, count, labelled = folder / "labelled", 200, range(0, 200, 7)
    with Broker(tmp_path) as broker, Publisher(broker.port) as publisher:
        url, labels = broker.url(TOPIC), broker.url("plant/labels")
        how = ["--labels", labels, "--labels-certify"]

        def follow_labelled():
            return RunProcess(out, url, ENVIRONMENT, "--time", "n", "--batch-size", "8", *how)

        subscribe(url)
        open_labels(labels, LabelFormat(), credentials=Credentials(USER, PASSWORD), durable=True).close()
        publisher.send_all("plant/labels", [{"time": n, "label": n % 3} for n in labelled[::2]])
        with Sending(broker.port, TOPIC, rows, range(count), 150, named=False):
            kill_again_and_again(follow_labelled, 1)
        publisher.send_all("plant/labels", [{"time": n, "label": n % 3} for n in labelled[1::2]])
        publisher.send_all("plant/labels", [b"no label"])
        with follow_labelled() as last:
            last.wait_for(count)
            wait_until(lambda: learned(out) >= len(labelled), last.output)
            last.end()
        assert "not used: it is not valid JSON" in last.output()
    assert numbers(out) == list(range(count))
    assert learned(out) == len(labelled)
    assert f"{len(labelled)} labels used" in last.output()


def test_the_broker_is_stopped_and_killed_mid_stream(model, tmp_path):
    folder, rows = model
    out, count = folder / "restarted", 200
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Broker(tmp_path))
        subscribe(broker.url(TOPIC))
        one = stack.enter_context(follow(out, broker.url(TOPIC)))
        with Sending(broker.port, TOPIC, rows, range(count // 2), 150):
            one.wait_for(count // 10)
            broker.restart(signal.SIGTERM, away=0.5)
        # It confirms a message to the publisher before it is on disk, so a kill in between loses it.
        broker.wait_until_saved()
        broker.restart(signal.SIGKILL, away=0.5)
        with Sending(broker.port, TOPIC, rows, range(count // 2, count), 300):
            one.wait_for(count)
        one.end()
    assert sorted(numbers(out)) == list(range(count))
    words = [one["message"] for one in read_records(out, "events") if one["event"] == "warning"]
    assert any("connected again after" in one for one in words)


def test_the_network_is_cut_for_a_while(model, tmp_path):
    folder, rows = model
    out, count = folder / "cut", 200
    with Broker(tmp_path) as broker, Proxy(broker.port) as proxy:
        url = broker.url(f"{TOPIC}?keepalive=1", port=proxy.port)
        subscribe(url)
        sending = Sending(broker.port, TOPIC, rows, range(count), 150)
        with follow(out, url) as one, sending:
            one.wait_until_working()
            proxy.cut()
            time.sleep(3.0)
            proxy.heal()
            one.wait_for(count)
            one.end()
    assert numbers(out) == list(range(count))


def test_mutated_payloads_are_quarantined(model, tmp_path):
    folder, rows = model
    out, count, rng = folder / "fuzz", 200, random.Random(0)
    with Broker(tmp_path) as broker, Publisher(broker.port) as publisher:
        subscribe(broker.url(TOPIC))
        payloads = [mutate(json.dumps(make_record(rows, i)).encode(), rng) for i in range(count)]
        publisher.send_all(TOPIC, payloads)
        with follow(out, broker.url(TOPIC)) as one:
            one.wait_for(count)
            one.end()
    bad = read_records(out, "quarantine")
    good = read_records(out, "predictions")
    assert len(bad) > count / 4
    assert sorted(record["position"] for record in bad + good) == list(range(1, count + 1))
    assert all(record["reason"] and record["offset"] for record in bad)
