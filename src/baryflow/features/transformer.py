"""Windows of signals to rows of features, with scikit-learn's contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from baryflow.estimators._state import Saves, Shell
from baryflow.estimators.domains import check_labels
from baryflow.exceptions import InvalidInputError
from baryflow.features.layout import MOST_PAIRED, Layout
from baryflow.features.normal import Normal
from baryflow.features.selection import most_telling
from baryflow.features.shapes import TakesWindows
from baryflow.features.statistics import describe, in_chunks
from baryflow.features.streaming import FeatureStream
from baryflow.validation import Floats, Integers, as_count

_CLIP = 5.0
_ALL = "all"  # the one domain if nobody says which rows are normal
_TARGET = "target"


@dataclass(frozen=True, eq=False)
class SignalFeaturesState:
    """All that a SignalFeatures knows."""

    shell: Shell
    length: int
    channels: list[str]
    normal: Normal
    columns: Integers
    mean: Floats
    std: Floats


class SignalFeatures(Saves, TakesWindows, TransformerMixin, BaseEstimator):
    """Turn windows of raw signals into features that a classifier can use.

    Levels, spreads, slopes, quantiles, autocorrelations, power in bands, and correlations between
    channels, at several scales; as deviations from normal operation of their domain if it is known which
    windows are normal; the most telling ones of them by the labels of the sources. A row depends on its
    window alone, so that features on a stream (:meth:`stream`) are the same bits as offline.

    Parameters
    ----------
    max_features : int or None
        How many statistics are kept; None keeps all that vary, and so does a fit without labels.
    n_channels : int
        Channels of windows that come flattened, as rows of length · n_channels values, all channels of
        the first moment first. Windows of shape (n, length, n_channels) say it themselves.
    pairs : bool or "auto"
        Whether channels are correlated with each other; "auto" does so up to 64 channels.

    Attributes
    ----------
    length_, n_channels_ : int
    channels_ : list of str
    columns_ : array of shape (n_features_out,)
        Which of all statistics are kept.
    normal_ : Normal
    n_features_in_, feature_names_in_
        As in scikit-learn, of flattened windows.

    Examples
    --------
    >>> import numpy as np
    >>> from baryflow.features import SignalFeatures
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(40, 32, 2)), np.tile(["still", "slow"], 20)
    >>> X[1::2, :, 1] += np.sin(np.arange(32))
    >>> SignalFeatures(max_features=1).fit(X, y).get_feature_names_out()
    array(['power in 5-7 periods: x1'], dtype=object)
    """

    def __init__(
        self, max_features: int | None = 128, *, n_channels: int = 1, pairs: bool | str = "auto"
    ) -> None:
        self.max_features = max_features
        self.n_channels = n_channels
        self.pairs = pairs

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # features are float64, whatever signals are
        return tags

    def fit(self, X: Any, y: Any = None, sample_domain: Any = None, normal: Any = None) -> Self:
        """Learn what is normal, and which statistics tell the classes apart.

        Parameters
        ----------
        X : Windows, array of shape (n, length, n_channels), or flattened (n, length · n_channels)
            NaN marks a missing value.
        y : array of shape (n,), optional
            Classes. Of windows of a target (negative `sample_domain`) they are not looked at.
        sample_domain : array of shape (n,), optional
            The domain of every window. Negative numbers mark a target, of which normal windows are used
            and nothing else.
        normal : array of bool of shape (n,), optional
            Which windows show normal operation; every domain needs some. Without it statistics are
            centred on all windows of all sources.

        Returns
        -------
        SignalFeatures
            Itself.

        Raises
        ------
        InvalidInputError
            If shapes do not fit, or a domain has no normal window.
        """
        as_pairs(self.pairs)
        if self.max_features is not None:
            as_count(self.max_features, "max_features")
        held = self._first_windows(X)
        labels = None if y is None else check_labels(y, len(held))
        domain = _domains(sample_domain, len(held))
        source = _is_source(domain)
        if not source.any():
            raise InvalidInputError("all windows are of a target (negative sample_domain): add sources")
        layout = Layout.of(self.length_, pairs=self._paired())
        self.normal_ = _learn_normal(held, domain, source, normal, layout)
        names = domain if normal is not None else np.full(len(domain), None)
        Z = self._deviations(held[source], names[source])
        self.columns_, self._mean, self._std = np.arange(Z.shape[1]), *_spread(Z)
        varies = np.flatnonzero(self._std > 1e-6)
        chosen = varies if len(varies) else self.columns_
        if labels is not None and self.max_features is not None and len(chosen) > self.max_features:
            told = np.clip((Z[:, chosen] - self._mean[chosen]) / self._std[chosen], -_CLIP, _CLIP)
            chosen = chosen[most_telling(told, labels[source], domain[source], self.max_features)]
        self._keep(chosen)
        return self

    def fit_transform(
        self, X: Any, y: Any = None, sample_domain: Any = None, normal: Any = None
    ) -> Floats:
        """Learn, and return the features of the same windows, each by what is normal in its domain.

        Parameters
        ----------
        X, y, sample_domain, normal
            As in :meth:`fit`.

        Returns
        -------
        array of shape (n, n_features_out)

        Raises
        ------
        InvalidInputError
            If shapes do not fit, or a domain has no normal window.
        """
        self.fit(X, y, sample_domain, normal)
        return self.transform(X, sample_domain if normal is not None else None)

    def transform(self, X: Any, sample_domain: Any = None) -> Floats:
        """Return the features of windows.

        Parameters
        ----------
        X : Windows, array of shape (n, length, n_channels), or flattened (n, length · n_channels)
            NaN marks a missing value.
        sample_domain : array of shape (n,), or one name, optional
            Whose normal operation they are compared with. Without it that of the target if
            :meth:`learn_normal` was told of it, and what the sources have in common otherwise.

        Returns
        -------
        array of shape (n, n_features_out)
            NaN where a channel has no value in the whole window.

        Raises
        ------
        InvalidInputError
            If the windows are of another shape, or of a domain that is not known.
        """
        check_is_fitted(self)
        held = self._windows(X)
        if sample_domain is None:
            sample_domain = self._usual_domain()
        if sample_domain is None or isinstance(sample_domain, (str, int, np.integer)):
            domain = np.full(len(held), sample_domain, dtype=object)
        else:
            domain = _domains(sample_domain, len(held))
        Z = self._deviations(held, domain)[:, self.columns_]
        return np.asarray(np.clip((Z - self._mean) / self._std, -_CLIP, _CLIP), dtype=np.float64)

    def learn_normal(self, X: Any, domain: Any = _TARGET) -> Self:
        """Learn what is normal in a further domain, before it is watched for faults (commissioning).

        Parameters
        ----------
        X : windows, as in :meth:`transform`
            Of normal operation; a few are enough.
        domain : str or int
            Its name. The default is the one that :meth:`transform` takes if nothing is said.

        Returns
        -------
        SignalFeatures
            Itself.

        Raises
        ------
        InvalidInputError
            If the windows are of another shape.
        """
        check_is_fitted(self)
        self.normal_ = self.normal_.extended(self._windows(X)[:], domain, self._layout())
        return self

    def stream(self, step: int = 1, domain: Any = None) -> FeatureStream:
        """Return what takes raw rows one by one and gives features when a window is full.

        Parameters
        ----------
        step : int
            Rows from one window to the next, as in :func:`windows`.
        domain : str or int, optional
            As `sample_domain` in :meth:`transform`.

        Returns
        -------
        FeatureStream

        Raises
        ------
        NotFittedError
            If it was not fitted.
        InvalidInputError
            If `step` is no count, or the domain is not known.
        """
        check_is_fitted(self)
        self.normal_.centre(domain)  # says so now if it is not known
        return FeatureStream(self, step, domain)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return what the features are called: the statistic and its channel, or two of them.

        Parameters
        ----------
        input_features : array of str, optional
            Names of the channels; or, as in scikit-learn, of the columns of flattened windows.

        Returns
        -------
        array of str

        Raises
        ------
        ValueError
            If there are neither as many names as channels nor as columns, or columns have other names.
        """
        check_is_fitted(self)
        channels = self._channel_names(input_features)
        names = np.array(self._layout().names(channels), dtype=object)
        return names[self.columns_]

    def _paired(self) -> bool:
        return self.n_channels_ <= MOST_PAIRED if self.pairs == "auto" else bool(self.pairs)

    def _layout(self) -> Layout:
        return Layout.of(self.length_, pairs=self._paired())

    def _usual_domain(self) -> Any:
        return _TARGET if _TARGET in self.normal_.names else None

    def _deviations(self, held: Any, domain: Any) -> NDArray[np.float32]:
        """Return statistics as deviations from what is normal in the windows' domains."""
        layout, parts, at = self._layout(), [], 0
        for chunk in in_chunks(held):
            names = domain[at : at + len(chunk)]
            at += len(chunk)
            found = None
            for name in set(names.tolist()):
                rows = np.array([one == name for one in names.tolist()])
                values = describe(chunk[rows], self.normal_.scale(name), layout)
                part = self.normal_.deviations(values, name)
                if found is None:
                    found = np.empty((len(chunk), part.shape[1]), dtype=np.float32)
                found[rows] = part
            parts.append(found)
        return np.concatenate(parts)  # type: ignore[arg-type]  # no chunk is empty

    def _keep(self, columns: Integers) -> None:
        self.columns_, self._mean, self._std = columns, self._mean[columns], self._std[columns]
        self._std = np.where(self._std > 1e-6, self._std, 1.0)

    kind = "signal_features"
    state_type = SignalFeaturesState

    def _state(self) -> SignalFeaturesState:
        chosen = self.columns_, self._mean, self._std
        return SignalFeaturesState(self._shell(), self.length_, self.channels_, self.normal_, *chosen)

    @classmethod
    def _from_state(cls, state: SignalFeaturesState) -> Self:
        model = cls(**state.shell.parameters)
        state.shell.fill(model)
        as_pairs(model.pairs)
        model._take_shape(state.length, state.channels)
        model.normal_, model.columns_ = state.normal, state.columns
        model._mean, model._std = state.mean, state.std
        n_statistics = len(model._layout().names(model.channels_))
        model.normal_.check(model.n_channels_, n_statistics)
        shapes = {part.shape for part in (model.columns_, model._mean, model._std)}
        if len(shapes) > 1 or not 0 <= model.columns_.min() <= model.columns_.max() < n_statistics:
            raise InvalidInputError("the columns do not fit the statistics")
        return model


