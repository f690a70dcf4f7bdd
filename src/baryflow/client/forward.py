"""Feed a service from a source of rows: the models are there, not here.

With a checkpoint each batch is on disk before it is sent, and keeps its id when it is sent again: a feed
that was killed resends what may not have arrived, and the service counts it once. Rows that the service
would never accept are quarantined, and the feed continues with the next ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from baryflow.client.client import Client
from baryflow.exceptions import InvalidInputError, RefusedError, StoppedError
from baryflow.runtime import Rows
from baryflow.runtime.checkpoint import Checkpoint, Snapshot
from baryflow.runtime.session import by_key
from baryflow.streams import Batch, Rejected, Sink, Source
from baryflow.validation import TARGET_NAME, is_target_name

#: Requests to a target from one snapshot to the next, roughly, and so sent again after a kill: the
#: service remembers more ids.
EVERY = 32
#: Answers that concern the rows themselves and would be the same next time: not JSON, too large, or not
#: usable. Any other refusal concerns the address, the model or the limits of the service, and ends the
#: feed: they need a decision by the operator, and no row is lost until then.
_BAD_ROWS = {400, 413, 422}
_SHOWN = 80


@dataclass
class Forwarded:
    """How much was sent.

    Attributes
    ----------
    batches, rows, rejected : int
        Batches, rows that were sent, and rows that were quarantined: they could not be used, or the
        service refused them.
    repeated : int
        Requests that the service had answered in an earlier life.
    stopped : bool
        Whether the feed was stopped before the service had all rows that were read.
    """

    batches: int = 0
    rows: int = 0
    rejected: int = 0
    repeated: int = 0
    stopped: bool = field(default=False, init=False)


def open_feed(url: str, stop: Callable[[], bool] | None = None) -> tuple[Client, str]:
    """Take the address of a target apart.

    Parameters
    ----------
    url : str
        ``http://host:port/NAME``; NAME may be missing if rows have keys.
    stop : callable, optional
        As for :class:`Client`.

    Returns
    -------
    client : Client
    name : str

    Raises
    ------
    InvalidInputError
        If there is more in it than that.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is no number
    except ValueError:  # what it says may be a piece of a password
        raise InvalidInputError("expected http://host:port/NAME, and a number as the port") from None
    name = unquote(parts.path.strip("/"))
    if parts.query or parts.fragment or "@" in parts.netloc or "/" in name:
        raise InvalidInputError(
            f"expected {parts.scheme}://HOST:PORT/NAME, with the name of a target and nothing else, got "
            f"{parts.path!r}; a token comes from BARYFLOW_TOKEN"
        )
    return Client(f"{parts.scheme}://{parts.netloc}", stop=stop), name


def feed(
    source: Source,
    client: Client,
    name: str,
    *,
    keyed: bool = False,
    columns: Sequence[str] | None = None,
    checkpoint: Checkpoint | None = None,
    read_size: int = 256,
    timeout: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    heard: Callable[[Batch, list[dict[str, Any]]], None] | None = None,
    aside: Sink | None = None,
) -> Forwarded:
    """Send the rows of a source to a service, until it ends or `stop` returns True.

    A row is quarantined, and the next one sent, if its key cannot be the name of a target, or if the
    service refuses it for good. If the service is busy or away, the request is retried.

    Parameters
    ----------
    source : Source
    client : Client
    name : str
        Of the target; rows with a key go to the target of that name.
    keyed : bool
        Whether rows have keys. One whose key is empty goes to the target `name`, if there is a name.
    columns : sequence of str, optional
        Names of the source's columns, which are matched with those of the service's model; without them
        they are taken to be in the same order.
    checkpoint : Checkpoint, optional
        An empty folder, or that of an earlier life of this feed.
    read_size : int
        Rows of a request, at most.
    timeout : float, optional
        Seconds after which what was read is sent as it is.
    stop : callable
        Asked before every batch.
    heard : callable, optional
        Called with every batch and the service's answers to it; all rows that were quarantined are in
        the batch's `rejected`.
    aside : Sink, optional
        A record for every row that was quarantined.

    Returns
    -------
    Fed

    Raises
    ------
    InvalidInputError
        If there is neither a name nor a key, or the service refuses more than single rows: its model has
        other columns, say, or it has no room for another target.
    UnreachableError
        If it does not answer for long; with a checkpoint the same call resumes.
    """
    if not (name or keyed):
        raise InvalidInputError("which target? Write its name behind the address, or give a key")
    feeder = _Feeder(client, name, columns, checkpoint, heard, aside)
    try:
        feeder.run(source, read_size, timeout, stop)
    except StoppedError:  # no snapshot: the batch is in the journal and will be sent again
        feeder.fed.stopped = True
        return feeder.fed
    if checkpoint is not None:
        checkpoint.save(feeder.snapshot())
    return feeder.fed


