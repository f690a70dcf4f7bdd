"""MQTT 5: ``mqtt://`` and ``mqtts://``, in and out."""

from __future__ import annotations

import hashlib
import uuid

from baryflow.exceptions import InvalidInputError
from baryflow.streams.mqtt.clients import Session
from baryflow.streams.mqtt.queue import Inbox
from baryflow.streams.mqtt.rows import RowMaker
from baryflow.streams.mqtt.sink import MqttSink
from baryflow.streams.mqtt.source import Maker, MqttSource
from baryflow.streams.mqtt.tags import TagMaker, find_tags
from baryflow.streams.sampling.sampler import Sampler
from baryflow.streams.transports import Wanted
from baryflow.streams.urls import Address, Credentials

__all__ = ["open_sink", "open_source"]

#: Messages that wait to be read, for each that the broker may send ahead; more come only without QoS 1.
_ROOM = 4


def open_source(address: Address, credentials: Credentials, wanted: Wanted) -> MqttSource:
    """Subscribe to topics.

    Parameters
    ----------
    address : Address
        The path is a topic, in which ``+`` stands for one level and ``#`` for all that follow. Options:
        ``client``, the name of the session, which the broker keeps while we are away; ``qos``, 1 or 0;
        ``inflight``, how many messages come before the first is safe, which bounds a batch too;
        ``keepalive``, seconds of silence after which to ask whether the broker is there.
    credentials : Credentials
    wanted : Wanted
        Columns must be named. Each message is a row, a JSON object; a key may be ``"@topic"``. With
        ``every``, each message is the value of one tag instead: a number, or an object with ``value``
        and, if need be, ``time`` and ``quality``.

    Returns
    -------
    MqttSource

    Raises
    ------
    InvalidInputError
        If the address, or what is wanted, makes no sense.
    UnreachableError
        If nothing answers within some seconds, or we are not let in.
    """
    address.check_options("client", "qos", "inflight", "keepalive")
    topic = address.path
    levels = topic.split("/")
    if not topic or any("#" in level and level != "#" for level in levels) or "#" in levels[:-1]:
        raise InvalidInputError(
            f"{address} must name a topic, in which # can only stand alone, at the end, got {topic!r}"
        )
    if any("+" in level and level != "+" for level in levels):
        raise InvalidInputError(f"{address}: + stands for a whole level of a topic, got {topic!r}")
    if wanted.columns is None:
        raise InvalidInputError(f"{address}: a topic has no header: name the columns that are wanted")
    if wanted.key is not None and wanted.key.startswith("@") and wanted.key != "@topic":
        raise InvalidInputError(f"a message has @topic, or columns, for a key, got {wanted.key!r}")
    session = Session(
        client=address.option("client", _name_session(address)),
        lasting=True,
        inflight=_read_number(address, "inflight", 256, 1, 65535),
        keepalive=_read_number(address, "keepalive", 30, 1, 65535),
    )
    qos = _read_number(address, "qos", 1, 0, 1)
    maker = _make_maker(address, wanted)
    # The last value of a tag is what holds now; the last row is one of a time that is over.
    inbox = Inbox(address, qos, retained=wanted.every is not None, room=_ROOM * session.inflight)
    return MqttSource(address, credentials, session, inbox, maker, wanted.idle)


def _make_maker(address: Address, wanted: Wanted) -> Maker:
    """Return what makes rows: of one message each, or of values that come one by one."""
    columns = wanted.columns or ()
    if wanted.every is None:
        if wanted.tags is not None:
            raise InvalidInputError(
                "tags come one by one: set how often a row is made of them, --sample-interval 3min"
            )
        return RowMaker(columns, wanted.time, wanted.key)
    if wanted.time is not None or wanted.key is not None:
        raise InvalidInputError(
            "rows that are made of tags have the plant's time, and the key that the list of tags says: "
            "leave out time and key"
        )
    tags = find_tags(address, columns, wanted.tags)
    return TagMaker(Sampler(columns, tags, wanted.every, wanted.max_age))


def open_sink(address: Address, credentials: Credentials) -> MqttSink:
    """Open a topic for records.

    Parameters
    ----------
    address : Address
        The path is the topic. Options: ``wait``, seconds that a broker may be away before that is an
        error; ``keepalive`` as in :func:`open_source`.
    credentials : Credentials

    Returns
    -------
    MqttSink

    Raises
    ------
    InvalidInputError
        If the address makes no sense.
    UnreachableError
        If nothing answers within some seconds, or we are not let in.
    """
    address.check_options("wait", "keepalive")
    if not address.path or "+" in address.path or "#" in address.path:
        raise InvalidInputError(f"{address} must name one topic to write to, without + and #")
    session = Session(
        client=f"baryflow-out-{uuid.uuid4().hex[:16]}",  # nothing is kept under it
        keepalive=_read_number(address, "keepalive", 30, 1, 65535),
    )
    return MqttSink(address, credentials, session, float(_read_number(address, "wait", 120, 1, 86400)))


def _name_session(address: Address) -> str:
    """Return the same name for the same topics of the same broker."""
    what = f"{address.host}:{address.port}/{address.path}"
    return f"baryflow-{hashlib.blake2b(what.encode(), digest_size=6).hexdigest()}"


def _read_number(address: Address, name: str, default: int, low: int, high: int) -> int:
    text = address.option(name, str(default))
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise InvalidInputError(
            f"{address}: {name} must be a whole number from {low} to {high}, got {text!r}"
        )
    return int(text)
