"""Weights of experts, learned from tables of log-probabilities whose classes are known."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

#: How strongly weights are drawn towards where they start.
SHRINKAGE = 0.3


def learn_weights(tables, starts):
    """Minimise the negative log-likelihood of Σ weight · log-probability over non-negative weights.

    Parameters
    ----------
    tables : list of (logs, codes, weight)
        Logs of shape (n_blocks · n_experts, n, n_classes).
    starts : list of arrays of shape (n_experts,)
        For each block of weights the distribution it is drawn towards.
    """
    n, total = len(starts[0]), sum(weight for *_, weight in tables)

    def cost(weights):
        value, slope = 0.0, np.zeros(len(weights))
        for logs, codes, weight in tables:
            found, gradient = likelihood(np.tensordot(weights, logs, 1), logs, codes)
            value, slope = value + weight / total * found, slope + weight / total * gradient
        for number, start in enumerate(starts):
            block = slice(number * n, (number + 1) * n)
            whole = weights[block].sum()
            gap = weights[block] / whole - start
            value += SHRINKAGE * float(gap @ gap)
            slope[block] += 2.0 * SHRINKAGE * (gap / whole - (gap @ weights[block]) / whole**2)
        return value, slope

    first = np.concatenate(starts) + 1e-3
    bounds = [(1e-6, None)] * len(first)
    return minimize(cost, first, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 150}).x


def likelihood(logits, logs, codes):
    """Return the mean negative log-likelihood and its gradient by the weights of the logs."""
    scores, rows = log_softmax(logits, axis=1), np.arange(len(codes))
    gradient = -(logs[:, rows, codes] - (np.exp(scores) * logs).sum(axis=2)).mean(axis=1)
    return -float(scores[rows, codes].mean()), gradient


def learn_belief(plays, start=(-3.0, 3.0, 3.0), shrinkage=0.03):
    """Learn how far to believe a shift: expit(a + b·size + c·confirmed), b and c not negative.

    Parameters
    ----------
    plays : list of (evidence, logits_usual, logits_shifted, codes, weight)
    """
    start = np.array(start)

    def cost(parameters):
        value, slope = 0.0, np.zeros(len(start))
        for evidence, usual, shifted, codes, weight in plays:
            belief = expit(parameters @ evidence)
            gap = (shifted - usual)[None]
            found, gradient = likelihood(usual + belief * gap[0], gap, codes)
            value += weight * found
            slope += weight * belief * (1.0 - belief) * gradient[0] * evidence
        away = parameters - start
        return value + shrinkage * float(away @ away), slope + 2.0 * shrinkage * away

    found = minimize(
        cost, start, jac=True, method="L-BFGS-B", bounds=[(None, None), (0, None), (0, None)]
    )
    return found.x
