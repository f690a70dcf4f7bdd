"""What a service notes of a target beside its model: who sent what, and what was said lately.

It is kept with the machine (:attr:`~baryflow.runtime.Followed.notes`), in memory and on disk:

============  ====================================================================================
``rows``      rows that were acknowledged
``batches``   the last batches with an id: ``[id, first row, last row, rows quarantined]``
``last``      the answer to the last of them, as JSON, if it is not too long
``recent``    the last rows: position, time, label, probability, novelty and values; of raw signals
              the features
``likelihood``  rows learned from and mean log-density of the last rows, after each update
``drifts``    the last drifts: row and words
``n_drifts``  how many there were
============  ====================================================================================
"""

from __future__ import annotations

import json
from typing import Any

from baryflow.runtime import Result, Session
from baryflow.service.errors import to_json
from baryflow.service.likelihood import note_likelihood

#: Batches whose ids are remembered: a client must not have more than this on the way to one target.
BATCHES = 128
#: Rows that can be looked at again.
RECENT = 50
#: Drifts that are remembered.
DRIFTS = 50
#: Bytes of an answer that is kept for whoever asks again.
_ANSWER = 2**16


def rows_of(session: Session) -> int:
    """Return how many rows of a target were acknowledged.

    Parameters
    ----------
    followed : Followed

    Returns
    -------
    int
    """
    return int(session.notes.get("rows", 0))


def answer_of(session: Session, batch_id: str) -> dict[str, Any] | None:
    """Return the answer to a batch that was taken already, as far as it is still known.

    Parameters
    ----------
    followed : Followed
    batch_id : str

    Returns
    -------
    dict or None
        None for a batch that is new.
    """
    places = {known: place for known, *place in session.notes.get("batches", [])}
    if batch_id not in places:
        return None
    first, last, quarantined = places[batch_id]
    text = session.notes.get("last", "")
    answer: dict[str, Any] = json.loads(text) if text else {}
    if answer.get("batch_id") != batch_id:
        recent = [row for row in session.notes.get("recent", []) if first <= row["position"] <= last]
        known = [{name: row[name] for name in row if name != "values"} for row in recent]
        answer = _answer(batch_id, first, last, quarantined, known, [])
    return answer | {"repeated": True}


def note(
    session: Session, batch_id: str | None, first: int, last: int, outcome: Result
) -> dict[str, Any]:
    """Note what came of a batch of rows.

    Parameters
    ----------
    followed : Followed
    batch_id : str or None
    first, last : int
        The positions of its rows.
    outcome : Outcome

    Returns
    -------
    dict
        The answer to whoever sent it.
    """
    notes = session.notes
    events = [event.record() for event in outcome.events]
    answer = _answer(batch_id, first, last, len(outcome.rejected), outcome.records, events)
    _note_answer(notes, answer)
    lately = zip(outcome.records[-RECENT:], outcome.features[-RECENT:], strict=True)
    fields = ("position", "time", "label", "probability", "novelty")
    new = [{name: record[name] for name in fields} | {"values": row.copy()} for record, row in lately]
    notes["recent"] = [*notes.get("recent", []), *new][-RECENT:]
    note_likelihood(session)
    drifts = [{"row": e.position, "words": e.words} for e in outcome.events if e.kind == "drift"]
    if drifts:
        notes["drifts"] = [*notes.get("drifts", []), *drifts][-DRIFTS:]
        notes["n_drifts"] = notes.get("n_drifts", 0) + len(drifts)
    return answer


def _note_answer(notes: dict[str, Any], answer: dict[str, Any]) -> None:
    notes["rows"] = answer["last"]
    if answer["batch_id"] is not None:
        place = [answer[name] for name in ("batch_id", "first", "last", "quarantined")]
        notes["batches"] = [*notes.get("batches", []), place][-BATCHES:]
        text = to_json(answer).decode()
        notes["last"] = text if len(text) <= _ANSWER else ""


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
