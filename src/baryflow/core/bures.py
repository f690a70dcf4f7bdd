"""The distance between Gaussians with full covariance matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_matrix

#: What rounding may leave of symmetry or below zero, relative to the largest entry or eigenvalue.
_ROUNDING = 1e-8


def bures_squared(covariance_a: Any, covariance_b: Any) -> float:
    r"""Return the squared Bures-Wasserstein distance between two covariance matrices.

    With the squared distance of the means added it is the squared 2-Wasserstein distance between two
    Gaussians:

    .. math:: \mathcal B^2(A, B) = \operatorname{tr} \, A + \operatorname{tr} \, B
        - 2 \operatorname{tr} \, (A^{1/2} B A^{1/2})^{1/2} = \min_U \|A^{1/2} - B^{1/2} U\|^2

    over the rotations U. The second form is the one that is computed, with the best U from a singular
    value decomposition: nothing cancels, so that near covariances keep their digits and the distance
    of equal ones is zero up to rounding, and singular ones need no care.

    Parameters
    ----------
    covariance_a, covariance_b : arrays of shape (n_features, n_features)
        Symmetric and positive semi-definite; singular ones are welcome.

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        If a matrix is not square, not symmetric or has a negative eigenvalue, or their sizes differ.

    See Also
    --------
    w2_squared : of components with diagonal covariances, for which B² is ‖s_a − s_b‖².

    Examples
    --------
    >>> from baryflow import bures_squared
    >>> round(bures_squared([[1.0, 0.0], [0.0, 4.0]], [[9.0, 0.0], [0.0, 4.0]]), 12)
    4.0
    """
    root_a = _root(as_matrix(covariance_a, "covariance_a", rows="n_features"), "covariance_a")
    b = as_matrix(covariance_b, "covariance_b", rows="n_features", n_columns=len(root_a))
    root_b = _root(b, "covariance_b")
    left, _, right = np.linalg.svd(root_a @ root_b)
    return float(np.square(root_a - root_b @ (left @ right).T).sum())


def _root(covariance: Floats, name: str) -> Floats:
    """Return the symmetric root."""
    if covariance.shape[0] != covariance.shape[1]:
        raise InvalidInputError(f"{name} must be a square matrix, got shape {covariance.shape}")
    size = float(np.abs(covariance).max())
    skew = float(np.abs(covariance - covariance.T).max())
    if skew > _ROUNDING * size:
        raise InvalidInputError(
            f"{name} must be symmetric, but differs from its transpose by {skew:g}: use (S + S.T) / 2"
        )
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2.0)
    if values[0] < -_ROUNDING * size:
        raise InvalidInputError(
            f"{name} must be positive semi-definite, but has the eigenvalue {values[0]:g}: "
            f"is it a covariance?"
        )
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root
