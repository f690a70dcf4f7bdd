"""How the components of a pool spread in directions that are not the axes.

Two ways to keep it. :class:`Matrices` holds every component's covariance matrix: exact for whatever one
may ask, and d² numbers a component. :class:`Factors` holds what is needed to answer one question, the
variances of ``x @ metric`` for a metric that changes little: a few vectors a component.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans, Floats, Integers

#: Vectors kept of a component beyond the directions of the metric, and how many more may wait until
#: the least important ones are dropped: most merges then cost nothing but a copy.
_SPARE, _WAITING = 2, 4
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
    """:class:`Factors` without the room for more: the vectors one after another."""

    limit: int
    vectors: Floats  # (total rank, d)
    ranks: Integers
    diagonal: Floats | None  # None: zeros
    rest: Floats

    def unpack(self) -> Factors:
        """Return factors that can be merged."""
        if self.vectors.ndim != 2 or self.ranks.min(initial=0) < 0:
            raise InvalidInputError("the vectors of a saved pool do not fit their ranks")
        most = max(self.limit + _WAITING, int(self.ranks.max(initial=0)))
        room = np.zeros((len(self.ranks), most, self.vectors.shape[1]))
        room[np.arange(room.shape[1]) < self.ranks[:, None]] = self.vectors
        diagonal = (
            np.zeros((len(room), room.shape[2])) if self.diagonal is None else self.diagonal.copy()
        )
        return Factors(self.limit, room, self.ranks.copy(), diagonal, self.rest.copy())

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
    vectors: Floats  # (slots, room, d)
    ranks: Integers  # (slots,)
    diagonal: Floats  # (slots, d): variances of values that were missing
    rest: Floats  # (slots, p): variances in the metric of what was dropped

    @classmethod
    def none(cls, n_features: int, n_directions: int, n_components: int) -> Self:
        """Return those of no components, for a metric of shape (n_features, n_directions).

        `n_components` will share the memory there is.
        """
        fair = max(1, _BUDGET // (n_components * n_features))
        limit = min(n_features, n_directions + _SPARE, fair)
        return cls(
            limit,
            np.zeros((0, limit + _WAITING, n_features)),
            np.zeros(0, dtype=np.intp),
            np.zeros((0, n_features)),
            np.zeros((0, n_directions)),
        )

    def grow(self, n: int) -> None:
        """Make room for n more slots."""
        self.vectors = np.pad(self.vectors, ((0, n), (0, 0), (0, 0)))
        self.ranks = np.pad(self.ranks, (0, n))
        self.diagonal = np.pad(self.diagonal, ((0, n), (0, 0)))
        self.rest = np.pad(self.rest, ((0, n), (0, 0)))

    def put(self, slots: Integers, stds: Floats, given: Factors | None) -> None:
        """Put components into slots; without what is `given` they are axis-aligned."""
        if given is None:
            self.ranks[slots], self.rest[slots] = 0, 0.0
            self.diagonal[slots] = np.square(stds)
            return
        lacking = given.vectors.shape[1] - self.vectors.shape[1]
        if lacking > 0:  # the other pool had fewer components, and more memory for each
            self.vectors = np.pad(self.vectors, ((0, 0), (0, lacking), (0, 0)))
        self.vectors[slots, : given.vectors.shape[1]] = given.vectors
        self.ranks[slots], self.diagonal[slots] = given.ranks, given.diagonal
        # What was dropped was measured in the other pool's metric, which may have more directions.
        self.rest[slots] = given.rest if given.rest.shape[1] == self.rest.shape[1] else 0.0

    def merge(self, merges: Sequence[Merge], metric: Floats | None) -> None:
        """Merge pairs of slots, one after another."""
        for merge in merges:
            self._merge_pair(*merge, metric)

    def _merge_pair(self, i: int, j: int, share: float, step: Floats, metric: Floats | None) -> None:
        mine, other = int(self.ranks[i]), int(self.ranks[j])
        total = mine + other + 1
        # Not the room that happens to be there, which a saved pool does not know of.
        fits = total <= self.limit + _WAITING
        joint = self.vectors[i] if fits else np.empty((total, len(step)))
        joint[:mine] = np.sqrt(1.0 - share) * self.vectors[i, :mine]
        joint[mine : total - 1] = np.sqrt(share) * self.vectors[j, :other]
        joint[total - 1] = np.sqrt(share * (1.0 - share)) * step
        self.diagonal[i] += share * (self.diagonal[j] - self.diagonal[i])
        self.rest[i] += share * (self.rest[j] - self.rest[i])
        self.ranks[i] = total
        if not fits and metric is not None:
            self._shorten(i, joint, metric)

    def _shorten(self, i: int, joint: Floats, metric: Floats) -> None:
        """Keep the combinations of vectors that matter most."""
        seen = joint @ metric
        # Expected squares if each row of the metric is off by a random part of itself.
        uncertain = _SCALE_CHANGE * joint * np.linalg.norm(metric, axis=1)
        _, vectors = np.linalg.eigh(seen @ seen.T + uncertain @ uncertain.T)
        kept = vectors[:, : -self.limit - 1 : -1].T
        self.vectors[i, : self.limit] = kept @ joint
        self.ranks[i] = self.limit
        lost = np.square(seen).sum(axis=0) - np.square(kept @ seen).sum(axis=0)
        self.rest[i] += np.maximum(lost, 0.0)

    def take(self, alive: Booleans) -> Factors:
        """Return those of some components."""
        return Factors(
            self.limit,
            self.vectors[alive],
            self.ranks[alive],
            self.diagonal[alive],
            self.rest[alive],
        )

    def variances(self, metric: Floats) -> Floats:
        """Return the variances of ``x @ metric`` for every slot, shape (slots, p)."""
        found = self.rest + self.diagonal @ np.square(metric)
        for slot in np.flatnonzero(self.ranks):
            seen = self.vectors[slot, : self.ranks[slot]] @ metric
            found[slot] += np.square(seen, out=seen).sum(axis=0)
        return found

    def state(self) -> PackedFactors:
        """Return what is to be saved."""
        diagonal = self.diagonal if self.diagonal.any() else None
        return PackedFactors(self.limit, self.vectors[self._used()], self.ranks, diagonal, self.rest)

    def _used(self) -> Booleans:
        return np.asarray(np.arange(self.vectors.shape[1]) < self.ranks[:, None])


Spreads = Matrices | Factors


def _check(name: str, array: Any, shape: tuple[int, ...]) -> None:
    if array.shape != shape or not np.isfinite(array).all():
        raise InvalidInputError(
            f"expected the {name} of a saved pool to be finite and of shape {shape}, got {array.shape}"
        )
