"""How much each of several experts is worth, from their answers to questions whose answer is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import softmax

from baryflow.validation import Floats, Integers

#: A difference on sources left out is believed if it is more than a twentieth of the errors, and for the
#: weights of the experts more than a point of accuracy: a source left out may be much farther away than
#: a target, or not at all away when an encoder was trained on it.
POINT, PART = 0.01, 0.05


def as_good(accuracy: Floats, point: float = 0.0) -> int:
    """Return the last that is not worse than the best by a difference that is believed."""
    best = float(accuracy.max())
    return int(np.flatnonzero(accuracy >= best - max(point, PART * (1.0 - best)))[-1])


def accuracy_of(weights: Sequence[float], logs: Floats, y: Integers) -> float:
    """Return how often the weighted logarithms of the experts are largest for the right class."""
    return float((np.tensordot(weights, logs, 1).argmax(axis=1) == y).mean())


def likeliest_weights(
    logs: list[Floats], answers: list[Integers], evenness: float, parts: Floats | None = None
) -> tuple[float, ...]:
    """Minimise the mean negative log-likelihood over weights on the simplex, and over a temperature.

    −evenness · mean log weight is added, which keeps every expert in the game. With `parts`, the weights
    of the tables in the mean, the last of each table's logs is added as it is.
    """
    from scipy.optimize import minimize

    n = len(logs[0]) - (parts is not None)
    share = np.full(len(logs), 1.0 / len(logs)) if parts is None else parts / parts.sum()

    def cost(unknown: Floats) -> tuple[float, Floats]:
        heat, weights = np.exp(unknown[0]), softmax(unknown[1:])
        value, to_heat, slope = 0.0, 0.0, np.zeros(n)
        for table, y, part in zip(logs, answers, share, strict=True):
            total = np.tensordot(weights, table[:n], 1)
            if parts is not None:
                total = total + table[n]
            rows = np.arange(len(y))
            scaled = heat * total
            scaled = scaled - scaled.max(axis=1, keepdims=True)
            scaled -= np.log(np.exp(scaled).sum(axis=1, keepdims=True))
            found = np.exp(scaled)
            value -= part * float(scaled[rows, y].mean())
            to_heat -= part * heat * float((total[rows, y] - (found * total).sum(axis=1)).mean())
            slope -= part * (table[:n, rows, y] - (found * table[:n]).sum(axis=2)).mean(axis=1)
        value -= evenness * float(np.log(n * weights).mean())
        to_weights = heat * slope - evenness / n / weights
        return value, np.append(to_heat, weights * (to_weights - weights @ to_weights))

    found = minimize(cost, np.zeros(n + 1), jac=True, method="L-BFGS-B")
    return tuple(float(w) for w in softmax(found.x[1:]))
