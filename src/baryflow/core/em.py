"""Fitting one batch: EM for axis-aligned mixtures and the BIC sweep (paper, Alg. 2).

The steps themselves are in :mod:`baryflow.core.candidates`, which advances all numbers of components
and all restarts together; here are the front door, the units of a fit and the choice of the winner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from baryflow.core.candidates import Candidates, StandardisedRows
from baryflow.core.mixture import Mixture
from baryflow.exceptions import InvalidInputError
from baryflow.validation import (
    Booleans,
    Floats,
    Integers,
    RandomState,
    as_count,
    as_generator,
    as_matrix,
    as_real,
    as_weights,
)

#: A component that holds less than this share of the data is gone.
_VANISHED = 1e-12
#: The smallest relative floor for which variances keep eight digits.
_SMALLEST_FLOOR = 1e-4


@dataclass(frozen=True, eq=False)
class Sweep:
    """What a sweep over numbers of components saw, and the mixture that it chose.

    Parameters
    ----------
    mixture : Mixture
        The candidate with the lowest BIC; one that did not converge only if none did.
    n_components : array of shape (n,)
        The numbers of components that were tried.
    bic, log_likelihood : arrays of shape (n,)
        Of the best restart with each number; of the BIC, lower is better.
    converged : array of bool, shape (n,)
    n_iter : array of shape (n,)
        EM steps taken.
    traces : tuple of n arrays
        The total log-likelihood at each EM step.
    best : int
        Position of the winner in the arrays.
    """

    mixture: Mixture
    n_components: Integers
    bic: Floats
    log_likelihood: Floats
    converged: Booleans
    n_iter: Integers
    traces: tuple[Floats, ...]
    best: int


@dataclass(frozen=True)
class Reference:
    """Centre and scale per column, in whose units a fit is done and its floor is given."""

    centre: Floats
    scale: Floats

    @classmethod
    def of(cls, X: Floats, weights: Floats, name: str = "X") -> Reference:
        """Measure the columns of `X`, NaN left out; a constant column borrows the others' scale."""
        # Around any value of the column first, so that a far offset costs no digits.
        if np.isnan(X.sum()):
            observed = ~np.isnan(X)
            counts = weights @ observed
            if not counts.all():
                columns = np.flatnonzero(counts == 0).tolist()
                raise InvalidInputError(
                    f"{name} holds no value at all in column(s) {columns}: drop them, or pass rows "
                    f"in which they are known"
                )
            anchor = X[observed.argmax(axis=0), np.arange(X.shape[1])]
            shifted = np.where(observed, X - anchor, 0.0)
            offset = (weights @ shifted) / counts
            variance = (weights @ np.where(observed, shifted - offset, 0.0) ** 2) / counts
        else:
            total = weights.sum()
            anchor = X[0]
            shifted = X - anchor
            offset = (weights @ shifted) / total
            shifted -= offset
            variance = (weights @ np.square(shifted, out=shifted)) / total
        return cls.of_moments(anchor + offset, variance)

    @classmethod
    def of_moments(cls, centre: Floats, variance: Floats) -> Reference:
        """Take a column's spread as its scale, unless it is constant up to rounding."""
        resolution = 16.0 * np.finfo(np.float64).eps * np.abs(centre)
        scale = np.sqrt(variance)
        varies = scale > resolution
        if not varies.all():
            scale[~varies] = scale[varies].mean() if varies.any() else 1.0
        return cls(centre, scale)


def fit_mixture(
    X: Any,
    min_components: int = 1,
    max_components: int | None = None,
    *,
    sample_weight: Any = None,
    n_init: int = 1,
    max_iter: int = 100,
    tol: float = 1e-3,
    std_floor: float = 1e-3,
    random_state: RandomState = None,
) -> Mixture:
    """Fit an axis-aligned Gaussian mixture by EM, with the number of components chosen by BIC.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        NaN marks a missing value, which is left out exactly.
    min_components, max_components : int
        The sweep min_components..max_components, ends included; without `max_components` exactly
        `min_components`. Never more than there are distinct rows.
    sample_weight : array of shape (n_samples,), optional
        Counts: a weight of 2 is a row seen twice, a weight of 0 a row not seen.
    n_init : int, default=1
        Restarts, each from its own k-means++ start.
    max_iter, tol : int and float
        EM stops when the mean log-likelihood rises by less than `tol`, or after `max_iter` steps.
    std_floor : float, default=1e-3
        Smallest standard deviation, relative to that of the whole column; 1e-4 to 1.
    random_state : int, Generator or None
        Seed of the starts. The order of the rows never matters.

    Returns
    -------
    Mixture
        The candidate with the lowest BIC; one that did not converge only if none did. Its mass is
        the sum of the sample weights.

    Raises
    ------
    InvalidInputError
        If `X` holds no rows or columns without any value, a weight is negative, or an option is out
        of its range.

    See Also
    --------
    sweep_components : the same, with all that the sweep saw.

    Examples
    --------
    >>> import numpy as np
    >>> from baryflow import fit_mixture
    >>> X = np.concatenate([np.random.default_rng(0).normal(c, 1, (50, 2)) for c in (-5, 5)])
    >>> fit_mixture(X, 1, 4, random_state=0)
    Mixture(n_components=2, n_features=2, mass=100)
    """
    return sweep_components(
        X,
        min_components,
        max_components,
        sample_weight=sample_weight,
        n_init=n_init,
        max_iter=max_iter,
        tol=tol,
        std_floor=std_floor,
        random_state=random_state,
    ).mixture


