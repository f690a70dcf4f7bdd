"""Fewer components for many: merged greedily (paper, Algs. 3 and 4), and then improved by EM."""

from __future__ import annotations

import numpy as np

from baryflow.core.candidates import Candidates, StandardisedRows
from baryflow.core.em import Reference
from baryflow.core.mixture import Mixture
from baryflow.core.pool import CRITERIA, MERGES, Pool
from baryflow.validation import Floats, as_choice, as_count

#: EM steps at most; the start is good, and the last steps change little.
_STEPS = 10
_TOLERANCE = 1e-3


def compress(
    mixture: Mixture,
    max_components: int,
    *,
    distance: str = "ward",
    merging: str = "moment",
) -> Mixture:
    """Merge the nearest pair of components until at most `max_components` are left.

    Parameters
    ----------
    mixture : Mixture
        Labels, if any, are averaged by weight.
    max_components : int
    distance : {"ward", "w2"}
        ``"w2"`` is the paper's. ``"ward"`` multiplies W2² by w_i·w_j / (w_i + w_j), which for components
        of equal width is the scatter that the merge adds.
    merging : {"moment", "wasserstein"}
        ``"wasserstein"``, the paper's, averages means and stds, which is their W2 barycenter;
        ``"moment"`` keeps the first two moments, so the spread between the means is not lost.

    Examples
    --------
    >>> from baryflow import Mixture
    >>> from baryflow.core.reduction import compress
    >>> three = Mixture([0.4, 0.4, 0.2], [[0.0], [1.0], [9.0]], [[1.0], [1.0], [1.0]])
    >>> compress(three, 2, merging="wasserstein").means.ravel()
    array([0.5, 9. ])
    """
    as_choice(distance, "distance", tuple(CRITERIA))
    as_choice(merging, "merging", tuple(MERGES))
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
    pool.compress(limit, pair_by_pair=True)
    labels = None if mixture.labels is None else pool.labels
    return Mixture(pool.masses, pool.means, pool.stds, labels, mixture.mass)


def reduce_components(
    masses: Floats, means: Floats, stds: Floats, max_components: int, *, std_floor: float
) -> Mixture:
    """Return a mixture of at most `max_components` for the Gaussians given.

    More of them are merged greedily (Ward, keeping moments), and the result is improved by EM in
    which every Gaussian stands for the rows it summarises: the moments of the whole stay what they were.
    Standard deviations are raised to `std_floor` times the spread of the whole.
    """
    total = float(masses.sum())
    weights = masses / total
    mean = weights @ means
    variance = weights @ (np.square(stds) + np.square(means - mean))
    reference = Reference.of_moments(mean, variance)
    if len(masses) > max_components:
        pool = Pool(means.shape[1])
        pool.append(masses, means, stds)
        pool.compress(max_components)
        rows = StandardisedRows.of_components(masses, means, stds, reference.centre, reference.scale)
        candidates = Candidates.from_parameters(
            rows,
            pool.masses / total,
            (pool.means - reference.centre) / reference.scale,
            pool.stds / reference.scale,
            std_floor,
        )
        candidates.advance(_STEPS, _TOLERANCE * total)
        weights, centred, scaled = candidates.parameters(0)
        means = reference.centre + reference.scale * centred
        stds = reference.scale * scaled
    return Mixture(
        weights / weights.sum(), means, np.maximum(stds, std_floor * reference.scale), mass=total
    )
