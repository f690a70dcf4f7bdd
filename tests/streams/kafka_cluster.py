"""librdkafka's mock cluster in a process of its own, behind a front that can stall and refuse.

The mock serves plain Kafka from memory. Clients get the ports of the front instead of the mock's, so all
traffic passes through it: a stalled front is a network that drops everything for a while, and a front
that is down is a broker that restarts without losing data.
"""

import argparse
import asyncio
import contextlib
import json
import ssl
import struct
import subprocess
import sys
import time
from pathlib import Path

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
HANDSHAKE, AUTHENTICATE, VERSIONS = 17, 36, 18
REFUSED = 58  # SASL_AUTHENTICATION_FAILED


class Cluster:
    """A cluster that lives as long as the `with` block; topics have four partitions."""

    def __init__(self, brokers=1, cert=None, password=None):
        arguments = ["--brokers", str(brokers)]
        arguments += ["--cert", str(cert)] if cert else []
        arguments += ["--password", password] if password else []
        self.process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, cwd=ROOT,
        )  # fmt: skip
        ports = json.loads(self.process.stdout.readline())
        self.fronts, self.inner = ports["fronts"], ports["inner"]
        self._producer = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def url(self, topic, options="", scheme="kafka"):
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.fronts)
        return f"{scheme}://{hosts}/{topic}{options}"

    def send(self, topic, values, partition=None):
        """Send (key, value) pairs past the front, and wait until they have arrived."""
        producer, failed = self._connect(), []
        for key, value in values:
            where = {} if partition is None else {"partition": partition}
            while True:
                try:
                    producer.produce(
                        topic,
                        value,
                        key,
                        on_delivery=lambda e, _: failed.append(e) if e else None,
                        **where,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(30) == 0
        assert failed == []

    def create(self, topic):
        """Create a topic: the mock does so when asked about one."""
        self._connect().list_topics(topic, timeout=PATIENCE)

    def _connect(self):
        from confluent_kafka import Producer

        if self._producer is None:
            hosts = ",".join(f"127.0.0.1:{port}" for port in self.inner)
            self._producer = Producer({"bootstrap.servers": hosts, "log_level": 0})
        return self._producer

    def received(self, topic):
        """Return all messages of a topic."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {"bootstrap.servers": f"127.0.0.1:{self.inner[0]}", "group.id": "looker", "log_level": 0}
        )
        places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(4)]
        total = sum(consumer.get_watermark_offsets(place, timeout=PATIENCE)[1] for place in places)
        consumer.assign(places)
        found, began = [], time.monotonic()
        while len(found) < total and time.monotonic() - began < PATIENCE:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message)
        consumer.close()
        return found

    def committed(self, topic, group):
        """Return the committed offsets of a group."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {"bootstrap.servers": f"127.0.0.1:{self.inner[0]}", "group.id": group, "log_level": 0}
        )
        found = consumer.committed(
            [TopicPartition(topic, number) for number in range(4)], timeout=PATIENCE
        )
        consumer.close()
        return {one.partition: one.offset for one in found if one.offset >= 0}

    def order(self, what):
        """Let the front ``stall``, go ``down`` or come ``up``, and wait for it."""
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().strip() == what


# -- the process itself ------------------------------------------------------------------------------


class Front:
    def __init__(self, inner, context, password):
        self.inner, self.context, self.password = inner, context, password
        self.ports, self.servers, self.writers = {}, [], set()
        self.flowing = asyncio.Event()
        self.flowing.set()

    async def up(self):
        for port in self.inner:
            server = await asyncio.start_server(
                lambda r, w, port=port: self.serve(r, w, port),
                "127.0.0.1", self.ports.get(port, 0), ssl=self.context,
            )  # fmt: skip
            self.ports[port] = server.sockets[0].getsockname()[1]
            self.servers.append(server)
        self.flowing.set()

    async def obey(self, what):
        if what == "stall":
            self.flowing.clear()
        elif what == "down":
            for server in self.servers:
                server.close()
            self.servers.clear()
            for writer in list(self.writers):
                writer.transport.abort()
        elif self.servers:
            self.flowing.set()
        else:
            await self.up()

    async def serve(self, reader, writer, port):
        self.writers.add(writer)
        upstream = None
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, PermissionError):
            above, upstream = await asyncio.open_connection("127.0.0.1", port)
            asked = {}
            back = asyncio.create_task(self.backward(above, writer, asked))
            await self.forward(reader, upstream, writer, asked)
            back.cancel()
        self.writers.discard(writer)
        for one in (writer, upstream):
            if one is not None:
                one.transport.abort()

    async def forward(self, reader, upstream, writer, asked):
        allowed = self.password is None
        while True:
            frame = await take(reader)
            await self.flowing.wait()
            key, version, number = struct.unpack_from(">hhi", frame)
            asked[number] = (key, version)
            if key == HANDSHAKE and self.password is not None:
                give(writer, struct.pack(">ihi", number, 0, 1) + struct.pack(">h5s", 5, b"PLAIN"))
            elif key == AUTHENTICATE and self.password is not None:
                allowed = frame.endswith(f"\0plant\0{self.password}".encode())
                why = b"" if allowed else b"no such user: " + self.password.encode()  # a careless broker
                answer = struct.pack(">ihh", number, 0 if allowed else REFUSED, len(why)) + why
                give(writer, answer + struct.pack(">i", 0))
                if not allowed:
                    await writer.drain()
                    return
            elif allowed or key == VERSIONS:
                give(upstream, frame)
            else:
                return

    async def backward(self, above, writer, asked):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await take(above)
                await self.flowing.wait()
                for inner, outer in self.ports.items():
                    host = b"127.0.0.1"
                    frame = frame.replace(
                        host + struct.pack(">i", inner), host + struct.pack(">i", outer)
                    )
                key, version = asked.pop(struct.unpack_from(">i", frame)[0])
                if key == VERSIONS and self.password is not None:
                    frame = with_sasl(frame, version)
                give(writer, frame)
        writer.transport.abort()


def with_sasl(frame, version):
    """Return an ApiVersions response that includes authentication."""
    more = [struct.pack(">hhh", HANDSHAKE, 0, 1), struct.pack(">hhh", AUTHENTICATE, 0, 0)]
    head, rest = frame[:6], frame[6:]
    if version >= 3:  # a compact array: its length in one byte, tags behind each entry
        return head + bytes([rest[0] + 2]) + b"".join(one + b"\0" for one in more) + rest[1:]
    return head + struct.pack(">i", struct.unpack_from(">i", rest)[0] + 2) + b"".join(more) + rest[4:]


async def take(reader):
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    if not 8 <= size + 4 <= 1 << 27:
        raise PermissionError
    return await reader.readexactly(size)


def give(writer, frame):
    writer.write(struct.pack(">i", len(frame)) + frame)


async def main():
    from confluent_kafka import Producer

    parser = argparse.ArgumentParser()
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--cert")
    parser.add_argument("--password")
    options = parser.parse_args()
    context = None
    if options.cert:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(options.cert)
    mock = Producer({"test.mock.num.brokers": options.brokers, "log_level": 0})
    inner = [broker.port for broker in mock.list_topics(timeout=PATIENCE).brokers.values()]
    front = Front(inner, context, options.password)
    await front.up()
    print(json.dumps({"fronts": list(front.ports.values()), "inner": inner}), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):  # ends with its parent
        await front.obey(line.strip())
        print(line.strip(), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
