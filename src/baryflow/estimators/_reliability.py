"""How far predictions can be relied on: calibrated probabilities, and an estimate of the accuracy.

A committee that was learned on left-out sources is as sure of its predictions as these sources justify.
A target may be easier or harder. How far the experts agree about its rows tells which: the calibration
learns how sure to be at which agreement, from left-out sources and from rows held out of other sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.special import expit, log_softmax, logit

from baryflow.estimators._committee import combine
from baryflow.validation import Booleans, Floats, Integers

#: Penalty on the squared coefficients: without evidence the probabilities of the committee stay.
_SHRINKAGE = 0.01
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
        self, probabilities: Floats, novel: Booleans, allowed: float, right: Booleans | None = None
    ) -> float:
        """Return the estimated share of rows for which the most probable class is right.

        Parameters
        ----------
        probabilities : array of shape (n, n_classes)
            Calibrated ones.
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
        tops = probabilities.max(axis=1)
        found = float(tops[~novel].mean() if not novel.all() else tops.mean())
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
        value = _SHRINKAGE * float(coefficients @ coefficients)
        slope = 2.0 * _SHRINKAGE * coefficients
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
