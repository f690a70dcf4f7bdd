"""The targets of a service: all that is done to models, by one thread.

One, because most of a step through arrays of this size holds the interpreter's lock, so that a second
thread gains little.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from baryflow import container
from baryflow.exceptions import InvalidInputError
from baryflow.persistence import open_content
from baryflow.runtime import Checkpoint, Result, Session, SessionConfig, SessionStore
from baryflow.runtime.checkpoint import Snapshot
from baryflow.runtime.session import by_key
from baryflow.service.quarantine import Quarantine
from baryflow.service.summaries import summarize
from baryflow.service.target_record import answer_of, note, rows_of
from baryflow.streams import Batch

_log = logging.getLogger("baryflow.service")
#: Batches that are replayed between snapshots.
_REPLAYED = 64

Summary = dict[str, Any]


class Machines:
    """Targets by name: their models, what is noted of them, and a line on each.

    Parameters
    ----------
    recipe : Recipe
    checkpoint : Checkpoint or None
        Where they are kept; without it they go with the process.
    most : int
        Machines in memory.

    Attributes
    ----------
    summaries : dict of str → dict
        A line on each, also on those that are on disk.
    """

    def __init__(self, config: SessionConfig, checkpoint: Checkpoint | None, most: int) -> None:
        folder = None
        if checkpoint is not None:
            config, folder = _begun_with(config, checkpoint), checkpoint.machines
            checkpoint.keep_options({"batch-size": config.batch_size, "drift": config.drift})
        self.config = config
        self.summaries: dict[str, Summary] = {}
        self._fleet = SessionStore(config, folder, most)
        self._quarantine = Quarantine(None if checkpoint is None else checkpoint.folder)

    @property
    def n_in_memory(self) -> int:
        """How many are in memory."""
        return self._fleet.n_in_memory

    def has_in_memory(self, name: str) -> bool:
        """Tell whether a target is in memory.

        Parameters
        ----------
        name : str

        Returns
        -------
        bool
        """
        return self._fleet.has_in_memory(name)

    @property
    def changed(self) -> list[str]:
        """Names of those whose files do not tell everything."""
        return self._fleet.changed

    def look(self, name: str) -> Session | None:
        """Return a target that will not be changed; None if there is none of this name.

        Parameters
        ----------
        name : str

        Returns
        -------
        Followed or None
        """
        return self._fleet.look(name) if name in self.summaries else None

    def prepare(self, name: str, batch_id: str | None) -> tuple[int, dict[str, Any] | None]:
        """Return how many rows a target has, and the answer to a batch that it knows already.

        It also makes room in memory for the target, as long as the batch can still be refused.

        Parameters
        ----------
        name : str
        batch_id : str or None

        Returns
        -------
        rows : int
        answer : dict or None

        Raises
        ------
        OSError
            If another target has to be written out for this one, and the disk is full.
        """
        self._fleet.make_room(name)
        found = self.look(name)
        if found is None:
            return 0, None
        return rows_of(found), None if batch_id is None else answer_of(found, batch_id)

    def take(self, batch: Batch) -> dict[str, Any]:
        """Apply a batch of the journal.

        Rows on which the model fails are quarantined, as in ``run``: they are counted, and neither
        predicted nor learned from.

        Parameters
        ----------
        batch : Batch
            Rows of one target, or its deletion.

        Returns
        -------
        dict
            The answer to the client.
        """
        name = batch.cursor["target"]
        if batch.cursor.get("delete"):
            self._fleet.forget(name)
            self.summaries.pop(name, None)
            return {"target": name, "deleted": True}
        session, outcome = self._fleet.hold(name), Result()
        for _, rows in by_key(batch):
            outcome.add(session.take(rows))
        if outcome.rejected:
            self._quarantine.add(batch, outcome.rejected)
        first, last = int(batch.positions[0]), int(batch.positions[-1])
        answer = note(session, batch.cursor.get("batch_id"), first, last, outcome)
        self.summaries[name] = summarize(session)
        return {"target": name, **answer}

    # -- going on --------------------------------------------------------------------------------

    def recover(self, checkpoint: Checkpoint) -> int:
        """Go on from a folder.

        Parameters
        ----------
        checkpoint : Checkpoint

        Returns
        -------
        int
            Batches that were replayed.
        """
        batches = checkpoint.recover(self._go_back)
        if batches is None:
            self._save(checkpoint)  # so that there is something to go on from
            return 0
        n_replayed = 0
        for batch in self._missing(batches):
            self.take(batch)
            n_replayed += 1
            if n_replayed % _REPLAYED == 0:  # kills may come faster than snapshots
                checkpoint.save_midway(self.snapshot(self._fleet.save()))
        if n_replayed:
            self._save(checkpoint)
        return n_replayed

    def _missing(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield the batches of the log that machines do not know yet: files may be newer than it."""
        for batch in batches:
            name = batch.cursor["target"]
            if batch.cursor.get("delete") or batch.positions[-1] > self.prepare(name, None)[0]:
                yield batch

    def _go_back(self, snapshot: Snapshot) -> None:
        if snapshot.cursor is None or "targets" not in snapshot.cursor:
            raise InvalidInputError(
                "the folder belongs to 'baryflow run', not to a service: use another one for --checkpoint"
            )
        self._fleet.resume(snapshot.machines)
        lines = snapshot.cursor["targets"]
        self.summaries = {name: lines[name] for name in snapshot.machines}

    def _save(self, checkpoint: Checkpoint) -> None:
        checkpoint.save(self.snapshot(self._fleet.save()))
        self._fleet.tidy(checkpoint.tables())

    def snapshot(self, table: dict[str, str]) -> Snapshot:
        """Return what a snapshot holds.

        Parameters
        ----------
        table : dict of str → str
            The file of each machine.

        Returns
        -------
        Standing
        """
        known = {name: dict(self.summaries[name]) for name in table if name in self.summaries}
        return Snapshot({name: table[name] for name in known}, {"targets": known})

    def write(self, name: str) -> None:
        """Write a machine to a file, if it has changed.

        Parameters
        ----------
        name : str
        """
        self._fleet.write(name)

    def hand_over(self) -> tuple[Snapshot, list[Path]]:
        """Return what a snapshot holds, and what must be brought to the disk before it counts.

        Returns
        -------
        standing : Standing
        paths : list of Path
        """
        table, paths = self._fleet.hand_over()
        return self.snapshot(table), paths

    def mark_synced(self, paths: list[Path]) -> None:
        """Take note that files are on the disk.

        Parameters
        ----------
        paths : list of Path
        """
        self._fleet.mark_synced(paths)

    def tidy(self, tables: list[dict[str, str]]) -> None:
        """Remove files that nobody needs.

        Parameters
        ----------
        tables : list of dict
            Of the snapshots that somebody may go back to.
        """
        self._fleet.tidy(tables)

    def close(self) -> None:
        """Remove what was written for want of memory only."""
        self._fleet.close()


