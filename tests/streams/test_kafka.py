"""Rows from a topic and records to one, with librdkafka's mock cluster in a process of its own."""

import json
import subprocess
import sys
import time
import uuid

import numpy as np
import pytest
from click.testing import CliRunner

from baryflow.cli import main
from baryflow.exceptions import InvalidInputError
from baryflow.streams import kafka, open_sink, open_source
from baryflow.streams.label_records import LabelFormat
from baryflow.streams.labels import open_labels
from baryflow.streams.urls import Endpoint
from tests.streams.kafka_cluster import Cluster
from tests.streams.kafka_trials import mutate
from tests.streams.run_process import COLUMNS, save_model
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def cluster():
    with Cluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def topic():
    return f"t{uuid.uuid4().hex[:8]}"


def rows(n, start=0):
    return [(f"k{i % 7}", json.dumps({"a": i, "b": i / 2})) for i in range(start, start + n)]


def open_topic(cluster, topic, options="", **kwargs):
    kwargs = {"columns": ["b", "a"], "key": "@key", "idle": 0.3} | kwargs
    return open_source(cluster.url(topic, options), **kwargs)


def drain(source, count, n=16):
    """Return batches until `count` rows, good and bad, have come, within a minute."""
    batches, began = [], time.monotonic()
    while sum(len(batch.rows) + len(batch.rejected) for batch in batches) < count:
        batches.append(source.read(n, 0.1))
        source.acknowledge(batches[-1].cursor)
        assert time.monotonic() - began < 60
    return batches


def read_some(source, n):
    """Return the next batch that has rows."""
    return next(batch for batch in iter(lambda: source.read(n, 0.1), None) if len(batch.rows))


def nothing(_):
    """Do nothing about a partition."""


def values(batches):
    return sorted(value for batch in batches for value in batch.rows[:, 1])


def test_messages_are_rows_with_key_offset_and_time(cluster, topic):
    cluster.send(topic, rows(40))
    source = open_topic(cluster, topic)
    batches = drain(source, 40)
    source.close()
    assert values(batches) == list(range(40))
    positions = np.concatenate([batch.positions for batch in batches])
    assert positions.tolist() == list(range(1, 41))
    sent = {
        f"{one.partition()}:{one.offset()}": (one.key().decode(), json.loads(one.value())["a"])
        for one in cluster.received(topic)
    }
    for batch in batches:
        assert batch.partition == ""
        for offset, key, row, when in zip(
            batch.offsets, batch.keys, batch.rows, batch.times, strict=True
        ):
            assert sent[offset] == (key, row[1])
            assert row[0] == row[1] / 2
            assert when[10] == "T"
            assert when.endswith("+00:00")


def test_key_and_time_can_be_columns_and_the_key_can_be_the_topic(cluster, topic):
    cluster.send(topic, [(None, b'{"a": 1, "b": 2, "unit": "p7", "when": "noon"}')])
    source = open_topic(cluster, topic, key="unit", time="when")
    batch = read_some(source, 16)
    source.close()
    assert (batch.keys, batch.times) == (["p7"], ["noon"])
    source = open_topic(cluster, topic, key="@topic")
    batch = read_some(source, 16)
    source.close()
    assert batch.keys == [topic]


def test_a_new_process_resumes_after_the_cursor_in_every_partition(cluster, topic):
    cluster.send(topic, rows(100))
    source = open_topic(cluster, topic)
    first = [read_some(source, 16) for _ in range(3)]
    source.close()  # it has fetched more than that
    cursor = json.loads(json.dumps(first[-1].cursor))
    source = open_topic(cluster, topic)
    source.seek(cursor)
    cluster.send(topic, rows(10, 100))
    rest = drain(source, 110 - len(values(first)))
    source.close()
    assert values(first + rest) == list(range(110))
    assert max(one for batch in rest for one in batch.positions) == 110


