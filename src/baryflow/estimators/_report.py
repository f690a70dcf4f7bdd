"""What a model learned, decided and saw, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from baryflow.estimators._committee import Committee
from baryflow.estimators._experts import describe_experts
from baryflow.estimators._label_shift import LabelShift
from baryflow.estimators._novelty import NOVELTY_THRESHOLD
from baryflow.estimators._tracker import Tracker

#: A class with a smaller share is listed as absent.
_ABSENT = 0.0005


def describe(tracker: Tracker, classes: Any, sources: list[Any], faults: Mapping[Any, str]) -> str:
    """Return the report of a target, a line for each fact.

    To add a line, add a function that returns lines to the list below.
    """
    parts = [
        _describe_sources(classes, sources),
        _describe_committee(tracker),
        _describe_resemblance(tracker, sources),
        _describe_shift(tracker, classes),
        _describe_coverage(tracker),
        _describe_recent(tracker),
        _describe_feedback(tracker, classes),
        [f"Column {name}: {fault}." for name, fault in faults.items()],
    ]
    return "\n".join(line for lines in parts for line in lines)


def _describe_feedback(tracker: Tracker, classes: Any) -> list[str]:
    """Return what labels of the target's rows taught and prove."""
    if not tracker.n_labels:
        return []
    counts = np.bincount(tracker.labelled.codes, minlength=len(classes))
    named = ", ".join(f"{classes[c]}: {counts[c]}" for c in np.flatnonzero(counts))
    lines = [f"Labels of target rows: {tracker.n_labels}. Kept, by class: {named}."]
    if tracker.new_classes:
        lines.append(f"Classes that no source has: {', '.join(map(str, tracker.new_classes))}.")
    return lines + tracker.certificate.describe()


def _describe_sources(classes: Any, sources: list[Any]) -> list[str]:
    named = f"{'1 class' if len(classes) == 1 else f'{len(classes)} classes'}: "
    return [f"{_count_sources(sources)}. {named}{', '.join(map(str, classes))}."]


def _describe_committee(tracker: Tracker) -> list[str]:
    """Return whether it adapts and why, the experts' weights, and the leave-one-source-out table."""
    committee = tracker.knowledge.committee
    does = "adapt" if committee.adapts else "do not adapt; the plain classifiers on raw rows predict"
    lines = [f"Decision: {does}.", f"Why: {committee.reason}."]
    if committee.scores:
        lines.append("Leave-one-source-out accuracy:           not adapting   adapting")
        lines += [
            f"  {name:<38} {before:12.1%} {after:10.1%}" for name, before, after in committee.scores
        ]
    if committee.adapts and len(committee.experts) > 1:
        tested = f"{'alone':>8}" if len(committee.accuracy) else ""
        described = describe_experts(tracker.knowledge)
        width = max(map(len, described.values()))
        lines.append(f"{'Experts, and their weights':<{width + 2}}    usual  label shift{tested}")
        lines += [
            f"  {described[name]:<{width}} {usual:8.0%} {shifted:12.0%}{alone}"
            for name, usual, shifted, alone in expert_table(committee)
        ]
    return lines


def expert_table(committee: Committee) -> list[tuple[str, float, float, str]]:
    """Return name, share of the weight, usual and under label shift, and accuracy of each expert."""
    usual = committee.usual / committee.usual.sum()
    shifted = committee.shifted / committee.shifted.sum()
    alone = [f"{one:8.1%}" for one in committee.accuracy] or [""] * len(usual)
    return list(zip(committee.experts, usual.tolist(), shifted.tolist(), alone, strict=True))


def _describe_resemblance(tracker: Tracker, sources: list[Any]) -> list[str]:
    shares = dict(zip(sources, tracker.resemblance.tolist(), strict=False))
    if not shares:
        return []
    nearest = sorted(shares.items(), key=lambda item: -item[1])
    words = ", ".join(f"{name}: {share:.0%}" for name, share in nearest if share >= 0.005)
    return [
        f"The target resembles {words} (share of each source in it, shift and scale of columns aside)."
    ]


def _describe_shift(tracker: Tracker, classes: Any) -> list[str]:
    adaptation = tracker.adaptation
    if adaptation is None:
        return []
    return [describe_label_shift(classes, adaptation.shift, estimated=tracker.estimates_shift)]


def describe_label_shift(classes: Any, shift: LabelShift, *, estimated: bool = True) -> str:
    """Return how often each class occurs, and how far a label shift is believed."""
    if not estimated:
        return "Label shift: not estimated; classes are taken to be as frequent as expected."
    reason = (
        f"estimated size {shift.size:.0%} beyond chance; assuming it changes the target's loss by "
        f"{round(np.expm1(-shift.improvement), 2) + 0.0:+.0%}"  # + 0.0: not -0%
    )
    if shift.belief < 0.05:
        return f"Label shift: none believed ({reason}); classes are as frequent as expected."
    order = np.argsort(-shift.proportions, kind="stable")
    present = [i for i in order if shift.proportions[i] >= _ABSENT]
    absent = [str(classes[i]) for i in order if shift.proportions[i] < _ABSENT]
    words = ", ".join(f"{classes[i]}: {shift.proportions[i]:.1%}" for i in present)
    if absent:
        words += f"; hardly any of {', '.join(absent)}"
    return f"Label shift: believed to {shift.belief:.0%} ({reason}). Estimated proportions: {words}."


def _describe_coverage(tracker: Tracker) -> list[str]:
    adaptation, adapts = tracker.adaptation, tracker.knowledge.committee.adapts
    if adaptation is None or not adapts:
        return [f"{_count_rows(tracker)} seen; the plain classifiers on raw rows predict."]
    seen = f"{adaptation.coverage:.0%} of the classes were seen (ten rows or more of each)"
    return [f"{_count_rows(tracker)} seen; {seen}."]


def _count_rows(tracker: Tracker) -> str:
    return "1 target row" if tracker.n_rows == 1 else f"{tracker.n_rows} target rows"


def _describe_recent(tracker: Tracker) -> list[str]:
    if not len(tracker.history):
        return []
    reliability = (
        f"Reliability of the last batch: {tracker.reliability:.0%} (estimated share of right "
        "predictions; those for novel rows count as wrong)."
    )
    novelty = (
        f"Novelty of the last batch: {tracker.novel:.0%} of its rows are novel (less like "
        f"everything known than {NOVELTY_THRESHOLD:.0%} of the rows that are known)."
    )
    return [reliability, novelty]


def _count_sources(sources: list[Any]) -> str:
    if len(sources) == 1:
        return "One source (if its rows come from several, name the domain of each row when fitting)"
    return f"{len(sources)} sources: {', '.join(map(str, sources))}"
