"""How the components of a pool spread in directions that are not the axes.

Two ways to keep it. :class:`Matrices` holds every component's covariance matrix: exact for whatever one
may ask, and d² numbers a component. :class:`Factors` holds what is needed to answer one question, the
variances of ``x @ metric`` for a metric that changes little: a few vectors a component.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans, Floats, Integers

#: Vectors kept of a component beyond the directions of the metric, and how many more may wait until
#: the least important ones are dropped: most merges then cost nothing but a copy.
_SPARE, _WAITING = 2, 8
#: Numbers that the vectors of all components may take at most: 32 MB.
_BUDGET = 2**22
#: A column's scale in the metric may still change by about this part: what matters then is kept too.
_SCALE_CHANGE = 0.1

#: Slot j into slot i; the share of j in their mass; the step from the mean of i to that of j.
Merge = tuple[int, int, float, Floats]


@dataclass(eq=False)
class Matrices:
    """A covariance matrix for every component, shape (slots, d, d), merged exactly."""

    covariances: Floats

    @classmethod
    def none(cls, n_features: int) -> Self:
        """Return those of no components."""
        return cls(np.zeros((0, n_features, n_features)))

    def copy(self) -> Matrices:
        """Return an independent copy."""
        return Matrices(self.covariances.copy())

    def grow(self, n: int) -> None:
        """Make room for n more slots."""
        self.covariances = np.pad(self.covariances, ((0, n), (0, 0), (0, 0)))

    def put(self, slots: Integers, stds: Floats, given: Matrices | None) -> None:
        """Put components into slots; without what is `given` they are axis-aligned."""
        if given is not None:
            self.covariances[slots] = given.covariances
            return
        diagonal = np.arange(stds.shape[1])
        self.covariances[slots] = 0.0
        self.covariances[slots[:, None], diagonal, diagonal] = np.square(stds)

    def merge(self, merges: Sequence[Merge], _: Floats | None) -> None:
        """Merge pairs of slots, one after another."""
        kept = self.covariances
        for i, j, share, step in merges:
            kept[i] += share * (kept[j] - kept[i])
            kept[i] += share * (1.0 - share) * np.outer(step, step)

    def take(self, alive: Booleans) -> Matrices:
        """Return those of some components."""
        return Matrices(self.covariances[alive])

    def variances(self, metric: Floats) -> Floats:
        """Return the variances of ``x @ metric`` for every component, shape (K, p)."""
        found = np.einsum("kjp,jp->kp", self.covariances @ metric, metric)
        return np.asarray(np.maximum(found, 0.0))

    def state(self) -> Matrices:
        """Return what is to be saved."""
        return self

    def check(self, slots: int, n_features: int, _: int) -> None:
        """Raise InvalidInputError unless the arrays fit a pool."""
        _check("covariances", self.covariances, (slots, n_features, n_features))


@dataclass(frozen=True, eq=False)
class PackedFactors:
    """:class:`Factors` in a few arrays: the vectors of all components one after another."""

    limit: int
    vectors: Floats  # (total rank, d)
    ranks: Integers
    diagonal: Floats | None  # None: zeros
    rest: Floats

    def unpack(self) -> Factors:
        """Return factors that can be merged."""
        if self.vectors.ndim != 2 or self.ranks.min(initial=0) < 0:
            raise InvalidInputError("the vectors of a saved pool do not fit their ranks")
        vectors = np.split(self.vectors, np.cumsum(self.ranks)[:-1]) if len(self.ranks) else []
        diagonal = np.zeros((len(vectors), self.vectors.shape[1]))
        if self.diagonal is not None:
            diagonal = self.diagonal.copy()
        return Factors(self.limit, vectors, diagonal, self.rest.copy())

    def check(self, slots: int, n_features: int, n_directions: int) -> None:
        """Raise InvalidInputError unless the arrays fit a pool."""
        _check("ranks", self.ranks, (slots,))
        _check("vectors", self.vectors, (int(self.ranks.sum()), n_features))
        if self.diagonal is not None:
            _check("diagonal", self.diagonal, (slots, n_features))
        _check("rest", self.rest, (slots, n_directions))
        if not 1 <= self.limit <= n_features:
            raise InvalidInputError(f"a saved pool keeps {self.limit} vectors of {n_features} columns")


@dataclass(eq=False)
class Factors:
    """Covariances as sums of outer products of few vectors, exact until there are too many of them.

    A component of r rows needs r − 1 vectors. Beyond a limit only those combinations are kept that
    matter for the variances of ``x @ metric``, also if the scale of a column in it changes somewhat;
    what is lost of these variances is added as it is. With a vector for every column of the metric
    nothing is lost as long as the metric stays.
    """

    limit: int
    vectors: list[Floats]  # (rank, d) for each slot; never changed in place, so that copies share them
    diagonal: Floats  # (slots, d): variances of values that were missing
    rest: Floats  # (slots, p): variances in the metric of what was dropped

    @classmethod
    def none(cls, n_features: int, n_directions: int, n_components: int) -> Self:
        """Return those of no components, for a metric of shape (n_features, n_directions).

        `n_components` will share the memory there is.
        """
        fair = max(1, _BUDGET // (n_components * n_features))
        limit = min(n_features, n_directions + _SPARE, fair)
        return cls(limit, [], np.zeros((0, n_features)), np.zeros((0, n_directions)))

    def copy(self) -> Factors:
        """Return an independent copy."""
        return Factors(self.limit, self.vectors.copy(), self.diagonal.copy(), self.rest.copy())

    def grow(self, n: int) -> None:
        """Make room for n more slots."""
        self.vectors = self.vectors + [np.zeros((0, self.diagonal.shape[1]))] * n
        self.diagonal = np.pad(self.diagonal, ((0, n), (0, 0)))
        self.rest = np.pad(self.rest, ((0, n), (0, 0)))

    def put(self, slots: Integers, stds: Floats, given: Factors | None) -> None:
        """Put components into slots; without what is `given` they are axis-aligned."""
        none = np.zeros((0, self.diagonal.shape[1]))
        for number, slot in enumerate(slots.tolist()):
            self.vectors[slot] = none if given is None else given.vectors[number]
        if given is None:
            self.rest[slots], self.diagonal[slots] = 0.0, np.square(stds)
            return
        self.diagonal[slots] = given.diagonal
        # What was dropped was measured in the other pool's metric, which may have more directions.
        self.rest[slots] = given.rest if given.rest.shape[1] == self.rest.shape[1] else 0.0

    def merge(self, merges: Sequence[Merge], metric: Floats | None) -> None:
        """Merge pairs of slots, one after another."""
        for merge in merges:
            self._merge_pair(*merge, metric)

    def _merge_pair(self, i: int, j: int, share: float, step: Floats, metric: Floats | None) -> None:
        mine, other = self.vectors[i], self.vectors[j]
        n = len(mine)
        joint = np.empty((n + len(other) + 1, len(step)))
        np.multiply(mine, math.sqrt(1.0 - share), out=joint[:n])
        np.multiply(other, math.sqrt(share), out=joint[n:-1])
        np.multiply(step, math.sqrt(share * (1.0 - share)), out=joint[-1])
        self.diagonal[i] += share * (self.diagonal[j] - self.diagonal[i])
        self.rest[i] += share * (self.rest[j] - self.rest[i])
        if metric is not None and len(joint) > self.limit + _WAITING:
            joint = self._shorten(i, joint, metric)
        self.vectors[i], self.vectors[j] = joint, other[:0]

    def _shorten(self, i: int, joint: Floats, metric: Floats) -> Floats:
        """Return the combinations of vectors that matter most."""
        seen = joint @ metric
        # Expected squares if each row of the metric is off by a random part of itself.
        uncertain = _SCALE_CHANGE * joint * np.linalg.norm(metric, axis=1)
        _, vectors = np.linalg.eigh(seen @ seen.T + uncertain @ uncertain.T)
        kept = vectors[:, : -self.limit - 1 : -1].T
        lost = np.square(seen).sum(axis=0) - np.square(kept @ seen).sum(axis=0)
        self.rest[i] += np.maximum(lost, 0.0)
        return np.asarray(kept @ joint)

    def take(self, alive: Booleans) -> Factors:
        """Return those of some components."""
        vectors = [self.vectors[slot] for slot in np.flatnonzero(alive)]
        return Factors(self.limit, vectors, self.diagonal[alive], self.rest[alive])

    def variances(self, metric: Floats) -> Floats:
        """Return the variances of ``x @ metric`` for every slot, shape (slots, p)."""
        found = self.rest + self.diagonal @ np.square(metric)
        ranks = self.ranks
        if some := np.flatnonzero(ranks).tolist():
            seen = np.concatenate([self.vectors[slot] for slot in some]) @ metric
            starts = np.cumsum(ranks[some]) - ranks[some]
            found[some] += np.add.reduceat(np.square(seen, out=seen), starts, axis=0)
        return found

    def state(self) -> PackedFactors:
        """Return what is to be saved."""
        diagonal = self.diagonal if self.diagonal.any() else None
        none = np.zeros((0, self.diagonal.shape[1]))
        vectors = np.concatenate([none, *self.vectors])
        return PackedFactors(self.limit, vectors, self.ranks, diagonal, self.rest)

    @property
    def ranks(self) -> Integers:
        """Number of vectors in each slot."""
        return np.array([len(one) for one in self.vectors], dtype=np.intp)


Spreads = Matrices | Factors


def _check(name: str, array: Any, shape: tuple[int, ...]) -> None:
    if array.shape != shape or not np.isfinite(array).all():
        raise InvalidInputError(
            f"expected the {name} of a saved pool to be finite and of shape {shape}, got {array.shape}"
        )