def test_only_acknowledged_offsets_are_committed_to_the_group(cluster, topic):
    cluster.send(topic, rows(40))
    source = open_topic(cluster, topic, "?group=committed")
    first, second = read_some(source, 16), read_some(source, 16)
    assert len(second.rows) > 0
    source.acknowledge(first.cursor)
    source.close()
    committed = cluster.committed(topic, "committed")
    assert {f"{topic}-{number}": offset for number, offset in committed.items()} == first.cursor[
        "offsets"
    ]
    source = open_topic(cluster, topic, "?group=committed")  # without a cursor, committed offsets count
    rest = drain(source, 40 - len(first.rows))
    source.close()
    assert values([first, *rest]) == list(range(40))


def test_the_cursor_takes_precedence_over_committed_offsets(cluster, topic):
    cluster.send(topic, rows(30))
    source = open_topic(cluster, topic, "?group=ahead")
    batches = drain(source, 30, 8)
    source.close()
    source = open_topic(cluster, topic, "?group=ahead")
    first = next(batch for batch in batches if len(batch.rows))
    source.seek(first.cursor)
    again = drain(source, 30 - len(first.rows), 8)
    source.close()
    assert values([first, *again]) == list(range(30))


def test_with_start_latest_a_kill_before_the_first_row_loses_nothing(cluster, topic):
    cluster.send(topic, rows(20))
    source = open_topic(cluster, topic, "?start=latest")
    batch = source.read(16, 0.1)
    source.close()
    assert batch.held
    assert len(batch.rows) == 0
    cluster.send(topic, rows(20, 20))  # while no process reads
    source = open_topic(cluster, topic, "?start=latest")
    source.seek(batch.cursor)
    rest = drain(source, 20)
    source.close()
    assert values(rest) == list(range(20, 40))


def test_messages_deleted_before_they_were_read_are_reported(cluster, topic):
    cluster.send(topic, [(None, json.dumps({"a": 0, "b": 0, "c": "x" * 500_000}))] * 14, partition=0)
    cluster.send(topic, rows(3), partition=0)
    source = open_topic(cluster, topic)
    source.seek({"offsets": {f"{topic}-0": 1}, "position": 1})
    batches, began = [source.read(16, 0.1)], time.monotonic()
    while "0:16" not in batches[-1].offsets:
        batches.append(source.read(16, 0.1))
        assert time.monotonic() - began < 60
    source.close()
    notices = [notice for batch in batches for notice in batch.notices]
    first = int(next(batch.offsets[0] for batch in batches if len(batch.rows)).split(":")[1])
    assert first > 1
    assert notices == [f"{first - 1} messages of {topic}-0 were deleted before they were read"]
    assert sum(len(batch.rows) for batch in batches) == 17 - first


@pytest.mark.parametrize(
    ("cursor", "words"),
    [
        ({"offsets": {"elsewhere-0": 1}, "position": 1}, "the checkpoint is of elsewhere-0"),
        ({"offset": 3}, "no Kafka offsets"),
        ({"offsets": {"x-0": -3}}, "no Kafka offsets"),
    ],
)
def test_a_foreign_cursor_is_refused(cluster, topic, cursor, words):
    cluster.send(topic, rows(1))
    source = open_topic(cluster, topic)
    with pytest.raises(InvalidInputError, match=words):
        source.seek(cursor)
    source.close()


def test_a_recreated_topic_is_refused(cluster, topic):
    cluster.send(topic, rows(3), partition=1)
    source = open_topic(cluster, topic)
    source.seek({"offsets": {f"{topic}-1": 900}, "position": 900})
    with pytest.raises(InvalidInputError, match="recreated"):
        drain(source, 1)
    source.close()


