"""What a model learned, decided and saw, as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from baryflow.estimators._committee import Committee
from baryflow.estimators._experts import describe_experts
from baryflow.estimators._explanations import EXPECTED, NOT_ADAPTING, Explanation
from baryflow.estimators._novelty import NOVELTY_THRESHOLD
from baryflow.estimators._sensors import Units
from baryflow.estimators._source_table import ClassMoments
from baryflow.estimators._sources import SourceKnowledge
from baryflow.estimators._state import Adaptation, TargetState
from baryflow.validation import Floats, Integers

#: A class with a smaller share is listed as absent.
_ABSENT = 0.005
#: Explanations compete if more rows than this depend on which is right. Those that are more likely than
#: this are listed, and of each at most as many classes.
AMBIGUOUS, _COMPETES, _LISTED = 0.05, 0.05, 5
#: Columns whose calibration is named in an explanation, at most.
_CALIBRATED = 2


@dataclass(frozen=True, eq=False)
class TargetExplanation:
    """One explanation of a target, in the user's words and units.

    Attributes
    ----------
    name : str
        ``"expected"``: classes are as frequent as expected. ``"votes"``: as often as classifiers of raw
        rows find them. ``"fixed point"``: proportions and calibration confirm each other.
        ``"baseline"``: the baseline lies where its class does. ``"not adapting"``: the usual
        calibration of the sources.
    weight : float
        How likely it is among all explanations.
    proportions : dict of class → float
    offsets, gains : array of shape (n_features,)
        Calibration of each column: a value of the sources' usual calibration, times the gain, plus the
        offset, is one of the target.
    """

    name: str
    weight: float
    proportions: dict[Any, float]
    offsets: Floats
    gains: Floats

    @classmethod
    def of(cls, one: Explanation, classes: Any, units: Units, moments: ClassMoments) -> Self:
        """Describe an explanation."""
        centre, scale = moments.usual
        gains = units.factors * one.scale / scale
        offsets = units.revert(one.centre) - gains * centre
        shares = dict(zip(classes.tolist(), one.proportions.tolist(), strict=True))
        return cls(one.name, one.weight, shares, offsets, gains)


def describe(
    knowledge: SourceKnowledge,
    state: TargetState,
    classes: Any,
    sources: list[Any],
    faults: Mapping[Any, str],
) -> str:
    """Return the report of a target, a line for each fact.

    To add a line, add a function that returns lines to the list below.
    """
    parts = [
        _describe_sources(classes, sources),
        _describe_committee(knowledge),
        _describe_resemblance(state, sources),
        _describe_explanations(knowledge, state, classes),
        _describe_coverage(knowledge, state),
        _describe_recent(state),
        _describe_feedback(state, classes),
        [f"Column {name}: {fault}." for name, fault in faults.items()],
    ]
    return "\n".join(line for lines in parts for line in lines)


def _describe_feedback(state: TargetState, classes: Any) -> list[str]:
    """Return what labels of the target's rows taught and prove."""
    if not state.n_labels:
        return []
    counts = np.bincount(state.labelled.codes, minlength=len(classes))
    named = ", ".join(f"{classes[c]}: {counts[c]}" for c in np.flatnonzero(counts))
    lines = [f"Labels of target rows: {state.n_labels}. Kept, by class: {named}."]
    if state.new_classes:
        lines.append(f"Classes that no source has: {', '.join(map(str, state.new_classes))}.")
    return lines + state.certificate.describe()


def _describe_sources(classes: Any, sources: list[Any]) -> list[str]:
    named = f"{'1 class' if len(classes) == 1 else f'{len(classes)} classes'}: "
    return [f"{_count_sources(sources)}. {named}{', '.join(map(str, classes))}."]


