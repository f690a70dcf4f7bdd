"""The last rows of a target, and which of them are most worth a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import entr, logsumexp

from baryflow.validation import Booleans, Floats, Integers

#: Rows that are remembered at most and at least, and values of them at most in between.
_MOST_ROWS, _FEWEST_ROWS, _MOST_VALUES = 1000, 64, 1 << 16
#: A novel row counts as this many times as uncertain, and so does one that would settle which
#: explanation is right.
_NOVEL = _SETTLING = 2.0


@dataclass(frozen=True, eq=False)
class RecentRows:
    """The last rows of a target as they came, and their positions in the stream."""

    rows: Floats
    positions: Integers

    @classmethod
    def none(cls, n_columns: int) -> Self:
        """Return no rows."""
        return cls(np.empty((0, n_columns)), np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def plus(self, rows: Floats, positions: Integers) -> RecentRows:
        """Return these rows and later ones, without the oldest if there are too many."""
        d = max(rows.shape[1], 1)
        most = min(_MOST_ROWS, max(_FEWEST_ROWS, _MOST_VALUES // d))
        rows, positions = rows[-most:], positions[-most:]
        kept = slice(max(0, len(self) + len(rows) - most), None)
        return RecentRows(
            np.concatenate([self.rows[kept], rows]), np.concatenate([self.positions[kept], positions])
        )

    def at(self, positions: Integers) -> tuple[Floats, Booleans]:
        """Return the rows at these positions that are remembered, and which of them are."""
        numbers = self._find(positions)
        return self.rows[numbers[numbers >= 0]], numbers >= 0

    def _find(self, positions: Integers) -> Integers:
        """Return the number of each row among these, -1 for one that is not."""
        order = np.argsort(self.positions, kind="stable")
        place = np.searchsorted(self.positions[order], positions, side="right") - 1
        if not len(order):
            return np.full(len(positions), -1)
        found = order[place]
        return np.where((place >= 0) & (self.positions[found] == positions), found, -1)

    def spread(self, n: int) -> Integers:
        """Return the numbers of at most n rows, evenly spread."""
        if len(self) <= n:
            return np.arange(len(self))
        return np.linspace(0, len(self) - 1, n).astype(np.intp)


@dataclass(frozen=True, eq=False)
class Query:
    """Rows that are most worth a label, the most worth first.

    Attributes
    ----------
    positions : array of shape (n,)
        Of the rows in the stream.
    rows : array of shape (n, d)
        As they came.
    labels : array of shape (n,)
        What is predicted of them now.
    probabilities, novelty : array of shape (n,)
        Of these labels, and of the rows.
    """

    positions: Integers
    rows: Floats
    labels: Any
    probabilities: Floats
    novelty: Floats

    def __len__(self) -> int:
        return len(self.rows)


def measure_disagreement(parts: Floats) -> Floats:
    """Return how much a label of each row would tell about which explanation is right, 0 to 1.

    The mutual information of label and explanation, as a part of what there is to know. `parts` are
    log-probabilities under each explanation, plus the logarithm of its weight.
    """
    weights = np.exp(logsumexp(parts, axis=2))[:, 0]
    whole = float(entr(weights).sum())
    if not whole > 0.0:
        return np.zeros(parts.shape[1])
    given = np.exp(parts) / weights[:, None, None]
    found = entr(np.exp(parts).sum(axis=0)).sum(axis=1) - weights @ entr(given).sum(axis=2)
    return np.asarray(np.clip(found / whole, 0.0, 1.0))


def choose_rows(
    probabilities: Floats,
    columns: Floats,
    novel: Booleans,
    disagreement: Floats,
    n: int,
    rng: np.random.Generator,
) -> Integers:
    """Return the numbers of n rows that are uncertain, novel and unlike each other.

    Rows count more on which explanations of the target disagree.

    A row stands for the gradient that the label predicted for it would have in a linear classifier: long
    if the prediction is uncertain, and in another direction for other columns and classes. Rows are
    drawn by their squared distance from those drawn before (Ash et al. 2020, "BADGE").
    """
    residuals = probabilities.copy()
    residuals[np.arange(len(residuals)), residuals.argmax(axis=1)] -= 1.0
    residuals *= (np.where(novel, _NOVEL, 1.0) * (1.0 + (_SETTLING - 1.0) * disagreement))[:, None]
    rows = np.column_stack([columns / np.sqrt(columns.shape[1]), np.ones(len(columns))])
    lengths = np.vecdot(residuals, residuals) * np.vecdot(rows, rows)
    chosen: list[int] = []
    away = lengths.copy()
    for _ in range(min(n, len(rows))):
        total = away.sum()
        if not total > 0.0:  # all others are like those chosen
            left = np.setdiff1d(np.arange(len(rows)), chosen)
            chosen.extend(left[: n - len(chosen)].tolist())
            break
        one = int(away.argmax()) if not chosen else int(rng.choice(len(rows), p=away / total))
        chosen.append(one)
        inner = (residuals @ residuals[one]) * (rows @ rows[one])
        away = np.minimum(away, np.maximum(lengths + lengths[one] - 2.0 * inner, 0.0))
        away[chosen] = 0.0
    return np.array(chosen, dtype=np.intp)
