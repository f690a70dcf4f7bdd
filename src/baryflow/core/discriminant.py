"""A view in which classes stand apart: shrunken linear discriminants of several domains."""

from __future__ import annotations

import numpy as np

from baryflow.validation import Floats, Integers


def ledoit_wolf(residuals: Floats) -> Floats:
    """Return the covariance of centred rows, shrunk towards a multiple of the identity.

    The share of the identity minimises the expected squared error (Ledoit and Wolf, 2004), so that
    the result can be inverted also with fewer rows than columns.
    """
    n, d = residuals.shape
    sample = residuals.T @ residuals / n
    level = float(np.trace(sample)) / d
    spread = float(np.square(sample).sum()) - d * level**2  # ‖S − level·I‖²
    if spread <= 0.0:
        return np.asarray(level * np.eye(d))
    squares = np.square(residuals)
    noise = float((squares.T @ squares).sum() / n - np.square(sample).sum()) / n
    share = min(1.0, max(0.0, noise) / spread)
    return np.asarray((1.0 - share) * sample + share * level * np.eye(d))


def discriminant_directions(rows: list[Floats], codes: list[Integers], n_classes: int) -> Floats:
    """Return directions W, shape (d, at most n_classes − 1): look at rows through ``Z @ W``.

    Fisher's discriminants with the covariance within each class *of each domain*, shrunken: what moves
    a class from one domain to the next does not count as spread. Within-class covariance is the
    identity in the view, so that axis-aligned Gaussians fit it.

    Parameters
    ----------
    rows : list of arrays of shape (n_l, d)
        One for each domain, standardised domain by domain, without NaN.
    codes : list of arrays of shape (n_l,)
        The class numbers, 0..n_classes − 1.
    """
    from scipy.linalg import eigh

    Z, y = np.concatenate(rows), np.concatenate(codes)
    group = np.repeat(np.arange(len(rows)), [len(c) for c in codes]) * n_classes + y
    within = ledoit_wolf(Z - _group_means(Z, group, n_classes * len(rows))[group])
    # A direction without any spread cannot be divided by; keep it finite.
    within += 1e-9 * max(float(np.trace(within)) / len(within), 1e-12) * np.eye(len(within))
    shares = np.bincount(y, minlength=n_classes) / len(y)
    means = _group_means(Z, y, n_classes)
    means -= shares @ means
    between = (means * shares[:, None]).T @ means
    _, vectors = eigh(between, within)
    n_directions = max(1, min(n_classes - 1, Z.shape[1]))
    directions = vectors[:, ::-1][:, :n_directions]
    # The sign of an eigenvector is arbitrary: fix it, so that the same data give the same view.
    signs = np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(n_directions)])
    return np.ascontiguousarray(directions * np.where(signs == 0.0, 1.0, signs))


def _group_means(Z: Floats, group: Integers, n_groups: int) -> Floats:
    sums = np.zeros((n_groups, Z.shape[1]))
    np.add.at(sums, group, Z)
    return sums / np.maximum(np.bincount(group, minlength=n_groups), 1)[:, None]
