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
    """Complete rows to classify under explanations; what several experts need is computed once.

    With `everyone` also classifiers that hardly count in the committee are asked.
    """

    def __init__(
        self,
        sources: SourceKnowledge,
        explanations: Sequence[Explanation],
        X: Floats,
        raw_logs: Floats | None,
        *,
        everyone: bool,
    ) -> None:
        self.sources, self.explanations, self.X = sources, explanations, X
        self._raw_logs, self._everyone = raw_logs, everyone

    @cached_property
    def log_ratios(self) -> Floats:
        """What the class proportions add to log-probabilities, shape (n_explanations, 1, n_classes).

        Half-way from the expected ones: the rows to come may differ.
        """
        prior = self.sources.model.expected_prior
        shares = 0.5 * (np.stack([one.proportions for one in self.explanations]) + prior)
        if self.sources.user_prior:
            return self.sources.plain.prior_log_ratios(shares)[:, None]
        return np.log(np.maximum(shares, FLOOR) / np.maximum(prior, FLOOR))[:, None]

    @cached_property
    def raw_logs(self) -> Floats:
        """Log-probabilities by plain classifiers of raw rows, shape (n_classifiers, n, n_classes)."""
        return self.sources.plain.raw_logs(self.X) if self._raw_logs is None else self._raw_logs

    @cached_property
    def per_domain_logs(self) -> Floats:
        """The same on rows standardised as each explanation has it, with its number as second index.

        Classifiers are asked once for all explanations, and once for those with hardly another
        calibration. Those that are not asked have zeros.
        """
        plain, like = self.sources.plain, _find_alike(self.explanations)
        asked, which = np.unique(like, return_inverse=True)
        distinct = [self.explanations[i] for i in asked.tolist()]
        Z = plain.reduce(np.concatenate([(self.X - one.centre) / one.scale for one in distinct]))
        n = len(plain.names)
        tables = np.zeros((n, len(Z), self.sources.model.n_classes))
        counts = self.sources.committee.weights[n : 2 * n] > _NEGLIGIBLE
        for number in np.flatnonzero(counts | self._everyone).tolist():
            tables[number] = np.log(plain.per_domain[number].proba(Z) + FLOOR)
        return tables.reshape(n, len(distinct), len(self.X), -1)[:, which]

    @cached_property
    def view_rows(self) -> list[Floats]:
        """Rows in the discriminant view of each explanation."""
        model = self.sources.model
        return [model.project(self.X, one.centre, one.scale) for one in self.explanations]


def unadapted_logits(sources: SourceKnowledge, X: Floats, raw_logs: Floats | None = None) -> Floats:
    """Return the logits of complete rows by the plain classifiers on raw rows."""
    logs = sources.plain.raw_logs(X) if raw_logs is None else raw_logs
    logits = not_adapting(sources.committee.raw, logs)
    if sources.user_prior:
        logits = logits + sources.plain.prior_log_ratios(sources.model.expected_prior)
    return logits


@dataclass(frozen=True)
class Expert:
    """One that gives rows a log-probability of every class.

    Its function returns them under each explanation, shape (n_explanations, n, n_classes).
    """

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
    explanations: Sequence[Explanation],
    X: Floats,
    raw_logs: Floats | None = None,
    *,
    everyone: bool = True,
) -> Floats:
    """Return the log-probabilities of all experts, shape (n_explanations, n_experts, n, n_classes).

    Explanations must adapt. `raw_logs` are those of the plain classifiers on raw rows, if known.
    Without `everyone` classifiers per domain that hardly count in the committee are not asked.
    """
    question = Question(sources, explanations, X, raw_logs, everyone=everyone)
    return np.stack([one.log_proba(question) for one in list_experts(sources.plain.names)], axis=1)


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
    return np.asarray(question.raw_logs[number] + question.log_ratios)


def _per_domain(number: int, question: Question) -> Floats:
    return np.asarray(question.per_domain_logs[number] + question.log_ratios)


def _reconstruction(question: Question) -> Floats:
    return _log_proba([one.reconstruction for one in question.explanations], question.view_rows)


def _components(question: Question) -> Floats:
    return _log_proba([one.labelled for one in question.explanations], question.view_rows)


def _log_proba(mixtures: Sequence[Mixture | None], rows: Sequence[Floats]) -> Floats:
    found = []
    for mixture, Z in zip(mixtures, rows, strict=True):
        if mixture is None:
            raise ValueError("not adapting has no mixtures of the target")
        found.append(mixture.predict_proba(Z))
    return np.log(np.stack(found) + FLOOR)
