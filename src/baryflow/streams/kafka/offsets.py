"""Where in a partition: its ends, and where reading it begins."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, Consumer, KafkaException, TopicPartition

from baryflow.exceptions import UnreachableError
from baryflow.streams.kafka.buffers import number_of
from baryflow.streams.kafka.clients import Watch

#: Seconds in which it must be found out where a partition begins.
_PATIENCE = 120.0
#: Seconds that one question may take.
_ANSWER = 5.0
_PAUSE = 0.2


def place(topic: str, partition: str, offset: int = OFFSET_INVALID) -> TopicPartition:
    """Return a place as librdkafka knows it."""
    return TopicPartition(topic, number_of(partition), offset)


def places(topic: str, offsets: Mapping[str, int]) -> list[TopicPartition]:
    """Return places as librdkafka knows them."""
    return [place(topic, partition, offset) for partition, offset in offsets.items()]


def find_ends(consumer: Consumer, topic: str, partition: str) -> tuple[int, int] | None:
    """Return the first message that is there and the one that will come next; None if nobody says."""
    try:
        ends: tuple[int, int] | None = consumer.get_watermark_offsets(
            place(topic, partition), timeout=_ANSWER
        )
    except KafkaException:
        return None
    return ends


def find_start(consumer: Consumer, watch: Watch, partition: str, group: str | None, start: str) -> int:
    """Return where a partition begins that was never read: as its group knows, or else as asked for.

    Raises
    ------
    UnreachableError
        If nobody says so for a while.
    """
    topic, began = watch.address.path, time.monotonic()
    watch.stopping.begin()
    while time.monotonic() - began < _PATIENCE:
        known = _find_committed(consumer, watch, place(topic, partition)) if group is not None else -1
        watch.check()
        watch.stopping.check(str(watch.address))
        if known is not None and known >= 0:
            return known
        if known is not None and start == "earliest":
            return OFFSET_BEGINNING
        # A number, not "the end": after a kill the end will be elsewhere.
        ends = find_ends(consumer, topic, partition) if known is not None else None
        if ends is not None:
            return ends[1]
        time.sleep(_PAUSE)
    raise UnreachableError(
        f"{watch.address} did not say within {_PATIENCE:.0f} s where {partition} begins"
    )


def _find_committed(consumer: Consumer, watch: Watch, where: TopicPartition) -> int | None:
    """Return how far the group is, -1 if it never was there, or None if nobody says."""
    try:
        (found,) = consumer.committed([where], timeout=_ANSWER)
    except KafkaException as error:
        watch.on_error(error.args[0])
        return None
    if found.error is not None:
        watch.on_error(found.error)
        return None
    return max(int(found.offset), -1)
