"""From a target's state to predictions: class probabilities, novelty, reliability, rows to label.

Everything here is read from the state. A prediction depends on the row and the state alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from baryflow.core.dictionary import Dictionary, Points
from baryflow.core.logs import log_softmax, logsumexp
from baryflow.core.mixture import Mixture
from baryflow.estimators._committee import combine, measure_agreement
from baryflow.estimators._experts import expert_logs, unadapted_logits
from baryflow.estimators._explanations import Explanation
from baryflow.estimators._feedback import Answers, choose_rows, measure_disagreement
from baryflow.estimators._novelty import NOVELTY_THRESHOLD, Familiar, nearest_distance
from baryflow.estimators._sources import SourceKnowledge, atoms_as_mixtures
from baryflow.estimators._state import Adaptation, TargetState, clean
from baryflow.estimators._threads import one_thread
from baryflow.validation import Booleans, Floats, Integers

#: Rows of a batch by which its predictions are judged, at most: the estimate is then off by 0.04.
_JUDGED = 128

# -- class probabilities ---------------------------------------------------------------------------


def predict_proba(sources: SourceKnowledge, state: TargetState, rows: Floats) -> Floats:
    """Return the class probabilities of complete rows."""
    if state.adaptation is None:
        found = predict_unadapted(sources, rows)
        return np.hstack([found, np.zeros((len(rows), len(state.new_classes)))])
    if state.correction is not None:
        return state.correction.apply(find_answers(sources, state, rows))
    if state.certificate.harm:
        return predict_unadapted(sources, rows)
    return predict_explained(sources, state.adaptation, rows)


def predict_unadapted(sources: SourceKnowledge, rows: Floats) -> Floats:
    """Return what the plain classifiers on raw rows predict."""
    return combine(unadapted_logits(sources, rows))


def predict_explained(sources: SourceKnowledge, adaptation: Adaptation, rows: Floats) -> Floats:
    """Return what the committee predicts, averaged over explanations, before any label."""
    parts = classify(sources, adaptation.explanations, rows)
    agreement = measure_agreement(adaptation.agreements, sources.committee.weights)
    return combine(sources.calibration.factor(agreement) * logsumexp(parts, axis=0))


def find_answers(sources: SourceKnowledge, state: TargetState, rows: Floats) -> Answers:
    """Return what the committee and the experts predict of rows, for a correction."""
    adaptation = state.adapted
    if state.certificate.harm:
        probabilities = predict_unadapted(sources, rows)
    else:
        probabilities = predict_explained(sources, adaptation, rows)
    logs = expert_logs(sources, [adaptation.believed], rows)[0]
    return Answers.of(probabilities, logs, standardise(sources, adaptation, rows))


def classify(
    sources: SourceKnowledge,
    explanations: Sequence[Explanation],
    X: Floats,
    raw_logs: Floats | None = None,
) -> Floats:
    """Return the log-probabilities of complete rows under each explanation, weighed.

    Shape (n_explanations, n, n_classes); the logarithm of their summed exponentials is the prediction,
    up to its calibration. `raw_logs` are those of the plain classifiers on raw rows, if they are known.
    """
    if raw_logs is None:
        raw_logs = sources.plain.raw_logs(X)
    adapting = [one for one in explanations if one.adapts]
    logs = expert_logs(sources, adapting, X, raw_logs, everyone=False) if adapting else None
    return weigh_logs(sources, explanations, logs, unadapted_logits(sources, X, raw_logs))


def weigh_logs(
    sources: SourceKnowledge,
    explanations: Sequence[Explanation],
    logs: Floats | None,
    unadapted: Floats,
) -> Floats:
    """Return what :func:`classify` does, from the experts' logs under all explanations that adapt.

    `unadapted` are the logits of not adapting.
    """
    adapts = np.array([one.adapts for one in explanations])
    logits = np.empty((len(explanations), *unadapted.shape))
    logits[~adapts] = unadapted
    if logs is not None:
        logits[adapts] = np.tensordot(sources.committee.weights, logs, (0, 1))
    weights = np.array([one.weight for one in explanations])
    prior = np.log(np.maximum(weights, np.finfo(np.float64).tiny))
    return np.asarray(prior[:, None, None] + log_softmax(logits, axis=2))


def standardise(sources: SourceKnowledge, adaptation: Adaptation, X: Floats) -> Floats:
    """Return complete rows in units of the target's calibration, as classifiers per domain see them."""
    one = adaptation.believed
    return sources.plain.reduce((X - one.centre) / one.scale)


