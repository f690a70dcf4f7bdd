"""The weights of the experts, and how they are learned from predictions for rows with known classes.

The committee adds the experts' log-probabilities, each times its weight. There are two sets of weights:
the usual ones, and those for a target with label shift. A third, of the plain classifiers on raw rows
alone, is what "not adapting" means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import expit, log_softmax

from baryflow.estimators._classifiers import softmax
from baryflow.validation import Floats, Integers

#: Added to probabilities before the logarithm, so that no expert can veto a class on its own.
FLOOR = 1e-3
#: Penalty on the squared distance of normalised weights from the weights they start at.
_SHRINKAGE = 0.3
#: Where the belief in a label shift starts: the logit is −1 plus the improvement of the fit, in standard
#: deviations of what streams without a shift show. The penalty on the squared distance from that.
_BELIEF_START, _BELIEF_SHRINKAGE = (-1.0, 1.0), 0.003
#: The same without leave-one-source-out, with the improvement as it is.
_UNTESTED_BELIEF = (-3.0, 2.0)
#: Smallest standard deviation of the improvement: few streams without a shift may show none.
_LEAST_SPREAD = 0.1
#: From this size on, in total variation, the weights for label shift count fully.
_LARGE_SHIFT = 1.0 / 3.0
#: Streams without label shift are taken to be three times as frequent as those with one.
_NO_SHIFT = 3.0
#: Adapting must lose more than this on left-out sources, in accuracy and as a part of the errors, before
#: it is switched off: a left-out source may be farther from the others than a target is.
_POINT, _PART = 0.01, 0.05


@dataclass(frozen=True, eq=False)
class Committee:
    """Who predicts, and with which weight.

    Attributes
    ----------
    experts : tuple of str
        Names, in the order of all weights.
    adapts : bool
        If not, the plain classifiers on raw rows predict.
    raw : array of shape (n_classifiers,)
        Weights of the plain classifiers on raw rows, if these alone predict.
    usual : array of shape (n_experts,)
        Weights without label shift.
    shifted : array of shape (n_experts,)
        Weights for a target with a large label shift; those for a smaller one are interpolated.
    trust : float
        How far estimated class proportions are right, 0 to 1.
    belief : array of shape (2,)
        Coefficients of the belief in a label shift: constant, improvement of the fit.
    reason : str
        Why it adapts or does not.
    accuracy : array of shape (n_experts,)
        Of each expert on left-out sources, at the end; empty without leave-one-source-out.
    scores : tuple of (str, float, float)
        Kind of stream, accuracy of not adapting and of adapting, on left-out sources.
    """

    experts: tuple[str, ...]
    adapts: bool
    raw: Floats
    usual: Floats
    shifted: Floats
    belief: Floats
    trust: float = 1.0
    reason: str = ""
    accuracy: Floats = field(default_factory=lambda: np.zeros(0))
    scores: tuple[tuple[str, float, float], ...] = ()

    def __post_init__(self) -> None:
        for name in ("usual", "shifted"):
            weights = getattr(self, name)
            if (
                weights.shape != (len(self.experts),)
                or not (np.isfinite(weights) & (weights >= 0)).all()
            ):
                raise ValueError(f"{name} must hold a weight for each of the experts")
        if self.belief.shape != (len(_BELIEF_START),):
            raise ValueError("belief must hold two coefficients")

    @classmethod
    def even(cls, experts: Sequence[str], n_raw: int, reason: str, *, adapts: bool = True) -> Self:
        """Return a committee in which all experts count the same, the first `n_raw` on raw rows."""
        n = len(experts)
        even = on_raw = np.full(n, 1.0 / n)
        if 0 < n_raw < n:
            on_raw = np.where(np.arange(n) < n_raw, 1.0 / n_raw, 0.0)
        raw, belief = np.full(n_raw, 1.0 / max(n_raw, 1)), np.array(_UNTESTED_BELIEF)
        return cls(tuple(experts), adapts, raw, even, (on_raw + even) / 2.0, belief, reason=reason)

    def weights(self, shift: float) -> Floats:
        """Return the weights for a label shift of this size."""
        share = shift_share(shift)
        return (1.0 - share) * self.usual + share * self.shifted

    def believe(self, size: float, improvement: float, evidence: float = 0.0) -> float:
        """Return how far to believe a label shift: not at all if chance explains its size.

        `evidence` is added to the logit.
        """
        if size <= 0.0:
            return 0.0
        return float(expit(self.belief[0] + self.belief[1] * improvement + evidence))


def shift_share(size: float) -> float:
    """Return the share of the weights for label shift in those for a shift of this size."""
    return min(1.0, size / _LARGE_SHIFT)


def not_adapting(raw: Floats, logs: Floats) -> Floats:
    """Return the weighted log-probabilities of the plain classifiers on raw rows, which come first."""
    return np.asarray(np.tensordot(raw, logs[: len(raw)], 1))


def combine(logits: Floats) -> Floats:
    """Return probabilities from weighted sums of log-probabilities."""
    return softmax(logits)


class Trial(NamedTuple):
    """What the experts said of rows of a left-out source, after some of its rows were seen."""

    stream: str  # kind of stream
    shifted: bool  # its class proportions are not the source's own
    logs: Floats  # log-probabilities assuming no label shift, (n_experts, n, n_classes)
    shifted_logs: Floats  # assuming the estimated one
    size: float  # of the label shift found
    improvement: float  # of the fit if it is assumed
    agreements: Floats  # how often two experts agree about the rows seen, (n_experts, n_experts)
    codes: Integers  # true classes


def learn_raw_weights(tables: list[tuple[Floats, Integers]]) -> Floats:
    """Return the weights of the plain classifiers on raw rows that maximise the likelihood."""
    n = len(tables[0][0])
    return _learn_weights(tables, np.full(n, 1.0 / n))


def learn_committee(committee: Committee, trials: list[Trial]) -> Committee:
    """Learn all weights from trials; `committee` holds those to shrink towards.

    The weights minimise the negative log-likelihood plus a penalty for leaving their start: even
    weights; under label shift, half of these and half the plain classifiers on raw rows. The belief in
    a shift is learned with these weights.
    """
    usual = [trial for trial in trials if not trial.shifted]
    shifted = [trial for trial in trials if trial.shifted]
    whole = [trial for trial in usual if trial.stream == usual[0].stream]
    found = _learn_weights([(t.logs, t.codes) for t in usual], committee.usual)
    committee = replace(committee, usual=found)
    if shifted:
        plain = replace(committee, shifted=np.zeros(len(committee.experts)))
        tables = [(shift_share(t.size) * t.shifted_logs, t.codes) for t in shifted]
        offsets = [np.tensordot(plain.weights(t.size), t.shifted_logs, 1) for t in shifted]
        committee = replace(committee, shifted=_learn_weights(tables, committee.shifted, offsets))
        committee = replace(committee, belief=_learn_belief(committee, usual, shifted))
    accuracy = np.mean([(t.logs.argmax(axis=2) == t.codes).mean(axis=1) for t in whole], axis=0)
    return _decide(replace(committee, accuracy=accuracy), trials)


def _decide(committee: Committee, trials: list[Trial]) -> Committee:
    """Decide whether to adapt, from the accuracy in each kind of stream."""
    scores = []
    for stream in dict.fromkeys(trial.stream for trial in trials):
        mine = [trial for trial in trials if trial.stream == stream]
        without = [_accuracy(not_adapting(committee.raw, trial.logs), trial) for trial in mine]
        adapted = [_accuracy(np.add(*_two(committee, trial)), trial) for trial in mine]
        scores.append((stream, float(np.mean(without)), float(np.mean(adapted))))
    before = float(np.mean([score[1] for score in scores]))
    after = float(np.mean([score[2] for score in scores]))
    adapts = bool(after >= before - max(_POINT, _PART * (1.0 - before)))
    reason = "in leave-one-source-out tests adapting was as accurate as not adapting, or better"
    if not adapts:
        reason = "in leave-one-source-out tests adapting was less accurate than not adapting"
    return replace(committee, adapts=adapts, reason=reason, scores=tuple(scores))


def _accuracy(logits: Floats, trial: Trial) -> float:
    return float((logits.argmax(axis=1) == trial.codes).mean())


def committee_logits(committee: Committee, trial: Trial) -> Floats:
    """Return the logits of the committee for the rows of a trial, if it adapts or not."""
    if not committee.adapts:
        return not_adapting(committee.raw, trial.logs)
    return np.asarray(np.add(*_two(committee, trial)))


def _two(committee: Committee, trial: Trial) -> tuple[Floats, Floats]:
    """Return the logits without and with the shift, each times how far it is believed."""
    belief = committee.believe(trial.size, trial.improvement)
    usual = np.tensordot(committee.usual, trial.logs, 1)
    weights = committee.weights(trial.size)
    return (1.0 - belief) * usual, belief * np.tensordot(weights, trial.shifted_logs, 1)


def _learn_weights(
    tables: list[tuple[Floats, Integers]], start: Floats, offsets: list[Floats] | None = None
) -> Floats:
    """Minimise the mean negative log-likelihood of Σ weight · log-probability, weights not negative.

    The penalty draws the normalised weights towards `start`. `offsets` are added to the weighted
    log-probabilities of each table.
    """
    from scipy.optimize import minimize

    fixed: list[Any] = [0.0] * len(tables) if offsets is None else list(offsets)

    def cost(weights: Floats) -> tuple[float, Floats]:
        whole = weights.sum()
        gap = weights / whole - start
        value = _SHRINKAGE * float(gap @ gap)
        slope = 2.0 * _SHRINKAGE * (gap / whole - (gap @ weights) / whole**2)
        for (logs, codes), offset in zip(tables, fixed, strict=True):
            found, gradient = _likelihood(offset + np.tensordot(weights, logs, 1), logs, codes)
            value, slope = value + found / len(tables), slope + gradient / len(tables)
        return value, slope

    bounds, options = [(1e-6, None)] * len(start), {"maxiter": 150}
    return np.asarray(
        minimize(cost, start + 1e-3, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    )


def _learn_belief(committee: Committee, usual: list[Trial], shifted: list[Trial]) -> Floats:
    """Learn how far to believe a shift from the improvement of the fit; a better fit never lowers it."""
    from scipy.optimize import minimize

    found = np.array([trial.improvement for trial in usual])
    centre, scale = found.mean(), max(float(found.std()), _LEAST_SPREAD)
    start = np.array(_BELIEF_START)
    halves = replace(committee, belief=np.zeros(len(start)))  # both hypotheses count the same
    cases = []
    for trials, weight in ((usual, _NO_SHIFT), (shifted, 1.0)):
        for trial in trials:
            if trial.size > 0.0:
                first, second = (2.0 * logits for logits in _two(halves, trial))
                evidence = np.array([1.0, (trial.improvement - centre) / scale])
                cases.append((evidence, first, second - first, trial.codes, weight / len(trials)))

    def cost(parameters: Floats) -> tuple[float, Floats]:
        away = parameters - start
        value, slope = _BELIEF_SHRINKAGE * float(away @ away), 2.0 * _BELIEF_SHRINKAGE * away
        for evidence, first, step, codes, weight in cases:
            belief = expit(parameters @ evidence)
            loss, gradient = _likelihood(first + belief * step, step[None], codes)
            value += weight * loss
            slope += weight * belief * (1.0 - belief) * gradient[0] * evidence
        return value, slope

    bounds = [(None, None), (0.0, None)]
    constant, slope = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return np.array([constant - slope * centre / scale, slope / scale])


def _likelihood(logits: Floats, logs: Floats, codes: Integers) -> tuple[float, Floats]:
    """Return the mean negative log-likelihood, and its gradient by the weights of the logs."""
    scores, rows = log_softmax(logits, axis=1), np.arange(len(codes))
    gradient = -(logs[:, rows, codes] - (np.exp(scores) * logs).sum(axis=2)).mean(axis=1)
    return -float(scores[rows, codes].mean()), gradient
