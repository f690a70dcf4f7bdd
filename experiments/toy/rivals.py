"""Rivals of the online mixture, each with `partial_fit` and `mixture_`."""

from __future__ import annotations

import numpy as np

from baryflow import Mixture, fit_mixture
from baryflow.core.gaussian import kl_table


class KLRival:
    """The rival of the paper (Acevedo-Valle et al. 2017, as the paper describes it).

    Batches are fit as in the paper. Similarity is the Kullback-Leibler divergence, and only
    components of the new batch can be removed: each surplus one gives its mass to the nearest old
    component, whose mean and std stay as they are.
    """

    def __init__(self, max_components, min_components=5, batch_components=3, random_state=0):
        self.sizes = (max_components, min_components, batch_components)
        self.rng = np.random.default_rng(random_state)
        self.mixture_ = None

    def partial_fit(self, X):
        largest, smallest, at_most = self.sizes
        if self.mixture_ is None:
            self.mixture_ = fit_mixture(X, smallest, random_state=self.rng)
            return self
        old, new = self.mixture_, fit_mixture(X, 1, at_most, random_state=self.rng)
        mass = old.mass + new.mass
        weights = old.weights * old.mass / mass
        divergence = kl_table(new.means, new.stds, old.means, old.stds)
        surplus = max(0, old.n_components + new.n_components - largest)
        removed = divergence.min(axis=1).argsort()[:surplus]
        np.add.at(weights, divergence.argmin(axis=1)[removed], new.weights[removed] * new.mass / mass)
        kept = np.setdiff1d(np.arange(new.n_components), removed)
        self.mixture_ = Mixture(
            np.concatenate([weights, new.weights[kept] * new.mass / mass]),
            np.concatenate([old.means, new.means[kept]]),
            np.concatenate([old.stds, new.stds[kept]]),
            mass=mass,
        )
        return self


class StepwiseEM:
    """Mini-batch EM: sufficient statistics move towards each batch's own by a step (t + 2)^-power."""

    def __init__(self, n_components, power=0.6, random_state=0):
        self.n_components, self.power = n_components, power
        self.rng = np.random.default_rng(random_state)
        self.mixture_ = None
        self.t = 0

    def partial_fit(self, X):
        if self.mixture_ is None:
            self.mixture_ = fit_mixture(X, self.n_components, random_state=self.rng)
            self.floor = 1e-2 * X.std(axis=0)
            self.statistics = self._statistics(X)
            return self
        self.t += 1
        step = (self.t + 2) ** -self.power
        batch = self._statistics(X)
        self.statistics = [
            (1 - step) * old + step * new for old, new in zip(self.statistics, batch, strict=True)
        ]
        counts, sums, squares = self.statistics
        counts = np.maximum(counts, 1e-12)
        means = sums / counts[:, None]
        variances = squares / counts[:, None] - means**2
        stds = np.sqrt(np.maximum(variances, self.floor**2))
        mass = self.mixture_.mass + len(X)
        self.mixture_ = Mixture(counts / counts.sum(), means, stds, mass=mass)
        return self

    def _statistics(self, X):
        shares = self.mixture_.posterior(X) / len(X)
        return [shares.sum(axis=0), shares.T @ X, shares.T @ X**2]
