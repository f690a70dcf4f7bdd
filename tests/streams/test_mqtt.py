"""MQTT with a real broker, in one process."""

import contextlib
import json
import math
import os
import signal
import time

import pytest
from click.testing import CliRunner

from baryflow import OnlineDaDiL
from baryflow.cli import main
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams import open_sink, open_source
from baryflow.streams.urls import Credentials, Endpoint
from tests.streams.files import require
from tests.streams.mosquitto import CONFIGURATION, PASSWORD, USER, Broker, Publisher, login
from tests.waiting import PATIENCE, wait_until

require("paho.mqtt.client")

from baryflow.streams import mqtt  # noqa: E402
from baryflow.streams.mqtt import read_reading  # noqa: E402

US = Credentials(USER, PASSWORD)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def publisher(broker):
    with Publisher(broker.port) as publisher:
        yield publisher


def subscribe(broker, path, **options):
    options = {"columns": ["n"], "idle": 0.2, "credentials": US, "durable": True} | options
    return contextlib.closing(open_source(broker.url(path), **options))


def take(source, count, n=32, seconds=300, acknowledge=True):
    """Read and acknowledge batches until `count` rows, good and bad, have come."""
    batches, until = [], time.monotonic() + seconds
    while sum(len(batch.rows) + len(batch.rejected) for batch in batches) < count:
        assert time.monotonic() < until
        batch = source.read(n, 1.0)
        if batch:
            batches.append(batch)
            if acknowledge:
                source.acknowledge(batch.cursor)
    return batches


def rows_of(batches):
    return [value for batch in batches for value in batch.rows[:, 0].tolist()]


def notices_of(batches):
    return " ".join(notice for batch in batches for notice in batch.notices)


def test_messages_are_rows(broker, publisher):
    with subscribe(broker, "rows/+/now", time="t", key="@topic") as source:
        publisher.send_all("rows/a/now", [{"n": 1, "t": "08:00"}, {"n": None, "t": "08:01"}])
        publisher.send_all("rows/b/now", [{"n": 3.5}, b"no JSON", {"m": 1}])
        publisher.send_all("rows/b/then", [{"n": 4}])
        batches = take(source, 5)
    first = batches[0]
    assert rows_of(batches)[0] == 1.0
    assert math.isnan(rows_of(batches)[1])
    assert first.times[:2] == ["08:00", "08:01"]
    assert [key for batch in batches for key in batch.keys] == ["rows/a/now"] * 2 + ["rows/b/now"]
    bad = [one for batch in batches for one in batch.rejected]
    assert [one.position for one in bad] == [4, 5]
    assert "JSON" in bad[0].reason
    assert all(one.offset for one in bad)


def test_a_hash_matches_all_further_levels(broker, publisher):
    assert Endpoint.parse("mqtt://h/plant/#?client=a").path == "plant/#"
    assert Endpoint.parse("mqtt://h/plant/%23").path == "plant/#"
    with subscribe(broker, "hash/#") as source:
        publisher.send_all("hash/a/b/c", [{"n": 1}])
        assert rows_of(take(source, 1)) == [1.0]


def test_batches_can_exceed_the_default_inflight_limit_of_brokers(tmp_path):
    shy = CONFIGURATION.replace("max_inflight_messages 0", "max_inflight_messages 20")
    with Broker(tmp_path, configuration=shy) as broker, Publisher(broker.port) as publisher:
        with subscribe(broker, "many", idle=None) as source:
            publisher.send_all("many", [{"n": i} for i in range(64)])
            assert len(source.read(64).rows) == 64  # without a timeout it would wait without limit
        with subscribe(broker, "few?inflight=8", idle=None) as source:
            publisher.send_all("few", [{"n": i} for i in range(8)])
            assert len(source.read(64).rows) == 8


def test_only_unacknowledged_messages_are_delivered_again(broker, publisher):
    with subscribe(broker, "again") as source:
        publisher.send_all("again", [{"n": i} for i in range(20)])
        first = source.read(8, 1.0)
        source.acknowledge(first.cursor)
        rest = take(source, 12, acknowledge=False)
        assert rows_of([first, *rest]) == list(range(20))
    with subscribe(broker, "again") as source:
        source.seek(first.cursor)
        again = take(source, 12)
    assert rows_of(again) == list(range(8, 20))
    assert [one for batch in again for one in batch.offsets] == [one for b in rest for one in b.offsets]
    assert again[0].positions[0] == 9


def test_messages_on_disk_are_skipped_when_delivered_again(broker, publisher):
    with subscribe(broker, "dead") as source:
        publisher.send_all("dead", [{"n": 7}] * 20)  # equal, so their content does not distinguish them
        kept = take(source, 20, n=20, acknowledge=False)[-1]
    with subscribe(broker, "dead") as source:
        source.seek(kept.cursor)
        publisher.send_all("dead", [{"n": 7}] * 3)
        batches = take(source, 3)
    assert rows_of(batches) == [7.0] * 3
    assert "20 messages were delivered a second time" in notices_of(batches)