def test_a_recreated_topic_that_is_long_enough_is_detected_by_its_id(cluster, topic, monkeypatch):
    ids = ["first"]  # the mock cluster has none
    monkeypatch.setattr(kafka, "find_topic_id", lambda _: ids[-1])
    cluster.send(topic, rows(20))
    source = open_topic(cluster, topic)
    cursor = drain(source, 10, 10)[-1].cursor
    source.close()
    same = open_topic(cluster, topic)
    same.seek(cursor)
    drain(same, 10)
    ids.append("second")  # while it is read
    monkeypatch.setattr(kafka, "_REFRESH", 0.0)
    with pytest.raises(InvalidInputError, match="recreated"):
        wait_until(lambda: same.read(1, 0.1) is None)  # the stream never ends
    same.close()
    again = open_topic(cluster, topic)
    again.seek(cursor)
    with pytest.raises(InvalidInputError, match="recreated"):
        again.read(1, 0.1)
    again.close()
    shared = open_topic(cluster, topic, "?group=recreated")
    shared.attach(lambda name: cursor | {"offsets": {name: 0}}, nothing)
    with pytest.raises(InvalidInputError, match="recreated"):
        drain(shared, 1)
    shared.close()


def test_damaged_messages_are_rejected_with_their_offset(cluster, topic):
    import random

    draw = random.Random(1)
    damaged = [mutate(draw, b'{"a": 1.5, "b": -2}') for _ in range(500)]
    cluster.send(topic, [(draw.randbytes(4), one) for one in [None, b"", *damaged]])
    cluster.send(topic, rows(5))
    source = open_topic(cluster, topic)
    batches = drain(source, 507, 64)
    source.close()
    offsets = [offset for batch in batches for offset in batch.offsets]
    offsets += [one.offset for batch in batches for one in batch.rejected]
    assert len(offsets) == len(set(offsets)) == 507
    assert set(offsets) == {f"{one.partition()}:{one.offset()}" for one in cluster.received(topic)}
    assert sum(len(batch.rejected) for batch in batches) > 300
    assert all(one.reason for batch in batches for one in batch.rejected)


def test_a_new_partition_is_read_from_its_beginning(cluster, topic, monkeypatch):
    cluster.send(topic, rows(40))
    monkeypatch.setattr(kafka, "_REFRESH", 0.0)
    source = open_topic(cluster, topic, "?start=latest")
    source._partitions = source._partitions[:2]  # as if the others were not there yet
    late = [one for one in cluster.received(topic) if one.partition() >= 2]
    batches = drain(source, len(late))
    source.close()
    assert sum(len(batch.rows) for batch in batches) == len(late) > 0
    assert "new partitions" in " ".join(notice for batch in batches for notice in batch.notices)


def test_a_broker_outage_is_reported_and_nothing_is_missing(topic):
    with Cluster() as cluster:
        cluster.send(topic, rows(20))
        source = open_topic(cluster, topic, "?group=away")
        batches = drain(source, 20)
        cluster.order("down")
        cluster.send(topic, rows(20, 20))
        began = time.monotonic()
        while not any("answers" in notice for batch in batches for notice in batch.notices):
            batches.append(source.read(16, 0.1))
            assert time.monotonic() - began < 30
        cluster.order("up")
        while len(values(batches)) < 40 or "is back" not in str([batch.notices for batch in batches]):
            batches.append(source.read(16, 0.1))
            assert time.monotonic() - began < 60
        source.close()
        assert values(batches) == list(range(40))


def test_a_stalled_network_loses_nothing(topic):
    with Cluster() as cluster:
        cluster.send(topic, rows(20))
        source = open_topic(cluster, topic)
        batches = drain(source, 20)
        cluster.order("stall")
        cluster.send(topic, rows(20, 20))
        assert not source.read(16, 0.1)
        cluster.order("up")
        began = time.monotonic()
        while len(values(batches)) < 40:
            batches.append(source.read(16, 0.1))
            assert time.monotonic() - began < 60
        source.close()
        assert values(batches) == list(range(40))


