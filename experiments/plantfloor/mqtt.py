"""MQTT on a bad day: runs and brokers killed, the wire cut, payloads damaged; and what defaults lose.

``python -m experiments.plantfloor.mqtt [PART ...]`` runs the parts named, or all, with a real mosquitto
and ``baryflow run``, and writes what came of each to ``results/mqtt.json`` as soon as it is done.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from baryflow.streams import open_source
from baryflow.streams.urls import Credentials
from tests.streams import interleaved
from tests.streams.mosquitto import CONFIGURATION, PASSWORD, USER, Broker, Publisher, Sending, login
from tests.streams.proxy import Proxy
from tests.streams.run_process import (
    COLUMNS,
    RunProcess,
    kill_again_and_again,
    make_record,
    mutate,
    read_records,
    save_model,
)

RESULTS = Path(__file__).parent / "results" / "mqtt.json"
US = Credentials(USER, PASSWORD)
ENVIRONMENT = login("INPUT", "OUTPUT")
TOPIC = "plant/pump1"
#: Debian's mosquitto with its defaults, except where it listens.
DEFAULTS = "listener 1883\nallow_anonymous true\npersistence_location /var/lib/mosquitto/\n"


def follow(folder, url):
    return RunProcess(folder / "run", url, ENVIRONMENT, "--time", "n")


def subscribe(url, **options):
    return contextlib.closing(open_source(url, columns=COLUMNS, credentials=US, durable=True, **options))


def count(folder, sent):
    """Return what became of the messages 0 to `sent`."""
    found = Counter(int(record["time"]) for record in read_records(folder / "run", "predictions"))
    words = [
        one["message"] for one in read_records(folder / "run", "events") if one["event"] == "warning"
    ]
    again = [int(one.split()[0]) for one in words if "delivered a second time" in one]
    return {
        "sent": sent,
        "predicted": sum(found.values()),
        "missing": sum(number not in found for number in range(sent)),
        "predicted_twice": sum(times - 1 for times in found.values()),
        "delivered_again_and_passed_over": sum(again),
    }


def wait_until_still(one, folder, seconds=5.0):
    """Wait until nothing more comes: some messages may be lost."""
    path, last, since = folder / "run" / "predictions.ndjson", -1, time.monotonic()
    while time.monotonic() - since < seconds:
        size = path.stat().st_size if path.exists() else 0
        if size != last:
            last, since = size, time.monotonic()
        assert one.process.poll() is None, one.output()
        time.sleep(0.1)


def kills(folder, rows, named=False):
    """Kill the run 20 times; messages have no names, so the broker's numbers must do."""
    with Broker(folder / "broker") as broker:
        url = broker.url(TOPIC)
        with subscribe(url):
            pass
        with Sending(broker.port, TOPIC, rows, itertools.count(), 8, named=named) as sending:
            kill_again_and_again(lambda: follow(folder, url), 20, longest=1.0)
            sending.stopped = True
        with follow(folder, url) as last:
            last.wait_for(sending.sent)
            wait_until_still(last, folder, 15.0)
            last.end()
    published = {"connections_of_the_publisher": sending.connections}  # after a second it sends again
    return {"kills_of_the_run": 20} | published | count(folder, sending.sent)


def kills_with_backlog(folder, rows):
    """Kill the run 20 times while 4,000 messages wait, and the broker is slow with all of them."""
    sent = 4000
    with Broker(folder / "broker") as broker:
        url = broker.url(TOPIC)
        with subscribe(url):
            pass
        with Publisher(broker.port) as publisher:
            for number in range(sent):
                publisher.send(TOPIC, make_record(rows, number))
            publisher.wait()
        kill_again_and_again(lambda: follow(folder, url), 20, longest=1.0)
        with follow(folder, url) as last:
            last.wait_for(sent)
            wait_until_still(last, folder, 15.0)
            last.end()
    return {"kills_of_the_run": 20} | count(folder, sent)


def kills_with_labels(folder, rows):
    """Kill the run 20 times with labels, alarms and commands between its rows."""
    del rows
    return interleaved.kill_over("mqtt", folder, 20)


def restart(folder, rows, how, times):
    rng = random.Random(0)
    with Broker(folder / "broker") as broker:
        url = broker.url(TOPIC)
        with subscribe(url):
            pass
        sending = Sending(broker.port, TOPIC, rows, itertools.count(), 40)
        with follow(folder, url) as one, sending:
            one.wait_until_working()
            for _ in range(times):
                time.sleep(1.0 + rng.random())
                broker.restart(how, away=rng.random())
            time.sleep(2.0)
            sending.stopped = True
            sending.thread.join()
            wait_until_still(one, folder)
            one.end()
    return {f"{how.name}_of_the_broker": times} | count(folder, sending.sent)


def broker_ended(folder, rows):
    """End the broker in order 10 times, in mid-stream."""
    return restart(folder, rows, signal.SIGTERM, 10)


def broker_killed(folder, rows):
    """Kill the broker 20 times, in mid-stream."""
    return restart(folder, rows, signal.SIGKILL, 20)