def test_messages_on_disk_are_recognised_after_several_kills(broker, publisher):
    with subscribe(broker, "slow?inflight=8") as source:
        publisher.send_all("slow", [{"n": i} for i in range(20)])
        kept = take(source, 8, acknowledge=False)[-1]
        assert not len(source.read(8, 0.1).rows)  # the broker waits for acknowledgements
    for _ in range(2):  # killed before it has acknowledged anything
        with subscribe(broker, "slow?inflight=8") as source:
            source.seek(kept.cursor)
    with subscribe(broker, "slow?inflight=8") as source:
        source.seek(kept.cursor)
        assert rows_of(take(source, 12)) == list(range(8, 20))


def test_messages_are_recognised_if_the_broker_sends_more_than_inflight(broker, publisher):
    with subscribe(broker, "burst?inflight=8"):
        pass
    publisher.send_all("burst", [{"n": i} for i in range(200)])
    with subscribe(broker, "burst?inflight=8") as source:
        batches = take(source, 8)  # mosquitto 2.0.11 sends up to 8 more with each acknowledgement
        while batch := source.read(8, 1.0):
            batches.append(batch)  # its acknowledgements do not arrive: the process is killed
    n = len(rows_of(batches))
    assert rows_of(batches) == list(range(n))
    with subscribe(broker, "burst?inflight=8") as source:
        source.seek(batches[-1].cursor)
        publisher.send_all("burst", [{"n": 200}])
        assert rows_of(take(source, 201 - n)) == list(range(n, 201))


def test_messages_are_forgotten_once_the_broker_has_read_their_acknowledgements(broker, publisher):
    with subscribe(broker, "long?inflight=8") as source:
        known = []

        def advance():
            publisher.send_all("long", [{"n": len(known) + i / 8} for i in range(8)])
            known.append(len(take(source, 8)[-1].cursor["known"].split()))

        wait_until(lambda: len(known) > 20 and known[-1] < 40, lambda: known, step=advance)
    assert min(known[3:]) >= 16


def test_messages_with_qos_0_do_not_make_the_source_forget_others(broker, publisher):
    with subscribe(broker, "both?inflight=4") as source:
        publisher.send_all("both", [{"n": 1}])
        publisher.send_all("both", [{"n": i} for i in range(2, 20)], qos=0)
        kept = take(source, 19, acknowledge=False)[-1]
    with subscribe(broker, "both?inflight=4") as source:
        source.seek(kept.cursor)
        publisher.send_all("both", [{"n": 20}])
        assert rows_of(take(source, 1)) == [20]


def test_a_message_sent_twice_with_one_id_is_taken_once(broker, publisher):
    with subscribe(broker, "named") as source:
        for name in ("a", "b", "a", "c", "b", "c", "d"):
            publisher.send_all("named", [{"n": ord(name)}], name=name)
        batches = take(source, 4)
        assert not source.read(8)
    assert [one for batch in batches for one in batch.offsets] == ["a", "b", "c", "d"]


def test_messages_that_share_correlation_data_or_reuse_an_id_are_all_taken(broker, publisher):
    with subscribe(broker, "request") as source:
        for i in range(3):
            publisher.send_all("request", [{"n": i}], correlation=b"request 7")
            publisher.send_all("request", [{"n": 10 + i}], name="request 7")
        assert rows_of(take(source, 6)) == [0, 10, 1, 11, 2, 12]


def test_only_a_durable_session_is_kept_and_it_expires(broker, publisher):
    with subscribe(broker, "kept?client=brief", durable=False):
        pass
    publisher.send_all("kept", [{"n": 1}])
    with subscribe(broker, "kept?client=brief&expiry=1") as source:
        publisher.send_all("kept", [{"n": 2}])
        batches = take(source, 1)
        assert rows_of(batches) == [2]
    publisher.send_all("kept", [{"n": 3}])
    wait_until(lambda: "Expiring client brief" in broker.output())
    with subscribe(broker, "kept?client=brief") as source:
        source.seek(batches[-1].cursor)
        publisher.send_all("kept", [{"n": 4}])
        batches = take(source, 1)
    assert rows_of(batches) == [4]
    assert "has lost the session" in notices_of(batches)


def test_without_a_session_an_outage_is_reported_as_a_loss(tmp_path):
    with Broker(tmp_path) as broker, subscribe(broker, "lost", durable=False) as source:
        broker.restart()
        notices, until = "", time.monotonic() + PATIENCE
        while "meanwhile are lost" not in notices:
            assert time.monotonic() < until
            notices += notices_of([source.read(8, 0.1)])


