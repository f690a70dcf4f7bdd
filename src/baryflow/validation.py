"""Checks at the public edge, with named dimensions.

Every function takes what the caller passed and the name of the argument, and either returns it as
a float64 array (sharing memory where that is possible, never changing it) or raises
:class:`~baryflow.exceptions.InvalidInputError` saying what was expected, what came and what to do.
"""

from __future__ import annotations

import math
import re
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.exceptions import InvalidInputError

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
Booleans = NDArray[np.bool_]
RandomState = int | np.random.Generator | None

#: How far the sum of a probability vector may be from 1. Larger than float32 rounding of some
#: hundred terms, much smaller than any modelling mistake.
SIMPLEX_TOLERANCE = 1e-6
#: Largest magnitude taken: what is larger would overflow where it is squared and summed.
LARGEST = 1e150
#: Largest weight of a row. Weights count rows, and with as many as this sums of them stay exact enough.
LARGEST_WEIGHT = 1e12
#: Names that targets of a service can have: they stand in paths and in lines of metrics.
TARGET_NAME = r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}"
#: Sums closer to 1 than this are left as they are, so that what was saved loads bit for bit.
_EXACT_SUM = 1e-12


def as_array(value: Any, name: str, shape: str) -> Floats:
    """Convert to float64, or say that `name` is not numeric; `shape` is only for the message."""
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        raise InvalidInputError(
            f"{name} is a sparse matrix; expected a dense array of shape {shape}: pass {name}.toarray()"
        )
    try:
        raw = np.asarray(value)
        if raw.dtype.kind == "c":
            raise TypeError("complex numbers")
        return np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"expected {name} to be a numeric array of shape {shape}, got {type(value).__name__}: "
            f"{error}"
        ) from error


def as_matrix(
    value: Any,
    name: str,
    *,
    rows: str = "n_samples",
    columns: str = "n_features",
    n_columns: int | None = None,
    min_rows: int = 1,
    allow_nan: bool = False,
) -> Floats:
    """Return `value` as a finite (or NaN-holding) matrix with the expected number of columns."""
    if (  # the usual case, without putting together words for messages
        isinstance(value, np.ndarray)
        and value.dtype == np.float64
        and value.ndim == 2
        and value.shape[0] >= min_rows
        and value.shape[1] == (n_columns or max(1, value.shape[1]))
    ):
        check_values(value, name, allow_nan=allow_nan)
        return value
    wanted = f"({rows}, {columns}{'' if n_columns is None else f'={n_columns}'})"
    array = as_array(value, name, wanted)
    if array.ndim == 1:
        raise InvalidInputError(
            f"expected {name} to have shape {wanted}, got a 1-D array of shape {array.shape}; "
            f"use {name}.reshape(1, -1) for one row or {name}.reshape(-1, 1) for one column"
        )
    if array.ndim != 2 or (n_columns is not None and array.shape[1] != n_columns):
        raise InvalidInputError(f"expected {name} to have shape {wanted}, got {array.shape}")
    if array.shape[0] < min_rows or array.shape[1] < 1:
        raise InvalidInputError(
            f"expected {name} to have shape {wanted} with at least {min_rows} row(s) and 1 column, "
            f"got {array.shape}"
        )
    check_values(array, name, allow_nan=allow_nan)
    return array


def check_values(array: Floats, name: str, *, allow_nan: bool, columns: Any = None) -> None:
    """Refuse infinities, numbers too large to be squared, and NaN unless `allow_nan`.

    The message gives the first bad position, and its column if `columns` are the names of all.
    """
    # One pass in the common case: a finite sum of squares proves that all is well.
    if math.isfinite(np.vdot(array, array)):
        return
    bad = np.isinf(array) if allow_nan else ~np.isfinite(array)
    with np.errstate(invalid="ignore"):
        huge = np.abs(array) > LARGEST
    if not bad.any() and huge.any():
        where, place = _find_first(huge, columns)
        raise InvalidInputError(
            f"{name} holds {array[where]:g} at {place}; numbers beyond ±{LARGEST:g} cannot be "
            f"squared: rescale the column, or mark the value as missing (NaN)"
        )
    if bad.any():
        where, place = _find_first(bad, columns)
        advice = (
            "NaN marks a missing value; infinity has no meaning here"
            if allow_nan
            else f"remove or repair such entries of {name}"
        )
        raise InvalidInputError(
            f"{name} holds {array[where]} at {place} ({int(bad.sum())} such entries); {advice}"
        )


def _find_first(bad: Booleans, columns: Any) -> tuple[tuple[int, ...], str]:
    """Return the first position that is marked, and a description of it."""
    where = tuple(int(i) for i in np.argwhere(bad)[0])
    column = "" if columns is None else f" in column {str(columns[where[-1]])!r}"
    return where, f"position {where}{column}"


