"""What is normal for a mode: the scale of its signals, from fault-free operation alone.

A stream cannot be scaled by what it will show later. Before a plant is watched for faults in a new mode
it runs there without any (commissioning): from that its scale is taken, the same way for every mode.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from baryflow.exceptions import InvalidInputError
from baryflow.tep.tables import VARIABLES
from baryflow.validation import Floats

#: A variable that hardly moves in a mode takes this share of its largest spread over the modes.
FLOOR = 0.25


class Scale(NamedTuple):
    """Where a mode's variables lie, and how far they move in normal operation."""

    median: Floats  # (n_variables,)
    spread: Floats  # (n_variables,), typical standard deviation within a run


def scales_of(commissioning: dict[int, NDArray[np.float32]]) -> dict[int, Scale]:
    """Return the scale of every mode from its fault-free runs, each (n_runs, n_times, 34).

    A valve that is saturated in one mode and moves in others would be blown up there by a division by
    next to nothing: it takes a share of its largest spread over the modes. One that never moves takes 1.
    """
    for mode, runs in commissioning.items():
        if runs.ndim != 3 or runs.shape[2] != len(VARIABLES) or not np.isfinite(runs).all():
            raise InvalidInputError(
                f"expected finite fault-free runs of shape (n_runs, n_times, {len(VARIABLES)}) "
                f"of mode {mode}, got {runs.shape}"
            )
    runs64 = {mode: runs.astype(np.float64) for mode, runs in commissioning.items()}
    spread = {mode: np.median(runs.std(axis=1), axis=0) for mode, runs in runs64.items()}
    largest = np.max(list(spread.values()), axis=0)
    # float32 signals: what moves by less than their rounding does not move.
    still = largest <= 1e-6 * np.max([np.abs(runs).max(axis=(0, 1)) for runs in runs64.values()], axis=0)
    return {
        mode: Scale(
            np.median(runs, axis=(0, 1)),
            np.where(still, 1.0, np.maximum(spread[mode], FLOOR * largest)),
        )
        for mode, runs in runs64.items()
    }