class _Feeder:
    """Knows how far a feed is."""

    def __init__(
        self,
        client: Client,
        name: str,
        columns: Sequence[str] | None,
        checkpoint: Checkpoint | None,
        heard: Callable[[Batch, list[dict[str, Any]]], None] | None,
        aside: Sink | None,
    ) -> None:
        self.fed, self._aside = Forwarded(), aside
        self._client, self._name, self._checkpoint, self._heard = client, name, checkpoint, heard
        self._options = {} if columns is None else {"columns": list(columns)}
        self._life = uuid.uuid4().int % 2**52  # of all lives of this feed, not of this process
        self._cursor: dict[str, Any] | None = None
        self._requests = 0  # to any one target since the last snapshot, at most

    def run(
        self, source: Source, read_size: int, timeout: float | None, stop: Callable[[], bool]
    ) -> None:
        """Resume, then send what the source brings."""
        cursor, checkpoint = self.recover(), self._checkpoint
        if cursor is not None:
            source.seek(cursor)
        while not stop():
            batch = source.read(read_size, timeout)
            if batch is None:
                break
            if not batch:
                continue  # nothing came for a while
            if checkpoint is not None:
                checkpoint.append(batch)
                source.acknowledge(batch.cursor)
            self.send(batch)
            if checkpoint is None:
                source.acknowledge(batch.cursor)
            elif self._requests >= EVERY:
                checkpoint.save(self.snapshot())
                self._requests = 0

    def recover(self) -> dict[str, Any] | None:
        """Send again what may not have arrived, and return where the source goes on."""
        if self._checkpoint is None:
            return None
        batches = self._checkpoint.recover(self._go_back)
        if batches is None:
            self._checkpoint.save(self.snapshot())
            return None
        for batch in batches:
            self.send(batch)
        self._checkpoint.save(self.snapshot())
        return self._cursor

    def _go_back(self, snapshot: Snapshot) -> None:
        counts = dict(snapshot.counts)
        if "feed" not in counts:
            raise InvalidInputError("the checkpoint is not that of a feed: use another folder")
        self._life = counts.pop("feed")
        self.fed, self._cursor = Forwarded(**counts), snapshot.cursor
        if self._aside is not None:
            self._aside.truncate(snapshot.outputs.get("quarantine", 0))

    def snapshot(self) -> Snapshot:
        """Return how far it is, what was put aside being on disk."""
        outputs = {}
        if self._aside is not None:
            self._aside.flush(sync=True)
            outputs["quarantine"] = self._aside.position
        counts = asdict(self.fed) | {"feed": self._life}
        del counts["stopped"]
        return Snapshot({}, self._cursor, counts, outputs)

    def send(self, batch: Batch) -> None:
        """Send a batch; its id is the same in every life."""
        batch_id = f"{self._life:x}-{self.fed.batches}"
        answers: list[dict[str, Any]] = []
        refused: list[Rejected] = []
        named = replace(batch, keys=[key or self._name for key in batch.keys])
        most = 1
        for name, rows in by_key(named):
            before = len(answers)
            refused += self._send_rows(name, rows, batch_id, answers)
            most = max(most, len(answers) - before)
        self._requests += most
        self.fed.repeated += sum(bool(answer["repeated"]) for answer in answers)
        self.fed.batches += 1
        self.fed.rows += len(batch.rows) - len(refused)
        rejected = sorted([*batch.rejected, *refused], key=lambda row: row.position)
        self.fed.rejected += len(rejected)
        self._cursor = batch.cursor
        if self._aside is not None and rejected:
            self._aside.write([asdict(row) for row in rejected])
        if self._heard is not None:
            self._heard(replace(batch, rejected=rejected), answers)

    def _send_rows(
        self, name: str, rows: Rows, batch_id: str, answers: list[dict[str, Any]]
    ) -> list[Rejected]:
        """Send rows of one target, and return those that cannot be; find them by halving."""
        if not name:
            return rows.reject("its key is empty, and the address names no target")
        if not is_target_name(name):
            shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
            return rows.reject(
                f"a target cannot have its key {shown!r} as name: 1 to 128 letters, digits and . _ : @ "
                f"- are allowed ({TARGET_NAME})"
            )
        times = rows.times if any(rows.times) else None
        try:
            answers.append(
                self._client.send(name, rows.values, times=times, batch_id=batch_id, **self._options)
            )
        except RefusedError as error:
            if error.status not in _BAD_ROWS:
                raise
            if len(rows) == 1:
                return rows.reject(str(error))
            half = len(rows) // 2
            parts = rows.pick(slice(0, half)), rows.pick(slice(half, None))
            found = [
                self._send_rows(name, part, f"{batch_id}.{number}", answers)
                for number, part in enumerate(parts)
            ]
            return [row for some in found for row in some]
        return []
