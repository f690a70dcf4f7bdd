"""How likely the rows of a target are, along its stream: what a model's own history does not keep."""

from __future__ import annotations

import math

import numpy as np

from baryflow.estimators._input import InOrder
from baryflow.runtime import Session


def note_likelihood(session: Session) -> None:
    """Note the mean log-density of the last rows, if the model has learned since it was noted last.

    Parameters
    ----------
    followed : Followed
        Its notes ``recent`` are looked at, and ``likelihood`` is kept: pairs of rows learned from and
        log-density, for the points that the model's history has.
    """
    notes, model = session.notes, session.model
    learned, noted = int(model.n_samples_seen_), notes.get("likelihood", [])
    rows = [one["values"] for one in notes.get("recent", [])][-session.config.batch_size :]
    if not rows or not model.resemblance_ or (noted and noted[-1][0] == learned):
        return
    values = np.array(rows, dtype=np.float64)
    found = model.measure(InOrder(values)).summary()["likelihood"]
    kept = set(model.history_.n_rows.tolist())
    point = [learned, float(f"{found:.5g}")] if math.isfinite(found) else None
    notes["likelihood"] = [one for one in [*noted, point] if one is not None and one[0] in kept]
