"""The state of an adaptation, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from baryflow.estimators.adaptation import EXPERTS
from baryflow.estimators.decision import Decision
from baryflow.estimators.follower import STRANGE, Follower
from baryflow.estimators.history import History
from baryflow.estimators.mix import Mix

#: Rows of which a headline is told at least: the last batch of a file may have four.
_ENOUGH = 32
#: What each expert does, by its name.
EXPERT_WORDS = {
    "reconstruction": "the target rebuilt as a blend of the sources",
    "components": "groups of its rows, named by what they match",
    "pooled": "one classifier of all sources, for its mix",
    "own": "the same, each domain standardised by itself",
    "source": "one classifier of all sources, as it is",
}


def describe(
    classes: Any,
    sources: list[Any],
    decision: Decision,
    shares: Mapping[Any, float],
    mix: Mix | None,
) -> str:
    """Say what was learned from sources, what was decided, and what the target looks like.

    Parameters
    ----------
    classes, sources : array and list
        Their names.
    decision : Decision
    shares : mapping of source → float
        Which sources the target resembles; empty before the first row.
    mix : Mix, optional
        The classes of the target.
    """
    named = f"{'1 class' if len(classes) == 1 else f'{len(classes)} classes'}: "
    lines = [f"{_count_sources(sources)}. {named}{', '.join(map(str, classes))}."]
    if decision.adapts:
        lines.append(
            "Decision: adapt. Experts, each of which gives every class a probability, are averaged; "
            "their weights at the beginning of a stream, and once all classes were seen:"
        )
        lines += [
            f"  {EXPERT_WORDS[name]:<46} {first:5.0%} {last:5.0%}"
            for name, first, last in zip(
                (*EXPERTS, "source"), decision.beginning, (*decision.weights, 0.0), strict=True
            )
            if first > 0.0 or last > 0.0
        ]
    else:
        lines.append("Decision: do not adapt; predict with one classifier of all sources, as it is.")
    lines.append(f"Why: {decision.reason}.")
    if decision.plays:
        lines.append(
            "Each source in turn played a target without labels, the others taught; right answers while "
            "it flowed past once:"
        )
        lines += [
            f"  {name:<32} source classifier {before:6.1%}   adapted {after:6.1%}"
            for name, before, after in decision.plays
        ]
    if shares:
        nearest = sorted(shares.items(), key=lambda item: -item[1])
        words = ", ".join(f"{name}: {share:.0%}" for name, share in nearest if share >= 0.005)
        lines.append(
            f"The target resembles {words} (how much of each source is in it; shift and scale do not "
            "count)."
        )
    if mix is not None:
        lines.append(describe_mix(classes, mix))
    return "\n".join(lines)


def describe_mix(classes: Any, mix: Mix) -> str:
    """Say which classes a target holds, all of them by name."""
    if mix.as_usual and mix.gap == mix.doubt == mix.sampling == 0.0:
        return "Class mix: the shares of the classes are taken to be as usual; it was not estimated."
    found = f"by the votes of the source classifier they differ by {mix.gap:.0%} from the usual"
    reach = f"{mix.doubt + mix.sampling:.0%} can come from wrong votes and chance"
    if mix.as_usual:
        return f"Class mix: as usual (the shares of the classes: {found}; {reach})."
    order = np.argsort(-mix.shares, kind="stable")
    present = [i for i in order if mix.shares[i] >= 0.0005]
    absent = [str(classes[i]) for i in order if mix.shares[i] < 0.0005]
    words = ", ".join(f"{classes[i]}: {mix.shares[i]:.1%}" for i in present)
    if absent:
        words += f"; next to nothing of {', '.join(absent)}"
    return f"Class mix: {words} (the shares of the classes: {found}; {reach})."


def describe_stream(follower: Follower, faults: Mapping[Any, str]) -> str:
    """Say how far a stream has come, and what is wrong with its columns."""
    adaptation, adapts = follower.adaptation, follower.learned.decision.adapts
    lines = [f"{follower.n_rows} target rows seen; "]
    if adaptation is None or not adapts:
        lines[0] += "predictions are the source classifier's."
    else:
        lines[0] += f"{adaptation.seen:.0%} of the classes were seen (ten rows or more of each)."
    if len(follower.history):
        seen = ", times the share of classes seen" if adapts else ""
        last = look_back(follower.history)
        whose = "its" if last.alone else "their"
        lines.append(
            f"Reliability of {last.words}: {last.reliability:.0%} (how far to trust {whose} "
            f"predictions: how sure they are, times the share of rows that are not novel{seen})."
        )
        found = "of its rows" if last.alone else "of them"
        lines.append(
            f"Novelty of {last.words}: {last.novelty:.0%} {found} are novel (less like anything known "
            f"than {STRANGE:.0%} of the rows of sources)."
        )
    lines += [f"Column {name}: {fault}." for name, fault in faults.items()]
    return "\n".join(lines)


@dataclass(frozen=True)
class Recent:
    """How things stood lately: over the last batch if that is large enough, over more if not."""

    words: str
    reliability: float
    novelty: float
    alone: bool


def look_back(history: History) -> Recent:
    """Return reliability and novelty of the last batches that have some rows together.

    Parameters
    ----------
    history : History
        With a point at least. Of a long stream it has not every batch: those that it has count as
        much as the batches around them had rows on the mean.

    Returns
    -------
    Recent
    """
    sizes = np.diff(history.n_rows, prepend=0) / np.diff(history.update, prepend=-1)
    enough = np.flatnonzero(np.cumsum(sizes[::-1]) >= _ENOUGH)
    n = 1 + int(enough[0]) if len(enough) else len(history)
    before = int(history.n_rows[-n - 1]) if n < len(history) else 0
    n_rows, alone = int(history.n_rows[-1]) - before, n == 1 and len(enough) > 0
    weights = np.maximum(sizes[-n:], 1e-9)
    return Recent(
        words="the last batch" if alone else f"the last {n_rows:,} rows",
        reliability=float(np.average(history.reliability[-n:], weights=weights)),
        novelty=float(np.average(history.novelty[-n:], weights=weights)),
        alone=alone,
    )


def _count_sources(sources: list[Any]) -> str:
    if len(sources) == 1:
        return "One source (if its rows come from several, name the domain of each row when fitting)"
    return f"{len(sources)} sources: {', '.join(map(str, sources))}"