def sweep_components(
    X: Any,
    min_components: int = 1,
    max_components: int | None = None,
    *,
    sample_weight: Any = None,
    n_init: int = 1,
    max_iter: int = 100,
    tol: float = 1e-3,
    std_floor: float = 1e-3,
    random_state: RandomState = None,
) -> Sweep:
    """Fit mixtures with several numbers of components; return the best by BIC, and the curve.

    Parameters
    ----------
    X, min_components, max_components, sample_weight, n_init, max_iter, tol, std_floor, random_state
        As in :func:`fit_mixture`.

    Returns
    -------
    Sweep
        With the chosen mixture in ``.mixture``.

    Raises
    ------
    InvalidInputError
        As :func:`fit_mixture`.

    Examples
    --------
    >>> import numpy as np
    >>> from baryflow import sweep_components
    >>> X = np.concatenate([np.random.default_rng(0).normal(c, 1, (50, 2)) for c in (-5, 5)])
    >>> sweep = sweep_components(X, 1, 4, random_state=0)
    >>> sweep.n_components[sweep.best]
    np.int64(2)
    """
    X = as_matrix(X, "X", allow_nan=True)
    weights = as_weights(sample_weight, "sample_weight", length=X.shape[0])
    X, weights = distinct_rows(X, weights)
    return fit_rows(
        X,
        weights,
        Reference.of(X, weights),
        min_components=min_components,
        max_components=max_components,
        n_init=n_init,
        max_iter=max_iter,
        tol=tol,
        std_floor=std_floor,
        rng=as_generator(random_state),
    )


def fit_rows(
    X: Floats,
    weights: Floats,
    reference: Reference,
    *,
    min_components: int = 1,
    max_components: int | None = None,
    n_init: int = 1,
    max_iter: int = 100,
    tol: float = 1e-3,
    std_floor: float = 1e-3,
    rng: np.random.Generator,
) -> Sweep:
    """Fit distinct rows in the units of `reference`, which may come from a larger set of rows.

    A column that is missing from all of these rows then keeps the reference's centre and scale.
    """
    k1 = as_count(min_components, "min_components")
    k2 = k1 if max_components is None else as_count(max_components, "max_components")
    if k2 < k1:
        raise InvalidInputError(f"max_components={k2} must not be smaller than min_components={k1}")
    n_init = as_count(n_init, "n_init")
    max_iter = as_count(max_iter, "max_iter")
    tol = as_real(tol, "tol", low=0.0)
    std_floor = as_real(std_floor, "std_floor", low=_SMALLEST_FLOOR, high=1.0)

    mass = float(weights.sum())
    ks = list(range(min(k1, len(X)), min(k2, len(X)) + 1))
    rows = StandardisedRows.of(X, weights, reference.centre, reference.scale)
    candidates = Candidates.started(rows, ks, n_init, std_floor, rng)
    candidates.advance(max_iter, tol * mass)
    return _choose(candidates, ks, reference, mass)


def distinct_rows(X: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the distinct rows of positive weight in a canonical order, and their total weights.

    This makes an integer weight the same as repetition, and the order of rows immaterial.
    """
    keep = weights > 0.0
    if not keep.all():
        X, weights = X[keep], weights[keep]
    order = X[:, 0].argsort()
    ordered = X[order]
    if (ordered[1:, 0] > ordered[:-1, 0]).all():  # one column tells them apart: the usual case
        ordered += 0.0  # -0.0 is 0.0
        return ordered, weights[order]
    X = np.ascontiguousarray(X + 0.0)  # a copy in which -0.0 is 0.0
    X[np.isnan(X)] = np.nan  # one bit pattern for all NaN
    keys = X.view(np.dtype((np.void, X.shape[1] * X.itemsize))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    X, weights = X[first], np.bincount(inverse, weights=weights).astype(np.float64)
    canonical = X[:, 0].argsort(kind="stable")
    return X[canonical], weights[canonical]


def _choose(candidates: Candidates, ks: list[int], reference: Reference, mass: float) -> Sweep:
    """Keep the best restart of each number of components, and the best of those by BIC.

    One that did not converge wins only over others that did not.
    """
    traces, converged = candidates.traces, candidates.converged
    of_k = [range(i, len(traces), len(ks)) for i in range(len(ks))]
    chosen = [min(restarts, key=lambda c: (not converged[c], -traces[c][-1])) for restarts in of_k]
    n_components = np.array(ks)
    log_likelihood = np.array([traces[c][-1] for c in chosen])
    n_parameters = n_components - 1 + 2 * n_components * len(reference.centre)
    bic = n_parameters * np.log(mass) - 2.0 * log_likelihood
    best = min(range(len(ks)), key=lambda i: (not converged[chosen[i]], bic[i]))
    return Sweep(
        mixture=_mixture(candidates, chosen[best], reference, mass),
        n_components=n_components,
        bic=bic,
        log_likelihood=log_likelihood,
        converged=np.array([converged[c] for c in chosen]),
        n_iter=np.array([len(traces[c]) for c in chosen]),
        traces=tuple(np.array(traces[c]) for c in chosen),
        best=best,
    )


def _mixture(candidates: Candidates, number: int, reference: Reference, mass: float) -> Mixture:
    """Return one candidate in the units of the data, without components that have vanished."""
    shares, means, stds = candidates.parameters(number)
    alive = shares > _VANISHED
    if not alive.all():
        shares, means, stds = shares[alive], means[alive], stds[alive]
    return Mixture(
        shares / shares.sum(),
        reference.centre + reference.scale * means,
        reference.scale * stds,
        mass=mass,
    )
