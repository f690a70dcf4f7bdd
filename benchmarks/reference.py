"""Plain references, written from the paper's pseudo-code and used as rivals."""

from __future__ import annotations

import numpy as np


def w2_table_double_loop(means, stds):
    """The distances of the paper's Alg. 3, one pair at a time."""
    k = len(means)
    table = np.empty((k, k))
    for i in range(k):
        table[i, i] = np.inf
        for j in range(i + 1, k):
            table[i, j] = table[j, i] = np.sum((means[i] - means[j]) ** 2) + np.sum(
                (stds[i] - stds[j]) ** 2
            )
    return table


def get_best_gmm(X, k1, k2, seed=0):
    """The paper's Alg. 2 on scikit-learn, with the missing update of the best BIC."""
    from sklearn.mixture import GaussianMixture

    best, best_bic, scores = None, np.inf, []
    for k in range(k1, k2 + 1):
        model = GaussianMixture(k, covariance_type="diag", random_state=seed).fit(X)
        bic = model.bic(X)
        scores.append(model)
        if bic < best_bic:
            best, best_bic = model, bic
    return best, scores
