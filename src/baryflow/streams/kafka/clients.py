"""What reading from and writing to Kafka have in common: how to get in, and what goes wrong there."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.stopping import Stopping
from baryflow.streams.urls import Address, Credentials

PORT = 9092
#: Seconds in which some broker must answer at the start.
PATIENCE = 10.0
#: Seconds from one look whether a lost cluster is back to the next.
_LOOK = 1.0
_ANSWER = 0.3
#: Seconds in which the same notice is not given twice.
_REPEAT = 60.0
#: Seconds for which the id of a topic is asked for.
_TOPIC_ID = 30.0
_SECURITY = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
#: What a broker answers to those whom it knows and does not let in.
_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "use this topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "be in this group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "use this cluster",
}


class Client(Protocol):
    """What consumers and producers can both do."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return what the cluster says of a topic."""

    def poll(self, timeout: float = -1) -> Any:
        """Run callbacks that are due."""


def settings(address: Address, credentials: Credentials) -> dict[str, Any]:
    """Return how librdkafka is to get in; certificates are always verified."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    found: dict[str, Any] = {
        "bootstrap.servers": ",".join((f"{host}:{address.port or PORT}", *address.more)),
        "client.id": "baryflow",
        "socket.timeout.ms": 10_000,  # a network that drops everything is noticed within this time
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 5_000,
        "topic.metadata.refresh.interval.ms": 60_000,
    }
    security = _security(address, credentials)
    found["security.protocol"] = security
    if security.startswith("sasl"):
        usual = "PLAIN" if security == "sasl_ssl" else "SCRAM-SHA-512"
        found["sasl.mechanism"] = address.option("mechanism", usual).upper()
        if found["sasl.mechanism"] not in _MECHANISMS:
            raise InvalidInputError(f"mechanism must be one of {', '.join(_MECHANISMS)}")
        found["sasl.username"], found["sasl.password"] = credentials.username, credentials.password
    if security.endswith("ssl"):
        found["enable.ssl.certificate.verification"] = True
        found["ssl.endpoint.identification.algorithm"] = "https"  # the certificate names the host
        files = {
            "ssl.ca.location": credentials.ca_file,
            "ssl.certificate.location": credentials.cert_file,
            "ssl.key.location": credentials.key_file,
        }
        found |= {name: path for name, path in files.items() if path is not None}
    return found


def _security(address: Address, credentials: Credentials) -> str:
    known = credentials.username is not None
    encrypted = address.scheme == "kafka+ssl"
    security = address.options.get("security", "").lower()
    if not security:
        if known and not encrypted:
            raise InvalidInputError(
                "credentials name a user, but kafka:// is not encrypted: write kafka+ssl://, or, in a "
                "network that you trust, ?security=sasl_plaintext; ?security=plaintext leaves them out"
            )
        security = ("sasl_ssl" if known else "ssl") if encrypted else "plaintext"
    if security not in _SECURITY:
        raise InvalidInputError(f"security must be one of {', '.join(_SECURITY)}, got {security!r}")
    if encrypted and not security.endswith("ssl"):
        raise InvalidInputError(f"kafka+ssl:// is encrypted, but security={security} is not")
    if security.startswith("sasl") and (not known or credentials.password is None):
        raise InvalidInputError(
            f"security={security} needs a user and a password: put them into BARYFLOW_USERNAME and "
            f"BARYFLOW_PASSWORD, or into a file"
        )
    if "mechanism" in address.options and not security.startswith("sasl"):
        raise InvalidInputError(f"mechanism is for security=sasl_ssl or sasl_plaintext, not {security}")
    return security


class Quiet:
    """Hands what librdkafka says to Python's logging, without the password, instead of printing it.

    Parameters
    ----------
    password : str or None
    """

    def __init__(self, password: str | None) -> None:
        self._password = password
        self._logger = logging.getLogger("baryflow.kafka")
        if not self._logger.handlers:
            self._logger.addHandler(logging.NullHandler())

    def log(self, level: int, words: str, *details: Any) -> None:
        """Hand over a message, as a logger does."""
        text = words % details if details else words
        # What librdkafka takes for an error is most often a broker that will be back.
        self._logger.log(min(level, logging.INFO), "%s", self.mask(text))

    def mask(self, text: str) -> str:
        """Return a text in which the password does not stand."""
        return text.replace(self._password, "***") if self._password else text


class TopicId:
    """The id that the cluster has given to the topic of an address, asked for in the background.

    A topic that is deleted and created again has another id. Old clusters have no ids, and one that is
    away does not answer: then it is not known.

    Parameters
    ----------
    address : Address
    credentials : Credentials
    """

    def __init__(self, address: Address, credentials: Credentials) -> None:
        quiet = {"logger": Quiet(credentials.password), "error_cb": lambda _: None}
        self._admin: AdminClient | None = AdminClient(settings(address, credentials) | quiet)
        asked = self._admin.describe_topics(TopicCollection([address.path]), request_timeout=_TOPIC_ID)
        self._asked: Future[Any] = asked[address.path]
        self._found: str | None = None

    @property
    def pending(self) -> bool:
        """Whether there is no answer yet."""
        return self._admin is not None

    def get(self, timeout: float = 0.0) -> str | None:
        """Return the id, or None if the broker does not answer in time."""
        if self._admin is not None:
            try:
                found = self._asked.result(timeout)
            except TimeoutError:
                return None
            except KafkaException:
                found = None
            text = str(getattr(found, "topic_id", None) or "")
            self._found = text if text.strip("A") else None  # only zeros: none was given
            self._admin = None  # lets go of its connections
        return self._found


class Watch:
    """Knows from librdkafka's errors whether the cluster is there, and whether it lets us in.

    Parameters
    ----------
    address : Address
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.stopping = Stopping()
        self.notices: list[str] = []
        self._refusal: str | None = None
        self._hint = ""
        self._away: float | None = None
        self._looked = 0.0
        self._told: dict[str, float] = {}

    @property
    def away(self) -> bool:
        """Whether no broker answers."""
        return self._away is not None

    def on_error(self, error: KafkaError) -> None:
        """Take note of an error; librdkafka calls it from poll."""
        code, words = error.code(), error.str()
        if code == KafkaError._AUTHENTICATION:  # noqa: SLF001 - librdkafka's own codes begin so
            self._refusal = (
                f"{self.address} does not let us in: it refuses the user, the password or the way in "
                f"which they are sent (option mechanism)"
            )
        elif "certificate verify failed" in words:
            self._refusal = (
                f"the certificate of {self.address} is not trusted: name the file of its authority as "
                f"ca_file or in BARYFLOW_CA_FILE, and the host as the certificate does"
            )
        elif code in _FORBIDDEN:
            self._refusal = f"we are not allowed to {_FORBIDDEN[code]}: {self.address}"
        elif error.fatal():
            self._refusal = f"{self.address} cannot be gone on with: {error.name()}"
        elif code == KafkaError._ALL_BROKERS_DOWN and self._away is None:  # noqa: SLF001
            self._away = time.monotonic()
            self.notices.append(f"no broker of {self.address} answers; trying again until one does")
        elif "SSL handshake failed" in words:
            self._hint = "; it may not speak TLS there"

    def tell(self, notice: str) -> None:
        """Have people told something, once in a while if it is always the same."""
        now = time.monotonic()
        self._told = {old: at for old, at in self._told.items() if now - at < _REPEAT}
        if notice not in self._told:
            self._told[notice] = now
            self.notices.append(notice)

    def check(self) -> None:
        """Raise what cannot become better by waiting."""
        if self._refusal is not None:
            raise UnreachableError(self._refusal)

    def look(self, client: Client) -> None:
        """If the cluster is away, see whether it is back, and say how long it was away."""
        now = time.monotonic()
        if self._away is None or now - self._looked < _LOOK:
            return
        self._looked = now
        try:
            client.list_topics(self.address.path, timeout=_ANSWER)
        except KafkaException:
            return
        away = time.monotonic() - self._away
        self.notices.append(f"{self.address} is back, {away:.0f} s after it was found to be away")
        self._away = None

    def describe(self, client: Client) -> list[int]:
        """Return the partitions of the topic, as soon as a broker tells them.

        Raises
        ------
        InvalidInputError
            If there is no such topic.
        UnreachableError
            If nobody answers for a while, or we are not let in.
        """
        topic, missing, began = self.address.path, False, time.monotonic()
        while time.monotonic() - began < PATIENCE:
            try:
                found = client.list_topics(topic, timeout=1.0).topics[topic]
            except KafkaException:
                found = None
            client.poll(0)  # runs on_error; nothing is subscribed to yet, so no message can come
            self.check()
            if found is not None and found.error is None and found.partitions:
                self._away, self.notices = None, []
                return sorted(found.partitions)
            if found is not None and found.error is not None:
                self.on_error(found.error)
                self.check()
                missing = found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if (
                missing and time.monotonic() - began > 1.0
            ):  # one just made is not known everywhere at once
                break
            time.sleep(0.1)
        if missing:
            raise InvalidInputError(f"there is no topic {topic!r} in {self.address}: make it first")
        hint = self._hint or self._guess()
        raise UnreachableError(f"no broker of {self.address} answered within {PATIENCE:.0f} s{hint}")

    def _guess(self) -> str:
        if self.address.scheme == "kafka+ssl":
            return "; it may want a user and a password"
        return "; if it speaks TLS there, write kafka+ssl://"


def check_address(address: Address, *known: str) -> None:
    """Refuse a URL without a topic, or with options that are not known."""
    address.check_options(*known, "security", "mechanism", several=True)
    if not address.path or "/" in address.path:
        raise InvalidInputError(f"expected one topic, as in kafka://host:9092/topic, got {address}")
