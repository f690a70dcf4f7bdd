"""What is kept of a target: a summary of bounded size."""

from __future__ import annotations

import numpy as np

from baryflow.core.paper_summary import PaperSummary
from baryflow.core.settings import PaperSettings, Settings
from baryflow.core.summary import StreamSummary
from baryflow.estimators.class_moments import spread
from baryflow.estimators.sources import SourceModel
from baryflow.validation import Floats

#: Components kept of a target, for each class.
COMPONENTS_PER_CLASS = 3


def summary_settings(n_classes: int, **changes: object) -> Settings:
    """Return how a target is summarised for the dictionary."""
    settings: dict[str, object] = {
        "max_components": COMPONENTS_PER_CLASS * n_classes,
        "resolution": 1,
        "full_covariance": True,
        "n_votes": n_classes,
    }
    return Settings(**(settings | changes))  # type: ignore[arg-type]


def new_summary(model: SourceModel, settings: Settings) -> StreamSummary:
    """Return the summary of a target of which nothing was seen yet."""
    metric = model.metric(model.scale) if settings.full_covariance else None
    return StreamSummary(len(model.centre), settings, metric)


def start_summary(
    model: SourceModel, settings: Settings | PaperSettings
) -> StreamSummary | PaperSummary:
    """Return the summary of a target of which nothing was seen yet, in the way that is wanted."""
    if isinstance(settings, PaperSettings):
        return PaperSummary(len(model.centre), settings, np.random.default_rng(0))
    return new_summary(model, settings)


def absorb(
    model: SourceModel, summary: StreamSummary | PaperSummary, X: Floats, weights: Floats | None = None
) -> None:
    """Absorb complete target rows, looking through the view as the target's moments now have it."""
    weights = np.ones(len(X)) if weights is None else weights
    if isinstance(summary, PaperSummary):
        summary.update(X, weights)
        return
    if summary.mass > 0.0 and summary.settings.full_covariance:
        scale = model.classes.at(*summary.moments(), model.usual, summary.mass)[1]
        metric = model.metric(scale)
        if metric is not None:
            summary.look_through(metric)
    summary.update(X, weights, model.pooled_proba(X))


def summarise_whole(model: SourceModel, X: Floats) -> StreamSummary:
    """Summarise target rows that are all at hand: their moments are known before the first merge."""
    settings = summary_settings(model.n_classes, full_covariance=model.directions is not None)
    summary = new_summary(model, settings)
    metric = model.metric(spread(X, model.scale))
    if metric is not None:
        summary.look_through(metric)
    summary.update(X, np.ones(len(X)), model.pooled_proba(X))
    return summary
