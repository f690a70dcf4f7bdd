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


class PaperOnlineMixture:
    """The paper's Algs. 1 to 4 on scikit-learn and the double loop."""

    def __init__(self, max_components, batch_components):
        self.max_components, self.batch_components = max_components, batch_components

    def start(self, weights, means, stds, seen):
        self.weights, self.means, self.stds, self.seen = weights, means, stds, seen
        return self

    def partial_fit(self, X):
        batch, _ = get_best_gmm(X, 1, self.batch_components)
        total = self.seen + len(X)
        self.weights = np.concatenate(
            [self.weights * self.seen / total, batch.weights_ * len(X) / total]
        )
        self.means = np.concatenate([self.means, batch.means_])
        self.stds = np.concatenate([self.stds, np.sqrt(batch.covariances_)])
        self.seen = total
        while len(self.weights) > self.max_components:
            table = w2_table_double_loop(self.means, self.stds)
            i, j = np.unravel_index(table.argmin(), table.shape)
            share = self.weights[j] / (self.weights[i] + self.weights[j])
            self.means[i] += share * (self.means[j] - self.means[i])
            self.stds[i] += share * (self.stds[j] - self.stds[i])
            self.weights[i] += self.weights[j]
            self.weights, self.means, self.stds = (
                np.delete(a, j, axis=0) for a in (self.weights, self.means, self.stds)
            )
        return self


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
