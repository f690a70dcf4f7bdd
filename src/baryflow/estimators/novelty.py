"""How far rows are from everything known."""

from __future__ import annotations

import numpy as np

from baryflow.core.mixture import Mixture
from baryflow.estimators.adaptation import remoteness
from baryflow.estimators.sources import SourceModel, spread
from baryflow.validation import Floats

#: Quantiles of the sources' own remoteness against which novelty is measured.
_QUANTILES = 1001


def usual_remoteness(model: SourceModel, rows: list[Floats]) -> Floats:
    """Return quantiles of how far the sources' rows are from their own reconstructions."""
    p = model.n_dimensions
    found = []
    for X, domain in zip(rows, model.domains, strict=True):
        points = model.dictionary.reconstruction(domain)
        mixture = Mixture(
            domain.slot_weights / domain.slot_weights.sum(),
            points[:, :p],
            np.maximum(points[:, p : 2 * p], 0.1 * model.unit),
        )
        found.append(remoteness(model.project(X, X.mean(axis=0), spread(X, model.scale)), mixture))
    return np.asarray(np.quantile(np.concatenate(found), np.linspace(0.0, 1.0, _QUANTILES)))


def source_remoteness(model: SourceModel, rows: Floats) -> Floats:
    """Return how far rows are from all sources, before anything is known of the target."""
    p = model.n_dimensions
    points = np.concatenate([domain.points for domain in model.domains])
    weights = np.concatenate([domain.weights for domain in model.domains])
    mixture = Mixture(weights / weights.sum(), points[:, :p], points[:, p : 2 * p])
    return remoteness(model.project(rows, model.centre, model.scale), mixture)
