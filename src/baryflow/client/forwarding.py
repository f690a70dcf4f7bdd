"""``forward``: send the rows of a source to a service, which has the models.

With a checkpoint each batch is on disk before it is sent, and keeps its id when it is sent again: a
killed process resends what may not have arrived, and the service counts it once. Rows that the service
would never accept are quarantined, and forwarding continues with the next ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from baryflow.client.client import Client
from baryflow.exceptions import InvalidInputError, RefusedError, StoppedError
from baryflow.runtime import Loop, Rows, Store
from baryflow.runtime.loop import attempt
from baryflow.runtime.session import by_key, rows_of
from baryflow.runtime.store import Entry
from baryflow.streams import Batch, Rejected, Sink, Source
from baryflow.validation import TARGET_NAME, is_target_name

#: Requests to one target between two commits, which may be sent again after a kill; the service
#: remembers the ids of more.
EVERY = 32
#: Statuses that concern the rows themselves and would be the same next time: not JSON, too large, or
#: not usable. Any other refusal concerns the URL, the model or the limits of the service. It needs a
#: decision by the operator and ends the process; no row is lost.
_BAD_ROWS = {400, 413, 422}
_SHOWN = 80
#: The rows of a batch that were refused, and the answers to the others.
_Sent = tuple[list[Rejected], list[dict[str, Any]]]


@dataclass
class Forwarded:
    """Counts of what was sent.

    Attributes
    ----------
    batches, rows : int
        That were sent.
    rejected : int
        Rows that were quarantined: they could not be used, or the service refused them.
    repeated : int
        Requests that the service had already answered before a restart.
    stopped : bool
        Whether forwarding was stopped before the service had all rows that were read.
    """

    batches: int = 0
    rows: int = 0
    rejected: int = 0
    repeated: int = 0
    stopped: bool = field(default=False, init=False)


def open_target(url: str, stop: Callable[[], bool] | None = None, **options: Any) -> tuple[Client, str]:
    """Return a client and the name of a target from a URL.

    Parameters
    ----------
    url : str
        ``http://host:port/NAME``; NAME may be missing if rows have keys.
    stop : callable, optional
        As for :class:`Client`.
    **options
        Passed to :class:`Client`.

    Returns
    -------
    client : Client
    name : str

    Raises
    ------
    InvalidInputError
        If the URL holds anything else.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is not a number
    except ValueError:  # its message may hold a piece of a password
        raise InvalidInputError("expected http://HOST:PORT/NAME with a number as the port") from None
    name = unquote(parts.path.strip("/"))
    if parts.query or parts.fragment or "@" in parts.netloc or "/" in name:
        raise InvalidInputError(
            f"expected {parts.scheme}://HOST:PORT/NAME with the name of a target and nothing else, got "
            f"{parts.path!r}; set a token with BARYFLOW_TOKEN"
        )
    return Client(f"{parts.scheme}://{parts.netloc}", stop=stop, **options), name


def forward(
    source: Source,
    client: Client,
    name: str,
    *,
    keyed: bool = False,
    columns: Sequence[str] | None = None,
    store: Store | None = None,
    read_size: int = 256,
    timeout: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    listen: Callable[[Batch, list[dict[str, Any]]], None] | None = None,
    quarantine: Sink | None = None,
) -> Forwarded:
    """Send the rows of a source to a service, until it ends or `stop` returns True.

    A row is quarantined if its key cannot be the name of a target, or if the service will never accept
    it. If the service is busy or unreachable, the request is retried.

    Parameters
    ----------
    source : Source
    client : Client
    name : str
        Of the target; rows with a key go to the target of that name.
    keyed : bool
        Whether rows have keys. A row with an empty key goes to the target `name`, if there is a name.
    columns : sequence of str, optional
        Names of the source's columns, which are matched with those of the service's model; without them
        they must be in the same order.
    store : Store, optional
        A new one, or the one of an earlier call.
    read_size : int
        Rows of a request, at most.
    timeout : float, optional
        Seconds after its first row after which an incomplete batch is sent.
    stop : callable
        Called before every batch.
    listen : callable, optional
        Called with every batch and the service's answers to it; its `rejected` holds all quarantined
        rows.
    quarantine : Sink, optional
        A record for every quarantined row.

    Returns
    -------
    Forwarded

    Raises
    ------
    InvalidInputError
        If there is neither a name nor a key, or the service refuses more than single rows, for instance
        because its model has other columns or it has no room for another target.
    UnreachableError
        If the service does not answer for long; with a store the same call resumes.
    """
    if not (name or keyed):
        raise InvalidInputError("expected the name of a target, or rows with keys (keyed=True)")
    forwarder = _Forwarder(client, name, columns, listen, quarantine)
    kept = Store(None) if store is None else store
    loop = Loop(forwarder, kept, {} if quarantine is None else {"quarantine": quarantine})
    try:
        loop.recover()
        if forwarder.cursor is not None:
            source.seek(forwarder.cursor)
        loop.follow(source, stop, read_size=read_size, timeout=timeout)
        loop.commit()
    except StoppedError:  # no commit: the batch is in the journal and will be sent again
        forwarder.counts.stopped = True
    finally:
        if store is None:
            kept.close()
    return forwarder.counts


