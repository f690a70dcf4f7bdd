"""Who predicts, and how much each counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from baryflow.estimators.adaptation import EVEN, PREDICTORS, WEIGHTS, Adaptation, log_average
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats

#: Weights at the beginning of a stream: the experts', and the source classifier's as it is.
SOURCE_ALONE = (0.0, 0.0, 0.0, 0.0, 1.0)


@dataclass(frozen=True)
class Decision:
    """The weights of the experts, at the beginning of a target and when every class of it was seen.

    In between they are mixed by how many classes were seen. The weights at the beginning are five: the
    last is that of the source classifier as it is, which in the end has none.
    """

    adapts: bool = False
    weights: tuple[float, ...] = EVEN
    beginning: tuple[float, ...] = SOURCE_ALONE
    reason: str = ""
    #: Order of a stream, accuracy of the source classifier and of the adapted one, on sources left out.
    plays: tuple[tuple[str, float, float], ...] = ()
    #: Quantiles of how remote the rows of sources left out were, in units of what is typical of each.
    remoteness: tuple[float, ...] = ()

    @classmethod
    def fixed(cls, weights: tuple[float, ...], reason: str) -> Decision:
        """Return the decision to believe these weights from the first row on."""
        return cls(True, weights, (*weights, 0.0), reason)

    def summary(self) -> str:
        """Return the decision in one word for each part."""
        if not self.adapts:
            return "not adapted"
        first, last = (
            "/".join(f"{weight:.2f}" for weight in weights) for weights in (self.beginning, self.weights)
        )
        return f"{first} to {last}"

    def at(self, seen: float) -> tuple[float, ...]:
        """Return the five weights when this share of the classes was seen."""
        return tuple(
            float(seen * last + (1.0 - seen) * first)
            for first, last in zip(self.beginning, (*self.weights, 0.0), strict=True)
        )


def weights_of(predictor: str) -> tuple[float, ...] | None:
    """Return the weights of the experts that a predictor means; None: they are to be learned."""
    choices = ("auto", *PREDICTORS)
    if predictor not in choices:
        raise InvalidInputError(f"predictor must be one of {choices}, got {predictor!r}")
    return None if predictor == "auto" else WEIGHTS[predictor]


def blend(decision: Decision, adaptation: Adaptation, X: Floats) -> Floats:
    """Return probabilities of complete rows, by the experts and at the beginning by the source."""
    model = adaptation.model
    if not decision.adapts:
        return model.source_proba(X)
    weights = decision.at(adaptation.seen)
    if model.classifiers is None:
        return log_average(adaptation.mixtures_proba(X), weights[:2])
    if max(weights[:2]) == 1.0:  # a single mixture needs no average, nor its floor
        return np.asarray(adaptation.mixtures_proba(X)[weights.index(1.0)])
    pooled = model.pooled_proba(X)
    return log_average([*adaptation.experts(X, pooled), model.given_prior(pooled)], weights)
