"""From what is known of the sources and what was seen of a target to predictions for the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import logsumexp, softmax

from baryflow.core.dictionary import Dictionary, Domain
from baryflow.core.gaussian import fast_squared_distances
from baryflow.core.mixture import Mixture
from baryflow.core.summary import StreamSummary
from baryflow.estimators.sources import SourceModel
from baryflow.validation import Floats

Voter = Literal["pooled", "own", "both", "none"]
Predictor = Literal["source", "map", "plan", "combined"]
VOTERS: tuple[Voter, ...] = ("pooled", "own", "both")
PREDICTORS: tuple[Predictor, ...] = ("source", "map", "plan", "combined")

#: Added to probabilities before logarithms are averaged: no predictor can veto alone.
PROBABILITY_FLOOR = 1e-3
#: Added to votes before they enter the plan's costs and the proportions.
_VOTE_FLOOR = 1e-2
#: Smallest std of a predicting component, and of a target component in the loss, in units of the
#: usual spread within a class.
_PREDICTOR_FLOOR = 0.1
_COMPONENT_FLOOR = 0.05
#: The proportions stay the sources' if the prior weighs this many times more than the rows seen.
_CERTAIN = 100.0
_PROPORTION_STEPS = 20
_MATCHING_STEPS = 3


@dataclass(frozen=True)
class Options:
    """Which pieces take part; each can be switched off by itself."""

    predictor: Predictor = "combined"
    voter: Voter = "both"
    proportions: bool = True  # estimate the target's class proportions
    votes: bool = True  # let the source classifier's votes enter the plan's costs


def log_average(tables: list[Floats], shares: list[float]) -> Floats:
    """Return the normalised geometric mean of probability tables."""
    total = sum(
        share * np.log(table + PROBABILITY_FLOOR)
        for table, share in zip(tables, shares, strict=True)
        if share > 0.0
    )
    return np.asarray(softmax(total, axis=1))


class Adapted:
    """The source model as one target summary bends it.

    Attributes
    ----------
    centre, scale : arrays of shape (d,)
        The target's moments, drawn towards the sources' while few rows were seen.
    proportions : array of shape (n_classes,)
    dictionary, target, sources : Dictionary, Domain, list of Domain
    losses : array of shape (n_steps, n_domains)
    reconstruction, labelled : Mixture
        The target rebuilt from the atoms, and its own components with the labels that the plan gives
        them; both in the coordinates of the view.
    """

    dictionary: Dictionary
    target: Domain
    sources: list[Domain]

    def __init__(
        self,
        model: SourceModel,
        summary: StreamSummary,
        options: Options,
        *,
        n_steps: int,
        freeze_sources: bool = True,
        trust: float = 1.0,
        previous: Adapted | None = None,
    ) -> None:
        self.model, self.options = model, options
        self.centre, self.scale = target_moments(model, summary)
        masses, means, variances, votes = self._seen(summary)
        mass = float(masses.sum())
        weights = masses / mass
        stds = np.sqrt(np.maximum(variances, (_COMPONENT_FLOOR * model.unit) ** 2))
        points = np.hstack([means, stds, np.zeros((len(weights), model.n_classes))])
        self.proportions = model.prior.mean.copy()
        if options.proportions and votes is not None:
            self.proportions = self._estimate_proportions(weights, points, votes, mass)
        self._adapt(weights, points, votes, n_steps, freeze_sources, trust, previous)
        self._describe(weights, means, variances, masses)

    # -- the target in the coordinates of the mixtures -------------------------------------------

    def _seen(self, summary: StreamSummary) -> tuple[Floats, Floats, Floats, Floats | None]:
        """Return masses, means and variances of the target's components, and the votes for them."""
        model = self.model
        if not summary.settings.n_votes:  # the paper's mixture
            mixture = summary.mixture()
            means = model.project(mixture.means, self.centre, self.scale)
            return mixture.weights * mixture.mass, means, mixture.stds**2, None
        seen = summary.components()
        own = model.own_proba(seen.means, self.centre, self.scale)
        votes = self.source_proba(seen.votes, own)
        means = model.project(seen.means, self.centre, self.scale)
        if model.directions is None or seen.covariances is None:
            return seen.masses, means, seen.stds**2, votes
        projection = model.directions / self.scale[:, None]
        variances = np.einsum("kjp,jp->kp", seen.covariances @ projection, projection)
        return seen.masses, means, np.maximum(variances, 0.0), votes

    def source_proba(self, pooled: Floats, own: Floats) -> Floats:
        """Combine the two source classifiers as the options say."""
        if self.options.voter == "pooled":
            return pooled
        return own if self.options.voter == "own" else log_average([pooled, own], [0.5, 0.5])

    def _estimate_proportions(
        self, weights: Floats, points: Floats, votes: Floats, mass: float
    ) -> Floats:
        """Return the most probable class proportions, by EM under the sources' Dirichlet prior.

        A component's evidence for a class is its nearness to that class's slots in the source-only
        reconstruction, and the source classifier's vote.
        """
        model, prior = self.model, self.model.prior
        if prior.strength > _CERTAIN * mass:
            return prior.mean.copy()
        dictionary = model.dictionary
        proportions = prior.posterior_mean(weights @ votes, mass)
        target = self._target(weights, points, proportions)
        n_slots = len(model.slot_classes) // model.n_classes
        used = slice(2 * model.n_dimensions)
        unit = np.concatenate([model.unit, model.unit])
        evidence = np.log(votes + _VOTE_FLOOR)
        for step in range(_PROPORTION_STEPS):
            if step < _MATCHING_STEPS:
                target.slot_weights = proportions[model.slot_classes] / n_slots
                dictionary.transport(target)
                dictionary.move_coordinates(target)
                slots = dictionary.reconstruction(target)[:, used]
                near = -0.5 * fast_squared_distances(points[:, used] / unit, slots / unit)
                near = logsumexp(near.reshape(len(weights), model.n_classes, n_slots), axis=2)
                evidence = near + np.log(votes + _VOTE_FLOOR)
            shares = weights @ softmax(evidence + np.log(proportions + 1e-300), axis=1)
            proportions = prior.posterior_mean(shares, mass)
        return proportions

    def _target(self, weights: Floats, points: Floats, proportions: Floats) -> Domain:
        model = self.model
        n_atoms = model.dictionary.n_atoms
        n_slots = len(model.slot_classes) // model.n_classes
        return Domain(
            weights=weights,
            points=points,
            slot_weights=proportions[model.slot_classes] / n_slots,
            coordinates=np.full(n_atoms, 1.0 / n_atoms),
            n_used=2 * model.n_dimensions,
        )

    # -- dictionary steps ------------------------------------------------------------------------

    def _adapt(
        self,
        weights: Floats,
        points: Floats,
        votes: Floats | None,
        n_steps: int,
        freeze_sources: bool,
        trust: float,
        previous: Adapted | None,
    ) -> None:
        """Take block steps from the source-only dictionary, or from where `previous` stopped."""
        model = self.model
        target = self._target(weights, points, self.proportions)
        target.trust = trust
        if votes is not None and self.options.votes:
            target.extra_costs = -2.0 * np.log(votes[:, model.slot_classes] + _VOTE_FLOOR)
        if previous is None:
            dictionary = model.dictionary.copy()
            sources = [domain.copy() for domain in model.domains]
            for _ in range(_MATCHING_STEPS):
                dictionary.transport(target)
                dictionary.move_coordinates(target)
        else:
            dictionary = previous.dictionary.copy()
            sources = [domain.copy() for domain in previous.sources]
            target.coordinates, target.match = previous.target.coordinates, previous.target.match
        moving = [target] if freeze_sources else [*sources, target]
        frozen = sources if freeze_sources else []
        losses: list[Floats] = [dictionary.step(moving, frozen) for _ in range(n_steps)]
        if n_steps or previous is None:
            dictionary.transport(target)
        else:  # nothing has moved since
            target.plan, target.goal = previous.target.plan, previous.target.goal
        self.dictionary, self.target, self.sources = dictionary, target, sources
        self.losses = np.array(losses)

    def _describe(self, weights: Floats, means: Floats, variances: Floats, masses: Floats) -> None:
        """Make the two labelled mixtures that predict."""
        model, p = self.model, self.model.n_dimensions
        floor = _PREDICTOR_FLOOR * model.unit
        slots = self.dictionary.reconstruction(self.target)
        slot_labels = self._labels(slots[:, 2 * p :])
        self.reconstruction = Mixture(
            self.target.slot_weights / self.target.slot_weights.sum(),
            slots[:, :p],
            np.maximum(slots[:, p : 2 * p], floor),
            slot_labels,
            float(masses.sum()),
        )
        # One more row of the usual spread: a component of few rows knows little of its own.
        smoothed = (masses[:, None] * variances + model.unit**2) / (masses[:, None] + 1.0)
        self.labelled = Mixture(
            weights,
            means,
            np.maximum(np.sqrt(smoothed), floor),
            self._labels(self.target.plan @ slot_labels),
            float(masses.sum()),
        )

    def _labels(self, rows: Floats) -> Floats:
        rows = np.maximum(rows, 0.0)
        totals = rows.sum(axis=1, keepdims=True)
        uniform = np.full_like(rows, 1.0 / rows.shape[1])
        return np.where(totals > 0.0, rows / np.where(totals > 0.0, totals, 1.0), uniform)

    # -- warm starts -----------------------------------------------------------------------------

    def carried(self) -> dict[str, Any]:
        """Return the arrays from which the next update starts when it does not restart."""
        arrays: dict[str, Any] = {"atoms": self.dictionary.atoms}
        for number, domain in enumerate([*self.sources, self.target]):
            for name in ("coordinates", "match", "plan", "goal"):
                arrays[f"{name}{number}"] = getattr(domain, name)
        return arrays

    @classmethod
    def from_carried(cls, model: SourceModel, arrays: dict[str, Any]) -> Adapted:
        """Return just enough of an adaptation to start the next one from."""
        last = cls.__new__(cls)
        last.dictionary = model.dictionary.copy()
        last.dictionary.atoms = arrays["atoms"]
        last.sources = [domain.copy() for domain in model.domains]
        last.target = model.domains[0].copy()
        for number, domain in enumerate([*last.sources, last.target]):
            for name in ("coordinates", "match", "plan", "goal"):
                setattr(domain, name, arrays[f"{name}{number}"])
        return last

    # -- predictions -----------------------------------------------------------------------------

    def predict_proba(self, X: Floats, pooled: Floats) -> Floats:
        """Return class probabilities of complete rows; `pooled` are those of the pooled classifier."""
        model, options = self.model, self.options
        if options.predictor in ("map", "plan"):
            mixture = self.reconstruction if options.predictor == "map" else self.labelled
            return mixture.predict_proba(model.project(X, self.centre, self.scale))
        source = pooled
        if options.voter != "pooled":
            source = self.source_proba(pooled, model.own_proba(X, self.centre, self.scale))
        if options.predictor == "source":
            return source
        Z = model.project(X, self.centre, self.scale)
        tables = [self.reconstruction.predict_proba(Z), self.labelled.predict_proba(Z), source]
        return log_average(tables, [0.25, 0.25, 0.5])

    def remoteness(self, X: Floats) -> Floats:
        """Return the squared distance of rows to the nearest component, in its own stds, per column."""
        Z = self.model.project(X, self.centre, self.scale)
        return remoteness(Z, self.reconstruction)


