"""Feeds a service from a source of rows: the models are there, not here.

With a checkpoint each batch is on disk before it is sent, and has the same id in every life: a feeder
that was killed sends what may not have arrived again, and the service counts it once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from baryflow.client.talking import Client
from baryflow.exceptions import InvalidInputError
from baryflow.runtime.checkpoint import Checkpoint, Standing
from baryflow.runtime.followed import by_key
from baryflow.streams import Batch, Sink, Source

#: Batches from one snapshot to the next, and so sent again after a kill: the service remembers more ids.
EVERY = 32


@dataclass
class Fed:
    """How much was sent.

    Attributes
    ----------
    batches, rows, rejected : int
        Batches, rows in them, and rows that could not be used and were not sent.
    repeated : int
        Requests that the service had taken in an earlier life.
    """

    batches: int = 0
    rows: int = 0
    rejected: int = 0
    repeated: int = 0


def open_feed(url: str) -> tuple[Client, str]:
    """Take the address of a target apart.

    Parameters
    ----------
    url : str
        ``http://host:port/NAME``; NAME may be missing if rows have keys.

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
    return Client(f"{parts.scheme}://{parts.netloc}"), name


def feed(
    source: Source,
    client: Client,
    name: str,
    *,
    checkpoint: Checkpoint | None = None,
    read_size: int = 256,
    timeout: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    heard: Callable[[Batch, list[dict[str, Any]]], None] | None = None,
    aside: Sink | None = None,
) -> Fed:
    """Send the rows of a source to a service, until it ends or `stop` says so.

    Parameters
    ----------
    source : Source
    client : Client
    name : str
        Of the target; rows with a key go to the target of that name.
    checkpoint : Checkpoint, optional
        An empty folder, or that of an earlier life of this feed.
    read_size : int
        Rows of a request, at most.
    timeout : float, optional
        Seconds after which what was read is sent as it is.
    stop : callable
        Asked before every batch.
    heard : callable, optional
        Called with every batch and the service's answers to it.
    aside : Sink, optional
        A record for every row that could not be used.

    Returns
    -------
    Fed

    Raises
    ------
    InvalidInputError
        If the service refuses rows.
    UnreachableError
        If it does not answer for long; with a checkpoint the same call goes on.
    """
    feeder = _Feeder(client, name, checkpoint, heard, aside)
    cursor = feeder.recover()
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
        feeder.send(batch)
        if checkpoint is None:
            source.acknowledge(batch.cursor)
        elif feeder.fed.batches % EVERY == 0:
            checkpoint.save(feeder.standing())
    if checkpoint is not None:
        checkpoint.save(feeder.standing())
    return feeder.fed


class _Feeder:
    """Knows how far a feed is."""

    def __init__(
        self,
        client: Client,
        name: str,
        checkpoint: Checkpoint | None,
        heard: Callable[[Batch, list[dict[str, Any]]], None] | None,
        aside: Sink | None,
    ) -> None:
        self.fed, self._aside = Fed(), aside
        self._client, self._name, self._checkpoint, self._heard = client, name, checkpoint, heard
        self._life = uuid.uuid4().int % 2**52  # of all lives of this feed, not of this process
        self._cursor: dict[str, Any] | None = None

    def recover(self) -> dict[str, Any] | None:
        """Send again what may not have arrived, and return where the source goes on."""
        if self._checkpoint is None:
            return None
        batches = self._checkpoint.recover(self._go_back)
        if batches is None:
            self._checkpoint.save(self.standing())
            return None
        for batch in batches:
            self.send(batch)
        self._checkpoint.save(self.standing())
        return self._cursor

    def _go_back(self, standing: Standing) -> None:
        counts = dict(standing.counts)
        if "feed" not in counts:
            raise InvalidInputError("the checkpoint is not that of a feed: use another folder")
        self._life = counts.pop("feed")
        self.fed, self._cursor = Fed(**counts), standing.cursor
        if self._aside is not None:
            self._aside.truncate(standing.outputs.get("quarantine", 0))

    def standing(self) -> Standing:
        """Return how far it is, what was put aside being on disk."""
        outputs = {}
        if self._aside is not None:
            self._aside.flush(sync=True)
            outputs["quarantine"] = self._aside.position
        return Standing({}, self._cursor, asdict(self.fed) | {"feed": self._life}, outputs)

    def send(self, batch: Batch) -> None:
        """Send a batch; its id is the same in every life."""
        batch_id = f"{self._life:x}-{self.fed.batches}"
        answers = []
        for key, rows in by_key(batch):
            if not (key or self._name):
                raise InvalidInputError("which target? Write its name behind the address, or give a key")
            times = rows.times if any(rows.times) else None
            answer = self._client.send(key or self._name, rows.values, times=times, batch_id=batch_id)
            answers.append(answer)
            self.fed.repeated += bool(answer["repeated"])
        self.fed.batches += 1
        self.fed.rows += len(batch.rows)
        self.fed.rejected += len(batch.rejected)
        self._cursor = batch.cursor
        if self._aside is not None and batch.rejected:
            self._aside.write([asdict(row) for row in batch.rejected])
        if self._heard is not None:
            self._heard(batch, answers)
