"""Label shift: how often each class occurs in a target, and whether that differs from the sources.

The votes are those of the plain classifiers on raw rows, because they do not depend on the target's
moments, which themselves depend on its class proportions. Their weights, learned by leave-one-source-out
likelihood, calibrate them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from baryflow.validation import Floats

#: Rounds of expectation maximisation.
_ROUNDS = 30
#: No class is taken to be rarer than this.
_RAREST = 1e-4


@dataclass(frozen=True, eq=False)
class LabelShift:
    """What was found about the class proportions of a target.

    Attributes
    ----------
    proportions : array of shape (n_classes,)
        The estimated class proportions of the rows seen.
    size : float
        Total variation distance from the expected proportions, beyond what drawing this many rows
        explains.
    improvement : float
        How much nearer the target is to its reconstruction from the atoms if the shift is assumed: the
        logarithm of the ratio of the losses.
    belief : float
        Weight of the predictions that assume the shift, 0 to 1.
    """

    proportions: Floats
    size: float = 0.0
    improvement: float = 0.0
    belief: float = 0.0


def estimate_proportions(votes: Floats, weights: Floats, trained: Floats, expected: Floats) -> Floats:
    """Return the most likely class proportions, given votes of calibrated classifiers.

    Expectation maximisation (Saerens, Latinne and Decaestecker, 2002) from the expected proportions.

    Parameters
    ----------
    votes : array of shape (n, n_classes)
        Class probabilities.
    weights : array of shape (n,)
        How many rows each vote stands for.
    trained : array of shape (n_classes,)
        Class proportions of the classifiers' training rows.
    expected : array of shape (n_classes,)
        Where to start.
    """
    weights = weights / weights.sum()
    trained = np.maximum(trained, _RAREST)
    proportions = np.maximum(expected, _RAREST)
    for _ in range(_ROUNDS):
        weighted = votes * (proportions / trained)
        proportions = weights @ (weighted / weighted.sum(axis=1, keepdims=True))
        proportions = np.maximum(proportions, _RAREST)
    return normalise_proportions(proportions)


def normalise_proportions(masses: Floats) -> Floats:
    """Return masses of classes as proportions in which no class is too rare."""
    proportions = np.maximum(masses / masses.sum(), _RAREST)
    return np.asarray(proportions / proportions.sum())


def learn_trust(cases: list[tuple[Floats, Floats, Floats]], skill: float) -> float:
    """Return how far estimates of class proportions are right, 0 to 1.

    The factor with which the step from the expected to the estimated proportions comes nearest to the
    step to the true ones, by least squares. Left-out sources that nothing can classify lie far outside
    of the others and say little about targets: the less skill, the nearer the factor is drawn to 1.

    Parameters
    ----------
    cases : list of (expected, estimated, true)
        Class proportions of streams of left-out sources.
    skill : float
        Of the classifiers on left-out sources, from chance (0) to perfect (1).
    """
    steps = np.stack([estimated - expected for expected, estimated, _ in cases])
    wanted = np.stack([true - expected for expected, _, true in cases])
    factor = float(np.clip((steps * wanted).sum() / max(np.square(steps).sum(), 1e-12), 0.0, 1.0))
    return skill * factor + (1.0 - skill)


def measure_size(proportions: Floats, expected: Floats, n_rows: float) -> float:
    """Return the total variation distance beyond what drawing this many rows explains."""
    distance = 0.5 * float(np.abs(proportions - expected).sum())
    chance = float(np.sqrt(expected * (1.0 - expected) / (2.0 * np.pi * n_rows)).sum())
    return max(distance - chance, 0.0)


def measure_improvement(expected_losses: Floats, shifted_losses: Floats) -> float:
    """Return how much nearer the target is to its reconstruction if the shift is assumed.

    The logarithm of the ratio of the losses, mean over the spaces; negative if it is farther away.
    """
    losses = np.maximum(np.stack([expected_losses, shifted_losses]), np.finfo(np.float64).tiny)
    return float((np.log(losses[0]) - np.log(losses[1])).mean())
