"""Rows from a topic: all of it, or the partitions that a group of processes leaves to this one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Delivered

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Batch
from baryflow.streams.kafka.buffers import Lane, name_partition
from baryflow.streams.kafka.clients import Quiet, TopicId, Watch, check_address, settings
from baryflow.streams.kafka.offsets import find_ends, find_start, place, places
from baryflow.streams.messages import Messages
from baryflow.streams.transports import Wanted
from baryflow.streams.urls import Address, Credentials

#: Seconds that a batch may take, learning included, before Kafka gives our partitions to others.
_LONGEST_BATCH = 1800
#: Seconds for which librdkafka is waited for at a time: signals are seen in between.
_SLICE = 0.2
#: Seconds from one look for new partitions to the next.
_REFRESH = 60.0
#: Seconds for which the id of a topic is waited for, if it was known before.
_IDENTIFY = 5.0
#: Seconds for which leaving may take; the group notices by itself who is gone.
_LEAVE = 5.0
#: Why a group cannot be told how far we are while it shares out its partitions anew.
_PASSING = (
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
)

_INSTEAD = "use another checkpoint and another group to read the new one"

Assigned = Callable[[str], dict[str, Any] | None]
Revoked = Callable[[str], None]


class KafkaSource:
    """Reads a topic.

    By itself it reads all partitions, into batches that are counted together, and is in no group: its
    cursor alone says where to go on. After :meth:`attach` it is a member of a group, reads the
    partitions that the group leaves to it, and each batch is from one of them, its shard.

    A batch that has notices only, while attached, is of no shard: its shard is ``""``.

    Parameters
    ----------
    address : Address
    credentials : Credentials
    wanted : Wanted
    """

    def __init__(self, address: Address, credentials: Credentials, wanted: Wanted) -> None:
        check_address(address, "group", "start", "session")
        if wanted.columns is None:
            raise InvalidInputError("messages of Kafka have no header: name the columns")
        if wanted.every is not None or wanted.tags is not None:
            raise InvalidInputError("each message of Kafka is a row: leave out every and tags")
        self._start = address.option("start", "earliest")
        if self._start not in ("earliest", "latest"):
            raise InvalidInputError(f"start must be earliest or latest, got {self._start!r}")
        session = address.option("session", "45")
        if not session.isdecimal() or not 1 <= int(session) <= _LONGEST_BATCH:
            raise InvalidInputError(f"session must be 1 to {_LONGEST_BATCH} seconds, got {session!r}")
        self.columns = self.wanted = list(wanted.columns)
        self._spec, self._idle = wanted, wanted.idle
        self._topic, self._group = address.path, address.options.get("group") or None
        self.shared = self._group is not None  # whether `attach` should be called
        self._lanes: dict[str, Lane] = {}
        self._next: dict[str, int] = {}  # partition → the message to be fetched next
        self._acknowledged: dict[str, int] = {}
        self._hooks: tuple[Assigned, Revoked] | None = None
        self._failure: Exception | None = None
        self._begun = self._closed = False
        self._refreshed = time.monotonic()
        self._lane("")  # also says at once if columns are wrong
        self._watch = Watch(address)
        self._place = address, credentials
        self._consumer = Consumer(
            settings(address, credentials)
            | {
                "group.id": self._group or "baryflow",  # librdkafka wants one, be it unused
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",  # never jump in silence
                "partition.assignment.strategy": "range",
                "session.timeout.ms": int(session) * 1000,
                "heartbeat.interval.ms": max(int(session) * 1000 // 10, 100),
                "max.poll.interval.ms": _LONGEST_BATCH * 1000,
                "fetch.message.max.bytes": 262_144,  # small helpings: partitions take turns
                "queued.min.messages": 1_000,
                "queued.max.messages.kbytes": 16_384,
                "error_cb": self._watch.on_error,
                "on_commit": self._committed,
                "logger": Quiet(credentials.password),
            }
        )
        try:
            self._partitions = self._watch.describe(self._consumer)
        except BaseException:
            self._consumer.close()
            raise
        self._topic_id = TopicId(*self._place)

    def heed(self, stop: Callable[[], bool]) -> None:
        """Do not wait long for the broker once `stop` returns True."""
        self._watch.stopping.stop = stop

    # -- where to read ---------------------------------------------------------------------------

    def attach(self, assigned: Assigned, revoked: Revoked) -> None:
        """Share the topic with the other members of its group.

        Both are called from :meth:`read` (and `revoked` from :meth:`close`), in its thread; what they
        raise comes out of it.

        Parameters
        ----------
        assigned : callable
            Called with the name of a partition that is ours from now on; returns the cursor of the last
            batch that was kept of it, or None if it was never read.
        revoked : callable
            Called with the name of a partition before it is given away, and also if it was lost, when
            another member may have it already.

        Raises
        ------
        InvalidInputError
            If the address names no group, or reading has begun.
        """
        if self._group is None:
            raise InvalidInputError("a topic is shared in a group: add ?group=NAME to the address")
        if self._begun:
            raise InvalidInputError("a topic can be shared only before it is read")
        self._hooks = (assigned, revoked)
        self._lanes.clear()

    def seek(self, cursor: dict[str, Any]) -> None:
        """Go on after a batch of an earlier life, in all partitions."""
        if self._hooks is not None or self._begun:
            raise InvalidInputError("an attached or begun source is told by its hooks where to go on")
        self._lanes[""].restore(cursor, self._topic)

    def _begin(self) -> None:
        self._begun = True
        if self._hooks is None:
            self._identify(wait=True)
            for number in self._partitions:
                self._enter(self._lanes[""], name_partition(self._topic, number))
            self._fetch()
        else:
            self._consumer.subscribe(
                [self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke
            )

    def _lane(self, name: str) -> Lane:
        spec = self._spec
        self._lanes[name] = Lane(name, Messages(self.wanted, spec.time, spec.key))
        return self._lanes[name]

    def _enter(self, lane: Lane, partition: str) -> None:
        """Find out where a partition begins for us."""
        where = lane.offsets.get(partition)
        if where is None and lane.restored:
            where = OFFSET_BEGINNING  # nothing of it was read, whatever the group was told by others
        if where is None:
            where = find_start(self._consumer, self._watch, partition, self._group, self._start)
            if where >= 0:
                lane.offsets[partition] = where
                lane.held = True
        self._next[partition] = where

    def _fetch(self) -> None:
        """Fetch all partitions that are ours from where they are to be gone on with."""
        self._consumer.assign(places(self._topic, self._next))

    # -- the group -------------------------------------------------------------------------------

    def _assign(self, _: Consumer, given: list[TopicPartition]) -> None:
        hooks = self._hooks
        if hooks is None or self._closed or self._failure is not None:
            return
        try:
            for one in given:
                name = name_partition(one.topic, one.partition)
                cursor = hooks[0](name)
                lane = self._lane(name)
                if cursor is not None:
                    lane.restore(cursor, self._topic)
                self._identify(wait=True)
                self._enter(lane, name)
            self._fetch()
        except Exception as error:  # raised by read, where it is seen
            self._failure = error

    def _revoke(self, _: Consumer, taken: list[TopicPartition]) -> None:
        for one in taken:
            self._give_back(name_partition(one.topic, one.partition))

    def _give_back(self, name: str) -> None:
        self._next.pop(name, None)
        self._acknowledged.pop(name, None)
        if self._lanes.pop(name, None) is not None and self._hooks is not None:
            try:
                self._hooks[1](name)
            except Exception as error:  # the others must be given back, too
                self._failure = self._failure or error

    # -- reading ---------------------------------------------------------------------------------

    def read(self, n: int, timeout: float | None = None) -> Batch:
        """Return the next `n` rows, or fewer if they do not come in time; there is no end."""
        if not self._begun:
            self._begin()
        came = time.monotonic()
        while True:
            self._raise()
            self._identify()
            now = time.monotonic()
            tired = self._idle is not None and now - came >= self._idle
            ready = [lane for lane in self._lanes.values() if _is_ready(lane, n, timeout, now, tired)]
            if ready:  # who has waited longest comes first
                return min(ready, key=lambda lane: lane.since).take(n, self._notices())
            if tired or self._watch.notices:
                return self._empty()
            message = self._consumer.poll(_SLICE if self._idle is None else min(_SLICE, self._idle))
            self._watch.look(self._consumer)
            self._refresh()
            if message is not None and message.error() is not None:
                self._trouble(message)
            elif message is not None:
                self._put(message)
                came = time.monotonic()
            else:
                self._check_ends()

    def _put(self, message: Delivered) -> None:
        name = name_partition(message.topic() or "", message.partition() or 0)
        offset = message.offset() or 0
        if name in self._next and offset >= self._next[name]:
            self._next[name] = offset + 1
            self._lanes[name if self._hooks is not None else ""].put(name, message)

    def _empty(self) -> Batch:
        """Return a batch without rows, which may have something to say."""
        if self._hooks is None:
            return self._lanes[""].take(0, self._notices())
        nobody = Lane("", Messages(self.wanted, self._spec.time, self._spec.key))
        return nobody.take(0, self._notices())

    def _notices(self) -> list[str]:
        notices, self._watch.notices = self._watch.notices, []
        return notices

    def _raise(self) -> None:
        self._watch.check()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _refresh(self) -> None:
        """See whether the topic has new partitions; in a group Kafka does that."""
        if time.monotonic() - self._refreshed < _REFRESH:
            return
        self._refreshed = time.monotonic()
        if not self._topic_id.pending:
            self._topic_id = TopicId(*self._place)
        if self._hooks is not None:
            return
        try:
            found = self._consumer.list_topics(self._topic, timeout=1.0).topics[self._topic]
        except KafkaException:
            return
        new = [name_partition(self._topic, number) for number in found.partitions]
        new = [name for name in new if name not in self._next]
        if new:
            # All that is in them came after we began.
            self._next |= dict.fromkeys(new, OFFSET_BEGINNING)
            self._watch.tell(f"new partitions are read, too: {', '.join(sorted(new))}")
            self._fetch()

    def _trouble(self, message: Delivered) -> None:
        """Do what can be done about an error that came instead of a message."""
        error = message.error()
        if error is None:
            return
        name = name_partition(message.topic() or "", message.partition() or 0)
        if error.code() == KafkaError._AUTO_OFFSET_RESET and name in self._next:  # noqa: SLF001
            self._leap(name)
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED:  # noqa: SLF001
            self._watch.tell(
                f"a batch took longer than {_LONGEST_BATCH} s: our partitions were given to others"
            )
        else:
            self._watch.on_error(error)
            self._watch.check()
            self._watch.tell(f"Kafka says {error.name()}; trying again")

    def _identify(self, wait: bool = False) -> None:
        """Refuse a topic that is not the one read before, as soon as its id is known.

        With `wait`, before anything is read, wait for it if there is one to compare it with.
        """
        wait = wait and any(lane.topic_id for lane in self._lanes.values())
        found = self._topic_id.get(_IDENTIFY if wait else 0.0)
        if found is None:
            return
        for lane in self._lanes.values():
            if lane.topic_id not in (None, found):
                raise InvalidInputError(
                    f"the topic {self._topic} was deleted and recreated since it was read: its id was "
                    f"{lane.topic_id} and is {found}; {_INSTEAD}"
                )
            lane.topic_id = found

    def _check_ends(self) -> None:
        """Notice a topic that ends before what was read of it, also if no broker complains of that."""
        for name, expected in self._next.items():
            # What the last answer has told, without asking; it may be older than what was read.
            end = self._consumer.get_watermark_offsets(place(self._topic, name), cached=True)
            if end is not None and 0 <= end[1] < expected:
                self._require_before(name, find_ends(self._consumer, self._topic, name))

    def _require_before(self, name: str, ends: tuple[int, int] | None) -> None:
        expected = self._next[name]
        if ends is not None and expected > ends[1]:
            raise InvalidInputError(
                f"{name} ends at {ends[1]}, but was read up to {expected} before: the topic was "
                f"recreated; {_INSTEAD}"
            )

    def _leap(self, name: str) -> None:
        """Continue behind messages that Kafka has deleted, and say so."""
        expected, ends = self._next[name], find_ends(self._consumer, self._topic, name)
        self._require_before(name, ends)
        if ends is not None and ends[0] > expected:
            self._watch.tell(
                f"{ends[0] - max(expected, 0)} messages of {name} were deleted before they were read"
            )
            self._next[name] = ends[0]
        self._fetch()

    # -- letting go ------------------------------------------------------------------------------

    def acknowledge(self, cursor: dict[str, Any]) -> None:
        """Tell the group how far we are, for others to see; our own cursor says where we go on."""
        new = {
            name: at
            for name, at in cursor.get("offsets", {}).items()
            if name in self._next and at > self._acknowledged.get(name, -1)
        }
        if self._group is None or not new:
            return
        self._acknowledged |= new
        try:
            self._consumer.commit(offsets=places(self._topic, new), asynchronous=True)
        except KafkaException as error:
            self._committed(error.args[0], places(self._topic, new))

    def _committed(self, error: KafkaError | None, told: list[TopicPartition]) -> None:
        """Take note that the group does not know yet; librdkafka calls it from poll."""
        if error is None:
            return
        for one in told:
            self._acknowledged.pop(name_partition(one.topic, one.partition), None)
        if error.code() not in _PASSING and not self._watch.away:
            self._watch.tell(
                f"the group was not told how far we are ({error.name()}); nothing is lost by that"
            )

    def close(self) -> None:
        """Give all partitions back, and leave the group."""
        if self._closed:
            return
        self._closed = True
        for name in list(self._lanes):
            self._give_back(name)
        # While no broker answers, librdkafka waits for one that takes the last commit, for ever.
        leaving = threading.Thread(target=self._consumer.close, name="leave Kafka", daemon=True)
        leaving.start()
        leaving.join(_LEAVE)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure


def _is_ready(lane: Lane, n: int, timeout: float | None, now: float, tired: bool) -> bool:
    late = timeout is not None and now - lane.since >= timeout
    return lane.held or len(lane) >= n or (len(lane) > 0 and (late or tired))
