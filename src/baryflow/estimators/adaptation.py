"""From what is known of the sources and what was seen of a target to predictions for the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import softmax

from baryflow.core.dictionary import PROXIMAL, Dictionary, Domain
from baryflow.core.mixture import Mixture
from baryflow.core.points import Points
from baryflow.estimators.linear import reweight
from baryflow.estimators.mix import VOTE_FLOOR, Mix, assume_mix, find_mix
from baryflow.estimators.source_model import SourceModel
from baryflow.estimators.target import Seen
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


@dataclass(frozen=True)
class Steps:
    """How far the dictionary is moved towards a target."""

    number: int = ONLINE_STEPS
    freeze_sources: bool = True
    loss_weight: float = 1.0  # of the target
    proximal: float = PROXIMAL


@dataclass(frozen=True, eq=False)
class Bent:
    """The dictionary as a target has bent it, from where the next steps can go on."""

    dictionary: Dictionary
    sources: list[Domain]
    target: Domain
    unmoved: Floats  # the reconstruction before the last steps


@dataclass(frozen=True, eq=False)
class Adaptation:
    """The source model as one target bends it.

    Attributes
    ----------
    mass : float
        Rows of the target that were seen.
    mix : Mix
        The classes of the target, and its moments.
    bent : Bent
    losses : array of shape (n_steps, n_domains)
    reconstruction, labelled : Mixture
        The target rebuilt from the atoms, and its own components with the labels that the plan gives
        them; both in the coordinates of the view.
    known : Points
        The reconstruction before this adaptation moved its atoms towards the target: afterwards it has
        met what is new half-way.
    typical : float
        Median of how remote what was seen of the target is from what is known.
    """

    model: SourceModel
    mass: float
    mix: Mix
    bent: Bent
    losses: Floats
    reconstruction: Mixture
    labelled: Mixture
    known: Points
    typical: float

    @property
    def ratios(self) -> Floats:
        """How many times as frequent as in the training rows the classes are expected to be."""
        return self.model.ratios(self.mix.expected)

    @property
    def classes_seen(self) -> Floats:
        """How far each class was seen: 1 after ten rows."""
        return np.minimum(self.mass * self.mix.shares / _ENOUGH, 1.0)

    @property
    def seen(self) -> float:
        """Share of the classes that were seen."""
        return float(self.classes_seen.mean())

    def experts(self, X: Floats, pooled: Floats) -> list[Floats]:
        """Return the class probabilities of complete rows by each of the EXPERTS.

        `pooled` are those of the pooled classifier, as it was trained.
        """
        model, mix = self.model, self.mix
        Z = model.project(X, mix.centre, mix.scale)
        own = model.own_proba(X, mix.centre, mix.scale)
        source = reweight(pooled, self.ratios)
        return [
            self._admit(self.reconstruction.predict_proba(Z), source),
            self._admit(self.labelled.predict_proba(Z), source),
            source,
            reweight(own, self.ratios),
        ]

    def mixtures_proba(self, X: Floats) -> list[Floats]:
        """Return the class probabilities of the first two experts, the mixtures, as they are."""
        Z = self.model.project(X, self.mix.centre, self.mix.scale)
        return [self.reconstruction.predict_proba(Z), self.labelled.predict_proba(Z)]

    def _admit(self, table: Floats, source: Floats) -> Floats:
        """Return what the target tells of the classes seen, and the source classifier of the others."""
        known = self.classes_seen
        told = known * table
        totals = told.sum(axis=1, keepdims=True)
        mass = (source @ known)[:, None]
        even = np.where(totals > 0.0, told / np.where(totals > 0.0, totals, 1.0), known / known.sum())
        return np.asarray(mass * even + (1.0 - known) * source)

    def remoteness(self, X: Floats) -> Floats:
        """Return how far rows are from what is known, in units of what is typical of the target.

        The squared distance to the nearest component in its own stds, mean over the dimensions.
        """
        Z = self.model.project(X, self.mix.centre, self.mix.scale)
        return measure_remoteness(Z, self.known.means, floor_stds(self.model, self.known)) / self.typical


def adapt(
    model: SourceModel,
    seen: Seen,
    options: Options,
    weights: Sequence[float] = EVEN,
    *,
    steps: Steps = Steps(),  # noqa: B008 - frozen
    start: Bent | None = None,
    shares: Floats | None = None,
) -> Adaptation:
    """Bend what the sources taught towards a target.

    Parameters
    ----------
    model : SourceModel
    seen : Seen
        What is known of the target.
    options : Options
    weights : sequence of 4 floats
        Of the experts: how the two classifiers among them share the votes about the mix.
    steps : Steps
    start : Bent, optional
        Go on from there; without it from the source-only dictionary.
    shares : array of shape (n_classes,), optional
        The target's class proportions, if they are known.

    Returns
    -------
    Adaptation
    """
    votes = seen.votes
    if shares is not None or votes is None or not options.proportions:
        mix = assume_mix(model, seen, shares)
    else:
        judges = weights[2] + weights[3]
        mix = find_mix(model, seen, votes, weights[3] / judges if judges > 0.0 else 0.5)
    variances = model.variances(seen.variances_in, seen.stds, mix.scale)
    points = model.points(seen.means, variances, mix.centre, mix.scale)
    target = model.target(seen.masses / seen.masses.sum(), points, model.slot_weights(mix.shares))
    target.loss_weight = steps.loss_weight
    if votes is not None and options.votes:
        ratios = model.ratios(mix.expected)
        own_votes = reweight(model.own_proba(seen.means, mix.centre, mix.scale), ratios)
        both = log_average([reweight(votes, ratios), own_votes], [0.5, 0.5])
        target.extra_costs = -2.0 * np.log(both[:, model.slot_classes] + VOTE_FLOOR)
    bent, losses = _bend(model, target, steps, start)
    slots = Points(bent.dictionary.reconstruction(target), model.n_dimensions)
    reconstruction = _rebuild(model, mix, slots, seen)
    known = Points(bent.unmoved, model.n_dimensions)
    return Adaptation(
        model=model,
        mass=seen.mass,
        mix=mix,
        bent=bent,
        losses=losses,
        reconstruction=reconstruction,
        labelled=_label(model, seen, points, variances, target, reconstruction),
        known=known,
        typical=_typical_remoteness(model, known, seen.masses, points, variances),
    )


def _bend(model: SourceModel, target: Domain, steps: Steps, start: Bent | None) -> tuple[Bent, Floats]:
    """Take block steps from the source-only dictionary, or from where others have stopped."""
    if start is None:
        dictionary = model.dictionary.copy(proximal=steps.proximal)
        sources = [domain.copy() for domain in model.domains]
        dictionary.settle(target, _MATCHING_STEPS)
    else:
        dictionary = start.dictionary.copy(proximal=steps.proximal)
        sources = [domain.copy() for domain in start.sources]
        target.coordinates, target.match = start.target.coordinates, start.target.match
    unmoved = dictionary.reconstruction(target)
    moving = [target] if steps.freeze_sources else [*sources, target]
    frozen = sources if steps.freeze_sources else []
    losses = np.array([dictionary.step(moving, frozen) for _ in range(steps.number)])
    if steps.number or start is None:
        dictionary.transport(target)
    else:  # nothing has moved since
        target.plan, target.goal, unmoved = start.target.plan, start.target.goal, start.unmoved
        target.loss = start.target.loss
    return Bent(dictionary, sources, target, unmoved), losses


def _rebuild(model: SourceModel, mix: Mix, slots: Points, seen: Seen) -> Mixture:
    """Return the reconstruction of a target as the labelled mixture that it is."""
    expected = model.slot_weights(mix.expected)
    return Mixture(
        expected / expected.sum(),
        slots.means,
        floor_stds(model, slots),
        _normalise(slots.labels),
        float(seen.masses.sum()),
    )


def _label(
    model: SourceModel,
    seen: Seen,
    points: Floats,
    variances: Floats,
    target: Domain,
    rebuilt: Mixture,
) -> Mixture:
    """Return the target's own components with the labels that the plan gives them."""
    masses, labels = seen.masses[:, None], np.asarray(rebuilt.labels)
    means = points[:, : model.n_dimensions]
    # One more row of the usual spread: a component of few rows knows little of its own.
    smoothed = np.sqrt((masses * variances + model.unit**2) / (masses + 1.0))
    # And one row for every class, where the reconstruction has it: some may not have come yet.
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
    """Return rows as distributions: what is negative is nothing, and nothing at all is uniform."""
    rows = np.maximum(rows, 0.0)
    totals = rows.sum(axis=1, keepdims=True)
    uniform = np.full_like(rows, 1.0 / rows.shape[1])
    return np.where(totals > 0.0, rows / np.where(totals > 0.0, totals, 1.0), uniform)


