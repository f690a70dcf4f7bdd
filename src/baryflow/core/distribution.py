"""Mixtures as distributions: densities, posteriors, predictions, criteria, samples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from baryflow.core.gaussian import LogDensity
from baryflow.exceptions import InvalidInputError
from baryflow.validation import (
    Floats,
    Integers,
    RandomState,
    as_count,
    as_generator,
    as_matrix,
    as_weights,
)

#: Rows handled at once: their table of densities and its temporaries then stay in the cache.
_BLOCK = 512


class Distribution:
    """What can be asked of an axis-aligned Gaussian mixture about rows.

    It needs nothing but the arrays of :class:`~baryflow.Mixture`, which is one.
    """

    weights: Floats
    means: Floats
    stds: Floats
    labels: Floats | None

    @property
    def n_components(self) -> int:
        """Number of components, K."""
        return int(self.means.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return int(self.means.shape[1])

    @property
    def n_classes(self) -> int:
        """Number of classes of a labelled mixture; an error for an unlabelled one."""
        return int(self._labels().shape[1])

    @property
    def n_parameters(self) -> int:
        """Free parameters of the density, (K − 1) + 2·K·d."""
        return self.n_components - 1 + 2 * self.n_components * self.n_features

    def mean(self) -> Floats:
        """Return the mean of the mixture.

        Returns
        -------
        array of shape (n_features,)
        """
        return self.weights @ self.means

    def variance(self) -> Floats:
        """Return the variance of each feature under the mixture, within and between components.

        Returns
        -------
        array of shape (n_features,)
        """
        return self.weights @ (self.stds**2 + (self.means - self.mean()) ** 2)

    # -- densities ---------------------------------------------------------------------------

    def component_log_density(self, X: Any) -> Floats:
        """Return log w_k + log N(x; m_k, s_k) for every row and component.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            NaN coordinates are integrated out exactly, here and in the methods below.

        Returns
        -------
        array of shape (n_samples, n_components)

        Raises
        ------
        InvalidInputError
            If `X` does not have n_features columns, or holds infinite values.
        """
        X = self._rows(X)
        table = np.empty((X.shape[0], self.n_components))
        for rows, block in self._weighted_blocks(X):
            table[rows] = block
        return table

    def log_density(self, X: Any) -> Floats:
        """Return log p(x) of every row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)

        Raises
        ------
        InvalidInputError
            As :meth:`component_log_density`.
        """
        X = self._rows(X)
        result = np.empty(X.shape[0])
        for rows, block in self._weighted_blocks(X):
            top = block.max(axis=1)
            np.exp(np.subtract(block, top[:, None], out=block), out=block)
            result[rows] = top + np.log(block.sum(axis=1))
        return result

    def posterior(self, X: Any) -> Floats:
        """Return p(component | x).

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_components)
            Every row sums to 1.

        Raises
        ------
        InvalidInputError
            As :meth:`component_log_density`.
        """
        X = self._rows(X)
        table = np.empty((X.shape[0], self.n_components))
        for rows, block in self._posterior_blocks(X):
            np.divide(block, block.sum(axis=1, keepdims=True), out=table[rows])
        return table

    def predict_proba(self, X: Any) -> Floats:
        """Return the class probabilities Σ_k labels[k] · p(k | x) (paper, eq. 3).

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_classes)
            Every row sums to 1.

        Raises
        ------
        InvalidInputError
            If the mixture has no labels, or as :meth:`component_log_density`.
        """
        X, labels = self._rows(X), self._labels()
        table = np.empty((X.shape[0], labels.shape[1]))
        for rows, block in self._posterior_blocks(X):
            votes = block @ labels
            votes /= votes.sum(axis=1, keepdims=True)
            table[rows] = votes
        return table

    def predict(self, X: Any) -> Integers:
        """Return the index of the most probable class of every row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        array of int, shape (n_samples,)

        Raises
        ------
        InvalidInputError
            If the mixture has no labels, or as :meth:`component_log_density`.
        """
        X, labels = self._rows(X), self._labels()
        result = np.empty(X.shape[0], dtype=np.intp)
        for rows, block in self._posterior_blocks(X):
            result[rows] = (block @ labels).argmax(axis=1)
        return result

    def bic(self, X: Any, sample_weight: Any = None) -> float:
        """Return the Bayesian information criterion, n_parameters · log n − 2 · Σ log p(x).

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        sample_weight : array of shape (n_samples,), optional
            Counts of the rows; n is their sum.

        Returns
        -------
        float
            Lower is better.

        Raises
        ------
        InvalidInputError
            If a weight is negative, or as :meth:`component_log_density`.
        """
        log_likelihood, n = self._log_likelihood(X, sample_weight)
        return self.n_parameters * float(np.log(n)) - 2.0 * log_likelihood

    def aic(self, X: Any, sample_weight: Any = None) -> float:
        """Return the Akaike information criterion, 2 · n_parameters − 2 · Σ log p(x).

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        sample_weight : array of shape (n_samples,), optional
            Counts of the rows.

        Returns
        -------
        float
            Lower is better.

        Raises
        ------
        InvalidInputError
            If a weight is negative, or as :meth:`component_log_density`.
        """
        log_likelihood, _ = self._log_likelihood(X, sample_weight)
        return 2.0 * self.n_parameters - 2.0 * log_likelihood

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> tuple[Floats, Integers]:
        """Draw rows.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, Generator or None

        Returns
        -------
        rows : array of shape (n_samples, n_features)
        components : array of int, shape (n_samples,)
            The component that each row was drawn from.

        Raises
        ------
        InvalidInputError
            If `n_samples` is no positive integer, or `random_state` no seed.
        """
        n = as_count(n_samples, "n_samples")
        rng = as_generator(random_state)
        components = rng.choice(self.n_components, size=n, p=self.weights)
        noise = rng.standard_normal((n, self.n_features))
        return self.means[components] + self.stds[components] * noise, components

    # -- private -----------------------------------------------------------------------------

    def _labels(self) -> Floats:
        if self.labels is None:
            raise InvalidInputError("this mixture has no labels: use with_labels to give it some")
        return self.labels

    def _rows(self, X: Any) -> Floats:
        return as_matrix(X, "X", n_columns=self.n_features, allow_nan=True)

    def _log_likelihood(self, X: Any, sample_weight: Any) -> tuple[float, float]:
        X = self._rows(X)
        weights = as_weights(sample_weight, "sample_weight", length=X.shape[0])
        return float(self.log_density(X) @ weights), float(weights.sum())

    @cached_property
    def _gaussians(self) -> LogDensity:
        return LogDensity(self.means, self.stds)

    @cached_property
    def _log_weights(self) -> Floats:
        with np.errstate(divide="ignore"):  # a weight of zero is a component that never occurs
            return np.log(self.weights)

    def _weighted_blocks(self, X: Floats) -> Iterator[tuple[slice, Floats]]:
        """Yield the table of weighted log-densities in blocks of rows; blocks may be overwritten."""
        for start in range(0, X.shape[0], _BLOCK):
            rows = slice(start, start + _BLOCK)
            block = self._gaussians(X[rows])
            block += self._log_weights
            yield rows, block

    def _posterior_blocks(self, X: Floats) -> Iterator[tuple[slice, Floats]]:
        """Yield p(k | x) up to a factor per row, in blocks; the largest entry of a row is 1."""
        for rows, block in self._weighted_blocks(X):
            np.subtract(block, block.max(axis=1, keepdims=True), out=block)
            yield rows, np.exp(block, out=block)