def name_rows(sources: SourceKnowledge, adaptation: Adaptation, X: Floats) -> Integers:
    """Return the most probable class of rows by the reconstruction alone, which is quick."""
    one = adaptation.believed
    Z = sources.model.project(X, one.centre, one.scale)
    return np.asarray(adaptation.reconstruction.predict_proba(Z).argmax(axis=1))


# -- novelty and reliability -----------------------------------------------------------------------


class Predicted(NamedTuple):
    """How sure predictions of rows are, and how novel the rows."""

    highest: Floats  # probability of the predicted class
    novelty: Floats

    @classmethod
    def of(cls, probabilities: Floats, novelty: Floats) -> Predicted:
        """Take what :func:`assess` returns."""
        return cls(probabilities.max(axis=1), novelty)

    def some(self, which: Booleans) -> Predicted:
        """Return those of some rows."""
        return Predicted(self.highest[which], self.novelty[which])


def assess(
    sources: SourceKnowledge, state: TargetState, raw: Floats, familiar: Familiar | None = None
) -> tuple[Floats, Floats]:
    """Return class probabilities of rows as they come, and how unlike everything known they are.

    `familiar` is what is familiar, if not all that was seen.
    """
    rows, lost = clean(sources, state, raw)
    probabilities, model = predict_proba(sources, state, rows), sources.model
    adaptation = state.adaptation
    if adaptation is None:
        distance = model.novelty_distance(rows, model.centre, model.scale)
        return probabilities, np.where(lost, 1.0, sources.novelty.rank_first(distance))
    familiar = state.familiar if familiar is None else familiar
    shares = probabilities[:, : model.n_classes]
    typical = typical_in_columns(sources, adaptation, familiar.rows)
    far = novelty_distance(sources, adaptation, rows, typical)
    chances = familiar.chances(rows, shares.argmax(axis=1), lambda X: name_rows(sources, adaptation, X))
    novelty = np.where(lost, 1.0, sources.novelty.rank(far, chances))
    # A class that was named is known.
    return probabilities, novelty * shares.sum(axis=1) if state.new_classes else novelty


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


def judge(
    sources: SourceKnowledge, state: TargetState, raw: Floats, familiar: Familiar | None = None
) -> TargetState:
    """Estimate how far predictions for rows can be relied on; `familiar` is what was before them.

    Of many rows some are enough, evenly spread.
    """
    if not len(raw) or state.adaptation is None:
        return state
    if len(raw) > _JUDGED:
        raw = raw[np.linspace(0, len(raw) - 1, _JUDGED).astype(np.intp)]
    return count_predicted(sources, state, Predicted.of(*assess(sources, state, raw, familiar)))


def count_predicted(sources: SourceKnowledge, state: TargetState, rows: Predicted) -> TargetState:
    """Estimate how far predictions can be relied on from how sure they are."""
    novel = rows.novelty > NOVELTY_THRESHOLD
    reliability = sources.calibration.estimate(
        rows.highest, novel, 1.0 - NOVELTY_THRESHOLD, state.verdicts
    )
    return replace(state, reliability=reliability, novel=float(novel.mean()))


def judged(sources: SourceKnowledge, state: TargetState) -> TargetState:
    """Return a state in which the predictions for the last rows are judged."""
    return state if state.reliability is not None else judge_again(sources, state)


def judge_again(sources: SourceKnowledge, state: TargetState) -> TargetState:
    """Judge the last rows again, after labels or a baseline have changed the predictions."""
    if not state.n_last:
        return state
    raw, n = state.recent.rows[-state.n_last :], state.n_rows
    state = judge(sources, state, raw, state.familiar.before(len(raw)))
    if state.reliability is None or state.novel is None:
        return state
    if len(state.history) and state.history.n_rows[-1] == n:
        history = state.history.amend(reliability=state.reliability, novelty=state.novel)
        state = replace(state, history=history)
    return state


