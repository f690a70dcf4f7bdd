"""A classifier made of one mixture per class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from baryflow.core.em import Reference, distinct_rows, fit_rows
from baryflow.core.mixture import Mixture
from baryflow.estimators._input import InputMixin, draw_seed
from baryflow.estimators._persistence import Persistable, Shell
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers, as_weights


@dataclass(frozen=True, eq=False)
class MixtureClassifierState:
    """All that a MixtureClassifier knows."""

    shell: Shell
    classes: Any
    mixture: Mixture
    n_components: Integers
    n_iter: int


class MixtureClassifier(Persistable, InputMixin, ClassifierMixin, BaseEstimator):
    """Classify by Bayes' rule with an axis-aligned Gaussian mixture for each class.

    Use it where classes have several modes, where values are missing, or where a labelled
    :class:`~baryflow.Mixture` of a data set is wanted: ``mixture_`` is what dictionaries are
    learned from.

    Parameters
    ----------
    min_components : int, default=1
    max_components : int, optional
        Components of each class. If they differ the number is chosen by BIC; without
        `max_components` it is exactly `min_components`.
    n_init, max_iter, tol, std_floor
        As in :func:`~baryflow.fit_mixture`. The floor is relative to the columns' scale over *all*
        classes, so a column that is constant within one class is no trap.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    mixture_ : Mixture
        The union of the classes' mixtures, each component labelled with its class and weighted
        by the class's share of the samples.
    n_components_ : array of shape (n_classes,)
        Components chosen for each class.
    n_iter_ : int
        EM steps of the class that took the most.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from baryflow import MixtureClassifier
    >>> X = np.array([[0.0], [0.2], [0.1], [5.0], [5.2], [np.nan]])
    >>> model = MixtureClassifier().fit(X, ["low", "low", "low", "high", "high", "high"])
    >>> model.predict([[0.3], [4.0]])
    array(['low', 'high'], dtype='<U4')
    """

    def __init__(
        self,
        min_components: int = 1,
        max_components: int | None = None,
        *,
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-3,
        std_floor: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.min_components = min_components
        self.max_components = max_components
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.std_floor = std_floor
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit one mixture per class.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            NaN marks a missing value.
        y : array of shape (n_samples,)
        sample_weight : array of shape (n_samples,), optional
            Counts: 2 is a row seen twice, 0 a row not seen.

        Returns
        -------
        MixtureClassifier
            Itself. If it fails, what was learned before stays.

        Raises
        ------
        InvalidInputError
            If rows, labels or weights do not fit; the message says what to do.
        """
        with self._unless_it_fails():
            rows, labels = self._first_labelled(X, y)
            weights = as_weights(sample_weight, "sample_weight", length=len(rows))
            seen = weights > 0.0
            self._fit(rows[seen], labels[seen], weights[seen])
        return self

    def _fit(self, X: Floats, y: Any, weights: Floats) -> None:
        classes, codes = np.unique(y, return_inverse=True)
        reference = Reference.of(X, weights)
        seed = draw_seed(self.random_state)
        parts, sizes, steps = [], [], []
        for code in range(len(classes)):
            sweep = fit_rows(
                *distinct_rows(X[codes == code], weights[codes == code]),
                reference,
                min_components=self.min_components,
                max_components=self.max_components,
                n_init=self.n_init,
                max_iter=self.max_iter,
                tol=self.tol,
                std_floor=self.std_floor,
                # The same seed for all: a class's fit depends on its own rows only, not its name.
                rng=np.random.default_rng(seed),
            )
            mixture = sweep.mixture
            onehot = np.zeros((mixture.n_components, len(classes)))
            onehot[:, code] = 1.0
            parts.append(mixture.with_labels(onehot))
            sizes.append(mixture.n_components)
            steps.append(int(sweep.n_iter.max()))
        self.classes_ = classes
        self.mixture_ = Mixture.concatenate(parts)
        self.n_components_ = np.array(sizes)
        self.n_iter_ = max(steps)

    def predict(self, X: Any) -> Any:
        """Return the most probable class of every row.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            NaN marks a missing value.

        Returns
        -------
        array of shape (n_samples,)

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        rows = self.check_rows(X)
        return self.classes_[self.mixture_.predict(rows)]

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of every class for every row.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            NaN marks a missing value.

        Returns
        -------
        array of shape (n_samples, n_classes)

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        rows = self.check_rows(X)
        return self.mixture_.predict_proba(rows)

    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithm of :meth:`predict_proba`.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            NaN marks a missing value.

        Returns
        -------
        array of shape (n_samples, n_classes)
            Minus infinity for a class that is impossible.

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        with np.errstate(divide="ignore"):  # a class may be impossible
            return np.log(self.predict_proba(X))

    kind = "mixture_classifier"
    state_type = MixtureClassifierState

    def _state(self) -> MixtureClassifierState:
        return MixtureClassifierState(
            Shell.of(self), self.classes_, self.mixture_, self.n_components_, int(self.n_iter_)
        )

    @classmethod
    def _from_state(cls, state: MixtureClassifierState) -> Self:
        model = cls(**state.shell.parameters)
        state.shell.fill(model)
        model.classes_, model.mixture_ = state.classes, state.mixture
        model.n_components_, model.n_iter_ = state.n_components, state.n_iter
        if model.mixture_.n_classes != len(model.classes_) or (
            model.mixture_.n_features != model.n_features_in_
        ):
            raise InvalidInputError("the mixture does not fit the classes or the columns")
        return model
