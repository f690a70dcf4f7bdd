"""What a service records of a target beside its model, and what it shows of it.

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
from itertools import groupby
from typing import Any

import numpy as np

from baryflow.estimators._watching import measure
from baryflow.runtime import Result, Session
from baryflow.runtime.session import describe_error
from baryflow.service.errors import RequestError, to_json
from baryflow.service.parsing import ID_HEADER

_log = logging.getLogger("baryflow.service")
#: Batches whose ids are remembered: a client may not have more than this in flight to one target.
BATCHES = 128
#: Rows, drifts, diagnoses in a row and changes of alarms that are remembered.
RECENT, DRIFTS, BANDS, CHANGES = 50, 50, 200, 100
#: Longest answer that is kept for a repeated request, in bytes.
_LONGEST_ANSWER = 2**16


def rows_of(session: Session) -> int:
    """Return how many rows of a target were acknowledged."""
    return int(session.metadata.get("rows", 0))


def find_answer(session: Session, batch_id: str, digest: str) -> dict[str, Any] | None:
    """Return what is still known of the answer to a batch that was applied before, or None.

    Raise RequestError if the id was that of other rows.
    """
    batches = {one: batch for one, *batch in session.metadata.get("batches", [])}
    if batch_id not in batches:
        return None
    first, last, quarantined, known = batches[batch_id]
    _check_digest("batch_id", batch_id, digest, known, "rows")
    text = session.metadata.get("last", "")
    answer: dict[str, Any] = json.loads(text) if text else {}
    if answer.get("batch_id") != batch_id:
        recent = [row for row in session.metadata.get("recent", []) if first <= row["position"] <= last]
        rows = [{name: row[name] for name in row if name != "values"} for row in recent]
        answer = _answer(batch_id, first, last, quarantined, rows, [])
    return answer | {"repeated": True}


def _check_digest(name: str, given: str, digest: str, before: str, what: str) -> None:
    """Refuse an id that was used before for something else; the header tells it from invalid rows."""
    if digest != before:
        message = (
            f"{name} {given!r} was used before for other {what}: send these under an id of their own"
        )
        raise RequestError(422, f"{message}; nothing was stored", {ID_HEADER: given})


def record(
    session: Session, batch_id: str | None, digest: str, first: int, last: int, result: Result
) -> dict[str, Any]:
    """Record the result for the rows `first` to `last`, and return the answer to the client."""
    metadata = session.metadata
    events = [event.record() for event in result.events]
    answer = _answer(batch_id, first, last, len(result.rejected), result.records, events)
    metadata["rows"] = last
    if batch_id is not None:
        batch = [batch_id, first, last, answer["quarantined"], digest]
        metadata["batches"] = [*metadata.get("batches", []), batch][-BATCHES:]
        text = to_json(answer).decode()
        metadata["last"] = text if len(text) <= _LONGEST_ANSWER else ""
    lately = zip(result.records[-RECENT:], result.features[-RECENT:], strict=True)
    fields = ("position", "time", "label", "probability", "novelty")
    new = [{name: one[name] for name in fields} | {"values": row.copy()} for one, row in lately]
    metadata["recent"] = [*metadata.get("recent", []), *new][-RECENT:]
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
        metadata["drifts"] = [*metadata.get("drifts", []), *drifts][-DRIFTS:]
        metadata["n_drifts"] = metadata.get("n_drifts", 0) + len(drifts)
    return answer


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
        session.metadata["changes"] = [*session.metadata.get("changes", []), *new][-CHANGES:]


def _answer(
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


def find_label_answer(session: Session, request_id: str, digest: str) -> dict[str, Any] | None:
    """Return what is still known of the answer to labels that were applied before, or None.

    Raise RequestError if the id was that of other labels.
    """
    known = {one: counts for one, *counts in session.metadata.get("labelled", [])}
    if request_id not in known:
        return None
    learned, pending, before = known[request_id]
    _check_digest("id", request_id, digest, before, "labels")
    text = session.metadata.get("last_labels", "")
    answer: dict[str, Any] = json.loads(text) if text else {}
    if answer.get("id") != request_id:
        answer = _label_answer(session, request_id, learned, pending, [], [])
    return answer | {"repeated": True}


def record_labels(
    session: Session, request_id: str | None, digest: str, result: Result
) -> dict[str, Any]:
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
    answer = _label_answer(session, request_id, result.learned, result.pending, rejected, events)
    if request_id is not None:
        one = [request_id, result.learned, result.pending, digest]
        metadata["labelled"] = [*metadata.get("labelled", []), one][-BATCHES:]
        text = to_json(answer).decode()
        metadata["last_labels"] = text if len(text) <= _LONGEST_ANSWER else ""
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


def commands_of(session: Session) -> int:
    """Return how many commands about alarms a target has had."""
    return int(session.metadata.get("commands", 0))


def record_commands(session: Session, result: Result) -> dict[str, Any]:
    """Record a command, and return the answer to the client."""
    session.metadata["commands"] = commands_of(session) + 1
    _record_changes(session, result)
    return {
        "refused": result.refused_commands[0][1] if result.refused_commands else None,
        "events": [event.record() for event in result.events if event.kind == "alarm"],
        **list_alarms(session),
    }


def list_alarms(session: Session) -> dict[str, Any]:
    """Return the alarms of a target, fit for JSON."""
    if session.alarms is None:
        return {"enabled": False, "summary": None, "alarms": []}
    return {
        "enabled": True,
        "summary": session.alarms.summary(),
        "alarms": session.alarms.entries(),
    }


def alarm_events(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of alarms in the answer to a request."""
    return [event for event in answer["events"] if event["event"] == "alarm"]


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


