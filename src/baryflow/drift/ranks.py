"""Ranks of numbers among those that came before, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers, as_count

#: Cells for numbers, evenly spaced in asinh((x − median) / spread): fine near the median, and a tenth of
#: the distance from it farther out, up to ten thousand spreads.
_CELLS_PER_UNIT, _REACH = 10, 10
_N_CELLS = 2 * _CELLS_PER_UNIT * _REACH
#: Rows compared with each other at once.
_PIECE = 64


@dataclass(frozen=True, eq=False)
class RanksState:
    """All that a :class:`Ranks` knows."""

    medians: Floats  # of each signal
    spreads: Floats
    counts: Integers  # (n_signals, n_groups, n_cells)
    seed: int
    n_rows: int


class Ranks:
    """Rank numbers among those before them that are of the same group.

    The rank of a row is the share of earlier rows of its group with a lower number; ties are broken at
    random. If the rows of every group come in no particular order, ranks are independent and uniform
    between 0 and 1, whatever the distribution of the numbers and the order of the groups. That is what
    :class:`BettingDetector` expects.

    Parameters
    ----------
    scores : array of shape (n, n_signals)
        Example rows that set the scale of each signal; they are not counted.
    n_groups : int
    seed : int, default=0
        Of the random ties.

    Examples
    --------
    >>> import numpy as np
    >>> from baryflow.drift import BettingDetector, Ranks
    >>> x = np.random.default_rng(0).normal(size=(600, 1))
    >>> x[400:] += 2.0  # the level rises
    >>> ranks = Ranks(x[:50], n_groups=1).rank(x[50:], np.zeros(550, dtype=int))
    >>> detector = BettingDetector()
    >>> for number, rank in enumerate(ranks[:, 0], start=50):
    ...     detector.update(rank)
    ...     if detector.drift_detected:
    ...         break
    >>> 400 < number < 450
    True
    """

    def __init__(self, scores: Floats, n_groups: int, seed: int = 0) -> None:
        scores, n_groups = np.asarray(scores, dtype=np.float64), as_count(n_groups, "n_groups")
        if scores.ndim != 2 or not scores.size:
            raise InvalidInputError(
                f"expected scores to have shape (n, n_signals), neither of them 0, got {scores.shape}"
            )
        self._medians = np.median(scores, axis=0)
        spreads = np.median(np.abs(scores - self._medians), axis=0)
        self._spreads = np.where(spreads > 0.0, spreads, 1.0)
        self._counts = np.zeros((scores.shape[1], n_groups, _N_CELLS), dtype=np.intp)
        self._start(int(seed), 0)

    def _start(self, seed: int, n_rows: int) -> None:
        # One draw for each number: the same for the same rows, however they are cut into batches.
        self._seed, self._n_rows = seed, n_rows
        self._rng = np.random.Generator(np.random.PCG64(seed).advance(n_rows * len(self._medians)))

    def rank(self, scores: Floats, groups: Integers, *, count: bool = True) -> Floats:
        """Rank rows one after the other, and count them.

        Parameters
        ----------
        scores : array of shape (n, n_signals)
        groups : array of shape (n,)
            Number of each row's group, 0 to n_groups - 1.
        count : bool, default=True
            Without it rows are ranked among those counted before only, and wait for :meth:`count`.

        Returns
        -------
        array of shape (n, n_signals)

        Raises
        ------
        InvalidInputError
            If there is not one group number for each row, or a number is out of range.
        """
        groups = self._check_groups(groups, len(scores))
        pieces = [
            self._rank(scores[start : start + _PIECE], groups[start : start + _PIECE], count)
            for start in range(0, len(scores), _PIECE)
        ]
        return np.concatenate(pieces) if pieces else np.zeros(scores.shape)

    def count(self, scores: Floats, groups: Integers) -> None:
        """Count rows that were ranked without.

        Parameters
        ----------
        scores, groups : arrays
            As in :meth:`rank`.

        Raises
        ------
        InvalidInputError
            As :meth:`rank` does.
        """
        groups = self._check_groups(groups, len(scores))
        for counts, mine in zip(self._counts, self._cells(scores).T, strict=True):
            np.add.at(counts, (groups, mine), 1)

    def _check_groups(self, groups: Integers, n: int) -> Integers:
        groups, n_groups = np.asarray(groups), self._counts.shape[1]
        if groups.shape != (n,):
            raise InvalidInputError(f"expected {n} group numbers, got shape {groups.shape}")
        if len(groups) and not 0 <= groups.min() <= groups.max() < n_groups:
            raise InvalidInputError(
                f"expected group numbers from 0 to {n_groups - 1}, got {groups.min()} to {groups.max()}"
            )
        return groups

    def _cells(self, scores: Floats) -> Integers:
        units = np.arcsinh((scores - self._medians) / self._spreads)
        cells = np.floor((np.clip(units, -_REACH, _REACH) + _REACH) * _CELLS_PER_UNIT).astype(np.intp)
        return np.asarray(np.minimum(cells, _N_CELLS - 1))

    def _rank(self, scores: Floats, groups: Integers, count: bool) -> Floats:
        cells = self._cells(scores)
        rows = np.arange(len(scores))
        chance = self._rng.random(scores.shape)
        before = (rows[:, None] > rows) & (groups[:, None] == groups) & count
        ranks = np.empty(scores.shape)
        for signal, counts in enumerate(self._counts):
            mine, table = cells[:, signal], counts[groups]
            lower = np.where(np.arange(_N_CELLS) < mine[:, None], table, 0).sum(axis=1)
            lower += (before & (mine < mine[:, None])).sum(axis=1)
            same = table[rows, mine] + (before & (mine == mine[:, None])).sum(axis=1)
            total = table.sum(axis=1) + before.sum(axis=1)
            ranks[:, signal] = (lower + chance[:, signal] * (same + 1)) / (total + 1)
            if count:
                np.add.at(counts, (groups, mine), 1)
        self._n_rows += len(scores)
        return ranks

    def state(self) -> RanksState:
        """Return the complete state, to resume bit for bit.

        Returns
        -------
        RanksState
        """
        return RanksState(self._medians, self._spreads, self._counts.copy(), self._seed, self._n_rows)

    @classmethod
    def from_state(cls, state: RanksState) -> Self:
        """Resume from what :meth:`state` returned.

        Parameters
        ----------
        state : RanksState

        Returns
        -------
        Ranks

        Raises
        ------
        InvalidInputError
            If its arrays do not fit together.
        """
        n = len(state.medians)
        if state.counts.ndim != 3 or state.counts.shape[::2] != (n, _N_CELLS) or len(state.spreads) != n:
            raise InvalidInputError(f"the counts of ranks have the wrong shape: {state.counts.shape}")
        ranks = cls(np.zeros((1, n)), state.counts.shape[1], state.seed)
        ranks._medians, ranks._spreads = state.medians, state.spreads
        ranks._counts = state.counts.copy()
        ranks._start(state.seed, state.n_rows)
        return ranks