class _Forwarder:
    """The application of the loop: sends batches."""

    owner = "forward"

    def __init__(
        self,
        client: Client,
        name: str,
        columns: Sequence[str] | None,
        listen: Callable[[Batch, list[dict[str, Any]]], None] | None,
        quarantine: Sink | None,
    ) -> None:
        self.counts = Forwarded()
        self.cursor: dict[str, Any] | None = None
        self.requests = 0  # to any one target since the last commit, at most
        self._client, self._name, self._listen, self._quarantine = client, name, listen, quarantine
        self._options = {} if columns is None else {"columns": list(columns)}
        self._id = uuid.uuid4().int % 2**52  # kept across restarts

    def apply(self, entry: Entry) -> _Sent:
        """Send a batch; its id is the same after a restart."""
        batch = entry.batch
        batch_id = f"{self._id:x}-{self.counts.batches}"
        answers: list[dict[str, Any]] = []
        refused: list[Rejected] = []
        named = replace(batch, keys=[key or self._name for key in batch.keys])
        most = 1
        for name, rows in by_key(named):
            before = len(answers)
            # Each target by itself: the service has the rows of others already.
            refused += attempt(partial(self._send, name, rows, batch_id, answers), rows.reject)
            most = max(most, len(answers) - before)
        self.requests += most
        return refused, answers

    def quarantine(self, entry: Entry, reason: str) -> _Sent:
        """Quarantine all rows of a batch."""
        return rows_of(entry.batch).reject(reason), []

    def finish(self, entry: Entry, result: _Sent) -> None:
        """Count a batch, and write its quarantined rows."""
        (refused, answers), batch = result, entry.batch
        counts = self.counts
        counts.repeated += sum(bool(answer["repeated"]) for answer in answers)
        counts.batches += 1
        counts.rows += len(batch.rows) - len(refused)
        rejected = sorted([*batch.rejected, *refused], key=lambda row: row.position)
        counts.rejected += len(rejected)
        self.cursor = batch.cursor
        if self._quarantine is not None and rejected:
            self._quarantine.write([asdict(row) for row in rejected])
        if self._listen is not None:
            self._listen(replace(batch, rejected=rejected), answers)

    def _send(
        self, name: str, rows: Rows, batch_id: str, answers: list[dict[str, Any]]
    ) -> list[Rejected]:
        """Send rows of one target, and return those that are refused; find them by halving."""
        if not name:
            return rows.reject("the key is empty, and the URL names no target")
        if not is_target_name(name):
            shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
            return rows.reject(
                f"the key {shown!r} is not a valid name of a target; allowed are 1 to 128 "
                f"letters, digits and . _ : @ - ({TARGET_NAME})"
            )
        times = rows.times if any(rows.times) else None
        try:
            answers.append(
                self._client.send(name, rows.values, times=times, batch_id=batch_id, **self._options)
            )
        except RefusedError as error:
            if error.reused_id is not None:
                raise InvalidInputError(
                    f"{name} has other rows under the id of this batch, {error.reused_id}: the "
                    "checkpoint is an old copy, or another process uses a copy of it; nothing was sent. "
                    "To send the rows all the same, begin with a new checkpoint"
                ) from error
            if error.status not in _BAD_ROWS:
                raise
            if len(rows) == 1:
                return rows.reject(str(error))
            found = [
                self._send(name, half, f"{batch_id}.{number}", answers)
                for number, half in enumerate(rows.halve())
            ]
            return [row for some in found for row in some]
        return []

    def is_commit_due(self) -> bool:
        """Return whether to commit after the last batch."""
        return self.requests >= EVERY

    def state(self) -> dict[str, Any]:
        """Return cursor, counts, and what ids of batches begin with."""
        self.requests = 0
        counts = asdict(self.counts)
        del counts["stopped"]
        return {"cursor": self.cursor, "counts": counts, "id": self._id}

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a state."""
        self._id, self.cursor = state["id"], state["cursor"]
        self.counts = Forwarded(**state["counts"])
