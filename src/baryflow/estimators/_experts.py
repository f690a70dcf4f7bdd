"""The experts: one list of named entries. Each gives rows a log-probability of every class.

To add an expert, add an entry to :func:`list_experts`. Its weight is learned with all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np

from baryflow.core.mixture import Mixture
from baryflow.estimators._committee import FLOOR, not_adapting
from baryflow.estimators._explanations import Explanation
from baryflow.estimators._sources import SourceKnowledge
from baryflow.validation import Floats, Integers

#: Weight of an expert below which it is not asked: it adds less than 0.0001 to a logit.
_NEGLIGIBLE = 1e-5
#: Calibrations count as one if columns differ by less than this part of their spread, on average.
_ALIKE = 0.1


class Question:
    """Complete rows to classify under an explanation; what several experts need is computed once."""

    def __init__(
        self,
        sources: SourceKnowledge,
        explanation: Explanation,
        X: Floats,
        raw_logs: Floats | None,
        per_domain_logs: Floats | None = None,
    ) -> None:
        self.sources, self.explanation, self.X = sources, explanation, X
        self._raw_logs, self._per_domain_logs = raw_logs, per_domain_logs

    @cached_property
    def log_ratios(self) -> Floats:
        """What the class proportions add to log-probabilities of the plain classifiers.

        Half-way from the expected ones: the rows to come may differ.
        """
        prior = self.sources.model.expected_prior
        shares = 0.5 * (self.explanation.proportions + prior)
        if self.sources.user_prior:
            return self.sources.plain.prior_log_ratios(shares)
        return np.log(np.maximum(shares, FLOOR) / np.maximum(prior, FLOOR))

    @cached_property
    def raw_logs(self) -> Floats:
        """Log-probabilities of the plain classifiers on raw rows."""
        logs = self.sources.plain.raw_logs(self.X) if self._raw_logs is None else self._raw_logs
        return np.asarray(logs + self.log_ratios)

    @cached_property
    def per_domain_logs(self) -> Floats:
        """The same on rows standardised with the target's centre and scale."""
        one, found = self.explanation, self._per_domain_logs
        if found is None:
            found = self.sources.plain.per_domain_logs(self.X, one.centre, one.scale)
        return np.asarray(found + self.log_ratios)

    @cached_property
    def view_rows(self) -> Floats:
        """Rows in the discriminant view."""
        one = self.explanation
        return self.sources.model.project(self.X, one.centre, one.scale)


def unadapted_logits(sources: SourceKnowledge, X: Floats, raw_logs: Floats | None = None) -> Floats:
    """Return the logits of complete rows by the plain classifiers on raw rows."""
    logs = sources.plain.raw_logs(X) if raw_logs is None else raw_logs
    logits = not_adapting(sources.committee.raw, logs)
    if sources.user_prior:
        logits = logits + sources.plain.prior_log_ratios(sources.model.expected_prior)
    return logits


@dataclass(frozen=True)
class Expert:
    """One that gives rows a log-probability of every class."""

    name: str
    description: str
    log_proba: Callable[[Question], Floats]


_TITLES = {
    "linear": "logistic regression",
    "kernel": "RBF support vector machine",
    "trees": "extremely randomised trees",
}


@lru_cache(maxsize=32)
def list_experts(names: tuple[str, ...]) -> tuple[Expert, ...]:
    """Return all experts with plain classifiers of these names; those on raw rows come first."""
    titles = [_TITLES.get(name, name) for name in names]
    experts = [
        Expert(name, f"{title} on raw rows", partial(_raw, number))
        for number, (name, title) in enumerate(zip(names, titles, strict=True))
    ]
    experts += [
        Expert(f"{name}, per domain", f"{title}, each domain standardised", partial(_per_domain, number))
        for number, (name, title) in enumerate(zip(names, titles, strict=True))
    ]
    experts += [
        Expert("reconstruction", "the target's reconstruction from the atoms", _reconstruction),
        Expert("components", "target components, labelled through the transport plan", _components),
    ]
    return tuple(experts)


def describe_experts(sources: SourceKnowledge) -> dict[str, str]:
    """Return what each expert of a committee is, by its name."""
    known = {one.name: one.description for one in list_experts(sources.plain.names)}
    return {name: known[name] for name in sources.committee.experts}


def expert_logs(
    sources: SourceKnowledge,
    explanation: Explanation,
    X: Floats,
    raw_logs: Floats | None = None,
    per_domain_logs: Floats | None = None,
) -> Floats:
    """Return the log-probabilities of all experts, shape (n_experts, n, n_classes).

    `raw_logs` and `per_domain_logs` are those of the plain classifiers, if they are known.
    """
    question = Question(sources, explanation, X, raw_logs, per_domain_logs)
    return np.stack([expert.log_proba(question) for expert in list_experts(sources.plain.names)])


def ask_together(
    sources: SourceKnowledge, explanations: Sequence[Explanation], X: Floats
) -> Floats | None:
    """Ask the classifiers per domain about rows under several explanations at once.

    Shape (n_explanations, n_classifiers, n, n_classes). Classifiers that hardly count in the committee
    are not asked: zeros. Explanations with hardly another calibration are asked once: their class
    proportions, which differ, come on top.
    """
    if not explanations:
        return None
    plain, like = sources.plain, _find_alike(explanations)
    asked = [explanations[i] for i in np.unique(like).tolist()]
    Z = plain.reduce(np.concatenate([(X - one.centre) / one.scale for one in asked]))
    n = len(plain.names)
    tables = np.zeros((n, len(Z), sources.model.n_classes))
    for number in np.flatnonzero(sources.committee.weights[n : 2 * n] > _NEGLIGIBLE).tolist():
        tables[number] = np.log(plain.per_domain[number].proba(Z) + FLOOR)
    found = tables.reshape(n, len(asked), len(X), -1).swapaxes(0, 1)
    return found[np.searchsorted(np.unique(like), like)]


def _find_alike(explanations: Sequence[Explanation]) -> Integers:
    """Return for each explanation the number of the first one with hardly another calibration."""
    like = list[int]()
    for i, one in enumerate(explanations):
        before = [j for j in sorted(set(like)) if _are_alike(explanations[j], one)]
        like.append(before[0] if before else i)
    return np.array(like, dtype=np.intp)


def _are_alike(first: Explanation, other: Explanation) -> bool:
    offset, gain = (other.centre - first.centre) / first.scale, np.log(other.scale / first.scale)
    return bool(max(np.square(offset).mean(), np.square(gain).mean()) < _ALIKE**2)


def _raw(number: int, question: Question) -> Floats:
    return np.asarray(question.raw_logs[number])


def _per_domain(number: int, question: Question) -> Floats:
    return np.asarray(question.per_domain_logs[number])


def _reconstruction(question: Question) -> Floats:
    return _log_proba(question.explanation.reconstruction, question.view_rows)


def _components(question: Question) -> Floats:
    return _log_proba(question.explanation.labelled, question.view_rows)


def _log_proba(mixture: Mixture | None, Z: Floats) -> Floats:
    if mixture is None:
        raise ValueError("not adapting has no mixtures of the target")
    return np.log(mixture.predict_proba(Z) + FLOOR)
