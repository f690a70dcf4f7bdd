"""The method: from what was seen of a target to a classifier for it.

:func:`adapt` is the algorithm. It proposes explanations of the target, weighs them by evidence, labels
and a baseline, and fits the dictionary under those that are left. Predictions are averaged over
explanations, the experts combined within each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax, logsumexp

from baryflow.core.dictionary import Dictionary
from baryflow.core.mixture import Mixture
from baryflow.estimators._committee import combine
from baryflow.estimators._dictionary import FittedDictionary, fit_dictionary, floor_stds
from baryflow.estimators._experts import expert_logs, unadapted_logits
from baryflow.estimators._explanations import (
    EXPECTED,
    LABEL_FLOOR,
    NOT_ADAPTING,
    OFTEN_CHOSEN,
    Baseline,
    Candidate,
    Explanation,
    TargetSummary,
    measure_evidence,
    propose,
    weigh,
)
from baryflow.estimators._novelty import nearest_distance
from baryflow.estimators._reliability import measure_agreement
from baryflow.estimators._resemblance import compare_sources
from baryflow.estimators._sources import SourceKnowledge
from baryflow.validation import Booleans, Floats, Integers

#: This many rows of a class are enough to know it.
_ENOUGH = 10.0
#: Explanations less likely than this are dropped, and at most as many are kept.
_UNLIKELY, _MOST = 0.01, 6


class Labelled(NamedTuple):
    """Complete rows of a target whose classes are known, all of them classes of the sources."""

    rows: Floats
    codes: Integers
    random: Booleans  # chosen at random, whatever was predicted of them


@dataclass(frozen=True, eq=False)
class Adaptation:
    """What the sources taught, adapted to one target."""

    mass: float  # rows seen
    explanations: tuple[Explanation, ...]  # the likeliest first
    atoms: Floats  # of the likeliest that adapts, after their step towards the target
    coordinates: Floats
    losses: Floats  # of the target, before and after that step
    known_means: Floats  # its reconstruction before that step
    known_stds: Floats
    resemblance: Floats  # share of each source in the target
    typical: float  # median distance of what was seen from the reconstruction
    ambiguity: float  # share of rows whose class depends on which explanation is right
    #: How often each two experts agree about the target's components.
    agreements: Floats = field(default_factory=lambda: np.ones((1, 1)))

    @property
    def believed(self) -> Explanation:
        """The likeliest explanation that adapts."""
        return next(one for one in self.explanations if one.reconstruction is not None)

    @property
    def proportions(self) -> Floats:
        """Class proportions of the rows seen, averaged over explanations."""
        return np.asarray(sum(one.weight * one.proportions for one in self.explanations))

    @property
    def coverage(self) -> float:
        """Share of the classes that were seen: 1 after ten rows of each; averaged over explanations."""
        seen = [
            np.minimum(self.mass * one.proportions / _ENOUGH, 1.0).mean() for one in self.explanations
        ]
        return min(float(np.dot([one.weight for one in self.explanations], seen)), 1.0)

    @property
    def reconstruction(self) -> Mixture:
        """The target rebuilt from the atoms, by the likeliest explanation that adapts."""
        return self.believed.reconstruction  # type: ignore[return-value]

    @property
    def labelled(self) -> Mixture:
        """The target's own components with labels, by the same explanation."""
        return self.believed.labelled  # type: ignore[return-value]


