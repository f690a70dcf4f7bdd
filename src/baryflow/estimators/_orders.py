"""Streams made of rows at hand: in which order they come, and with which class proportions."""

from __future__ import annotations

import numpy as np

from baryflow.validation import Integers

#: Rows of one class in a run of a stream.
_RUN = 20
#: Streams with label shift: one class has this share of the rows, or half of the classes are absent.
SHIFTS: dict[str, float | None] = {
    "50 %": 0.5,
    "80 %": 0.8,
    "95 %": 0.95,
    "half absent": None,
    "one class": 1.0,
}


def stream_order(y: Integers, order: str, rng: np.random.Generator) -> Integers:
    """Return the rows ``"shuffled"``, class by class (``"class"``), or in ``"runs"`` of one class."""
    if order == "shuffled":
        return rng.permutation(len(y))
    classes = [rng.permutation(np.flatnonzero(y == c)) for c in rng.permutation(np.unique(y))]
    if order == "class":
        return np.concatenate(classes)
    runs = [rows[i : i + _RUN] for rows in classes for i in range(0, len(rows), _RUN)]
    return np.concatenate([runs[i] for i in rng.permutation(len(runs))])


def shift_labels(
    y: Integers, shift: str, rng: np.random.Generator, *, most: int, dominating: int | None = None
) -> Integers:
    """Return the numbers, ascending, of at most `most` rows that have one of the :data:`SHIFTS`.

    The dominating class gives all the rows it has, unless the stream would be too long or the rest is
    too small for its share. Without `dominating` it is drawn among the classes that are not rare.
    """
    classes, counts = np.unique(y, return_counts=True)
    share = SHIFTS[shift]
    if share is None:
        present = rng.permutation(classes)[len(classes) // 2 :]
        return np.sort(rng.permutation(np.flatnonzero(np.isin(y, present)))[:most])
    if dominating is None:
        dominating = rng.choice(classes[counts >= np.median(counts) / 2])
    many, rest = (rng.permutation(np.flatnonzero(flag)) for flag in (y == dominating, y != dominating))
    total = min(most, len(many) / share)
    if share < 1.0:
        total = min(total, len(rest) / (1.0 - share))
    total = int(total + 1e-9)
    n = round(share * total)
    return np.sort(np.concatenate([many[:n], rest[: total - n]]))


def number_within(y: Integers) -> Integers:
    """Return the number of each row within its class."""
    within = np.empty(len(y), dtype=np.intp)
    for c in np.unique(y):
        within[y == c] = np.arange((y == c).sum())
    return within
