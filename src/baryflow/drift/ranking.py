"""Rows of a target turned into ranks: what detectors watch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from baryflow.drift.ranks import Ranks, RanksState
from baryflow.estimators._watching import KnownTarget, Signals
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers

#: What can be watched.
SIGNALS = ("likelihood", "loss", "resemblance", "proportions")
#: Rows that only say of what size the signals are.
_ANCHORS = 32
#: Classes this many standard errors more often alike than by chance are no chance.
_ERRORS = 2.0


@dataclass(frozen=True, eq=False)
class WatchState:
    """All that is known of a target that is watched."""

    n_rows: int  # learned from since the beginning, before it is watched
    classes: Integers  # predicted for these rows
    known: KnownTarget | None
    anchors: Floats
    stride: int
    until_next: int
    ranks: RanksState | None
    class_ranks: RanksState | None


class Watch:
    """Turn rows into ranks that are even as long as the target does not change.

    At first the model learns. Then the target as it is known is put down, and rows are held against
    that: their likelihood, their distance from the reconstruction and their likeness to the target's
    blend of sources are ranked among earlier rows of the same predicted class, so that runs of one
    class are no change. The predicted classes themselves are ranked too, but only of rows so far
    apart that they had no memory of each other while the model learned.

    Parameters
    ----------
    n_classes : int
    warm_up : int
        Rows from which the model learns before it is watched.
    seed : int
        Of the chances by which ties are broken.
    """

    def __init__(self, n_classes: int, warm_up: int, seed: int) -> None:
        self.n_classes, self.warm_up, self.seed = n_classes, warm_up, seed
        self._restore(begin())

    def _restore(self, state: WatchState) -> None:
        self._state = state
        self._ranks = None if state.ranks is None else Ranks.from_state(state.ranks)
        self._class_ranks = None if state.class_ranks is None else Ranks.from_state(state.class_ranks)

    @property
    def known(self) -> KnownTarget | None:
        """The target as it was put down; None while the model learns."""
        return self._state.known

    @property
    def ready(self) -> bool:
        """Whether the model has learned enough for the target to be put down."""
        return self._state.known is None and self._state.n_rows >= self.warm_up

    @property
    def stride(self) -> int:
        """Every how many rows classes are looked at; 0: never, they come in too long runs."""
        return self._state.stride

    def learn(self, classes: Integers) -> None:
        """Take note of rows, by their predicted classes, from which the model is about to learn."""
        found = np.concatenate([self._state.classes, classes])
        n_rows = self._state.n_rows + len(classes)
        self._state = replace(self._state, n_rows=n_rows, classes=found)

    def put_down(self, known: KnownTarget) -> None:
        """Hold rows against this target from now on."""
        if not self.ready:
            raise InvalidInputError("the model has not learned enough of the target to watch it")
        none = np.zeros(0, dtype=np.intp)
        stride = find_stride(self._state.classes, self.n_classes)
        self._state = replace(self._state, known=known, stride=stride, classes=none)

    def rank(self, signals: Signals) -> Floats:
        """Return the ranks of rows, a column for each of SIGNALS; NaN where there is none."""
        found = np.full((len(signals.lost), len(SIGNALS)), np.nan)
        some = np.flatnonzero(~signals.lost)
        scores = np.column_stack([signals.likelihood, -signals.loss, signals.likeness])[some]
        if self._ranks is None:
            wanted = _ANCHORS - len(self._state.anchors)
            anchors = np.concatenate([self._state.anchors, scores[:wanted]])
            self._state = replace(self._state, anchors=anchors)
            if len(anchors) < _ANCHORS:
                return found
            self._ranks = Ranks(anchors, self.n_classes, self.seed)
            self._class_ranks = Ranks(np.zeros((1, 1)), 1, self.seed + 1)
            some, scores = some[wanted:], scores[wanted:]
        groups = signals.proportions[some].argmax(axis=1)
        found[some, :-1] = self._ranks.rank(scores, groups)
        if self.stride and self._class_ranks is not None:
            turn = np.arange(self._state.until_next, len(some), self.stride)
            chosen = groups[turn][:, None].astype(np.float64)
            found[some[turn], -1] = self._class_ranks.rank(chosen, np.zeros(len(turn), dtype=np.intp))[
                :, 0
            ]
            last = int(turn[-1]) + self.stride if len(turn) else self._state.until_next
            self._state = replace(self._state, until_next=last - len(some))
        return found

    def state(self) -> WatchState:
        """Return all there is to know, to go on bit for bit."""
        return replace(
            self._state,
            ranks=None if self._ranks is None else self._ranks.state(),
            class_ranks=None if self._class_ranks is None else self._class_ranks.state(),
        )

    def resume(self, state: WatchState) -> None:
        """Go on from what :meth:`state` gave."""
        self._restore(state)


def begin() -> WatchState:
    """Return what is known of a target of which nothing was seen."""
    return WatchState(
        n_rows=0,
        classes=np.zeros(0, dtype=np.intp),
        known=None,
        anchors=np.zeros((0, len(SIGNALS) - 1)),
        stride=0,
        until_next=0,
        ranks=None,
        class_ranks=None,
    )


def find_stride(classes: Integers, n_classes: int) -> int:
    """Return how many rows apart classes are alike no more often than by chance; 0: nowhere.

    Looked for among lags of up to a quarter of the rows: of longer ones too little is known.
    """
    n = len(classes)
    if len(np.unique(classes)) < 2:
        return 0  # of a single class nothing can be learned about their order
    chance = float(np.square(np.bincount(classes, minlength=n_classes) / max(n, 1)).sum())
    for lag in range(1, n // 4 + 1):
        alike = float((classes[lag:] == classes[:-lag]).mean())
        if alike <= chance + _ERRORS * np.sqrt(chance * (1.0 - chance) / (n - lag)):
            return lag
    return 0
