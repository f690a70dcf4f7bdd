"""The Kafka transport: rows from a topic, records to a topic."""

from __future__ import annotations

from baryflow.streams.base import Sink, Source
from baryflow.streams.registry import SourceOptions
from baryflow.streams.urls import Endpoint

_PACKAGE = "confluent_kafka"


def open_source(endpoint: Endpoint, options: SourceOptions) -> Source:
    """Open a topic whose messages are rows, ``kafka://host:9092/topic`` or ``kafka+ssl://``.

    The URL options are ``group``, ``start``, ``session``, ``security`` and ``mechanism``.
    """
    _require_kafka()
    from baryflow.streams.kafka.source import KafkaSource

    return KafkaSource(endpoint, options)


def open_sink(endpoint: Endpoint) -> Sink:
    """Open a topic for records, one message each.

    The URL options are ``security`` and ``mechanism``.
    """
    _require_kafka()
    from baryflow.streams.kafka.sink import KafkaSink

    return KafkaSink(endpoint)


def _require_kafka() -> None:
    try:
        __import__(_PACKAGE)
    except ModuleNotFoundError as error:
        if error.name != _PACKAGE:
            raise
        raise ModuleNotFoundError(
            "kafka:// needs the package confluent-kafka: pip install 'baryflow[kafka]'", name=_PACKAGE
        ) from error
