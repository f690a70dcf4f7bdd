"""How far rows are from everything known."""

from __future__ import annotations

import numpy as np

from baryflow.core.mixture import Mixture
from baryflow.estimators.adaptation import remoteness
from baryflow.estimators.class_moments import spread
from baryflow.estimators.decision import Decision
from baryflow.estimators.sources import SourceModel
from baryflow.validation import Floats

#: Quantiles of the sources' own remoteness against which novelty is measured.
_QUANTILES = 1001


def usual_remoteness(model: SourceModel, rows: list[Floats], decision: Decision) -> tuple[Floats, float]:
    """Return quantiles of how remote rows are that are not novel, in units of what is typical.

    From sources left out where there are such; otherwise from the sources themselves. Also return what
    is typical of the sources' rows, for the time before anything is known of a target.
    """
    typical = max(float(np.median(source_remoteness(model, np.concatenate(rows)))), 1e-12)
    if decision.remoteness:
        return np.array(decision.remoteness), typical
    found = []
    for X in rows:
        far = _source_remoteness(model, X, X.mean(axis=0), spread(X, model.scale))
        found.append(far / max(float(np.median(far)), 1e-12))
    return np.quantile(np.concatenate(found), np.linspace(0.0, 1.0, _QUANTILES)), typical


def source_remoteness(model: SourceModel, rows: Floats) -> Floats:
    """Return how remote rows are from all sources, before anything is known of the target."""
    return _source_remoteness(model, rows, model.centre, model.scale)


def _source_remoteness(model: SourceModel, rows: Floats, centre: Floats, scale: Floats) -> Floats:
    p = model.n_dimensions
    points = np.concatenate([domain.points for domain in model.domains])
    weights = np.concatenate([domain.weights for domain in model.domains])
    mixture = Mixture(weights / weights.sum(), points[:, :p], points[:, p : 2 * p])
    return remoteness(model.project(rows, centre, scale), mixture)
