"""A model and what makes its rows out of raw signals, as one thing that takes raw rows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from baryflow import codec, container
from baryflow.estimators._adapter import AdapterState
from baryflow.estimators._persistence import Persistable
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.features.cut import FeatureStream, windows
from baryflow.features.encoder import OnnxEncoder, OnnxEncoderState
from baryflow.features.normal import UNTOLD
from baryflow.features.transformer import SignalFeatures, SignalFeaturesState
from baryflow.validation import as_count, count_of


@dataclass(frozen=True, eq=False)
class SignalModelState:
    """All that both know, and how far windows are apart."""

    features: SignalFeaturesState | OnnxEncoderState
    model: AdapterState
    step: int


@dataclass(frozen=True, eq=False)
class SignalModel(Persistable):
    """A model of features together with what makes them, so that raw rows can be followed.

    Both travel in one ``.bary`` file: ``baryflow fit --window`` writes it, and ``baryflow run`` takes
    raw rows with it. The pair stays the same; the model in it keeps learning.

    Attributes
    ----------
    features : SignalFeatures or OnnxEncoder
        Fitted; knows the channels and how long a window is.
    model : OnlineDaDiL
        Fitted on rows of these features.
    step : int
        Rows from one window to the next, as in :func:`windows`.

    Raises
    ------
    InvalidInputError
        If the two do not belong together, or `step` is no count.
    NotFittedError
        If one of them was not fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from baryflow import OnlineDaDiL
    >>> from baryflow.features import SignalFeatures, SignalModel
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 16, 2)), np.tile(["still", "loose"], 30)
    >>> X[1::2, :, 1] *= 3
    >>> features = SignalFeatures(max_features=4)
    >>> model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    >>> model = model.fit(features.fit_transform(X, y), y)
    >>> pair = SignalModel(features, model, step=16)
    >>> found = [row for row in map(pair.stream().push, X[:2].reshape(32, 2)) if row is not None]
    >>> pair.model.predict(found).tolist()
    ['still', 'loose']
    """

    features: SignalFeatures | OnnxEncoder
    model: OnlineDaDiL
    step: int

    kind: ClassVar[str] = "signal_model"
    state_type: ClassVar[type[Any]] = SignalModelState

    def __post_init__(self) -> None:
        check_is_fitted(self.features)
        check_is_fitted(self.model)
        as_count(self.step, "step")
        made = len(self.features.get_feature_names_out())
        if made != self.model.n_features_in_:
            raise InvalidInputError(
                f"the model was fitted on rows of {self.model.n_features_in_} features, but windows "
                f"become rows of {made}: fit it on what these features give"
            )

    @property
    def columns(self) -> list[str]:
        """Names of the raw channels, in the order in which a row has them."""
        return list(self.features.channels_)

    @property
    def length(self) -> int:
        """Rows of a window."""
        return self.features.length_

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """What to ask a source of raw rows for: `columns`, as scikit-learn has them."""
        return np.array(self.columns, dtype=object)

    def stream(self, domain: Any = None) -> FeatureStream:
        """Return what takes raw rows one by one and gives a row for the model when a window is full.

        Parameters
        ----------
        domain : str or int, optional
            Whose normal operation rows are compared with, as in :meth:`SignalFeatures.stream`.

        Returns
        -------
        FeatureStream
            One for every run: its rows never mix with those of another.

        Raises
        ------
        InvalidInputError
            If the domain is not known.
        """
        return self.features.stream(self.step, domain)

    def learn_normal(self, rows: Any) -> Self:
        """Learn what is normal on the target, before it is watched for faults (commissioning).

        Parameters
        ----------
        rows : array or frame of shape (n_rows, n_channels)
            Raw rows of normal operation, in order of time; at least a window of them.

        Returns
        -------
        SignalModel
            Itself; :meth:`stream` compares with it from now on.

        Raises
        ------
        InvalidInputError
            If it is not known what is normal in the sources, there is no whole window, or the channels
            are not those of the model.
        """
        if not isinstance(self.features, SignalFeatures):
            raise InvalidInputError("a network takes signals as they are, normal or not")
        if UNTOLD in self.features.normal_.names:
            raise InvalidInputError(
                "the features were fitted without saying which windows of the sources are normal: fit "
                "them with `normal` (baryflow fit --normal-class CLASS) first"
            )
        self.features.learn_normal(windows(rows, self.length, self.step))
        return self

    def describe(self) -> str:
        """Say in a sentence how rows are made of signals.

        Returns
        -------
        str
        """
        made = self.model.n_features_in_
        how = (
            "by a network"
            if isinstance(self.features, OnnxEncoder)
            else f"from {count_of(len(self.columns), 'channel')}"
        )
        return (
            f"Raw signals are cut into windows of {self.length:,} rows, one every {self.step:,}; each "
            f"becomes {count_of(made, 'feature')} {how}. What is called a row from here on is a "
            "window, and a column a feature of it."
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write both to one ``.bary`` file; :func:`baryflow.load` resumes from it, bit for bit.

        Parameters
        ----------
        path : path
            An older file of that name stays in place until the new one is complete.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        container.write(path, self.kind, *codec.encode(self._state()))

    def to_bytes(self) -> bytes:
        """Return what :meth:`save` would write, but for the date.

        Returns
        -------
        bytes
            The same pair is the same bytes.
        """
        return container.to_bytes(self.kind, *codec.encode(self._state()))

    def _state(self) -> SignalModelState:
        parts = (self.features._state(), self.model._state())  # noqa: SLF001 - as above
        return SignalModelState(*parts, step=int(self.step))

    @classmethod
    def _from_state(cls, state: SignalModelState) -> Self:
        known: Any = SignalFeatures if isinstance(state.features, SignalFeaturesState) else OnnxEncoder
        features = known._from_state(state.features)  # noqa: SLF001 - as above
        return cls(features, OnlineDaDiL._from_state(state.model), state.step)  # noqa: SLF001 - as above
