"""Rows of a target turned into ranks, if they come in an order in which ranks mean something."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from baryflow.drift.ranks import Ranks, RanksState
from baryflow.estimators._watching import KnownTarget, Signals
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers, count_of

#: What can be watched.
SIGNALS = ("likelihood", "loss", "resemblance", "proportions")
#: Rows that only say of what size the signals are.
_ANCHORS = 32
#: Rows this many standard errors more alike than by chance are not independent.
_ERRORS = 2.0
#: Rows whose classes are remembered: the last ones.
_MOST_CLASSES = 4096


@dataclass(frozen=True, eq=False)
class WatchState:
    """All that is known of a target that is watched."""

    n_rows: int  # whose classes were noted
    classes: Integers  # predicted for the last of these rows
    moments: Floats  # rows that the model learned from: their number, means and sums of squares
    next_check: int  # at which of these rows their order is checked again
    reason: str  # why the target is not watched; empty if it is
    known: KnownTarget | None
    anchors: Floats
    trial: Floats  # the first ranks, kept until it is known how far apart rows are independent
    memory: int  # rows this far apart have independent ranks, whatever their classes
    stride: int  # rows this far apart are independent
    ranks: RanksState | None
    class_ranks: RanksState | None


class Watch:
    """Turn rows into ranks that are even as long as the target does not change.

    At first the model learns, until the stream has shown that it is orderly: rows are of most
    classes, by what is predicted and by how they spread, and classes return. Then the target as it
    is known is put down, and rows are held against that: their likelihood, their distance from the
    reconstruction and their likeness to the target's blend of sources are ranked among earlier rows
    of the same predicted class, so that runs of one class are no change. The predicted classes
    themselves are ranked among all. How far apart rows are independent is found from their classes
    and from their first ranks.

    Parameters
    ----------
    n_classes : int
    expected : float
        Classes expected: their effective number.
    apart : float
        How far classes are apart in the sources, in the view: their variance, of all dimensions.
    warm_up : int
        Rows from which the model learns before it is watched, at least; and rows whose ranks show how
        far apart they are independent.
    seed : int
        Of the chances by which ties are broken.
    """

    def __init__(self, n_classes: int, expected: float, apart: float, warm_up: int, seed: int) -> None:
        self.n_classes, self.expected, self.apart = n_classes, expected, apart
        self.warm_up, self.seed = warm_up, seed
        self._restore(begin(warm_up))

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
        """Whether the target can be put down."""
        return self._state.known is None and self._state.reason == _TRIAL

    @property
    def reason(self) -> str:
        """Why the target is not watched; empty if it is."""
        return self._state.reason

    @property
    def status(self) -> str:
        """Whether the target is watched, learned, or for which kind of reason it is not watched."""
        if not self.reason:
            return "watched"
        if self._state.n_rows < self.warm_up or self.reason == _TRIAL:
            return "learned"
        return "".join(letter for letter in self.reason if letter.isalpha())  # without its numbers

    @property
    def rows_until_check(self) -> int:
        """How many more rows the next look at the order of classes waits for."""
        return max(self._state.next_check - self._state.n_rows, 0)

    @property
    def stride(self) -> int:
        """How far apart rows are independent."""
        return self._state.stride

    def learn(self, classes: Integers, points: Floats) -> None:
        """Take note of rows from which the model is about to learn.

        Parameters
        ----------
        classes : array of shape (n,)
            As they are predicted.
        points : array of shape (n, n_dimensions)
            Rows in the view, in units of the spread within a class of the sources.
        """
        self._note(classes)
        self._state = replace(self._state, moments=_add_moments(self._state.moments, points))
        n_rows = self._state.n_rows
        if n_rows < self.warm_up:
            self._state = replace(self._state, reason=_warming_up(n_rows, self.warm_up))
        elif n_rows >= self._state.next_check:
            reason, _ = self._check_order()
            self._state = replace(self._state, reason=reason or _TRIAL)

    def put_down(self, known: KnownTarget) -> None:
        """Hold rows against this target from now on."""
        if not self.ready:
            raise InvalidInputError("the model has not learned enough of the target to watch it")
        stride = find_stride(self._state.classes, self.n_classes)
        self._state = replace(self._state, known=known, stride=stride)

    def rank(self, signals: Signals) -> tuple[Integers, Floats]:
        """Return the numbers of rows, and their ranks, a column for each of SIGNALS.

        The first rows wait until it is known how far apart rows are independent; their numbers are then
        negative, since they came in earlier batches.
        """
        rows = np.flatnonzero(~signals.lost)
        groups = signals.proportions.argmax(axis=1)
        scores = np.column_stack([signals.likelihood, -signals.loss, signals.likeness])
        none = np.zeros(0, dtype=np.intp), np.zeros((0, len(SIGNALS)))
        if self._ranks is None or self._class_ranks is None:
            wanted = _ANCHORS - len(self._state.anchors)
            anchors = np.concatenate([self._state.anchors, scores[rows[:wanted]]])
            self._state = replace(self._state, anchors=anchors)
            if len(anchors) < _ANCHORS:
                return none
            self._ranks = Ranks(anchors, self.n_classes, self.seed)
            self._class_ranks = Ranks(np.zeros((1, 1)), 1, self.seed + 1)
            rows = rows[wanted:]
        self._note(groups[rows])
        # Rows of a block may all be alike.
        block, classes = max(self.stride, 1), groups[rows]
        ranks = np.column_stack(
            [
                self._ranks.rank(scores[rows], classes, block),
                self._class_ranks.rank(classes[:, None], np.zeros_like(classes), block),
            ]
        )
        if self._state.memory == 0:  # the trial
            before, ranks = self._state.trial, np.concatenate([self._state.trial, ranks])
            self._state = replace(self._state, trial=ranks)
            if len(ranks) < self.warm_up:
                return none
            memory = find_memory(ranks[: self.warm_up, :-1])
            if memory == 0:
                self.stop(_DEPENDENT)
                return none
            self._state = replace(self._state, trial=before[:0], memory=memory, reason="")
            self._state = replace(self._state, stride=max(self.stride, memory))
            rows = np.concatenate([np.arange(-len(before), 0), rows])
        return rows, ranks

    def check(self) -> None:
        """Look again at the order of rows that are watched, and stop watching if need be."""
        if self.reason or self._state.n_rows < self._state.next_check:
            return
        reason, stride = self._check_order()
        if reason:
            self.stop(reason)
        else:
            self._state = replace(self._state, stride=max(stride, self._state.memory))

    def stop(self, reason: str) -> None:
        """Stop watching, and let the model learn again; what is known of the order of classes stays."""
        state = self._state
        self._restore(
            replace(
                begin(self.warm_up),
                n_rows=state.n_rows,
                classes=state.classes,
                moments=state.moments,
                next_check=state.n_rows + max(self.warm_up, len(state.classes) // 4),
                reason=reason,
            )
        )

    def shows_one_class(self, n_rows: int) -> bool:
        """Return whether most of the last rows are of one class, unlike those before.

        How often two of them are alike is then nearer to always than to how often it was before.
        """
        before, since = self._state.classes[:-n_rows], self._state.classes[-n_rows:]
        usual = 1.0 / max(count_effectively(np.bincount(before, minlength=self.n_classes)), 1.0)
        counts = np.bincount(since, minlength=self.n_classes)
        pairs = len(since) * (len(since) - 1)
        alike = float((counts * (counts - 1)).sum()) / pairs if pairs else 1.0
        return alike > 0.5 * (1.0 + usual)

    def _note(self, classes: Integers) -> None:
        kept = np.concatenate([self._state.classes, classes])[-_MOST_CLASSES:]
        self._state = replace(self._state, classes=kept, n_rows=self._state.n_rows + len(classes))

    def _check_order(self) -> tuple[str, int]:
        """Return why the order of classes allows no watching, if so, and how far apart they forget."""
        classes, n = self._state.classes, len(self._state.classes)
        self._state = replace(self._state, next_check=self._state.n_rows + n // 4)
        came = count_effectively(np.bincount(classes, minlength=self.n_classes))
        count, _, squares = self._state.moments
        spread, of_one = float((squares / np.maximum(count, 1.0)).sum()), float(squares.size)
        # Nearer to one class than to all of them, in logarithms.
        if came**2 < self.expected:
            return _few_classes(came, self.expected), 0
        if spread**2 < of_one * (of_one + self.apart):
            # Several classes are predicted for rows of one: that says nothing about their order.
            check_at = self._state.n_rows + self.warm_up
            self._state = replace(self._state, classes=classes[:0], next_check=check_at)
            return _LITTLE_SPREAD, 0
        # A stream in which each class comes once has as many runs as classes.
        run, needed = find_stride(classes, self.n_classes, errors=0.0), 2 * (self.n_classes + 1)
        if run == 0 or n < needed * run:
            return _long_runs(run, needed), 0
        return "", find_stride(classes, self.n_classes)

    def state(self) -> WatchState:
        """Return the complete state, to resume bit for bit."""
        return replace(
            self._state,
            ranks=None if self._ranks is None else self._ranks.state(),
            class_ranks=None if self._class_ranks is None else self._class_ranks.state(),
        )

    def resume(self, state: WatchState) -> None:
        """Resume from what :meth:`state` returned."""
        self._restore(state)


def begin(warm_up: int) -> WatchState:
    """Return what is known of a target of which nothing was seen."""
    return WatchState(
        n_rows=0,
        classes=np.zeros(0, dtype=np.intp),
        moments=np.zeros((3, 0)),
        next_check=warm_up,
        reason=_warming_up(0, warm_up),
        known=None,
        anchors=np.zeros((0, len(SIGNALS) - 1)),
        trial=np.zeros((0, len(SIGNALS))),
        memory=0,
        stride=0,
        ranks=None,
        class_ranks=None,
    )


def _add_moments(moments: Floats, points: Floats) -> Floats:
    """Return number, means and sums of squared deviations of some rows and more of them."""
    if not len(points):
        return moments
    mean = points.mean(axis=0)
    added = np.stack([np.full(len(mean), float(len(points))), mean, ((points - mean) ** 2).sum(axis=0)])
    if not moments.size:
        return added
    total, gap = moments[0] + added[0], added[1] - moments[1]
    squares = moments[2] + added[2] + gap**2 * moments[0] * added[0] / total
    return np.stack([total, moments[1] + gap * added[0] / total, squares])


def count_effectively(shares: Floats | Integers) -> float:
    """Return the effective number of classes: the inverse of how often two rows are alike."""
    total = float(shares.sum())
    return float(1.0 / np.square(shares / total).sum()) if total else 0.0


def find_stride(classes: Integers, n_classes: int, errors: float = _ERRORS) -> int:
    """Return how many rows apart classes are alike no more often than by chance; 0: nowhere.

    Looked for among lags of up to a quarter of the rows: of longer ones too little is known. Within
    `errors` standard errors of chance counts as chance.
    """
    n = len(classes)
    if len(np.unique(classes)) < 2:
        return 0  # of a single class nothing can be learned about their order
    chance = float(np.square(np.bincount(classes, minlength=n_classes) / max(n, 1)).sum())
    for lag in range(1, n // 4 + 1):
        alike = float((classes[lag:] == classes[:-lag]).mean())
        if alike <= chance + errors * np.sqrt(chance * (1.0 - chance) / (n - lag)):
            return lag
    return 0


def find_memory(ranks: Floats) -> int:
    """Return how many rows apart ranks are uncorrelated, in every column; 0: nowhere.

    Looked for among lags of up to a quarter of the rows.
    """
    n = len(ranks)
    centred = np.sqrt(12.0) * (ranks - 0.5)  # of variance 1, if ranks are even
    for lag in range(1, n // 4 + 1):
        if (np.mean(centred[lag:] * centred[:-lag], axis=0) <= _ERRORS / np.sqrt(n - lag)).all():
            return lag
    return 0


_TRIAL = "it is being found out how far apart rows are independent"
_LITTLE_SPREAD = (
    "rows are as close together as those of one class; a class that comes for the first time can look "
    "like a change"
)
_DEPENDENT = "rows resemble those before them, however far apart they are"


def _warming_up(n_rows: int, warm_up: int) -> str:
    return f"the model is learning what is usual; {n_rows} of {count_of(warm_up, 'row')} have come"


def _few_classes(came: float, expected: float) -> str:
    return (
        f"few classes have come so far (effective number {came:.1f}, expected {expected:.1f}); a class "
        "that comes for the first time can look like a change"
    )


def _long_runs(length: int, needed: int) -> str:
    rows = f"of about {count_of(length, 'row')}" if length else "longer than can be measured"
    return f"classes come in runs {rows}; {needed} runs are needed to see that they return"
