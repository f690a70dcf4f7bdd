"""Which sources a target resembles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from baryflow.core.dictionary import Dictionary, Domain
from baryflow.core.quadratic import simplex_least_squares
from baryflow.core.transport import match_slots
from baryflow.validation import Floats


def compare_sources(dictionary: Dictionary, target: Domain, sources: Sequence[Domain]) -> Floats:
    """Return the mixture of the sources that comes nearest to the target, slot by slot.

    The sources' own components are compared, not their reconstructions, which fewer atoms than sources
    cannot tell apart.
    """
    used = slice(target.n_used)
    slots = dictionary.reconstruction(target)
    rebuilt = dictionary.reconstructions(sources)
    columns = []
    for domain, points, match in zip(sources, rebuilt, match_slots(slots, rebuilt), strict=True):
        # Where the source lacks a class its reconstruction stands in.
        known = np.where((domain.slot_weights > 0.0)[:, None], domain.goal, points)
        columns.append(known[match][:, used])
    goal = np.where((target.slot_weights > 0.0)[:, None], target.goal[:, used], slots[:, used])
    gaps = (np.stack(columns) - goal) * np.sqrt(target.slot_weights)[:, None]
    table = gaps.reshape(len(columns), -1)
    quadratic = table @ table.T
    # A little ridge shares the credit between sources that are the same.
    quadratic += 1e-6 * float(np.trace(quadratic)) / len(columns) * np.eye(len(columns))
    return simplex_least_squares(quadratic, np.zeros(len(columns)))
