"""A detector that bets against chance: it sounds when it has won more than chance allows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers, as_count, as_real

#: Exponents of the bets, from bold to timid: even steps between all and nothing.
_EXPONENTS = np.array([0.2, 0.4, 0.6, 0.8])
#: Parts into which ranks are cut by the bet that learns where they fall.
_PARTS = 10
_N_BETS = 2 * len(_EXPONENTS) + 1
#: A rank of zero would win everything at once.
_SMALLEST = 1e-12


def _bet(wealth: float, won: float) -> float:
    """Return the wealth of a gambler after a bet; one who fell below the stake starts again."""
    return (wealth if wealth >= 1.0 else 1.0) * won


@runtime_checkable
class Detector(Protocol):
    """What a detector of drift must be able to do: the shape of those of river."""

    @property
    def drift_detected(self) -> bool:
        """Whether the last number has made it sound."""

    def update(self, x: float) -> object:
        """Take one more number."""


class Alarm(NamedTuple):
    """One of many numbers that has made a detector sound."""

    number: int  # which of them, from 0
    since: int  # how many numbers before the next one the winning gambler has begun to win
    value: float  # the mean wealth


@dataclass(frozen=True, eq=False)
class BettingState:
    """The state of a :class:`BettingDetector`."""

    threshold: float
    block: int
    n_rows: int
    wealth: Floats
    starts: Integers
    counts: Floats
    detected: bool
    largest: float
    won: Floats  # by all gamblers but the last with the numbers of the block that is not complete
    parts: Floats  # how many of these numbers fell where


class BettingDetector:
    """Detect that ranks are not even any more.

    As long as nothing changes, the rank of a number among those before it is as likely here as there
    between 0 and 1. Gamblers who each believe in another kind of change bet on the next rank, fairly:
    on low ranks, on high ones, and on where ranks have lately fallen. A gambler who falls below the
    stake starts again. The mean of their wealths, a CUSUM of e-values, then reaches `threshold` by
    chance not more often than once in `threshold` numbers on average, whatever their distribution:
    with ranks p and bets b(p) of mean 1, W ← max(W, 1)·b(p) is below R ← (R + 1)·b(p), and R − t is a
    martingale.

    Ranks that follow each other closely may depend on each other. Then several are one bet: what a
    gambler wins is the mean of what each of them would bring, which is fair however they depend.

    Parameters
    ----------
    threshold : float, default=10_000
        Numbers between false alarms, on average at least, if blocks are independent.
    block : int, default=1
        Numbers in a block. It may be changed at any time.

    Attributes
    ----------
    value : float
        The mean wealth.
    since : int
        How many numbers ago the winning gambler has begun to win.
    largest : float
        The largest value so far.

    Examples
    --------
    >>> import numpy as np
    >>> from baryflow.drift import BettingDetector
    >>> detector, ranks = BettingDetector(), np.random.default_rng(0).random(500)
    >>> for x in ranks:
    ...     detector.update(x)
    >>> detector.drift_detected
    False
    >>> for x in ranks[:30] / 10:  # low ranks only
    ...     detector.update(x)
    ...     if detector.drift_detected:
    ...         break
    >>> detector.drift_detected, detector.since < 30
    (True, True)
    """

    def __init__(self, threshold: float = 10_000.0, block: int = 1) -> None:
        self.threshold = as_real(threshold, "threshold", low=1.0, open_low=True)
        self.block = as_count(block, "block")
        self.largest = 0.0
        self._begin()

    def _begin(self) -> None:
        self._n_rows = 0
        self._wealth, self._starts = [1.0] * _N_BETS, [0] * _N_BETS
        self._counts = [0.0] * _PARTS
        self._won, self._parts = np.zeros(_N_BETS - 1), np.zeros(_PARTS)  # of the block not complete
        self._detected = False

    @property
    def drift_detected(self) -> bool:
        """Whether the last number has made it sound."""
        return self._detected

    @property
    def value(self) -> float:
        """The mean wealth of the gamblers."""
        return sum(self._wealth) / _N_BETS

    @property
    def since(self) -> int:
        """How many numbers ago the winning gambler has begun to win."""
        return self._n_rows - self._starts[self._wealth.index(max(self._wealth))]

    def update(self, x: float) -> None:
        """Take one more rank; after an alarm the test restarts.

        Parameters
        ----------
        x : float
            Between 0 and 1.

        Raises
        ------
        InvalidInputError
            If it is not.
        """
        self.update_many([x])

    def update_many(self, ranks: Any) -> list[Alarm]:
        """Take many ranks, as :meth:`update` takes one after the other.

        Parameters
        ----------
        ranks : array of shape (n,)
            Between 0 and 1.

        Returns
        -------
        list of Alarm
            Every time that it has sounded.

        Raises
        ------
        InvalidInputError
            If one of them is not; then none was taken.
        """
        x = np.asarray(ranks, dtype=np.float64)
        if not ((x >= 0.0) & (x <= 1.0)).all():
            wrong = x[~((x >= 0.0) & (x <= 1.0))][0]
            raise InvalidInputError(
                f"expected a rank between 0 and 1, got {wrong}: see baryflow.drift.Ranks"
            )
        sides = np.maximum(np.stack([x, 1.0 - x], axis=1), _SMALLEST)
        bets = (_EXPONENTS * sides[:, :, None] ** (_EXPONENTS - 1.0)).reshape(len(x), _N_BETS - 1)
        parts = np.eye(_PARTS)[np.minimum((x * _PARTS).astype(np.intp), _PARTS - 1)]
        alarms, done = list[Alarm](), 0
        while done < len(x):
            if self._detected:
                self._begin()
            done += self._play(bets[done:], parts[done:])
            if self._detected:
                alarms.append(Alarm(done - 1, self.since, self.value))
        return alarms

    def _play(self, bets: Floats, parts: Floats) -> int:
        """Bet on some numbers until one makes it sound; return how many that were."""
        waiting = int(self._parts.sum())
        # What is known of the block that is not complete comes first, in the place of its numbers.
        bets, parts = np.vstack([self._won, bets]), np.vstack([self._parts, parts])
        ends = np.arange(1 + max(self.block - waiting, 1), len(bets) + 1, self.block)
        if not len(ends):
            self._won, self._parts = bets.sum(axis=0), parts.sum(axis=0)
            self._n_rows += len(bets) - 1
            return len(bets) - 1
        starts = np.append(0, ends[:-1])
        fallen = np.add.reduceat(parts[: ends[-1]], starts)
        sizes = fallen.sum(axis=1)
        won = np.add.reduceat(bets[: ends[-1]], starts) / sizes[:, None]
        paths = [
            list(accumulate(column, _bet, initial=wealth))
            for column, wealth in zip(won.T.tolist(), self._wealth, strict=False)
        ]
        begun = self._n_rows - waiting + np.cumsum(sizes) - sizes  # numbers before each block
        learned = self._learn(fallen, np.sum(paths, axis=0)[1:].tolist())
        n = len(learned) - 1  # blocks until it sounded
        for one, path in enumerate([*paths, learned]):
            if len(poor := np.flatnonzero(np.array(path[:n]) < 1.0)):
                self._starts[one] = int(begun[poor[-1]])
            self._wealth[one] = path[n]
        rest = bets[:0] if self._detected else bets[ends[-1] :]
        self._won, self._parts = rest.sum(axis=0), parts[len(bets) - len(rest) :].sum(axis=0)
        used = int(ends[n - 1]) - 1 + len(rest)
        self._n_rows += used
        return used

    def _learn(self, fallen: Floats, others: list[float]) -> list[float]:
        """Return the wealth of the gambler who learns where ranks fall, before and after each block.

        `fallen` counts the numbers of each block in each part. The wealth of the `others` together tells
        when the detector sounds; then it ends.
        """
        path = [self._wealth[-1]]
        for row, other in zip(fallen.tolist(), others, strict=True):
            wealth, size = path[-1], sum(row)
            if wealth < 1.0:  # forgets where ranks fell, which was of no use
                wealth, self._counts = 1.0, [0.0] * _PARTS
            # Krichevsky and Trofimov's estimate of where ranks fall, from those since it began to win.
            counts = self._counts
            unit = _PARTS / (sum(counts) + 0.5 * _PARTS)
            won = 0.0
            for part, n in enumerate(row):
                if n:
                    won += n * (counts[part] + 0.5)
                    counts[part] += n / size
            path.append(wealth * (won * unit) / size)
            value = (other + path[-1]) / _N_BETS
            self.largest = max(self.largest, value)
            if value >= self.threshold:
                self._detected = True
                break
        return path

    def state(self) -> BettingState:
        """Return the whole state, to resume bit for bit.

        Returns
        -------
        BettingState
        """
        return BettingState(
            self.threshold, self.block, self._n_rows, np.array(self._wealth),
            np.array(self._starts, dtype=np.intp), np.array(self._counts), self._detected, self.largest,
            self._won, self._parts,
        )  # fmt: skip

    @classmethod
    def from_state(cls, state: BettingState) -> Self:
        """Go on from what :meth:`state` gave.

        Parameters
        ----------
        state : BettingState

        Returns
        -------
        BettingDetector

        Raises
        ------
        InvalidInputError
            If its parts do not fit.
        """
        arrays = (state.wealth, state.starts, state.counts, state.won, state.parts)
        shapes = [array.shape for array in arrays]
        if shapes != [(_N_BETS,), (_N_BETS,), (_PARTS,), (_N_BETS - 1,), (_PARTS,)]:
            raise InvalidInputError(f"a detector's state has arrays of the wrong shapes: {shapes}")
        detector = cls(state.threshold, state.block)
        detector.largest, detector._n_rows, detector._detected = (
            state.largest, state.n_rows, state.detected
        )  # fmt: skip
        detector._wealth, detector._starts = state.wealth.tolist(), state.starts.tolist()
        detector._counts, detector._won, detector._parts = state.counts.tolist(), state.won, state.parts
        return detector
