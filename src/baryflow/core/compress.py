"""Merge the components of a mixture greedily down to a maximum (paper, Algs. 3 and 4)."""

from __future__ import annotations

from baryflow.core.mixture import Mixture
from baryflow.core.pool import MERGINGS, PAIR_DISTANCES, Merging, PairDistance, Pool
from baryflow.validation import as_choice, as_count


def compress(
    mixture: Mixture,
    max_components: int,
    *,
    distance: PairDistance = "ward",
    merging: Merging = "moment",
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
    merging : {"moment", "wasserstein"}
        ``"wasserstein"``, the paper's, averages means and stds, which is their W2 barycenter;
        ``"moment"`` keeps the first two moments, so the spread between the means is not lost.

    Examples
    --------
    >>> from baryflow import Mixture
    >>> from baryflow.core.compress import compress
    >>> three = Mixture([0.4, 0.4, 0.2], [[0.0], [1.0], [9.0]], [[1.0], [1.0], [1.0]])
    >>> compress(three, 2, merging="wasserstein").means.ravel()
    array([0.5, 9. ])
    """
    as_choice(distance, "distance", PAIR_DISTANCES)
    as_choice(merging, "merging", MERGINGS)
    limit = as_count(max_components, "max_components")
    if mixture.n_components <= limit:
        return mixture
    pool = Pool(
        mixture.n_features,
        distance=distance,
        merging=merging,
        n_classes=0 if mixture.labels is None else mixture.n_classes,
    )
    pool.append(mixture.weights, mixture.means, mixture.stds, labels=mixture.labels)
    pool.compress(limit)
    labels = None if mixture.labels is None else pool.labels
    return Mixture(pool.masses, pool.means, pool.stds, labels, mixture.mass)
