"""Estimators as files and bytes, without pickle."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from baryflow import codec, container
from baryflow.exceptions import BaryflowError, FileFormatError, InvalidInputError


@dataclass(frozen=True, eq=False)
class Shell:
    """What every estimator has: its parameters, the columns it was fitted on, and the normal class."""

    parameters: dict[str, Any]
    n_features: int
    feature_names: list[str] | None
    normal_class: Any = None

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Take them from a fitted estimator."""
        parameters = estimator.get_params(deep=False)
        if not isinstance(parameters.get("random_state"), (int, np.integer, type(None))):
            parameters["random_state"] = None  # its effect lives on in what was learned
        names = getattr(estimator, "feature_names_in_", None)
        return cls(
            {name: plain(value) for name, value in parameters.items()},
            estimator.n_features_in_,
            None if names is None else [str(name) for name in names],
            getattr(estimator, "normal_class_", None),
        )

    def fill(self, estimator: Any) -> None:
        """Give a new estimator its columns."""
        estimator.n_features_in_ = self.n_features
        if self.normal_class is not None:
            estimator.normal_class_ = self.normal_class
        if self.feature_names is not None:
            if len(self.feature_names) != self.n_features:
                raise InvalidInputError("the feature names do not fit the model")
            estimator.feature_names_in_ = np.array(self.feature_names, dtype=object)


def plain(value: Any) -> Any:
    """Return a parameter as it can be kept: a Series as a mapping, no functions, no estimators.

    A list of names stands for the user's own classifiers, which are kept with what they learned.
    """
    if hasattr(value, "to_dict"):
        return value.to_dict()
    several = value if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(one, BaseEstimator) for one in several):
        return [one if isinstance(one, str) else type(one).__name__ for one in several]
    return False if callable(value) else value


class Persistable:
    """Can be saved and loaded; an estimator defines its state and how to resume from it."""

    #: What a file of it says that it holds.
    kind: ClassVar[str]
    #: The dataclass of all that it knows.
    state_type: ClassVar[type[Any]]

    def _state(self) -> Any:
        raise NotImplementedError

    @classmethod
    def _from_state(cls, state: Any) -> Self:
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a ``.bary`` file; :func:`baryflow.load` resumes from it, bit for bit.

        Parameters
        ----------
        path : path
            An older file of that name stays in place until the new one is complete.

        Raises
        ------
        NotFittedError
            If there is nothing to save yet.
        OSError
            If the file cannot be written.
        """
        check_is_fitted(self)
        container.write(path, self.kind, *codec.encode(self._state()))

    def to_bytes(self) -> bytes:
        """Return what :meth:`save` would write, but for the date: for Redis, Spark, object stores.

        Returns
        -------
        bytes
            The same model is the same bytes.

        Raises
        ------
        NotFittedError
            If there is nothing to save yet.
        """
        check_is_fitted(self)
        return container.to_bytes(self.kind, *codec.encode(self._state()))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Go on from what :meth:`to_bytes` gave, bit for bit.

        Parameters
        ----------
        data : bytes

        Returns
        -------
        object of this class

        Raises
        ------
        FileFormatError
            If the data are foreign, truncated, damaged, of another kind, or of a newer release.
        """
        return cls.from_content(container.from_bytes(data))

    @classmethod
    def from_content(cls, content: container.Content) -> Self:
        """Return what the content of a file holds, checking all of it.

        Parameters
        ----------
        content : Content

        Returns
        -------
        object of this class

        Raises
        ------
        FileFormatError
            If something is missing or damaged, or the file holds something else.
        """
        state = codec.open_content(cls.state_type, content, cls.kind)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # damaged numbers may upset a solver; errors tell
                return cls._from_state(state)
        except (*codec.DAMAGE, BaryflowError) as error:
            raise FileFormatError(f"{content.name}: a saved {cls.kind} is damaged: {error!r}") from error
