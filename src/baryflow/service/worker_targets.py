"""All targets of one worker: their sessions, what is recorded of them beside the models, and answers.

The record is kept with the session (:attr:`~baryflow.runtime.Session.metadata`), in memory and on disk:

==============  ==================================================================================
``rows``        rows acknowledged
``batches``     the last batches with an id: ``[id, first row, last row, rows quarantined, digest]``
``last``        the answer to the last of them as JSON, if it is not too long
``recent``      the last rows: position, time, label, probability, novelty and values; features of
                raw signals
``likelihood``  rows learned from and mean log-density of the last rows, after each update
``drifts``      the last drifts: row and message
``n_drifts``    how many there were
``bands``       the last diagnoses, equal ones in a row as one: label, rows, positions and times of the
                first and last row
``changes``     the last changes of alarms: row, time, change, alarm, number and message
``labels``      labels accepted
``labelled``    the last requests with labels and an id: ``[id, labels learned, pending, digest]``
``last_labels`` the answer to the last of these as JSON, if it is not too long
``commands``    commands about alarms that were carried out or refused
==============  ==================================================================================

A recent row that was labelled has its label as ``given``. A digest is that of the rows or labels under
an id.
"""

from __future__ import annotations

import json
import logging
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from baryflow.estimators._state import clean
from baryflow.runtime import Loop, Result, Session, SessionConfig, Sessions, Store
from baryflow.runtime.session import SessionState, describe_error
from baryflow.runtime.session import rows_of as all_rows
from baryflow.runtime.store import NAME, Entry, Message
from baryflow.service.errors import RequestError
from baryflow.service.parsing import ID_HEADER, Posted, PostedLabels, to_json
from baryflow.streams import Batch, Rejected
from baryflow.streams.base import AlarmCommand
from baryflow.streams.sinks import find_last_line

_log = logging.getLogger("baryflow.service")
#: Batches whose ids are remembered: a client may not have more than this in flight to one target.
BATCHES = 128
#: Rows, drifts, diagnoses in a row and changes of alarms that are remembered.
RECENT, DRIFTS, BANDS, CHANGES = 50, 50, 200, 100
#: Longest answer that is kept for a repeated request, in bytes.
_LONGEST_ANSWER = 2**16
#: Bytes after which a new quarantine file is begun; only one older file is kept.
_QUARANTINE_BYTES = 64 * 2**20
#: Receivers of messages: the file of quarantined rows, and those of alarms.
_QUARANTINE, _ALARMS = "quarantine", "alarms"


def assign(name: str, n: int) -> int:
    """Return the number of the worker, from 0, that has a target."""
    return zlib.crc32(name.encode()) % n


def store_names(n: int) -> list[str]:
    """Return the name of the store of each worker."""
    return [NAME] if n == 1 else [f"store-{number}-of-{n}.db" for number in range(n)]


def quarantine_name(number: int, n: int) -> str:
    """Return the name of the file of quarantined rows of a worker."""
    return "quarantine.ndjson" if n == 1 else f"quarantine-{number}.ndjson"