def test_a_process_ends_even_if_no_broker_answers(topic):
    program = """
import sys
from baryflow.streams import open_source
source = open_source(sys.argv[1], columns=["a"], idle=0.2)
while not (batch := source.read(5)).offsets:
    pass
print("read", flush=True)
sys.stdin.readline()
source.acknowledge(batch.cursor)
source.read(1)
source.close()
print("closed", flush=True)
"""
    with Cluster() as cluster:
        cluster.send(topic, rows(5))
        process = subprocess.Popen(
            [sys.executable, "-c", program, cluster.url(topic, "?group=leaving")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stdout.readline() == "read\n"
            cluster.order("stall")
            words, _ = process.communicate(
                "\n", timeout=300
            )  # librdkafka alone would wait without limit
        finally:
            process.kill()
            process.communicate()
    assert (words, process.returncode) == ("closed\n", 0)


# -- groups --------------------------------------------------------------------------------------------


def test_in_a_group_each_batch_is_from_one_partition_and_counted_there(cluster, topic):
    cluster.send(topic, rows(100))
    kept, events = {}, []
    for life in range(2):
        source = open_topic(cluster, topic, f"?group=partitions-{topic}&session=6")
        source.attach(
            lambda partition: events.append(("taken", partition)) or kept.get(partition),
            lambda partition: events.append(("given", partition)),
        )
        batches, began = [], time.monotonic()
        while sum(len(batch.rows) for batch in batches) < (100 if life == 0 else 50):
            batches.append(source.read(8, 0.1))
            assert time.monotonic() - began < 30
        source.close()
        assert {kind for kind, _ in events} == {"taken", "given"}
        assert sorted(name for kind, name in events if kind == "taken") == sorted(
            name for kind, name in events if kind == "given"
        )
        for batch in batches:
            if batch:
                assert {f"{topic}-{offset.split(':')[0]}" for offset in batch.offsets} <= {
                    batch.partition
                }
                assert set(batch.cursor["offsets"]) == {batch.partition}
                before = kept.get(batch.partition, {"position": 0})["position"]
                assert batch.positions.tolist() == list(range(before + 1, before + 1 + len(batch.rows)))
                kept[batch.partition] = batch.cursor
        cluster.send(topic, rows(50, 100))
    assert sum(cursor["position"] for cursor in kept.values()) == 150


@pytest.mark.parametrize("which", ["assigned", "revoked"])
def test_errors_of_hooks_are_raised(cluster, topic, which):
    def fail(partition):
        raise RuntimeError(f"no room for {partition}")

    cluster.send(topic, rows(10))
    source = open_topic(cluster, topic, f"?group=hooks-{topic}&session=6")
    hooks = {"assigned": nothing, "revoked": nothing} | {which: fail}
    source.attach(**hooks)
    with pytest.raises(RuntimeError, match="no room for"):
        read_and_close(source)
    source.close()


def read_and_close(source):
    began = time.monotonic()
    while not source.read(8, 0.1).partition:
        assert time.monotonic() - began < 30
    source.close()


def test_attach_needs_a_group_and_must_come_before_read(cluster, topic):
    cluster.send(topic, rows(1))
    source = open_topic(cluster, topic)
    with pytest.raises(InvalidInputError, match="group=NAME"):
        source.attach(nothing, nothing)
    source.close()
    source = open_topic(cluster, topic, "?group=g")
    source.read(1)
    with pytest.raises(InvalidInputError, match="before the first read"):
        source.attach(nothing, nothing)
    source.close()


# -- sink ----------------------------------------------------------------------------------------------


def test_records_arrive_with_their_key_even_with_a_short_queue(cluster, topic, monkeypatch):
    monkeypatch.setattr(kafka, "_QUEUE", 10)
    sink = open_sink(cluster.url(topic))
    sink.write([{"n": i, "key": f"k{i % 5}", "p": float("nan")} for i in range(300)])
    sink.flush()
    found = cluster.received(topic)
    assert sink.position == len(found)
    sink.truncate(0)  # nothing is taken back
    sink.write([{"n": 300}])
    sink.close()
    sink.close()
    found = {json.loads(one.value())["n"]: one for one in cluster.received(topic)}
    assert sorted(found) == list(range(301))
    assert json.loads(found[7].value()) == {"n": 7, "key": "k2", "p": None}
    assert (found[7].key(), found[300].key()) == (b"k2", None)


# -- addresses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("?start=middle", "earliest or latest"),
        ("?session=soon", "session must be"),
        ("?offset=3", "no option 'offset'"),
        ("?security=tls", "security must be"),
        ("?security=sasl_ssl", "needs a user"),
        ("?mechanism=PLAIN", "mechanism is for"),
    ],
)
def test_invalid_options_are_refused_before_connecting(options, words):
    with pytest.raises(InvalidInputError, match=words):
        open_source(f"kafka://nowhere.invalid/rows{options}", columns=["a"])