def _describe_committee(knowledge: SourceKnowledge) -> list[str]:
    """Return whether it adapts and why, the experts' weights, and the leave-one-source-out table."""
    committee = knowledge.committee
    does = "adapt" if committee.adapts else "do not adapt; the plain classifiers on raw rows predict"
    lines = [f"Decision: {does}.", f"Why: {committee.reason}."]
    if committee.scores:
        lines.append("Leave-one-source-out accuracy:           not adapting   adapting")
        lines += [
            f"  {name:<38} {before:12.1%} {after:10.1%}" for name, before, after in committee.scores
        ]
    if committee.adapts and len(committee.experts) > 1:
        tested = f"{'alone':>8}" if len(committee.accuracy) else ""
        described = describe_experts(knowledge)
        width = max(map(len, described.values()))
        lines.append(f"{'Experts, and their weights':<{width + 2}}   weight{tested}")
        lines += [
            f"  {described[name]:<{width}} {weight:8.0%}{alone}"
            for name, weight, alone in expert_table(committee)
        ]
    return lines


def expert_table(committee: Committee) -> list[tuple[str, float, str]]:
    """Return name, share of the weight, and accuracy of each expert."""
    weights = committee.weights / committee.weights.sum()
    alone = [f"{one:8.1%}" for one in committee.accuracy] or [""] * len(weights)
    return list(zip(committee.experts, weights.tolist(), alone, strict=True))


def _describe_resemblance(state: TargetState, sources: list[Any]) -> list[str]:
    shares = dict(zip(sources, state.resemblance.tolist(), strict=False))
    if not shares:
        return []
    nearest = sorted(shares.items(), key=lambda item: -item[1])
    words = ", ".join(f"{name}: {share:.0%}" for name, share in nearest if share >= 0.005)
    return [
        f"The target resembles {words} (share of each source in it, shift and scale of columns aside)."
    ]


def _describe_explanations(knowledge: SourceKnowledge, state: TargetState, classes: Any) -> list[str]:
    if state.adaptation is None or not knowledge.committee.adapts:
        return []
    return [describe_proportions(state.adaptation, classes)]


def describe_proportions(adaptation: Adaptation, classes: Any) -> str:
    """Return what explains the target; if several explanations compete, all of them, and what helps."""
    competing = find_competing(adaptation)
    if not competing:
        best = adaptation.explanations[0]
        return f"Class proportions ({best.weight:.0%} likely): {_describe_explanation(best, classes)}."
    listed = "; ".join(
        f"{_describe_explanation(one, classes)} ({one.weight:.0%} likely)" for one in competing
    )
    return (
        f"{len(competing)} explanations fit, and {adaptation.ambiguity:.0%} of predictions depend on "
        f"which is right: {listed}. A label of one of these rows, or a baseline, would settle it."
    )


def find_competing(adaptation: Adaptation) -> list[Explanation]:
    """Return the likely explanations if predictions depend on which is right, else none."""
    found = [one for one in adaptation.explanations if one.weight >= _COMPETES]
    return found if len(found) > 1 and adaptation.ambiguity >= AMBIGUOUS else []


def describe_competing(
    knowledge: SourceKnowledge, state: TargetState, classes: Any, names: Any
) -> list[str]:
    """Return a sentence for each competing explanation: proportions, and calibration in user units."""
    if state.adaptation is None or not knowledge.committee.adapts:
        return []
    return [
        f"{one.weight:.0%} likely: {_describe_explanation(one, classes)}"
        f"{_describe_calibration(one, state.units, knowledge.model.moments, names)}."
        for one in find_competing(state.adaptation)
    ]


def _describe_calibration(one: Explanation, units: Units, moments: ClassMoments, names: Any) -> str:
    """Name the columns that are calibrated least like the sources, by gain or by offset."""
    if one.name == NOT_ADAPTING:
        return ""
    centre, scale = moments.usual
    gains, steps = np.log(one.scale / scale), (one.centre - centre) / scale
    sizes = np.where(units.other, np.inf, np.maximum(np.abs(gains), np.abs(steps)))
    offsets, words = units.revert(one.centre) - units.revert(centre), []
    for i in np.argsort(-sizes, kind="stable")[:_CALIBRATED].tolist():
        name = f"column {i}" if names is None else str(names[i])
        if units.other[i]:
            words.append(f"{name} {units.describe(i)}")
        elif abs(gains[i]) >= abs(steps[i]):
            words.append(f"{name} ×{np.exp(gains[i]):.3g}")
        else:
            words.append(f"{name} {offsets[i]:+.3g}")
    return f"; compared with the sources, {' and '.join(words)}"


