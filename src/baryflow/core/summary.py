"""A stream that is seen once, in bounded memory: components of bounded number, and columns' moments."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from baryflow.core.em import distinct_rows
from baryflow.core.mixture import Mixture
from baryflow.core.pool import CRITERIA, MERGES, Pool, PoolState
from baryflow.core.reduction import reduce_components
from baryflow.core.spread import FEW_COLUMNS, Factors, Matrices, Spreads
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_choice, as_count, as_matrix, as_real, as_vector


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a stream is summarised."""

    #: What components are made of: it cannot be changed along a stream, nor differ between two.
    fixed: ClassVar[tuple[str, ...]] = ("distance", "merging", "full_covariance")

    max_components: int = 50
    distance: str = "ward"
    merging: str = "moment"
    half_life: float | None = None
    std_floor: float = 1e-4
    resolution: int = 2
    full_covariance: bool = False

    def __post_init__(self) -> None:
        as_count(self.max_components, "max_components")
        as_choice(self.distance, "distance", tuple(CRITERIA))
        as_choice(self.merging, "merging", tuple(MERGES))
        as_real(self.std_floor, "std_floor", low=1e-4, high=1.0)
        if self.half_life is not None:
            as_real(self.half_life, "half_life", low=0.0, open_low=True)
        as_count(self.resolution, "resolution")
        if self.full_covariance and self.merging != "moment":
            raise InvalidInputError(
                "full_covariance needs merging='moment': nothing else keeps the second moments "
                f"exactly; got merging={self.merging!r}"
            )

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


#: Rows turned into components at once; longer batches are taken in pieces.
_SMALLEST_PIECE = 64


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

    Every row becomes a component, merged with others later. All is relative to a row near the data, the
    origin: an offset then costs no digits.
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
        self._pool = Pool(
            n_features,
            distance=settings.distance,
            merging=settings.merging,
            spreads=_spreads(n_features, settings, metric),
            metric=metric,
        )
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
        size = max(_SMALLEST_PIECE, self.settings.max_components)
        for start in range(0, len(X), size):
            self._absorb(*distinct_rows(X[start : start + size], weights[start : start + size]))

    def _absorb(self, X: Floats, weights: Floats) -> None:
        self.mass += float(weights.sum())
        self._moments = self._moments.plus(Moments.of(X, weights))
        X, stds = self._filled(X)
        self._pool.append(weights, X, stds)
        self._compress()

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
        self._require_same_kind(other.settings)
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
            self._pool.append(
                pool.masses,
                pool.means + shift,
                pool.stds,
                spreads=pool.spreads,
            )
            self._compress()

    def change(self, settings: Settings) -> None:
        """Go on with other settings; what the components are made of cannot be changed any more."""
        self._require_same_kind(settings)
        self.settings = settings
        self._mixture = None

    def _require_same_kind(self, settings: Settings) -> None:
        for name in self.settings.fixed:
            mine, theirs = getattr(self.settings, name), getattr(settings, name)
            if mine != theirs:
                raise InvalidInputError(
                    f"this stream is summarised with {name}={mine!r}, which cannot be combined with "
                    f"{name}={theirs!r}; start a new one"
                )

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
        self._pool.append(
            seen.masses,
            seen.means - self._seen(),
            seen.stds,
            spreads=other._pool.spreads,
        )
        self._compress()

    def look_through(self, metric: Floats) -> None:
        """Decide from now on by the distances of ``x @ metric`` which components to merge."""
        self._pool.look_through(metric)

    # -- looking -----------------------------------------------------------------------------

    def mixture(self) -> Mixture:
        """Return the mixture of all that was seen, with at most max_components components."""
        if self._mixture is None:
            self._mixture = self._described(*self._components())
        return self._mixture

    def project(self, A: Any, b: Any = None) -> Mixture:
        """Return the mixture of A·x + b, exact up to its own reduction to max_components.

        Needs ``full_covariance``: a component's spread in a new direction depends on correlations.
        """
        A = as_matrix(A, "A", rows="n_outputs", n_columns=self.n_features)
        b = np.zeros(len(A)) if b is None else as_vector(b, "b", length=len(A), dim="n_outputs")
        if not isinstance(self._pool.spreads, Matrices):
            raise InvalidInputError("project needs full_covariance=True from the start of the stream")
        masses, means, _ = self._components()
        variances = self.variances_in(A.T)
        return self._described(masses, means @ A.T + b, np.sqrt(np.maximum(variances, 0.0)))

    def components(self) -> Components:
        """Return the components kept."""
        masses, means, stds = self._components()
        return Components(masses, means, stds)

    def variances_in(self, metric: Floats) -> Floats:
        """Return the variances of ``x @ metric`` for every component kept, shape (K, p)."""
        if self._pool.spreads is None:
            raise InvalidInputError("the summary does not carry how components spread off the axes")
        return self._pool.spreads.variances(metric)

    def moments(self) -> tuple[Floats, Floats]:
        """Return the running mean and variance of every column."""
        origin = self._seen()
        return origin + self._moments.means, self._moments.variances

    def _components(self) -> tuple[Floats, Floats, Floats]:
        origin = self._seen()
        return self._pool.masses, origin + self._pool.means, self._pool.stds

    def _described(self, masses: Floats, means: Floats, stds: Floats) -> Mixture:
        s = self.settings
        return reduce_components(masses, means, stds, s.max_components, std_floor=s.std_floor)

    def _seen(self) -> Floats:
        if self._origin is None:
            raise InvalidInputError("nothing was seen yet: no row with a positive weight")
        return self._origin

    # -- keeping -----------------------------------------------------------------------------

    @classmethod
    def of_mixture(cls, mixture: Mixture, settings: Settings) -> Self:
        """Return the summary of a stream of which only this mixture is known."""
        summary = cls(mixture.n_features, settings)
        summary.n_rows, summary.mass = round(mixture.mass), mixture.mass
        summary._origin = mixture.mean()
        counts = np.full(mixture.n_features, mixture.mass)
        summary._moments = Moments(counts, np.zeros_like(counts), mixture.mass * mixture.variance())
        means = mixture.means - summary._origin
        summary._pool.append(mixture.weights * mixture.mass, means, mixture.stds)
        return summary

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


def _spreads(n_features: int, settings: Settings, metric: Floats | None) -> Spreads | None:
    if not settings.full_covariance:
        return None
    if metric is None or n_features <= metric.shape[1] + FEW_COLUMNS:
        return Matrices.none(n_features)
    return Factors.none(n_features, metric.shape[1], settings.n_kept)