def floor_stds(model: SourceModel, points: Points) -> Floats:
    """Return the stds of points that predict."""
    return np.maximum(points.stds, _PREDICTOR_FLOOR * model.unit)


def _typical_remoteness(
    model: SourceModel, known: Points, masses: Floats, points: Floats, variances: Floats
) -> float:
    """Return the median of the expected remoteness of the rows of each component."""
    means, there = points[:, : model.n_dimensions], known.means
    precision = 1.0 / np.square(floor_stds(model, known))
    expected = (np.square(means) + variances) @ precision.T
    expected += np.vecdot(np.square(there), precision) - 2.0 * means @ (there * precision).T
    nearest = np.maximum(expected.min(axis=1), 0.0) / means.shape[1]
    order = np.argsort(nearest)
    reached = np.cumsum(masses[order]) >= 0.5 * masses.sum()
    return max(float(nearest[order][reached.argmax()]), 1e-12)


def measure_remoteness(Z: Floats, means: Floats, stds: Floats) -> Floats:
    """Return the smallest mean squared standardised distance of each row to a component."""
    nearest = np.full(len(Z), np.inf)
    for mean, std in zip(means, stds, strict=True):
        np.minimum(nearest, np.square((Z - mean) / std).mean(axis=1), out=nearest)
    return nearest


def log_average(tables: Sequence[Floats], shares: Sequence[float]) -> Floats:
    """Return the normalised geometric mean of probability tables."""
    total = sum(
        share * np.log(table + PROBABILITY_FLOOR)
        for table, share in zip(tables, shares, strict=True)
        if share > 0.0
    )
    return np.asarray(softmax(total, axis=1))