class WorkerTargets:
    """The targets of a worker, as the application of a loop; used by one thread alone.

    At most `most` sessions are in memory. Rows that a model failed on go to the file `quarantine`;
    without it they are only logged. ``summaries`` has the entry of each target in the list of targets,
    also of those on disk.
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

    def find_answer(self, name: str, posted: Posted | PostedLabels) -> dict[str, Any] | None:
        """Return what is still known of the answer to a repeated request, None to a new one.

        Also make room in memory for the target, while the request can still be refused. Raise
        RequestError if the id was that of other rows or labels.
        """
        self.loop.make_room(name)
        if posted.id is None or name not in self.summaries:
            return None
        session = self.sessions.read(name)
        if isinstance(posted, PostedLabels):
            return _find_label_answer(session, posted.id, posted.digest)
        return _find_row_answer(session, posted.id, posted.digest)

    def entry_of_rows(self, name: str, posted: Posted) -> Entry:
        """Return rows of a target as the journal holds them."""
        n = len(posted.rows)
        before = _rows_of(self.sessions.read(name)) if name in self.summaries else 0
        positions = np.arange(before + 1, before + 1 + n, dtype=np.intp)
        batch = Batch(posted.rows, positions, posted.times, [name] * n, [], {})
        return self._entry(name, "rows", batch, posted)

    def entry_of_labels(self, name: str, posted: PostedLabels) -> Entry:
        """Return labels of a target as the journal holds them."""
        batch = self._without_rows()
        batch.labels.extend(posted.labels)
        return self._entry(name, "labels", batch, posted)

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
        self, name: str, kind: str, batch: Batch, posted: Posted | PostedLabels | None = None
    ) -> Entry:
        key, digest = (None, None) if posted is None else (posted.id, posted.digest)
        return Entry(batch, name, self.sessions.generation(name), kind, key, digest)

    def _without_rows(self) -> Batch:
        n_columns = self.config.model.n_features_in_
        return Batch(np.empty((0, n_columns)), np.empty(0, dtype=np.intp), [], [], [], {})

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
            answer = _record_labels(session, entry, result)
        elif batch.commands:
            answer = _record_commands(session, result)
        else:
            answer = _record_rows(session, entry, result)
        self.summaries[name] = summarize(session)
        raised = [event for event in answer["events"] if event["event"] == "alarm"]
        alarms = self.loop.post(entry, _ALARMS, [{"key": name, **event} for event in raised])
        if result.rejected:
            n, reason = len(result.rejected), result.rejected[0].reason
            _log.error("target %s: the model failed on %d rows: %s", name, n, reason)
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


# -- answers -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ids:
    """Where ids of requests and the last answer are recorded, and what they are called."""

    what: str
    field: str
    known: str
    last: str

    def find(self, session: Session, given: str, digest: str) -> tuple[list[Any], dict[str, Any]] | None:
        """Return the counts under an id and the answer, empty if it is not known any more."""
        known = {one: counts for one, *counts in session.metadata.get(self.known, [])}
        if given not in known:
            return None
        *counts, before = known[given]
        if digest != before:  # the header tells it from invalid rows
            raise RequestError(
                422,
                f"{self.field} {given!r} was used before for other {self.what}: send these under an id "
                "of their own; nothing was stored",
                {ID_HEADER: given},
            )
        answer: dict[str, Any] = json.loads(session.metadata.get(self.last) or "{}")
        return counts, answer if answer.get(self.field) == given else {}

    def remember(self, session: Session, entry: Entry, counts: list[int], answer: Any) -> None:
        """Record the id of a request, if it has one, and the answer."""
        if entry.key is not None:
            _append(session, self.known, [[entry.key, *counts, entry.digest]], BATCHES)
            text = to_json(answer).decode()
            session.metadata[self.last] = text if len(text) <= _LONGEST_ANSWER else ""


_ROW_IDS = _Ids("rows", "batch_id", "batches", "last")
_LABEL_IDS = _Ids("labels", "id", "labelled", "last_labels")


def _find_row_answer(session: Session, batch_id: str, digest: str) -> dict[str, Any] | None:
    if (found := _ROW_IDS.find(session, batch_id, digest)) is None:
        return None
    (first, last, quarantined), answer = found
    if not answer:
        recent = [row for row in session.metadata.get("recent", []) if first <= row["position"] <= last]
        rows = [{name: row[name] for name in row if name != "values"} for row in recent]
        answer = _row_answer(batch_id, first, last, quarantined, rows, [])
    return answer | {"repeated": True}


def _find_label_answer(session: Session, request_id: str, digest: str) -> dict[str, Any] | None:
    if (found := _LABEL_IDS.find(session, request_id, digest)) is None:
        return None
    (learned, pending), answer = found
    return (answer or _label_answer(session, request_id, learned, pending, [], [])) | {"repeated": True}


def _record_rows(session: Session, entry: Entry, result: Result) -> dict[str, Any]:
    """Record the result for rows, and return the answer to the client."""
    metadata, positions = session.metadata, entry.batch.positions
    first, last, quarantined = int(positions[0]), int(positions[-1]), len(result.rejected)
    events = [event.record() for event in result.events]
    answer = _row_answer(entry.key, first, last, quarantined, result.records, events)
    _ROW_IDS.remember(session, entry, [first, last, quarantined], answer)
    metadata["rows"] = last
    lately = zip(result.records[-RECENT:], result.features[-RECENT:], strict=True)
    fields = ("position", "time", "label", "probability", "novelty")
    new = [{name: one[name] for name in fields} | {"values": row.copy()} for one, row in lately]
    _append(session, "recent", new, RECENT)
    metadata["bands"] = _add_bands(metadata.get("bands", []), result.records)
    _record_changes(session, result)
    try:
        record_likelihood(session)
    except MemoryError:
        raise
    except Exception as error:  # the rows were predicted and learned from all the same
        _log.error("the likelihood of the last rows cannot be computed: %s", describe_error(error))
    drifts = [{"row": e.position, "message": e.message} for e in result.events if e.kind == "drift"]
    if drifts:
        _append(session, "drifts", drifts, DRIFTS)
        metadata["n_drifts"] = metadata.get("n_drifts", 0) + len(drifts)
    return answer


def _row_answer(
    batch_id: str | None,
    first: int,
    last: int,
    quarantined: int,
    records: list[Any],
    events: list[Any],
) -> dict[str, Any]:
    return {
        "batch_id": batch_id,
        "rows": last - first + 1,
        "first": first,
        "last": last,
        "quarantined": quarantined,
        "repeated": False,
        "predictions": records,
        "events": events,
    }


def _add_bands(bands: list[dict[str, Any]], records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the last diagnoses, with equal ones in a row merged."""
    found = bands[-BANDS:]
    for label, group in groupby(records, key=lambda record: record["label"]):
        rows = list(group)
        begin = {"label": label, "first": rows[0]["position"], "since": rows[0]["time"], "rows": 0}
        if found and found[-1]["label"] == label:
            begin = found.pop()
        end = {"last": rows[-1]["position"], "until": rows[-1]["time"]}
        found.append(begin | end | {"rows": begin["rows"] + len(rows)})
    return found[-BANDS:]


