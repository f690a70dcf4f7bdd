"""What an estimator can do that is a distribution of rows."""

from __future__ import annotations

from typing import Any

from baryflow.core.mixture import Mixture
from baryflow.estimators.rows import TakesRows
from baryflow.validation import Floats, Integers, RandomState


class Density(TakesRows):
    """Densities, components and draws of rows, for an estimator that has a mixture."""

    @property
    def mixture_(self) -> Mixture:
        """The mixture; whoever inherits has one."""
        raise NotImplementedError

    def score_samples(self, X: Any) -> Floats:
        """Return the log-density of every row.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            NaN marks a missing value, which is integrated out.

        Returns
        -------
        array of shape (n_samples,)

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        rows = self._rows(X)
        return self.mixture_.log_density(rows)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-density of rows.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            NaN marks a missing value, which is integrated out.
        y : ignored

        Returns
        -------
        float

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        return float(self.score_samples(X).mean())

    def predict(self, X: Any) -> Integers:
        """Return the most probable component of every row.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            NaN marks a missing value, which is integrated out.

        Returns
        -------
        array of shape (n_samples,)
            Numbers of components.

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        rows = self._rows(X)
        most_probable: Integers = self.mixture_.component_log_density(rows).argmax(axis=1)
        return most_probable

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of every component for every row.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            NaN marks a missing value, which is integrated out.

        Returns
        -------
        array of shape (n_samples, n_components)

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        rows = self._rows(X)
        return self.mixture_.posterior(rows)

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> tuple[Floats, Integers]:
        """Draw rows from the mixture.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, Generator or None

        Returns
        -------
        X : array of shape (n_samples, n_features)
        components : array of shape (n_samples,)
            The component of each.

        Raises
        ------
        InvalidInputError
            If `n_samples` is not a positive integer, or `random_state` cannot be used.
        """
        return self.mixture_.sample(n_samples, random_state)

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion of the mixture on rows; lower is better.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            NaN marks a missing value, which is integrated out.

        Returns
        -------
        float

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        rows = self._rows(X)
        return self.mixture_.bic(rows)

    def aic(self, X: Any) -> float:
        """Return the Akaike information criterion of the mixture on rows; lower is better.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            NaN marks a missing value, which is integrated out.

        Returns
        -------
        float

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        rows = self._rows(X)
        return self.mixture_.aic(rows)
