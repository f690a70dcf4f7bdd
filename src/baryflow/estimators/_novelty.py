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
from typing import Any

import numpy as np

from baryflow.core.transport import fast_squared_distances
from baryflow.validation import Floats, Integers

#: Rows above this novelty are called novel.
NOVELTY_THRESHOLD = 0.99
#: Quantiles of the figures of left-out rows against which novelty is measured.
_QUANTILES = 1001
#: Rows of the past, and latest rows, that are kept of a target at most.
_PAST, _RECENT = 450, 225
#: Rows of one batch that are looked at at most.
_LONGEST = 500
#: Neighbours of a row.
_NEIGHBOURS = 6
#: Rows of the past from which on there is evidence in the target.
_FEWEST = 40
#: Rows after which a class counts as shown, and share of the classes that must have been.
_SHOWN, _COVERED = 3, 0.9
#: Rows less usual than this do not become part of the past: they may be the first of a new class.
_DOUBTFUL = 0.005
#: Rows less usual than this count as evidence; the tail beyond is taken to be exponential.
_TAIL = 0.1

#: Rows in float32, which is enough to compare them.
Singles = Any
#: Gives complete rows their most probable classes.
Classify = Callable[[Any], Integers]


@dataclass(frozen=True, eq=False)
class Past:
    """Earlier rows of a target, and how isolated each is among the others."""

    rows: Singles
    scale: Floats  # usual one of the columns, for those that hardly varied yet

    def __len__(self) -> int:
        return len(self.rows)

    def standardise(self, rows: Any) -> Singles:
        """Return rows in units of the past; a few rows of the usual spread are added to it."""
        n, m = len(self.rows), _NEIGHBOURS
        variances = (n * self.rows.var(axis=0) + m * np.square(self.scale)) / (n + m)
        return np.asarray((rows - self.rows.mean(axis=0)) / np.sqrt(variances), dtype=np.float32)

    @cached_property
    def standardised(self) -> Singles:
        """The rows in these units."""
        return self.standardise(self.rows)

    @cached_property
    def apart(self) -> tuple[Floats, Floats]:
        """Log-distance of each row from its neighbours, and how much larger it is than theirs."""
        distances = fast_squared_distances(self.standardised, self.standardised)
        np.fill_diagonal(distances, np.inf)
        apart, neighbours = _nearest(distances)
        return apart, apart - apart[neighbours].mean(axis=1)


