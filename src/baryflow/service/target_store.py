"""All targets of one worker: sessions, what is recorded of them, and rows that were quarantined."""

from __future__ import annotations

import copy
import json
import logging
import os
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from baryflow.runtime import (
    Checkpoint,
    DurableLoop,
    Result,
    Session,
    SessionConfig,
    SessionStore,
    Snapshot,
)
from baryflow.runtime.session import SessionState
from baryflow.runtime.session import rows_of as all_rows
from baryflow.service.errors import to_json
from baryflow.service.parsing import Posted, PostedLabels
from baryflow.service.target_record import (
    alarm_events,
    commands_of,
    find_answer,
    find_label_answer,
    labellings_of,
    record,
    record_commands,
    record_labels,
    rows_of,
    summarize,
)
from baryflow.streams import Batch, Rejected
from baryflow.streams.base import AlarmCommand

_log = logging.getLogger("baryflow.service")
#: Bytes after which a new quarantine file is begun; only one older file is kept.
_QUARANTINE_BYTES = 64 * 2**20


class TargetStore:
    """The targets of a worker, as the application of a durable loop; used by one thread alone.

    Parameters
    ----------
    config : SessionConfig
    checkpoint : Checkpoint or None
        Without it targets do not survive the process.
    most : int
        Sessions in memory, at most.
    quarantine : path, optional
        File of the rows on which a model failed; without it they are only logged.

    Attributes
    ----------
    summaries : dict of str → dict
        The entry of each target in the list of targets, also of those on disk.
    replayed : list of (str, list of dict)
        Events of alarms in replayed batches, and their targets: they may not have been sent. Snapshots
        hold them, so that another kill loses none, until the list is cleared.
    """

    owner = "serve"

    def __init__(
        self,
        config: SessionConfig,
        checkpoint: Checkpoint | None,
        most: int,
        quarantine: Path | None = None,
    ) -> None:
        self.config = config
        self.summaries: dict[str, dict[str, Any]] = {}
        self.replayed: list[tuple[str, list[dict[str, Any]]]] = []
        self.sessions = SessionStore(config, None if checkpoint is None else checkpoint.targets, most)
        self._quarantine = _QuarantineFile(quarantine)
        self._loop = DurableLoop(self, checkpoint)

    def recover(self) -> int:
        """Resume from the checkpoint, and return how many batches were replayed."""
        return self._loop.recover(self._is_applied)

    def take(self, batch: Batch) -> dict[str, Any]:
        """Apply a batch of the journal, and return the answer to the client."""
        return self._loop.apply(batch)  # type: ignore[no-any-return]

    def prepare(self, name: str, posted: Posted) -> tuple[int, dict[str, Any] | None]:
        """Return how many rows a target has, and the answer to a batch that was applied already.

        Also make room in memory for the target, while the batch can still be refused.
        """
        self.sessions.make_room(name)
        session = self.look(name)
        if session is None:
            return 0, None
        if posted.batch_id is None:
            return rows_of(session), None
        return rows_of(session), find_answer(session, posted.batch_id, posted.digest)

    def prepare_labels(self, name: str, posted: PostedLabels) -> tuple[int, dict[str, Any] | None]:
        """Return how many requests with labels a target has had, and the answer to a repeated one."""
        self.sessions.make_room(name)
        session = self.look(name)
        if session is None:
            return 0, None
        if posted.id is None:
            return labellings_of(session), None
        return labellings_of(session), find_label_answer(session, posted.id, posted.digest)

    def prepare_command(self, name: str) -> int:
        """Return how many commands a target has had, and make room in memory for the target."""
        self.sessions.make_room(name)
        session = self.look(name)
        return 0 if session is None else commands_of(session)

    def life_of(self, name: str) -> str | None:
        """Return the id that a target has until it is deleted; a new one if there is no such target."""
        if name not in self.summaries:
            return uuid.uuid4().hex
        # Kept in memory even if there is no room: a deletion must be possible when the disk is full.
        return self.sessions.hold(name).metadata.get("life")

    def look(self, name: str) -> Session | None:
        """Return the session of a target in order to read it; None if there is none."""
        return self.sessions.look(name) if name in self.summaries else None

    def copy(self, name: str) -> SessionState:
        """Return a copy of the state of a target, for another thread."""
        return copy.deepcopy(self.sessions.look(name).state())

    def apply(self, batch: Batch) -> Result:
        """Predict and learn the rows of one target, learn its labels, or carry out its commands."""
        if batch.cursor.get("delete"):
            return Result()
        session = self.sessions.hold(batch.cursor["target"])
        if batch.commands:
            return session.command(batch.commands)
        return session.label(batch.labels) if batch.labels else session.take(all_rows(batch))

    def quarantine(self, batch: Batch, reason: str) -> Result:
        """Quarantine all rows of a batch, or refuse its labels; they count as acknowledged."""
        result = Result()
        result.reject(all_rows(batch), reason)
        for label in batch.labels:
            result.refuse(label, reason, 0)
        for command in batch.commands:
            result.refuse_command(command, reason, 0)
        return result

    def finish(self, batch: Batch, result: Result) -> dict[str, Any]:
        """Record a batch, or delete its target, and return the answer to the client."""
        name = batch.cursor["target"]
        if batch.cursor.get("delete"):
            self.sessions.forget(name)
            self.summaries.pop(name, None)
            return {"target": name, "deleted": True}
        session = self.sessions.hold(name)
        session.metadata.setdefault("life", batch.cursor.get("life"))
        if result.rejected:
            self._quarantine.add(batch, result.rejected)
        batch_id, digest = batch.cursor.get("batch_id"), batch.cursor.get("digest", "")
        if batch.labels:
            answer = record_labels(session, batch_id, digest, result)
        elif batch.commands:
            answer = record_commands(session, result)
        else:
            first, last = int(batch.positions[0]), int(batch.positions[-1])
            answer = record(session, batch_id, digest, first, last, result)
        self.summaries[name] = summarize(session)
        if self._loop.replaying and (alarms := alarm_events(answer)):
            self.replayed.append((name, alarms))
        return {"target": name, **answer}

    def _is_applied(self, batch: Batch) -> bool:
        """Return whether the snapshot already contains what a batch of the journal has changed."""
        cursor, session = batch.cursor, self.look(batch.cursor["target"])
        if session is None:  # only first rows create a target: others belong to one deleted since
            return not (len(batch.positions) and batch.positions[0] == 1)
        if cursor.get("life") != session.metadata.get("life"):  # of a deleted target with this name
            return True
        if cursor.get("delete"):
            return False
        if batch.labels:
            return bool(cursor["labelling"] <= labellings_of(session))
        if batch.commands:
            return bool(cursor["command"] <= commands_of(session))
        return bool(batch.positions[-1] <= rows_of(session))

    def restore(self, snapshot: Snapshot) -> None:
        """Return to the state of a snapshot."""
        self.sessions.resume(snapshot.targets)
        self.summaries = {name: snapshot.metadata[name] for name in snapshot.targets}
        self.replayed = [(name, events) for name, events in snapshot.alarms]

    def snapshot(self) -> Snapshot:
        """Return the present state; all sessions are on disk."""
        return self._snapshot_of(self.sessions.save())

    def begin_snapshot(self) -> tuple[Snapshot, list[Path]]:
        """Return a snapshot of the files on disk, and the paths to sync before it may be saved."""
        files, paths = self.sessions.begin_sync()
        return self._snapshot_of(files), paths

    def _snapshot_of(self, files: dict[str, str]) -> Snapshot:
        known = {name: dict(self.summaries[name]) for name in files if name in self.summaries}
        targets = {name: files[name] for name in known}
        return Snapshot(self.owner, targets, metadata=known, alarms=list(self.replayed))

    def discard(self, kept: list[Snapshot]) -> None:
        """Delete files of sessions that are not needed any more."""
        self.sessions.discard(kept)


