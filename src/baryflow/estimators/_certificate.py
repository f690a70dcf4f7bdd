"""What a few labels prove about the predictions, at any time: a betting confidence sequence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans, Floats, Integers, count_of

#: Each statement holds with this probability, at all times together.
CONFIDENCE = 0.95
_LOG_THRESHOLD = math.log(1.0 / (1.0 - CONFIDENCE))
#: Sizes of the bets, as log(1 + θ). With factors of 2 between them, one of them suits any number of
#: labels from a handful to some 10,000; with more labels the bounds stay valid, but a little loose.
_BETS = np.exp2(np.arange(-4.0, 4.0))
_ODDS = np.expm1(_BETS)
#: Steps of the search for a bound: it is exact to 2^-30.
_HALVINGS = 30
#: Most labels: larger counts are not exact as floats.
_MOST = 2**53
#: Values of a loss, a draw and a win of adapting against not adapting, scaled to 0..1.
_DUEL = np.array([0.0, 0.5, 1.0])


def log_capital(counts: Integers, values: Floats, mean: float | Floats) -> Floats:
    """Return the log-capital of a gambler who bets that observations are larger than `mean`.

    With n observations x in 0..1 the capital is the mean over all bets θ of
    Π (1 + θ·x) / (1 + θ·mean)^n. If p is the mean of x given the past, Π (1 + θ·x) / (1 + θ·p) is a
    martingale. As log(1 + θ·p) is concave in p, the capital at the running mean of all p is not larger,
    and the bets depend on neither. So the capital at the running mean, whatever path it takes, ever
    reaches 1/α with probability α at most (Ville's inequality).

    Parameters
    ----------
    counts : array of shape (..., n_values)
        How often each value was observed.
    values : array of shape (n_values,)
    mean : float or array
    """
    gained = np.log1p(np.multiply.outer(values, _ODDS))
    paid = np.log1p(np.multiply.outer(mean, _ODDS))
    logs = counts @ gained - np.sum(counts, axis=-1)[..., None] * paid
    return np.asarray(np.logaddexp.reduce(logs, axis=-1) - math.log(len(_BETS)))


def lower_bound(counts: Integers, values: Floats) -> float:
    """Return the largest mean that the gambler of :func:`log_capital` has refuted; 0 without any."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if log_capital(counts, values, middle) >= _LOG_THRESHOLD:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True)
class Certificate:
    """What labels prove about the predictions for one target, and about adapting to it.

    Only labels of rows that were chosen at random should count: labels of rows that were queried, or
    that only correct errors, say little about the others. Each prediction is judged before its label is
    learned. The state is a handful of counts.

    Let p_i be the probability, given all that came before, that the prediction for the i-th labelled
    row is right. It may change in any way. With probability 0.95, :attr:`accuracy` is at no time above
    the mean of p_1 … p_n: the accuracy up to then, averaged over the labels. If the labelled rows of a
    batch are drawn at random, p_i stands for the accuracy of the batch. The statement is about the
    past. The largest bound so far would not be valid when accuracy falls; it is not kept.

    :attr:`advantage` is a bound of the same kind for the mean difference between adapting and not
    adapting. `harm` is raised when adapting was shown to be worse, and lifted when it was shown to be
    better since. Raising it is wrong with probability 0.05 at most, and so is lifting it. Each
    statement has this probability for itself.

    Parameters
    ----------
    right, wrong : int
        Predictions by what their labels said.
    won, drawn, lost : int
        Labels for which only adapting, both or neither, and only not adapting was right.
    won_since, lost_since : int
        Those since `harm` last changed.
    harm : bool
        Whether adapting was shown to be worse than not adapting.

    References
    ----------
    I. Waudby-Smith and A. Ramdas, "Estimating means of bounded random variables by betting", 2024.
    S. R. Howard, A. Ramdas, J. McAuliffe and J. Sekhon, "Time-uniform, nonparametric, nonasymptotic
    confidence sequences", 2021.

    Examples
    --------
    >>> from baryflow.estimators._certificate import Certificate
    >>> certificate = Certificate.none().plus([True] * 97 + [False] * 3, [True] * 80 + [False] * 20)
    >>> for sentence in certificate.describe():
    ...     print(sentence)
    Right for at least 88.9 % of rows (95 % confidence, 100 labels).
    Adapting beats not adapting by at least 8.1 points (95 % confidence).
    """

    right: int = 0
    wrong: int = 0
    won: int = 0
    drawn: int = 0
    lost: int = 0
    won_since: int = 0
    lost_since: int = 0
    harm: bool = False

    def __post_init__(self) -> None:
        least = min(
            self.right, self.wrong, self.drawn, self.won_since, self.lost_since,
            self.won - self.won_since, self.lost - self.lost_since,
        )  # fmt: skip
        if least < 0 or self.n != self.won + self.drawn + self.lost or self.n > _MOST:
            raise InvalidInputError(f"the counts of a certificate do not fit together: {self}")

    @classmethod
    def none(cls) -> Certificate:
        """Return the one without labels."""
        return cls()

    @property
    def n(self) -> int:
        """Labels that count."""
        return self.right + self.wrong

    @property
    def accuracy(self) -> float:
        """Lower bound of the accuracy, 0 without labels."""
        return lower_bound(np.array([self.wrong, self.right]), np.array([0.0, 1.0]))

    @property
    def advantage(self) -> float:
        """Lower bound of the accuracy of adapting minus that of not adapting, −1 without labels."""
        return 2.0 * lower_bound(np.array([self.lost, self.drawn, self.won]), _DUEL) - 1.0

    def plus(self, right: Any, right_not_adapting: Any, right_adapting: Any = None) -> Certificate:
        """Return it with one or more labels, in the order in which they came.

        Parameters
        ----------
        right : bool or array of shape (n,)
            Whether the prediction made before the label was learned was right.
        right_not_adapting : bool or array of shape (n,)
            Whether not adapting would have been.
        right_adapting : bool or array of shape (n,), optional
            Whether adapting would have been, if the prediction was that of not adapting; by default the
            same as `right`. Without it `harm` is never lifted.

        Returns
        -------
        Certificate

        Raises
        ------
        InvalidInputError
            If they are not booleans, or not of the same number.
        """
        given = (right, right_not_adapting, right if right_adapting is None else right_adapting)
        made, other, ours = (np.atleast_1d(one) for one in given)
        if not made.shape == other.shape == ours.shape or made.ndim != 1:
            raise InvalidInputError(
                "expected right, right_not_adapting and right_adapting of the same shape (n,), got "
                f"{made.shape}, {other.shape} and {ours.shape}"
            )
        if {one.dtype for one in (made, other, ours)} != {np.dtype(bool)}:
            raise InvalidInputError(
                f"expected booleans, right or not, got {made.dtype}, {other.dtype} and {ours.dtype}"
            )
        won, lost = ours & ~other, other & ~ours
        n, n_right, n_won, n_lost = (int(one) for one in (len(made), made.sum(), won.sum(), lost.sum()))
        harm, won_since, lost_since = self._decide(won, lost)
        return Certificate(
            right=self.right + n_right,
            wrong=self.wrong + n - n_right,
            won=self.won + n_won,
            drawn=self.drawn + n - n_won - n_lost,
            lost=self.lost + n_lost,
            won_since=won_since,
            lost_since=lost_since,
            harm=harm,
        )

    def _decide(self, won: Booleans, lost: Booleans) -> tuple[bool, int, int]:
        """Return `harm` after more labels, and what adapting won and lost since it changed."""
        harm, n_won, n_lost = self.harm, self.won_since, self.lost_since
        while len(won):
            wins, losses = n_won + np.cumsum(won), n_lost + np.cumsum(lost)
            # Draws change nothing: the bet is that one of the two wins more often than the other.
            worse, better = (losses, wins) if harm else (wins, losses)
            duels = np.column_stack([worse, np.zeros_like(worse), better])
            shown = log_capital(duels, _DUEL, 0.5) >= _LOG_THRESHOLD
            if not shown.any():
                return harm, int(wins[-1]), int(losses[-1])
            end = int(shown.argmax()) + 1
            harm, n_won, n_lost, won, lost = not harm, 0, 0, won[end:], lost[end:]
        return harm, n_won, n_lost

    def describe(self) -> list[str]:
        """Return what is proven, in sentences; none without labels.

        Returns
        -------
        list of str
        """
        if not self.n:
            return []
        sure = f"{100 * CONFIDENCE:.0f} % confidence"
        share, labels = _round_down(self.accuracy), count_of(self.n, "label")
        found = [f"Right for at least {share:.1f} % of rows ({sure}, {labels})."]
        points = _round_down(self.advantage)
        if self.harm:
            found.append(
                "Adapting was worse than not adapting: the predictions are those of not adapting."
            )
        elif points > 0.0:
            found.append(f"Adapting beats not adapting by at least {points:.1f} points ({sure}).")
        elif self.won or self.lost:
            found.append(f"Adapting is at most {-points:.1f} points worse than not adapting ({sure}).")
        return found


def _round_down(share: float) -> float:
    """Return a share in percent, so that a lower bound stays one."""
    return math.floor(1000.0 * share) / 10.0
