"""Chance that depends on a row itself and not on its piece: a sample is the same in any pieces."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from baryflow.validation import Floats

_Words = NDArray[np.uint64]
#: Odd numbers without any pattern (the golden ratio and the roots of small primes, in 64 bits).
_GOLDEN, _FIRST, _SECOND = (
    np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B), np.uint64(0xA54FF53A5F1D36F1),
)  # fmt: skip
_HALF, _THIRD = np.uint64(32), np.uint64(29)


def draw(X: Floats, seed: int) -> _Words:
    """Return a number for every row, as if drawn at random from all 64-bit numbers.

    Rows that are equal get different numbers, if they stand in the same block: a value that occurs a
    million times is drawn as often as it should be, and not always or never. In different blocks the
    first of them get the same number: which copies are drawn does depend on the pieces.

    Parameters
    ----------
    X : array of shape (n, d)
        NaN are all the same.
    seed : int

    Returns
    -------
    array of shape (n,)
    """
    plain = np.where(np.isnan(X), np.nan, X + 0.0)  # one NaN, one zero
    words = np.ascontiguousarray(plain.T).view(np.uint64)
    found = np.full(len(X), _GOLDEN ^ np.uint64(seed))
    for column in words:
        found = _stir(found ^ column)
    order = np.argsort(found, kind="stable")
    ranked = found[order]
    first = np.concatenate([[True], ranked[1:] != ranked[:-1]])[: len(X)]
    if not first.all():
        places = np.arange(len(X))
        copies = np.empty(len(X), dtype=np.uint64)
        copies[order] = places - np.maximum.accumulate(np.where(first, places, 0))
        found = np.where(copies > 0, _stir(found ^ (copies * _FIRST)), found)
    return found


def as_shares(words: _Words) -> Floats:
    """Return such numbers as fractions, 0 to 1, 1 left out.

    Parameters
    ----------
    words : array of uint64

    Returns
    -------
    array of the same shape
    """
    return np.asarray((words >> np.uint64(11)) * 2.0**-53)


def _stir(words: _Words) -> _Words:
    """Let every bit depend on every other."""
    words = (words ^ (words >> _HALF)) * _GOLDEN
    words = (words ^ (words >> _THIRD)) * _SECOND
    # An odd factor keeps numbers apart; the shift brings the upper half down, where factors cannot.
    return np.asarray(words ^ (words >> _HALF))
