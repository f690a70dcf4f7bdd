"""A target as it is known at one moment, rows held against it, and forgetting it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import softmax

from baryflow.core.dictionary import Points
from baryflow.core.gaussian import LogDensity
from baryflow.core.logs import logsumexp
from baryflow.core.mixture import Mixture
from baryflow.estimators._novelty import NOVELTY_THRESHOLD, nearest_distance
from baryflow.estimators._predict import assess, predict_proba, typical_in_columns
from baryflow.estimators._sources import SourceKnowledge, SourceModel
from baryflow.estimators._state import TargetState, clean
from baryflow.estimators._threads import one_thread
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers


@dataclass(frozen=True, eq=False)
class KnownTarget:
    """A target as it was known at one moment: what later rows are held against."""

    mixture: Mixture  # its own components, labelled, in the coordinates of the view
    means: Floats  # of its reconstruction from the sources
    stds: Floats
    centre: Floats  # of its columns, through which the view looks
    scale: Floats
    typical: float  # median distance of its rows from the reconstruction
    typical_in_columns: float  # and from the sources' prototypes
    resemblance: Floats  # how much of each source is in it


@dataclass(frozen=True, eq=False)
class Signals:
    """What each row looks like, held against a target as it was known."""

    likelihood: Floats  # log-density under the target's mixture, in the view
    loss: Floats  # squared distance from the reconstruction, in units of what is typical
    resemblance: Floats  # (n, n_sources): how probable it is that the row is of each source
    #: Log-ratio of how the target's own blend of sources explains the row, and all in equal parts.
    likeness: Floats
    proportions: Floats  # (n, n_classes): class probabilities by the target's mixture
    novelty: Floats  # by the distance from the sources, 0 to 1
    lost: Any  # rows of which next to nothing could be read; what is said of them means nothing

    def summary(self) -> dict[str, float]:
        """Return a number for each signal: means over the rows, and the share of novel ones.

        Returns
        -------
        dict of str → float
            NaN if there is no row that could be read.
        """
        some = ~self.lost
        if not some.any():
            return dict.fromkeys(("likelihood", "loss", "likeness", "novelty"), float("nan"))
        return {
            "likelihood": float(self.likelihood[some].mean()),
            "loss": float(self.loss[some].mean()),
            "likeness": float(self.likeness[some].mean()),
            "novelty": float((self.novelty[some] > NOVELTY_THRESHOLD).mean()),
        }


def known_target(sources: SourceKnowledge, state: TargetState) -> KnownTarget:
    """Return a target as it is known now, to hold later rows against it."""
    if (adaptation := state.adaptation) is None:
        raise InvalidInputError("no target row was seen yet: call partial_fit first")
    one = adaptation.believed
    return KnownTarget(
        mixture=adaptation.labelled,
        means=adaptation.known_means,
        stds=adaptation.known_stds,
        centre=one.centre,
        scale=one.scale,
        typical=adaptation.typical,
        typical_in_columns=typical_in_columns(sources, adaptation, state.familiar.rows),
        resemblance=adaptation.resemblance,
    )


@one_thread
def measure(
    sources: SourceKnowledge, state: TargetState, raw: Floats, known: KnownTarget | None = None
) -> Signals:
    """Hold rows against a target as it was known once, or without that as it is known now."""
    rows, lost = clean(sources, state, raw)
    if known is not None:
        return replace(measure_against(known, sources, rows), lost=lost)
    found = measure_against(known_target(sources, state), sources, rows)
    return replace(found, lost=lost, novelty=assess(sources, state, raw)[1])


def measure_against(known: KnownTarget, sources: SourceKnowledge, rows: Floats) -> Signals:
    """Hold complete rows against a target as it was known."""
    model = sources.model
    Z = model.project(rows, known.centre, known.scale)
    mixture = known.mixture
    joint = LogDensity(mixture.means, mixture.stds)(Z) + np.log(mixture.weights)
    likelihood = logsumexp(joint, axis=1)
    loss = nearest_distance(Z, known.means, known.stds) / known.typical
    far = loss
    if model.prototypes is not None and known.typical_in_columns > 0.0:
        others = model.prototypes.distances((rows - known.centre) / known.scale)
        far = np.sqrt(loss * others / known.typical_in_columns)
    each = np.stack([_log_density(model, domain, Z) for domain in model.domains], axis=1)
    blend = np.log(np.maximum(known.resemblance, np.finfo(np.float64).tiny))
    even = logsumexp(each, axis=1) - np.log(each.shape[1])
    return Signals(
        likelihood=likelihood,
        loss=loss,
        resemblance=softmax(each, axis=1),
        likeness=logsumexp(each + blend, axis=1) - even,
        proportions=np.exp(joint - likelihood[:, None]) @ np.asarray(mixture.labels),
        novelty=sources.novelty.rank(far),
        lost=np.zeros(len(rows), dtype=bool),
    )


@one_thread
def place(sources: SourceKnowledge, state: TargetState, raw: Floats) -> tuple[Integers, Floats]:
    """Return where rows are, before or without learning from them.

    Returns
    -------
    classes : array of shape (n,)
        Numbers of the classes of the sources, as they are predicted.
    points : array of shape (n - n_lost, n_dimensions)
        Rows in the view, through the usual scale of a source instead of the target's: the spread of a
        class is about 1 in every dimension, however few classes have come. Rows without a readable value
        are left out.
    """
    model = sources.model
    rows, lost = clean(sources, state, raw)
    classes = predict_proba(sources, state, rows)[:, : model.n_classes].argmax(axis=1)
    return classes, model.project(rows[~lost], model.centre, model.moments.usual[1])


def classes_apart(model: SourceModel) -> float:
    """Return by how much the variance of a source's rows exceeds that of a class, in the view.

    The mean over the sources, of the sums over dimensions.
    """
    found = []
    for domain in model.domains:
        points = Points(domain.points, model.n_dimensions)
        weights = domain.weights / domain.weights.sum()
        mean = weights @ points.means
        variance = weights @ (points.stds**2 + points.means**2) - mean**2
        found.append(float((variance - 1.0).sum()))
    return max(float(np.mean(found)), 0.0)


def _log_density(model: SourceModel, domain: Any, Z: Floats) -> Floats:
    """Return the log-density of rows of the view under one source's mixture."""
    there = domain.weights > 0.0
    points = Points(domain.points[there], model.n_dimensions)
    table = LogDensity(points.means, model.floor_stds(points))(Z)
    return np.asarray(logsumexp(table + np.log(domain.weights[there]), axis=1))