def _record_changes(session: Session, result: Result) -> None:
    """Record the changes of alarms."""
    fields = ("time", "change", "alarm", "number")
    new = [
        {"row": event.position, "message": event.message}
        | {name: event.details[name] for name in fields if name in event.details}
        for event in result.events
        if event.kind == "alarm"
    ]
    if new:
        _append(session, "changes", new, CHANGES)


def _append(session: Session, what: str, new: list[Any], most: int) -> None:
    """Append to a list in the record of a target, and keep the last of it."""
    session.metadata[what] = [*session.metadata.get(what, []), *new][-most:]


def record_likelihood(session: Session) -> None:
    """Record the mean log-density of the last rows, if the model has adapted since the last record.

    The model's own history does not hold it. Only points that this history still has are kept.
    """
    metadata, state, sources = session.metadata, session.model.state_, session.model.knowledge_
    learned, recorded = state.history.n_rows.tolist(), metadata.get("likelihood", [])
    recent = metadata.get("recent", [])[-session.config.batch_size :]
    is_recorded = bool(recorded and learned and recorded[-1][0] == learned[-1])
    if not recent or state.adaptation is None or not learned or is_recorded:
        return
    rows, lost = clean(sources, state, np.array([one["values"] for one in recent], dtype=np.float64))
    believed = state.adaptation.believed
    points = sources.model.project(rows[~lost], believed.centre, believed.scale)
    if len(points):
        found = float(state.adaptation.labelled.log_density(points).mean())
        recorded = [*recorded, [learned[-1], float(f"{found:.5g}")]]
    metadata["likelihood"] = [one for one in recorded if one[0] in learned]


def _record_labels(session: Session, entry: Entry, result: Result) -> dict[str, Any]:
    """Record the result for labels, and return the answer to the client."""
    metadata = session.metadata
    given = {label.position: label.label for label in result.used}
    metadata["recent"] = [
        row | ({"given": given[row["position"]]} if row["position"] in given else {})
        for row in metadata.get("recent", [])
    ]
    n_baseline = sum(label.baseline for label in result.used)
    metadata["labels"] = metadata.get("labels", 0) + result.learned + result.pending - n_baseline
    rejected = [
        {"position": label.position, "time": label.time or None, "reason": reason}
        for label, reason in result.refused
    ]
    events = [event.record() for event in result.events if event.kind == "label"]
    learned, pending = result.learned, result.pending
    answer = _label_answer(session, entry.key, learned, pending, rejected, events)
    _LABEL_IDS.remember(session, entry, [learned, pending], answer)
    return answer