def as_vector(value: Any, name: str, *, length: int | None = None, dim: str = "n") -> Floats:
    """Return `value` as a finite vector of the expected length."""
    wanted = f"({dim}{'' if length is None else f'={length}'},)"
    array = as_array(value, name, wanted)
    if array.ndim != 1 or (length is not None and array.shape[0] != length):
        raise InvalidInputError(f"expected {name} to have shape {wanted}, got {array.shape}")
    if array.shape[0] < 1:
        raise InvalidInputError(f"expected {name} to have at least one entry, got none")
    check_values(array, name, allow_nan=False)
    return array


def as_weights(value: Any, name: str, *, length: int) -> Floats:
    """Return sample weights: counts of rows, not all zero; `None` means one for every row."""
    if value is None:
        return np.ones(length)
    weights = as_vector(value, name, length=length, dim="n_samples")
    if weights.min() < 0:
        worst = int(weights.argmin())
        raise InvalidInputError(f"{name} must not be negative, got {weights[worst]} at position {worst}")
    if weights.max() > LARGEST_WEIGHT:
        worst = int(weights.argmax())
        raise InvalidInputError(
            f"{name} counts rows and must not be above {LARGEST_WEIGHT:g}, got {weights[worst]:g} at "
            f"position {worst}: divide all weights by the same number"
        )
    if not weights.any():
        raise InvalidInputError(f"{name} is zero everywhere; at least one row must count")
    return weights


def as_simplex(value: Any, name: str, *, length: int | None = None, dim: str = "n") -> Floats:
    """Return a probability vector: non-negative, summing to 1."""
    vector = as_vector(value, name, length=length, dim=dim)
    row: Floats = _normalise_rows(vector[None, :], name)[0]
    return row


def as_simplex_rows(value: Any, name: str, *, n_rows: int, rows: str, columns: str) -> Floats:
    """Return a matrix whose every row is a probability vector."""
    matrix = as_matrix(value, name, rows=f"{rows}={n_rows}", columns=columns)
    if matrix.shape[0] != n_rows:
        raise InvalidInputError(
            f"expected {name} to have shape ({rows}={n_rows}, {columns}), got {matrix.shape}"
        )
    return _normalise_rows(matrix, name)


def _normalise_rows(matrix: Floats, name: str) -> Floats:
    sums = matrix.sum(axis=1)
    off = np.abs(sums - 1.0)
    if matrix.min() < 0 or off.max() > SIMPLEX_TOLERANCE:
        row = int(np.argmax(np.where(matrix.min(axis=1) < 0, np.inf, off)))
        raise InvalidInputError(
            f"{name} must be non-negative and sum to 1 (within {SIMPLEX_TOLERANCE:g}); row {row} "
            f"has minimum {matrix[row].min():.6g} and sum {sums[row]:.6g}: divide by the sum"
        )
    if off.max() > _EXACT_SUM:
        return np.asarray(matrix / sums[:, None])
    return matrix


def as_count(value: Any, name: str, *, minimum: int = 1) -> int:
    """Return an integer that is at least `minimum`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral) or value < minimum:
        raise InvalidInputError(f"{name} must be an integer >= {minimum}, got {value!r}")
    return int(value)


def as_real(
    value: Any, name: str, *, low: float = -np.inf, high: float = np.inf, open_low: bool = False
) -> float:
    """Return a finite float in the closed range low..high (low itself excluded on request)."""
    ok = isinstance(value, Real) and not isinstance(value, (bool, np.bool_))
    if not ok or not np.isfinite(value) or not low <= value <= high or (open_low and value == low):
        opening = "(" if open_low else "["
        raise InvalidInputError(f"{name} must be a number in {opening}{low:g}, {high:g}], got {value!r}")
    return float(value)


def as_choice(value: Any, name: str, choices: tuple[str, ...]) -> None:
    """Refuse what is not one of the choices."""
    if value not in choices:
        raise InvalidInputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Return a NumPy generator from a seed, a generator (used as it is) or None."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None or isinstance(random_state, (int, np.integer)):
        try:
            return np.random.default_rng(random_state)
        except ValueError as error:
            raise InvalidInputError(f"random_state must be >= 0, got {random_state!r}") from error
    raise InvalidInputError(
        f"random_state must be an integer, a numpy.random.Generator or None, got {random_state!r}"
    )


def count_of(n: float, noun: str, plural: str = "") -> str:
    """Return a number and what it counts: "1 class", "1,200 rows".

    Parameters
    ----------
    n : int
    noun : str
    plural : str, optional
        Of the noun, if it does not end in "s".
    """
    return f"{n:,} {noun if n == 1 else plural or f'{noun}s'}"


def is_target_name(name: str) -> bool:
    """Return whether a target of a service can have this name."""
    return re.fullmatch(TARGET_NAME, name) is not None
