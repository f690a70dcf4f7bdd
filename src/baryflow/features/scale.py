"""What is normal for a domain: the scale of its signals, from normal operation alone.

A stream cannot be scaled by what it will show later. Before a machine is watched for faults it runs
without any (commissioning): from that its scale is taken, the same way for every domain.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from baryflow.validation import Floats

#: A channel that hardly moves in a domain takes this share of its largest spread over the domains.
FLOOR = 0.25
#: float32 signals: what moves by less than their rounding does not move.
_ROUNDING = 1e-6


class Scale(NamedTuple):
    """Where a domain's channels lie, and how far they move in normal operation."""

    median: Floats  # (n_channels,)
    spread: Floats  # (n_channels,), typical standard deviation within a window


def measure(windows: Any) -> tuple[Scale, Floats]:
    """Return the raw scale of windows (n, length, n_channels), and the largest magnitudes."""
    values = np.asarray(windows, dtype=np.float64)
    missing = np.isnan(values)
    if not missing.any():
        spread = np.median(values.std(axis=1), axis=0)
        return Scale(np.median(values, axis=(0, 1)), spread), np.abs(values).max(axis=(0, 1))
    gone = np.asarray(
        missing.all(axis=1)
    )  # of a channel without any value nothing is known: 0, and no spread
    empty = gone.all(axis=0)
    filled = np.where(gone[:, None], 0.0, values)
    stds = np.where(gone, np.nan, np.nanstd(filled, axis=1))
    median = np.nanmedian(np.where(empty, 0.0, values), axis=(0, 1))
    spread = np.nanmedian(np.where(empty, 0.0, stds), axis=0)
    return Scale(median, spread), np.nanmax(np.abs(np.where(empty, 0.0, values)), axis=(0, 1))


def scales_of(normal: Mapping[Any, Any]) -> dict[Hashable, Scale]:
    """Return the scale of every domain from its windows of normal operation.

    A valve that is saturated in one domain and moves in others would be blown up there by a division by
    next to nothing: it takes a share of its largest spread over the domains. One that never moves takes
    1.
    """
    raw = {name: measure(windows) for name, windows in normal.items()}
    largest = np.max([scale.spread for scale, _ in raw.values()], axis=0)
    reach = np.max([magnitude for _, magnitude in raw.values()], axis=0)
    still = largest <= _ROUNDING * reach
    return {name: floored(scale, largest, still) for name, (scale, _) in raw.items()}


def floored(scale: Scale, largest: Floats, still: Any) -> Scale:
    """Return a scale that can be divided by."""
    return Scale(scale.median, np.where(still, 1.0, np.maximum(scale.spread, FLOOR * largest)))
