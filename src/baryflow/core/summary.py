"""A stream that is seen once, in bounded memory: components of bounded number, and columns' moments.

Every row becomes a component. The nearest ones are merged as long as there are too many, keeping their
moments: :class:`Pool`. How components spread in directions that are not the axes is kept on request, in
one of two ways. :class:`Matrices` holds every component's covariance matrix: exact, and d² numbers a
component. :class:`Factors` holds what is needed to answer one question, the variances of ``x @ metric``
for a metric that changes little: a few vectors a component.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from baryflow.core.em import Climb, Reference, StandardisedRows, distinct_rows
from baryflow.core.gaussian import squared_distances
from baryflow.core.mixture import Mixture
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans, Floats, Integers, as_count, as_real, as_vector, check_values

#: Vectors kept of a component beyond the directions of the metric, and how many more may wait until
#: the least important ones are dropped: most merges then cost nothing but a copy.
_SPARE, _WAITING = 2, 8
#: With at most this many columns more than the metric has directions, matrices are smaller.
_FEW_COLUMNS = _SPARE + _WAITING
#: Numbers that the vectors of all components may take at most: 32 MB.
_BUDGET = 2**22
#: A column's scale in the metric may still change by about this part: what matters then is kept too.
_SCALE_CHANGE = 0.1


class Groups(NamedTuple):
    """Merges of several components: those that stay, and the others that go into them.

    Others that go into the same component follow each other; `starts` are the numbers of the first ones.
    """

    into: Integers
    others: Integers
    starts: Integers
    masses: Floats  # of all together
    kept: Floats  # share of each component in what it becomes
    shares: Floats  # those of the others
    steps: Floats  # from the mean of what they go into to theirs
    shifts: Floats  # by how much the means of what they go into change

    @classmethod
    def of(cls, into: Integers, others: Integers, masses: Floats, means: Floats) -> Groups:
        """Let each of some components go into one that stays."""
        order = np.argsort(into, kind="stable")
        others = others[order]
        into, starts = np.unique(into[order], return_index=True)
        sizes = np.diff(starts, append=len(others))
        # Components that never occur merge into one that never occurs.
        never = masses[into] + np.add.reduceat(masses[others], starts) <= 0.0
        mine = np.where(never, 1.0, masses[into])
        theirs = np.where(np.repeat(never, sizes), 1.0, masses[others])
        total = mine + np.add.reduceat(theirs, starts)
        shares = theirs / np.repeat(total, sizes)
        steps = means[others] - np.repeat(means[into], sizes, axis=0)
        shifts = np.add.reduceat(shares[:, None] * steps, starts)
        return cls(into, others, starts, total, mine / total, shares, steps, shifts)

    def repeat(self, values: Floats) -> Floats:
        """Return what belongs to the groups for each of the others."""
        return np.repeat(values, np.diff(self.starts, append=len(self.others)), axis=0)

    def sum(self, values: Floats) -> Floats:
        """Return the sums of what belongs to the others, each times its share, for the groups."""
        shares = self.shares.reshape(-1, *[1] * (values.ndim - 1))
        return np.asarray(np.add.reduceat(shares * values, self.starts))


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

    def merge(self, groups: Groups, _: Any = None) -> None:
        """Merge the components of each group, in place."""
        kept, (i, j) = self.covariances, (groups.into, groups.others)
        steps = groups.steps - groups.repeat(groups.shifts)
        between = groups.sum(kept[j] + steps[:, :, None] * steps[:, None, :])
        between += groups.kept[:, None, None] * groups.shifts[:, :, None] * groups.shifts[:, None, :]
        kept[i] = groups.kept[:, None, None] * kept[i] + between

    def select(self, some: Booleans) -> Matrices:
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

    def merge(self, groups: Groups, metric: Floats | None) -> None:
        """Merge the components of each group, in place."""
        i, j = groups.into, groups.others
        part = groups.kept[:, None]
        self.diagonal[i] = part * self.diagonal[i] + groups.sum(self.diagonal[j])
        self.rest[i] = part * self.rest[i] + groups.sum(self.rest[j])
        n_columns = self.diagonal.shape[1]
        for one, (start, end) in enumerate(pairwise([*groups.starts.tolist(), len(j)])):
            others, roots = j[start:end].tolist(), np.sqrt(groups.shares[start:end])
            kept, mine = math.sqrt(groups.kept[one]), self.vectors[i[one]]
            if end - start == 1:  # a pair spreads in one direction
                steps = kept * roots[:, None] * groups.steps[start:end]
            else:
                shift = groups.shifts[one]
                steps = np.empty((end - start + 1, n_columns))
                np.multiply(groups.steps[start:end] - shift, roots[:, None], out=steps[:-1])
                np.multiply(shift, kept, out=steps[-1])
            joint = [kept * mine]
            for other, root in zip(others, roots.tolist(), strict=True):
                if len(self.vectors[other]):
                    joint.append(root * self.vectors[other])
                    self.vectors[other] = mine[:0]
            self.vectors[i[one]] = self._shortened(int(i[one]), np.concatenate([*joint, steps]), metric)

    def _shortened(self, i: int, joint: Floats, metric: Floats | None) -> Floats:
        if metric is None or len(joint) <= self.limit + _WAITING:
            return joint
        return self._shorten(i, joint, metric)

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

    def select(self, some: Booleans) -> Factors:
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


#: Keeps the weight of a pair of components that never occur from being 0 / 0.
_TINY = 1e-300
#: A component this many times lighter than another one hardly moves it.
_LIGHT = 8.0
_ARRAYS = ("masses", "points", "places")


@dataclass(frozen=True, eq=False)
class PoolState:
    """All that a pool holds, but for the distances, which follow from it."""

    masses: Floats
    points: Floats
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


def _harmonic(masses: Floats, others: Floats) -> Floats:
    """Return m_i·m_j / (m_i + m_j) of all pairs."""
    return np.asarray((masses * others + _TINY) / (masses + others + _TINY))


class Pool:
    """Components with masses, means and stds, and on request how they spread off the axes.

    What merging two components costs is their W2² times m_i·m_j / (m_i + m_j) for masses m_i and m_j:
    Ward's criterion, between components of equal width the scatter that a merge adds.

    Parameters
    ----------
    n_features : int
    spreads : Matrices or Factors, optional
        Carries how components spread in directions that are not the axes.
    metric : array of shape (d, p), optional
        Measure distances between ``means @ metric`` instead of between means and stds; see
        :meth:`set_metric`.
    """

    def __init__(
        self, n_features: int, *, spreads: Spreads | None = None, metric: Floats | None = None
    ) -> None:
        self._d, self._metric = n_features, metric
        self._masses = np.zeros(0)
        self._points = np.zeros((0, 2 * n_features))  # (mean, std) of each component
        # Where distances are measured, if not between the points.
        self._places = None if metric is None else np.zeros((0, metric.shape[1]))
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
    def spreads(self) -> Spreads | None:
        """How the components spread off the axes, if that is carried."""
        return self._spreads

    def copy(self) -> Self:
        """Return a copy; what is appended to it changes no other one."""
        return copy(self)

    def append(
        self, masses: Floats, means: Floats, stds: Floats, spreads: Spreads | None = None
    ) -> None:
        """Add components; without `spreads` they are axis-aligned."""
        self._masses = np.concatenate([self._masses, masses])
        self._points = np.concatenate([self._points, np.hstack([means, stds])])
        if self._metric is not None:
            self._places = np.concatenate([self._places, means @ self._metric])
        if self._spreads is not None:
            self._spreads = self._spreads.plus(stds, spreads)

    def absorb(self, masses: Floats, means: Floats, stds: Floats, limit: int) -> None:
        """Add components to a pool of at most `limit`, and merge until there are not more.

        Where the pool is full, those that fit a component of it go there at once: it costs less than to
        merge any two components of the pool. So it must for all together that go there, or they would
        rather be merged with each other.
        """
        n = len(self)
        self.append(masses, means, stds)
        if n == limit:
            places, table = self._points if self._places is None else self._places, self._table(n)
            costs = squared_distances(places[n:], places[:n])
            costs *= _harmonic(self._masses[n:, None], self._masses[:n])
            nearest, most = costs.argmin(axis=1), table.min()
            fit = costs[np.arange(len(nearest)), nearest] <= most
            several = fit & (np.bincount(nearest[fit], minlength=n)[nearest] > 1)
            if several.any():
                rows = n + np.flatnonzero(several)
                groups = Groups.of(nearest[several], rows, self._masses, places)
                ratio = groups.kept / np.maximum(1.0 - groups.kept, _TINY)
                together = np.square(groups.shifts).sum(axis=1) * ratio * groups.masses
                fit &= ~np.isin(nearest, groups.into[together > most])
            if fit.any():
                into = nearest[fit]
                self._merge(into, n + np.flatnonzero(fit))
                self._measure(table, np.unique(into))
                self._keep(np.append(np.ones(n, dtype=bool), ~fit))
        self.compress(limit)

    def set_metric(self, metric: Floats) -> None:
        """Measure all distances again through another metric."""
        self._metric, self._places, self._costs = metric, self.means @ metric, None

    def decay(self, factor: float) -> None:
        """Multiply all masses by a factor."""
        self._masses, self._costs = factor * self._masses, None

    def compress(self, limit: int) -> None:
        """Merge components with their nearest ones until at most `limit` are left.

        In a round every component goes into its nearest one if it is merged in any case, as long as one
        component more than there are too many has a neighbour as near, and if both are nearest to each
        other or the other one is much heavier. Hardly any merge brings components nearer to each other,
        and a light one hardly moves a heavy one, so the result is that of merging pair by pair. Arrays
        are changed in place: call it after :meth:`append`, which has made new ones.
        """
        if len(self) <= limit:
            return
        everyone, gone = np.arange(len(self)), np.zeros(len(self), dtype=bool)
        costs = self._table(len(self))
        while (surplus := len(self) - limit - int(gone.sum())) > 0:
            nearest = costs.argmin(axis=1)
            cost = costs[everyone, nearest]
            enough = np.partition(cost, surplus)[surplus]
            others = self._masses[nearest]
            lighter = (self._masses < others) | ((self._masses == others) & (everyone > nearest))
            alone = (nearest[nearest] == everyone) | (_LIGHT * self._masses < others)
            goes = (cost <= enough) & lighter & alone
            goes = np.flatnonzero(goes & ~goes[nearest])
            goes = goes[cost[goes].argsort(kind="stable")][:surplus]
            gone[goes] = True
            self._merge(nearest[goes], goes)
            self._measure(costs, np.unique(nearest[goes]))
            costs[gone] = costs[:, gone] = np.inf
        self._keep(~gone)

    def _table(self, n: int) -> Floats:
        """Return what it costs to merge any two of the first n components, infinite on the diagonal."""
        known = 0 if self._costs is None else len(self._costs)
        costs = np.zeros((n, n))
        if self._costs is not None:
            costs[:known, :known] = self._costs
        if known < n:
            self._measure(costs, np.arange(known, n))
        self._costs = costs
        return costs

    def _keep(self, some: Booleans) -> None:
        """Keep some components only."""
        for name in _ARRAYS:
            array = getattr(self, f"_{name}")
            setattr(self, f"_{name}", None if array is None else array[some])
        if self._costs is not None:
            known = some[: len(self._costs)]
            self._costs = self._costs[np.ix_(known, known)]
        if self._spreads is not None:
            self._spreads = self._spreads.select(some)

    def _measure(self, costs: Floats, some: Integers) -> None:
        """Put what it costs to merge some components with all in the table into it."""
        n = len(costs)
        places = (self._points if self._places is None else self._places)[:n]
        block = squared_distances(places[some], places, reproducible=True)
        block *= _harmonic(self._masses[some, None], self._masses[:n])
        costs[some], costs[:, some] = block, block.T
        costs[some, some] = np.inf

    def _merge(self, into: Integers, others: Integers) -> None:
        """Merge components into others, in place, keeping mean and variance of all together."""
        groups = Groups.of(into, others, self._masses, self.means)
        i, j, part = groups.into, groups.others, groups.kept[:, None]
        if self._spreads is not None:
            self._spreads.merge(groups, self._metric)
        between = groups.sum(
            np.square(self.stds[j]) + np.square(groups.steps - groups.repeat(groups.shifts))
        )
        variance = part * (np.square(self.stds[i]) + np.square(groups.shifts)) + between
        self._points[i] = np.hstack([self.means[i] + groups.shifts, np.sqrt(variance)])
        if self._places is not None:
            self._places[i] += groups.sum(self._places[j] - groups.repeat(self._places[i]))
        self._masses[i] += np.add.reduceat(self._masses[j], groups.starts)

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


#: EM steps at most; the start is good, and the last steps change little.
_EM_STEPS = 10
_EM_TOLERANCE = 1e-3


def reduce_components(
    masses: Floats, means: Floats, stds: Floats, max_components: int, *, std_floor: float
) -> Mixture:
    """Return a mixture of at most `max_components` for the Gaussians given.

    More of them are merged greedily (Ward, keeping moments), and the result is improved by EM in
    which every Gaussian stands for the rows it summarises: the moments of the whole stay what they were.
    Standard deviations are raised to `std_floor` times the spread of the whole.
    """
    total = float(masses.sum())
    weights = masses / total
    mean = weights @ means
    variance = weights @ (np.square(stds) + np.square(means - mean))
    reference = Reference.of_moments(mean, variance)
    if len(masses) > max_components:
        pool = Pool(means.shape[1])
        pool.append(masses, means, stds)
        pool.compress(max_components)
        rows = StandardisedRows.of_components(masses, means, stds, reference.centre, reference.scale)
        climb = Climb.from_parameters(
            rows,
            pool.masses / total,
            (pool.means - reference.centre) / reference.scale,
            pool.stds / reference.scale,
            std_floor,
        )
        weights, centred, scaled = climb.run(_EM_STEPS, _EM_TOLERANCE * total).parameters
        means = reference.centre + reference.scale * centred
        stds = reference.scale * scaled
    return Mixture(
        weights / weights.sum(), means, np.maximum(stds, std_floor * reference.scale), mass=total
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a stream is summarised."""

    max_components: int = 50
    half_life: float | None = None
    std_floor: float = 1e-4
    resolution: int = 2

    def __post_init__(self) -> None:
        as_count(self.max_components, "max_components")
        as_real(self.std_floor, "std_floor", low=1e-4, high=1.0)
        if self.half_life is not None:
            as_real(self.half_life, "half_life", low=0.0, open_low=True)
        as_count(self.resolution, "resolution")

    @property
    def n_kept(self) -> int:
        """Components kept at most: more than are shown, which are fit to them."""
        return self.resolution * self.max_components


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations of each column; missing values do not count."""

    counts: Floats
    means: Floats
    deviations: Floats

    @classmethod
    def none(cls, n_features: int) -> Moments:
        """Return the moments of no rows at all."""
        zeros = np.zeros(n_features)
        return cls(zeros, zeros, zeros)

    @classmethod
    def of(cls, X: Floats, weights: Floats) -> Moments:
        """Measure some rows."""
        observed = ~np.isnan(X)
        counts = weights @ observed
        divisor = np.where(counts > 0.0, counts, 1.0)
        filled = np.where(observed, X, 0.0)
        means = (weights @ filled) / divisor
        deviations = weights @ np.square(np.where(observed, X - means, 0.0))
        return cls(counts, means, deviations)

    @property
    def variances(self) -> Floats:
        """Variance of each column; 0 where nothing was seen."""
        return self.deviations / np.where(self.counts > 0.0, self.counts, 1.0)

    def plus(self, other: Moments) -> Moments:
        """Return the moments of both sets of rows together."""
        counts = self.counts + other.counts
        share = other.counts / np.where(counts > 0.0, counts, 1.0)
        step = other.means - self.means
        return Moments(
            counts,
            self.means + share * step,
            self.deviations + other.deviations + self.counts * share * np.square(step),
        )

    def decayed(self, factor: float) -> Moments:
        """Return the same with every row counting `factor` times as much."""
        return Moments(factor * self.counts, self.means, factor * self.deviations)

    def shifted(self, by: Floats) -> Moments:
        """Return the same after adding `by` to every row."""
        return Moments(self.counts, self.means + by, self.deviations)


#: Rows turned into components at once: the more, the more were seen. Longer batches are taken in pieces.
_SMALLEST_PIECE, _LARGEST_PIECE, _GROWTH = 64, 1024, 0.25


class Components(NamedTuple):
    """The components of a summary."""

    masses: Floats
    means: Floats
    stds: Floats  # 0 for a single row


@dataclass(frozen=True, eq=False)
class StreamSummaryState:
    """All that a summary knows."""

    n_rows: int
    mass: float
    origin: Floats | None
    moments: Moments
    pool: PoolState
    settings: Settings


class StreamSummary:
    """What is known of a stream: components, their distances, and the columns' moments.

    Every row becomes a component, merged with others later. With a metric of shape (d, p) components are
    compared as ``x @ metric``, and their variances there are kept. All is relative to a row near the
    data, the origin: an offset then costs no digits.
    """

    #: How it is saved.
    state_type = StreamSummaryState

    def __init__(self, n_features: int, settings: Settings, metric: Floats | None = None) -> None:
        self.settings = settings
        self.n_features = n_features
        self.n_rows = 0
        self.mass = 0.0
        self._origin: Floats | None = None
        self._moments = Moments.none(n_features)
        spreads = None if metric is None else _carry_spreads(n_features, settings, metric)
        self._pool = Pool(n_features, spreads=spreads, metric=metric)
        self._mixture: Mixture | None = None

    # -- learning ----------------------------------------------------------------------------

    def update(self, X: Floats, weights: Floats) -> None:
        """Absorb one batch. The order of its rows does not matter, unless it is taken in pieces."""
        counts = weights > 0.0
        X, weights = X[counts], weights[counts]
        self._mixture = None
        self.n_rows += len(X)
        if not len(X):
            return
        if self._origin is None:
            self._origin = np.where(np.isnan(X[0]), 0.0, X[0])
        if self.settings.half_life is not None:
            self.fade(0.5 ** (float(weights.sum()) / self.settings.half_life))
        X = X - self._seen()
        while len(X):
            size = min(int(_GROWTH * self.mass), _LARGEST_PIECE)
            size = max(size, _SMALLEST_PIECE, self.settings.max_components)
            self._absorb(*distinct_rows(X[:size], weights[:size]))
            X, weights = X[size:], weights[size:]

    def _absorb(self, X: Floats, weights: Floats) -> None:
        self.mass += float(weights.sum())
        self._moments = self._moments.plus(Moments.of(X, weights))
        X, stds = self._filled(X)
        self._pool.absorb(weights, X, stds, self.settings.n_kept)

    def copy(self) -> Self:
        """Return an independent copy: an update can be made on it and discarded if it fails."""
        twin: Self = copy(self)
        twin._pool = self._pool.copy()
        return twin

    def merge(self, other: Self) -> None:
        """Absorb the summary of another stream, or of another part of this one."""
        if other.n_features != self.n_features:
            raise InvalidInputError(
                f"expected a summary of n_features={self.n_features}, got {other.n_features}"
            )
        self._mixture = None
        self.n_rows += other.n_rows
        if other._origin is None:
            return
        if self._origin is None:
            self._origin = other._origin
        shift = other._origin - self._origin
        self.mass += other.mass
        self._moments = self._moments.plus(other._moments.shifted(shift))
        pool = other._pool
        if len(pool):
            self._pool.append(pool.masses, pool.means + shift, pool.stds, pool.spreads)
            self._compress()

    def change(self, settings: Settings) -> None:
        """Go on with other settings."""
        self.settings = settings
        self._mixture = None

    def fade(self, factor: float) -> None:
        """Let everything seen so far count less."""
        self._mixture = None
        self.mass *= factor
        self._moments = self._moments.decayed(factor)
        self._pool.decay(factor)

    def _compress(self) -> None:
        self._pool.compress(self.settings.n_kept)

    def _filled(self, X: Floats) -> tuple[Floats, Floats]:
        """Return rows without gaps, and how uncertain each value is.

        A missing value becomes what the components expect there, given the values that are known, with
        the spread they expect; before there are components, the mean and spread of the column.
        """
        missing = np.isnan(X)
        stds = np.zeros_like(X)
        rows = missing.any(axis=1)
        if not rows.any():
            return X, stds
        if len(self._pool):
            known = reduce_components(
                self._pool.masses,
                self._pool.means,
                self._pool.stds,
                len(self._pool),
                std_floor=self.settings.std_floor,
            )
            posterior = known.posterior(X[rows])
            expected = posterior @ known.means
            second = posterior @ (np.square(known.stds) + np.square(known.means))
            variances = np.maximum(second - np.square(expected), 0.0)
        else:
            expected, variances = self._moments.means, self._moments.variances
        X = X.copy()
        X[rows] = np.where(missing[rows], expected, X[rows])
        stds[rows] = np.where(missing[rows], np.sqrt(variances), 0.0)
        return X, stds

    def take_over(self, other: StreamSummary) -> None:
        """Start from another summary's components, which may have been compared in another metric."""
        seen = other.components()
        self.n_rows, self.mass = other.n_rows, other.mass
        self._origin, self._moments = other._seen(), other._moments
        means = seen.means - self._seen()
        self._pool.append(seen.masses, means, seen.stds, other._pool.spreads)
        self._compress()

    def set_metric(self, metric: Floats) -> None:
        """Decide from now on by the distances of ``x @ metric`` which components to merge."""
        self._pool.set_metric(metric)

    # -- looking -----------------------------------------------------------------------------

    def mixture(self) -> Mixture:
        """Return the mixture of all that was seen, with at most max_components components."""
        if self._mixture is None:
            settings = self.settings
            self._mixture = reduce_components(
                *self.components(), settings.max_components, std_floor=settings.std_floor
            )
        return self._mixture

    def components(self) -> Components:
        """Return the components kept."""
        return Components(self._pool.masses, self._seen() + self._pool.means, self._pool.stds)

    def variances_in(self, metric: Floats) -> Floats:
        """Return the variances of ``x @ metric`` for every component kept, shape (K, p)."""
        if self._pool.spreads is None:
            raise InvalidInputError("the summary does not carry how components spread off the axes")
        return self._pool.spreads.variances(metric)

    def moments(self) -> tuple[Floats, Floats]:
        """Return the running mean and variance of every column."""
        origin = self._seen()
        return origin + self._moments.means, self._moments.variances

    def _seen(self) -> Floats:
        if self._origin is None:
            raise InvalidInputError("nothing was seen yet: no row with a positive weight")
        return self._origin

    # -- keeping -----------------------------------------------------------------------------

    def state(self) -> StreamSummaryState:
        """Return all there is to know, to continue bit for bit."""
        return StreamSummaryState(
            self.n_rows, self.mass, self._origin, self._moments, self._pool.state(), self.settings
        )

    @classmethod
    def from_state(cls, state: StreamSummaryState) -> Self:
        """Resume from what :meth:`state` gave; raise InvalidInputError if the parts do not fit."""
        d = len(state.moments.means)
        summary = cls(d, state.settings, state.pool.metric)
        summary.n_rows = as_count(state.n_rows, "n_rows", minimum=0)
        summary.mass = as_real(state.mass, "mass", low=0.0)
        for name, vector in (("origin", state.origin), *vars(state.moments).items()):
            if vector is not None:
                as_vector(vector, name, length=d, dim="n_features")
        summary._origin, summary._moments = state.origin, state.moments
        summary._pool.restore(state.pool)
        return summary


def _carry_spreads(n_features: int, settings: Settings, metric: Floats) -> Spreads:
    if n_features <= metric.shape[1] + _FEW_COLUMNS:
        return Matrices.none(n_features)
    return Factors.none(n_features, metric.shape[1], settings.n_kept)
