"""Records to a Kafka topic, each acknowledged by all replicas."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.backoff import SLICE
from baryflow.streams.base import MessageSink
from baryflow.streams.kafka.clients import ClusterMonitor, MaskingLogger, check_endpoint, settings
from baryflow.streams.sinks import encode_record
from baryflow.streams.urls import Endpoint

_log = logging.getLogger("baryflow.streams")
#: Most messages that wait to be sent; with more, `write` waits too.
_QUEUE = 10_000


class KafkaSink(MessageSink):
    """Sends a message for each record, with the key of the record if it has one.

    A cluster that is away is waited for without limit, until the process is asked to stop.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        check_endpoint(endpoint)
        self._monitor = ClusterMonitor(endpoint)
        self._failure: str | None = None
        self._topic = endpoint.path
        self._producer: Producer | None = Producer(
            settings(endpoint)
            | {
                "acks": "all",
                "enable.idempotence": True,  # retries of librdkafka neither duplicate nor reorder
                "message.timeout.ms": 0,  # no limit
                "queue.buffering.max.messages": _QUEUE,
                "queue.buffering.max.kbytes": 32_768,
                "error_cb": self._monitor.on_error,
                "logger": MaskingLogger(endpoint.credentials.password),
            }
        )
        try:
            self._monitor.find_partitions(self._producer)
            self._check()
        except BaseException:
            self._release()
            raise

    def stop_when(self, stop: Callable[[], bool]) -> None:
        """Do not wait long for the broker once `stop` returns True."""
        self._monitor.backoff.stop = stop

    def write(self, records: list[dict[str, Any]]) -> None:
        """Send records; wait if too many are in flight."""
        producer = self._require_open()
        self._monitor.backoff.begin()
        for record in records:
            value = encode_record(record).rstrip("\n").encode()
            target = record.get("key")
            key = None if target is None or target == "" else str(target).encode()
            while True:
                try:
                    producer.produce(self._topic, value=value, key=key, on_delivery=self._delivered)
                    break
                except BufferError:
                    producer.poll(SLICE)
                    self._check()
                    self._monitor.backoff.check()
                except KafkaException as error:
                    raise UnreachableError(
                        f"cannot send a message to {self._monitor.endpoint}: {error.args[0].name()}"
                    ) from None
        self.position += len(records)
        producer.poll(0)
        self._check()

    def flush(self) -> None:
        """Return once all messages are acknowledged."""
        producer = self._require_open()
        self._monitor.backoff.begin()
        while producer.flush(SLICE):
            self._check()
            self._monitor.backoff.check()
        self._check()

    def close(self, finished: bool = True) -> None:
        """Wait until everything is acknowledged, if not `finished` only for a few seconds, and close."""
        if self._producer is None:
            return
        try:
            if finished:
                self.flush()
            else:
                self._producer.flush(self._monitor.endpoint.policy.grace)
        finally:
            self._release()

    def _require_open(self) -> Producer:
        if self._producer is None:
            raise InvalidInputError(f"{self._monitor.endpoint} is closed")
        return self._producer

    def _release(self) -> None:
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(1.0)
            self._producer = None

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = error.name()
            self._monitor.on_error(error)

    def _check(self) -> None:
        """Raise if a message was not delivered; log whether the cluster answers."""
        self._monitor.check()
        notices, self._monitor.notices = self._monitor.notices, []
        for notice in notices:
            _log.warning("%s", notice)
        if self._failure is not None:
            raise UnreachableError(
                f"a message to {self._monitor.endpoint} could not be delivered: {self._failure}"
            )
