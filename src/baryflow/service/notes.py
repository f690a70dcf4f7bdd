"""What a service notes of a target beside its model: who sent what, and what was said lately.

It is kept with the machine (:attr:`~baryflow.runtime.Followed.notes`), in memory and on disk:

============  ====================================================================================
``rows``      rows that were acknowledged
``batches``   the last batches with an id: ``[id, first row, last row]``
``last``      the answer to the last of them, as JSON, if it is not too long
``recent``    the last rows: position, time, label, probability, novelty and values; of raw signals
              the features
``likelihood``  rows learned from and mean log-density of the last rows, after each update
``drifts``    the last drifts: row and words
``n_drifts``  how many there were
``quarantined``  the last batches on which the model failed: ``[id, first row, last row, reason]``
============  ====================================================================================
"""

from __future__ import annotations

import json
from typing import Any

from baryflow.runtime import Event, Followed, Outcome
from baryflow.service.likelihood import note_likelihood
from baryflow.service.refusals import to_json
from baryflow.streams import Batch

#: Batches whose ids are remembered: a client must not have more than this on the way to one target.
BATCHES = 128
#: Rows that can be looked at again.
RECENT = 50
#: Drifts that are remembered.
DRIFTS = 50
#: Bytes of an answer that is kept for whoever asks again.
_ANSWER = 2**16


def rows_of(followed: Followed) -> int:
    """Return how many rows of a target were acknowledged.

    Parameters
    ----------
    followed : Followed

    Returns
    -------
    int
    """
    return int(followed.notes.get("rows", 0))


def answer_of(followed: Followed, batch_id: str) -> dict[str, Any] | None:
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
    places = {known: (first, last) for known, first, last in followed.notes.get("batches", [])}
    if batch_id not in places:
        return None
    first, last = places[batch_id]
    text = followed.notes.get("last", "")
    answer: dict[str, Any] = json.loads(text) if text else {}
    if answer.get("batch_id") != batch_id:
        recent = [row for row in followed.notes.get("recent", []) if first <= row["position"] <= last]
        known = [{name: row[name] for name in row if name != "values"} for row in recent]
        answer = _answer(batch_id, first, last, known, [])
    for known_id, *_, reason in followed.notes.get("quarantined", []):
        if known_id == batch_id:
            answer["quarantined"] = reason
    return answer | {"repeated": True}


def note(
    followed: Followed, batch_id: str | None, first: int, last: int, outcome: Outcome
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
    notes = followed.notes
    events = [event.record() for event in outcome.events]
    answer = _answer(batch_id, first, last, outcome.records, events)
    _note_answer(notes, answer)
    lately = zip(outcome.records[-RECENT:], outcome.features[-RECENT:], strict=True)
    fields = ("position", "time", "label", "probability", "novelty")
    new = [{name: record[name] for name in fields} | {"values": row.copy()} for record, row in lately]
    notes["recent"] = [*notes.get("recent", []), *new][-RECENT:]
    note_likelihood(followed)
    drifts = [{"row": e.position, "words": e.words} for e in outcome.events if e.kind == "drift"]
    if drifts:
        notes["drifts"] = [*notes.get("drifts", []), *drifts][-DRIFTS:]
        notes["n_drifts"] = notes.get("n_drifts", 0) + len(drifts)
    return answer


def note_quarantined(followed: Followed, batch: Batch, reason: str) -> dict[str, Any]:
    """Note that the model failed on a batch.

    Parameters
    ----------
    followed : Followed
    batch : Batch
    reason : str

    Returns
    -------
    dict
        The answer to the client, with ``quarantined``, the reason.
    """
    batch_id, notes = batch.cursor.get("batch_id"), followed.notes
    first, last = int(batch.positions[0]), int(batch.positions[-1])
    words = f"rows {first} to {last} are quarantined, the model failed on them: {reason}"
    event = Event("quarantine", last, words, {"reason": reason})
    answer = _answer(batch_id, first, last, [], [event.record()])
    _note_answer(notes, answer)
    notes["quarantined"] = [*notes.get("quarantined", []), [batch_id, first, last, reason]][-BATCHES:]
    return answer | {"quarantined": reason}


def _note_answer(notes: dict[str, Any], answer: dict[str, Any]) -> None:
    notes["rows"] = answer["last"]
    if answer["batch_id"] is not None:
        place = [answer["batch_id"], answer["first"], answer["last"]]
        notes["batches"] = [*notes.get("batches", []), place][-BATCHES:]
        text = to_json(answer).decode()
        notes["last"] = text if len(text) <= _ANSWER else ""


def _answer(
    batch_id: str | None, first: int, last: int, records: list[Any], events: list[Any]
) -> dict[str, Any]:
    return {
        "batch_id": batch_id,
        "rows": last - first + 1,
        "first": first,
        "last": last,
        "repeated": False,
        "predictions": records,
        "events": events,
    }
