"""The method: from what was seen of a target to a classifier for it.

:func:`update` is the algorithm. It fits the dictionary to the target, in the discriminant view and in
the stacked space: assuming that classes are as frequent as expected, and with estimated proportions.
The experts of both are combined as far as the evidence for a label shift goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from baryflow.estimators._committee import FLOOR, combine
from baryflow.estimators._experts import Question, expert_logs
from baryflow.estimators._fit_dictionary import (
    AdaptedSpace,
    Hypothesis,
    fit_dictionary,
    floor_stds,
)
from baryflow.estimators._label_shift import (
    LabelShift,
    estimate_proportions,
    measure_improvement,
    measure_size,
    normalise_proportions,
)
from baryflow.estimators._novelty import nearest_distance
from baryflow.estimators._reliability import measure_agreement
from baryflow.estimators._sources import SourceKnowledge
from baryflow.estimators._target import Target, TargetSummary
from baryflow.validation import Floats, Integers

#: This many rows of a class are enough to know it.
_ENOUGH = 10.0
#: Rounds in which the experts' class proportions are improved.
_ROUNDS = 2
#: A label shift believed less than this is ignored.
_LEAST_BELIEF = 1e-3


@dataclass(frozen=True, eq=False)
class Adaptation:
    """What the sources taught, adapted to one target."""

    knowledge: SourceKnowledge
    mass: float  # rows seen
    expected: Hypothesis
    shifted: Hypothesis | None
    shift: LabelShift
    typical: float = 1.0  # median distance of what was seen from the reconstruction
    #: How often each two experts agree about the target's components.
    agreements: Floats = field(default_factory=lambda: np.ones((1, 1)))

    @property
    def believed(self) -> Hypothesis:
        """The more credible of the two hypotheses."""
        return self.expected if self.shifted is None or self.shift.belief < 0.5 else self.shifted

    @property
    def proportions(self) -> Floats:
        """Class proportions of the rows seen, as far as a label shift is believed."""
        belief = self.shift.belief
        return (1.0 - belief) * self.expected.proportions + belief * self.shift.proportions

    @property
    def coverage(self) -> float:
        """Share of the classes that were seen: 1 after ten rows of each."""
        return float(np.minimum(self.mass * self.proportions / _ENOUGH, 1.0).mean())

    @property
    def agreement(self) -> float:
        """How often two experts, drawn by their weights, agree about the rows seen."""
        return measure_agreement(self.agreements, self.knowledge.committee.usual)

    def ask(self, X: Floats) -> Question:
        """Return complete rows to classify, under the hypothesis that there is no label shift."""
        return Question(self.knowledge, self.expected, X)

    def answer(self, question: Question, *, adapt: bool = True) -> tuple[Floats, Floats]:
        """Return what the committee says of rows.

        Parameters
        ----------
        question : Question
            What :meth:`ask` returned for the rows.
        adapt : bool
            Otherwise the plain classifiers on raw rows answer, as if the committee did not adapt.

        Returns
        -------
        probabilities : array of shape (n, n_classes)
        logs : array of shape (n_experts, n, n_classes)
            Log-probabilities of those who answered, under the hypothesis that is believed.
        """
        committee, belief = self.knowledge.committee, self.shift.belief
        if not (adapt and committee.adapts):
            return question.not_adapting(), question.raw_logs
        logs = expert_logs(question)
        logits = np.tensordot(committee.usual, logs, 1)
        if self.shifted is not None:
            other = expert_logs(Question(self.knowledge, self.shifted, question.X, question.raw_logs))
            weights = committee.weights(self.shift.size)
            logits = (1.0 - belief) * logits + belief * np.tensordot(weights, other, 1)
            logs = logs if belief < 0.5 else other
        return combine(self.knowledge.calibration.factor(self.agreement) * logits), logs

    def shift_evidence(self, X: Floats, codes: Integers) -> float | None:
        """Return how much likelier labels of complete rows are if the label shift is assumed, as a log.

        None if there is nothing to compare.
        """
        committee, shifted = self.knowledge.committee, self.shifted
        if shifted is None or not committee.adapts:
            return None
        question = self.ask(X)
        usual = np.tensordot(committee.usual, expert_logs(question), 1)
        other = expert_logs(Question(self.knowledge, shifted, X, question.raw_logs))
        logits = np.tensordot(committee.weights(self.shift.size), other, 1)
        rows = np.arange(len(codes))
        found = [np.log(combine(one)[rows, codes] + FLOOR).sum() for one in (usual, logits)]
        return float(found[1] - found[0])

    def standardise(self, X: Floats) -> Floats:
        """Return complete rows in units of the target's moments, as classifiers per domain see them."""
        view, plain = self.believed.view, self.knowledge.plain
        Z = (X - view.centre) / view.scale
        return Z if plain is None else plain.reduce(Z)

    def name_rows(self, X: Floats) -> Integers:
        """Return the most probable class of rows by the reconstruction alone, which is quick."""
        space = self.believed.view
        return np.asarray(space.reconstruction.predict_proba(space.project(X)).argmax(axis=1))

    def novelty_distance(self, X: Floats, typical: float) -> Floats:
        """Return the distance of rows from everything known, in units of what is typical.

        The geometric mean of that from the reconstruction, in the view, and that from the classes of
        the sources, in all columns; `typical` is what :meth:`typical_in_columns` returned.
        """
        space = self.believed.view
        distance = nearest_distance(
            space.project(X), space.known.means, floor_stds(space.model, space.known)
        )
        distance = distance / self.typical
        prototypes = space.model.prototypes
        if prototypes is None or typical <= 0.0:
            return distance
        others = prototypes.distances((X - space.centre) / space.scale)
        return np.asarray(np.sqrt(distance * others / typical))

    def typical_in_columns(self, familiar: Floats) -> float:
        """Return the median distance of rows from the classes of the sources, in all columns.

        `familiar` are rows of the target that show what is typical; without any it is 0.
        """
        space = self.believed.view
        prototypes = space.model.prototypes
        if prototypes is None or not len(familiar):
            return 0.0
        usual = np.median(prototypes.distances((familiar - space.centre) / space.scale))
        return max(float(usual), 1e-12)


