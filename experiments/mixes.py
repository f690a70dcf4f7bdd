"""Which rows of a target flow past, and in which order."""

from __future__ import annotations

import numpy as np

from baryflow.estimators._orders import stream_order as in_order

__all__ = ["MIXES", "ORDERS", "in_order", "mixed"]

#: Share of the rows that one class has; the others come as they are among the rest.
SHARES = {"50 %": 0.5, "80 %": 0.8, "95 %": 0.95, "one class": 1.0}
MIXES = ("as is", "50 %", "80 %", "95 %", "half absent", "one class")
#: Orders of a stream whose classes come as they are, and of one with another mix.
ORDERS = ("shuffled", "runs", "class")
MIX_ORDERS = ("shuffled", "class")
#: Rows of a stream with another mix: no more than, no fewer than, and how many it takes to tell.
MOST, FEWEST, TELLING = 1600, 40, 300


def mixed(y, mix, rng, dominating=None):
    """Return the row numbers, ascending, of a stream with this mix of the classes in `y`.

    The dominating class gives all the rows it has, unless that makes the stream too long or the rest is
    too small for its share. Without `dominating` it is drawn among the classes that are not rare.
    """
    if mix == "as is":
        return np.arange(len(y))
    classes, counts = np.unique(y, return_counts=True)
    if mix == "half absent":
        present = rng.permutation(classes)[len(classes) // 2 :]
        return np.sort(rng.permutation(np.flatnonzero(np.isin(y, present)))[:MOST])
    if dominating is None:
        dominating = rng.choice(classes[counts >= np.median(counts) / 2])
    share = SHARES[mix]
    many, rest = (rng.permutation(np.flatnonzero(flag)) for flag in (y == dominating, y != dominating))
    total = min(MOST, len(many) / share)
    if share < 1:
        total = min(total, len(rest) / (1 - share))
    total = int(total + 1e-9)
    n = round(share * total)
    return np.sort(np.concatenate([many[:n], rest[: total - n]]))
