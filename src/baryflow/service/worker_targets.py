"""All targets of one worker: sessions, what is recorded of them, and rows that were quarantined."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from baryflow.runtime import Loop, Result, Session, SessionConfig, Sessions, Store
from baryflow.runtime.session import SessionState
from baryflow.runtime.session import rows_of as all_rows
from baryflow.runtime.store import Entry, Message
from baryflow.service.errors import to_json
from baryflow.service.parsing import Posted, PostedLabels
from baryflow.service.target_record import (
    alarm_events,
    find_answer,
    find_label_answer,
    record,
    record_commands,
    record_labels,
    rows_of,
    summarize,
)
from baryflow.streams import Batch, Rejected
from baryflow.streams.base import AlarmCommand
from baryflow.streams.sinks import find_last_line

_log = logging.getLogger("baryflow.service")
#: Bytes after which a new quarantine file is begun; only one older file is kept.
_QUARANTINE_BYTES = 64 * 2**20
#: Receivers of messages: the file of quarantined rows, and those of alarms.
_QUARANTINE, _ALARMS = "quarantine", "alarms"


class WorkerTargets:
    """The targets of a worker, as the application of a loop; used by one thread alone.

    Parameters
    ----------
    config : SessionConfig
    store : Store
    most : int
        Sessions in memory, at most.
    quarantine : path, optional
        File of the rows on which a model failed; without it they are only logged.

    Attributes
    ----------
    loop : Loop
    sessions : Sessions
    summaries : dict of str → dict
        The entry of each target in the list of targets, also of those on disk.
    """

    owner = "serve"

    def __init__(
        self, config: SessionConfig, store: Store, most: int, quarantine: Path | None = None
    ) -> None:
        self.config, self._quarantine_file = config, quarantine
        self.summaries = {name: json.loads(row.summary) for name, row in store.sessions.items()}
        self.sessions = Sessions(
            config, store, most, lambda name: to_json(self.summaries[name]).decode()
        )
        self.loop = Loop(self, store, sessions=self.sessions)

    def recover(self) -> int:
        """Resume from the store, and return how many batches were replayed."""
        n_replayed = self.loop.recover()
        self._write_quarantined(self.loop.unsent(_QUARANTINE))
        return n_replayed

    def unsent(self) -> list[Message]:
        """Return the alarms that not all receivers have."""
        return self.loop.unsent(_ALARMS)

    # -- requests --------------------------------------------------------------------------------

    def entry_of_rows(self, name: str, posted: Posted) -> Entry | dict[str, Any]:
        """Return rows of a target as the journal holds them, or the answer to repeated ones.

        Also make room in memory for the target, while the batch can still be refused.
        """
        session = self._read(name)
        if session is not None and posted.batch_id is not None:
            answer = find_answer(session, posted.batch_id, posted.digest)
            if answer is not None:
                return answer
        n, before = len(posted.rows), 0 if session is None else rows_of(session)
        positions = np.arange(before + 1, before + 1 + n, dtype=np.intp)
        batch = Batch(posted.rows, positions, posted.times, [name] * n, [], {})
        return self._entry(name, "rows", batch, posted.batch_id, posted.digest)

    def entry_of_labels(self, name: str, posted: PostedLabels) -> Entry | dict[str, Any]:
        """Return labels of a target as the journal holds them, or the answer to repeated ones."""
        session = self._read(name)
        if session is not None and posted.id is not None:
            answer = find_label_answer(session, posted.id, posted.digest)
            if answer is not None:
                return answer
        batch = self._without_rows()
        batch.labels.extend(posted.labels)
        return self._entry(name, "labels", batch, posted.id, posted.digest)

    def entry_of_command(self, name: str, command: AlarmCommand) -> Entry:
        """Return a command about an alarm of a target as the journal holds it."""
        self.loop.make_room(name)
        batch = self._without_rows()
        batch.commands.append(command)
        return self._entry(name, "command", batch)

    def entry_of_deletion(self, name: str) -> Entry:
        """Return the deletion of a target as the journal holds it; it needs no room in memory."""
        return self._entry(name, "delete", self._without_rows())

    def _entry(
        self, name: str, kind: str, batch: Batch, key: str | None = None, digest: str | None = None
    ) -> Entry:
        return Entry(batch, name, self.sessions.generation(name), kind, key, digest)

    def _without_rows(self) -> Batch:
        n_columns = self.config.model.n_features_in_
        return Batch(np.empty((0, n_columns)), np.empty(0, dtype=np.intp), [], [], [], {})

    def _read(self, name: str) -> Session | None:
        """Return the session of a target, None if there is none; make room for it in any case."""
        self.loop.make_room(name)
        return self.sessions.read(name) if name in self.summaries else None

    def copy(self, name: str) -> SessionState:
        """Return a copy of the state of a target, for another thread."""
        return self.sessions.copy(name)

    # -- batches ---------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> Result:
        """Predict and learn the rows of one target, learn its labels, or carry out its commands."""
        if entry.kind == "delete":
            return Result()
        session, batch = self.sessions.change(entry.target, entry.generation), entry.batch
        if batch.commands:
            return session.command(batch.commands)
        return session.label(batch.labels) if batch.labels else session.apply(all_rows(batch))

    def quarantine(self, entry: Entry, reason: str) -> Result:
        """Quarantine all rows of a batch, or refuse its labels; they count as acknowledged."""
        result, batch = Result(), entry.batch
        result.reject(all_rows(batch), reason)
        for label in batch.labels:
            result.refuse(label, reason, 0)
        for command in batch.commands:
            result.refuse_command(command, reason, 0)
        return result

    def finish(self, entry: Entry, result: Result) -> tuple[dict[str, Any], list[Message]]:
        """Record a batch, or delete its target; return the answer to the client, and its alarms."""
        name, batch = entry.target, entry.batch
        if entry.kind == "delete":
            self.sessions.forget(name)
            self.summaries.pop(name, None)
            return {"target": name, "deleted": True}, []
        session = self.sessions.change(name, entry.generation)
        if batch.labels:
            answer = record_labels(session, entry.key, entry.digest or "", result)
        elif batch.commands:
            answer = record_commands(session, result)
        else:
            first, last = int(batch.positions[0]), int(batch.positions[-1])
            answer = record(session, entry.key, entry.digest or "", first, last, result)
        self.summaries[name] = summarize(session)
        alarms = self.loop.post(
            entry, _ALARMS, [{"key": name, **event} for event in alarm_events(answer)]
        )
        if result.rejected:
            _log.error(
                "target %s: the model failed on %d rows: %s",
                name,
                len(result.rejected),
                result.rejected[0].reason,
            )
            records = _describe_rejected(entry, result.rejected)
            self._write_quarantined(self.loop.post(entry, _QUARANTINE, records))
        return {"target": name, **answer}, alarms

    def is_commit_due(self) -> bool:
        """Return False: the worker commits between requests."""
        return False

    def state(self) -> dict[str, Any]:
        """Return nothing: all is in the sessions."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Do nothing: all is in the sessions."""

    def _write_quarantined(self, messages: Sequence[Message]) -> None:
        """Append rows to the quarantine file; what cannot be written is written by the next start."""
        path = self._quarantine_file
        if not messages or path is None:
            return
        try:
            if path.exists() and path.stat().st_size > _QUARANTINE_BYTES:
                path.replace(path.with_stem(f"{path.stem}-old"))
            with path.open("ab") as file:
                file.truncate(find_last_line(path))  # without half a line of an earlier attempt
                file.write(b"".join(to_json(message.record) + b"\n" for message in messages))
        except OSError as error:
            _log.error("cannot write %s: %s", path, error)
            return
        for message in messages:
            self.loop.note(message, {_QUARANTINE}, True)
        self.loop.flush()


def _describe_rejected(entry: Entry, rejected: Sequence[Rejected]) -> list[dict[str, Any]]:
    """Return a record for each of some rows on which a model failed."""
    batch = entry.batch
    number = {position: i for i, position in enumerate(batch.positions.tolist())}
    return [
        {
            "target": entry.target,
            "batch_id": entry.key,
            "position": row.position,
            "reason": row.reason,
            "quarantined": datetime.now(UTC).isoformat(timespec="seconds"),
            "time": batch.times[number[row.position]],
            "values": batch.rows[number[row.position]],
        }
        for row in rejected
    ]