def adapt(
    sources: SourceKnowledge,
    seen: TargetSummary,
    *,
    label_shift: bool = True,
    labelled: Labelled | None = None,
    baselines: Sequence[Baseline] = (),
) -> Adaptation:
    """Adapt to what was seen of a target.

    Parameters
    ----------
    sources : SourceKnowledge
    seen : TargetSummary
    label_shift : bool
        Classes may be more or less frequent than expected.
    labelled : Labelled, optional
        Rows with labels.
    baselines : sequence of Baseline
        Rows known to be of one class.
    """
    raw_logs = None if sources.plain is None else sources.plain.raw_logs(seen.means)
    candidates, logs = explain(sources, seen, raw_logs, label_shift, labelled, baselines)
    fitted = [None if one.name == NOT_ADAPTING else _fit(sources, seen, one) for one in candidates]
    explanations = [_explain(*one) for one in zip(candidates, fitted, strict=True)]
    if labelled is not None and len(labelled.codes):
        # The experts know rows better than what the candidates were chosen by.
        said = [explained_logits(sources, one, labelled.rows) for one in explanations]
        logs = logs + label_likelihoods(np.stack(said), logs, labelled)
    kept = _choose(candidates, logs)
    weights = np.exp(log_softmax(logs[kept]))
    ranked = tuple(_with_weight(explanations[i], float(w)) for i, w in zip(kept, weights, strict=True))
    best, candidate = next(
        (one, candidates[i]) for i in kept.tolist() for one in [fitted[i]] if one is not None
    )
    model = sources.model
    known_stds = floor_stds(model, best.known)
    believed = next(one for one in ranked if one.reconstruction is not None)
    found = expert_logs(sources, believed, seen.means, raw_logs).argmax(axis=2)
    shares = seen.masses / seen.masses.sum()
    return Adaptation(
        mass=seen.mass,
        explanations=ranked,
        atoms=best.dictionary.atoms,
        coordinates=best.target.coordinates,
        losses=best.losses,
        known_means=best.known.means.copy(),
        known_stds=known_stds,
        resemblance=compare_sources(best.dictionary, best.target, model.domains),
        typical=_typical_distance(sources, seen, candidate, best.known.means, known_stds),
        ambiguity=_measure_ambiguity(_classify(sources, ranked, seen.means, raw_logs), shares),
        agreements=np.asarray((found[:, None] == found[None]) @ shares),
    )


def _measure_ambiguity(parts: Floats, shares: Floats) -> float:
    """Return how often an explanation, drawn by its weight, predicts another class than all together."""
    weights = np.exp(logsumexp(parts, axis=2))[:, 0]
    other = parts.argmax(axis=2) != logsumexp(parts, axis=0).argmax(axis=1)
    return float(weights @ other @ shares)


def explain(
    sources: SourceKnowledge,
    seen: TargetSummary,
    raw_logs: Floats | None,
    label_shift: bool,
    labelled: Labelled | None,
    baselines: Sequence[Baseline],
) -> tuple[list[Candidate], Floats]:
    """Return the candidates that are likely enough, and the logarithms of their weights.

    `raw_logs` are what the plain classifiers say of the target's components on raw rows. Labels help to
    choose the candidates. Their likelihood is not in the weights: it follows once the experts are asked.
    """
    model, committee = sources.model, sources.committee
    domain_model, prior = model.domain_model, model.expected_prior
    if domain_model is None or sources.plain is None or raw_logs is None:
        return [Candidate(EXPECTED, prior, model.centre, model.scale)], np.zeros(1)
    votes = combine(unadapted_logits(sources, seen.means, raw_logs))
    trained = prior if sources.user_prior else sources.plain.shares
    candidates = propose(domain_model, seen, prior, votes, trained, baselines)
    if not committee.adapts:
        return [candidates[0], candidates[-1]], np.array([-np.inf, 0.0])
    if not label_shift:
        candidates = [one for one in candidates if one.name in (EXPECTED, NOT_ADAPTING)]
    evidence = measure_evidence(
        domain_model, seen, candidates, prior, votes, committee.confusion, baselines
    )
    logs = weigh(evidence, committee.coefficients)
    if labelled is not None and len(labelled.codes):
        # Which candidates labels favour, by the domain model alone, which is quick.
        said = [
            domain_model.log_posteriors(
                domain_model.see(labelled.rows, one.centre, one.scale), one.proportions
            )
            for one in candidates
        ]
        favoured = logs + label_likelihoods(np.stack(said), logs, labelled)
        kept = np.union1d(_choose(candidates, favoured), _choose(candidates, logs))
    else:
        kept = _choose(candidates, logs)
    return [candidates[i] for i in kept], logs[kept]