def batch_of(name: str, rows: Any, times: list[str], known: int, batch_id: str | None) -> Batch:
    """Return rows of a target as the log keeps them.

    Parameters
    ----------
    name : str
    rows : array of shape (n, d)
    times : list of str
    known : int
        Rows that the target has.
    batch_id : str or None

    Returns
    -------
    Batch
    """
    positions = np.arange(known + 1, known + 1 + len(rows), dtype=np.intp)
    cursor = {"target": name, "id": uuid.uuid4().hex}
    if batch_id is not None:
        cursor["batch_id"] = batch_id
    return Batch(rows, positions, times, [name] * len(rows), [], cursor)


def deletion_of(name: str, n_columns: int) -> Batch:
    """Return the end of a target as the log keeps it.

    Parameters
    ----------
    name : str
    n_columns : int

    Returns
    -------
    Batch
    """
    nothing = np.empty((0, n_columns))
    return Batch(nothing, np.empty(0, dtype=np.intp), [], [], [], {"target": name, "delete": True})


def _begun_with(config: SessionConfig, checkpoint: Checkpoint) -> SessionConfig:
    """Return a recipe with the model that a folder began with."""
    given = config.base.to_bytes()
    kept = checkpoint.keep_model(given)
    if kept == given:
        return config
    _log.warning(
        "%s goes on with the model it began with, which is another one than the one given: use another "
        "folder for that", checkpoint.folder,
    )  # fmt: skip
    base: Any = open_content(container.from_bytes(kept))
    return SessionConfig(base, config.batch_size, config.drift)
