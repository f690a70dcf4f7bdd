"""The Kafka transport: ``kafka://`` and ``kafka+ssl://``, rows from a topic and records to one.

A source reads all partitions of a topic, or those that a consumer group assigns to this process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
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
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.backoff import SLICE, Backoff
from baryflow.streams.base import Assigned, Batch, MessageSink, Revoked, Source
from baryflow.streams.brokers import LabelDecoder, Message, MessageDecoder
from baryflow.streams.registry import SourceOptions
from baryflow.streams.sinks import encode_record
from baryflow.streams.urls import Endpoint

_log = logging.getLogger("baryflow.streams")


def open_source(endpoint: Endpoint, options: SourceOptions) -> KafkaSource:
    """Open a topic whose messages are rows, ``kafka://host:9092/topic`` or ``kafka+ssl://``.

    The URL options are ``group``, ``start``, ``session``, ``security`` and ``mechanism``.
    """
    _check_endpoint(endpoint, "group", "start", "session")
    if options.columns is None:
        raise InvalidInputError("Kafka messages have no header: name the columns")
    if options.sample_interval is not None or options.tags is not None:
        raise InvalidInputError("each Kafka message is a row: leave out sample interval and tags")
    return KafkaSource(endpoint, options)


def open_sink(endpoint: Endpoint) -> KafkaSink:
    """Open a topic for records, one message each.

    The URL options are ``security`` and ``mechanism``.
    """
    _check_endpoint(endpoint)
    return KafkaSink(endpoint)


def _check_endpoint(endpoint: Endpoint, *known: str) -> None:
    """Refuse a URL without a topic, or with unknown options."""
    endpoint.check_options(*known, "security", "mechanism", several=True)
    if not endpoint.path or "/" in endpoint.path:
        raise InvalidInputError(f"expected one topic, as in kafka://host:9092/topic, got {endpoint}")


# -- the cluster ---------------------------------------------------------------------------------------

PORT = 9092
#: Seconds for which an answer is waited for when a topic is opened.
PATIENCE = 10.0
#: Seconds between checks whether a lost cluster is back.
_CHECK = 1.0
_ANSWER = 0.3
#: Seconds in which the same notice is not repeated.
_REPEAT = 60.0
#: Seconds per request about a topic or its partitions.
_REQUEST = 5.0
_SECURITY = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
#: Authorisation errors, and what is not permitted.
_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "use this topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "join this group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "use this cluster",
}


def settings(endpoint: Endpoint) -> dict[str, Any]:
    """Return the connection settings of librdkafka; certificates are always verified."""
    found: dict[str, Any] = {
        "bootstrap.servers": ",".join(
            (f"{endpoint.bracketed_host}:{endpoint.port or PORT}", *endpoint.more)
        ),
        "client.id": "baryflow",
        "socket.timeout.ms": 10_000,  # detects a network that drops everything
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 5_000,
        "topic.metadata.refresh.interval.ms": 60_000,
    }
    security = _security(endpoint)
    found["security.protocol"] = security
    if security.startswith("sasl"):
        default = "PLAIN" if security == "sasl_ssl" else "SCRAM-SHA-512"
        found["sasl.mechanism"] = endpoint.option("mechanism", default).upper()
        if found["sasl.mechanism"] not in _MECHANISMS:
            raise InvalidInputError(f"mechanism must be one of {', '.join(_MECHANISMS)}")
        found["sasl.username"], found["sasl.password"] = (
            endpoint.credentials.username,
            endpoint.credentials.password,
        )
    if security.endswith("ssl"):
        found["enable.ssl.certificate.verification"] = True
        found["ssl.endpoint.identification.algorithm"] = "https"  # verify the host name
        files = {
            "ssl.ca.location": endpoint.credentials.ca_file,
            "ssl.certificate.location": endpoint.credentials.cert_file,
            "ssl.key.location": endpoint.credentials.key_file,
        }
        found |= {name: path for name, path in files.items() if path is not None}
    return found


def _security(endpoint: Endpoint) -> str:
    has_user = endpoint.credentials.username is not None
    encrypted = endpoint.scheme == "kafka+ssl"
    security = endpoint.options.get("security", "").lower()
    if not security:
        if has_user and not encrypted:
            raise InvalidInputError(
                "credentials name a user, but kafka:// is not encrypted: use kafka+ssl://, or "
                "?security=sasl_plaintext in a trusted network, or ?security=plaintext to ignore them"
            )
        security = ("sasl_ssl" if has_user else "ssl") if encrypted else "plaintext"
    if security not in _SECURITY:
        raise InvalidInputError(f"security must be one of {', '.join(_SECURITY)}, got {security!r}")
    if encrypted and not security.endswith("ssl"):
        raise InvalidInputError(f"kafka+ssl:// is encrypted, but security={security} is not")
    if security.startswith("sasl") and (not has_user or endpoint.credentials.password is None):
        raise InvalidInputError(
            f"security={security} needs a user and a password: set username and password in the "
            "credentials of this cluster"
        )
    if "mechanism" in endpoint.options and not security.startswith("sasl"):
        raise InvalidInputError(f"mechanism is for security=sasl_ssl or sasl_plaintext, not {security}")
    return security


class MaskingLogger:
    """Sends librdkafka's log to the logger ``baryflow.kafka``, not to stderr, without the password."""

    def __init__(self, password: str | None) -> None:
        self._password = password
        self._logger = logging.getLogger("baryflow.kafka")
        if not self._logger.handlers:
            self._logger.addHandler(logging.NullHandler())

    def log(self, level: int, message: str, *details: Any) -> None:
        """Log a message, at most at level INFO: most errors are brokers that come back."""
        text = message % details if details else message
        self._logger.log(min(level, logging.INFO), "%s", self.mask(text))

    def mask(self, text: str) -> str:
        """Return the text without the password."""
        return text.replace(self._password, "***") if self._password else text