def _label_answer(
    session: Session,
    request_id: str | None,
    learned: int,
    pending: int,
    rejected: list[Any],
    events: list[Any],
) -> dict[str, Any]:
    return {
        "id": request_id,
        "learned": learned,
        "pending": pending,
        "rejected": rejected,
        "repeated": False,
        "classes": [str(name) for name in session.model.classes_.tolist()],
        "certificate": certify(session),
        "events": events,
    }


def _record_commands(session: Session, result: Result) -> dict[str, Any]:
    """Record a command, and return the answer to the client."""
    session.metadata["commands"] = session.metadata.get("commands", 0) + 1
    _record_changes(session, result)
    return {
        "refused": result.refused_commands[0][1] if result.refused_commands else None,
        "events": [event.record() for event in result.events if event.kind == "alarm"],
        **list_alarms(session),
    }


# -- descriptions ------------------------------------------------------------------------------------


def _rows_of(session: Session) -> int:
    """Return how many rows of a target were acknowledged."""
    return int(session.metadata.get("rows", 0))


def list_alarms(session: Session) -> dict[str, Any]:
    """Return the alarms of a target, fit for JSON."""
    if session.alarms is None:
        return {"enabled": False, "summary": None, "alarms": []}
    return {
        "enabled": True,
        "summary": session.alarms.summary(),
        "alarms": session.alarms.entries(),
    }


def certify(session: Session) -> dict[str, Any]:
    """Return what labels of rows chosen at random prove about a target, fit for JSON."""
    found = session.model.certificate_
    return {
        "labels": found.n,
        "accuracy": _round(found.accuracy) if found.n else None,
        "advantage": _round(found.advantage) if found.n else None,
        "harm": found.harm,
        "sentences": found.describe(),
    }


def summarize(session: Session) -> dict[str, Any]:
    """Return the entry of a target in the list of targets, small and fit for JSON.

    Figures are those of the last adaptation: there may be thousands of targets.
    """
    model, metadata, state = session.model, session.metadata, session.model.state_
    resemblance = dict(zip(model.sources_, state.resemblance.tolist(), strict=False))
    certificate, recent = state.certificate, metadata.get("recent") or [{}]
    return {
        "rows_seen": _rows_of(session),
        "rows_learned": int(model.n_samples_seen_),
        "reliability": _round(model.reliability_),
        "coverage": _round(state.coverage),
        "novelty": _round(model.novelty_),
        "n_labels": int(metadata.get("labels", 0)),
        "n_baseline_rows": int(sum(one.n_rows for one in state.baselines)),
        "n_commands": int(metadata.get("commands", 0)),
        "certified_accuracy": _round(certificate.accuracy) if certificate.n else None,
        "new_classes": [str(name) for name in model.classes_[session.config.n_classes :].tolist()],
        "nearest": str(max(resemblance, key=lambda name: resemblance[name])) if resemblance else None,
        "last_label": recent[-1].get("label"),
        "last_time": recent[-1].get("time"),
        "drifts": int(metadata.get("n_drifts", 0)),
        "alarms": None if session.alarms is None else session.alarms.summary(),
    }


def detail(session: Session) -> dict[str, Any]:
    """Return what a client sees of one target, fit for JSON; up to date, which may cost an update."""
    model = session.model
    names = getattr(session.config.base, "feature_names_in_", None)
    return summarize(session) | {
        "coverage": _round(model.coverage_),
        "resemblance": {str(name): _round(share) for name, share in model.resemblance_.items()},
        "proportions": describe_proportions(session),
        "classes": [str(label) for label in model.classes_.tolist()],
        "certificate": certify(session),
        "sources": [str(name) for name in model.sources_],
        "columns": None if names is None else [str(name) for name in names],
    }


def describe_proportions(session: Session) -> dict[str, float | None]:
    """Return the share of each class; None of a class that no source has, nothing before any row."""
    shares = getattr(session.model, "proportions_", None)
    if shares is None:
        return {}
    classes = [str(label) for label in session.model.classes_.tolist()]
    return {
        name: None if math.isnan(share) else _round(share)
        for name, share in zip(classes, shares, strict=True)
    }


def _round(value: Any) -> float:
    return round(float(value), 6)