def as_pairs(pairs: Any) -> None:
    """Refuse what says neither yes nor no."""
    if pairs not in (True, False, "auto"):
        raise InvalidInputError(f"pairs must be True, False or 'auto', got {pairs!r}")


def _domains(sample_domain: Any, n: int) -> NDArray[Any]:
    if sample_domain is None:
        return np.full(n, _ALL)
    found = np.asarray(sample_domain)
    if found.shape != (n,):
        raise InvalidInputError(f"expected sample_domain to have shape (n={n},), got {found.shape}")
    return found


def _is_source(domain: NDArray[Any]) -> NDArray[np.bool_]:
    return domain >= 0 if domain.dtype.kind in "if" else np.ones(len(domain), dtype=bool)


def _learn_normal(
    held: Any, domain: NDArray[Any], source: NDArray[np.bool_], normal: Any, layout: Layout
) -> Normal:
    """Learn it from the windows that are said to be normal, or from all of the sources together."""
    if normal is None:
        return Normal.of({_ALL: held[source]}, layout)
    mask = np.asarray(normal)
    if mask.shape != (len(held),) or mask.dtype != bool:
        raise InvalidInputError(
            f"expected normal to be an array of bool of shape (n={len(held)},), got {mask.dtype} of "
            f"shape {mask.shape}"
        )
    names = np.unique(domain).tolist()
    without = [name for name in names if not mask[domain == name].any()]
    if without:
        raise InvalidInputError(
            f"domain {without[0]!r} has no normal window; mark some, or leave `normal` out for all"
        )
    return Normal.of({name: held[(domain == name) & mask] for name in names}, layout)


def _spread(Z: NDArray[np.float32]) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of what is there in every column."""
    there = ~np.isnan(Z)
    n = np.maximum(there.sum(axis=0), 1)
    mean = np.where(there, Z, 0.0).sum(axis=0, dtype=np.float64) / n
    square = np.where(there, (Z - mean) ** 2, 0.0).sum(axis=0, dtype=np.float64)
    return mean, np.sqrt(square / n)
