"""From what is known of the sources and what was seen of a target to predictions for the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import softmax

from baryflow.core.dictionary import PROXIMAL, Dictionary, Domain
from baryflow.core.mixture import Mixture
from baryflow.core.paper_summary import PaperSummary
from baryflow.core.summary import StreamSummary
from baryflow.estimators.mix import VOTE_FLOOR, Mix, find_mix, known_mix
from baryflow.estimators.sources import SourceModel, reweighted
from baryflow.validation import Floats

Predictor = Literal["source", "map", "plan", "combined"]
PREDICTORS: tuple[Predictor, ...] = ("source", "map", "plan", "combined")
#: The experts that are averaged: the reconstruction, the target's own components labelled through the
#: plan, the pooled source classifier, and the one that standardises each domain by itself.
EXPERTS = ("reconstruction", "components", "pooled", "own")
EVEN = (0.25, 0.25, 0.25, 0.25)
#: What a fixed predictor means: the weights of the experts.
WEIGHTS: dict[str, tuple[float, ...]] = {
    "source": EVEN,
    "map": (1.0, 0.0, 0.0, 0.0),
    "plan": (0.0, 1.0, 0.0, 0.0),
    "combined": EVEN,
}

#: Block steps after each batch of a stream, and offline.
ONLINE_STEPS, OFFLINE_STEPS = 3, 8
#: Added to probabilities before logarithms are averaged: no expert can veto alone.
PROBABILITY_FLOOR = 1e-3
#: Smallest std of a predicting component, in units of the usual spread within a class.
_PREDICTOR_FLOOR = 0.1
_MATCHING_STEPS = 3
#: So many rows of a class are enough to know it.
_ENOUGH = 10.0


@dataclass(frozen=True)
class Options:
    """Which pieces take part; each can be switched off by itself."""

    proportions: bool = True  # estimate the target's class proportions
    votes: bool = True  # let the source classifiers' votes enter the plan's costs


def log_average(tables: Sequence[Floats], shares: Sequence[float]) -> Floats:
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
    mix : Mix
        The classes of the target, and its moments.
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
        summary: StreamSummary | PaperSummary,
        options: Options,
        weights: Sequence[float] = EVEN,
        *,
        n_steps: int,
        freeze_sources: bool = True,
        trust: float = 1.0,
        proximal: float = PROXIMAL,
        previous: Adapted | None = None,
        shares: Floats | None = None,
    ) -> None:
        self.model, self.weights, self.mass = model, tuple(weights), summary.mass
        if isinstance(summary, StreamSummary):
            seen = summary.components()
            masses, raw, spreads, stds = seen.masses, seen.means, seen.spreads, seen.stds
            votes: Floats | None = seen.votes
        else:  # the paper's mixture
            mixture = summary.mixture()
            masses, raw = mixture.weights * mixture.mass, mixture.means
            spreads, stds, votes = None, mixture.stds, None
        mean, variance = summary.moments()
        mass = float(masses.sum())
        if shares is not None or votes is None or not options.proportions:
            self.mix: Mix = known_mix(model, (mean, variance), mass, shares)
        else:
            judges = self.weights[2] + self.weights[3]
            own = self.weights[3] / judges if judges > 0.0 else 0.5
            self.mix = find_mix(model, masses, raw, spreads, stds, votes, (mean, variance), own)
        centre, scale = self.mix.centre, self.mix.scale
        variances = model.variances(spreads, stds, scale)
        points = model.points(raw, variances, centre, scale)
        extra = None
        if votes is not None and options.votes:
            own_votes = reweighted(model.own_proba(raw, centre, scale), self._ratios)
            both = log_average([reweighted(votes, self._ratios), own_votes], [0.5, 0.5])
            extra = -2.0 * np.log(both[:, model.slot_classes] + VOTE_FLOOR)
        self._adapt(masses / mass, points, extra, n_steps, freeze_sources, trust, proximal, previous)
        self._describe(masses, points, variances)

    @property
    def _ratios(self) -> Floats:
        """How many times as frequent as in the sources the classes are expected to be."""
        return np.asarray(self.mix.expected / np.maximum(self.model.prior.mean, 1e-12))

    @property
    def classes_seen(self) -> Floats:
        """How far each class was seen: 1 after ten rows."""
        return np.minimum(self.mass * self.mix.shares / _ENOUGH, 1.0)

    @property
    def seen(self) -> float:
        """Share of the classes that were seen."""
        return float(self.classes_seen.mean())

    # -- dictionary steps ------------------------------------------------------------------------

    def _adapt(
        self,
        weights: Floats,
        points: Floats,
        extra_costs: Floats | None,
        n_steps: int,
        freeze_sources: bool,
        trust: float,
        proximal: float,
        previous: Adapted | None,
    ) -> None:
        """Take block steps from the source-only dictionary, or from where `previous` stopped."""
        model = self.model
        target = model.target(weights, points, self._slot_weights(self.mix.shares))
        target.trust, target.extra_costs = trust, extra_costs
        if previous is None:
            dictionary = model.dictionary.copy(proximal=proximal)
            sources = [domain.copy() for domain in model.domains]
            for _ in range(_MATCHING_STEPS):
                dictionary.transport(target)
                dictionary.move_coordinates(target)
        else:
            dictionary = previous.dictionary.copy(proximal=proximal)
            sources = [domain.copy() for domain in previous.sources]
            target.coordinates, target.match = previous.target.coordinates, previous.target.match
        self.unmoved: Floats = dictionary.reconstruction(target)
        moving = [target] if freeze_sources else [*sources, target]
        frozen = sources if freeze_sources else []
        losses: list[Floats] = [dictionary.step(moving, frozen) for _ in range(n_steps)]
        if n_steps or previous is None:
            dictionary.transport(target)
        else:  # nothing has moved since
            target.plan, target.goal = previous.target.plan, previous.target.goal
            self.unmoved = previous.unmoved
        self.dictionary, self.target, self.sources = dictionary, target, sources
        self.losses = np.array(losses)

    def _slot_weights(self, shares: Floats) -> Floats:
        slot_classes = self.model.slot_classes
        return np.asarray(shares[slot_classes] * (self.model.n_classes / len(slot_classes)))

    def _describe(self, masses: Floats, points: Floats, variances: Floats) -> None:
        """Make the two labelled mixtures that predict."""
        model, p = self.model, self.model.n_dimensions
        floor = _PREDICTOR_FLOOR * model.unit
        slots = self.dictionary.reconstruction(self.target)
        slot_labels = self._labels(slots[:, 2 * p :])
        slot_stds = np.maximum(slots[:, p : 2 * p], floor)
        mass = float(masses.sum())
        expected = self._slot_weights(self.mix.expected)
        self.reconstruction = Mixture(
            expected / expected.sum(), slots[:, :p], slot_stds, slot_labels, mass
        )
        # One more row of the usual spread: a component of few rows knows little of its own.
        smoothed = (masses[:, None] * variances + model.unit**2) / (masses[:, None] + 1.0)
        # And one row for every class, where the reconstruction has it: some may not have come yet.
        awaited = np.full(len(slots), model.n_classes / len(slots))
        everything = np.concatenate([masses, awaited])
        self.labelled = Mixture(
            everything / everything.sum(),
            np.concatenate([points[:, :p], slots[:, :p]]),
            np.concatenate([np.maximum(np.sqrt(smoothed), floor), np.maximum(slot_stds, model.unit)]),
            np.concatenate([self._labels(self.target.plan @ slot_labels), slot_labels]),
            mass,
        )
        known, even = self.unmoved, np.full(len(slots), 1.0 / len(slots))
        self._known = Mixture(even, known[:, :p], np.maximum(known[:, p : 2 * p], floor))
        self._typical = self._usual_remoteness(masses, points[:, :p], variances)

    def _labels(self, rows: Floats) -> Floats:
        rows = np.maximum(rows, 0.0)
        totals = rows.sum(axis=1, keepdims=True)
        uniform = np.full_like(rows, 1.0 / rows.shape[1])
        return np.where(totals > 0.0, rows / np.where(totals > 0.0, totals, 1.0), uniform)

    # -- warm starts -----------------------------------------------------------------------------

    def carried(self) -> dict[str, Any]:
        """Return the arrays from which the next update starts when it does not restart."""
        arrays: dict[str, Any] = {"atoms": self.dictionary.atoms, "unmoved": self.unmoved}
        for number, domain in enumerate([*self.sources, self.target]):
            for name in ("coordinates", "match", "plan", "goal"):
                arrays[f"{name}{number}"] = getattr(domain, name)
        return arrays

    @classmethod
    def from_carried(cls, model: SourceModel, arrays: dict[str, Any]) -> Adapted:
        """Return just enough of an adaptation to start the next one from."""
        last = cls.__new__(cls)
        last.dictionary = model.dictionary.copy()
        last.dictionary.atoms, last.unmoved = arrays["atoms"], arrays["unmoved"]
        last.sources = [domain.copy() for domain in model.domains]
        last.target = model.domains[0].copy()
        for number, domain in enumerate([*last.sources, last.target]):
            for name in ("coordinates", "match", "plan", "goal"):
                setattr(domain, name, arrays[f"{name}{number}"])
        return last

    # -- predictions -----------------------------------------------------------------------------

    def experts(self, X: Floats, pooled: Floats) -> list[Floats]:
        """Return the class probabilities of complete rows by each of the EXPERTS.

        `pooled` are those of the pooled classifier, as it was trained.
        """
        model, mix = self.model, self.mix
        Z = model.project(X, mix.centre, mix.scale)
        own = model.own_proba(X, mix.centre, mix.scale)
        source = reweighted(pooled, self._ratios)
        return [
            self._honest(self.reconstruction.predict_proba(Z), source),
            self._honest(self.labelled.predict_proba(Z), source),
            source,
            reweighted(own, self._ratios),
        ]

    def alone(self, expert: int, X: Floats) -> Floats:
        """Return the class probabilities of one of the first two experts, the mixtures, as it is."""
        Z = self.model.project(X, self.mix.centre, self.mix.scale)
        return (self.reconstruction, self.labelled)[expert].predict_proba(Z)

    def _honest(self, table: Floats, source: Floats) -> Floats:
        """Return what the target tells of the classes seen, and the source classifier of the others."""
        known = self.classes_seen
        told = known * table
        totals = told.sum(axis=1, keepdims=True)
        mass = (source @ known)[:, None]
        even = np.where(totals > 0.0, told / np.where(totals > 0.0, totals, 1.0), known / known.sum())
        return np.asarray(mass * even + (1.0 - known) * source)

    def remoteness(self, X: Floats) -> Floats:
        """Return how far rows are from what is known, in units of what is typical of the target.

        The squared distance to the nearest component in its own stds, mean over the dimensions, divided
        by the median of the same over what was seen of the target. Known is the reconstruction before
        this update moves its atoms towards the target: afterwards it has met what is new half-way.
        """
        Z = self.model.project(X, self.mix.centre, self.mix.scale)
        return remoteness(Z, self._known) / self._typical

    def _usual_remoteness(self, masses: Floats, means: Floats, variances: Floats) -> float:
        """Return the median of the expected remoteness of the rows of each component."""
        rebuilt = self._known
        precision = 1.0 / np.square(rebuilt.stds)
        expected = (np.square(means) + variances) @ precision.T
        expected += (
            np.vecdot(np.square(rebuilt.means), precision) - 2.0 * means @ (rebuilt.means * precision).T
        )
        nearest = np.maximum(expected.min(axis=1), 0.0) / means.shape[1]
        order = np.argsort(nearest)
        reached = np.cumsum(masses[order]) >= 0.5 * masses.sum()
        return max(float(nearest[order][reached.argmax()]), 1e-12)


def remoteness(Z: Floats, mixture: Mixture) -> Floats:
    """Return the smallest mean squared standardised distance of each row to a component."""
    nearest = np.full(len(Z), np.inf)
    for mean, std, weight in zip(mixture.means, mixture.stds, mixture.weights, strict=True):
        if weight > 0.0:
            np.minimum(nearest, np.square((Z - mean) / std).mean(axis=1), out=nearest)
    return nearest
