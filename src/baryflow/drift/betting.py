"""A detector that bets against chance: it sounds when it has won more than chance allows."""

from __future__ import annotations

from dataclasses import dataclass
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
#: Logarithm of a wealth beyond every threshold: more need not be represented.
_RICH = 700.0


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
    waiting: Floats  # numbers of the block that is not complete


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
        self._wealth, self._starts = np.ones(_N_BETS), np.zeros(_N_BETS, dtype=np.intp)
        self._counts = [0.0] * _PARTS
        self._waiting = np.zeros(0)  # numbers of the block that is not complete
        self._detected = False

    @property
    def drift_detected(self) -> bool:
        """Whether the last number has made it sound."""
        return self._detected

    @property
    def value(self) -> float:
        """The mean wealth of the gamblers."""
        return float(self._wealth.mean())

    @property
    def since(self) -> int:
        """How many numbers ago the winning gambler has begun to win."""
        return self._n_rows - int(self._starts[self._wealth.argmax()])

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
        alarms, done = list[Alarm](), 0
        while done < len(x):
            if self._detected:
                self._begin()
            done += self._play(x[done:])
            if self._detected:
                alarms.append(Alarm(done - 1, self.since, self.value))
        return alarms

    def _play(self, x: Floats) -> int:
        """Bet on some numbers until one makes it sound; return how many that were."""
        waiting = len(self._waiting)
        x = np.concatenate([self._waiting, x])
        ends = np.arange(max(self.block, waiting + 1), len(x) + 1, self.block)
        if not len(ends):
            self._waiting = x
            self._n_rows += len(x) - waiting
            return len(x) - waiting
        starts = np.append(0, ends[:-1])
        begun = self._n_rows - waiting + starts  # numbers before each block
        logs = np.log(self._wealth[:-1])
        paths = _follow_bets(logs, _log_bets(x[: ends[-1]], starts))
        others = np.exp(np.minimum(paths, _RICH)).sum(axis=1).tolist()
        parts = np.minimum((x[: ends[-1]] * _PARTS).astype(np.intp), _PARTS - 1)
        closes = np.isin(np.arange(ends[-1]), ends - 1)  # whether a number is the last of its block
        n = self._learn(parts.tolist(), closes.tolist(), begun.tolist(), others)
        poor = np.vstack([logs, paths[: n - 1]]) < 0.0
        last = n - 1 - poor[::-1].argmax(axis=0)
        self._starts[:-1] = np.where(poor.any(axis=0), begun[last], self._starts[:-1])
        self._wealth[:-1] = np.exp(np.minimum(paths[n - 1], _RICH))
        used = int(ends[n - 1]) if self._detected else len(x)
        self._waiting = x[:0] if self._detected else x[ends[-1] :]
        self._n_rows += used - waiting
        return used - waiting

    def _learn(self, parts: list[int], closes: list[bool], begun: list[int], others: list[float]) -> int:
        """Let the gambler bet who learns where ranks fall; return the number of blocks until it sounds.

        Given are the part in which each number falls, and whether it is the last of its block; how many
        numbers came before each block, and the wealth of all other gamblers after it.
        """
        wealth, counts, start = float(self._wealth[-1]), self._counts, int(self._starts[-1])
        total, largest, enough = sum(counts) + 0.5 * _PARTS, 0.0, self.threshold * _N_BETS
        n, block = 0, list[int]()
        for part, closed in zip(parts, closes, strict=True):
            block.append(part)
            if not closed:
                continue
            if wealth < 1.0:  # forgets where ranks fell, which was of no use
                wealth, counts, total, start = 1.0, [0.0] * _PARTS, 0.5 * _PARTS, begun[n]
            # Krichevsky and Trofimov's estimate of where ranks fall, from those since it began to win.
            won, share = 0.0, 1.0 / len(block)
            for one in block:
                won += counts[one] + 0.5
            wealth *= won * share * _PARTS / total
            for one in block:
                counts[one] += share
            total += 1.0
            value = others[n] + wealth
            n += 1
            block.clear()
            if value > largest:
                largest = value
                if largest >= enough:
                    self._detected = True
                    break
        self.largest = max(self.largest, largest / _N_BETS)
        self._wealth[-1], self._counts, self._starts[-1] = wealth, counts, start
        return n

    def state(self) -> BettingState:
        """Return the whole state, to resume bit for bit.

        Returns
        -------
        BettingState
        """
        return BettingState(
            self.threshold, self.block, self._n_rows, self._wealth.copy(), self._starts.copy(),
            np.array(self._counts), self._detected, self.largest, self._waiting,
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
        shapes = [array.shape for array in (state.wealth, state.starts, state.counts)]
        if shapes != [(_N_BETS,), (_N_BETS,), (_PARTS,)] or state.waiting.ndim != 1:
            raise InvalidInputError(f"a detector's state has arrays of the wrong shapes: {shapes}")
        detector = cls(state.threshold, state.block)
        detector.largest, detector._n_rows, detector._detected = (
            state.largest, state.n_rows, state.detected
        )  # fmt: skip
        detector._wealth, detector._starts = state.wealth.copy(), state.starts.copy()
        detector._counts, detector._waiting = state.counts.tolist(), state.waiting
        return detector


def _log_bets(x: Floats, starts: Integers) -> Floats:
    """Return the logarithms of what the bets on low and high ranks bring, a row for each block."""
    sides = np.log(np.maximum(np.stack([x, 1.0 - x], axis=1), _SMALLEST))
    bets = (_EXPONENTS * np.exp((_EXPONENTS - 1.0) * sides[:, :, None])).reshape(len(x), _N_BETS - 1)
    sizes = np.diff(starts, append=len(x))
    return np.asarray(np.log(np.add.reduceat(bets, starts) / sizes[:, None]))


def _follow_bets(before: Floats, won: Floats) -> Floats:
    """Return the logarithms of wealths after each bet, of gamblers who start again below the stake.

    They are w ← max(w, 0) + log-bet: how far the sum of all log-bets is above its lowest value before.
    """
    sums = np.cumsum(won, axis=0)
    lowest = np.minimum.accumulate(np.vstack([-np.maximum(before, 0.0), sums[:-1]]), axis=0)
    return np.asarray(sums - lowest)
