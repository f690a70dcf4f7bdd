"""How the components of a pool spread in directions that are not the axes.

Two ways to keep it. :class:`Matrices` holds every component's covariance matrix: exact for whatever one
may ask, and d² numbers a component. :class:`Factors` holds what is needed to answer one question, the
variances of ``x @ metric`` for a metric that changes little: a few vectors a component.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans, Floats, Integers

#: Vectors kept of a component beyond the directions of the metric, and how many more may wait until
#: the least important ones are dropped: most merges then cost nothing but a copy.
_SPARE, _WAITING = 2, 8
#: With at most this many columns more than the metric has directions, matrices are smaller.
FEW_COLUMNS = _SPARE + _WAITING
#: Numbers that the vectors of all components may take at most: 32 MB.
_BUDGET = 2**22
#: A column's scale in the metric may still change by about this part: what matters then is kept too.
_SCALE_CHANGE = 0.1


@dataclass(frozen=True, eq=False)
class Matrices:
    """A covariance matrix for every component, shape (K, d, d), merged exactly."""

    covariances: Floats

    @classmethod
    def none(cls, n_features: int) -> Self:
        """Return those of no components."""
        return cls(np.zeros((0, n_features, n_features)))

    def plus(self, stds: Floats, given: Spreads | None = None) -> Matrices:
        """Return these and those of more components; without what is `given` they are axis-aligned."""
        if given is None:
            more = np.square(stds)[:, :, None] * np.eye(stds.shape[1])
        else:
            more = given.covariances
        return Matrices(np.concatenate([self.covariances, more]))

    def merge(self, i: Integers, j: Integers, shares: Floats, steps: Floats, _: Any = None) -> None:
        """Merge components j into i, in place.

        `shares` are those of j in their mass, `steps` lead from the means of i to those of j.
        """
        part, kept = shares[:, None, None], self.covariances
        between = ((1.0 - shares)[:, None] * steps)[:, :, None] * steps[:, None, :]
        between += kept[j] - kept[i]
        kept[i] += part * between

    def take(self, some: Booleans) -> Matrices:
        """Return those of some components."""
        return Matrices(self.covariances[some])

    def variances(self, metric: Floats) -> Floats:
        """Return the variances of ``x @ metric`` for every component, shape (K, p)."""
        found = np.einsum("kjp,jp->kp", self.covariances @ metric, metric)
        return np.asarray(np.maximum(found, 0.0))

    def state(self) -> Matrices:
        """Return what is to be saved."""
        return self

    def check(self, n_components: int, n_features: int, _: int) -> None:
        """Raise InvalidInputError unless the arrays fit a pool."""
        _check("covariances", self.covariances, (n_components, n_features, n_features))


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

    def check(self, n_components: int, n_features: int, n_directions: int) -> None:
        """Raise InvalidInputError unless the arrays fit a pool."""
        _check("ranks", self.ranks, (n_components,))
        _check("vectors", self.vectors, (int(self.ranks.sum()), n_features))
        if self.diagonal is not None:
            _check("diagonal", self.diagonal, (n_components, n_features))
        _check("rest", self.rest, (n_components, n_directions))
        if not 1 <= self.limit <= n_features:
            raise InvalidInputError(f"a saved pool keeps {self.limit} vectors of {n_features} columns")


@dataclass(frozen=True, eq=False)
class Factors:
    """Covariances as sums of outer products of few vectors, exact until there are too many of them.

    A component of r rows needs r − 1 vectors. Beyond a limit only those combinations are kept that
    matter for the variances of ``x @ metric``, also if the scale of a column in it changes somewhat;
    what is lost of these variances is added as it is. With a vector for every column of the metric
    nothing is lost as long as the metric stays.
    """

    limit: int
    vectors: list[Floats]  # (rank, d) for each; never changed in place, so that copies share them
    diagonal: Floats  # (K, d): variances of values that were missing
    rest: Floats  # (K, p): variances in the metric of what was dropped

    @classmethod
    def none(cls, n_features: int, n_directions: int, n_components: int) -> Self:
        """Return those of no components, for a metric of shape (n_features, n_directions).

        `n_components` will share the memory there is.
        """
        fair = max(1, _BUDGET // (n_components * n_features))
        limit = min(n_features, n_directions + _SPARE, fair)
        return cls(limit, [], np.zeros((0, n_features)), np.zeros((0, n_directions)))

    def plus(self, stds: Floats, given: Spreads | None = None) -> Factors:
        """Return these and those of more components; without what is `given` they are axis-aligned."""
        vectors, diagonal = [np.zeros((0, stds.shape[1]))] * len(stds), np.square(stds)
        rest = np.zeros((len(stds), self.rest.shape[1]))
        if isinstance(given, Matrices):
            squares, axes = np.linalg.eigh(given.covariances)
            roots = np.sqrt(np.maximum(squares, 0.0))
            vectors, diagonal = list((axes * roots[:, None, :]).swapaxes(1, 2)), np.zeros_like(stds)
        elif given is not None:
            vectors, diagonal = given.vectors, given.diagonal
            # What was dropped was measured in the other pool's metric, which may have more directions.
            rest = given.rest if given.rest.shape == rest.shape else rest
        return Factors(
            self.limit,
            self.vectors + vectors,
            np.concatenate([self.diagonal, diagonal]),
            np.concatenate([self.rest, rest]),
        )

    @property
    def covariances(self) -> Floats:
        """The covariances, as far as they are known, shape (K, d, d)."""
        d = self.diagonal.shape[1]
        products = [one.T @ one for one in self.vectors]
        return np.reshape(products, (-1, d, d)) + self.diagonal[:, :, None] * np.eye(d)

    def merge(
        self, i: Integers, j: Integers, shares: Floats, steps: Floats, metric: Floats | None
    ) -> None:
        """Merge components j into i, in place, as those of :class:`Matrices`."""
        part = shares[:, None]
        self.diagonal[i] += part * (self.diagonal[j] - self.diagonal[i])
        self.rest[i] += part * (self.rest[j] - self.rest[i])
        for pair in zip(i.tolist(), j.tolist(), shares.tolist(), steps, strict=True):
            self._merge_pair(*pair, metric)

    def _merge_pair(self, i: int, j: int, share: float, step: Floats, metric: Floats | None) -> None:
        mine, other = self.vectors[i], self.vectors[j]
        n = len(mine)
        joint = np.empty((n + len(other) + 1, len(step)))
        np.multiply(mine, math.sqrt(1.0 - share), out=joint[:n])
        np.multiply(other, math.sqrt(share), out=joint[n:-1])
        np.multiply(step, math.sqrt(share * (1.0 - share)), out=joint[-1])
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

    def take(self, some: Booleans) -> Factors:
        """Return those of some components."""
        vectors = [self.vectors[k] for k in np.flatnonzero(some)]
        return Factors(self.limit, vectors, self.diagonal[some], self.rest[some])

    def variances(self, metric: Floats) -> Floats:
        """Return the variances of ``x @ metric`` for every component, shape (K, p)."""
        found = self.rest + self.diagonal @ np.square(metric)
        ranks = self.ranks
        if some := np.flatnonzero(ranks).tolist():
            seen = np.concatenate([self.vectors[k] for k in some]) @ metric
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
        """Number of vectors of each component."""
        return np.array([len(one) for one in self.vectors], dtype=np.intp)


Spreads = Matrices | Factors


def _check(name: str, array: Any, shape: tuple[int, ...]) -> None:
    if array.shape != shape or not np.isfinite(array).all():
        raise InvalidInputError(
            f"expected the {name} of a saved pool to be finite and of shape {shape}, got {array.shape}"
        )