@dataclass(frozen=True, eq=False)
class Familiar:
    """Rows of a target: some of the past that were not unusual when they came, and the latest."""

    past: Past
    recent: Singles  # unusual or not; not many more of them than of earlier rows
    prior: Floats  # expected class proportions
    n_rows: int = 0  # seen

    @classmethod
    def none(cls, prior: Floats, scale: Floats) -> Familiar:
        """Return what is familiar before the first row; `scale` is the usual one of the columns."""
        rows = np.zeros((0, len(scale)), dtype=np.float32)  # enough to compare rows
        return cls(Past(rows, scale), rows, prior)

    @property
    def rows(self) -> Singles:
        """Rows that are known to be usual, or while there are few of them the latest."""
        return self.past.rows if len(self.past) >= _FEWEST else self.recent

    def before(self, n: int) -> Familiar:
        """Return what was familiar before the latest n rows, as far as they are remembered."""
        return replace(self, recent=self.recent[: max(0, len(self.recent) - n)])

    def see(self, rows: Floats, classify: Classify) -> Familiar:
        """Return what is familiar after some more complete rows."""
        if len(rows) > _LONGEST:
            rows = rows[np.linspace(0, len(rows) - 1, _LONGEST).astype(np.intp)]
        rows = rows.astype(np.float32)
        n_rows = self.n_rows + len(rows)
        joined = replace(self, recent=np.concatenate([self.recent, rows]), n_rows=n_rows)
        kept = min(_RECENT, (n_rows + 1) // 2)
        # Several leave together: comparing them takes time.
        if len(joined.recent) <= (2 * kept if kept == _RECENT else kept + kept // 2):
            return joined
        leaving, recent = joined.recent[:-kept], joined.recent[-kept:]
        usual = joined.chances(leaving, classify(leaving), classify, leaving=True) > _DOUBTFUL
        past = np.concatenate([self.past.rows, leaving[usual]])
        past = past[np.sort(np.random.default_rng(n_rows).permutation(len(past))[:_PAST])]
        return replace(joined, past=replace(self.past, rows=past), recent=recent)

    def chances(
        self, rows: Any, classes: Integers, classify: Classify, *, leaving: bool = False
    ) -> Floats:
        """Return how probable rows as isolated as these are if nothing is new, 0 to 1.

        Isolated is a row that is farther from the past than its neighbours there are from theirs, and
        nearer to the latest rows than to the past. Both are measured in units of how rows of the past
        differ. Chances are 1 for rows that are not unusual, and for all rows as long as classes are
        awaited that the target has hardly shown: a new place may be theirs.

        `classes` are predicted of the rows, `classify` predicts those of the past. With `leaving` the
        rows are the first of the latest ones.
        """
        if len(self.past) < _FEWEST or len(self.recent) < _NEIGHBOURS:
            return np.ones(len(rows))
        shown = np.bincount(classify(self.past.rows), minlength=len(self.prior))
        if self.prior[shown >= _SHOWN].sum() < _COVERED:
            return np.ones(len(rows))
        Z, recent = self.past.standardise(rows), self.past.standardise(self.recent)
        past_apart, past_lonely = self.past.apart
        past_rise = past_apart - _nearest(fast_squared_distances(self.past.standardised, recent))[0]
        apart, neighbours = _nearest(fast_squared_distances(Z, self.past.standardised))
        distances = fast_squared_distances(Z, recent)
        if leaving:
            np.fill_diagonal(distances, np.inf)
        rise = apart - _nearest(distances)[0]
        lonely = apart - past_apart[neighbours].mean(axis=1)
        score = _in_units(lonely, past_lonely) + _in_units(rise, past_rise)
        usual = _in_units(past_lonely, past_lonely) + _in_units(past_rise, past_rise)
        level = np.quantile(usual, 1.0 - _TAIL)
        excess = max(float(np.maximum(usual - level, 0.0).mean()) / _TAIL, 1e-9)
        tail = _TAIL * np.exp(-np.maximum(score - level, 0.0) / excess)
        return np.where((shown[classes] >= _SHOWN) & (score > level), tail, 1.0)


def _in_units(values: Floats, usual: Floats) -> Floats:
    """Return how far values exceed the median of usual ones, in units of what one in six exceeds."""
    middle, upper = np.quantile(usual, [0.5, 5.0 / 6.0])
    return np.asarray((values - middle) / max(float(upper - middle), 1e-9))


@dataclass(frozen=True, eq=False)
class Novelty:
    """Distances of rows that are not novel, from the sources."""

    quantiles: Floats  # in units of what is typical of a target
    first: Floats  # before the first row of a target

    @classmethod
    def none(cls) -> Novelty:
        """Return what is known without rows."""
        return cls(np.zeros(0), np.zeros(0))

    @classmethod
    def of(cls, distances: Floats, first: Floats) -> Novelty:
        """Take the quantiles of distances in units of what is typical, and of first ones."""
        levels = np.linspace(0.0, 1.0, _QUANTILES)
        return cls(np.quantile(distances, levels), np.quantile(first, levels))

    def rank_first(self, far: Floats) -> Floats:
        """Return the share of known rows that are nearer, before the first row of a target."""
        return self._rank(self.first, far)

    def rank(self, far: Floats, chances: Floats | None = None) -> Floats:
        """Return the share of known rows that are less novel.

        `far` are distances from the sources, in units of what is typical; `chances` are what
        :meth:`Familiar.chances` returns.
        """
        nearer = self._rank(self.quantiles, far)
        if chances is None:
            return nearer
        # Two tests: the smaller of two independent chances is below p with probability 1 − (1 − p)².
        return np.asarray(np.square(1.0 - np.minimum(1.0 - nearer, chances)))

    def _rank(self, known: Floats, far: Floats) -> Floats:
        return np.asarray(np.searchsorted(known, far, side="left") / len(known))


def nearest_distance(Z: Floats, means: Floats, stds: Floats) -> Floats:
    """Return the smallest mean squared standardised distance of each row to a component."""
    nearest = np.full(len(Z), np.inf)
    for mean, std in zip(means, stds, strict=True):
        np.minimum(nearest, np.square((Z - mean) / std).mean(axis=1), out=nearest)
    return nearest


def _nearest(squared: Floats) -> tuple[Floats, Integers]:
    """Return the logarithm of the mean distance of the nearest neighbours, and these.

    The table is used up: the smallest number of each row, again and again, is found sooner than the rows
    are partitioned.
    """
    rows, k = np.arange(len(squared)), min(_NEIGHBOURS, squared.shape[1] - 1)
    found, neighbours = np.empty((len(rows), k)), np.empty((len(rows), k), dtype=np.intp)
    for nth in range(k):
        neighbours[:, nth] = nearest = squared.argmin(axis=1)
        found[:, nth] = squared[rows, nearest]
        squared[rows, nearest] = np.inf
    return np.log(np.maximum(np.sqrt(found).mean(axis=1), 1e-9)), neighbours
