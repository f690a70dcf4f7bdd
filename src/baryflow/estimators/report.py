"""The state of an adaptation, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from baryflow.estimators.adaptation import EXPERTS
from baryflow.estimators.decision import Decision
from baryflow.estimators.follower import Follower
from baryflow.estimators.mix import Mix

_EXPERTS = {
    "reconstruction": "the reconstruction of the target",
    "components": "its own components, labelled through the plan",
    "pooled": "the pooled source classifier, for its mix",
    "own": "the classifier of rows standardised by domain",
    "source": "the pooled source classifier as it is",
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
    lines = [f"{_count(len(sources), 'source')}, {_count(len(classes), 'class', 'classes')}."]
    if decision.adapts:
        lines.append(
            "Decision: adapt. Weights of the experts at the beginning, and with all classes seen:"
        )
        lines += [
            f"  {_EXPERTS[name]:<46} {first:5.0%} {last:5.0%}"
            for name, first, last in zip(
                (*EXPERTS, "source"), decision.beginning, (*decision.weights, 0.0), strict=True
            )
            if first > 0.0 or last > 0.0
        ]
        lines.append(
            "(An expert gives probabilities; their logarithms are averaged with these weights.)"
        )
    else:
        lines.append("Decision: do not adapt; predict with the pooled source classifier.")
    lines.append(f"Why: {decision.reason}.")
    if decision.plays:
        lines.append("Each source in turn played a target, seen once; right answers while it flowed:")
        lines += [
            f"  {name:<32} source classifier {before:6.1%}   adapted {after:6.1%}"
            for name, before, after in decision.plays
        ]
    if shares:
        nearest = sorted(shares.items(), key=lambda item: -item[1])
        words = ", ".join(f"{name}: {share:.0%}" for name, share in nearest if share >= 0.005)
        lines.append(f"The target resembles {words} (after standardisation).")
    if mix is not None:
        lines.append(describe_mix(classes, mix))
    return "\n".join(lines)


def describe_mix(classes: Any, mix: Mix) -> str:
    """Say which classes a target holds, all of them by name."""
    if mix.as_usual and mix.gap == mix.doubt == mix.sampling == 0.0:
        return "Class mix: taken to be as usual; it was not estimated."
    found = f"differs by {mix.gap:.0%} from the usual"
    reach = f"{mix.doubt + mix.sampling:.0%} can come from wrong votes and chance"
    if mix.as_usual:
        return f"Class mix: as usual (what the votes say {found}; {reach})."
    order = np.argsort(-mix.shares, kind="stable")
    present = [i for i in order if mix.shares[i] >= 0.0005]
    absent = [str(classes[i]) for i in order if mix.shares[i] < 0.0005]
    words = ", ".join(f"{classes[i]}: {mix.shares[i]:.1%}" for i in present)
    if absent:
        words += f"; next to nothing of {', '.join(absent)}"
    return f"Class mix: {words} ({found}; {reach})."


def describe_stream(follower: Follower, faults: Mapping[Any, str]) -> str:
    """Say how far a stream has come, and what is wrong with its columns."""
    adaptation = follower.adaptation
    words = f"{follower.n_rows} target rows seen; "
    if adaptation is None or not follower.learned.decision.adapts:
        words += "predictions are the source classifier's."
    else:
        words += f"{adaptation.seen:.0%} of the classes were seen (ten rows or more of each). "
        words += (
            f"Reliability of the last batch: {follower.reliability:.0%} (how sure the predictions are, "
            "times the share of rows that are like something known, times that of the classes seen)."
        )
    return words + "".join(f"\nColumn {name}: {fault}." for name, fault in faults.items())


def _count(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one}" if n == 1 else f"{n} {many or one + 's'}"
