"""Which rows of a target flow past, and in which order."""

from __future__ import annotations

import numpy as np

from baryflow.estimators._orders import SHIFTS, shift_labels
from baryflow.estimators._orders import stream_order as in_order

__all__ = ["MIXES", "ORDERS", "in_order", "mixed"]

#: Share of the rows that one class has; the others come as they are among the rest.
SHARES = {name: share for name, share in SHIFTS.items() if share is not None}
MIXES = ("as is", *SHIFTS)
#: Orders of a stream whose classes come as they are, and of one with another mix.
ORDERS = ("shuffled", "runs", "class")
MIX_ORDERS = ("shuffled", "class")
#: Rows of a stream with another mix: no more than, no fewer than, and how many it takes to tell.
MOST, FEWEST, TELLING = 1600, 40, 300


def mixed(y, mix, rng, dominating=None):
    """Return the row numbers, ascending, of a stream with this mix of the classes in `y`."""
    if mix == "as is":
        return np.arange(len(y))
    return shift_labels(y, mix, rng, most=MOST, dominating=dominating)
