"""Describe many Gaussians by fewer."""

from __future__ import annotations

import numpy as np

from baryflow.core.candidates import Candidates, StandardisedRows
from baryflow.core.em import Reference
from baryflow.core.mixture import Mixture
from baryflow.core.pool import Pool
from baryflow.validation import Floats

#: EM steps at most; the start is good, and the last steps change little.
_STEPS = 10
_TOLERANCE = 1e-3


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
