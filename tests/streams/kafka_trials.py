"""Trials of runs on Kafka: small in tests, large in experiments."""

import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from itertools import pairwise

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from tests.runtime.ends import transactions
from tests.streams.kafka_cluster import ROOT, Cluster
from tests.waiting import PATIENCE, ask_to_end, wait_until


class Rows:
    """Sends numbered rows with keys; counts them."""

    def __init__(self, cluster, topic="rows", seed=0):
        self.cluster, self.topic, self.count = cluster, topic, 0
        self.random = random.Random(seed)

    def send(self, n):
        some = range(self.count, self.count + n)
        draw = self.random.gauss
        self.cluster.send(
            self.topic,
            [(f"pump{i % 40}", json.dumps({"x0": draw(0, 1), "x1": draw(0, 1)})) for i in some],
        )
        self.count += n

    def trickle(self):
        self.send(3)
        time.sleep(0.05)


def write_model(folder):
    problem = make_domains(n_sources=2, n_classes=2, n_features=2, n_per_class=60, random_state=0)
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    model.fit(problem.X, problem.y, sample_domain=problem.domain)
    (folder / "model.bary").write_bytes(model.to_bytes())


def start(module, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.streams.{module}", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip


@contextlib.contextmanager
def running(*arguments):
    """Start a process that ends with the block."""
    process = start(*arguments)
    try:
        yield process
    finally:
        if process.returncode is None:
            kill(process)


def end(process):
    """Ask a process to end, and return its output; it must not have failed."""
    ask_to_end(process)
    words, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, complaints
    assert complaints == ""
    return words


def kill(process):
    process.kill()
    process.communicate(timeout=PATIENCE)


def records(path):
    """Return the complete lines of a file that grows."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1] if line]


def journals(folder):
    return transactions(folder / "checkpoint")


def is_read(cluster, count):
    time.sleep(0.3)  # asking takes a consumer each time
    return sum(cluster.committed("rows", "plant").values()) >= count


def compare(cluster, topic, predictions, quarantine):
    """Return the missing, doubled and different records by offset."""
    sent = {f"{one.partition()}:{one.offset()}" for one in cluster.received(topic)}
    by_offset = defaultdict(list)
    for line in predictions:
        by_offset[json.loads(line)["offset"]].append(line)
    bad = Counter(one["offset"] for one in quarantine)
    return {
        "sent": len(sent),
        "predicted": len(by_offset),
        "quarantined": len(bad),
        "missing": len(sent - set(by_offset) - set(bad)),
        "invented": len((set(by_offset) | set(bad)) - sent),
        "both": len(set(by_offset) & set(bad)),
        "sent_again": sum(len(lines) - 1 for lines in by_offset.values()),
        "sent_again_but_different": sum(len(set(lines)) - 1 for lines in by_offset.values()),
        "quarantined_twice": sum(count - 1 for count in bad.values()),
    }


def kill_runs(folder, kills, seed=0):
    """SIGKILL a run whose input and output are topics, at random moments."""
    write_model(folder)
    draw = random.Random(seed)
    with Cluster() as cluster:
        rows = Rows(cluster)
        cluster.send("out", [])
        rows.send(100)
        arguments = (cluster.url("rows", "?group=plant"), folder, cluster.url("out"))
        for _ in range(kills):
            before = journals(folder)
            with running("kafka_follow", *arguments) as process:
                wait_until(
                    lambda before=before: journals(folder) > before + 4,
                    "no run begins",
                    step=rows.trickle,
                )
                until = time.monotonic() + draw.random() * 0.5
                while time.monotonic() < until:
                    rows.trickle()
                assert process.poll() is None, process.communicate()
                kill(process)
            cluster.send("rows", [("pump", b"not a row")])
            rows.count += 1
        with running("kafka_follow", *arguments) as process:
            wait_until(lambda: is_read(cluster, rows.count), "not all is read")
            totals = json.loads(end(process))
        lines = [one.value().decode() for one in cluster.received("out")]
        found = compare(cluster, "rows", lines, records(folder / "quarantine.ndjson"))
    return {"kills": kills, "read": totals["read"]} | found


def disturb(folder, how, seconds):
    """Stall the network (``stall``) or stop the broker (``down``) mid-stream."""
    write_model(folder)
    with Cluster() as cluster:
        rows, predictions = Rows(cluster), folder / "predictions.ndjson"
        rows.send(100)
        with running("kafka_follow", cluster.url("rows", "?group=plant"), folder) as process:
            wait_until(lambda: len(records(predictions)) >= 100, "the run does not begin")
            cluster.order(how)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                rows.trickle()
            during = len(records(predictions))
            began = time.monotonic()
            cluster.order("up")
            rows.send(50)
            wait_until(lambda: len(records(predictions)) >= rows.count, "not all is read")
            caught_up = time.monotonic() - began
            end(process)
        lines = [json.dumps(one) for one in records(predictions)]
        found = compare(cluster, "rows", lines, records(folder / "quarantine.ndjson"))
    notices = [one["message"] for one in records(folder / "events.ndjson") if one["event"] == "warning"]
    words = {"how": how, "seconds": seconds, "predicted_meanwhile": during - 100}
    notices = [one.replace(f"127.0.0.1:{cluster.fronts[0]}", "host:9092") for one in notices]
    return words | {"seconds_to_catch_up": round(caught_up, 1), "notices": notices} | found


def mutate(draw, payload):
    """Return a damaged payload."""
    data = bytearray(payload)
    for _ in range(draw.randint(1, 4)):
        kind, at = draw.randrange(5), draw.randrange(len(data) + 1)
        if kind == 0 and data:
            data[at % len(data)] = draw.randrange(256)
        elif kind == 1:
            data[at:at] = bytes(draw.randrange(256) for _ in range(draw.randint(1, 9)))
        elif kind == 2:
            del data[at : at + draw.randint(1, 9)]
        elif kind == 3:
            data[at:at] = draw.choice(
                [b"NaN", b"-1e999", b'"', b"{", b"]", b"null", b"\xff\xfe", b"[" * 5000]
            )
        else:
            data = data[:at] + data[: draw.randrange(len(data) + 1)]
    return bytes(data)


def fuzz(folder, count, seed=0):
    """Send damaged messages with damaged keys among intact ones."""
    write_model(folder)
    draw = random.Random(seed)
    whole = json.dumps({"x0": 0.25, "x1": -1.5, "note": "ü"}, ensure_ascii=False).encode()
    some = [None, b"", b"{}", b"[1, 2]", b'{"x0": {"x1": 1}}', b" " * 100_000, b'{"x0": 1' + b"0" * 5000]
    with Cluster() as cluster:
        damaged = [
            draw.choice(some) if draw.random() < 0.05 else mutate(draw, whole) for _ in range(count)
        ]
        keys = [draw.choice([None, b"", b"pump", draw.randbytes(8)]) for _ in damaged]
        cluster.send("rows", list(zip(keys, damaged, strict=True)))
        cluster.send("rows", [(b"pump", whole)] * 20)
        with running("kafka_follow", cluster.url("rows", "?group=plant"), folder) as process:
            wait_until(lambda: is_read(cluster, count + 20), "not all is read")
            totals = json.loads(end(process))
        lines = [json.dumps(one) for one in records(folder / "predictions.ndjson")]
        found = compare(cluster, "rows", lines, records(folder / "quarantine.ndjson"))
    return {"damaged": count, "read": totals["read"]} | found


class Group:
    """Members that share a topic, and their logs."""

    def __init__(
        self, cluster, folder, session
    ):  # more than the 3 s for which the mock lets members join
        self.folder, self.members = folder, []
        self.url = cluster.url("rows", f"?group=plant&session={session}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.members:
            kill(member)  # those that have not been asked to end

    def join(self):
        self.members.append(start("kafka_member", self.url, self.folder))
        return self.members[-1]

    def logs(self):
        return {path.parent.name: records(path) for path in self.folder.glob("*/log.ndjson")}

    def rows(self):
        return sum(len(one.get("rows", [])) for log in self.logs().values() for one in log)

    def is_shared(self):
        """Return whether living members own all four partitions, and each owns one."""
        assert all(member.poll() is None for member in self.members), "a member has ended"
        owners = [log[-1]["process"] for log in self.logs().values() if log[-1].get("event") != "given"]
        return len(owners) == 4 and set(owners) == {member.pid for member in self.members}

    def kill(self, member):
        self.members.remove(member)
        kill(member)


def share(folder, kills, stall=0.0, session=6, seed=0):
    """Let members join and be killed, with an optional network stall."""
    draw = random.Random(seed)
    with Cluster() as cluster, Group(cluster, folder, session) as group:
        rows = Rows(cluster)
        rows.send(200)
        group.join()
        wait_until(lambda: group.rows() >= 200 and group.is_shared(), "the first one", step=rows.trickle)
        for _ in range(kills):
            group.join()
            wait_until(group.is_shared, "sharing with one who joins", step=rows.trickle)
            group.kill(draw.choice(group.members))
            wait_until(group.is_shared, "taking over from one who died", step=rows.trickle)
        waited_before = count_waits(group)
        if stall:
            group.join()
            wait_until(group.is_shared, "sharing with one who joins", step=rows.trickle)
            cluster.order("stall")
            until = time.monotonic() + stall
            while time.monotonic() < until:
                rows.trickle()
            cluster.order("up")
        wait_until(lambda: group.rows() >= rows.count, "not all is read")
        while group.members:
            end(group.members.pop())
        sent = Counter(name_of(one) for one in cluster.received("rows"))
        told = sum(cluster.committed("rows", "plant").values())
        logs = group.logs()
    read = [
        (partition, row) for partition, log in logs.items() for one in log for row in one.get("rows", [])
    ]
    counted = Counter((f"rows-{row[1].partition(':')[0]}", row[1]) for _, row in read)
    return {
        "kills": kills,
        "stall": stall,
        "sent": len(sent),
        "missing": len(sent - counted),
        "twice": sum(counted.values()) - len(counted),
        "in_the_wrong_partition": sum(
            f"rows-{row[1].partition(':')[0]}" != partition for partition, row in read
        ),
        "miscounted": sum(
            [row[0] for one in log for row in one.get("rows", [])]
            != list(range(1, 1 + sum(len(one.get("rows", [])) for one in log)))
            for log in logs.values()
        ),
        "changes_of_owner": sum(
            one.get("event") == "taken" for log in logs.values() for one in log
        ),
        "waits_for_an_owner": waited_before,
        "keys_with_two_at_once": count_overlaps(logs),
        "told_the_group": told,
    }  # fmt: skip


def name_of(message):
    return (f"rows-{message.partition()}", f"{message.partition()}:{message.offset()}")


def count_waits(group):
    return sum(bool(one.get("waited")) for log in group.logs().values() for one in log)


def count_overlaps(logs):
    """Return for how many keys two processes worked at the same time."""
    work = defaultdict(list)
    for log in logs.values():
        for one in log:
            for key in {row[2] for row in one.get("rows", [])}:
                work[key].append((one["began"], one["at"], one["process"]))
    return sum(
        any(b[0] < a[1] and a[2] != b[2] for a, b in pairwise(found))
        for found in map(sorted, work.values())
    )
