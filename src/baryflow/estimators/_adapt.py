"""The method: from what was seen of a target to a classifier for it.

:func:`adapt` is the algorithm. It proposes explanations of the target, weighs them by evidence, labels
and a baseline, and fits the dictionary under those that are left. Predictions are averaged over
explanations, the experts combined within each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from baryflow.core.dictionary import Dictionary, Domain, Points, simplex_least_squares
from baryflow.core.logs import log_softmax, logsumexp
from baryflow.core.mixture import Mixture
from baryflow.core.transport import match_slots
from baryflow.estimators._committee import combine
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
from baryflow.estimators._predict import classify, weigh_logs
from baryflow.estimators._sources import PREDICTOR_FLOOR, SourceKnowledge, SourceModel
from baryflow.estimators._state import Adaptation, TargetState, clean, see_scale, summarise
from baryflow.validation import Booleans, Floats, Integers

#: Explanations less likely than this are dropped, and at most as many are kept.
_UNLIKELY, _MOST = 0.01, 6
#: Steps in which an unmoved dictionary finds plan and coordinates of a target.
_MATCHING_STEPS = 1
#: Added to class probabilities before the logarithm: none is a veto.
_VETO_FLOOR = 1e-2


class Labelled(NamedTuple):
    """Complete rows of a target whose classes are known, all of them classes of the sources."""

    rows: Floats
    codes: Integers
    random: Booleans  # chosen at random, whatever was predicted of them


def adapt(sources: SourceKnowledge, state: TargetState) -> TargetState:
    """Adapt to all that is known of a target: its rows, labels and baselines."""
    seen, labelled = summarise(state), _clean_labelled(sources, state)
    raw_logs = sources.plain.raw_logs(seen.means)
    candidates, logs = explain(sources, seen, raw_logs, state.label_shift, labelled, state.baselines)
    fitted = [None if one.name == NOT_ADAPTING else _fit(sources, seen, one) for one in candidates]
    explanations = [_explain(*one) for one in zip(candidates, fitted, strict=True)]
    if len(labelled.codes):
        # The experts know rows better than what the candidates were chosen by.
        said = classify(sources, explanations, labelled.rows)
        of_seen = classify(sources, explanations, seen.means, raw_logs)
        logs = logs + label_likelihoods(said, logs, labelled, of_seen, seen)
    kept = _choose(candidates, logs)
    weights = np.exp(log_softmax(logs[kept])).tolist()
    ranked = tuple(replace(explanations[i], weight=w) for i, w in zip(kept, weights, strict=True))
    best = next(i for i in kept.tolist() if fitted[i] is not None)
    adaptation = _collect(sources, seen, raw_logs, ranked, fitted[best])
    return replace(
        state,
        adaptation=adaptation,
        rows=see_scale(sources, state.rows, adaptation.believed.scale),
        learned_at=state.mass,
        n_new=0.0,
    )


def _clean_labelled(sources: SourceKnowledge, state: TargetState) -> Labelled:
    """Return the labelled rows of a target that can be read and are of classes of the sources."""
    known = state.labelled.codes < sources.model.n_classes
    rows, lost = clean(sources, state, state.labelled.rows[known])
    codes, random = state.labelled.codes[known], state.labelled.random[known]
    return Labelled(rows[~lost], codes[~lost], random[~lost])


def _collect(
    sources: SourceKnowledge,
    seen: TargetSummary,
    raw_logs: Floats,
    explanations: tuple[Explanation, ...],
    fitted: FittedDictionary,
) -> Adaptation:
    """Return an adaptation: explanations, and what is shown of the best of them that adapts."""
    model, shares = sources.model, seen.masses / seen.masses.sum()
    adapting = [one for one in explanations if one.adapts]
    logs = expert_logs(sources, adapting, seen.means, raw_logs, everyone=False)
    plain = unadapted_logits(sources, seen.means, raw_logs)
    parts = weigh_logs(sources, explanations, logs, plain)
    believed = logs[0].argmax(axis=2)
    return Adaptation(
        mass=seen.mass,
        explanations=explanations,
        atoms=fitted.dictionary.atoms,
        coordinates=fitted.target.coordinates,
        losses=fitted.losses,
        known_means=fitted.known.means.copy(),
        known_stds=model.floor_stds(fitted.known),
        resemblance=compare_sources(fitted.dictionary, fitted.target, model.domains),
        typical=fitted.typical,
        ambiguity=_measure_ambiguity(parts, shares),
        agreements=np.asarray((believed[:, None] == believed[None]) @ shares),
    )


def _measure_ambiguity(parts: Floats, shares: Floats) -> float:
    """Return how often an explanation, drawn by its weight, predicts another class than all together."""
    weights = np.exp(logsumexp(parts, axis=2))[:, 0]
    other = parts.argmax(axis=2) != logsumexp(parts, axis=0).argmax(axis=1)
    return float(weights @ other @ shares)


def explain(
    sources: SourceKnowledge,
    seen: TargetSummary,
    raw_logs: Floats,
    label_shift: bool,
    labelled: Labelled,
    baselines: Sequence[Baseline],
) -> tuple[list[Candidate], Floats]:
    """Return the candidates that are likely enough, and the logarithms of their weights.

    `raw_logs` are what the plain classifiers say of the target's components on raw rows. Labels help to
    choose the candidates. Their likelihood is not in the weights: it follows once the experts are asked.
    """
    model, committee = sources.model, sources.committee
    domain_model, prior = model.domain_model.leave_out_still(seen), model.expected_prior
    votes = combine(unadapted_logits(sources, seen.means, raw_logs))
    trained = prior if sources.user_prior else sources.plain.shares
    candidates = propose(domain_model, seen, prior, votes, trained, baselines, labelled.codes)
    if not committee.adapts:
        return [candidates[0], candidates[-1]], np.array([-np.inf, 0.0])
    if not committee.explains:
        return candidates[:1], np.zeros(1)
    if not label_shift:
        candidates = [one for one in candidates if one.name in (EXPECTED, NOT_ADAPTING)]
    evidence = measure_evidence(domain_model, seen, candidates, prior, baselines)
    logs = weigh(candidates, evidence)
    if len(labelled.codes):
        # Which candidates labels favour, by the domain model alone, which is quick.
        said, of_seen = (
            np.stack(
                [
                    domain_model.log_posteriors(
                        domain_model.see(X, one.centre, one.scale), one.proportions
                    )
                    for one in candidates
                ]
            )
            for X in (labelled.rows, seen.means)
        )
        favoured = logs + label_likelihoods(said, logs, labelled, of_seen, seen)
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
    model = sources.model.domain_model.leave_out_still(seen)
    V = model.see(seen.means, candidate.centre, candidate.scale)
    posteriors = np.exp(model.log_posteriors(V, candidate.proportions))
    return fit_dictionary(sources.model, seen, candidate, posteriors)


def _explain(candidate: Candidate, fitted: FittedDictionary | None) -> Explanation:
    mixtures = (None, None) if fitted is None else (fitted.reconstruction, fitted.labelled)
    return Explanation(
        candidate.name, 1.0, candidate.proportions, candidate.centre, candidate.scale, *mixtures
    )


def explain_as(sources: SourceKnowledge, seen: TargetSummary, proportions: Floats) -> Explanation:
    """Return the explanation that a target has these class proportions."""
    calibration = sources.model.moments.at(seen.mean, seen.variance, proportions, seen.mass)
    candidate = Candidate("given", proportions, *calibration)
    return _explain(candidate, _fit(sources, seen, candidate))


def label_likelihoods(
    logits: Floats, log_weights: Floats, labelled: Labelled, of_seen: Floats, seen: TargetSummary
) -> Floats:
    """Return the logarithm of how likely labels are under each explanation; none is a veto.

    If every label contradicts what all explanations together predict, rows may have been chosen because
    the prediction was wrong. Then each is one of the rows that are wrong under an explanation: the fewer
    there are of these, the likelier is each.

    Parameters
    ----------
    logits : array of shape (n_explanations, n, n_classes)
        Of the labelled rows.
    log_weights : array of shape (n_explanations,)
        Before any label.
    labelled : Labelled
    of_seen : array of shape (n_explanations, n_components, n_classes)
        Logits of the target's components.
    seen : TargetSummary
    """
    logs, rows = log_softmax(logits, axis=2), np.arange(len(labelled.codes))
    drawn = np.maximum(logs[:, rows, labelled.codes], LABEL_FLOOR).sum(axis=1)
    before = log_weights[:, None, None]
    shown = logsumexp(before + logs, axis=0).argmax(axis=1)
    if labelled.random.any() or (shown == labelled.codes).any():
        return np.asarray(drawn)
    of_seen = log_softmax(of_seen, axis=2)
    shown = logsumexp(before + of_seen, axis=0).argmax(axis=1)
    right = np.exp(of_seen[:, np.arange(len(shown)), shown]) @ (seen.masses / seen.masses.sum())
    wrong = np.clip(1.0 - right, min(len(rows) / seen.mass, 1.0), 1.0)  # the labels show that many
    chosen = drawn - len(rows) * np.log(wrong)
    return np.asarray(np.logaddexp(np.log(1.0 - OFTEN_CHOSEN) + drawn, np.log(OFTEN_CHOSEN) + chosen))


def _typical_distance(
    masses: Floats, means: Floats, variances: Floats, known: Points, stds: Floats
) -> float:
    """Return the median over rows of the expected distance of each component's rows."""
    precision = 1.0 / np.square(stds)
    expected = (np.square(means) + variances) @ precision.T
    expected += np.vecdot(np.square(known.means), precision) - 2.0 * means @ (known.means * precision).T
    nearest = np.maximum(expected.min(axis=1), 0.0) / means.shape[1]
    order = np.argsort(nearest)
    reached = np.cumsum(masses[order]) >= 0.5 * masses.sum()
    return max(float(nearest[order][reached.argmax()]), 1e-12)


# -- the dictionary under one explanation (paper, section 3.2) ----------------------------------------


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
    typical : float
        Median distance of the rows from it.
    """

    dictionary: Dictionary
    target: Domain
    losses: Floats
    reconstruction: Mixture
    labelled: Mixture
    known: Points
    typical: float


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
    variances = seen.variances_in(model.metric(candidate.scale))
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
        model.floor_stds(slots),
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
        _typical_distance(
            seen.masses,
            points[:, : model.n_dimensions],
            variances,
            known,
            model.floor_stds(known),
        ),
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
        np.maximum(smoothed, PREDICTOR_FLOOR * model.unit),
        _normalise(target.plan @ np.asarray(rebuilt.labels)),
        rebuilt.mass,
    )


def _normalise(rows: Floats) -> Floats:
    """Return rows as distributions; a row without any positive value becomes uniform."""
    rows = np.maximum(rows, 0.0)
    totals = rows.sum(axis=1, keepdims=True)
    uniform = np.full_like(rows, 1.0 / rows.shape[1])
    return np.where(totals > 0.0, rows / np.where(totals > 0.0, totals, 1.0), uniform)
