"""Novelty: how unlike everything known rows are.

Two kinds of evidence count. A row may be farther from all classes of the sources than rows of left-out
sources are. Or it may lie where the target had no rows in the past and has some now: then a new class
has appeared, even if it lies among the others. The second kind counts only once the target has shown
nearly all classes; before that, the new place may be that of a class that had not come yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from baryflow.core.transport import fast_squared_distances
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans, Floats, Integers

#: Rows above this novelty are called novel.
NOVELTY_THRESHOLD = 0.99
#: Quantiles of the figures of left-out rows against which novelty is measured.
_QUANTILES = 1001
#: Rows of the past, and latest rows, that are kept of a target at most.
_PAST, _RECENT = 450, 225
#: Rows that are looked at together, and rows of one batch that are looked at at most.
_PIECE, _LONGEST = 100, 2000
#: Neighbours of a row.
_NEIGHBOURS = 6
#: Rows of the past from which on there is evidence in the target: in all, and for each class in it.
_FEWEST, _ROWS_PER_CLASS = 40, 10
#: Rows after which a class counts as shown, and share of the classes that must have been.
_SHOWN, _COVERED = 3, 0.9
#: Rows less usual than this do not become part of the past: they may be the first of a new class.
_DOUBTFUL = 0.005
#: Rows less usual than this count as evidence; the tail beyond is taken to be exponential.
_TAIL = 0.1


Singles = NDArray[np.float32]
#: Gives complete rows their most probable classes.
Classify = Callable[[Any], Integers]


class Neighbourhood(NamedTuple):
    """How isolated rows are."""

    loneliness: Floats  # distance from the past, compared with that of the neighbours there
    rise: Floats  # logarithm of how much nearer the latest rows are than those of the past


@dataclass(frozen=True, eq=False)
class Familiar:
    """Rows of a target: those of the past that were not novel, and the latest.

    Attributes
    ----------
    past : array of shape (n_past, d)
        A sample; rows that were unusual when they left the latest rows are not in it.
    recent : array of shape (n_recent, d)
        The latest rows, unusual or not. There are not many more of them than of earlier rows.
    prior : array of shape (n_classes,)
        Expected class proportions.
    scale : array of shape (d,)
        Usual scale of the columns, for those that do not vary.
    n_rows : int
        Rows seen.
    """

    past: Singles
    recent: Singles
    prior: Floats
    scale: Floats
    n_rows: int = 0

    @classmethod
    def none(cls, prior: Floats, scale: Floats) -> Familiar:
        """Return what is familiar before the first row."""
        rows = np.zeros((0, len(scale)), dtype=np.float32)  # enough to compare rows
        return cls(rows, rows, prior, scale)

    @property
    def rows(self) -> Any:
        """Rows that are known to be usual, or while there are few of them the latest."""
        return self.past if len(self.past) >= _FEWEST else self.recent

    @cached_property
    def table(self) -> PastTable:
        """Distances between the rows of the past."""
        return PastTable(self.past, self.scale)

    def _with_recent(self, recent: Singles, n_rows: int) -> Familiar:
        """Return the same past with other latest rows; its distances are not computed again."""
        found = replace(self, recent=recent, n_rows=n_rows)
        vars(found)["table"] = self.table
        return found

    def before(self, n: int) -> Familiar:
        """Return what was familiar before the latest n rows, as far as they are remembered."""
        return self._with_recent(self.recent[: max(0, len(self.recent) - n)], self.n_rows)

    def see(self, rows: Floats, classify: Classify) -> Familiar:
        """Return what is familiar after some more complete rows; `classify` names rows."""
        if len(rows) > _LONGEST:
            rows = rows[np.linspace(0, len(rows) - 1, _LONGEST).astype(np.intp)]
        found, rows = self, rows.astype(np.float32)
        for start in range(0, len(rows), _PIECE):
            found = found._see(rows[start : start + _PIECE], classify)
        return found

    def _see(self, rows: Floats, classify: Classify) -> Familiar:
        n_rows = self.n_rows + len(rows)
        recent = np.concatenate([self.recent, rows])
        joined = self._with_recent(recent, n_rows)
        kept = min(_RECENT, (n_rows + 1) // 2)
        # Several leave together: comparing them takes time.
        if len(recent) <= (2 * kept if kept == _RECENT else kept + kept // 2):
            return joined
        leaving = len(recent) - kept
        neighbours = joined.name(classify)
        usual = neighbours.chances(recent[:leaving], leaving=True) > _DOUBTFUL
        past = np.concatenate([self.past, recent[:leaving][usual]])
        classes = np.concatenate([neighbours.past_classes, neighbours.recent_classes[:leaving][usual]])
        some = _thin(classes, np.random.default_rng(n_rows))
        return replace(joined, past=past[some], recent=recent[leaving:])

    def name(self, classify: Classify) -> Neighbours:
        """Return the rows with their predicted classes, to compare others with them."""
        return Neighbours(self, classify)


class PastTable:
    """Rows of the past, standardised, and the distances between them; computed when needed first."""

    def __init__(self, past: Singles, scale: Floats) -> None:
        self.past, self._scale = past, scale

    @cached_property
    def _moments(self) -> tuple[Floats, Floats]:
        n = len(self.past)  # some more rows of the usual spread: a column may hardly have varied yet
        variances = (n * self.past.var(axis=0) + _NEIGHBOURS * np.square(self._scale)) / (
            n + _NEIGHBOURS
        )
        return self.past.mean(axis=0), np.sqrt(variances)

    def standardise(self, rows: Any) -> Any:
        """Return rows in units of the past."""
        centre, scale = self._moments
        return ((rows - centre) / scale).astype(np.float32)  # enough for distances between neighbours

    @cached_property
    def rows(self) -> Any:
        """The past in these units."""
        return self.standardise(self.past)

    @cached_property
    def apart(self) -> tuple[Floats, Integers]:
        """Log-distance of each row from its neighbours, and these."""
        distances = fast_squared_distances(self.rows, self.rows)
        np.fill_diagonal(distances, np.inf)
        return _nearest(distances)


class Neighbours:
    """Familiar rows with their predicted classes, and how isolated other rows are among them.

    Tables are computed when they are needed first.
    """

    def __init__(self, familiar: Familiar, classify: Classify) -> None:
        self.past, self.recent, self.prior = familiar.past, familiar.recent, familiar.prior
        self._table, self._classify = familiar.table, classify

    @cached_property
    def past_classes(self) -> Integers:
        """Predicted class of each row of the past."""
        return self._classify(self.past) if len(self.past) else np.zeros(0, dtype=np.intp)

    @cached_property
    def recent_classes(self) -> Integers:
        """Predicted class of each of the latest rows."""
        return self._classify(self.recent) if len(self.recent) else np.zeros(0, dtype=np.intp)

    @cached_property
    def _recent(self) -> tuple[Floats, Floats]:
        """The latest rows, standardised, and their distances from those of the past."""
        rows = self._table.standardise(self.recent)
        return rows, fast_squared_distances(self._table.rows, rows)

    def chances(self, rows: Floats, classes: Integers | None = None, *, leaving: bool = False) -> Floats:
        """Return how probable rows as isolated as these are if nothing is new, 0 to 1.

        It is 1 for rows that are not unusual, and for all rows as long as classes are awaited that the
        target has hardly shown: a new place may be theirs.

        Parameters
        ----------
        rows : array of shape (n, d)
        classes : array of shape (n,), optional
            The predicted class of each.
        leaving : bool
            The rows are the first of the latest ones.
        """
        if len(self.past) < _FEWEST or len(self.recent) < _NEIGHBOURS:
            return np.ones(len(rows))
        shown = np.bincount(self.past_classes, minlength=len(self.prior))
        enough = len(self.past) >= _ROWS_PER_CLASS * int((shown > 0).sum())
        if not enough or self.prior[shown >= _SHOWN].sum() < _COVERED:
            return np.ones(len(rows))
        if classes is None:
            classes = self.recent_classes[: len(rows)] if leaving else self._classify(rows)
        found = self._look(rows, classes, leaving=leaving)
        score = self._score(found)
        level, excess = self._null
        tail = _TAIL * np.exp(-np.maximum(score - level, 0.0) / excess)
        comparable = shown[classes] >= _SHOWN
        return np.where(comparable & (score > level), tail, 1.0)

    # -- what the past is like ---------------------------------------------------------------------

    @cached_property
    def _past(self) -> Neighbourhood:
        """How isolated rows of the past are: what is to be expected if nothing is new."""
        apart, neighbours = self._table.apart
        here = self._measure_recent(self._recent[1], self.past_classes)
        return Neighbourhood(apart - apart[neighbours].mean(axis=1), apart - here)

    @cached_property
    def _units(self) -> list[tuple[float, float]]:
        """Median of each figure in the past, and its distance from what one row in six exceeds."""
        found = [np.quantile(figure, [0.5, 5.0 / 6.0]) for figure in self._past]
        return [(float(middle), max(float(upper - middle), 1e-9)) for middle, upper in found]

    @cached_property
    def _null(self) -> tuple[float, float]:
        """Return where the tail of the scores of the past starts, and the mean excess over it."""
        usual = self._score(self._past)
        level = float(np.quantile(usual, 1.0 - _TAIL))
        return level, max(float(np.maximum(usual - level, 0.0).mean()) / _TAIL, 1e-9)

    def _score(self, found: Neighbourhood) -> Floats:
        return np.asarray(
            sum((one - middle) / unit for one, (middle, unit) in zip(found, self._units, strict=True))
        )

    def _look(self, rows: Floats, classes: Integers, *, leaving: bool) -> Neighbourhood:
        Z = self._table.standardise(rows)
        apart, neighbours = _nearest(fast_squared_distances(Z, self._table.rows))
        distances = fast_squared_distances(Z, self._recent[0])
        if leaving:
            np.fill_diagonal(distances, np.inf)
        here = self._measure_recent(distances, classes)
        return Neighbourhood(apart - self._table.apart[0][neighbours].mean(axis=1), apart - here)

    def _measure_recent(self, squared: Floats, classes: Integers) -> Floats:
        """Return the log-distance of rows of some classes from their neighbours among the latest rows.

        A class that is more frequent now than it was has more neighbours, so that only new places
        count, not other class proportions.
        """
        past, recent = (
            np.bincount(one, minlength=len(self.prior)) / len(one)
            for one in (self.past_classes, self.recent_classes)
        )
        more = np.maximum(recent / np.maximum(past, 1.0 / len(self.past)), 1.0)
        most = squared.shape[1] - 1
        counts = np.minimum(np.rint(_NEIGHBOURS * more).astype(np.intp), most)[classes]
        highest = int(counts.max())
        nearest = np.sort(np.partition(squared, highest - 1, axis=1)[:, :highest], axis=1)
        sums = np.cumsum(np.sqrt(nearest), axis=1)
        found = sums[np.arange(len(squared)), counts - 1] / counts
        return np.asarray(np.log(np.maximum(found, 1e-9)))


@dataclass(frozen=True, eq=False)
class Novelty:
    """What is usual of rows that are not novel."""

    quantiles: Floats  # of distances from the sources, in units of what is typical of a target
    first: Floats  # of distances from the sources before the first row of a target
    chances: Floats  # of rows of left-out sources, among their own rows; ascending

    @classmethod
    def none(cls) -> Novelty:
        """Return what is known without rows."""
        return cls(np.zeros(0), np.zeros(0), np.zeros(0))

    @classmethod
    def of(cls, distances: Floats, first: Floats, chances: Floats) -> Novelty:
        """Take the quantiles of distances in units of what is typical, of first ones, and of chances."""
        levels = np.linspace(0.0, 1.0, _QUANTILES)
        found = np.quantile(chances, levels) if len(chances) else np.zeros(0)
        return cls(np.quantile(distances, levels), np.quantile(first, levels), found)

    def rank_first(self, far: Floats) -> Floats:
        """Return the share of known rows that are nearer, before the first row of a target."""
        self._require_rows()
        return np.asarray(np.searchsorted(self.first, far, side="left") / len(self.first))

    def rank(self, far: Floats, chances: Floats | None = None) -> Floats:
        """Return the share of known rows that are less novel.

        Parameters
        ----------
        far : array of shape (n,)
            Distance from the sources, in units of what is typical.
        chances : array of shape (n,), optional
            What :meth:`Familiar.chances` returns. A row is novel by it only if it is unusual both for
            this target and among the rows of left-out sources.
        """
        self._require_rows()
        nearer = np.searchsorted(self.quantiles, far, side="left") / len(self.quantiles)
        if chances is None:
            return np.asarray(nearer)
        if len(self.chances):
            rarer = np.searchsorted(self.chances, chances, side="right") / len(self.chances)
            chances = np.maximum(chances, rarer)
        # Two tests: the smaller of two independent chances is below p with probability 1 − (1 − p)².
        return np.asarray(np.square(1.0 - np.minimum(1.0 - nearer, chances)))

    def _require_rows(self) -> None:
        if not len(self.quantiles):
            raise InvalidInputError("novelty needs rows of sources: this model was made from mixtures")


def nearest_distance(Z: Floats, means: Floats, stds: Floats) -> Floats:
    """Return the smallest mean squared standardised distance of each row to a component."""
    nearest = np.full(len(Z), np.inf)
    for mean, std in zip(means, stds, strict=True):
        np.minimum(nearest, np.square((Z - mean) / std).mean(axis=1), out=nearest)
    return nearest


def _nearest(squared: Floats) -> tuple[Floats, Integers]:
    """Return the logarithm of the mean distance of the nearest neighbours, and these."""
    k = min(_NEIGHBOURS, squared.shape[1] - 1)
    neighbours = np.argpartition(squared, k - 1, axis=1)[:, :k]
    distances: Any = np.sqrt(np.take_along_axis(squared, neighbours, axis=1))
    return np.log(np.maximum(distances.mean(axis=1), 1e-9)), neighbours


def _thin(classes: Integers, rng: np.random.Generator) -> Booleans:
    """Return which rows of the past to keep: those of rare classes, and some of the others."""
    kept = np.ones(len(classes), dtype=bool)
    surplus = len(classes) - _PAST
    if surplus > 0:
        frequent = np.flatnonzero(np.bincount(classes)[classes] > _NEIGHBOURS)
        frequent = frequent if len(frequent) >= surplus else np.arange(len(classes))
        kept[rng.permutation(frequent)[:surplus]] = False
    return kept
