"""A Gaussian mixture of a stream."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted

from baryflow.core.mixture import Mixture
from baryflow.core.summary import Settings, StreamSummary, StreamSummaryState
from baryflow.estimators._input import InputMixin
from baryflow.estimators._persistence import Persistable, Shell
from baryflow.estimators._threads import one_thread
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers, as_weights


@dataclass(frozen=True, eq=False)
class OnlineMixtureState:
    """All that an OnlineGaussianMixture knows."""

    shell: Shell
    summary: StreamSummaryState


class OnlineGaussianMixture(Persistable, InputMixin, DensityMixin, BaseEstimator):
    """Fit an axis-aligned Gaussian mixture to a stream that is seen once, in bounded memory.

    Every row becomes a component, and the nearest components are merged as long as there are too
    many, keeping their moments: those with the smallest W2² · m_i·m_j / (m_i + m_j) for masses m_i and
    m_j, Ward's criterion. Summaries of several streams can be merged, so the work can be spread
    over processes. Put features on comparable scales first: nearness is
    Euclidean. No random numbers are drawn.

    Parameters
    ----------
    max_components : int, default=50
        Components of the mixture at most. For data with classes, at least twice their number.
    resolution : int, default=2
        The summary keeps this many times `max_components` components, and the mixture shown is fit to
        them by EM. 1 shows the summary itself.
    half_life : float, optional
        After this many more rows (or this sum of weights) a row counts half; rows of one batch count
        the same. Without it all rows of the stream do.
    std_floor : float, default=1e-4
        Smallest standard deviation, relative to that of the whole column.

    Attributes
    ----------
    mixture_ : Mixture
        Its mass is the sum of the weights seen, decayed with `half_life`.
    n_samples_seen_ : int
    mean_, variance_ : arrays of shape (n_features,)
        Running moments of the stream, missing values left out.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    baryflow.fit_mixture : the same for data that can be held and seen several times.
    baryflow.paper.OnlineGMM : the paper's algorithm, a small mixture fit to every batch.

    Examples
    --------
    >>> from baryflow import OnlineGaussianMixture
    >>> from baryflow.datasets import make_crescents
    >>> X, _ = make_crescents(random_state=0)
    >>> model = OnlineGaussianMixture(max_components=15)
    >>> for batch in X.reshape(30, 20, 2):
    ...     model = model.partial_fit(batch)
    >>> model.mixture_
    Mixture(n_components=15, n_features=2, mass=600)
    """

    _summary: StreamSummary
    n_features_in_: int

    def __init__(
        self,
        max_components: int = 50,
        *,
        resolution: int = 2,
        half_life: float | None = None,
        std_floor: float = 1e-4,
    ) -> None:
        self.max_components = max_components
        self.resolution = resolution
        self.half_life = half_life
        self.std_floor = std_floor

    # -- learning ----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Forget everything, then absorb rows in one pass.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            NaN marks a missing value.
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            Counts: 2 is a row seen twice, 0 a row not seen.

        Returns
        -------
        OnlineGaussianMixture
            Itself. If it fails, what was seen before stays.

        Raises
        ------
        InvalidInputError
            If rows, weights or parameters do not fit; the message says what to do.
        """
        return self._absorb(X, sample_weight, reset=True)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Absorb a batch of one row or more.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            NaN marks a missing value: it becomes what the mixture expects there, given the rest of
            the row, with the spread it expects.
        y : ignored
        sample_weight : array of shape (n_samples,), optional
            Counts: 2 is a row seen twice, 0 a row not seen.

        Returns
        -------
        OnlineGaussianMixture
            Itself.

        Raises
        ------
        InvalidInputError
            If rows, weights or parameters do not fit; the message says what to do.
        """
        return self._absorb(X, sample_weight, reset=not hasattr(self, "_summary"))

    @one_thread
    def merge(self, other: OnlineGaussianMixture) -> Self:
        """Absorb what another model has seen, as if both streams had been one; `other` stays as it is.

        An unfitted model becomes a copy of the other one's stream under its own settings.

        Parameters
        ----------
        other : OnlineGaussianMixture
            With the same features.

        Returns
        -------
        OnlineGaussianMixture
            Itself.

        Raises
        ------
        InvalidInputError
            If the two do not fit each other.
        """
        if not isinstance(other, OnlineGaussianMixture):
            raise InvalidInputError(
                f"other must be an OnlineGaussianMixture, got {type(other).__name__}"
            )
        check_is_fitted(other)
        if hasattr(self, "_summary"):
            self._check_same_names(other)
            self._summary.merge(other._summary)
        else:
            summary = StreamSummary(other.n_features_in_, self._settings())
            summary.merge(other._summary)
            self._summary, self.n_features_in_ = summary, other.n_features_in_
            if (names := getattr(other, "feature_names_in_", None)) is not None:
                self.feature_names_in_ = names.copy()
        self.n_samples_seen_ = self._summary.n_rows
        return self

    @one_thread  # bits depend on it
    def _absorb(self, X: Any, sample_weight: Any, *, reset: bool) -> Self:
        with self._unless_it_fails():
            rows = self._first_rows(X) if reset else self.check_rows(X)
            weights = as_weights(sample_weight, "sample_weight", length=len(rows))
            settings = self._settings()
            summary = StreamSummary(rows.shape[1], settings) if reset else self._summary.copy()
            if settings != summary.settings:
                summary.change(settings)
            summary.update(rows, weights)
        self._summary = summary
        self.n_samples_seen_ = self._summary.n_rows
        return self

    def _settings(self) -> Settings:
        parameters = self.get_params()
        return Settings(**{f.name: parameters[f.name] for f in fields(Settings) if f.name in parameters})

    def _check_same_names(self, other: OnlineGaussianMixture) -> None:
        mine = getattr(self, "feature_names_in_", None)
        theirs = getattr(other, "feature_names_in_", None)
        if mine is not None and theirs is not None and list(mine) != list(theirs):
            raise InvalidInputError(
                f"other was fitted on the features {list(theirs)}, this model on {list(mine)}"
            )

    # -- looking -----------------------------------------------------------------------------

    @property
    @one_thread
    def mixture_(self) -> Mixture:
        """The mixture of all that was seen."""
        check_is_fitted(self, "_summary")
        return self._summary.mixture()

    @property
    def mean_(self) -> Floats:
        """Running mean of every column."""
        check_is_fitted(self, "_summary")
        return self._summary.moments()[0]

    @property
    def variance_(self) -> Floats:
        """Running variance of every column."""
        check_is_fitted(self, "_summary")
        return self._summary.moments()[1]

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
        rows = self.check_rows(X)
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
        rows = self.check_rows(X)
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
        rows = self.check_rows(X)
        return self.mixture_.posterior(rows)

    # -- keeping -----------------------------------------------------------------------------

    kind = "online_mixture"
    state_type = OnlineMixtureState

    def _state(self) -> OnlineMixtureState:
        return OnlineMixtureState(Shell.of(self), self._summary.state())

    @classmethod
    def _from_state(cls, state: OnlineMixtureState) -> Self:
        model = cls(**state.shell.parameters)
        state.shell.fill(model)
        model._summary = StreamSummary.from_state(state.summary)
        if model._summary.n_features != model.n_features_in_:
            raise InvalidInputError("the summary does not fit the model")
        model.n_samples_seen_ = model._summary.n_rows
        model._summary.mixture()  # finds what does not fit together
        return model
