"""Greedy merging of components down to a maximum (paper, Algs. 3 and 4).

The table of pair distances is kept while components are merged: a merge recomputes one row of it, at
O(K·d), and remembers for every component which other one is nearest.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from baryflow.core.gaussian import w2_squared_table
from baryflow.core.mixture import Mixture
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_count

PairDistance = Literal["w2", "ward"]
Merge = Literal["wasserstein", "moment"]
PAIR_DISTANCES: tuple[PairDistance, ...] = ("w2", "ward")
MERGES: tuple[Merge, ...] = ("wasserstein", "moment")


def merge_components(
    weights: Floats, means: Floats, stds: Floats, merge: Merge
) -> tuple[Floats, Floats]:
    """Return mean and std of one Gaussian in place of several with these weights.

    ``"wasserstein"`` averages means and stds, which is their W2 barycenter (paper, Alg. 4);
    ``"moment"`` keeps the first two moments, so the spread between the means is not lost.
    """
    shares = weights / weights.sum()
    mean = shares @ means
    if merge == "wasserstein":
        return mean, shares @ stds
    return mean, np.sqrt(shares @ (stds**2 + (means - mean) ** 2))


def compress(
    mixture: Mixture,
    max_components: int,
    *,
    distance: PairDistance = "ward",
    merge: Merge = "moment",
) -> Mixture:
    """Merge the nearest pair of components until at most `max_components` are left.

    Parameters
    ----------
    mixture : Mixture
        Labels, if any, are averaged by weight.
    max_components : int
    distance : {"ward", "w2"}
        ``"w2"`` is the paper's. ``"ward"`` multiplies W2² by w_i·w_j / (w_i + w_j), the increase of
        the within-component scatter that the merge causes.
    merge : {"moment", "wasserstein"}
        See :func:`merge_components`; ``"wasserstein"`` is the paper's.

    Examples
    --------
    >>> from baryflow import Mixture
    >>> from baryflow.core.compress import compress
    >>> three = Mixture([0.4, 0.4, 0.2], [[0.0], [1.0], [9.0]], [[1.0], [1.0], [1.0]])
    >>> compress(three, 2, merge="wasserstein").means.ravel()
    array([0.5, 9. ])
    """
    if distance not in PAIR_DISTANCES:
        raise InvalidInputError(f"distance must be one of {PAIR_DISTANCES}, got {distance!r}")
    if merge not in MERGES:
        raise InvalidInputError(f"merge must be one of {MERGES}, got {merge!r}")
    limit = as_count(max_components, "max_components")
    if mixture.n_components <= limit:
        return mixture
    weights, means, stds = mixture.weights.copy(), mixture.means.copy(), mixture.stds.copy()
    labels = None if mixture.labels is None else mixture.labels.copy()
    pairs = PairTable(weights, means, stds, distance)
    for _ in range(mixture.n_components - limit):
        pair = pairs.closest()
        i, j = pair
        both = weights[[i, j]]
        # Two components that never occur merge into one that never occurs.
        shares = both / both.sum() if both.any() else np.array([0.5, 0.5])
        means[i], stds[i] = merge_components(shares, means[[i, j]], stds[[i, j]], merge)
        if labels is not None:
            labels[i] = shares @ labels[[i, j]]
        weights[i], weights[j] = both.sum(), 0.0
        pairs.merged(i, j)
    alive = pairs.alive
    return Mixture(
        weights[alive],
        means[alive],
        stds[alive],
        None if labels is None else labels[alive],
        mixture.mass,
    )


class PairTable:
    """Distances between all pairs of live components, kept up to date through merges.

    It looks at the caller's arrays, which the caller changes in place before calling :meth:`merged`.
    """

    def __init__(self, weights: Floats, means: Floats, stds: Floats, distance: PairDistance) -> None:
        self._weights, self._means, self._stds = weights, means, stds
        self._ward = distance == "ward"
        self.alive = np.ones(len(weights), dtype=bool)
        self.costs = w2_squared_table(means, stds, means, stds)
        if self._ward:
            self.costs *= _harmonic(weights[:, None], weights)
        np.fill_diagonal(self.costs, np.inf)
        self._nearest = self.costs.argmin(axis=1)
        self._cost = self.costs[np.arange(len(weights)), self._nearest]

    def closest(self) -> tuple[int, int]:
        """Return the nearest pair (i, j), i < j."""
        i = int(self._cost.argmin())
        j = int(self._nearest[i])
        return (i, j) if i < j else (j, i)

    def merged(self, i: int, j: int) -> None:
        """Take note that component j went into component i, whose parameters have changed."""
        self.alive[j] = False
        self.costs[j] = self.costs[:, j] = self._cost[j] = np.inf
        row = self._row(i)
        self.costs[i] = self.costs[:, i] = row
        closer = row < self._cost
        self._nearest[closer], self._cost[closer] = i, row[closer]
        # Whoever was nearest to i or j must look again, and so must i itself.
        stale = np.flatnonzero(self.alive & ((self._nearest == i) | (self._nearest == j)))
        stale = np.append(stale, i)
        self._nearest[stale] = self.costs[stale].argmin(axis=1)
        self._cost[stale] = self.costs[stale, self._nearest[stale]]

    def _row(self, i: int) -> Floats:
        row: Floats = np.square(self._means - self._means[i]).sum(axis=1)
        row += np.square(self._stds - self._stds[i]).sum(axis=1)
        if self._ward:
            row *= _harmonic(self._weights[i], self._weights)
        row[~self.alive] = np.inf
        row[i] = np.inf
        return row


def _harmonic(a: Floats, b: Floats) -> Floats:
    """Return a·b / (a + b), which is 0 where both are."""
    total = a + b
    half: Floats = np.divide(a * b, total, out=np.zeros_like(total), where=total > 0.0)
    return half