def update(
    knowledge: SourceKnowledge,
    target: Target,
    *,
    label_shift: bool,
    evidence: float = 0.0,
) -> Adaptation:
    """Adapt to what was seen of a target.

    Parameters
    ----------
    knowledge : SourceKnowledge
    target : Target
        Rows are cleaned and summarised already.
    label_shift : bool
        Estimate the target's class proportions.
    evidence : float
        What labels of target rows add to the logit of the belief in a label shift.
    """
    rows, stacked = target.summary(), target.stacked_summary()
    prior = knowledge.model.expected_prior
    raw_logs = None if knowledge.plain is None else knowledge.plain.raw_logs(rows.means)

    @cache
    def ask(hypothesis: Hypothesis) -> Floats:
        """Return what the experts say of the target's components."""
        return expert_logs(Question(knowledge, hypothesis, rows.means, raw_logs))

    expected = fit_dictionary(knowledge, rows, stacked, prior)
    adaptation = Adaptation(knowledge, rows.mass, expected, None, LabelShift(prior))
    if knowledge.plain is not None and rows.votes is not None and label_shift:
        candidates = [
            _shift_by_votes(knowledge, rows, stacked),
            _shift_by_experts(knowledge, rows, stacked, expected, ask),
        ]
        shifted = max(candidates, key=lambda one: measure_improvement(expected.losses, one.losses))
        shift = _weigh(knowledge, rows.mass, expected, shifted, evidence)
        if shift.belief >= _LEAST_BELIEF:
            adaptation = replace(adaptation, shifted=shifted, shift=shift)
        else:
            adaptation = replace(adaptation, shift=replace(shift, belief=0.0))
    return replace(
        adaptation,
        typical=_typical_distance(adaptation.believed.view, rows),
        agreements=_measure_agreements(adaptation, rows, ask),
    )


def _measure_agreements(
    adaptation: Adaptation, rows: TargetSummary, ask: Callable[[Hypothesis], Floats]
) -> Floats:
    """Return how often each two experts predict the same class for the target's components."""
    found = ask(adaptation.believed).argmax(axis=2)
    return np.asarray((found[:, None] == found[None]) @ (rows.masses / rows.masses.sum()))


def _shift_by_votes(
    knowledge: SourceKnowledge, rows: TargetSummary, stacked: TargetSummary | None
) -> Hypothesis:
    """Adapt with the class proportions that the plain classifiers find on raw rows.

    These do not depend on the target's moments, and find even a stream of a single class, as long as
    they are not wrong about most rows.
    """
    plain, prior = knowledge.plain, knowledge.model.expected_prior
    voting = rows if stacked is None else stacked
    if plain is None or voting.votes is None:
        raise ValueError("a model made from mixtures has no plain classifiers")
    found = estimate_proportions(voting.votes, voting.masses, plain.shares, prior)
    proportions = prior + knowledge.committee.trust * (found - prior)
    return fit_dictionary(knowledge, rows, stacked, proportions)


def _shift_by_experts(
    knowledge: SourceKnowledge,
    rows: TargetSummary,
    stacked: TargetSummary | None,
    expected: Hypothesis,
    ask: Callable[[Hypothesis], Floats],
) -> Hypothesis:
    """Adapt with the class proportions that the other experts find, as long as the target fits better.

    They are right about targets that lie far from the sources, if the shift is not too large: the first
    proportions are those of their answers if classes are as frequent as expected.
    """
    best, n_raw = expected, len(knowledge.committee.raw)
    weights = knowledge.committee.usual[n_raw:]
    for _ in range(_ROUNDS):
        votes = combine(np.tensordot(weights / weights.sum(), ask(best)[n_raw:], 1))
        proportions = normalise_proportions(rows.masses @ votes)
        found = fit_dictionary(knowledge, rows, stacked, proportions)
        if measure_improvement(best.losses, found.losses) <= 0.0:
            break
        best = found
    return best


def _weigh(
    knowledge: SourceKnowledge,
    mass: float,
    expected: Hypothesis,
    shifted: Hypothesis,
    evidence: float,
) -> LabelShift:
    """Say how far to believe a label shift: by its size, and by how much better the target fits.

    With the right class proportions a target lies near its reconstruction from the unmoved atoms; with
    wrong ones rows of one class must be explained by others.
    """
    size = measure_size(shifted.proportions, knowledge.model.expected_prior, mass)
    improvement = measure_improvement(expected.losses, shifted.losses)
    belief = knowledge.committee.believe(size, improvement, evidence)
    return LabelShift(shifted.proportions, size, improvement, belief)


def _typical_distance(space: AdaptedSpace, seen: TargetSummary) -> float:
    """Return the median over rows of the expected distance of each component's rows."""
    model, there = space.model, space.known.means
    means = space.project(seen.means)
    variances = model.variances(seen.variances_in, seen.stds, space.scale)
    precision = 1.0 / np.square(floor_stds(model, space.known))
    expected = (np.square(means) + variances) @ precision.T
    expected += np.vecdot(np.square(there), precision) - 2.0 * means @ (there * precision).T
    nearest = np.maximum(expected.min(axis=1), 0.0) / means.shape[1]
    order = np.argsort(nearest)
    reached = np.cumsum(seen.masses[order]) >= 0.5 * seen.masses.sum()
    return max(float(nearest[order][reached.argmax()]), 1e-12)
