"""A mixture of a stream that is seen once, in bounded memory (paper, Algs. 1 to 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from baryflow.core.em import Reference, distinct_rows, fit_rows
from baryflow.core.mixture import Mixture
from baryflow.core.moments import Moments
from baryflow.core.pool import MERGINGS, PAIR_DISTANCES, Merging, PairDistance, Pool
from baryflow.core.reduce import reduce_components
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_choice, as_count, as_matrix, as_real, as_vector

Update = Literal["rows", "bic"]
UPDATES: tuple[Update, ...] = ("rows", "bic")

#: Rows turned into components at once; longer batches are taken in pieces.
_SMALLEST_PIECE = 64


@dataclass(frozen=True)
class Settings:
    """How a stream is summarised; see :class:`baryflow.OnlineGaussianMixture` for the meaning."""

    max_components: int = 50
    update: Update = "rows"
    distance: PairDistance = "ward"
    merging: Merging = "moment"
    min_components: int = 5
    batch_components: int | None = 3  # None: one fewer than the batch has rows, up to batch_limit
    batch_limit: int | None = None
    resolution: int = 2
    half_life: float | None = None
    std_floor: float = 1e-4
    full_covariance: bool = False
    n_votes: int = 0

    def __post_init__(self) -> None:
        for name in ("max_components", "min_components", "resolution"):
            as_count(getattr(self, name), name)
        if self.batch_components is None and self.batch_limit is not None:
            as_count(self.batch_limit, "batch_limit")
        else:
            as_count(self.batch_components, "batch_components")
        as_choice(self.update, "update", UPDATES)
        as_choice(self.distance, "distance", PAIR_DISTANCES)
        as_choice(self.merging, "merging", MERGINGS)
        as_real(self.std_floor, "std_floor", low=1e-4, high=1.0)
        if self.half_life is not None:
            as_real(self.half_life, "half_life", low=0.0, open_low=True)
        if self.full_covariance and (self.update, self.merging) != ("rows", "moment"):
            raise InvalidInputError(
                "full_covariance needs update='rows' and merging='moment': nothing else keeps the "
                f"second moments exactly; got update={self.update!r}, merging={self.merging!r}"
            )

    def most_components(self, n_rows: int) -> int:
        """Return how many components a batch may become, ΔK, which the paper wants below its rows."""
        if self.batch_components is not None:
            return self.batch_components
        limit = n_rows if self.batch_limit is None else self.batch_limit
        return max(1, min(n_rows - 1, limit))


class Components(NamedTuple):
    """The components of a summary."""

    masses: Floats
    means: Floats
    stds: Floats  # 0 for a single row
    votes: Floats
    covariances: Floats | None


class StreamSummary:
    """What is known of a stream: components, their distances, and the columns' moments."""

    def __init__(
        self,
        n_features: int,
        settings: Settings,
        rng: np.random.Generator,
        metric: Floats | None = None,
    ) -> None:
        self.settings = settings
        self.n_features = n_features
        self.n_rows = 0
        self.mass = 0.0
        self._rng = rng
        self._origin: Floats | None = None  # a row near the data: all that follows is relative to it
        self._moments = Moments.none(n_features)
        self._pool = Pool(
            n_features,
            distance=settings.distance,
            merging=settings.merging,
            full_covariance=settings.full_covariance,
            n_classes=settings.n_votes,
            metric=metric,
        )
        # Rows that wait until there are enough of them for the first fit.
        self._held = (np.zeros((0, n_features)), np.zeros(0))
        self._mixture: Mixture | None = None

    # -- learning ----------------------------------------------------------------------------

    def update(self, X: Floats, weights: Floats, votes: Floats | None = None) -> None:
        """Absorb one batch. The order of its rows does not matter, unless it is taken in pieces.

        `votes`, shape (n, n_votes), are averaged over the rows of each component.
        """
        self._mixture = None
        votes = np.zeros((len(X), self.settings.n_votes)) if votes is None else votes
        counts = weights > 0.0
        X, weights, votes = X[counts], weights[counts], votes[counts]
        self.n_rows += len(X)
        if not len(X):
            return
        if self._origin is None:
            self._origin = np.where(np.isnan(X[0]), 0.0, X[0])
        self._forget(float(weights.sum()))
        X = np.concatenate([X - self._origin, votes], axis=1)
        piece = max(_SMALLEST_PIECE, self.settings.max_components)
        size = piece if self.settings.update == "rows" else len(X)
        for start in range(0, len(X), size):
            self._absorb(*distinct_rows(X[start : start + size], weights[start : start + size]))

    def merge(self, other: StreamSummary) -> None:
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
                labels=pool.labels,
                covariances=pool.covariances,
            )
            self._compress()
        held, weights = other._held
        self._held = (
            np.concatenate([self._held[0], held + shift]),
            np.concatenate([self._held[1], weights]),
        )
        if len(self._held[1]):
            self._fit_held()

    def change(self, settings: Settings) -> None:
        """Go on with other settings; what the components are made of cannot be changed any more."""
        self._require_same_kind(settings)
        self.settings = settings
        self._mixture = None

    def _require_same_kind(self, settings: Settings) -> None:
        for name in ("update", "distance", "merging", "full_covariance", "n_votes"):
            mine, theirs = getattr(self.settings, name), getattr(settings, name)
            if mine != theirs:
                raise InvalidInputError(
                    f"this stream is summarised with {name}={mine!r}, which cannot be combined with "
                    f"{name}={theirs!r}; start a new one"
                )

    def _forget(self, arriving: float) -> None:
        half_life = self.settings.half_life
        if half_life is not None:
            factor = 0.5 ** (arriving / half_life)
            self.mass *= factor
            self._moments = self._moments.decayed(factor)
            self._pool.decay(factor)
            self._held = (self._held[0], self._held[1] * factor)

    def _absorb(self, rows: Floats, weights: Floats) -> None:
        X, votes = rows[:, : self.n_features], rows[:, self.n_features :]
        self.mass += float(weights.sum())
        self._moments = self._moments.plus(Moments.of(X, weights))
        if self.settings.update == "rows":
            X, stds = self._filled(X)
            self._pool.append(weights, X, stds, labels=votes)
            self._compress()
            return
        unseen = np.isnan(X).all(axis=0)
        if unseen.any():
            X = np.where(unseen, self._filled(X)[0], X)
        self._held = (
            np.concatenate([self._held[0], X]),
            np.concatenate([self._held[1], weights]),
        )
        self._fit_held()

    def _fit_held(self) -> None:
        """Fit the waiting rows: the first time with min_components, later with a few, by BIC."""
        s = self.settings
        X, weights = self._held = distinct_rows(*self._held)
        first = not len(self._pool)
        if first and len(X) < s.min_components:
            return
        k1, k2 = (s.min_components, s.min_components) if first else (1, s.most_components(len(X)))
        mixture = self._fitted(X, weights, k1, k2, self._rng)
        self._held = (np.zeros((0, self.n_features)), np.zeros(0))
        self._pool.append(mixture.weights * mixture.mass, mixture.means, mixture.stds)
        self._compress()

    def _fitted(self, X: Floats, weights: Floats, k1: int, k2: int, rng: np.random.Generator) -> Mixture:
        return fit_rows(
            X,
            weights,
            self._reference(),
            min_components=k1,
            max_components=k2,
            std_floor=self.settings.std_floor,
            rng=rng,
        )[0]

    def _compress(self) -> None:
        s = self.settings
        resolution = s.resolution if s.update == "rows" else 1
        self._pool.compress(resolution * s.max_components)

    def _reference(self) -> Reference:
        return Reference.of_moments(self._moments.means, self._moments.variances)

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

    def take_over(self, other: StreamSummary, votes: Floats) -> None:
        """Start from another summary's components, with other votes."""
        seen = other.components()
        self.n_rows, self.mass = other.n_rows, other.mass
        self._origin, self._moments = other._origin, other._moments
        self._pool.append(
            seen.masses,
            seen.means - self._seen(),
            seen.stds,
            labels=votes,
            covariances=seen.covariances,
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

    def view(self, A: Any, b: Any = None) -> Mixture:
        """Return the mixture of A·x + b, exact up to its own reduction to max_components.

        Needs ``full_covariance``: a component's spread in a new direction depends on correlations.
        """
        A = as_matrix(A, "A", rows="n_outputs", n_columns=self.n_features)
        b = np.zeros(len(A)) if b is None else as_vector(b, "b", length=len(A), dim="n_outputs")
        covariances = self._pool.covariances
        if covariances is None:
            raise InvalidInputError("view needs full_covariance=True from the start of the stream")
        masses, means, _ = self._components()
        variances = np.einsum("ij,kjl,il->ki", A, covariances, A, optimize=True)
        return self._described(masses, means @ A.T + b, np.sqrt(np.maximum(variances, 0.0)))

    def components(self) -> Components:
        """Return the components kept."""
        origin = self._seen()
        pool = self._pool
        return Components(pool.masses, origin + pool.means, pool.stds, pool.labels, pool.covariances)

    def moments(self) -> tuple[Floats, Floats]:
        """Return the running mean and variance of every column."""
        origin = self._seen()
        return origin + self._moments.means, self._moments.variances

    def _components(self) -> tuple[Floats, Floats, Floats]:
        origin = self._seen()
        if not len(self._pool):  # the first rows are still waiting: each stands for itself
            X, weights = distinct_rows(*self._held)
            # Looking must not draw from the stream's own generator.
            mixture = self._fitted(X, weights, len(X), len(X), np.random.default_rng(0))
            return mixture.weights * mixture.mass, origin + mixture.means, mixture.stds
        return self._pool.masses, origin + self._pool.means, self._pool.stds

    def _described(self, masses: Floats, means: Floats, stds: Floats) -> Mixture:
        s = self.settings
        return reduce_components(masses, means, stds, s.max_components, std_floor=s.std_floor)

    def _seen(self) -> Floats:
        if self._origin is None:
            raise InvalidInputError("nothing was seen yet: no row with a positive weight")
        return self._origin

    # -- keeping -----------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return all there is to know as plain values and arrays, to continue bit for bit."""
        values = {
            "n_features": self.n_features,
            "n_rows": self.n_rows,
            "mass": self.mass,
            "rng": self._rng.bit_generator.state,
            "started": self._origin is not None,
        }
        arrays = {
            "origin": np.zeros(self.n_features) if self._origin is None else self._origin,
            "moment_counts": self._moments.counts,
            "moment_means": self._moments.means,
            "moment_deviations": self._moments.deviations,
            "held_rows": self._held[0],
            "held_weights": self._held[1],
            **{f"pool_{name}": array for name, array in self._pool.arrays().items()},
        }
        return values, arrays

    @classmethod
    def from_state(
        cls,
        settings: Settings,
        values: dict[str, Any],
        arrays: dict[str, Any],
        metric: Floats | None = None,
    ) -> StreamSummary:
        """Rebuild what :meth:`state` gave; raise InvalidInputError if the parts do not fit."""
        d = as_count(values["n_features"], "n_features")
        rng = np.random.default_rng()
        try:
            rng.bit_generator.state = values["rng"]
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise InvalidInputError(f"rng is not a generator's state: {error}") from error
        summary = cls(d, settings, rng, metric)
        summary.n_rows = as_count(values["n_rows"], "n_rows", minimum=0)
        summary.mass = as_real(values["mass"], "mass", low=0.0)
        vectors = {
            name: as_vector(arrays[name], name, length=d, dim="n_features")
            for name in ("origin", "moment_counts", "moment_means", "moment_deviations")
        }
        summary._origin = vectors["origin"] if values["started"] else None
        summary._moments = Moments(
            vectors["moment_counts"], vectors["moment_means"], vectors["moment_deviations"]
        )
        rows = as_matrix(arrays["held_rows"], "held_rows", n_columns=d, min_rows=0, allow_nan=True)
        weights = np.asarray(arrays["held_weights"], dtype=np.float64)
        if weights.shape != (len(rows),):
            raise InvalidInputError(f"expected {len(rows)} held_weights, got {weights.shape}")
        summary._held = (rows, weights)
        pool = {n.removeprefix("pool_"): a for n, a in arrays.items() if n.startswith("pool_")}
        summary._pool.restore(pool)
        return summary