def remoteness(Z: Floats, mixture: Mixture) -> Floats:
    """Return the smallest mean squared standardised distance of each row to a component."""
    nearest = np.full(len(Z), np.inf)
    for mean, std, weight in zip(mixture.means, mixture.stds, mixture.weights, strict=True):
        if weight > 0.0:
            np.minimum(nearest, np.square((Z - mean) / std).mean(axis=1), out=nearest)
    return nearest


def target_moments(model: SourceModel, summary: StreamSummary) -> tuple[Floats, Floats]:
    """Return centre and scale of the target's columns.

    The first rows of a stream say little about either: the sources' moments fade out with
    exp(−rows / (2 · n_classes)). A column that does not vary keeps the sources' scale.
    """
    mean, variance = summary.moments()
    fade = np.exp(-summary.mass / (2.0 * model.n_classes))
    centre = (1.0 - fade) * mean + fade * model.centre
    scale = np.sqrt((1.0 - fade) * variance + fade * model.scale**2)
    return centre, np.where(scale > 1e-6 * model.scale, scale, model.scale)


def coverage_gap(model: SourceModel, summary: StreamSummary) -> float:
    """Return how incomplete the target looks: 0 when its classes come as in the sources, up to 1.

    The total variation between the mean vote of the source classifier on all rows seen and the
    sources' class proportions.
    """
    seen = summary.components()
    mean_vote = seen.masses @ seen.votes / seen.masses.sum()
    return 0.5 * float(np.abs(mean_vote - model.prior.mean).sum())
