"""The MQTT 5 transport: ``mqtt://`` and ``mqtts://``, as input and output."""

from __future__ import annotations

import hashlib
import uuid

from baryflow.exceptions import InvalidInputError
from baryflow.streams.brokers import LabelDecoder, MessageDecoder
from baryflow.streams.mqtt.connection import ClientConfig
from baryflow.streams.mqtt.sink import MqttSink
from baryflow.streams.mqtt.source import MessageRows, MqttSource, RowBuilder, SampledRows, find_tags
from baryflow.streams.registry import SourceOptions
from baryflow.streams.sampling.sampler import Sampler
from baryflow.streams.urls import Endpoint, is_loopback

__all__ = ["open_sink", "open_source"]

#: Seconds for which the broker keeps a durable session while no process reads: a week.
_EXPIRY = 7 * 24 * 3600


def open_source(endpoint: Endpoint, options: SourceOptions) -> MqttSource:
    """Subscribe to a topic, in which ``+`` stands for one level and ``#`` for all that follow.

    Each message is a row, a JSON object; the key may be ``"@topic"``. With a sample interval, each
    message is the value of one tag instead: a number, or an object with ``value`` and, optionally,
    ``time`` and ``quality``.

    If `options` ask for a durable source, the broker keeps the session while we are away; otherwise the
    session ends with the connection.

    URL options: ``client``, the client id; ``expiry``, the seconds for which a durable session is kept;
    ``qos``, 1 or 0; ``inflight``, the number of unacknowledged messages, which also limits a batch;
    ``keepalive``, the seconds of silence after which the connection is checked; ``plaintext=yes``, which
    permits a password without TLS.
    """
    endpoint.check_options("client", "expiry", "qos", "inflight", "keepalive", "plaintext")
    _check_password(endpoint)
    topic = endpoint.path
    levels = topic.split("/")
    if not topic or any("#" in level and level != "#" for level in levels) or "#" in levels[:-1]:
        raise InvalidInputError(
            f"{endpoint} must name a topic, in which # can only be the last level, got {topic!r}"
        )
    if any("+" in level and level != "+" for level in levels):
        raise InvalidInputError(f"{endpoint}: + stands for a whole level of a topic, got {topic!r}")
    if options.columns is None:
        raise InvalidInputError(f"{endpoint}: MQTT messages have no header: name the columns")
    if options.key is not None and options.key.startswith("@") and options.key != "@topic":
        raise InvalidInputError(f"the key of a message is @topic or a column, got {options.key!r}")
    config = ClientConfig(
        client_id=endpoint.option("client", _default_client_id(endpoint, options.durable)),
        expiry=endpoint.int_option("expiry", _EXPIRY, 1, 2**32 - 2) if options.durable else 0,
        inflight=endpoint.int_option("inflight", 256, 1, 65535),
        keepalive=endpoint.int_option("keepalive", 30, 1, 65535),
    )
    return MqttSource(
        endpoint,
        config,
        _make_builder(endpoint, options),
        qos=endpoint.int_option("qos", 1, 0, 1),
        retained=options.sample_interval is not None,  # a retained row is from the past
        idle=options.idle,
    )


def _make_builder(endpoint: Endpoint, options: SourceOptions) -> RowBuilder:
    columns = options.columns or ()
    if options.labels is not None:
        return MessageRows((), LabelDecoder(options.labels))
    if options.sample_interval is None:
        if options.tags is not None:
            raise InvalidInputError(
                "tag values arrive one at a time: set how often to sample a row, --sample-interval 3min"
            )
        return MessageRows(columns, MessageDecoder(columns, options.time, options.key))
    if options.time is not None or options.key is not None:
        raise InvalidInputError(
            "sampled rows have the plant's time and the key of the tag list: leave out time and key"
        )
    tags = find_tags(endpoint, columns, options.tags)
    return SampledRows(Sampler(columns, tags, options.sample_interval, options.max_age))


def open_sink(endpoint: Endpoint) -> MqttSink:
    """Open a topic for records.

    URL options: ``keepalive`` and ``plaintext`` as in :func:`open_source`.
    """
    endpoint.check_options("keepalive", "plaintext")
    _check_password(endpoint)
    if not endpoint.path or "+" in endpoint.path or "#" in endpoint.path:
        raise InvalidInputError(f"{endpoint} must name one topic to write to, without + and #")
    config = ClientConfig(
        client_id=f"baryflow-out-{uuid.uuid4().hex[:16]}",  # random, because no session is kept
        keepalive=endpoint.int_option("keepalive", 30, 1, 65535),
    )
    return MqttSink(endpoint, config)


def _check_password(endpoint: Endpoint) -> None:
    """Refuse to send a password unencrypted over a network, unless the URL permits it."""
    permission = endpoint.option("plaintext", "no")
    if permission not in ("yes", "no"):
        raise InvalidInputError(f"{endpoint}: plaintext must be yes or no, got {permission!r}")
    encrypted = endpoint.scheme == "mqtts" or is_loopback(endpoint.host)
    if endpoint.credentials.password is not None and not encrypted and permission == "no":
        raise InvalidInputError(
            f"the password would be sent to {endpoint.host} unencrypted: use mqtts://, or "
            "?plaintext=yes in a trusted network"
        )


def _default_client_id(endpoint: Endpoint, durable: bool) -> str:
    """Return a random id, or for a durable session the same for the same topics of the same broker."""
    if not durable:
        return f"baryflow-{uuid.uuid4().hex[:12]}"
    location = f"{endpoint.host}:{endpoint.port}/{endpoint.path}"
    return f"baryflow-{hashlib.blake2b(location.encode(), digest_size=6).hexdigest()}"