# -- rows that are worth a label, and the dictionary -----------------------------------------------


def choose_queries(
    sources: SourceKnowledge, state: TargetState, n: int
) -> tuple[Integers, Floats, Floats]:
    """Return n of the recent rows that are most worth a label, their probabilities and novelty.

    Rows are given by their numbers among the recent ones; those with a label are left out.
    """
    adaptation = state.adapted
    known = {row.tobytes() for row in state.labelled.rows}
    raw = state.recent.rows
    free = np.array([i for i, row in enumerate(raw) if row.tobytes() not in known], dtype=np.intp)
    rows, lost = clean(sources, state, raw[free])
    free, rows = free[~lost], rows[~lost]
    if not len(free):
        n_classes = sources.model.n_classes + len(state.new_classes)
        return free, np.zeros((0, n_classes)), np.zeros(0)
    probabilities, novelty = assess(sources, state, raw[free])
    rng = np.random.default_rng([state.n_given, len(state.labelled)])
    columns = standardise(sources, adaptation, rows)
    disagreement = measure_disagreement(classify(sources, adaptation.explanations, rows))
    novel = novelty > NOVELTY_THRESHOLD
    chosen = choose_rows(probabilities, columns, novel, disagreement, n, rng)
    return free[chosen], probabilities[chosen], novelty[chosen]


def atoms_of(sources: SourceKnowledge, adaptation: Adaptation) -> Dictionary:
    """Return the dictionary after its step towards the target."""
    dictionary = sources.model.dictionary.copy()
    dictionary.atoms = adaptation.atoms
    return dictionary


# -- what pages and alarms show --------------------------------------------------------------------


@one_thread
def in_view(sources: SourceKnowledge, state: TargetState, raw: Floats) -> Floats:
    """Return rows as they come in the coordinates of the view, glitches and gaps filled."""
    return sources.model.project(clean(sources, state, raw)[0], *_calibration(sources, state))


def class_means(sources: SourceKnowledge, state: TargetState) -> Floats:
    """Return the mean of every class in the columns and units of rows, shape (n_classes, d).

    As the target shows it, or before its first row the sources on the whole; of a class that no source
    has, the mean of its labelled rows, if any. What the view does not show of a row is taken to be what
    is most likely.
    """
    model, units = sources.model, state.units
    centre, scale = _calibration(sources, state)
    shown = atoms_as_mixtures(model.dictionary)
    if state.adaptation is not None:
        shown = [state.adaptation.reconstruction]
    found = np.full((model.n_classes + len(state.new_classes), len(centre)), np.nan)
    means = []
    for one in shown:
        mixture = model.lift(one, units.revert(centre), units.factors * scale)
        shares = mixture.weights[:, None] * np.asarray(mixture.labels)
        totals = shares.sum(axis=0)
        means.append((shares / np.where(totals > 0.0, totals, np.nan)).T @ mixture.means)
    found[: model.n_classes] = np.mean(means, axis=0)
    labelled = state.labelled
    for c in np.unique(labelled.codes[labelled.codes >= model.n_classes]):
        found[c] = np.nanmean(labelled.rows[labelled.codes == c], axis=0)
    return found


def _calibration(sources: SourceKnowledge, state: TargetState) -> tuple[Floats, Floats]:
    """Return centre and scale of the target, or before its first row those of the sources."""
    known = sources.model if state.adaptation is None else state.adaptation.believed
    return known.centre, known.scale


def source_mixtures(sources: SourceKnowledge, names: Sequence[Any]) -> dict[str, Mixture]:
    """Return the labelled mixture of every source by its name, in the coordinates of the view."""
    model, found = sources.model, {}
    for name, domain in zip(names, model.domains, strict=True):
        there = domain.weights > 0.0
        points = Points(domain.points[there], model.n_dimensions)
        weights, labels = domain.weights[there], np.maximum(points.labels, 0.0)
        labels /= labels.sum(axis=1, keepdims=True)
        stds = model.floor_stds(points)
        found[str(name)] = Mixture(weights / weights.sum(), points.means, stds, labels)
    return found
