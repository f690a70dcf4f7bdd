"""Fit the dictionary to a target: one space after the other, assuming some class proportions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from baryflow.core.dictionary import PROXIMAL, Dictionary, Domain
from baryflow.core.mixture import Mixture
from baryflow.core.points import Points
from baryflow.estimators._sources import SourceKnowledge, SourceModel
from baryflow.estimators._target import TargetSummary
from baryflow.validation import Floats

#: Steps in which an unmoved dictionary finds plan and coordinates of a target.
_MATCHING_STEPS = 3
#: Smallest std of a predicting component, in units of the usual spread within a class.
_PREDICTOR_FLOOR = 0.1
#: Added to votes before the logarithm: no vote is a veto.
_VOTE_FLOOR = 1e-2


@dataclass(frozen=True)
class AdaptConfig:
    """How the dictionary is moved towards a target."""

    n_steps: int = 1  # block steps
    freeze_sources: bool = True  # only the target chooses its coordinates
    proximal: float = PROXIMAL
    warm_start: bool = False  # start from the last adaptation instead of the source-only dictionary
    label_shift: bool = True  # estimate the target's class proportions


@dataclass(frozen=True, eq=False)
class AdaptedDictionary:
    """The dictionary of one space after steps towards a target, from where others can continue."""

    dictionary: Dictionary
    sources: list[Domain]
    target: Domain
    unmoved: Floats  # the reconstruction before the last steps
    unmoved_loss: float  # of the target, before the last steps


@dataclass(frozen=True, eq=False)
class AdaptedSpace:
    """A target in one space.

    Attributes
    ----------
    centre, scale : arrays of shape (d,)
        The target's moments, corrected for its class proportions.
    adapted : AdaptedDictionary
    losses : array of shape (n_steps, n_domains)
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
    adapted: AdaptedDictionary
    losses: Floats
    reconstruction: Mixture
    labelled: Mixture
    known: Points

    def project(self, X: Floats) -> Floats:
        """Return complete rows in the coordinates of the view."""
        return self.model.project(X, self.centre, self.scale)


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """The target, adapted to under one assumption about its class proportions."""

    proportions: Floats
    view: AdaptedSpace
    stacked: AdaptedSpace | None
    raw_log_ratios: Floats  # added to log-probabilities of the plain classifiers on raw rows
    log_ratios: Floats  # ... and to those that standardise per domain

    @property
    def losses(self) -> Floats:
        """The target's distance from its reconstruction by unmoved atoms, in each space."""
        spaces = [self.view] if self.stacked is None else [self.view, self.stacked]
        return np.array([space.adapted.unmoved_loss for space in spaces])


def fit_dictionary(
    knowledge: SourceKnowledge,
    rows: TargetSummary,
    stacked: TargetSummary | None,
    proportions: Floats,
    config: AdaptConfig,
    start: AdaptedDictionary | None = None,
) -> Hypothesis:
    """Fit the dictionary of each space to a target with these class proportions."""
    view = _adapt_space(knowledge.model, rows, proportions, config, start)
    other = None
    if stacked is not None and knowledge.stacked is not None:
        other = _adapt_space(knowledge.stacked, stacked, proportions, config)
    prior, plain = knowledge.model.expected_prior, knowledge.plain
    nothing = np.zeros(len(prior))
    raw_ratios = ratios = nothing
    if plain is not None and knowledge.user_prior:
        raw_ratios = ratios = plain.prior_log_ratios(prior)
    if plain is not None and proportions is not prior:
        ratios = plain.prior_log_ratios((proportions + prior) / 2.0)  # the rows to come may differ
    return Hypothesis(proportions, view, other, raw_ratios, ratios)


def _adapt_space(
    model: SourceModel,
    seen: TargetSummary,
    proportions: Floats,
    config: AdaptConfig,
    start: AdaptedDictionary | None = None,
) -> AdaptedSpace:
    """Move the dictionary of one space towards a target (paper, section 3.2)."""
    centre, scale = model.moments_at(seen.mean, seen.variance, proportions, seen.mass)
    variances = model.variances(seen.variances_in, seen.stds, scale)
    points = model.points(seen.means, variances, centre, scale)
    slot_weights = model.slot_weights(proportions)
    target = model.target(seen.masses / seen.masses.sum(), points, slot_weights)
    if seen.votes is not None:
        votes = (seen.votes[:, model.slot_classes] + _VOTE_FLOOR) / (1.0 + _VOTE_FLOOR)
        target.extra_costs = -2.0 * np.log(np.minimum(votes, 1.0))
    adapted, losses = _move(model, target, config, start)
    slots = Points(adapted.dictionary.reconstruction(target), model.n_dimensions)
    reconstruction = Mixture(
        slot_weights / slot_weights.sum(),
        slots.means,
        floor_stds(model, slots),
        _normalise(slots.labels),
        float(seen.masses.sum()),
    )
    return AdaptedSpace(
        model=model,
        centre=centre,
        scale=scale,
        adapted=adapted,
        losses=losses,
        reconstruction=reconstruction,
        labelled=_label(model, seen, points, variances, target, reconstruction),
        known=Points(adapted.unmoved, model.n_dimensions),
    )


def _move(
    model: SourceModel, target: Domain, config: AdaptConfig, start: AdaptedDictionary | None
) -> tuple[AdaptedDictionary, Floats]:
    """Take block steps from the source-only dictionary, or from where the last ones stopped."""
    if start is None:
        dictionary = model.dictionary.copy(proximal=config.proximal)
        sources = [domain.copy() for domain in model.domains]
        dictionary.settle(target, _MATCHING_STEPS)
        unmoved_loss = target.loss
    else:
        dictionary = start.dictionary.copy(proximal=config.proximal)
        sources = [domain.copy() for domain in start.sources]
        target.coordinates, target.match = start.target.coordinates, start.target.match
        unmoved_loss = start.target.loss
    unmoved = dictionary.reconstruction(target)
    moving = [target] if config.freeze_sources else [*sources, target]
    frozen = sources if config.freeze_sources else []
    losses = np.array([dictionary.step(moving, frozen) for _ in range(config.n_steps)])
    if config.n_steps or start is None:
        dictionary.transport(target)
    else:  # nothing has moved since
        target.plan, target.goal, unmoved = start.target.plan, start.target.goal, start.unmoved
        target.loss = start.target.loss
    return AdaptedDictionary(dictionary, sources, target, unmoved, unmoved_loss), losses


def _label(
    model: SourceModel,
    seen: TargetSummary,
    points: Floats,
    variances: Floats,
    target: Domain,
    rebuilt: Mixture,
) -> Mixture:
    """Return the target's own components with the labels that the plan gives them."""
    masses, labels = seen.masses[:, None], np.asarray(rebuilt.labels)
    means = points[:, : model.n_dimensions]
    # One more row of the usual spread: a component of few rows has no reliable std of its own.
    smoothed = np.sqrt((masses * variances + model.unit**2) / (masses + 1.0))
    # One more row for every class, where the reconstruction has it: classes may not have come yet.
    awaited = np.full(len(labels), model.n_classes / len(labels))
    everything = np.concatenate([seen.masses, awaited])
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
