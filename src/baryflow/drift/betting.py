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
    won: Floats  # by each gambler with the numbers of the block that is not complete
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
        # Lists: single numbers of arrays take ten times as long.
        self._n_rows = 0
        self._wealth, self._starts = [1.0] * _N_BETS, [0] * _N_BETS
        self._counts, self._parts = [0.0] * _PARTS, [0.0] * _PARTS
        self._won, self._size = [0.0] * _N_BETS, 0
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
        bets = _EXPONENTS * sides[:, :, None] ** (_EXPONENTS - 1.0)
        parts = np.minimum((x * _PARTS).astype(np.intp), _PARTS - 1).tolist()
        alarms = []
        for number, (bet, part) in enumerate(
            zip(bets.reshape(len(x), _N_BETS - 1).tolist(), parts, strict=True)
        ):
            if self._detected:
                self._begin()
            self._won = [won + more for won, more in zip(self._won, [*bet, 0.0], strict=True)]
            self._parts[part] += 1.0
            self._n_rows, self._size = self._n_rows + 1, self._size + 1
            if self._size >= self.block:
                self._settle()
                if self._detected:
                    alarms.append(Alarm(number, self.since, self.value))
        return alarms

    def _settle(self) -> None:
        """Pay out what was won with a block."""
        size, wealth = self._size, self._wealth
        for one in range(_N_BETS):
            if wealth[one] < 1.0:
                wealth[one], self._starts[one] = 1.0, self._n_rows - size
                if one == _N_BETS - 1:  # and forgets where ranks fell, which was of no use
                    self._counts = [0.0] * _PARTS
        # Krichevsky and Trofimov's estimate of where ranks fall, from those since it began to win.
        unit = _PARTS / (sum(self._counts) + 0.5 * _PARTS)
        fallen = [(part, n) for part, n in enumerate(self._parts) if n]
        self._won[-1] = sum(n * (self._counts[part] + 0.5) for part, n in fallen) * unit
        self._wealth = [own * won / size for own, won in zip(wealth, self._won, strict=True)]
        for part, n in fallen:
            self._counts[part] += n / size
        self._won, self._parts, self._size = [0.0] * _N_BETS, [0.0] * _PARTS, 0
        value = self.value
        self.largest = max(self.largest, value)
        self._detected = value >= self.threshold

    def state(self) -> BettingState:
        """Return the whole state, to resume bit for bit.

        Returns
        -------
        BettingState
        """
        return BettingState(
            self.threshold, self.block, self._n_rows, np.array(self._wealth),
            np.array(self._starts, dtype=np.intp), np.array(self._counts), self._detected, self.largest,
            np.array(self._won), np.array(self._parts),
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
        if shapes != [(_N_BETS,), (_N_BETS,), (_PARTS,), (_N_BETS,), (_PARTS,)]:
            raise InvalidInputError(f"a detector's state has arrays of the wrong shapes: {shapes}")
        detector = cls(state.threshold, state.block)
        detector.largest, detector._n_rows, detector._detected = (
            state.largest, state.n_rows, state.detected
        )  # fmt: skip
        detector._wealth, detector._starts = state.wealth.tolist(), state.starts.tolist()
        detector._counts, detector._won = state.counts.tolist(), state.won.tolist()
        detector._parts, detector._size = state.parts.tolist(), int(state.parts.sum())
        return detector
