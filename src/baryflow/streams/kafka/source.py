"""Rows from a Kafka topic: all partitions, or those that a consumer group assigns to this process."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import Message as KafkaMessage

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Assigned, Batch, Revoked, Source
from baryflow.streams.brokers import LabelDecoder, Message, MessageDecoder
from baryflow.streams.kafka.clients import (
    ClusterMonitor,
    MaskingLogger,
    TopicId,
    check_endpoint,
    settings,
)
from baryflow.streams.registry import SourceOptions
from baryflow.streams.urls import Endpoint

#: Seconds that a batch may take, learning included, before Kafka reassigns our partitions.
_LONGEST_BATCH = 1800
#: Seconds per call of librdkafka; signals are handled between calls.
_SLICE = 0.2
#: Seconds between checks for new partitions.
_REFRESH = 60.0
#: Seconds to wait for the id of a topic, if there is one to compare it with.
_IDENTIFY = 5.0
#: Seconds that leaving the group may take; the group detects absent members by itself.
_LEAVE = 5.0
#: Seconds per request where a partition begins.
_ANSWER = 5.0
#: Commit errors that pass once the group has rebalanced.
_REBALANCING = (
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
)
_USE_OTHERS = "use another checkpoint and another group to read the new one"


@dataclass
class _Buffer:
    """Messages of partitions that are counted together: of a whole topic, or of one partition."""

    name: str  # of the partition; "" for the whole topic
    decoder: MessageDecoder | LabelDecoder
    #: Partition → the next message after the batches that were returned.
    offsets: dict[str, int] = field(default_factory=dict)
    #: Whether the offsets hold more than could be found out again.
    held: bool = False
    #: Whether the offsets are from the cursor of an earlier process, and so are complete.
    resumed: bool = field(default=False, init=False)
    topic_id: str | None = field(default=None, init=False)
    since: float = field(default=0.0, init=False)
    _waiting: deque[tuple[str, int, Message]] = field(default_factory=deque, init=False)

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, partition: str, message: KafkaMessage) -> None:
        """Add a message for the next batch."""
        if not self._waiting:
            self.since = time.monotonic()
        offset = message.offset() or 0
        self._waiting.append((partition, offset, _convert(message, offset)))

    def is_ready(self, n: int, timeout: float | None, now: float, idle: bool) -> bool:
        """Return whether to make a batch of `n` rows now."""
        late = timeout is not None and now - self.since >= timeout
        return self.held or len(self) >= n or (len(self) > 0 and (late or idle))

    def resume(self, cursor: dict[str, Any], topic: str) -> None:
        """Continue after a batch of an earlier process."""
        offsets, position = cursor.get("offsets"), cursor.get("position", 0)
        if (
            not isinstance(offsets, dict)
            or not isinstance(position, int)
            or not all(isinstance(offset, int) and offset >= 0 for offset in offsets.values())
        ):
            raise InvalidInputError(
                "cannot resume: the checkpoint holds no Kafka offsets; use another checkpoint folder"
            )
        foreign = [name for name in offsets if not _is_partition(name, topic)]
        if foreign or (self.name and set(offsets) - {self.name}):
            raise InvalidInputError(
                f"cannot resume: the checkpoint is of {', '.join(offsets)}, not {self.name or topic}; "
                f"name the topic that was read then, or use another checkpoint folder"
            )
        self.offsets, self.decoder.position, self.resumed = dict(offsets), position, True
        self.topic_id = cursor.get("topic_id")

    def cursor(self) -> dict[str, Any]:
        """Return where to resume after the batches that were returned."""
        found = {"offsets": dict(self.offsets), "position": self.decoder.position}
        return found if self.topic_id is None else found | {"topic_id": self.topic_id}

    def make_batch(self, n: int, notices: list[str]) -> Batch:
        """Return the first `n` messages as a batch."""
        first = [self._waiting.popleft() for _ in range(min(n, len(self._waiting)))]
        if first:
            self.since = time.monotonic()
        for partition, offset, _ in first:
            self.offsets[partition] = offset + 1
        batch = self.decoder.batch([message for _, _, message in first])
        held, self.held = self.held, False
        return replace(batch, cursor=self.cursor(), notices=notices, held=held, partition=self.name)


class KafkaSource(Source):
    """Reads a topic.

    By default it reads all partitions, counts their messages together and joins no group; its cursor
    alone determines where to resume. After :meth:`attach` it is a member of a group and reads the
    partitions that the group assigns to it. Each batch is from one partition then, or has only notices
    and the partition ``""``.
    """

    def __init__(self, endpoint: Endpoint, options: SourceOptions) -> None:
        check_endpoint(endpoint, "group", "start", "session")
        if options.columns is None:
            raise InvalidInputError("Kafka messages have no header: name the columns")
        if options.sample_interval is not None or options.tags is not None:
            raise InvalidInputError("each Kafka message is a row: leave out sample interval and tags")
        self._start = endpoint.option("start", "earliest")
        if self._start not in ("earliest", "latest"):
            raise InvalidInputError(f"start must be earliest or latest, got {self._start!r}")
        session = endpoint.int_option("session", 45, 1, _LONGEST_BATCH)
        self._columns = list(options.columns)
        self._options, self._idle = options, options.idle
        self._topic, self._group = endpoint.path, endpoint.options.get("group") or None
        self._buffers = {"": self._make_buffer("")}  # raises at once if columns are invalid
        self._next: dict[str, int] = {}  # partition → the next message to fetch
        self._acknowledged: dict[str, int] = {}
        self._hooks: tuple[Assigned, Revoked] | None = None
        self._failure: Exception | None = None
        self._begun = self._closed = False
        self._refreshed = time.monotonic()
        self._endpoint, self._monitor = endpoint, ClusterMonitor(endpoint)
        self._consumer = Consumer(
            settings(endpoint)
            | {
                "group.id": self._group or "baryflow",  # required even if unused
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",  # never skip messages silently
                "partition.assignment.strategy": "range",
                "session.timeout.ms": session * 1000,
                "heartbeat.interval.ms": max(session * 1000 // 10, 100),
                "max.poll.interval.ms": _LONGEST_BATCH * 1000,
                "fetch.message.max.bytes": 262_144,  # small, so that partitions alternate
                "queued.min.messages": 1_000,
                "queued.max.messages.kbytes": 16_384,
                "error_cb": self._monitor.on_error,
                "on_commit": self._committed,
                "logger": MaskingLogger(endpoint.credentials.password),
            }
        )
        try:
            self._partitions = self._monitor.find_partitions(self._consumer)
        except BaseException:
            self._consumer.close()
            raise
        self._topic_id = TopicId(self._endpoint)

    @property
    def columns(self) -> list[str]:
        """The selected columns; messages may have others, which are not known in advance."""
        return self._columns

    @property
    def wanted(self) -> list[str]:
        """The columns of the rows."""
        return self._columns

    @property
    def shared(self) -> bool:
        """Whether the topic is read by a group."""
        return self._group is not None

    @property
    def reached(self) -> bool:
        """Whether the cluster has answered at least once."""
        return self._begun

    def stop_when(self, stop: Callable[[], bool]) -> None:
        """Do not wait long for the broker once `stop` returns True."""
        self._monitor.backoff.stop = stop

    # -- where to start --------------------------------------------------------------------------------

    def attach(self, assigned: Assigned, revoked: Revoked) -> None:
        """Share the topic with the other members of its group.

        Both functions are called by :meth:`read` (`revoked` also by :meth:`close`), in its thread, which
        raises their errors. `assigned` gets the name of a partition that this process now owns, and
        returns the cursor of its last batch on disk, or None if it was never read. `revoked` gets the
        name of a partition before it is given up, and also after it was lost, when another member may
        own it already.
        """
        if self._group is None:
            raise InvalidInputError("a topic is shared in a group: add ?group=NAME to the URL")
        if self._begun:
            raise InvalidInputError("attach must be called before the first read")
        self._hooks = (assigned, revoked)
        self._buffers.clear()

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume all partitions after a batch of an earlier process."""
        if self._hooks is not None or self._begun:
            raise InvalidInputError("seek must be called before the first read, and not after attach")
        self._buffers[""].resume(cursor, self._topic)

    def _begin(self) -> None:
        """Begin to read if the cluster answers."""
        self._partitions = self._partitions or self._monitor.find_partitions(self._consumer)
        if self._partitions is None:
            return
        self._begun = True
        if not self._topic_id.pending:  # no answer while the cluster was away
            self._topic_id = TopicId(self._endpoint)
        if self._hooks is None:
            self._identify(wait=True)
            for number in self._partitions:
                self._add_partition(self._buffers[""], _name_partition(self._topic, number))
            self._fetch()
        else:
            self._consumer.subscribe(
                [self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke
            )

    def _make_buffer(self, name: str) -> _Buffer:
        options = self._options
        if options.labels is not None:
            return _Buffer(name, LabelDecoder(options.labels))
        return _Buffer(name, MessageDecoder(self.wanted, options.time, options.key))

    def _add_partition(self, buffer: _Buffer, partition: str) -> None:
        """Determine where to start reading a partition."""
        start = buffer.offsets.get(partition)
        if start is None and buffer.resumed:
            start = OFFSET_BEGINNING  # the cursor is complete, so nothing of this partition was read
        if start is None:
            start = self._find_start(partition)
            if start >= 0:
                buffer.offsets[partition] = start
                buffer.held = True
        self._next[partition] = start

    def _find_start(self, partition: str) -> int:
        """Return where to start an unread partition: at the group's offset, or at ``start``."""
        monitor = self._monitor
        monitor.backoff.begin()
        while True:
            committed = self._find_committed(partition) if self._group is not None else -1
            monitor.check()
            monitor.backoff.check()
            if committed is not None and committed >= 0:
                return committed
            if committed is not None and self._start == "earliest":
                return OFFSET_BEGINNING
            # A number instead of "the end", because the end is different after a kill.
            ends = self._find_ends(partition) if committed is not None else None
            if ends is not None:
                return ends[1]
            monitor.backoff.sleep()

    def _find_committed(self, partition: str) -> int | None:
        """Return the group's offset, -1 if it has none, or None if the broker does not answer."""
        try:
            (found,) = self._consumer.committed(
                [_topic_partition(self._topic, partition)], timeout=_ANSWER
            )
        except KafkaException as error:
            self._monitor.on_error(error.args[0])
            return None
        if found.error is not None:
            self._monitor.on_error(found.error)
            return None
        return max(int(found.offset), -1)

    def _find_ends(self, partition: str) -> tuple[int, int] | None:
        """Return the first offset of a partition and the one after its last; None without an answer."""
        try:
            ends: tuple[int, int] | None = self._consumer.get_watermark_offsets(
                _topic_partition(self._topic, partition), timeout=_ANSWER
            )
        except KafkaException:
            return None
        return ends

    def _fetch(self) -> None:
        """Fetch all our partitions from their next message."""
        self._consumer.assign(_topic_partitions(self._topic, self._next))

    # -- the group -------------------------------------------------------------------------------------

    def _assign(self, _: Consumer, assigned: list[TopicPartition]) -> None:
        hooks = self._hooks
        if hooks is None or self._closed or self._failure is not None:
            return
        try:
            for one in assigned:
                name = _name_partition(one.topic, one.partition)
                cursor = hooks[0](name)
                buffer = self._buffers[name] = self._make_buffer(name)
                if cursor is not None:
                    buffer.resume(cursor, self._topic)
                self._identify(wait=True)
                self._add_partition(buffer, name)
            self._fetch()
        except Exception as error:  # librdkafka would swallow it; `read` raises it
            self._failure = error

    def _revoke(self, _: Consumer, revoked: list[TopicPartition]) -> None:
        for one in revoked:
            self._give_up(_name_partition(one.topic, one.partition))

    def _give_up(self, name: str) -> None:
        self._next.pop(name, None)
        self._acknowledged.pop(name, None)
        if self._buffers.pop(name, None) is not None and self._hooks is not None:
            try:
                self._hooks[1](name)
            except Exception as error:  # the other partitions must be given up, too
                self._failure = self._failure or error

    # -- reading ---------------------------------------------------------------------------------------

    def read(self, n: int, timeout: float | None = None) -> Batch:
        """Return the next `n` rows, or fewer if they do not arrive in time; the stream never ends."""
        last = time.monotonic()
        while True:
            if not self._begun:
                self._begin()
            self._raise_failure()
            self._identify()
            now = time.monotonic()
            idle = self._idle is not None and now - last >= self._idle
            ready = [one for one in self._buffers.values() if one.is_ready(n, timeout, now, idle)]
            if ready:  # the one that has waited longest
                return min(ready, key=lambda buffer: buffer.since).make_batch(n, self._pop_notices())
            if idle or self._monitor.notices:
                buffer = self._make_buffer("") if self._hooks is not None else self._buffers[""]
                return buffer.make_batch(0, self._pop_notices())
            message = self._consumer.poll(_SLICE if self._idle is None else min(_SLICE, self._idle))
            if self._begun:
                self._monitor.check_return(self._consumer)
                self._refresh()
            if message is not None and message.error() is not None:
                self._handle_error(message)
            elif message is not None:
                self._put(message)
                last = time.monotonic()
            else:
                self._check_ends()

    def _put(self, message: KafkaMessage) -> None:
        name = _name_partition(message.topic() or "", message.partition() or 0)
        offset = message.offset() or 0
        if name in self._next and offset >= self._next[name]:
            self._next[name] = offset + 1
            self._buffers[name if self._hooks is not None else ""].put(name, message)

    def _pop_notices(self) -> list[str]:
        notices, self._monitor.notices = self._monitor.notices, []
        return notices

    def _raise_failure(self) -> None:
        self._monitor.check()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _refresh(self) -> None:
        """Look for new partitions now and then; in a group, Kafka does that."""
        if time.monotonic() - self._refreshed < _REFRESH:
            return
        self._refreshed = time.monotonic()
        if not self._topic_id.pending:
            self._topic_id = TopicId(self._endpoint)
        if self._hooks is not None:
            return
        try:
            found = self._consumer.list_topics(self._topic, timeout=1.0).topics[self._topic]
        except KafkaException:
            return
        new = [_name_partition(self._topic, number) for number in found.partitions]
        new = [name for name in new if name not in self._next]
        if new:
            # All their messages are newer than our start.
            self._next |= dict.fromkeys(new, OFFSET_BEGINNING)
            self._monitor.notify(f"also reading new partitions: {', '.join(sorted(new))}")
            self._fetch()

    def _handle_error(self, message: KafkaMessage) -> None:
        """Handle an error that was delivered instead of a message."""
        error = message.error()
        if error is None:
            return
        name = _name_partition(message.topic() or "", message.partition() or 0)
        if error.code() == KafkaError._AUTO_OFFSET_RESET and name in self._next:  # noqa: SLF001
            self._skip_deleted(name)
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED:  # noqa: SLF001
            self._monitor.notify(
                f"a batch took longer than {_LONGEST_BATCH} s: our partitions were reassigned"
            )
        else:
            self._monitor.on_error(error)
            self._monitor.check()
            self._monitor.notify(f"Kafka reports {error.name()}; retrying")

    def _identify(self, wait: bool = False) -> None:
        """Refuse a topic that was recreated since it was read, as soon as its id is known.

        With `wait`, before anything is read, wait for the id if there is one to compare it with.
        """
        wait = wait and any(buffer.topic_id for buffer in self._buffers.values())
        found = self._topic_id.get(_IDENTIFY if wait else 0.0)
        if found is None:
            return
        for buffer in self._buffers.values():
            if buffer.topic_id not in (None, found):
                raise InvalidInputError(
                    f"the topic {self._topic} was deleted and recreated since it was read: its id was "
                    f"{buffer.topic_id} and is {found}; {_USE_OTHERS}"
                )
            buffer.topic_id = found

    def _check_ends(self) -> None:
        """Detect a topic that ends before our position, even if no broker complains."""
        for name, expected in self._next.items():
            # The cached answer costs no request, but may be older than what was read.
            end = self._consumer.get_watermark_offsets(_topic_partition(self._topic, name), cached=True)
            if end is not None and 0 <= end[1] < expected:
                self._require_within(name, self._find_ends(name))

    def _require_within(self, name: str, ends: tuple[int, int] | None) -> None:
        expected = self._next[name]
        if ends is not None and expected > ends[1]:
            raise InvalidInputError(
                f"{name} ends at {ends[1]}, but was read up to {expected} before: the topic was "
                f"recreated; {_USE_OTHERS}"
            )

    def _skip_deleted(self, name: str) -> None:
        """Continue after messages that Kafka has deleted, and report how many."""
        expected, ends = self._next[name], self._find_ends(name)
        self._require_within(name, ends)
        if ends is not None and ends[0] > expected:
            self._monitor.notify(
                f"{ends[0] - max(expected, 0)} messages of {name} were deleted before they were read"
            )
            self._next[name] = ends[0]
        self._fetch()

    # -- closing ---------------------------------------------------------------------------------------

    def acknowledge(self, cursor: dict[str, Any]) -> None:
        """Commit offsets to the group, for monitoring; only our own cursor decides where to resume."""
        new = {
            name: at
            for name, at in cursor.get("offsets", {}).items()
            if name in self._next and at > self._acknowledged.get(name, -1)
        }
        if self._group is None or not new:
            return
        self._acknowledged |= new
        try:
            self._consumer.commit(offsets=_topic_partitions(self._topic, new), asynchronous=True)
        except KafkaException as error:
            self._committed(error.args[0], _topic_partitions(self._topic, new))

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Handle the result of a commit; librdkafka calls this from poll."""
        if error is None:
            return
        for one in partitions:
            self._acknowledged.pop(_name_partition(one.topic, one.partition), None)
        if error.code() not in _REBALANCING and not self._monitor.away:
            self._monitor.notify(
                f"offsets could not be committed to the group ({error.name()}); nothing is lost"
            )

    def close(self) -> None:
        """Give up all partitions, and leave the group."""
        if self._closed:
            return
        self._closed = True
        for name in list(self._buffers):
            self._give_up(name)
        # While no broker answers, librdkafka waits without limit for the last commit.
        leaving = threading.Thread(target=self._consumer.close, name="leave Kafka", daemon=True)
        leaving.start()
        leaving.join(_LEAVE)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure


def _name_partition(topic: str, partition: int) -> str:
    """Return the name of a partition: ``plant-3``."""
    return f"{topic}-{partition}"


def _is_partition(name: str, topic: str) -> bool:
    head, _, tail = name.rpartition("-")
    return head == topic and tail.isascii() and tail.isdecimal()


def _topic_partition(topic: str, name: str, offset: int = OFFSET_INVALID) -> TopicPartition:
    return TopicPartition(topic, int(name.rpartition("-")[2]), offset)


def _topic_partitions(topic: str, offsets: Mapping[str, int]) -> list[TopicPartition]:
    return [_topic_partition(topic, name, offset) for name, offset in offsets.items()]


def _convert(message: KafkaMessage, offset: int) -> Message:
    return Message(
        payload=_as_bytes(message.value()),
        offset=f"{message.partition()}:{offset}",
        time=_time(*message.timestamp()),
        properties={
            "@topic": message.topic() or "",
            "@key": _as_bytes(message.key()).decode("utf-8", "replace"),
        },
    )


def _as_bytes(value: bytes | str | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def _time(kind: int, milliseconds: int) -> str:
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, OSError, ValueError):
        return ""  # producers can set any number
