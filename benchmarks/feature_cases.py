"""Statistics of windows against the fastest library that computes comparable ones."""

from __future__ import annotations

import sys

import numpy as np

from baryflow.features.statistics import Layout, Scale, describe
from benchmarks.harness import Result, compare

WINDOWS, LENGTH, CHANNELS = 200, 600, 41


def features() -> Result | None:
    """All statistics of 200 windows against the 24 that catch22 takes of every channel.

    aeon's catch22 is compiled, and the fastest of all that were tried (docs/howto/raw-signals.md).
    """
    try:
        from aeon.transformations.collection.feature_based import Catch22
    except ImportError:
        print("features: skipped, pip install --group rivals has its rival", file=sys.stderr)
        return None
    X = np.random.default_rng(0).normal(size=(WINDOWS, LENGTH, CHANNELS))
    layout, unit = Layout.of(LENGTH), Scale(np.zeros(CHANNELS), np.ones(CHANNELS))
    channels_first, rival = np.ascontiguousarray(X.transpose(0, 2, 1)), Catch22(catch24=True)
    rival.fit_transform(channels_first[:1])  # compiles
    return compare(
        f"features, {WINDOWS} windows of {LENGTH} x {CHANNELS}: "
        f"{describe(X[:1], unit, layout).shape[1]:,} statistics",
        lambda: describe(X, unit, layout),
        f"aeon's catch22: {24 * CHANNELS:,}",
        lambda: rival.fit_transform(channels_first),
        bar=5.0,
        rounds=5,
    )


CASES = {"features": features}
