"""Linear classifiers of the sources' rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from baryflow.validation import Floats, Integers

#: Logit of a class that a classifier has never seen.
_NEVER = -50.0
#: Steps of the optimiser: enough for what the classifiers are used for.
STEPS = 100


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """A fitted logistic regression: nothing but its two arrays."""

    coefficients: Floats  # (d, n_classes)
    intercepts: Floats  # (n_classes,)

    @classmethod
    def fit(
        cls,
        Z: Floats,
        codes: Integers,
        n_classes: int,
        *,
        weights: Floats | None = None,
        basis: Floats | None = None,
        max_steps: int = STEPS,
    ) -> Self:
        """Fit on standardised rows; classes without a row are never predicted.

        With `weights` rows stand for so many each. With a `basis`, shape (d, q), only what rows have in
        its span is used.
        """
        coefficients = np.zeros((Z.shape[1], n_classes))
        intercepts = np.full(n_classes, _NEVER)
        present = np.unique(codes)
        if len(present) == 1:
            intercepts[present] = 0.0
            return cls(coefficients, intercepts)
        model = LogisticRegression(max_iter=max_steps)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(Z if basis is None else Z @ basis, codes, sample_weight=weights)
        found = model.coef_.T if basis is None else basis @ model.coef_.T
        if len(present) == 2:  # scikit-learn keeps one row of coefficients for two classes
            coefficients[:, present[1]] = found[:, 0]
            intercepts[present] = [0.0, model.intercept_[0]]
        else:
            coefficients[:, present] = found
            intercepts[present] = model.intercept_
        return cls(coefficients, intercepts)

    def proba(self, Z: Floats) -> Floats:
        """Return the probability of every class."""
        return np.asarray(softmax(Z @ self.coefficients + self.intercepts, axis=1))


def reweight(table: Floats, ratios: Floats) -> Floats:
    """Return probabilities for classes that are so many times as frequent."""
    weighted = table * ratios
    return np.asarray(weighted / weighted.sum(axis=1, keepdims=True))


def telling_basis(
    rows: list[Floats], codes: list[Integers], directions: Floats, n_directions: int
) -> Floats:
    """Return an orthonormal basis of what tells classes apart, shape (d, n_directions).

    Of columns by the thousand a regression needs only so much: the discriminant directions, the means
    of the classes of every source, and the directions in which rows spread most around them.
    """
    from scipy.linalg import qr
    from sklearn.utils.extmath import randomized_svd

    means, residuals = [], []
    for Z, y in zip(rows, codes, strict=True):
        for c in np.unique(y):
            members = Z[y == c]
            means.append(members.mean(axis=0) * np.sqrt(len(members)))
            residuals.append(members - members.mean(axis=0))
    scaled = directions / np.linalg.norm(directions, axis=0)
    _, _, leading = np.linalg.svd(np.stack(means), full_matrices=False)
    room = max(1, n_directions // 2)
    basis, _ = qr(np.hstack([scaled[:, :room], leading[:room].T]), mode="economic")
    if n_directions > basis.shape[1]:
        rest = np.concatenate(residuals)
        rest -= (rest @ basis) @ basis.T
        _, _, spreads = randomized_svd(rest, n_directions - basis.shape[1], random_state=0)
        basis = np.hstack([basis, spreads.T])
    return np.ascontiguousarray(basis[:, :n_directions])
