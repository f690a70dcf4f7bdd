"""What a model's mixtures live in: rows and sources in the coordinates of the view."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from baryflow.core.mixture import Mixture
from baryflow.core.points import Points
from baryflow.estimators.adaptation import floor_stds
from baryflow.estimators.follower import Follower
from baryflow.estimators.threads import one_thread
from baryflow.validation import Floats


class ShowsView:
    """Can show rows and sources where its atoms and its target are; mixed into an adapter."""

    sources_: list[Any]
    _follower: Follower

    @property
    def source_mixtures_(self) -> dict[Any, Mixture]:
        """The labelled mixture of every source by its name, in the coordinates of the view."""
        check_is_fitted(self, "_follower")
        model = self._follower.learned.model
        return {
            name: _as_mixture(domain, model)
            for name, domain in zip(self.sources_, model.domains, strict=True)
        }

    @one_thread
    def in_view(self, X: Any) -> Floats:
        """Return target rows in the coordinates of ``atoms_``, ``target_mixture_`` and the like.

        The other way round than :meth:`in_columns`. Use it to see near what a row lies.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            Glitches and gaps are filled as they are for a prediction.

        Returns
        -------
        array of shape (n_samples, n_dimensions)
            Through the moments of the target, or before its first row those of the sources.

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        rows = self._rows(X)  # type: ignore[attr-defined]  # the estimator beside it
        follower = self._follower
        model, adaptation = follower.learned.model, follower.adaptation
        centre, scale = model.centre, model.scale
        if adaptation is not None:
            centre, scale = adaptation.mix.centre, adaptation.mix.scale
        return model.project(follower.target.clean(rows)[0], centre, scale)


def _as_mixture(domain: Any, model: Any) -> Mixture:
    """Return a source as it was described before any target bent it."""
    there = domain.weights > 0.0
    points = Points(domain.points[there], model.n_dimensions)
    weights, labels = domain.weights[there], np.maximum(points.labels, 0.0)
    return Mixture(
        weights / weights.sum(),
        points.means,
        floor_stds(model, points),
        labels / labels.sum(axis=1, keepdims=True),
    )