def find_topic_id(endpoint: Endpoint) -> str | None:
    """Return the id of a topic: one that is deleted and created again gets another.

    The id is unknown if the cluster is too old to have ids, or does not answer.
    """
    quiet = {"logger": MaskingLogger(endpoint.credentials.password), "error_cb": lambda _: None}
    admin = AdminClient(settings(endpoint) | quiet)
    topics = TopicCollection([endpoint.path])
    try:
        found = admin.describe_topics(topics, request_timeout=_REQUEST)[endpoint.path].result(_REQUEST)
    except (KafkaException, TimeoutError):
        return None
    text = str(found.topic_id or "")
    return text if text.strip("A") else None  # all zeros: the cluster has no ids


class ClusterMonitor:
    """Learns from librdkafka's errors whether the cluster is reachable and grants access."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.backoff = Backoff(endpoint, endpoint.policy)
        self.notices: list[str] = []
        self._refusal: str | None = None
        self._hint = ""
        self._away_since: float | None = None
        self._checked = 0.0
        self._notified: dict[str, float] = {}

    @property
    def away(self) -> bool:
        """Whether no broker answers."""
        return self._away_since is not None

    def on_error(self, error: KafkaError) -> None:
        """Handle an error; librdkafka calls this from poll."""
        code, text = error.code(), error.str()
        if code == KafkaError._AUTHENTICATION:  # noqa: SLF001 - librdkafka's own codes begin so
            self._refusal = (
                f"{self.endpoint} denies access: check user, password and the option mechanism"
            )
        elif "certificate verify failed" in text:
            self._refusal = (
                f"the certificate of {self.endpoint} is not trusted: set ca_file in its credentials to "
                f"its authority, and use the host name that is in the certificate"
            )
        elif code in _FORBIDDEN:
            self._refusal = f"not permitted to {_FORBIDDEN[code]}: {self.endpoint}"
        elif error.fatal():
            self._refusal = f"cannot continue with {self.endpoint}: {error.name()}"
        elif code == KafkaError._ALL_BROKERS_DOWN and self._away_since is None:  # noqa: SLF001
            self._away_since = time.monotonic()
            self.notices.append(f"no broker of {self.endpoint} answers; retrying")
        elif "SSL handshake failed" in text:
            self._hint = "; the port may not use TLS"

    def notify(self, notice: str) -> None:
        """Add a notice, unless the same one was added recently."""
        now = time.monotonic()
        self._notified = {old: at for old, at in self._notified.items() if now - at < _REPEAT}
        if notice not in self._notified:
            self._notified[notice] = now
            self.notices.append(notice)

    def check(self) -> None:
        """Raise an error that waiting does not resolve."""
        if self._refusal is not None:
            raise UnreachableError(self._refusal)

    def _find_topic(self, client: Consumer | Producer) -> Any:
        """Return the metadata of the topic, or None if no broker answers."""
        self._checked = time.monotonic()
        try:
            return client.list_topics(self.endpoint.path, timeout=_ANSWER).topics[self.endpoint.path]
        except KafkaException:
            return None

    def _is_pause(self) -> bool:
        """Return whether the cluster is known to be away, and was asked less than a second ago."""
        return self._away_since is not None and time.monotonic() - self._checked < _CHECK

    def _report_return(self) -> None:
        if self._away_since is not None:
            away = time.monotonic() - self._away_since
            self.notices.append(f"{self.endpoint} is back after {away:.0f} s")
        self._away_since = None

    def check_return(self, client: Consumer) -> None:
        """If the cluster is away, check whether it is back, and report for how long it was away."""
        if (
            self._away_since is not None
            and not self._is_pause()
            and self._find_topic(client) is not None
        ):
            self._report_return()

    def find_partitions(self, client: Consumer | Producer) -> list[int] | None:
        """Return the partitions of the topic, or None if no broker answers; raise if it does not exist.

        Once the cluster is known to be away, it is asked once a second, and nothing is waited for.
        """
        missing, began = False, time.monotonic()
        was_away, asked = self.away, not self._is_pause()
        while asked and time.monotonic() - began < PATIENCE:
            found = self._find_topic(client)
            client.poll(0)  # runs on_error; no message can arrive before a subscription
            self.check()
            if found is not None and found.error is None and found.partitions:
                if not was_away:
                    self.notices, self._away_since = [], None
                self._report_return()
                return sorted(found.partitions)
            if found is not None and found.error is not None:
                self.on_error(found.error)
                self.check()
                missing = found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if missing and time.monotonic() - began > 1.0:  # a new topic takes a moment to be known
                raise InvalidInputError(
                    f"{self.endpoint} has no topic {self.endpoint.path!r}: create it first"
                )
            if self.away and not missing:
                break
            time.sleep(0.1)
        client.poll(0)
        self.check()
        if not was_away:
            hint = self._hint or (
                "; it may require a user and a password"
                if self.endpoint.scheme == "kafka+ssl"
                else "; if the port uses TLS, use kafka+ssl://"
            )
            self._away_since = self._away_since or time.monotonic()
            self.notices = [f"no broker of {self.endpoint} answers{hint}; retrying"]
        return None


# -- source --------------------------------------------------------------------------------------------

#: Seconds that a batch may take, learning included, before Kafka reassigns our partitions.
_LONGEST_BATCH = 1800
#: Seconds between checks for new partitions.
_REFRESH = 60.0
#: Seconds that leaving the group may take; the group detects absent members by itself.
_LEAVE = 5.0
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

    def make_batch(self, n: int, notices: list[str]) -> Batch:
        """Return the first `n` messages as a batch."""
        first = [self._waiting.popleft() for _ in range(min(n, len(self._waiting)))]
        if first:
            self.since = time.monotonic()
        for partition, offset, _ in first:
            self.offsets[partition] = offset + 1
        batch = self.decoder.batch([message for _, _, message in first])
        held, self.held = self.held, False
        cursor = {"offsets": dict(self.offsets), "position": self.decoder.position}
        if self.topic_id is not None:
            cursor["topic_id"] = self.topic_id
        notices = [*notices, *batch.notices]
        return replace(batch, cursor=cursor, notices=notices, held=held, partition=self.name)


class KafkaSource(Source):
    """Reads a topic.

    By default it reads all partitions, counts their messages together and joins no group; its cursor
    alone determines where to resume. After :meth:`attach` it is a member of a group and reads the
    partitions that the group assigns to it. Each batch is from one partition then, or has only notices
    and the partition ``""``.
    """

    def __init__(self, endpoint: Endpoint, options: SourceOptions) -> None:
        self._start = endpoint.option("start", "earliest")
        if self._start not in ("earliest", "latest"):
            raise InvalidInputError(f"start must be earliest or latest, got {self._start!r}")
        session = endpoint.int_option("session", 45, 1, _LONGEST_BATCH)
        self._columns = list(options.columns or ())
        self._options, self._idle = options, options.idle
        self._topic, self._group = endpoint.path, endpoint.options.get("group") or None
        self._buffers = {"": self._make_buffer("")}  # raises at once if columns are invalid
        self._next: dict[str, int] = {}  # partition → the next message to fetch
        self._hooks: tuple[Assigned, Revoked] | None = None
        self._failure: Exception | None = None
        self._begun = self._closed = False
        self._topic_id: str | None = None
        self._finding = threading.Thread()
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

        Both functions are called in the thread of :meth:`read`, which raises their errors.
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
        self._request_id()
        if self._hooks is None:
            self._identify(_REQUEST)
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
        place = _topic_partition(self._topic, partition)
        if self._group is not None:
            (found,) = self._request(lambda: self._consumer.committed([place], timeout=_REQUEST))
            if found.offset >= 0:
                return int(found.offset)
        if self._start == "earliest":
            return OFFSET_BEGINNING
        # A number instead of "the end", because the end is different after a kill.
        _, end = self._request(lambda: self._consumer.get_watermark_offsets(place, timeout=_REQUEST))
        return int(end)

    def _request(self, request: Callable[[], Iterable[Any]]) -> Any:
        """Return the answer to a request, which is repeated until a broker gives one."""
        monitor = self._monitor
        monitor.backoff.begin()
        while True:
            try:
                answer = request()
                error = next((one.error for one in answer if isinstance(one, TopicPartition)), None)
            except KafkaException as failure:
                error = failure.args[0]
            if error is None:
                return answer
            monitor.on_error(error)
            monitor.check()
            monitor.backoff.sleep()

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
                self._buffers[name] = self._make_buffer(name)
                if cursor is not None:
                    self._buffers[name].resume(cursor, self._topic)
            self._identify(_REQUEST)
            for one in assigned:
                name = _name_partition(one.topic, one.partition)
                self._add_partition(self._buffers[name], name)
            self._fetch()
        except Exception as error:  # librdkafka would swallow it; `read` raises it
            self._failure = error

    def _revoke(self, _: Consumer, revoked: list[TopicPartition]) -> None:
        for one in revoked:
            self._give_up(_name_partition(one.topic, one.partition))

    def _give_up(self, name: str) -> None:
        self._next.pop(name, None)
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
            self._monitor.check()
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
            message = self._consumer.poll(SLICE if self._idle is None else min(SLICE, self._idle))
            if self._begun:
                self._monitor.check_return(self._consumer)
                self._refresh()
            if message is not None and message.error() is not None:
                self._handle_error(message)
            elif message is not None:
                self._put(message)
                last = time.monotonic()

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
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _refresh(self) -> None:
        """Look now and then for a recreated topic and, without a group, for new partitions."""
        if time.monotonic() - self._refreshed < _REFRESH or self._monitor.away:
            return
        self._refreshed = time.monotonic()
        self._request_id()
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

    def _request_id(self) -> None:
        """Request the id of the topic, in a thread of its own, because some clusters never answer."""

        def find() -> None:
            self._topic_id = find_topic_id(self._endpoint)

        if not self._finding.is_alive():
            self._finding = threading.Thread(target=find, name="id of a Kafka topic", daemon=True)
            self._finding.start()

    def _identify(self, timeout: float = 0.0) -> None:
        """Refuse a topic that was recreated since it was read.

        Before anything is read, wait for its id if there is one to compare it with.
        """
        if timeout and any(buffer.topic_id for buffer in self._buffers.values()):
            self._finding.join(timeout)
        found = self._topic_id
        for buffer in self._buffers.values() if found is not None else ():
            if buffer.topic_id not in (None, found):
                raise InvalidInputError(
                    f"the topic {self._topic} was deleted and recreated since it was read: its id was "
                    f"{buffer.topic_id} and is {found}; {_USE_OTHERS}"
                )
            buffer.topic_id = found

    def _skip_deleted(self, name: str) -> None:
        """Continue after messages that Kafka has deleted, and report how many."""
        place, expected = _topic_partition(self._topic, name), self._next[name]
        first, end = self._request(lambda: self._consumer.get_watermark_offsets(place, timeout=_REQUEST))
        if expected > end:
            raise InvalidInputError(
                f"{name} ends at {end}, but was read up to {expected} before: the topic was "
                f"recreated; {_USE_OTHERS}"
            )
        if first > expected:
            self._monitor.notify(
                f"{first - max(expected, 0)} messages of {name} were deleted before they were read"
            )
            self._next[name] = first
        self._fetch()

    # -- closing ---------------------------------------------------------------------------------------

    def acknowledge(self, cursor: dict[str, Any]) -> None:
        """Commit offsets to the group, for monitoring; only our own cursor decides where to resume."""
        offsets = {name: at for name, at in cursor.get("offsets", {}).items() if name in self._next}
        if self._group is None or not offsets:
            return
        try:
            self._consumer.commit(offsets=_topic_partitions(self._topic, offsets), asynchronous=True)
        except KafkaException as error:
            self._committed(error.args[0])

    def _committed(self, error: KafkaError | None, _: Any = None) -> None:
        """Report an error of a commit, which the next one makes good; `poll` calls this."""
        if error is not None and error.code() not in _REBALANCING and not self._monitor.away:
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
        self._raise_failure()


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


# -- sink ----------------------------------------------------------------------------------------------

#: Most messages that wait to be sent; with more, `write` waits too.
_QUEUE = 10_000


class KafkaSink(MessageSink):
    """Sends a message for each record, with the key of the record if it has one.

    A cluster that is away is waited for without limit, until the process is asked to stop.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._monitor = ClusterMonitor(endpoint)
        self._failure: str | None = None
        self._topic = endpoint.path
        self._producer = Producer(
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
        producer = self._producer
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
        producer = self._producer
        self._monitor.backoff.begin()
        while producer.flush(SLICE):
            self._check()
            self._monitor.backoff.check()
        self._check()

    def close(self, finished: bool = True) -> None:
        """Wait until everything is acknowledged, if not `finished` only for a few seconds, and close."""
        try:
            if finished:
                self.flush()
            else:
                self._producer.flush(self._monitor.endpoint.policy.grace)
        finally:
            self._release()

    def _release(self) -> None:
        self._producer.purge()
        self._producer.flush(1.0)

    def _delivered(self, error: KafkaError | None, _: KafkaMessage) -> None:
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