@pytest.mark.parametrize("opening", [open_sink, lambda *a, **k: open_source(*a, columns=["n"], **k)])
def test_a_password_is_not_sent_unencrypted_unless_permitted(opening):
    with pytest.raises(InvalidInputError, match="unencrypted") as caught:
        opening("mqtt://nowhere.invalid/a", credentials=US)
    assert PASSWORD not in str(caught.value)
    with pytest.raises(InvalidInputError, match="yes or no"):
        opening("mqtt://nowhere.invalid/a?plaintext=1", credentials=US)
    opened = opening("mqtt://nowhere.invalid/a?plaintext=yes", credentials=US)
    opened.close()


def test_a_lost_session_is_reported(tmp_path):
    forgetful = CONFIGURATION.replace("persistence true", "persistence false") + "log_type subscribe\n"
    with Broker(tmp_path, configuration=forgetful) as broker, subscribe(broker, "lost") as source:
        with Publisher(broker.port) as publisher:
            publisher.send_all("lost", [{"n": 1}])
            take(source, 1)
        broker.restart()
        notices, until = "", time.monotonic() + PATIENCE
        while "has lost the session" not in notices:
            assert time.monotonic() < until
            notices += notices_of([source.read(8, 0.1)])
        assert "connected again after" in notices
        wait_until(lambda: broker.output().count(" 1 lost\n") == 2)  # subscribed again
        with Publisher(broker.port) as publisher:
            # Packet identifiers start again, so this is not a repetition.
            publisher.send_all("lost", [{"n": 1}, {"n": 2}])
            assert rows_of(take(source, 2)) == [1.0, 2.0]


def test_messages_with_qos_0_are_reported(broker, publisher):
    with subscribe(broker, "qos0") as source:
        publisher.send_all("qos0", [{"n": 1}, {"n": 2}], qos=0)
        batches = take(source, 2)
    assert "QoS 0" in notices_of(batches)


def test_a_cursor_of_another_topic_or_client_is_refused(broker):
    with subscribe(broker, "here?client=one") as source:
        cursor = source.read(1, 0.1).cursor
    for path in ("there?client=one", "here?client=two"):
        with subscribe(broker, path) as source, pytest.raises(InvalidInputError, match="cannot resume"):
            source.seek(cursor)


def test_two_runs_with_one_client_id_end_with_an_error(broker, monkeypatch):
    monkeypatch.setattr(mqtt, "_TAKEOVERS", 5)
    with subscribe(broker, "two") as first, subscribe(broker, "two") as second:

        def read_both():
            for _ in range(200):
                first.read(1, 0.1)
                second.read(1, 0.1)

        with pytest.raises(UnreachableError, match="another process uses the client id"):
            read_both()


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("mqtt://h/", {}, "must name a topic"),
        ("mqtt://h/a/#/b", {}, "# can only be the last level"),
        ("mqtt://h/a+/b", {}, "a whole level"),
        ("mqtt://h/a?qos=2", {}, "qos must be"),
        ("mqtt://h/a?inflight=0", {}, "inflight must be"),
        ("mqtt://h/a?topic=b", {}, "no option 'topic'"),
        ("mqtt://h/a", {"columns": None}, "name the columns"),
        ("mqtt://h/a", {"key": "@node"}, "@topic"),
        ("mqtt://h/a", {"tags": "tags.csv"}, "--sample-interval"),
        ("mqtt://h/a", {"sample_interval": 1.0}, "a tag list"),
        ("mqtt://h/a/+", {"sample_interval": 1.0, "time": "t"}, "leave out time"),
    ],
)
def test_invalid_arguments_are_refused(url, options, words):
    with pytest.raises(InvalidInputError, match=words):
        open_source(url, **{"columns": ["n"]} | options)


def test_a_sink_needs_one_topic():
    with pytest.raises(InvalidInputError, match="one topic"):
        open_sink("mqtt://h/a/+")


def test_records_are_messages(broker, monkeypatch):
    monkeypatch.setattr(mqtt, "CAPACITY", 64)  # more than that at once has to wait
    records = [{"position": i, "value": math.nan if i == 3 else i / 2} for i in range(300)]
    with subscribe(broker, "out/x", columns=["position", "value"]) as source:
        sink = open_sink(broker.url("out/x"), credentials=US)
        sink.write(records[:150])
        sink.flush()
        sink.write(records[150:])
        sink.flush()
        assert sink.position == 300
        sink.truncate(290)
        assert sink.position == 290
        sink.close()
        batches = take(source, 300, n=256)
    assert rows_of(batches) == list(range(300))
    assert math.isnan(batches[0].rows[3, 1])


