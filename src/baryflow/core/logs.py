"""Sums and normalisation in log space, for tables that are small and many.

The same as SciPy's functions for finite values and −∞, without their care for other array libraries,
which takes longer than the sum where a table has a few rows.
"""

from __future__ import annotations

import numpy as np

from baryflow.validation import Floats


def logsumexp(table: Floats, axis: int = -1) -> Floats:
    """Return the logarithm of the sum of exponentials along an axis."""
    largest = _largest(table, axis)
    with np.errstate(divide="ignore"):  # of nothing but −∞
        found = np.log(np.exp(table - largest).sum(axis=axis))
    return np.asarray(found + largest.squeeze(axis))


def log_softmax(table: Floats, axis: int = -1) -> Floats:
    """Return the table less the logarithm of its summed exponentials along an axis."""
    away = table - _largest(table, axis)
    return np.asarray(away - np.log(np.exp(away).sum(axis=axis, keepdims=True)))


def _largest(table: Floats, axis: int) -> Floats:
    largest = table.max(axis=axis, keepdims=True)
    return np.where(np.isfinite(largest), largest, 0.0)