def test_unsupported_arguments_are_refused():
    with pytest.raises(InvalidInputError, match="one topic"):
        open_source("kafka://nowhere.invalid/", columns=["a"])
    with pytest.raises(InvalidInputError, match="name the columns"):
        open_source("kafka://nowhere.invalid/rows", columns=None)
    with pytest.raises(InvalidInputError, match="each Kafka message is a row"):
        open_source("kafka://nowhere.invalid/rows", columns=["a"], sample_interval=60.0)


def test_a_topic_that_does_not_exist_is_named(cluster):
    with pytest.raises(InvalidInputError, match="has no topic 'nonesuch'"):
        open_source(cluster.url("nonesuch"), columns=["a"])


def test_one_url_can_have_several_hosts():
    address = Endpoint.parse("kafka://a:1,b:2,[::1]:3/rows?group=g")
    assert (address.host, address.port, address.more) == ("a", 1, ("b:2", "[::1]:3"))
    assert str(address) == "kafka://a:1,b:2,[::1]:3/rows"
    for wrong in ("kafka://a:1,b:x/rows", "kafka://a:1,,b/rows", "kafka://a,u:p@b/rows"):
        with pytest.raises(InvalidInputError):
            Endpoint.parse(wrong)
    with pytest.raises(InvalidInputError, match="expected one host"):
        address.check_options("group")


# -- labels --------------------------------------------------------------------------------------------


def take_labels(source, count):
    """Return batches until `count` labels have come, within a minute."""
    batches, began = [], time.monotonic()
    while sum(len(batch.labels) for batch in batches) < count:
        batches.append(source.read(8, 0.0))
        source.acknowledge(batches[-1].cursor)
        assert time.monotonic() - began < 60
    return batches


def test_messages_are_labels(cluster, topic):
    cluster.send(topic, [("k", json.dumps({"position": i, "label": "leak"})) for i in range(20)])
    cluster.send(topic, [("k", b"no label")])
    source = open_labels(cluster.url(topic, "?group=g"), LabelFormat(certify=True))
    batches = take_labels(source, 20)
    assert sorted(one.position for batch in batches for one in batch.labels) == list(range(20))
    assert all(one.certify for batch in batches for one in batch.labels)
    notices = [notice for batch in batches for notice in batch.notices]
    while "is not used" not in " ".join(notices):
        notices += source.read(8, 0.0).notices
    source.close()
    first = next(batch for batch in batches if batch.labels)
    source = open_labels(cluster.url(topic), LabelFormat())
    source.seek(first.cursor)
    rest = take_labels(source, 20 - len(first.labels))
    source.close()
    taken = [one.position for batch in (first, *rest) for one in batch.labels]
    assert sorted(taken) == list(range(20))


def test_a_run_over_a_file_uses_the_labels_of_a_topic(cluster, topic, tmp_path):
    rows = save_model(tmp_path / "model.bary")
    lines = [",".join(COLUMNS), *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    cluster.send(topic, [("k", json.dumps({"position": i, "label": 1})) for i in range(1, 200, 20)])
    arguments = [
        "run", tmp_path / "model.bary", tmp_path / "rows.csv", "-o", tmp_path / "out.ndjson",
        "--labels", cluster.url(topic), "--checkpoint", tmp_path / "kept",
    ]  # fmt: skip
    found = CliRunner().invoke(main, [*map(str, arguments)])
    assert found.exit_code == 0, found.output
    assert "10 labels used" in found.stderr
    shared = [*arguments[:2], cluster.url(topic, "?group=g"), *arguments[3:-2]]
    found = CliRunner().invoke(main, [*map(str, shared)])
    assert found.exit_code == 1
    assert "--labels does not work with a shared input" in found.stderr