def record_likelihood(session: Session) -> None:
    """Record the mean log-density of the last rows, if the model has adapted since the last record.

    The model's own history does not hold it. Only points that this history still has are kept.
    """
    metadata, model = session.metadata, session.model
    history, recorded = model.state_.history, metadata.get("likelihood", [])
    learned = int(history.n_rows[-1]) if len(history) else 0
    rows = [one["values"] for one in metadata.get("recent", [])][-session.config.batch_size :]
    if not rows or not learned or (recorded and recorded[-1][0] == learned):
        return
    measured = measure(model.knowledge_, model.state_, np.array(rows, dtype=np.float64))
    found = measured.summary()["likelihood"]
    kept = set(history.n_rows.tolist())
    point = [learned, float(f"{found:.5g}")] if math.isfinite(found) else None
    metadata["likelihood"] = [one for one in [*recorded, point] if one is not None and one[0] in kept]


def summarize(session: Session) -> dict[str, Any]:
    """Return the entry of a target in the list of targets, small and fit for JSON.

    Figures are those of the last adaptation: there may be thousands of targets.
    """
    model, metadata, state = session.model, session.metadata, session.model.state_
    resemblance = dict(zip(model.sources_, state.resemblance.tolist(), strict=False))
    recent = metadata.get("recent") or [{}]
    return {
        "rows_seen": rows_of(session),
        "rows_learned": int(model.n_samples_seen_),
        "reliability": _round(model.reliability_),
        "coverage": _round(state.coverage),
        "novelty": _round(model.novelty_),
        "n_labels": int(metadata.get("labels", 0)),
        "n_baseline_rows": int(sum(one.n_rows for one in state.baselines)),
        "n_commands": commands_of(session),
        "certified_accuracy": certify(session)["accuracy"],
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
    proportions = getattr(model, "proportions_", None)
    classes = [str(label) for label in model.classes_.tolist()]
    shares = {} if proportions is None else dict(zip(classes, map(_share, proportions), strict=True))
    return summarize(session) | {
        "reliability": _round(model.reliability_),
        "coverage": _round(model.coverage_),
        "novelty": _round(model.novelty_),
        "resemblance": {str(name): _round(share) for name, share in model.resemblance_.items()},
        "proportions": shares,
        "classes": classes,
        "certificate": certify(session),
        "sources": [str(name) for name in model.sources_],
        "columns": None if names is None else [str(name) for name in names],
    }


def _share(value: Any) -> float | None:
    """Return a share with six decimals; None if it is not known."""
    return None if value is None or math.isnan(value) else _round(value)


def _round(value: Any) -> float:
    return round(float(value), 6)