def _describe_explanation(one: Explanation, classes: Any) -> str:
    """Describe the class proportions of an explanation."""
    if one.name == EXPECTED:
        return "as expected"
    order = np.argsort(-one.proportions, kind="stable")
    present = [i for i in order[:_LISTED] if one.proportions[i] >= _ABSENT]
    left = float(one.proportions.sum() - one.proportions[present].sum())
    words = ", ".join(f"{classes[i]} {one.proportions[i]:.0%}" for i in present)
    if left >= _ABSENT * len(one.proportions):
        words += f", others {left:.0%}"
    if one.name == NOT_ADAPTING:
        words = f"calibrated like the sources, {words}"
    return words


def _describe_coverage(knowledge: SourceKnowledge, state: TargetState) -> list[str]:
    adaptation, adapts = state.adaptation, knowledge.committee.adapts
    if adaptation is None or not adapts:
        return [f"{_count_rows(state)} seen; the plain classifiers on raw rows predict."]
    seen = f"{adaptation.coverage:.0%} of the classes were seen (ten rows or more of each)"
    return [f"{_count_rows(state)} seen; {seen}."]


def _count_rows(state: TargetState) -> str:
    return "1 target row" if state.n_rows == 1 else f"{state.n_rows} target rows"


def _describe_recent(state: TargetState) -> list[str]:
    if not len(state.history):
        return []
    reliability = (
        f"Reliability of the last batch: {state.reliability:.0%} (estimated share of right "
        "predictions; those for novel rows count as wrong)."
    )
    novelty = (
        f"Novelty of the last batch: {state.novel:.0%} of its rows are novel (less like "
        f"everything known than {NOVELTY_THRESHOLD:.0%} of the rows that are known)."
    )
    return [reliability, novelty]


def _count_sources(sources: list[Any]) -> str:
    if len(sources) == 1:
        return "One source (if its rows come from several, name the domain of each row when fitting)"
    return f"{len(sources)} sources: {', '.join(map(str, sources))}"


# -- columns ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ColumnComparison:
    """Every column of the target and of the pooled sources, in the units of rows.

    Attributes
    ----------
    names : list
        Of the columns; their numbers if they have no names.
    source_means, source_stds : array of shape (n_features,)
        Of the rows of all sources together. The std is 0 where they do not vary.
    target_means, target_stds : array of shape (n_features,)
        Of the target's rows, glitches left out; NaN for a column of which no value was seen.
    offsets, factors : array of shape (n_features,)
        Of columns that are in other units than in the sources: a value of the target counts as
        (value − offset) / factor. 0 and 1 for the others.
    """

    names: list[Any]
    source_means: Floats
    source_stds: Floats
    target_means: Floats
    target_stds: Floats
    offsets: Floats
    factors: Floats

    @property
    def differences(self) -> Floats:
        """How far the target's means are above the sources', in standard deviations of the sources.

        Infinite for a column that does not vary in the sources and is elsewhere in the target.
        """
        gaps = self.target_means - self.source_means
        same = (gaps == 0.0) & (self.source_stds == 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(same, 0.0, gaps / self.source_stds)

    def order(self) -> Integers:
        """Return the numbers of the columns that can be compared, those that differ most first.

        Returns
        -------
        array of int
        """
        size = np.abs(self.differences)
        order = np.argsort(-size, kind="stable")
        return order[~np.isnan(size[order])]


def compare_columns(sources: SourceKnowledge, state: TargetState, names: Any) -> ColumnComparison:
    """Compare what was seen of a target with its sources; without names columns are numbered from 0."""
    model, limits = sources.model, sources.limits
    unseen = (state.tally.values == 0.0) | (state.mass <= 0.0)
    stds = np.where(np.isfinite(limits.high), model.scale, 0.0)
    mean, variance = state.rows.moments() if state.mass > 0.0 else (model.centre, model.scale)
    return ColumnComparison(
        names=list(range(len(unseen))) if names is None else names.tolist(),
        source_means=model.centre,
        source_stds=stds,
        target_means=np.where(unseen, np.nan, state.units.revert(mean)),
        target_stds=np.where(unseen, np.nan, state.units.factors * np.sqrt(variance)),
        offsets=state.units.offsets,
        factors=state.units.factors,
    )
