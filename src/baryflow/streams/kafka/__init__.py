"""Kafka: rows from a topic, records to a topic."""

from __future__ import annotations

from baryflow.streams.base import Sink, Source
from baryflow.streams.transports import Wanted
from baryflow.streams.urls import Address, Credentials

_PACKAGE = "confluent_kafka"


def open_source(address: Address, credentials: Credentials, wanted: Wanted) -> Source:
    """Open a topic whose messages are rows.

    Parameters
    ----------
    address : Address
        ``kafka://host:9092/topic``, or ``kafka+ssl://``; options are ``group``, ``start``, ``session``,
        ``security`` and ``mechanism``.
    credentials : Credentials
    wanted : Wanted

    Returns
    -------
    KafkaSource

    Raises
    ------
    InvalidInputError
        If options contradict each other, or there is no such topic.
    UnreachableError
        If no broker answers, or we are not let in.
    ModuleNotFoundError
        Without ``baryflow[kafka]``.
    """
    _require_kafka()
    from baryflow.streams.kafka.source import KafkaSource

    return KafkaSource(address, credentials, wanted)


def open_sink(address: Address, credentials: Credentials) -> Sink:
    """Open a topic for records, a message each.

    Parameters
    ----------
    address : Address
        As in :func:`open_source`; options are ``patience``, ``security`` and ``mechanism``.
    credentials : Credentials

    Returns
    -------
    KafkaSink

    Raises
    ------
    InvalidInputError
        If options contradict each other, or there is no such topic and none is made.
    UnreachableError
        If no broker answers, or we are not let in.
    ModuleNotFoundError
        Without ``baryflow[kafka]``.
    """
    _require_kafka()
    from baryflow.streams.kafka.sink import KafkaSink

    return KafkaSink(address, credentials)


def _require_kafka() -> None:
    try:
        __import__(_PACKAGE)
    except ModuleNotFoundError as error:
        if error.name != _PACKAGE:
            raise
        raise ModuleNotFoundError(
            "kafka:// needs the package confluent-kafka: pip install 'baryflow[kafka]'", name=_PACKAGE
        ) from error