def cut(folder, rows):
    """Let nothing through for 60 seconds."""
    with Broker(folder / "broker") as broker, Proxy(broker.port) as proxy:
        url = broker.url(f"{TOPIC}?keepalive=10", port=proxy.port)
        with subscribe(url):
            pass
        sending = Sending(broker.port, TOPIC, rows, itertools.count(), 25, named=False)
        with follow(folder, url) as one, sending:
            one.wait_until_working()
            time.sleep(3.0)
            proxy.cut()
            time.sleep(60.0)
            proxy.heal()
            time.sleep(3.0)
            sending.stopped = True
            sending.thread.join()
            one.wait_for(sending.sent)
            one.end()
    words = [
        one["message"] for one in read_records(folder / "run", "events") if one["event"] == "warning"
    ]
    away = [one.rsplit("after ", 1)[1] for one in words if "connected again after" in one]
    return {"seconds_cut": 60, "said_to_be_away": away} | count(folder, sending.sent)


def fuzz(folder, rows):
    """Send 5,000 damaged payloads."""
    rng, sent = random.Random(0), 5000
    with Broker(folder / "broker", configuration=_saving_each_second()) as broker:
        with subscribe(broker.url(TOPIC)):
            pass
        with follow(folder, broker.url(TOPIC)) as one, Publisher(broker.port) as publisher:
            payloads = (mutate(json.dumps(make_record(rows, i)).encode(), rng) for i in range(sent))
            publisher.send_all(TOPIC, payloads)
            one.wait_for(sent)
            one.end()
            words = one.output().splitlines()[-1]
    good, bad = (read_records(folder / "run", name) for name in ("predictions", "quarantine"))
    positions = sorted(record["position"] for record in good + bad)
    reasons = Counter(record["reason"] for record in bad)
    return {
        "sent": sent, "predicted": len(good), "quarantined": len(bad), "last_words": words,
        "each_position_once": positions == list(range(1, sent + 1)), "reasons": len(reasons),
    }  # fmt: skip


def _saving_each_second():
    return CONFIGURATION.replace("autosave_on_changes true", "autosave_on_changes false")


def _lose(folder, configuration, sent, restarted):
    """Return how many messages are lost that were sent while the client was away."""
    with Broker(folder, configuration=configuration) as broker:
        url = broker.url("plant/away")
        with subscribe(url):
            pass
        with Publisher(broker.port) as publisher:
            publisher.send_all("plant/away", [{"x0": i} for i in range(sent)])
        if restarted:
            broker.restart(signal.SIGTERM)
        # With each change it writes all that it has: acknowledging a long queue takes a while.
        got, last = 0, time.monotonic()
        with subscribe(url, idle=1.0) as source:
            while got < sent and time.monotonic() - last < 30.0:
                if batch := source.read(256, 1.0):
                    got, last = got + len(batch.rows), time.monotonic()
                    source.acknowledge(batch.cursor)
    return sent - got


def losses(folder, rows):
    """Count what is lost with mosquitto's defaults, and with the configuration of the docs."""
    del rows
    return {
        f"{what}, {name}": f"{_lose(folder / f'{name}-{n}', text, n, restarted)} of {n} lost"
        for name, text in (("defaults", DEFAULTS), ("docs/howto/mosquitto.conf", CONFIGURATION))
        for what, n, restarted in (("broker restarted", 500, True), ("client away", 3000, False))
    }


def rates(folder, rows):
    """Measure rows a second, from publisher to acknowledgement, with two ways of saving."""
    found = {}
    for name, text in (("after_every_change", CONFIGURATION), ("each_second", _saving_each_second())):
        sent = 2000
        with contextlib.ExitStack() as stack:
            broker = stack.enter_context(Broker(folder / name, configuration=text))
            source = stack.enter_context(subscribe(broker.url(TOPIC), idle=5.0))
            publisher = stack.enter_context(Publisher(broker.port))
            began, got = time.monotonic(), 0
            for number in range(sent):
                publisher.send(TOPIC, make_record(rows, number))
            while got < sent:
                batch = source.read(32, 1.0)
                got += len(batch.rows)
                source.acknowledge(batch.cursor)
            seconds = time.monotonic() - began
        found[f"rows_a_second_saving_{name}"] = round(sent / seconds)
    return found


_PARTS = (
    kills, kills_with_backlog, kills_with_labels, broker_ended, broker_killed, cut, fuzz, losses, rates,
)  # fmt: skip
PARTS = {one.__name__: one for one in _PARTS}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    chosen = parser.parse_args(arguments).parts or list(PARTS)
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            rows = save_model(Path(folder) / "model.bary")
            began = time.monotonic()
            found = PARTS[name](Path(folder), rows)
        found["seconds"] = round(time.monotonic() - began, 1)
        print(name, json.dumps(found), file=sys.stderr, flush=True)
        known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        RESULTS.parent.mkdir(exist_ok=True)
        text = json.dumps(known | {name: found}, indent=1, ensure_ascii=False)
        RESULTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
