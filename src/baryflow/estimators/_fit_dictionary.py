"""Fit the dictionary to a target: one space after the other, assuming some class proportions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from baryflow.core.dictionary import Dictionary, Domain
from baryflow.core.mixture import Mixture
from baryflow.core.points import Points
from baryflow.estimators._sources import SourceKnowledge, SourceModel
from baryflow.estimators._target import TargetSummary
from baryflow.validation import Floats

#: Steps in which an unmoved dictionary finds plan and coordinates of a target.
_MATCHING_STEPS = 3
#: Block steps in which it then moves towards the target. The sources keep their plans and coordinates.
_STEPS = 1
#: Smallest std of a predicting component, in units of the usual spread within a class.
_PREDICTOR_FLOOR = 0.1
#: Added to votes before the logarithm: no vote is a veto.
_VOTE_FLOOR = 1e-2


@dataclass(frozen=True, eq=False)
class AdaptedSpace:
    """A target in one space.

    Attributes
    ----------
    centre, scale : arrays of shape (d,)
        The target's moments, corrected for its class proportions.
    dictionary : Dictionary
        After its steps towards the target.
    target : Domain
    losses : array of shape (n_steps, 1)
        Of the target, before each step.
    reconstruction, labelled : Mixture
        The target rebuilt from the atoms, and its own components with the labels that the plan gives
        them; both in the coordinates of the view.
    known : Points
        The reconstruction before the atoms moved towards the target. Afterwards they are closer to
        what is new in it.
    """

    model: SourceModel
    centre: Floats
    scale: Floats
    dictionary: Dictionary
    target: Domain
    losses: Floats
    reconstruction: Mixture
    labelled: Mixture
    known: Points

    def project(self, X: Floats) -> Floats:
        """Return complete rows in the coordinates of the view."""
        return self.model.project(X, self.centre, self.scale)


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """The target under one assumption about its class proportions.

    It is matched with the unmoved atoms. Moving them takes longer, and waits until it is needed: most
    assumptions fit worse than others and are dropped before.
    """

    proportions: Floats
    matched: tuple[_Match, ...]  # in the view, and in the stacked space if there is one
    raw_log_ratios: Floats  # added to log-probabilities of the plain classifiers on raw rows
    log_ratios: Floats  # ... and to those that standardise per domain

    @cached_property
    def view(self) -> AdaptedSpace:
        """The target in the discriminant view, adapted to."""
        return _adapt_space(self.matched[0])

    @cached_property
    def stacked(self) -> AdaptedSpace | None:
        """The target in the stacked space, adapted to; None if there is no such space."""
        return _adapt_space(self.matched[1]) if len(self.matched) > 1 else None

    @property
    def losses(self) -> Floats:
        """The target's distance from its reconstruction by unmoved atoms, in each space."""
        return np.array([match.unmoved_loss for match in self.matched])


def fit_dictionary(
    knowledge: SourceKnowledge,
    rows: TargetSummary,
    stacked: TargetSummary | None,
    proportions: Floats,
) -> Hypothesis:
    """Fit the dictionary of each space to a target with these class proportions."""
    matched = [_match(knowledge.model, rows, proportions)]
    if stacked is not None and knowledge.stacked is not None:
        matched.append(_match(knowledge.stacked, stacked, proportions))
    prior, plain = knowledge.model.expected_prior, knowledge.plain
    raw_ratios = ratios = np.zeros(len(prior))
    if plain is not None and knowledge.user_prior:
        raw_ratios = ratios = plain.prior_log_ratios(prior)
    if plain is not None and proportions is not prior:
        ratios = plain.prior_log_ratios((proportions + prior) / 2.0)  # the rows to come may differ
    return Hypothesis(proportions, tuple(matched), raw_ratios, ratios)


@dataclass(frozen=True, eq=False)
class _Match:
    """A target in one space, matched with unmoved atoms."""

    model: SourceModel
    masses: Floats  # of the target's components
    centre: Floats
    scale: Floats
    variances: Floats
    dictionary: Dictionary
    target: Domain
    unmoved: Floats
    unmoved_loss: float


def _match(model: SourceModel, seen: TargetSummary, proportions: Floats) -> _Match:
    """Match a target with the atoms of one space (paper, section 3.2)."""
    centre, scale = model.moments_at(seen.mean, seen.variance, proportions, seen.mass)
    variances = model.variances(seen.variances_in, seen.stds, scale)
    points = model.points(seen.means, variances, centre, scale)
    slot_weights = model.slot_weights(proportions)
    target = model.target(seen.masses / seen.masses.sum(), points, slot_weights)
    if seen.votes is not None:
        votes = (seen.votes[:, model.slot_classes] + _VOTE_FLOOR) / (1.0 + _VOTE_FLOOR)
        target.extra_costs = -2.0 * np.log(np.minimum(votes, 1.0))
    dictionary = model.dictionary.copy()
    dictionary.settle(target, _MATCHING_STEPS)
    return _Match(
        model,
        seen.masses,
        centre,
        scale,
        variances,
        dictionary,
        target,
        dictionary.reconstruction(target),
        target.loss,
    )


def _adapt_space(match: _Match) -> AdaptedSpace:
    """Move the dictionary of one space towards a target (paper, section 3.2)."""
    model = match.model
    dictionary, target, losses = _move(match)
    slots = Points(dictionary.reconstruction(target), model.n_dimensions)
    slot_weights = target.slot_weights
    reconstruction = Mixture(
        slot_weights / slot_weights.sum(),
        slots.means,
        floor_stds(model, slots),
        _normalise(slots.labels),
        float(match.masses.sum()),
    )
    return AdaptedSpace(
        model=model,
        centre=match.centre,
        scale=match.scale,
        dictionary=dictionary,
        target=target,
        losses=losses,
        reconstruction=reconstruction,
        labelled=_label(match, target, reconstruction),
        known=Points(match.unmoved, model.n_dimensions),
    )


def _move(match: _Match) -> tuple[Dictionary, Domain, Floats]:
    """Take block steps from the source-only dictionary; return it, the target, and its losses."""
    # Copies: what is interrupted can be done again.
    dictionary, target = match.dictionary.copy(), match.target.copy()
    losses = np.array([dictionary.step([target], match.model.domains) for _ in range(_STEPS)])
    dictionary.transport(target)
    return dictionary, target, losses


def _label(match: _Match, target: Domain, rebuilt: Mixture) -> Mixture:
    """Return the target's own components with the labels that the plan gives them."""
    model = match.model
    masses, labels = match.masses[:, None], np.asarray(rebuilt.labels)
    means = target.points[:, : model.n_dimensions]
    # One more row of the usual spread: a component of few rows has no reliable std of its own.
    smoothed = np.sqrt((masses * match.variances + model.unit**2) / (masses + 1.0))
    # One more row for every class, where the reconstruction has it: classes may not have come yet.
    awaited = np.full(len(labels), model.n_classes / len(labels))
    everything = np.concatenate([match.masses, awaited])
    return Mixture(
        everything / everything.sum(),
        np.concatenate([means, rebuilt.means]),
        np.concatenate(
            [np.maximum(smoothed, _PREDICTOR_FLOOR * model.unit), np.maximum(rebuilt.stds, model.unit)]
        ),
        np.concatenate([_normalise(target.plan @ labels), labels]),
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
