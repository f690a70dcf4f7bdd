"""What every sink and source does with a receiver that is away, full, killed, or back later."""

import json
import signal
import threading
import uuid

import pytest

from baryflow.exceptions import StoppedError
from baryflow.streams import Credentials, Endpoint, RetryPolicy, open_sink, open_source
from tests.streams.mosquitto import PASSWORD, USER, Broker
from tests.streams.proxy import Proxy
from tests.waiting import wait_until

POLICY = RetryPolicy(first=0.05, longest=0.5, grace=0.2)


class Mqtt:
    """A mosquitto behind a proxy; a durable subscription keeps what arrives."""

    credentials = Credentials(USER, PASSWORD)

    def __init__(self, folder):
        self.broker = Broker(folder)
        self.broker.start()
        self.proxy = Proxy(self.broker.port).__enter__()
        self.topic = uuid.uuid4().hex
        self.reader, self.found = self.subscribe(self.broker.port), []

    def subscribe(self, port):
        endpoint = Endpoint.parse(
            f"mqtt://127.0.0.1:{port}/{self.topic}?client={uuid.uuid4().hex[:12]}",
            self.credentials,
            POLICY,
        )
        return open_source(endpoint, columns=["n"], idle=0.1, durable=True)

    def endpoint(self):
        return Endpoint.parse(
            f"mqtt://127.0.0.1:{self.proxy.port}/{self.topic}", self.credentials, POLICY
        )

    def open_source(self):
        return self.subscribe(self.proxy.port)

    def stop(self):
        self.broker.stop(signal.SIGTERM)

    def kill(self):
        self.broker.wait_until_saved()
        self.broker.stop(signal.SIGKILL)

    def start(self):
        self.broker.start()

    def received(self):
        batch = self.reader.read(256, 0.05)
        self.reader.acknowledge(batch.cursor)
        self.found += batch.rows[:, 0].tolist()
        return set(self.found)

    def close(self):
        self.reader.close()
        self.proxy.__exit__()
        if self.broker.process.poll() is None:
            self.broker.stop(signal.SIGKILL)


class Kafka:
    """librdkafka's mock cluster, whose front goes down, stalls and comes up."""

    def __init__(self, folder):
        del folder
        from tests.streams.kafka_cluster import Cluster

        self.cluster, self.topic = Cluster(), uuid.uuid4().hex
        self.cluster.send(self.topic, [(None, json.dumps({"n": -1}))])

    def endpoint(self):
        return Endpoint.parse(self.cluster.url(self.topic), policy=POLICY)

    def open_source(self):
        return open_source(self.endpoint(), columns=["n"], idle=0.1)

    def stop(self):
        self.cluster.order("down")

    kill = stop

    def start(self):
        self.cluster.order("up")

    def received(self):
        return {json.loads(one.value())["n"] for one in self.cluster.received(self.topic)}

    def close(self):
        self.cluster.__exit__()


class OpcUa:
    """A server with one writable variable, which holds the last record."""

    def __init__(self, folder):
        del folder
        from tests.streams.opcua_plant import Plant

        async def writable(node):
            await node.set_writable()

        self.plant, self.seen = Plant(["n"], history=False), set()
        self.plant.loop.call(writable(self.plant.nodes["n"]))
        self.writable = writable

    def endpoint(self):
        return Endpoint.parse(self.plant.url + "?node=ns=2;s=Plant", policy=POLICY)

    def stop(self):
        self.plant.stop()

    kill = stop

    def start(self):
        self.plant.start()
        self.plant.loop.call(self.writable(self.plant.nodes["n"]))

    def received(self):
        async def read():
            return (await self.plant.nodes["n"].read_data_value(raise_on_bad_status=False)).Value

        value = self.plant.loop.call(read())
        return set() if value is None or value.Value is None else set(range(int(value.Value) + 1))

    def close(self):
        self.plant.close()


KINDS = [
    Mqtt,
    pytest.param(Kafka, marks=pytest.mark.xdist_group("kafka")),
    OpcUa,
]


@pytest.fixture(params=KINDS)
def receiver(request, tmp_path):
    if request.param is Kafka:
        pytest.importorskip("confluent_kafka")
    elif request.param is OpcUa:
        pytest.importorskip("asyncua")
    else:
        pytest.importorskip("paho.mqtt")
    one = request.param(tmp_path)
    yield one
    one.close()


def records(start, stop):
    return [{"n": n} for n in range(start, stop)]


def has(receiver, *numbers):
    wait_until(lambda: set(numbers) <= receiver.received(), lambda: str(receiver.received()))


def test_what_is_flushed_has_arrived_also_after_an_outage(receiver):
    sink = open_sink(receiver.endpoint())
    sink.write(records(0, 3))
    sink.flush()
    has(receiver, 0, 1, 2)
    receiver.kill()
    sink.write(records(3, 50))  # handed over, and kept while the receiver is away
    receiver.start()
    sink.flush()
    has(receiver, 49)
    assert sink.position == 50
    sink.truncate(40)
    assert sink.position == 40
    sink.close()


def test_a_sink_opens_while_the_receiver_is_away(receiver, caplog):
    receiver.stop()
    sink = open_sink(receiver.endpoint())
    sink.write(records(0, 2))
    wait_until(lambda: "retrying" in caplog.text)
    receiver.start()
    sink.close()
    has(receiver, 0, 1)


def test_a_sink_that_is_stopped_does_not_wait(receiver):
    stopped = threading.Event()
    sink = open_sink(receiver.endpoint())
    sink.stop_when(stopped.is_set)
    sink.write(records(0, 1))
    sink.flush()
    receiver.stop()
    sink.write(records(1, 2))
    stopped.set()
    with pytest.raises(StoppedError):
        sink.flush()
    with pytest.raises(StoppedError):
        sink.close()
    receiver.start()


@pytest.mark.parametrize("receiver", KINDS[:2], indirect=True)
def test_a_source_opens_while_the_broker_is_away_and_misses_nothing_afterwards(receiver):
    receiver.stop()
    source = receiver.open_source()
    source.stop_when(lambda: False)
    notices, found = [], set()
    assert not source.reached
    assert not source.shared

    def read():
        batch = source.read(64, 0.05)
        notices.extend(batch.notices)
        found.update(batch.rows[:, 0].tolist())
        return bool(notices)

    wait_until(read)
    receiver.start()
    wait_until(lambda: read() and source.reached)
    sink = open_sink(receiver.endpoint())
    sink.write(records(0, 20))
    sink.close()
    wait_until(lambda: read() and found >= set(range(20)), lambda: str((found, notices)))
    source.close()


@pytest.mark.parametrize("suffix", ["ndjson", "csv"])
def test_a_full_disk_is_an_error_of_write(tmp_path, suffix):
    (tmp_path / f"full.{suffix}").symlink_to("/dev/full")
    sink = open_sink(tmp_path / f"full.{suffix}")
    with pytest.raises(OSError, match="No space left"):
        sink.write(records(0, 10))
    with pytest.raises(OSError, match="No space left"):
        sink.close()
