"""What Kafka consumers and producers share: settings, logging, and the state of the cluster."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.backoff import Backoff
from baryflow.streams.urls import Endpoint

PORT = 9092
#: Seconds for which an answer is waited for when a topic is opened.
PATIENCE = 10.0
#: Seconds between checks whether a lost cluster is back.
_CHECK = 1.0
_ANSWER = 0.3
#: Seconds in which the same notice is not repeated.
_REPEAT = 60.0
#: Timeout for the id of a topic, in seconds.
_TOPIC_ID = 30.0
_SECURITY = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
#: Authorisation errors, and what is not permitted.
_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "use this topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "join this group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "use this cluster",
}


class Client(Protocol):
    """What consumers and producers can both do."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the metadata of a topic."""

    def poll(self, timeout: float = -1) -> Any:
        """Run callbacks that are due."""


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


class TopicId:
    """The id of a topic, requested in the background.

    A topic that is deleted and created again gets another id. The id stays unknown if the cluster is too
    old to have ids, or does not answer.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        quiet = {"logger": MaskingLogger(endpoint.credentials.password), "error_cb": lambda _: None}
        self._admin: AdminClient | None = AdminClient(settings(endpoint) | quiet)
        answers = self._admin.describe_topics(
            TopicCollection([endpoint.path]), request_timeout=_TOPIC_ID
        )
        self._answer: Future[Any] = answers[endpoint.path]
        self._found: str | None = None

    @property
    def pending(self) -> bool:
        """Whether there is no answer yet."""
        return self._admin is not None

    def get(self, timeout: float = 0.0) -> str | None:
        """Return the id, or None if it is unknown or does not arrive in time."""
        if self._admin is not None:
            try:
                found = self._answer.result(timeout)
            except TimeoutError:
                return None
            except KafkaException:
                found = None
            text = str(getattr(found, "topic_id", None) or "")
            self._found = text if text.strip("A") else None  # all zeros: the cluster has no ids
            self._admin = None  # closes its connections
        return self._found


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

    def check_return(self, client: Client) -> None:
        """If the cluster is away, check whether it is back, and report for how long it was away."""
        now = time.monotonic()
        if self._away_since is None or now - self._checked < _CHECK:
            return
        self._checked = now
        try:
            client.list_topics(self.endpoint.path, timeout=_ANSWER)
        except KafkaException:
            return
        away = time.monotonic() - self._away_since
        self.notices.append(f"{self.endpoint} is back after {away:.0f} s")
        self._away_since = None

    def find_partitions(self, client: Client) -> list[int] | None:
        """Return the partitions of the topic, or None if no broker answers; raise if it does not exist.

        Once the cluster is known to be away, it is asked once a second, and nothing is waited for.
        """
        topic, missing, began = self.endpoint.path, False, time.monotonic()
        was_away = self.away
        if was_away and began - self._checked < _CHECK:
            client.poll(0)
            self.check()
            return None
        self._checked = began
        while time.monotonic() - began < PATIENCE:
            try:
                found = client.list_topics(topic, timeout=_ANSWER).topics[topic]
            except KafkaException:
                found = None
            client.poll(0)  # runs on_error; no message can arrive before a subscription
            self.check()
            if found is not None and found.error is None and found.partitions:
                self.notices = [f"{self.endpoint} answers now"] if was_away else []
                self._away_since = None
                return sorted(found.partitions)
            if found is not None and found.error is not None:
                self.on_error(found.error)
                self.check()
                missing = found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if missing and time.monotonic() - began > 1.0:  # a new topic takes a moment to be known
                break
            if self.away and not missing:
                break
            time.sleep(0.1)
        if missing:
            raise InvalidInputError(f"{self.endpoint} has no topic {topic!r}: create it first")
        hint = self._hint or (
            "; it may require a user and a password"
            if self.endpoint.scheme == "kafka+ssl"
            else "; if the port uses TLS, use kafka+ssl://"
        )
        if not was_away:
            self._away_since = self._away_since or time.monotonic()
            self.notices = [f"no broker of {self.endpoint} answers{hint}; retrying"]
        return None


def check_endpoint(endpoint: Endpoint, *known: str) -> None:
    """Refuse a URL without a topic, or with unknown options."""
    endpoint.check_options(*known, "security", "mechanism", several=True)
    if not endpoint.path or "/" in endpoint.path:
        raise InvalidInputError(f"expected one topic, as in kafka://host:9092/topic, got {endpoint}")
