"""Which statistics tell the classes apart, by the labels of the sources."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.features.statistics import column_means
from baryflow.validation import Integers

#: Statistics kept for each pair of classes.
PER_PAIR = 8


def discriminative(Z: NDArray[Any], y: Any, domain: Any, per_pair: int = PER_PAIR) -> Integers:
    """Return the columns that separate some two classes best, in the same way in all domains."""
    ranks, _ = rank(Z, y, domain)
    return np.flatnonzero(ranks < per_pair)


def most_discriminative(Z: NDArray[Any], y: Any, domain: Any, n: int) -> Integers:
    """Return the `n` most discriminative columns: the best ones of every pair first, in their order."""
    ranks, worth = rank(Z, y, domain)
    return np.sort(np.lexsort((-worth, ranks))[:n])


def rank(Z: NDArray[Any], y: Any, domain: Any) -> tuple[Integers, NDArray[np.float64]]:
    """Return how high every column comes at best in the order of some pair of classes; and its worth.

    A column's worth for a pair is the squared distance of the two class means over the squared
    deviations from them, domains included: one in which a class lies elsewhere in every domain is worth
    little.
    """
    Z = Z.copy()
    for name in np.unique(domain):
        Z[domain == name] -= column_means(Z[domain == name])
    classes = np.unique(y)
    means = np.array([column_means(Z[y == label]) for label in classes], dtype=np.float64)
    within = np.array([column_means((Z[y == c] - m) ** 2) for c, m in zip(classes, means, strict=True)])
    best = np.full(Z.shape[1], Z.shape[1], dtype=np.intp)
    worths = np.zeros(Z.shape[1])
    columns = np.arange(Z.shape[1])
    for i in range(len(classes)):
        for j in range(i):
            worth = (means[i] - means[j]) ** 2 / (within[i] + within[j] + 1e-3)
            ranks = np.empty(Z.shape[1], dtype=np.intp)
            ranks[np.argsort(-worth, kind="stable")] = columns
            better = ranks < best
            best[better], worths[better] = ranks[better], worth[better]
    return best, worths
