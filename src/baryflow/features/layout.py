"""Which statistics are taken of a window, at which scales, and what their columns are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from baryflow.validation import Integers

QUANTILES = (0.0, 0.05, 0.25, 0.75, 0.95, 1.0)
#: Channels up to which every two of them are compared: 64 have 2,016 pairs, at every scale.
MOST_PAIRED = 64
_SEGMENTS, _HALVES = 8, 4
#: A scale is used if the window has this many blocks of it, a lag if it fits this often.
_BLOCKS = 8

Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Layout:
    """The scales of the statistics of windows of one length; all in rows, but for the bands.

    Attributes
    ----------
    length : int
        Rows of a window.
    levels, spreads : tuple of (first, end)
        Stretches of the window whose mean and standard deviation are taken.
    steps : tuple of int
        Distances over which differences are taken.
    lags : tuple of int
        Of autocorrelations.
    bands : tuple of (first, end)
        Of the spectrum, in periods a window.
    scales : tuple of int
        Widths of blocks; the second half of a block is compared with its first.
    pairs : bool
        Whether channels are correlated with each other.
    """

    length: int
    levels: Spans
    spreads: Spans
    steps: tuple[int, ...]
    lags: tuple[int, ...]
    bands: Spans
    scales: tuple[int, ...]
    pairs: bool = True

    @classmethod
    def of(cls, length: int, *, pairs: bool = True) -> Layout:
        """Choose scales for windows of a length: equal stretches, and others that grow as powers do."""
        lags = [n * 10**k for k in range(9) for n in (1, 2, 5)]
        edges = [1, 2]
        while edges[-1] < length // 2 + 1:
            edges.append(min(edges[-1] + edges[-2], length // 2 + 1))
        return cls(
            length,
            _stretches(length, _SEGMENTS),
            _stretches(length, _HALVES),
            tuple(4**k for k in range(15) if 4**k <= length // 4),
            tuple(lag for lag in lags if lag <= length // _BLOCKS),
            tuple(pairwise(edges)) if length > 1 else (),
            tuple(2**k for k in range(1, 30) if 2**k <= length // _BLOCKS),
            pairs,
        )

    def labels(self) -> list[tuple[str, bool]]:
        """Return what is taken, in order, and whether of pairs of channels rather than of channels."""
        single = ["mean", "spread", "slope"]
        single += [f"mean of rows {a}-{b - 1}" for a, b in self.levels]
        single += [f"spread of rows {a}-{b - 1}" for a, b in self.spreads]
        single += [f"change over {k}" for k in self.steps]
        single += [f"quantile {q:g}" for q in QUANTILES]
        single += ["skewness", "kurtosis"]
        single += [f"autocorrelation at {lag}" for lag in self.lags]
        single += [f"power in {a}-{b - 1} periods" for a, b in self.bands]
        found = [(label, False) for label in single]
        if self.pairs:
            found.append(("correlation", True))
        for k in self.scales:
            found.append((f"rhythm of {k}", False))
            if self.pairs:
                found.append((f"correlation at {k}", True))
        return found

    def names(self, channels: Sequence[str]) -> list[str]:
        """Return the names of all columns."""
        paired = [f"{one} ~ {other}" for one, other in combinations(channels, 2)]
        return [
            f"{label}: {name}"
            for label, pair in self.labels()
            for name in (paired if pair else channels)
        ]

    def channels(self, n_channels: int) -> tuple[Integers, Integers]:
        """Return, for every column, the one or two channels that it is made of."""
        own = np.arange(n_channels)
        first, second = np.triu_indices(n_channels, 1)
        parts: list[tuple[Any, Any]] = [
            (first, second) if pair else (own, own) for _, pair in self.labels()
        ]
        one, other = (np.concatenate(side) for side in zip(*parts, strict=True))
        return one, other


def _stretches(length: int, most: int) -> Spans:
    """Cut a window into equal stretches of at least two rows; a single one would be the whole."""
    n = min(most, length // 2)
    edges = [round(length * i / n) for i in range(n + 1)] if n > 1 else []
    return tuple(pairwise(edges))
