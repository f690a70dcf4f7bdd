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
_PIECE = 32


@dataclass(frozen=True, eq=False)
class RanksState:
    """All that a :class:`Ranks` knows."""

    medians: Floats  # of each signal
    spreads: Floats
    counts: Integers  # (n_signals, n_groups, n_cells)
    waiting: Integers  # (n, 1 + n_signals): group and cells of the rows of the block not complete
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
        self._waiting = np.zeros((0, 1 + scores.shape[1]), dtype=np.int32)
        self._start(int(seed), 0)

    def _start(self, seed: int, n_rows: int) -> None:
        # One draw for each number: the same for the same rows, however they are cut into batches.
        self._seed, self._n_rows = seed, n_rows
        self._rng = np.random.Generator(np.random.PCG64(seed).advance(n_rows * len(self._medians)))

    def rank(self, scores: Floats, groups: Integers, block: int = 1) -> Floats:
        """Rank rows one after the other, and count them.

        Parameters
        ----------
        scores : array of shape (n, n_signals)
        groups : array of shape (n,)
            Number of each row's group, 0 to n_groups - 1.
        block : int, default=1
            Rows of a block, which may all be alike: each is ranked among those of earlier blocks. It may
            be changed at any time.

        Returns
        -------
        array of shape (n, n_signals)

        Raises
        ------
        InvalidInputError
            If there is not one group number for each row, or a number is out of range.
        """
        groups, block = self._check_groups(groups, len(scores)), as_count(block, "block")
        chance = self._rng.random(scores.shape)
        self._n_rows += len(scores)
        n = len(self._waiting)  # these are ranked already
        rows = np.concatenate(
            [self._waiting, np.column_stack([groups.astype(np.int32), self._cells(scores)])]
        )
        ends = np.arange(max(block, n + 1), len(rows) + 1, block)
        found, start, several = [np.zeros((0, scores.shape[1]))], 0, max(_PIECE // block, 1)
        for some in (ends[i : i + several] for i in range(0, len(ends), several)):
            new, end = max(start, n), int(some[-1])
            found.append(self._rank(rows[start:end], some - start, chance[new - n : end - n]))
            for signal, counts in enumerate(self._counts):
                np.add.at(counts, (rows[start:end, 0], rows[start:end, 1 + signal]), 1)
            start = end
        self._waiting = rows[start:]
        found.append(self._rank(self._waiting, ends[:0], chance[max(start, n) - n :]))
        return np.concatenate(found)

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
        cells = np.floor((np.clip(units, -_REACH, _REACH) + _REACH) * _CELLS_PER_UNIT).astype(np.int32)
        return np.asarray(np.minimum(cells, _N_CELLS - 1))

    def _rank(self, rows: Integers, ends: Integers, chance: Floats) -> Floats:
        """Rank the last of some rows, as many as there are chances, among those of earlier blocks.

        `ends` are the numbers of the rows after each block.
        """
        new = slice(len(rows) - len(chance), None)
        groups, cells = rows[:, 0], rows[:, 1:].T
        # Those that were counted before these rows ...
        place = np.arange(len(cells))[:, None], groups[new], cells[:, new]
        upto = self._counts.cumsum(axis=2)
        same, total = self._counts[place], upto[0, groups[new], -1]
        lower = upto[place] - same
        if len(ends) > 1:  # ... and these rows
            blocks = np.searchsorted(ends, np.arange(len(rows)), side="right")
            before = (blocks < blocks[new, None]) & (groups == groups[new, None])
            lower += (before & (cells[:, None] < cells[:, new, None])).sum(axis=2)
            same += (before & (cells[:, None] == cells[:, new, None])).sum(axis=2)
            total += before.sum(axis=1)
        return np.asarray((lower.T + chance * (same + 1).T) / (total + 1)[:, None])

    def state(self) -> RanksState:
        """Return the complete state, to resume bit for bit.

        Returns
        -------
        RanksState
        """
        return RanksState(
            self._medians,
            self._spreads,
            self._counts.copy(),
            self._waiting.astype(np.intp),
            self._seed,
            self._n_rows,
        )

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
        if state.waiting.ndim != 2 or state.waiting.shape[1] != 1 + n:
            raise InvalidInputError(f"waiting rows of ranks have the wrong shape: {state.waiting.shape}")
        ranks = cls(np.zeros((1, n)), state.counts.shape[1], state.seed)
        ranks._medians, ranks._spreads = state.medians, state.spreads
        ranks._counts, ranks._waiting = state.counts.copy(), state.waiting.astype(np.int32)
        ranks._start(state.seed, state.n_rows)
        return ranks