def _choose(candidates: Sequence[Candidate], logs: Floats) -> Integers:
    """Return the explanations that are likely enough, the likeliest first, and one that adapts."""
    order = np.argsort(-logs, kind="stable")
    kept = [i for i in order.tolist()[:_MOST] if logs[i] >= logs[order[0]] + np.log(_UNLIKELY)]
    if all(candidates[i].name == NOT_ADAPTING for i in kept):
        kept.append(next(i for i in order.tolist() if candidates[i].name != NOT_ADAPTING))
    return np.array(kept, dtype=np.intp)


def _fit(sources: SourceKnowledge, seen: TargetSummary, candidate: Candidate) -> FittedDictionary:
    model, posteriors = sources.model, None
    if model.domain_model is not None:
        V = model.domain_model.see(seen.means, candidate.centre, candidate.scale)
        posteriors = np.exp(model.domain_model.log_posteriors(V, candidate.proportions))
    return fit_dictionary(model, seen, candidate, posteriors)


def _explain(candidate: Candidate, fitted: FittedDictionary | None) -> Explanation:
    mixtures = (None, None) if fitted is None else (fitted.reconstruction, fitted.labelled)
    return Explanation(
        candidate.name, 1.0, candidate.proportions, candidate.centre, candidate.scale, *mixtures
    )


def _with_weight(explanation: Explanation, weight: float) -> Explanation:
    return Explanation(**{**vars(explanation), "weight": weight})


def explain_as(sources: SourceKnowledge, seen: TargetSummary, proportions: Floats) -> Explanation:
    """Return the explanation that a target has these class proportions."""
    calibration = sources.model.moments_at(seen.mean, seen.variance, proportions, seen.mass)
    candidate = Candidate("given", proportions, *calibration)
    return _explain(candidate, _fit(sources, seen, candidate))


def label_likelihoods(logits: Floats, log_weights: Floats, labelled: Labelled) -> Floats:
    """Return the logarithm of how likely labels are under each explanation; none is a veto.

    If every label contradicts what all explanations together predict, rows may have been chosen because
    the prediction was wrong. Then a label says which of the other classes it is, and nothing else.

    Parameters
    ----------
    logits : array of shape (n_explanations, n, n_classes)
        Of the labelled rows.
    log_weights : array of shape (n_explanations,)
        Before any label is known.
    labelled : Labelled
    """
    logs, rows = log_softmax(logits, axis=2), np.arange(len(labelled.codes))
    right = logs[:, rows, labelled.codes]
    drawn = np.maximum(right, LABEL_FLOOR).sum(axis=1)
    shown = logsumexp(log_weights[:, None, None] + logs, axis=0).argmax(axis=1)
    if labelled.random.any() or (shown == labelled.codes).any():
        return np.asarray(drawn)
    other = np.log1p(-np.exp(np.minimum(logs[:, rows, shown], -1e-12)))
    chosen = np.maximum(np.minimum(right - other, 0.0), LABEL_FLOOR).sum(axis=1)
    return np.asarray(np.logaddexp(np.log(1.0 - OFTEN_CHOSEN) + drawn, np.log(OFTEN_CHOSEN) + chosen))


def explained_logits(
    sources: SourceKnowledge, one: Explanation, X: Floats, raw_logs: Floats | None = None
) -> Floats:
    """Return the logits of complete rows under one explanation."""
    if one.reconstruction is None:
        return unadapted_logits(sources, X, raw_logs)
    logs = expert_logs(sources, one, X, raw_logs)
    return np.asarray(np.tensordot(sources.committee.weights, logs, 1))


def classify(sources: SourceKnowledge, adaptation: Adaptation, X: Floats) -> Floats:
    """Return the log-probabilities of complete rows under each explanation, weighed.

    Shape (n_explanations, n, n_classes); the logarithm of their summed exponentials is the prediction,
    up to its calibration.
    """
    raw_logs = None if sources.plain is None else sources.plain.raw_logs(X)
    return _classify(sources, adaptation.explanations, X, raw_logs)


