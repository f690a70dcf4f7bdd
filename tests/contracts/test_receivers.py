"""What every sink and source does with a receiver that is away, full, slow, killed, or back later."""

import contextlib
import http.server
import json
import resource
import signal
import threading
import uuid

import pytest

from baryflow.exceptions import RefusedError, StoppedError, UnreachableError
from baryflow.streams import Credentials, Endpoint, RetryPolicy, open_sink, open_source
from baryflow.streams.webhook import Webhook
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
            f"mqtt://127.0.0.1:{self.proxy.port}/{self.topic}?keepalive=1", self.credentials, POLICY
        )

    def open_source(self):
        return self.subscribe(self.proxy.port)

    def send(self, start, stop):
        send(self.endpoint(), start, stop)

    def stall(self):
        self.proxy.cut()

    def resume(self):
        self.proxy.heal()

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

    def send(self, start, stop):
        send(self.endpoint(), start, stop)

    def stall(self):
        self.cluster.order("stall")

    def resume(self):
        self.cluster.order("up")

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
    """A server with one writable variable, which holds the last record, behind a proxy."""

    def __init__(self, folder):
        del folder
        from tests.streams.opcua_plant import Plant

        async def writable(node):
            await node.set_writable()

        self.plant, self.seen = Plant(["n"]), set()
        self.plant.loop.call(writable(self.plant.nodes["n"]))
        self.writable = writable
        self.proxy = Proxy(self.plant.port).__enter__()

    def endpoint(self):
        url = self.plant.url.replace(str(self.plant.port), str(self.proxy.port))
        return Endpoint.parse(url + "?node=ns=2;s=Plant", policy=POLICY)

    def open_source(self):
        return open_source(self.endpoint(), columns=["n"], idle=0.1, sample_interval=1.0)

    def send(self, start, stop):
        self.plant.write(*(("n", float(n), 1_800_000_000 + n) for n in range(start, stop)))

    def stall(self):
        self.proxy.cut()

    def resume(self):
        self.proxy.heal()

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
        self.proxy.__exit__()
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


def send(endpoint, start, stop):
    with contextlib.closing(open_sink(endpoint)) as sink:
        sink.write(records(start, stop))


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


def test_a_flush_returns_only_when_a_slow_receiver_has_everything(receiver):
    sink = open_sink(receiver.endpoint())
    sink.write(records(0, 1))
    sink.flush()
    receiver.stall()

    def write():
        sink.write(records(1, 30))
        sink.flush()

    writing = threading.Thread(target=write)
    writing.start()
    writing.join(1.0)
    assert writing.is_alive()
    receiver.resume()
    writing.join()
    has(receiver, 29)
    sink.close()


def test_a_source_misses_nothing_and_repeats_nothing_if_its_input_is_killed_and_comes_back(receiver):
    with contextlib.closing(receiver.open_source()) as source:
        found, notices = [], []

        def read():
            batch = source.read(8, 0.05)
            source.acknowledge(batch.cursor)
            found.extend(batch.rows[:, 0].tolist())
            notices.extend(batch.notices)

        def read_up_to(last):
            read()
            return set(range(last + 1)) <= set(found)  # partitions may overtake each other

        read()  # subscribed, or begun
        receiver.send(0, 20)
        wait_until(lambda: read_up_to(18), lambda: str((found, notices)))
        receiver.kill()
        wait_until(lambda: read() or notices, lambda: str(notices))
        receiver.start()
        receiver.send(20, 40)
        wait_until(lambda: read_up_to(38), lambda: str((found, notices)))
    assert [n for n in sorted(found) if 0 <= n < 39] == list(range(39))


# -- files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["ndjson", "csv", "parquet"])
def test_a_full_disk_is_an_error_of_write(tmp_path, suffix):
    name = "full.parquet.partial.ndjson" if suffix == "parquet" else f"full.{suffix}"
    (tmp_path / name).symlink_to("/dev/full")
    sink = open_sink(tmp_path / f"full.{suffix}")
    with pytest.raises(OSError, match="No space left"):
        sink.write(records(0, 10))
    with pytest.raises(OSError, match="No space left"):
        sink.close()


@pytest.fixture
def limit_files():
    """Set the largest size of a file, beyond which writing fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (soft if size is None else size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("suffix", ["ndjson", "csv", "parquet"])
def test_a_file_is_as_if_the_disk_had_never_been_full(tmp_path, suffix, limit_files):
    full, whole = (open_sink(tmp_path / f"{name}.{suffix}") for name in ("full", "whole"))
    for start in range(0, 3000, 500):
        before = full.position
        limit_files(before + 1000)
        with pytest.raises(OSError, match="File too large"):
            full.write(records(start, start + 500))
        limit_files(None)
        full.truncate(before)
        for sink in (full, whole):
            sink.write(records(start, start + 500))
            sink.flush()
        assert full.position == whole.position
    full.close()
    whole.close()
    assert (tmp_path / f"full.{suffix}").read_bytes() == (tmp_path / f"whole.{suffix}").read_bytes()


# -- webhooks ------------------------------------------------------------------------------------------


class Hook(http.server.BaseHTTPRequestHandler):
    """Answers with the status of the server, and remembers what it accepts."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.status == 200:
            self.server.found.append((self.headers["webhook-id"], json.loads(body)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def webhooks(port=0, status=200):
    with http.server.HTTPServer(("127.0.0.1", port), Hook) as server:
        server.status, server.found = status, []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_a_webhook_that_is_away_full_or_refuses_is_an_error_and_one_that_is_back_has_the_record():
    with webhooks() as server:
        port = server.server_port
        hook = Webhook(f"http://127.0.0.1:{port}/", "a secret of some length")
        for status in (503, 507, 429, 302):  # full, or elsewhere: it may be sent again
            server.status = status
            with pytest.raises(UnreachableError, match=str(status)):
                hook.send("first", {"n": 1})
        server.status = 422
        with pytest.raises(RefusedError):
            hook.send("first", {"n": 1})
    with pytest.raises(UnreachableError):
        hook.send("first", {"n": 1})
    with webhooks(port) as server:
        hook.send("first", {"n": 1})
        assert server.found == [("first", {"n": 1})]
