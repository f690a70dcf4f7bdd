"""What a run looks like in numbers: levels, spreads, rhythms, and what moves with what.

Signals are first brought to units of their mode's normal operation, so that a statistic means the same
in every mode. Logarithms and Fisher's transform make sizes and correlations differences that a linear
layer can use.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from baryflow.exceptions import InvalidInputError
from baryflow.tep.encoders.scale import Scale

#: Rows of 3 minutes. A fault shows differently in the first hour, the first hours and later on.
LEVEL_WINDOWS = (
    (0, 20),
    (20, 60),
    (60, 120),
    (120, 200),
    (200, 300),
    (300, 400),
    (400, 500),
    (500, 600),
)
SPREAD_WINDOWS = ((0, 60), (60, 200), (200, 400), (400, 600))
LENGTH = 600
STEPS = (1, 4, 16, 64)  # of differences
LAGS = (1, 2, 5, 10, 20, 50)  # of autocorrelations
BANDS = (1, 2, 3, 5, 8, 13, 21, 36, 60, 100, 170, 301)  # edges, in periods a run
QUANTILES = (0.0, 0.05, 0.25, 0.75, 0.95, 1.0)
SCALES = (2, 4, 8, 16, 32, 64)  # rows of a Haar band-pass
_TINY = np.float32(1e-3)
_LARGEST = 1e4  # in units of normal operation; a plant that far off is no plant
_CHUNK = 64  # runs at a time: what is computed for them stays in the cache

Array = NDArray[np.float32]


def describe(X: Array, scale: Scale) -> Array:
    """Return the statistics of signals (n, 600, n_variables) as (n, n_statistics)."""
    if X.ndim != 3 or X.shape[1] != LENGTH or X.shape[2] != len(scale.median):
        raise InvalidInputError(
            f"expected signals of shape (n_runs, {LENGTH}, {len(scale.median)}), got {X.shape}"
        )
    if not np.isfinite(X).all():
        raise InvalidInputError(
            "signals hold missing or infinite values: fill them before they are encoded"
        )
    return np.concatenate([_statistics(X[i : i + _CHUNK], scale) for i in range(0, len(X), _CHUNK)])


def _statistics(X: Array, scale: Scale) -> Array:
    z = ((X - scale.median) / scale.spread).astype(np.float32)
    np.clip(z, -_LARGEST, _LARGEST, out=z)
    mean = z.mean(axis=1)
    centred = z - mean[:, None]
    std = _rms(centred)
    unit = centred / std[:, None]
    ramp = np.linspace(-1, 1, LENGTH, dtype=np.float32)
    parts = [mean, np.log(std), np.einsum("ntd,t->nd", z, ramp / (ramp @ ramp))]
    parts += [z[:, a:b].mean(axis=1) for a, b in LEVEL_WINDOWS]
    parts += [np.log(z[:, a:b].std(axis=1) + _TINY) for a, b in SPREAD_WINDOWS]
    parts += [np.log((z[:, k:] - z[:, :-k]).std(axis=1) + _TINY) for k in STEPS]
    parts += _shape(z, mean, unit)
    parts += _rhythm(centred)
    parts.append(_correlations(unit))
    for k in SCALES:
        halves = z[:, : LENGTH - LENGTH % k].reshape(len(z), -1, 2, k // 2, z.shape[2]).mean(axis=3)
        change = halves[:, :, 1] - halves[:, :, 0]
        size = _rms(change)
        parts += [np.log(size), _correlations(change / size[:, None])]
    return np.concatenate(parts, axis=1, dtype=np.float32)


def _rms(x: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ntd,ntd->nd", x, x) / np.float32(x.shape[1])) + _TINY)


def _shape(z: Array, mean: Array, unit: Array) -> list[Array]:
    """Return quantiles from the mean, skewness and kurtosis."""
    ranks = [int(q * (LENGTH - 1)) for q in QUANTILES]
    away = np.partition(z, ranks, axis=1)[:, ranks] - mean[:, None]
    square = unit * unit
    return [
        (np.sign(away) * np.log1p(np.abs(away))).reshape(len(z), -1),
        (square * unit).mean(axis=1),
        np.log((square * square).mean(axis=1) + np.float32(0.1)),
    ]


def _rhythm(centred: Array) -> list[Array]:
    """Return autocorrelations (circular) and the power in bands, both from one transform."""
    spectrum = fft.rfft(centred, axis=1)
    power = (spectrum.real**2 + spectrum.imag**2) / np.float32(LENGTH**2)
    covariance = fft.irfft(power, n=LENGTH, axis=1)
    lagged = covariance[:, LAGS] / (covariance[:, :1] + _TINY**2)
    bands = [np.log(power[:, a:b].sum(axis=1) + _TINY**2) for a, b in pairwise(BANDS)]
    return [lagged.reshape(len(centred), -1), *bands]


def _correlations(unit: Array) -> Array:
    """Return Fisher's transform of the correlation of every pair of columns of size one."""
    first, second = np.triu_indices(unit.shape[2], 1)
    table = np.matmul(unit.transpose(0, 2, 1), unit) / np.float32(unit.shape[1])
    return np.asarray(np.arctanh(np.clip(table[:, first, second], -0.99, 0.99)))