def _classify(
    sources: SourceKnowledge,
    explanations: Sequence[Explanation],
    X: Floats,
    raw_logs: Floats | None,
) -> Floats:
    parts = [
        np.log(max(one.weight, np.finfo(np.float64).tiny))
        + log_softmax(explained_logits(sources, one, X, raw_logs), axis=1)
        for one in explanations
    ]
    return np.stack(parts)


def calibrated(sources: SourceKnowledge, adaptation: Adaptation, parts: Floats) -> Floats:
    """Return the probabilities of rows from what :func:`classify` returned."""
    agreement = measure_agreement(adaptation.agreements, sources.committee.weights)
    return combine(sources.calibration.factor(agreement) * logsumexp(parts, axis=0))


def _typical_distance(
    sources: SourceKnowledge, seen: TargetSummary, candidate: Candidate, there: Floats, stds: Floats
) -> float:
    """Return the median over rows of the expected distance of each component's rows."""
    model = sources.model
    means = model.project(seen.means, candidate.centre, candidate.scale)
    variances = model.variances(seen.variances_in, seen.stds, candidate.scale)
    precision = 1.0 / np.square(stds)
    expected = (np.square(means) + variances) @ precision.T
    expected += np.vecdot(np.square(there), precision) - 2.0 * means @ (there * precision).T
    nearest = np.maximum(expected.min(axis=1), 0.0) / means.shape[1]
    order = np.argsort(nearest)
    reached = np.cumsum(seen.masses[order]) >= 0.5 * seen.masses.sum()
    return max(float(nearest[order][reached.argmax()]), 1e-12)


def standardise(sources: SourceKnowledge, adaptation: Adaptation, X: Floats) -> Floats:
    """Return complete rows in units of the target's calibration, as classifiers per domain see them."""
    one, plain = adaptation.believed, sources.plain
    Z = (X - one.centre) / one.scale
    return Z if plain is None else plain.reduce(Z)


def name_rows(sources: SourceKnowledge, adaptation: Adaptation, X: Floats) -> Integers:
    """Return the most probable class of rows by the reconstruction alone, which is quick."""
    one = adaptation.believed
    Z = sources.model.project(X, one.centre, one.scale)
    return np.asarray(adaptation.reconstruction.predict_proba(Z).argmax(axis=1))


def novelty_distance(
    sources: SourceKnowledge, adaptation: Adaptation, X: Floats, typical: float
) -> Floats:
    """Return the distance of rows from everything known, in units of what is typical.

    The geometric mean of that from the reconstruction, in the view, and that from the classes of the
    sources, in all columns; `typical` is what :func:`typical_in_columns` returned.
    """
    one, model = adaptation.believed, sources.model
    Z = model.project(X, one.centre, one.scale)
    distance = nearest_distance(Z, adaptation.known_means, adaptation.known_stds) / adaptation.typical
    prototypes = model.prototypes
    if prototypes is None or typical <= 0.0:
        return distance
    others = prototypes.distances((X - one.centre) / one.scale)
    return np.asarray(np.sqrt(distance * others / typical))


def typical_in_columns(sources: SourceKnowledge, adaptation: Adaptation, familiar: Floats) -> float:
    """Return the median distance of rows from the classes of the sources, in all columns.

    `familiar` are rows of the target that show what is typical; without any it is 0.
    """
    one, prototypes = adaptation.believed, sources.model.prototypes
    if prototypes is None or not len(familiar):
        return 0.0
    usual = np.median(prototypes.distances((familiar - one.centre) / one.scale))
    return max(float(usual), 1e-12)


def atoms_of(sources: SourceKnowledge, adaptation: Adaptation) -> Dictionary:
    """Return the dictionary after its step towards the target."""
    dictionary = sources.model.dictionary.copy()
    dictionary.atoms = adaptation.atoms
    return dictionary