def test_sigterm_ends_a_run_while_the_broker_of_its_output_is_away(tmp_path, monkeypatch):
    P = make_domains(n_sources=2, n_classes=2, n_features=3, n_per_class=40, random_state=0)
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0).fit(
        P.X, P.y, P.domain
    )
    model.save(tmp_path / "model.bary")
    lines = ["a,b,c", *(",".join(map(str, row)) for row in P.X_target)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    with Broker(tmp_path) as broker:
        arguments = ["run", tmp_path / "model.bary", tmp_path / "rows.csv", "-o", broker.url("out")]
        arguments += ["--checkpoint", tmp_path / "kept"]
        for name, value in login("OUTPUT").items():
            monkeypatch.setenv(name, value)
        write = mqtt.MqttSink.write

        def write_and_stop(self, records):
            broker.stop()
            write(self, records)
            os.kill(os.getpid(), signal.SIGTERM)

        with monkeypatch.context() as patch:
            patch.setattr(mqtt.MqttSink, "write", write_and_stop)
            found = CliRunner().invoke(main, [*map(str, arguments)])
        assert found.exit_code == 0, found.output
        assert "nothing is lost" in found.stderr
        broker.start()
        with subscribe(broker, "out", columns=["position"]) as source:
            found = CliRunner().invoke(main, [*map(str, arguments)])
            assert found.exit_code == 0, found.output
            assert rows_of(take(source, len(P.X_target))) == list(range(1, len(P.X_target) + 1))


# -- tags ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "value", "time", "good"),
    [
        (b"1.5", 1.5, None, True),
        (b" 2,5\n", 2.5, None, True),
        (b'{"value": 3, "time": 1700000000}', 3, 1.7e9, True),
        (b'{"value": 3, "timestamp": 1700000000500}', 3, 1700000000.5, True),
        (b'{"value": 3, "time": "2023-11-14T22:13:20Z"}', 3, 1.7e9, True),
        (b'{"value": 3, "time": "2023-11-14 22:13:20"}', 3, 1.7e9, True),
        (b'{"value": 3, "time": "1700000000500"}', 3, 1700000000.5, True),
        (b'{"value": 3, "quality": "Good"}', 3, None, True),
        (b'{"value": 3, "quality": "BadNoCommunication"}', 3, None, False),
        (b'{"value": 3, "quality": 192}', 3, None, True),
        (b'{"value": 3, "quality": 24}', 3, None, False),
        (b'{"value": 3, "good": false}', 3, None, False),
        (b'{"value": null}', None, None, True),
    ],
)
def test_readings(payload, value, time, good):
    assert read_reading(payload) == (value, time, good)


@pytest.mark.parametrize(
    "payload", [b"", b"off", b"{}", b"[1]", b'{"value": [1]}', b"\xff", b"[" * 5000, b"null"]
)
def test_payloads_without_a_reading(payload):
    assert read_reading(payload) is None


def test_an_invalid_time_is_not_replaced_by_the_time_of_arrival():
    assert math.isnan(read_reading(b'{"value": 1, "time": "noon"}').time)


def reading(value, moment):
    return {"value": value, "time": 1_700_000_000 + moment}


def test_rows_are_sampled_from_tags_and_resume_after_a_kill(broker, publisher):
    options = {"columns": ["flow", "speed"], "sample_interval": 10.0}
    with subscribe(broker, "tags/+", **options) as source:
        publisher.send_all("tags/flow", [reading(0.5, 1), reading(1.5, 8)])
        publisher.send_all("tags/speed", [reading(900, 2), b"off"])
        batch = take(source, 1)[-1]
        assert batch.held
        assert "tags/speed holds no value" in batch.rejected[0].reason
        cursor = json.loads(json.dumps(batch.cursor))
    with subscribe(broker, "tags/+", **options) as source:
        source.seek(cursor)
        publisher.send_all("tags/flow", [reading(2.5, 10.5)])
        publisher.send_all("tags/speed", [reading(910, 13), reading(920, 29)])
        batches = take(source, 2)
    found = [(time, row.tolist()) for b in batches for time, row in zip(b.times, b.rows, strict=True)]
    assert found == [
        ("2023-11-14T22:13:30Z", [1.5, 900.0]),
        ("2023-11-14T22:13:40Z", [2.5, 910.0]),
    ]


def test_more_values_than_inflight_can_arrive_before_a_row(broker, publisher):
    with subscribe(broker, "busy/+?inflight=16", columns=["a"], sample_interval=1000.0) as source:
        publisher.send_all("busy/a", [reading(i, i + 1) for i in range(200)])
        publisher.send_all("busy/a", [reading(-1, 1200)])
        assert take(source, 1)[-1].rows.tolist() == [[199.0]]
