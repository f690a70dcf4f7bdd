"""The experts: one list of named entries. Each gives rows a log-probability of every class.

To add an expert, add an entry to :func:`list_experts`. Its weight is learned with all others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np

from baryflow.core.mixture import Mixture
from baryflow.estimators._committee import FLOOR, combine, not_adapting
from baryflow.estimators._fit_dictionary import Hypothesis
from baryflow.estimators._sources import PlainClassifiers, SourceKnowledge
from baryflow.validation import Floats


class Question:
    """Complete rows to classify under a hypothesis; what several experts need is computed once."""

    def __init__(
        self,
        knowledge: SourceKnowledge,
        hypothesis: Hypothesis,
        X: Floats,
        raw_logs: Floats | None = None,
    ) -> None:
        self.knowledge, self.hypothesis, self.X = knowledge, hypothesis, X
        if raw_logs is not None:
            self.__dict__["raw_logs"] = raw_logs

    @property
    def plain(self) -> PlainClassifiers:
        """The plain classifiers."""
        if self.knowledge.plain is None:
            raise ValueError("a model made from mixtures has no plain classifiers")
        return self.knowledge.plain

    @cached_property
    def raw_logs(self) -> Floats:
        """Log-probabilities of the plain classifiers on raw rows, as trained."""
        return self.plain.raw_logs(self.X)

    @cached_property
    def per_domain_logs(self) -> Floats:
        """The same on rows standardised with the target's moments."""
        view = self.hypothesis.view
        return self.plain.per_domain_logs(self.X, view.centre, view.scale)

    @cached_property
    def view_rows(self) -> Floats:
        """Rows in the discriminant view."""
        return self.hypothesis.view.project(self.X)

    @cached_property
    def stacked_rows(self) -> Floats:
        """Rows in the view of the stacked space."""
        if self.hypothesis.stacked is None:
            raise ValueError("there is no stacked space")
        return self.hypothesis.stacked.project(self.plain.stack(self.raw_logs, self.per_domain_logs))

    def not_adapting(self) -> Floats:
        """Return the probabilities of the plain classifiers on raw rows."""
        return predict_not_adapting(self.knowledge, self.X, self.raw_logs)


def predict_not_adapting(
    knowledge: SourceKnowledge, X: Floats, raw_logs: Floats | None = None
) -> Floats:
    """Return the class probabilities of complete rows by the plain classifiers on raw rows."""
    plain = knowledge.plain
    if plain is None:
        raise ValueError("a model made from mixtures has no plain classifiers")
    logs = plain.raw_logs(X) if raw_logs is None else raw_logs
    logits = not_adapting(knowledge.committee.raw, logs)
    if knowledge.user_prior:
        logits = logits + plain.prior_log_ratios(knowledge.model.expected_prior)
    return combine(logits)


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


def list_experts(plain: PlainClassifiers | None, *, stacked: bool) -> tuple[Expert, ...]:
    """Return all experts; plain classifiers on raw rows come first."""
    return _list_experts(None if plain is None else plain.names, stacked)


@lru_cache(maxsize=32)
def _list_experts(names: tuple[str, ...] | None, stacked: bool) -> tuple[Expert, ...]:
    view = [
        Expert("reconstruction", "the target's reconstruction from the atoms", _reconstruction),
        Expert("components", "target components, labelled through the transport plan", _components),
    ]
    if names is None:
        return tuple(view)
    titles = [_TITLES.get(name, name) for name in names]
    experts = [
        Expert(name, f"{title} on raw rows", partial(_raw, number))
        for number, (name, title) in enumerate(zip(names, titles, strict=True))
    ]
    experts += [
        Expert(f"{name}, per domain", f"{title}, each domain standardised", partial(_per_domain, number))
        for number, (name, title) in enumerate(zip(names, titles, strict=True))
    ]
    experts += view
    if stacked:
        experts += [
            Expert(f"{one.name}, stacked", f"{one.description}, in the stacked space", log_proba)
            for one, log_proba in zip(view, (_stacked_reconstruction, _stacked_components), strict=True)
        ]
    return tuple(experts)


def describe_experts(knowledge: SourceKnowledge) -> dict[str, str]:
    """Return what each expert of a committee is, by its name."""
    names, stacked = knowledge.committee.experts, knowledge.stacked is not None
    known = {one.name: one.description for one in list_experts(knowledge.plain, stacked=stacked)}
    return {name: known[name] for name in names}


def expert_logs(question: Question) -> Floats:
    """Return the log-probabilities of all experts, shape (n_experts, n, n_classes)."""
    knowledge = question.knowledge
    experts = list_experts(knowledge.plain, stacked=knowledge.stacked is not None)
    return np.stack([expert.log_proba(question) for expert in experts])


def _raw(number: int, question: Question) -> Floats:
    return np.asarray(question.raw_logs[number] + question.hypothesis.raw_log_ratios)


def _per_domain(number: int, question: Question) -> Floats:
    return np.asarray(question.per_domain_logs[number] + question.hypothesis.log_ratios)


def _reconstruction(question: Question) -> Floats:
    return _log_proba(question.hypothesis.view.reconstruction, question.view_rows)


def _components(question: Question) -> Floats:
    return _log_proba(question.hypothesis.view.labelled, question.view_rows)


def _stacked_reconstruction(question: Question) -> Floats:
    stacked = question.hypothesis.stacked
    return _log_proba(stacked.reconstruction, question.stacked_rows)  # type: ignore[union-attr]


def _stacked_components(question: Question) -> Floats:
    stacked = question.hypothesis.stacked
    return _log_proba(stacked.labelled, question.stacked_rows)  # type: ignore[union-attr]


def _log_proba(mixture: Mixture, Z: Floats) -> Floats:
    return np.log(mixture.predict_proba(Z) + FLOOR)
