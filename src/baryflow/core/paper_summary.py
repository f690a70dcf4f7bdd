"""The paper's summary of a stream: every batch becomes a small mixture, fit by EM (Algs. 1 to 4)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from baryflow.core.em import Reference, distinct_rows, fit_rows
from baryflow.core.mixture import Mixture
from baryflow.core.pool import Pool
from baryflow.core.settings import PaperSettings
from baryflow.core.summary import Summary, SummaryState
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_matrix


@dataclass(frozen=True, eq=False)
class PaperSummaryState(SummaryState):
    """All that a summary of batches knows."""

    settings: PaperSettings
    held_rows: Floats
    held_weights: Floats
    rng: dict[str, Any]


class PaperSummary(Summary):
    """The summary of a stream whose batches become a few components each, chosen by BIC.

    The first fit needs `min_components` distinct rows: rows are held until there are as many.
    """

    settings: PaperSettings

    def __init__(self, n_features: int, settings: PaperSettings, rng: np.random.Generator) -> None:
        super().__init__(
            n_features, settings, Pool(n_features, distance=settings.distance, merging=settings.merging)
        )
        self._rng = rng
        self._hold(np.zeros((0, n_features)), np.zeros(0))

    def copy(self) -> Self:
        """Return an independent copy."""
        twin = super().copy()
        vars(twin)["_rng"] = deepcopy(self._rng)
        return twin

    def _hold(self, rows: Floats, weights: Floats) -> None:
        self._held_rows, self._held_weights = rows, weights

    def update(self, X: Floats, weights: Floats) -> None:
        """Absorb one batch, in which the order of the rows does not matter."""
        counts = weights > 0.0
        X, weights = X[counts], weights[counts]
        if not self._arrive(X, weights):
            return
        X, weights = distinct_rows(X - self._seen(), weights)
        self._measure(X, weights)
        unknown = np.isnan(X).all(axis=0)
        if unknown.any():  # a fit can leave out values, but not a whole column
            X = np.where(unknown, self._filled(X)[0], X)
        self._fit(X, weights)

    def _join(self, other: Self, shift: Floats) -> None:
        super()._join(other, shift)
        rows = other._held_rows + shift
        if len(rows) or len(self._held_rows):
            self._fit(rows, other._held_weights)

    def fade(self, factor: float) -> None:
        """Let everything seen so far count less."""
        super().fade(factor)
        self._hold(self._held_rows, self._held_weights * factor)

    def _fit(self, rows: Floats, weights: Floats) -> None:
        """Fit these rows and the held ones: at first with min_components, later with a few, by BIC."""
        s = self.settings
        rows = np.concatenate([self._held_rows, rows])
        rows, weights = distinct_rows(rows, np.concatenate([self._held_weights, weights]))
        first = not len(self._pool)
        if first and len(rows) < s.min_components:
            self._hold(rows, weights)
            return
        k1, k2 = (s.min_components, s.min_components) if first else (1, s.most_components(len(rows)))
        mixture = self._fitted(rows, weights, k1, k2, self._rng)
        self._hold(np.zeros((0, self.n_features)), np.zeros(0))
        self._pool.append(mixture.weights * mixture.mass, mixture.means, mixture.stds)
        self._compress()

    def _fitted(self, X: Floats, weights: Floats, k1: int, k2: int, rng: np.random.Generator) -> Mixture:
        return fit_rows(
            X,
            weights,
            Reference.of_moments(self._moments.means, self._moments.variances),
            min_components=k1,
            max_components=k2,
            std_floor=self.settings.std_floor,
            rng=rng,
        ).mixture

    def _components(self) -> tuple[Floats, Floats, Floats]:
        if len(self._pool):
            return super()._components()
        # The first rows are still held, and each stands for itself.
        origin = self._seen()
        X, weights = distinct_rows(self._held_rows, self._held_weights)
        # Looking must not draw from the stream's own generator.
        mixture = self._fitted(X, weights, len(X), len(X), np.random.default_rng(0))
        return mixture.weights * mixture.mass, origin + mixture.means, mixture.stds

    def state(self) -> PaperSummaryState:
        """Return all there is to know, to continue bit for bit."""
        return PaperSummaryState(
            self.n_rows,
            self.mass,
            self._origin,
            self._moments,
            self._pool.state(),
            self.settings,
            self._held_rows,
            self._held_weights,
            dict(self._rng.bit_generator.state),
        )

    @classmethod
    def from_state(cls, state: PaperSummaryState) -> Self:
        """Go on from what :meth:`state` gave; raise InvalidInputError if the parts do not fit."""
        rng = np.random.default_rng()
        try:
            rng.bit_generator.state = state.rng
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise InvalidInputError(f"rng is not a generator's state: {error}") from error
        d = len(state.moments.means)
        summary = cls(d, state.settings, rng)
        summary._restore(state)
        rows = as_matrix(state.held_rows, "held_rows", n_columns=d, min_rows=0, allow_nan=True)
        if state.held_weights.shape != (len(rows),):
            raise InvalidInputError(f"expected {len(rows)} held_weights, got {state.held_weights.shape}")
        summary._hold(rows, state.held_weights)
        return summary
