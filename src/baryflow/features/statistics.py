"""What a window looks like in numbers: levels, spreads, rhythms, and what moves with what.

A layout says which statistics are taken, at which scales, and what their columns are called. Signals are
first brought to units of normal operation, so that a statistic means the same in every domain.
Logarithms and Fisher's transform make sizes and correlations differences that a linear layer can use. A
window's statistics are the same bits, whatever windows it is computed together with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from baryflow.validation import Floats, Integers

QUANTILES = (0.0, 0.05, 0.25, 0.75, 0.95, 1.0)
#: Channels up to which every two of them are compared: 64 have 2,016 pairs, at every scale.
MOST_PAIRED = 64
_SEGMENTS, _HALVES = 8, 4
#: A scale is used if the window has this many blocks of it, a lag if it fits this often.
_BLOCKS = 8
_TINY = np.float32(1e-3)
_LARGEST = 1e4  # in units of normal operation
_VALUES = 1_310_720  # of signals at a time: what is computed for them stays in the cache

Array = NDArray[np.float32]
Spans = tuple[tuple[int, int], ...]


class Scale(NamedTuple):
    """Where a domain's channels lie, and how far they move in normal operation."""

    median: Floats  # (n_channels,)
    spread: Floats  # (n_channels,), typical standard deviation within a window


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


def describe(X: Any, scale: Scale, layout: Layout) -> Array:
    """Return the statistics of windows (n, length, n_channels) as (n, n_statistics).

    Gaps (NaN) are bridged by straight lines within the window, ends by the nearest value. What needs a
    channel without any value is NaN.
    """
    parts = [_statistics(part, scale, layout) for part in in_chunks(X)]
    return np.concatenate(parts)


def in_chunks(X: Any) -> Iterator[NDArray[Any]]:
    """Yield some windows at a time, as contiguous arrays; `X` may cut them when they are asked for."""
    _, length, n_channels = X.shape
    size = max(1, _VALUES // (length * n_channels))
    for i in range(0, len(X), size):
        yield np.ascontiguousarray(X[i : i + size])


def _statistics(X: NDArray[Any], scale: Scale, layout: Layout) -> Array:
    X, gone = bridge(X)
    z = ((X - scale.median) / scale.spread).astype(np.float32)
    np.clip(z, -_LARGEST, _LARGEST, out=z)
    found = np.concatenate(list(_parts(z, layout)), axis=1, dtype=np.float32)
    if gone.any():
        first, second = layout.channels(z.shape[2])
        found[gone[:, first] | gone[:, second]] = np.nan
    return found


def bridge(X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Fill gaps; also return (n, n_channels) that tells which channels have no value at all."""
    missing = np.isnan(X)
    gone = missing.all(axis=1)
    if not missing.any():
        return X, gone
    X, time = X.copy(), np.arange(X.shape[1])
    for i, j in np.argwhere(missing.any(axis=1)):
        gaps = missing[i, :, j]
        X[i, gaps, j] = 0.0 if gone[i, j] else np.interp(time[gaps], time[~gaps], X[i, ~gaps, j])
    return X, gone


def _parts(z: Array, layout: Layout) -> Iterator[Array]:
    """Yield what :meth:`Layout.labels` lists, in that order."""
    length, n_channels = z.shape[1:]
    mean = z.mean(axis=1)
    centred = z - mean[:, None]
    std = _rms(centred)
    unit = centred / std[:, None]
    ramp = np.linspace(-1, 1, length, dtype=np.float32) if length > 1 else np.ones(1, np.float32)
    yield from (mean, np.log(std), np.einsum("ntd,t->nd", z, ramp / (ramp @ ramp)))
    yield from (z[:, a:b].mean(axis=1) for a, b in layout.levels)
    yield from (np.log(z[:, a:b].std(axis=1) + _TINY) for a, b in layout.spreads)
    yield from (np.log((z[:, k:] - z[:, :-k]).std(axis=1) + _TINY) for k in layout.steps)
    yield from _shape(z, mean, unit)
    yield from _rhythm(centred, layout)
    if layout.pairs:
        yield _correlations(unit)
    for k in layout.scales:
        halves = z[:, : length - length % k].reshape(len(z), -1, 2, k // 2, n_channels).mean(axis=3)
        change = halves[:, :, 1] - halves[:, :, 0]
        size = _rms(change)
        yield np.log(size)
        if layout.pairs:
            yield _correlations(change / size[:, None])


def _rms(x: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ntd,ntd->nd", x, x) / np.float32(x.shape[1])) + _TINY)


def _shape(z: Array, mean: Array, unit: Array) -> Iterator[Array]:
    """Yield quantiles from the mean, skewness and kurtosis."""
    ranks = [int(q * (z.shape[1] - 1)) for q in QUANTILES]
    # Sorting rows that lie together in memory is three times as fast as partitioning columns.
    ordered = np.sort(np.ascontiguousarray(z.transpose(0, 2, 1)), axis=2)
    away = ordered[:, :, ranks].transpose(0, 2, 1) - mean[:, None]
    square = unit * unit
    yield (np.sign(away) * np.log1p(np.abs(away))).reshape(len(z), -1)
    yield (square * unit).mean(axis=1)
    yield np.log((square * square).mean(axis=1) + np.float32(0.1))


def _rhythm(centred: Array, layout: Layout) -> Iterator[Array]:
    """Yield autocorrelations (circular) and the power in bands, both from one transform."""
    length = layout.length
    spectrum = fft.rfft(centred, axis=1)
    power = (spectrum.real**2 + spectrum.imag**2) / np.float32(length**2)
    if layout.lags:
        covariance = fft.irfft(power, n=length, axis=1)
        lagged = covariance[:, layout.lags] / (covariance[:, :1] + _TINY**2)
        yield lagged.reshape(len(centred), -1)
    yield from (np.log(power[:, a:b].sum(axis=1) + _TINY**2) for a, b in layout.bands)


def _correlations(unit: Array) -> Array:
    """Return Fisher's transform of the correlation of every pair of columns of size one."""
    first, second = np.triu_indices(unit.shape[2], 1)
    table = np.matmul(unit.transpose(0, 2, 1), unit) / np.float32(unit.shape[1])
    return np.asarray(np.arctanh(np.clip(table[:, first, second], -0.99, 0.99)))


def column_means(values: NDArray[Any]) -> NDArray[Any]:
    """Return the means of what is there in every column; 0 where nothing is."""
    missing = np.isnan(values)
    if not missing.any():
        return np.asarray(values.mean(axis=0))
    there = np.maximum((~missing).sum(axis=0), 1)
    return np.asarray(np.where(missing, 0.0, values).sum(axis=0) / there)
