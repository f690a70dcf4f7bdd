"""Streams out of rows that are at hand: in which order they come, and in which mix of classes."""

from __future__ import annotations

import numpy as np

from baryflow.validation import Integers

#: Rows of one class in a run of a stream.
_RUN = 20


def stream_order(y: Integers, order: str, rng: np.random.Generator) -> Integers:
    """Return the rows ``"shuffled"``, class by class (``"class"``), or in ``"runs"`` of one class."""
    if order == "shuffled":
        return rng.permutation(len(y))
    classes = [rng.permutation(np.flatnonzero(y == c)) for c in rng.permutation(np.unique(y))]
    if order == "class":
        return np.concatenate(classes)
    runs = [rows[i : i + _RUN] for rows in classes for i in range(0, len(rows), _RUN)]
    return np.concatenate([runs[i] for i in rng.permutation(len(runs))])


def number_within(y: Integers) -> Integers:
    """Return the number of each row within its class."""
    within = np.empty(len(y), dtype=np.intp)
    for c in np.unique(y):
        within[y == c] = np.arange((y == c).sum())
    return within
