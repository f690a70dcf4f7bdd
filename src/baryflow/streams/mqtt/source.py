"""Messages to batches: nothing is acknowledged before it is safe, and nothing is taken twice."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Protocol

from baryflow.exceptions import InvalidInputError, UnreachableError
from baryflow.streams.base import Batch
from baryflow.streams.mqtt.acks import Debts
from baryflow.streams.mqtt.clients import Session
from baryflow.streams.mqtt.connection import Connection
from baryflow.streams.mqtt.dedup import Taken, Window
from baryflow.streams.mqtt.queue import Confirmed, Delivery, Inbox, Item, Lost, Lowered, Opened
from baryflow.streams.urls import Address, Credentials
from baryflow.validation import as_count

#: Messages that are remembered, for each that may be unconfirmed: a broker that is killed forgets what
#: it heard last, and delivers more of them again.
_REMEMBERED = 2


class Maker(Protocol):
    """Makes batches of messages."""

    columns: list[str]

    def limit(self, n: int, inflight: int) -> int:
        """Return how many messages make a batch of `n` rows, at most."""

    def batch(self, deliveries: list[Delivery], n: int, cursor: dict[str, Any]) -> Batch:
        """Return the batch that messages make."""

    def resume(self, cursor: dict[str, Any]) -> None:
        """Go on from a cursor."""

    @property
    def waiting(self) -> bool:
        """Whether there are rows already, without another message."""


@dataclass(frozen=True)
class _Gathered:
    deliveries: list[Delivery]
    notices: list[str]


class MqttSource:
    """Rows from a broker.

    Parameters
    ----------
    address : Address
    credentials : Credentials
    session : Session
    inbox : Inbox
    maker : Maker
    idle : float, optional
        Seconds without a message after which ``read`` returns what there is.
    """

    def __init__(
        self, address: Address, credentials: Credentials, session: Session, inbox: Inbox, maker: Maker,
        idle: float | None,
    ) -> None:  # fmt: skip
        self._address, self._session = address, session
        self._inbox, self._maker, self._idle = inbox, maker, idle
        self._window = Window(_REMEMBERED * session.inflight)
        self._backlog: deque[Delivery] = deque()
        self._debts = Debts()
        self._taken = 0  # messages so far
        self._resumed = False
        self._lost: Lost | None = None
        self._unsure = False  # whether a message without guarantee has come
        self._error: UnreachableError | None = None
        self._connection = Connection(address, credentials, session, inbox)
        self._connection.start()

    @property
    def columns(self) -> list[str]:
        """The columns that are wanted: messages may have others, which nobody knows before they come."""
        return list(self._maker.columns)

    @property
    def wanted(self) -> list[str]:
        """The columns of the rows."""
        return list(self._maker.columns)

    def read(self, n: int, timeout: float | None = None) -> Batch | None:
        """Return the next rows; there is no end."""
        n = as_count(n, "n")
        self._give_up()
        gathered = self._gather(self._maker.limit(n, self._session.inflight), timeout)
        if not gathered.deliveries:
            self._give_up()
        cursor = {
            "topic": self._address.path,
            "client": self._session.client,
            "taken": self._taken,
            "confirmed": self._debts.confirmed,
            "window": self._window.write(),
        }
        batch = self._maker.batch(gathered.deliveries, n, cursor)
        return replace(batch, notices=[*gathered.notices, *batch.notices])

    def _give_up(self) -> None:
        if self._error is not None:
            raise self._error

    def seek(self, cursor: dict[str, Any]) -> None:
        """Go on after a batch that was read in an earlier life: what is delivered again is known."""
        for name, value in (("topic", self._address.path), ("client", self._session.client)):
            if cursor.get(name) != value:
                raise InvalidInputError(
                    f"what was kept is of {name} {cursor.get(name)!r}, not {value!r}: go on with that, "
                    "or start anew"
                )
        self._taken = self._debts.safe = int(cursor["taken"])
        self._debts.confirmed = int(cursor["confirmed"])
        self._window.read(str(cursor["window"]))
        self._maker.resume(cursor)
        self._resumed = True

    def acknowledge(self, cursor: dict[str, Any]) -> None:
        """Tell the broker that it need not keep the messages up to a batch."""
        self._debts.safe = max(self._debts.safe, int(cursor["taken"]))
        self._debts.pay(self._connection)

    def close(self) -> None:
        """Say goodbye; the broker keeps what comes from now on."""
        self._connection.close()

    # -- messages --------------------------------------------------------------------------------------

    def _gather(self, limit: int, timeout: float | None) -> _Gathered:
        """Wait for messages: until there are enough, or long enough."""
        gathered, repeated = _Gathered([], []), 0
        until: float | None = 0.0 if self._maker.waiting else None
        while len(gathered.deliveries) < limit and self._error is None:
            item = self._next(_wait(until, self._idle))
            if item is None:
                break
            if not isinstance(item, Delivery):
                gathered.notices.extend(self._note(item))
            elif self._is_new(item):
                gathered.deliveries.append(item)
                if not item.mid and not self._unsure:
                    self._unsure = True
                    gathered.notices.append(
                        f"messages on {item.topic} are published with QoS 0: what is sent while "
                        "somebody is away is lost; publish with QoS 1"
                    )
            else:
                repeated += 1
            if until is None and timeout is not None and gathered.deliveries:
                until = time.monotonic() + timeout
            if gathered.notices and not gathered.deliveries:
                until = 0.0  # people should know at once
        self._debts.pay(self._connection)
        if repeated:
            words = "1 message was" if repeated == 1 else f"{repeated} messages were"
            gathered.notices.append(f"{words} delivered a second time, and passed over")
        return gathered

    def _next(self, timeout: float | None) -> Item | None:
        """Return what came next; messages stay behind while too many are not confirmed."""
        if self._backlog and not self._is_full():
            return self._backlog.popleft()
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._debts.pay(self._connection)
            item = self._inbox.get(None if until is None else max(0.0, until - time.monotonic()))
            if isinstance(item, Confirmed):
                self._debts.confirm(item.connection)
                if self._backlog and not self._is_full():
                    return self._backlog.popleft()
            elif isinstance(item, Delivery):
                if item.again:
                    self._debts.doubt()
                if not self._is_full() or self._find(item) is not None:
                    return item
                self._backlog.append(item)
            else:
                return item

    def _is_full(self) -> bool:
        """Whether so many messages are not confirmed that one more may not be recognised again.

        This counts on from life to life: a broker that is slow may not have read what the last one sent.
        """
        return self._taken - self._debts.confirmed >= self._session.inflight

    def _is_new(self, item: Delivery) -> bool:
        """Return whether a message was not taken before; it must be acknowledged some time, or again."""
        known = self._find(item)
        new = known is None
        if known is None:
            self._taken += 1
            known = Taken(item.mid, item.digest, bool(item.name), self._taken)
            self._window.add(known)
        if item.mid:
            self._debts.owe(known.number, item.connection, item.mid)
        return new

    def _find(self, item: Delivery) -> Taken | None:
        """Return the message that this one repeats, if it repeats one."""
        return self._window.find(item.mid, item.digest, named=bool(item.name), again=item.again)

    def _note(self, item: Item) -> list[str]:
        """Take note of what happened to the connection, and say it."""
        if isinstance(item, UnreachableError):
            self._error = item
        elif isinstance(item, Lowered):
            return [f"{self._address}: the broker promises less than QoS 1: messages may be lost"]
        elif isinstance(item, Lost):
            self._lost = item
            return [f"{self._address}: the connection is lost ({item.words}); trying again"]
        elif isinstance(item, Opened):
            self._debts.begin(item.connection)
            return self._reopen(item)
        return []

    def _reopen(self, item: Opened) -> list[str]:
        said = []
        if self._lost is not None:
            said.append(f"{self._address}: connected again after {item.at - self._lost.at:.1f} s")
        known = self._lost is not None or self._resumed
        self._lost, self._resumed = None, False
        if not item.session:
            self._window.forget_identifiers()
            if known:
                said.append(
                    f"{self._address}: the broker has forgotten the session {self._session.client!r}: "
                    "what was sent before now and not read is lost; see docs/mosquitto.conf"
                )
        return said


def _wait(until: float | None, idle: float | None) -> float | None:
    """Return how many seconds to wait for the next message; None for ever."""
    if until is None:
        return idle
    return max(0.0, until - time.monotonic())
