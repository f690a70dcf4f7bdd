"""Components that are merged while others keep arriving.

A pool holds components and the table of distances between all pairs. Appending m components costs
O(m·K·d). Too many are merged in rounds of disjoint pairs, each component with its nearest: a round costs
a few operations on arrays, however many pairs it merges.

Products of rows are taken one pair at a time (`np.vecdot`), not by a matrix product: the bits then do
not depend on the number of BLAS threads, nor on what else is in the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from baryflow.core.gaussian import squared_distances
from baryflow.core.spread import Matrices, PackedFactors, Spreads
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers, check_values

#: Keeps the weight of a pair of components that never occur from being 0 / 0.
_TINY = 1e-300


#: A factor of the masses of two components.
Criterion = Callable[[Floats, Floats], Floats | float]


def _one(_a: Floats, _b: Floats) -> float:
    return 1.0


def _ward(a: Floats, b: Floats) -> Floats:
    return np.asarray((a * b + _TINY) / (a + b + _TINY))


#: Merge criteria by name: what merging two components costs is their W2² times a factor. The distance
#: alone, and Ward's, which between components of equal width is the scatter that a merge adds.
CRITERIA: dict[str, Criterion] = {"w2": _one, "ward": _ward}


def _average(first: Floats, second: Floats, share: Floats) -> Floats:
    """Return the W2 barycenters of pairs of points (mean, std) (paper, Alg. 4)."""
    return first + share * (second - first)


def _match_moments(first: Floats, second: Floats, share: Floats) -> Floats:
    """Return the points with the first two moments of both together."""
    d = first.shape[1] // 2
    step = second[:, :d] - first[:, :d]
    variance = (1.0 - share) * np.square(first[:, d:])
    variance += share * np.square(second[:, d:])
    variance += share * (1.0 - share) * np.square(step)
    return np.hstack([first[:, :d] + share * step, np.sqrt(variance)])


#: What two components become, by name.
MERGES: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "wasserstein": _average,
    "moment": _match_moments,
}

_ARRAYS = ("masses", "points", "labels", "places")


@dataclass(frozen=True, eq=False)
class PoolState:
    """All that a pool holds, but for the distances, which follow from it."""

    masses: Floats
    points: Floats
    labels: Floats
    places: Floats | None
    metric: Floats | None
    spreads: Matrices | PackedFactors | None

    def check(self, empty: PoolState) -> None:
        """Raise InvalidInputError unless this can continue a pool that is `empty` as yet."""
        k, d = len(self.masses), self.points.shape[1] // 2
        for name in (*_ARRAYS, "metric"):
            self._check_shape(name, getattr(empty, name))
        if type(self.spreads) is not type(empty.spreads):
            raise InvalidInputError("a saved pool and its settings disagree about its spreads")
        if self.spreads is not None:
            self.spreads.check(k, d, 0 if self.metric is None else self.metric.shape[1])
        if min(self.masses.min(initial=0.0), self.points[:, d:].min(initial=0.0)) < 0.0:
            raise InvalidInputError("the pool holds negative masses or stds")

    def _check_shape(self, name: str, like: Any) -> None:
        array = getattr(self, name)
        if (array is None) != (like is None):
            raise InvalidInputError(f"a saved pool and its settings disagree about its {name}")
        if array is None:
            return
        shape = like.shape if name == "metric" else (len(self.masses), *like.shape[1:])
        if array.shape != shape:
            raise InvalidInputError(
                f"expected the {name} of a saved pool to have shape {shape}, got {array.shape}"
            )
        check_values(np.asarray(array, dtype=np.float64), f"the pool's {name}", allow_nan=False)


class Pool:
    """Components with masses, means and stds, and on request labels or full covariances.

    Parameters
    ----------
    n_features : int
    distance : str
        The merge criterion, one of :data:`CRITERIA`.
    merging : str
        What two components become, one of :data:`MERGES`.
    n_classes : int
        Columns of the labels, averaged by mass; 0 without labels.
    spreads : Matrices or Factors, optional
        Carries how components spread in directions that are not the axes.
    metric : array of shape (d, p), optional
        Measure distances between ``means @ metric`` instead of between means and stds; see
        :meth:`look_through`.
    """

    def __init__(
        self,
        n_features: int,
        *,
        distance: str = "ward",
        merging: str = "moment",
        n_classes: int = 0,
        spreads: Spreads | None = None,
        metric: Floats | None = None,
    ) -> None:
        self._factor, self._merged = CRITERIA[distance], MERGES[merging]
        self._d, self._metric = n_features, metric
        self._masses = np.zeros(0)
        self._points = np.zeros((0, 2 * n_features))  # (mean, std) of each component
        # Where distances are measured, if not between the points.
        self._places = None if metric is None else np.zeros((0, metric.shape[1]))
        self._labels = np.zeros((0, n_classes))
        self._spreads = spreads
        self._costs: Floats | None = None  # of all pairs, infinite on the diagonal; None: to be measured

    def __len__(self) -> int:
        return len(self._masses)

    @property
    def masses(self) -> Floats:
        """Masses of the components."""
        return self._masses

    @property
    def means(self) -> Floats:
        """Means, shape (K, d)."""
        return self._points[:, : self._d]

    @property
    def stds(self) -> Floats:
        """Standard deviations, shape (K, d); 0 for a single row."""
        return self._points[:, self._d :]

    @property
    def labels(self) -> Floats:
        """Labels, shape (K, n_classes)."""
        return self._labels

    @property
    def spreads(self) -> Spreads | None:
        """How the components spread off the axes, if that is carried."""
        return self._spreads

    def copy(self) -> Self:
        """Return a copy; what is appended to it changes no other one."""
        return copy(self)

    def append(
        self,
        masses: Floats,
        means: Floats,
        stds: Floats,
        *,
        labels: Floats | None = None,
        spreads: Spreads | None = None,
    ) -> None:
        """Add components; without `spreads` they are axis-aligned."""
        n = len(self)
        self._masses = np.concatenate([self._masses, masses])
        self._points = np.concatenate([self._points, np.hstack([means, stds])])
        if self._metric is not None:
            self._places = np.concatenate([self._places, means @ self._metric])
        labels = np.zeros((len(masses), self._labels.shape[1])) if labels is None else labels
        self._labels = np.concatenate([self._labels, labels])
        if self._spreads is not None:
            self._spreads = self._spreads.plus(stds, spreads)
        if self._costs is not None:
            self._costs = np.pad(self._costs, (0, len(masses)))
            self._measure(self._costs, np.arange(n, len(self)))

    def look_through(self, metric: Floats) -> None:
        """Measure all distances again through another metric."""
        self._metric, self._places, self._costs = metric, self.means @ metric, None

    def decay(self, factor: float) -> None:
        """Multiply all masses by a factor."""
        self._masses, self._costs = factor * self._masses, None

    def compress(self, limit: int, *, pair_by_pair: bool = False) -> None:
        """Merge components with their nearest ones until at most `limit` are left.

        Pair by pair it is the paper's Alg. 3. Otherwise a round merges all pairs in which each component
        is the other's nearest and which are merged in any case: as long as one component more than there
        are too many has a neighbour as near. If no merge brings components nearer to each other, as with
        Ward's criterion, the result is the same. Arrays are changed in place: call it after
        :meth:`append`, which has made new ones.
        """
        if len(self) <= limit:
            return
        everyone, gone = np.arange(len(self)), np.zeros(len(self), dtype=bool)
        if self._costs is None:
            self._costs = np.empty((len(self), len(self)))
            self._measure(self._costs, everyone)
        while (surplus := len(self) - limit - int(gone.sum())) > 0:
            nearest = self._costs.argmin(axis=1)
            cost = self._costs[everyone, nearest]
            enough = np.partition(cost, surplus)[surplus]
            mutual = (nearest[nearest] == everyone) & (everyone < nearest)
            first = np.flatnonzero(mutual & (cost <= enough))
            first = first[cost[first].argsort(kind="stable")][: 1 if pair_by_pair else surplus]
            second = nearest[first]
            gone[second] = True
            self._merge(first, second)
            self._measure(self._costs, first)
            self._costs[gone] = self._costs[:, gone] = np.inf
        kept = ~gone
        for name in _ARRAYS:
            array = getattr(self, f"_{name}")
            setattr(self, f"_{name}", None if array is None else array[kept])
        self._costs = self._costs[np.ix_(kept, kept)]
        if self._spreads is not None:
            self._spreads = self._spreads.take(kept)

    def _measure(self, costs: Floats, some: Integers) -> None:
        """Put what it costs to merge some components with all others into the table."""
        places = self._points if self._places is None else self._places
        block = squared_distances(places[some], places, reproducible=True)
        block *= self._factor(self._masses[some, None], self._masses)
        costs[some], costs[:, some] = block, block.T
        costs[some, some] = np.inf

    def _merge(self, i: Integers, j: Integers) -> None:
        """Merge components j into components i, in place."""
        mass = self._masses[i] + self._masses[j]
        # Two components that never occur merge into one that never occurs.
        share = np.divide(self._masses[j], mass, out=np.full(len(i), 0.5), where=mass > 0.0)
        part = share[:, None]
        if self._spreads is not None:
            self._spreads.merge(i, j, share, self.means[j] - self.means[i], self._metric)
        self._points[i] = self._merged(self._points[i], self._points[j], part)
        if self._places is not None:
            self._places[i] += part * (self._places[j] - self._places[i])
        self._labels[i] += part * (self._labels[j] - self._labels[i])
        self._masses[i] = mass

    def state(self) -> PoolState:
        """Return everything the pool holds, to continue bit for bit."""
        spreads = None if self._spreads is None else self._spreads.state()
        arrays = {name: getattr(self, f"_{name}") for name in _ARRAYS}
        return PoolState(**arrays, metric=self._metric, spreads=spreads)

    def restore(self, state: PoolState) -> None:
        """Take over what :meth:`state` gave; raise InvalidInputError if it does not fit."""
        state.check(self.state())
        for name in (*_ARRAYS, "metric"):
            setattr(self, f"_{name}", getattr(state, name))
        kept = state.spreads
        self._spreads, self._costs = kept.unpack() if isinstance(kept, PackedFactors) else kept, None
