"""The weights of the experts, how they are learned, and how far their predictions can be relied on.

Under one explanation of a target the committee adds the experts' log-probabilities, each times its
weight. Another set of weights, of the plain classifiers on raw rows alone, is what "not adapting" means.

A committee that was learned on left-out sources is as sure of its predictions as these sources justify.
A target may be easier or harder. How far the experts agree about its rows tells which: the calibration
learns how sure to be at which agreement, from left-out sources and from rows held out of other sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import expit, logit

from baryflow.core.logs import log_softmax, logsumexp
from baryflow.estimators._classifiers import softmax
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans, Floats, Integers

#: Added to probabilities before the logarithm, so that no expert can veto a class on its own.
FLOOR = 1e-3
#: Penalty on the squared distance of normalised weights from even ones.
_SHRINKAGE = 0.3
#: Values of the parameter `adapt`.
STANDARDISE = "standardise"
WAYS = (True, STANDARDISE, False)


@dataclass(frozen=True, eq=False)
class Committee:
    """Who predicts, and with which weight.

    Attributes
    ----------
    experts : tuple of str
        Names, in the order of the weights.
    adapts : bool
        If not, the plain classifiers on raw rows predict.
    raw : array of shape (n_classifiers,)
        Weights of the plain classifiers on raw rows, if these alone predict.
    weights : array of shape (n_experts,)
    explains : bool
        If not, class proportions are taken to be as expected, and there is no other explanation.
    reason : str
        Why it adapts or does not.
    accuracy : array of shape (n_experts,)
        Of each expert on left-out sources whose class proportions are known; empty without
        leave-one-source-out.
    scores : tuple of (str, float, float)
        Kind of stream, accuracy of not adapting and of adapting, on left-out sources. Each is measured
        with what the other sources taught.
    """

    experts: tuple[str, ...]
    adapts: bool
    raw: Floats
    weights: Floats
    explains: bool = True
    reason: str = ""
    accuracy: Floats = field(default_factory=lambda: np.zeros(0))
    scores: tuple[tuple[str, float, float], ...] = ()

    def __post_init__(self) -> None:
        weights = self.weights
        fits = weights.shape == (len(self.experts),)
        if not fits or not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError("weights must hold a weight for each of the experts")

    @classmethod
    def even(cls, experts: Sequence[str], n_raw: int, reason: str, *, adapts: bool = True) -> Self:
        """Return a committee in which all experts count the same, the first `n_raw` on raw rows."""
        n, raw = len(experts), np.full(n_raw, 1.0 / max(n_raw, 1))
        return cls(tuple(experts), adapts, raw, np.full(n, 1.0 / n), reason=reason)

    def limit(self, adapt: bool | str) -> Self:
        """Return a committee that adapts in one of the ways that the parameter `adapt` has.

        If it only standardises, the plain classifiers per domain count the same, and the expected class
        proportions are the only explanation.
        """
        if adapt is True:
            return self
        if adapt is False:
            return replace(self, adapts=False, reason="adapting was switched off")
        n, weights = len(self.raw), np.zeros(len(self.experts))
        # As sharp as all experts together are.
        weights[n : 2 * n] = self.weights.sum() / n
        reason = (
            "each domain is standardised by its own mean and deviation, and nothing else, as requested"
        )
        return replace(self, adapts=True, weights=weights, explains=False, reason=reason, scores=())


def check_way(adapt: Any) -> bool | str:
    """Return one of the ways to adapt; refuse anything else."""
    if not any(adapt is way or (isinstance(adapt, str) and adapt == way) for way in WAYS):
        raise InvalidInputError(f"adapt must be True, {STANDARDISE!r} or False, got {adapt!r}")
    return adapt  # type: ignore[no-any-return]


def not_adapting(raw: Floats, logs: Floats) -> Floats:
    """Return the weighted log-probabilities of the plain classifiers on raw rows, which come first."""
    return np.asarray(np.tensordot(raw, logs[: len(raw)], 1))


def combine(logits: Floats) -> Floats:
    """Return probabilities from weighted sums of log-probabilities."""
    return softmax(logits)


class Trial(NamedTuple):
    """What was said of rows of a left-out source, after some of its rows were seen."""

    fold: int
    stream: str  # kind of stream
    true_logs: Floats  # of the experts, given the true class proportions: (n_experts, n, n_classes)
    log_weights: Floats  # of the explanations
    logs: tuple[Floats | None, ...]  # of the experts under each; None for not adapting
    unadapted: Floats  # logits of not adapting
    agreements: Floats  # how often two experts agree about the rows seen, (n_experts, n_experts)
    codes: Integers  # true classes

    def explain(self, weights: Floats) -> Floats:
        """Return log-probabilities under each explanation, by experts with these weights."""
        logits = [self.unadapted if one is None else np.tensordot(weights, one, 1) for one in self.logs]
        return np.asarray(log_softmax(np.stack(logits), axis=2))


def learn_committee(committee: Committee, trials: list[Trial]) -> tuple[Committee, list[Floats]]:
    """Learn the weights of the experts from trials with known class proportions.

    Also returns the logits of each trial by weights that were learned on other folds.
    """

    def learn(some: list[Trial]) -> Floats:
        return learn_weights([(trial.true_logs, trial.codes) for trial in some])

    apart = {}
    for fold in sorted({trial.fold for trial in trials}):
        apart[fold] = learn([trial for trial in trials if trial.fold != fold] or trials)
    logits = [mix_explanations(apart[trial.fold], trial) for trial in trials]
    weights = learn(trials)
    whole = [trial for trial in trials if trial.stream == trials[0].stream]
    accuracy = [(trial.true_logs.argmax(axis=2) == trial.codes).mean(axis=1) for trial in whole]
    found = replace(
        committee,
        weights=weights,
        accuracy=np.mean(accuracy, axis=0),
        scores=_score(trials, logits),
        reason="explanations of the target, not adapting among them, are weighed by evidence",
    )
    return found, logits


def mix_explanations(weights: Floats, trial: Trial) -> Floats:
    """Return the logarithms of the predicted probabilities, averaged over explanations."""
    prior = log_softmax(trial.log_weights)
    return np.asarray(logsumexp(prior[:, None, None] + trial.explain(weights), axis=0))


def _score(trials: list[Trial], logits: list[Floats]) -> tuple[tuple[str, float, float], ...]:
    """Return the accuracy of not adapting and of adapting in each kind of stream."""
    scores = []
    for stream in dict.fromkeys(trial.stream for trial in trials):
        pairs = [(t, one) for t, one in zip(trials, logits, strict=True) if t.stream == stream]
        before = [(t.unadapted.argmax(axis=1) == t.codes).mean() for t, _ in pairs]
        after = [(one.argmax(axis=1) == t.codes).mean() for t, one in pairs]
        scores.append((stream, float(np.mean(before)), float(np.mean(after))))
    return tuple(scores)


def learn_weights(tables: list[tuple[Floats, Integers]]) -> Floats:
    """Minimise the mean negative log-likelihood of Σ weight · log-probability, weights not negative.

    The penalty draws the normalised weights towards even ones.
    """
    from scipy.optimize import minimize

    n = len(tables[0][0])
    even = np.full(n, 1.0 / n)

    def cost(weights: Floats) -> tuple[float, Floats]:
        whole = weights.sum()
        gap = weights / whole - even
        value = _SHRINKAGE * float(gap @ gap)
        slope = 2.0 * _SHRINKAGE * (gap / whole - (gap @ weights) / whole**2)
        for logs, codes in tables:
            found, gradient = _likelihood(np.tensordot(weights, logs, 1), logs, codes)
            value, slope = value + found / len(tables), slope + gradient / len(tables)
        return value, slope

    bounds, options = [(1e-6, None)] * n, {"maxiter": 150}
    start = even + 1e-3
    found = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return np.asarray(found.x)


def _likelihood(logits: Floats, logs: Floats, codes: Integers) -> tuple[float, Floats]:
    """Return the mean negative log-likelihood, and its gradient by the weights of the logs."""
    scores, rows = log_softmax(logits, axis=1), np.arange(len(codes))
    gradient = -(logs[:, rows, codes] - (np.exp(scores) * logs).sum(axis=2)).mean(axis=1)
    return -float(scores[rows, codes].mean()), gradient


# -- calibrated probabilities, and an estimate of the accuracy --------------------------------------

#: Penalty on the squared coefficients: without evidence the probabilities of the committee stay.
_CALIBRATION_SHRINKAGE = 0.01
#: Agreement is taken to be no closer to 0 and 1 than this.
_MARGIN = 0.02
#: Rows that the estimate of the accuracy is worth beside labelled rows, at least and at most.
_WORTH = (5.0, 200.0)


@dataclass(frozen=True, eq=False)
class Calibration:
    """By how much the logits of a committee are multiplied; predicted classes do not change.

    Attributes
    ----------
    coefficients : array of shape (2,)
        Of the logarithm of the factor: constant, and logit of the agreement between experts.
    range : array of shape (2,)
        Smallest and largest logit of the agreement in the trials; others count as the nearest of them.
    worth : float
        How many labelled rows the estimated accuracy is worth.
    """

    coefficients: Floats
    range: Floats
    worth: float

    @classmethod
    def none(cls) -> Self:
        """Return a calibration that changes nothing."""
        return cls(np.zeros(2), np.zeros(2), _WORTH[0])

    def factor(self, agreement: float) -> float:
        """Return by how much to multiply logits at this agreement between experts."""
        evidence = np.clip(_logit(agreement), *self.range)
        return float(np.exp(self.coefficients[0] + self.coefficients[1] * evidence))

    def estimate(
        self, highest: Floats, novel: Booleans, allowed: float, right: Booleans | None = None
    ) -> float:
        """Return the estimated share of rows for which the most probable class is right.

        Parameters
        ----------
        highest : array of shape (n,)
            The calibrated probability of each row's predicted class.
        novel : array of shape (n,)
            Rows that are unlike everything known: their predictions are taken to be wrong.
        allowed : float
            Share of rows that are called novel by chance.
        right : array of bool, optional
            Whether predictions for labelled rows were right, made before their labels were known.
        """
        if not len(novel):
            return 0.0
        known = 1.0 - max(0.0, float(novel.mean()) - allowed) / (1.0 - allowed)
        found = float(highest[~novel].mean() if not novel.all() else highest.mean())
        if right is not None and len(right):
            found = (self.worth * found + float(right.sum())) / (self.worth + len(right))
        return known * found


def measure_agreement(agreements: Floats, weights: Floats) -> float:
    """Return how often two experts agree, drawn by their weights, from how often each two do."""
    weights = weights / weights.sum()
    same = float(weights @ weights)
    if same >= 1.0 - 1e-9:
        return 1.0
    return float((weights @ agreements @ weights - same) / (1.0 - same))


class Prediction(NamedTuple):
    """What was predicted of rows of a left-out source."""

    agreement: float  # between the experts, about the rows seen
    logits: Floats
    codes: Integers  # true classes


def learn_calibration(groups: Sequence[Sequence[Prediction]]) -> Calibration:
    """Learn how sure to be at which agreement; groups of predictions count the same.

    The coefficients minimise the negative log-likelihood of the true classes plus a penalty. More
    agreement never makes less sure.
    """
    from scipy.optimize import minimize

    groups = [group for group in groups if group]
    cases = [
        (_logit(agreement), logits, codes, 1.0 / (len(group) * len(groups)))
        for group in groups
        for agreement, logits, codes in group
    ]

    def cost(coefficients: Floats) -> tuple[float, Floats]:
        value = _CALIBRATION_SHRINKAGE * float(coefficients @ coefficients)
        slope = 2.0 * _CALIBRATION_SHRINKAGE * coefficients
        for evidence, logits, codes, weight in cases:
            rows, design = np.arange(len(codes)), np.array([1.0, evidence])
            factor = np.exp(coefficients @ design)
            scores = log_softmax(factor * logits, axis=1)
            gain = logits[rows, codes] - (np.exp(scores) * logits).sum(axis=1)
            value -= weight * float(scores[rows, codes].mean())
            slope = slope - weight * factor * float(gain.mean()) * design
        return value, slope

    bounds = [(-5.0, 5.0), (0.0, 3.0)]
    found = minimize(cost, np.zeros(2), jac=True, method="L-BFGS-B", bounds=bounds).x
    seen = np.array([case[0] for case in cases])
    calibration = Calibration(np.asarray(found), np.array([seen.min(), seen.max()]), _WORTH[0])
    return Calibration(calibration.coefficients, calibration.range, _measure_worth(calibration, cases))


def _measure_worth(
    calibration: Calibration, cases: Sequence[tuple[float, Floats, Integers, float]]
) -> float:
    """Return how many labelled rows would be as far from the accuracy of trials as the estimate is."""
    errors, variances = [], []
    for evidence, logits, codes, _ in cases:
        probabilities = combine(calibration.factor(float(expit(evidence))) * logits)
        found = float(probabilities.max(axis=1).mean())
        errors.append((found - float((logits.argmax(axis=1) == codes).mean())) ** 2)
        variances.append(found * (1.0 - found))
    return float(np.clip(np.mean(variances) / max(float(np.mean(errors)), 1e-9), *_WORTH))


def _logit(agreement: float) -> float:
    return float(logit(np.clip(agreement, _MARGIN, 1.0 - _MARGIN)))
