"""Fit the dictionary to a target under one explanation (paper, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from baryflow.core.dictionary import Dictionary, Domain, Points, simplex_least_squares
from baryflow.core.mixture import Mixture
from baryflow.core.transport import match_slots
from baryflow.estimators._explanations import Candidate, TargetSummary
from baryflow.estimators._sources import SourceModel
from baryflow.validation import Floats


def compare_sources(dictionary: Dictionary, target: Domain, sources: Sequence[Domain]) -> Floats:
    """Return the mixture of the sources that comes nearest to the target, slot by slot.

    The sources' own components are compared, not their reconstructions, which fewer atoms than sources
    cannot tell apart.
    """
    used = slice(target.n_used)
    slots = dictionary.reconstruction(target)
    rebuilt = dictionary.reconstructions(sources)
    columns = []
    for domain, points, match in zip(sources, rebuilt, match_slots(slots, rebuilt), strict=True):
        # Where the source lacks a class its reconstruction stands in.
        known = np.where((domain.slot_weights > 0.0)[:, None], domain.goal, points)
        columns.append(known[match][:, used])
    goal = np.where((target.slot_weights > 0.0)[:, None], target.goal[:, used], slots[:, used])
    gaps = (np.stack(columns) - goal) * np.sqrt(target.slot_weights)[:, None]
    table = gaps.reshape(len(columns), -1)
    quadratic = table @ table.T
    # A little ridge shares the credit between sources that are the same.
    quadratic += 1e-6 * float(np.trace(quadratic)) / len(columns) * np.eye(len(columns))
    return simplex_least_squares(quadratic, np.zeros(len(columns)))


#: Steps in which an unmoved dictionary finds plan and coordinates of a target.
_MATCHING_STEPS = 3
#: Smallest std of a predicting component, in units of the usual spread within a class.
_PREDICTOR_FLOOR = 0.1
#: Added to class probabilities before the logarithm: none is a veto.
_VETO_FLOOR = 1e-2


@dataclass(frozen=True, eq=False)
class FittedDictionary:
    """The dictionary after its step towards a target, and what it says of the target.

    Attributes
    ----------
    dictionary : Dictionary
    target : Domain
    losses : array of shape (2,)
        Of the target, before and after the step.
    reconstruction, labelled : Mixture
        The target rebuilt from the atoms, and its own components with the labels that the plan gives
        them; both in the coordinates of the view.
    known : Points
        The reconstruction before the atoms moved towards the target. Afterwards they are closer to
        what is new in it.
    """

    dictionary: Dictionary
    target: Domain
    losses: Floats
    reconstruction: Mixture
    labelled: Mixture
    known: Points


def fit_dictionary(
    model: SourceModel, seen: TargetSummary, candidate: Candidate, posteriors: Floats
) -> FittedDictionary:
    """Match a target with the atoms, and move them towards it by one block step.

    Parameters
    ----------
    model : SourceModel
    seen : TargetSummary
    candidate : Candidate
        Class proportions and calibration of the target.
    posteriors : array of shape (n_components, n_classes)
        Class probabilities of the target's components under this explanation; they enter the costs of
        the plan.
    """
    variances = model.variances(seen.variances_in, candidate.scale)
    points = model.points(seen.means, variances, candidate.centre, candidate.scale)
    slot_weights = model.slot_weights(candidate.proportions)
    target = model.target(seen.masses / seen.masses.sum(), points, slot_weights)
    votes = (posteriors[:, model.slot_classes] + _VETO_FLOOR) / (1.0 + _VETO_FLOOR)
    target.extra_costs = -2.0 * np.log(np.minimum(votes, 1.0))
    dictionary = model.dictionary.copy()
    dictionary.settle(target, _MATCHING_STEPS)
    known = Points(dictionary.reconstruction(target), model.n_dimensions)
    # The sources keep their plans and coordinates.
    before = float(dictionary.step([target], model.domains)[0])
    after = dictionary.transport(target)
    slots = Points(dictionary.reconstruction(target), model.n_dimensions)
    reconstruction = Mixture(
        slot_weights / slot_weights.sum(),
        slots.means,
        floor_stds(model, slots),
        _normalise(slots.labels),
        float(seen.masses.sum()),
    )
    return FittedDictionary(
        dictionary,
        target,
        np.array([before, after]),
        reconstruction,
        _label(model, seen.masses, variances, target, reconstruction),
        known,
    )


def _label(
    model: SourceModel, masses: Floats, variances: Floats, target: Domain, rebuilt: Mixture
) -> Mixture:
    """Return the target's own components with the labels that the plan gives them."""
    # One more row of the usual spread: a component of few rows has no reliable std of its own.
    smoothed = np.sqrt((masses[:, None] * variances + model.unit**2) / (masses[:, None] + 1.0))
    return Mixture(
        masses / masses.sum(),
        target.points[:, : model.n_dimensions],
        np.maximum(smoothed, _PREDICTOR_FLOOR * model.unit),
        _normalise(target.plan @ np.asarray(rebuilt.labels)),
        rebuilt.mass,
    )


def _normalise(rows: Floats) -> Floats:
    """Return rows as distributions; a row without any positive value becomes uniform."""
    rows = np.maximum(rows, 0.0)
    totals = rows.sum(axis=1, keepdims=True)
    uniform = np.full_like(rows, 1.0 / rows.shape[1])
    return np.where(totals > 0.0, rows / np.where(totals > 0.0, totals, 1.0), uniform)


def floor_stds(model: SourceModel, points: Points) -> Floats:
    """Return the stds of points that predict."""
    return np.maximum(points.stds, _PREDICTOR_FLOOR * model.unit)