class _QuarantineFile:
    """Rows on which a model failed, as lines of a file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: set[str] = set()  # ids of batches in the files: a replay finds their rows again
        # Those of other workers, too: the number of workers may have been different.
        for one in () if path is None else sorted(path.parent.glob("quarantine*.ndjson")):
            for line in one.read_bytes().splitlines():
                try:
                    self._known.add(json.loads(line)["id"])
                except (ValueError, KeyError, TypeError):  # a kill has cut it off
                    continue

    def add(self, batch: Batch, rejected: Sequence[Rejected]) -> None:
        """Log and write rows of a batch. They are on disk when this returns, unless the disk is full."""
        name, cursor = batch.cursor["target"], batch.cursor
        _log.error("target %s: the model failed on %d rows: %s", name, len(rejected), rejected[0].reason)
        if self._path is None or cursor["id"] in self._known:
            return
        self._known.add(cursor["id"])
        number = {position: i for i, position in enumerate(batch.positions.tolist())}
        lines = [
            to_json(
                {
                    "id": cursor["id"],
                    "target": name,
                    "batch_id": cursor.get("batch_id"),
                    "position": row.position,
                    "reason": row.reason,
                    "quarantined": datetime.now(UTC).isoformat(timespec="seconds"),
                    "time": batch.times[number[row.position]],
                    "values": batch.rows[number[row.position]],
                }
            )
            for row in rejected
        ]
        try:
            if self._path.exists() and self._path.stat().st_size > _QUARANTINE_BYTES:
                self._path.replace(self._path.with_stem(f"{self._path.stem}-old"))
            with self._path.open("ab") as file:
                # The leading newline ends a line that a kill has cut off.
                file.write(b"".join(b"\n" + line for line in lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            _log.error("cannot write %s: %s", self._path, error)


def row_batch(name: str, posted: Posted, n_before: int) -> Batch:
    """Return rows of a target as the journal holds them."""
    n = len(posted.rows)
    positions = np.arange(n_before + 1, n_before + 1 + n, dtype=np.intp)
    cursor = {"target": name, "id": uuid.uuid4().hex}
    if posted.batch_id is not None:
        cursor |= {"batch_id": posted.batch_id, "digest": posted.digest}
    return Batch(posted.rows, positions, posted.times, [name] * n, [], cursor)


def label_batch(name: str, posted: PostedLabels, n_before: int, n_columns: int) -> Batch:
    """Return labels of a target as the journal holds them."""
    batch = _without_rows(n_columns, {"target": name, "labelling": n_before + 1})
    if posted.id is not None:
        batch.cursor.update(batch_id=posted.id, digest=posted.digest)
    batch.labels.extend(posted.labels)
    return batch


def command_batch(name: str, command: AlarmCommand, n_before: int, n_columns: int) -> Batch:
    """Return a command about an alarm of a target as the journal holds it."""
    batch = _without_rows(n_columns, {"target": name, "command": n_before + 1})
    batch.commands.append(command)
    return batch


def deletion(name: str, n_columns: int) -> Batch:
    """Return the deletion of a target as the journal holds it."""
    return _without_rows(n_columns, {"target": name, "delete": True})


def _without_rows(n_columns: int, cursor: dict[str, Any]) -> Batch:
    return Batch(np.empty((0, n_columns)), np.empty(0, dtype=np.intp), [], [], [], cursor)
