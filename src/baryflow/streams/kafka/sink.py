"""Records to a topic, each acknowledged by all replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.kafka.clients import Quiet, Watch, check_address, settings
from baryflow.streams.sinks import encode_record
from baryflow.streams.urls import Address, Credentials

#: Messages that wait for being sent, at most; then writing waits too.
_QUEUE = 10_000


class KafkaSink:
    """Sends a message for each record; its key is that of the record, if there is one.

    Parameters
    ----------
    address : Address
        Its option ``patience`` says for how many seconds it is tried to deliver a message.
    credentials : Credentials
    """

    def __init__(self, address: Address, credentials: Credentials) -> None:
        check_address(address, "patience")
        patience = address.option("patience", "600")
        if not patience.isdecimal() or not 1 <= int(patience) <= 86_400:
            raise InvalidInputError(f"patience must be 1 to 86400 seconds, got {patience!r}")
        self.position = 0
        self._watch = Watch(address)
        self._failure: str | None = None
        self._topic = address.path
        self._producer: Producer | None = Producer(
            settings(address, credentials)
            | {
                "acks": "all",
                "enable.idempotence": True,  # what is sent again by librdkafka is kept once, in order
                "message.timeout.ms": int(patience) * 1000,
                "queue.buffering.max.messages": _QUEUE,
                "queue.buffering.max.kbytes": 32_768,
                "error_cb": self._watch.on_error,
                "logger": Quiet(credentials.password),
            }
        )
        try:
            self._watch.describe(self._producer)
        except BaseException:
            self._let_go()
            raise

    def heed(self, stop: Callable[[], bool]) -> None:
        """Do not wait long for the broker once `stop` returns True."""
        self._watch.stopping.stop = stop

    def write(self, records: list[dict[str, Any]]) -> None:
        """Send records; wait if too many are on their way."""
        producer = self._open()
        self._watch.stopping.begin()
        for record in records:
            value = encode_record(record).rstrip("\n").encode()
            key = record.get("key")
            name = None if key is None or key == "" else str(key).encode()
            while True:
                try:
                    producer.produce(self._topic, value=value, key=name, on_delivery=self._delivered)
                    break
                except BufferError:
                    producer.poll(0.2)
                    self._check()
                    self._watch.stopping.check(str(self._watch.address))
                except KafkaException as error:
                    raise self._refused(error.args[0]) from None
            self.position += len(value)
        producer.poll(0)
        self._check()

    def truncate(self, position: int) -> None:
        """Do nothing: what was sent cannot be taken back."""

    def flush(self, sync: bool = False) -> None:
        """Send what waits; with `sync`, return once all of it has been acknowledged."""
        producer = self._open()
        producer.poll(0)
        self._watch.stopping.begin()
        while sync and producer.flush(0.2):
            self._check()
            self._watch.stopping.check(str(self._watch.address))
        self._check()

    def close(self, finished: bool = True) -> None:  # noqa: ARG002 - a message is complete by itself
        """Wait until everything is acknowledged, and let go."""
        if self._producer is None:
            return
        try:
            self.flush(sync=True)
        finally:
            self._let_go()

    def _open(self) -> Producer:
        if self._producer is None:
            raise InvalidInputError(f"{self._watch.address} is closed")
        return self._producer

    def _let_go(self) -> None:
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(1.0)
            self._producer = None

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = error.name()
            self._watch.on_error(error)

    def _check(self) -> None:
        """Raise if something was not delivered, or never will be."""
        self._watch.check()
        if self._failure is not None:
            raise UnreachableError(
                f"a message to {self._watch.address} could not be delivered: {self._failure}"
            )

    def _refused(self, error: KafkaError) -> UnreachableError:
        return UnreachableError(f"a message to {self._watch.address} could not be sent: {error.name()}")
