"""Runs, brokers and wires that end at the worst moment: nothing is missing, and nothing comes twice."""

import json
import random
import signal
import threading
import time

import pytest

from tests.streams.files import require
from tests.streams.following import Follower, kill_again_and_again, make_record, read_records, save_model
from tests.streams.mosquitto import PASSWORD, USER, Broker, Publisher, find_mosquitto
from tests.streams.proxy import Proxy

require("paho.mqtt.client")
ENVIRONMENT = {"BARYFLOW_USERNAME": USER, "BARYFLOW_PASSWORD": PASSWORD}
TOPIC = "plant/pump1"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    find_mosquitto()
    folder = tmp_path_factory.mktemp("mqtt")
    return folder, save_model(folder / "model.bary")


class Sending:
    """Sends rows in a thread, so many a second; use it as a context, which ends when all are sent."""

    def __init__(self, port, rows, count, rate, named=True):
        self.arguments = port, rows, count, rate, named
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        port, rows, count, rate, named = self.arguments
        with Publisher(port) as publisher:
            for number in range(count):
                name = f"pump1-{number}" if named else None
                publisher.send(TOPIC, make_record(rows, number), name)
                time.sleep(1 / rate)
            publisher.wait()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.thread.join()


def subscribe(folder, broker, url):
    """Let the broker know the session before anything is sent."""
    first = Follower(folder, url, ENVIRONMENT)
    until = time.monotonic() + 60
    while "Sending SUBACK" not in (broker.folder / "mosquitto.log").read_text(errors="replace"):
        assert time.monotonic() < until, first.words()
        time.sleep(0.02)
    return first


def numbers(folder):
    return [int(record["time"]) for record in read_records(folder, "predictions")]


@pytest.mark.parametrize("named", [True, False])
def test_killed_again_and_again_each_message_is_predicted_once(model, tmp_path, named):
    folder, rows = model
    out, count = folder / f"killed-{named}", 600
    with LoggingBroker(tmp_path) as broker:
        url = broker.url(TOPIC)
        subscribe(out, broker, url).kill()
        with Sending(broker.port, rows, count, 150, named):
            last = kill_again_and_again(lambda: Follower(out, url, ENVIRONMENT), 3)
        last.wait_for(count)
        last.end()
    assert numbers(out) == list(range(count))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_broker_is_restarted_in_mid_stream(model, tmp_path, how):
    folder, rows = model
    out, count = folder / f"restarted-{how.name}", 400
    with LoggingBroker(tmp_path) as broker:
        one = subscribe(out, broker, broker.url(TOPIC))
        with Sending(broker.port, rows, count, 200):
            one.wait_until_working()
            time.sleep(0.5)
            broker.restart(how, away=0.5)
        one.wait_for(count)
        one.end()
    found = numbers(out)
    assert sorted(found) == list(range(count))
    words = [one["message"] for one in read_records(out, "events") if one["event"] == "warning"]
    assert any("connected again after" in one for one in words)


def test_the_wire_is_cut_for_a_while(model, tmp_path):
    folder, rows = model
    out, count = folder / "cut", 300
    with LoggingBroker(tmp_path) as broker, Proxy(broker.port) as proxy:
        one = subscribe(out, broker, broker.url(f"{TOPIC}?keepalive=1", port=proxy.port))
        with Sending(broker.port, rows, count, 150):
            one.wait_until_working()
            proxy.cut()
            time.sleep(3.0)
            proxy.heal()
        one.wait_for(count)
        one.end()
    assert numbers(out) == list(range(count))


def test_mutated_payloads_are_quarantined(model, tmp_path):
    folder, rows = model
    out, count, rng = folder / "fuzz", 500, random.Random(0)
    with LoggingBroker(tmp_path) as broker, Publisher(broker.port) as publisher:
        one = subscribe(out, broker, broker.url(TOPIC))
        payloads = [mutate(json.dumps(make_record(rows, i)).encode(), rng) for i in range(count)]
        publisher.send_all(TOPIC, payloads)
        one.wait_for(count)
        one.end()
    bad = read_records(out, "quarantine")
    good = read_records(out, "predictions")
    assert len(bad) > count / 4
    assert sorted(record["position"] for record in bad + good) == list(range(1, count + 1))
    assert all(record["reason"] and record["offset"] for record in bad)


def mutate(payload, rng):
    """Damage a payload in one of the ways in which payloads are damaged."""
    data = bytearray(payload)
    kind = rng.randrange(7)
    if kind == 0:
        data = data[: rng.randrange(len(data))]
    elif kind == 1:
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == 2:
        at = rng.randrange(len(data))
        data[at:at] = rng.randbytes(rng.randrange(1, 20))
    elif kind == 3:
        data = bytearray(rng.randbytes(rng.randrange(200)))
    elif kind == 4:
        data = data.replace(b"x1", rng.choice([b"x9", b"", b"x0", b"\xff", b"x1\\u0000"]))
    elif kind == 5:
        odd = [b"1e999", b"NaN", b"-Infinity", b"[1]", b"{}", b'"off"', b"null", b"true", b"9" * 400]
        data[data.index(b": ", 10) + 2 : data.index(b", ", 12)] = rng.choice(odd)
    else:
        data = bytearray(
            rng.choice([b"", b"[]", b"[" * 5000, b"0", b'""', b"{}", b"\0", bytes(300_000)])
        )
    return bytes(data)


class LoggingBroker(Broker):
    """Says what it does, so that it can be waited for."""

    def __init__(self, folder):
        super().__init__(folder)
        with (self.folder / "mosquitto.conf").open("a") as file:
            file.write("log_type all\n")
