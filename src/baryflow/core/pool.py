"""Components that are merged while others keep arriving.

A pool holds components in slots together with the table of distances between all pairs. Appending m
components costs O(m·K·d), a merge O(K·d): one row of the table is recomputed, and every component
remembers which other one is nearest. Slots of merged components are used again, so a pool that is
compressed after every append needs bounded memory for ever.

Products of rows are taken one pair at a time (`np.vecdot`), not by a matrix product: the bits then do
not depend on the number of BLAS threads, nor on what else is in the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from baryflow.core.gaussian import CANCELLED, squared_distances
from baryflow.core.spread import Matrices, Merge, PackedFactors, Spreads
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans, Floats, Integers, check_values

#: Keeps the weight of a pair of components that never occur from being 0 / 0.
_TINY = 1e-300


class MergeCriterion(NamedTuple):
    """What merging two components costs: their W2², times a factor that depends on their masses.

    The factor is homogeneous of `degree`: if all masses are multiplied by c, it is multiplied by
    c ** degree.
    """

    factor: Callable[[Floats, Floats], Floats | float]
    degree: float


def _one(_a: Floats, _b: Floats) -> float:
    return 1.0


def _ward(a: Floats, b: Floats) -> Floats:
    return np.asarray((a * b + _TINY) / (a + b + _TINY))


#: Merge criteria by name: the distance alone, and Ward's, which between components of equal width is the
#: scatter that a merge adds.
CRITERIA: dict[str, MergeCriterion] = {
    "w2": MergeCriterion(_one, 0.0),
    "ward": MergeCriterion(_ward, 1.0),
}


def _average(first: Floats, second: Floats, share: float) -> Floats:
    """Return the W2 barycenter of two points (mean, std) (paper, Alg. 4)."""
    return first + share * (second - first)


def _match_moments(first: Floats, second: Floats, share: float) -> Floats:
    """Return the point with the first two moments of both together."""
    d = len(first) // 2
    step = second[:d] - first[:d]
    variance = (1.0 - share) * np.square(first[d:])
    variance += share * np.square(second[d:])
    variance += share * (1.0 - share) * np.square(step)
    return np.concatenate([first[:d] + share * step, np.sqrt(variance)])


#: What two components become, by name.
MERGES: dict[str, Callable[[Floats, Floats, float], Floats]] = {
    "wasserstein": _average,
    "moment": _match_moments,
}

_ARRAYS = ("masses", "points", "norms", "labels", "alive", "costs", "nearest", "nearest_cost")


@dataclass(frozen=True, eq=False)
class PoolState:
    """All that a pool holds."""

    masses: Floats
    points: Floats
    norms: Floats
    labels: Floats
    alive: Booleans
    costs: Floats
    nearest: Integers
    nearest_cost: Floats
    metric: Floats | None
    places: Floats | None
    spreads: Matrices | PackedFactors | None

    def check(self, empty: PoolState) -> None:
        """Raise InvalidInputError unless this can continue a pool that is `empty` as yet."""
        slots, d = len(self.masses), self.points.shape[1] // 2
        for name in (*_ARRAYS, "places", "metric"):
            self._check_shape(name, getattr(empty, name))
        if type(self.spreads) is not type(empty.spreads):
            raise InvalidInputError("a saved pool and its settings disagree about its spreads")
        if self.spreads is not None:
            self.spreads.check(slots, d, 0 if self.metric is None else self.metric.shape[1])
        if slots and not (self.nearest.min() >= 0 and self.nearest.max() < slots):
            raise InvalidInputError("the pool's nearest points to slots that do not exist")
        if min(self.masses.min(initial=0.0), self.points[:, d:].min(initial=0.0)) < 0.0:
            raise InvalidInputError("the pool holds negative masses or stds")
        if np.isnan(self.costs).any() or np.isnan(self.nearest_cost).any():
            raise InvalidInputError("the pool's distances hold NaN")

    def _check_shape(self, name: str, like: Any) -> None:
        array, slots = getattr(self, name), len(self.masses)
        if (array is None) != (like is None):
            raise InvalidInputError(f"a saved pool and its settings disagree about its {name}")
        if array is None:
            return
        shape = {"costs": (slots, slots), "metric": like.shape}.get(name, (slots, *like.shape[1:]))
        if array.shape != shape:
            raise InvalidInputError(
                f"expected the {name} of a saved pool to have shape {shape}, got {array.shape}"
            )
        if name not in ("costs", "nearest_cost"):
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
        self._metric = metric
        self._criterion, self._merged = CRITERIA[distance], MERGES[merging]
        self._d = n_features
        self._masses = np.zeros(0)
        self._points = np.zeros((0, 2 * n_features))  # (mean, std) of each component
        # Where distances are measured, and squared norms there.
        self._places = self._points if metric is None else np.zeros((0, metric.shape[1]))
        self._norms = np.zeros(0)
        self._labels = np.zeros((0, n_classes))
        self._spreads = spreads
        self._alive = np.zeros(0, dtype=bool)
        self._costs = np.zeros((0, 0))  # infinite on the diagonal and at empty slots
        self._nearest = np.zeros(0, dtype=np.intp)
        self._nearest_cost = np.zeros(0)

    def __len__(self) -> int:
        return int(self._alive.sum())

    @property
    def masses(self) -> Floats:
        """Masses of the components, in the order of their slots."""
        return self._masses[self._alive]

    @property
    def means(self) -> Floats:
        """Means, shape (K, d)."""
        return self._points[self._alive, : self._d]

    @property
    def stds(self) -> Floats:
        """Standard deviations, shape (K, d); 0 for a single row."""
        return self._points[self._alive, self._d :]

    @property
    def labels(self) -> Floats:
        """Labels, shape (K, n_classes)."""
        return self._labels[self._alive]

    @property
    def spreads(self) -> Spreads | None:
        """How the components spread off the axes, if that is carried: a copy."""
        return None if self._spreads is None else self._spreads.take(self._alive)

    def variances_in(self, metric: Floats) -> Floats:
        """Return the variances of ``x @ metric`` for every component, shape (K, p)."""
        if self._spreads is None:
            raise InvalidInputError("this pool does not carry how components spread off the axes")
        found: Floats = self._spreads.variances(metric)[self._alive]
        return found

    def append(
        self,
        masses: Floats,
        means: Floats,
        stds: Floats,
        *,
        labels: Floats | None = None,
        spreads: Any = None,
    ) -> None:
        """Add components; without `spreads`, of the kind that is carried, they are axis-aligned."""
        slots = self._free_slots(len(masses))
        self._masses[slots] = masses
        self._points[slots, : self._d] = means
        self._points[slots, self._d :] = stds
        if self._metric is not None:
            self._places[slots] = means @ self._metric
        self._norms[slots] = np.vecdot(self._places[slots], self._places[slots])
        if labels is not None:
            self._labels[slots] = labels
        if self._spreads is not None:
            self._spreads.put(slots, stds, spreads)
        self._alive[slots] = True
        self._measure(slots)

    def look_through(self, metric: Floats) -> None:
        """Measure all distances again through another metric."""
        self._metric = metric
        self._places = self._points[:, : self._d] @ metric
        self._norms = np.vecdot(self._places, self._places)
        if len(self):
            self._measure(np.flatnonzero(self._alive))

    def _measure(self, slots: Integers) -> None:
        """Compute the distances of some components to all."""
        there = np.flatnonzero(self._alive)
        block = squared_distances(self._places[slots], self._places[there], reproducible=True)
        block *= self._criterion.factor(self._masses[slots, None], self._masses[there])
        self._costs[np.ix_(slots, there)] = block
        self._costs[np.ix_(there, slots)] = block.T
        self._costs[slots, slots] = np.inf
        self._look_again(there)

    def compress(self, limit: int) -> None:
        """Merge the nearest pair until at most `limit` components are left (paper, Alg. 3)."""
        merges = [self._merge_pair(*self._closest()) for _ in range(len(self) - limit)]
        if self._spreads is not None and merges:
            self._spreads.merge(merges, self._metric)

    def _closest(self) -> tuple[int, int]:
        """Return the slots of the nearest pair."""
        i = int(self._nearest_cost.argmin())
        j = int(self._nearest[i])
        return (i, j) if i < j else (j, i)

    def _merge_pair(self, i: int, j: int) -> Merge:
        """Merge the component in slot j into the one in slot i, but for its spread."""
        d, points = self._d, self._points
        mass = self._masses[i] + self._masses[j]
        # Two components that never occur merge into one that never occurs.
        share = float(self._masses[j] / mass) if mass > 0.0 else 0.5
        step = points[j, :d] - points[i, :d]
        points[i] = self._merged(points[i], points[j], share)
        if self._metric is not None:
            self._places[i] += share * (self._places[j] - self._places[i])
        self._norms[i] = np.vecdot(self._places[i], self._places[i])
        if self._labels.shape[1]:
            self._labels[i] += share * (self._labels[j] - self._labels[i])
        self._masses[i] = mass
        self._forget(j)
        self._recompute(i, j)
        return i, j, share, step

    def copy(self) -> Self:
        """Return an independent copy."""
        twin: Self = copy(self)
        for name in _ARRAYS:
            setattr(twin, f"_{name}", getattr(self, f"_{name}").copy())
        twin._places = twin._points if self._places is self._points else self._places.copy()
        twin._spreads = None if self._spreads is None else self._spreads.copy()
        return twin

    def decay(self, factor: float) -> None:
        """Multiply all masses by a factor."""
        self._masses *= factor
        if self._criterion.degree:
            pairs = np.isfinite(self._costs)  # infinite where there is no pair, also after a factor of 0
            self._costs[pairs] *= factor**self._criterion.degree
            self._nearest_cost = self._costs.min(axis=1, initial=np.inf)

    def state(self) -> PoolState:
        """Return everything the pool holds, to continue bit for bit."""
        return PoolState(
            **{name: getattr(self, f"_{name}") for name in _ARRAYS},
            metric=self._metric,
            places=None if self._metric is None else self._places,
            spreads=None if self._spreads is None else self._spreads.state(),
        )

    def restore(self, state: PoolState) -> None:
        """Take over what :meth:`state` gave; raise InvalidInputError if it does not fit."""
        state.check(self.state())
        for name in _ARRAYS:
            setattr(self, f"_{name}", getattr(state, name).copy())
        self._metric = state.metric
        self._places = self._points if state.places is None else state.places.copy()
        kept = state.spreads
        if kept is not None:
            self._spreads = kept.unpack() if isinstance(kept, PackedFactors) else kept.copy()

    def _free_slots(self, n: int) -> Integers:
        free = np.flatnonzero(~self._alive)
        if len(free) < n:
            self._grow(n - len(free))
            free = np.flatnonzero(~self._alive)
        return free[:n]

    def _grow(self, n: int) -> None:
        def longer(array: Floats) -> Floats:
            return np.concatenate([array, np.zeros((n, *array.shape[1:]), dtype=array.dtype)])

        self._masses, self._points = longer(self._masses), longer(self._points)
        self._labels, self._norms = longer(self._labels), longer(self._norms)
        self._places = self._points if self._metric is None else longer(self._places)
        if self._spreads is not None:
            self._spreads.grow(n)
        self._alive = np.concatenate([self._alive, np.zeros(n, dtype=bool)])
        self._nearest = np.concatenate([self._nearest, np.zeros(n, dtype=np.intp)])
        self._nearest_cost = np.concatenate([self._nearest_cost, np.full(n, np.inf)])
        self._costs = np.pad(self._costs, (0, n), constant_values=np.inf)

    def _forget(self, slot: int) -> None:
        self._alive[slot] = False
        self._masses[slot] = 0.0
        self._costs[slot] = self._costs[:, slot] = self._nearest_cost[slot] = np.inf

    def _recompute(self, i: int, gone: int) -> None:
        """Bring the table up to date after component i has changed and `gone` has left."""
        row = self._row(i)
        self._costs[i] = self._costs[:, i] = row
        closer = row < self._nearest_cost
        # Whoever had i or the one that left as its nearest must look again, and so must i itself.
        stale = (self._nearest == i) | (self._nearest == gone)
        stale &= self._alive & ~closer
        stale[i] = True
        self._nearest[closer], self._nearest_cost[closer] = i, row[closer]
        self._look_again(np.flatnonzero(stale))

    def _row(self, i: int) -> Floats:
        """Return the distances of component i, infinite to itself and to empty slots."""
        row: Floats = self._norms + self._norms[i]
        lost = CANCELLED * row
        row -= 2.0 * np.vecdot(self._places, self._places[i])
        row[~self._alive] = row[i] = np.inf
        near = np.flatnonzero(row < lost)
        if near.size:  # as in squared_distances
            row[near] = np.square(self._places[near] - self._places[i]).sum(axis=1)
        row *= self._criterion.factor(self._masses[i], self._masses)
        return row

    def _look_again(self, slots: Integers) -> None:
        rows = self._costs[slots]
        nearest = rows.argmin(axis=1)
        self._nearest[slots] = nearest
        self._nearest_cost[slots] = rows[np.arange(len(slots)), nearest]
