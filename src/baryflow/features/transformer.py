"""Windows of signals to rows of features, with scikit-learn's contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from baryflow.estimators._domains import check_labels
from baryflow.estimators._persistence import Persistable, Shell
from baryflow.exceptions import InvalidInputError
from baryflow.features.cut import TakesWindows, some
from baryflow.features.normal import Normal, a_few, as_domains, is_source, learn_normal
from baryflow.features.selection import PER_PAIR, most_discriminative
from baryflow.features.statistics import MOST_PAIRED, Layout, describe, in_chunks
from baryflow.validation import Floats, Integers, as_count

_CLIP = 5.0
_KEPT = (32, 512)  # columns at least and at most, unless the user says
#: What the domain is called that is not a source.
TARGET = "target"


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


class SignalFeatures(Persistable, TakesWindows, TransformerMixin, BaseEstimator):
    """Turn windows of raw signals into features that a classifier can use.

    Levels, spreads, slopes, quantiles, autocorrelations, power in bands, and correlations between
    channels, at several scales; as deviations from normal operation of their domain if it is known which
    windows are normal; the most discriminative of them, by the labels of the sources. A row depends on
    its window alone, so that features on a stream (:meth:`stream`) are the same bits as offline.

    Parameters
    ----------
    max_features : int, "auto" or None
        How many statistics are kept. "auto": eight for every pair of classes, at least 32 and at most
        512. None keeps all that vary, and so does a fit without labels.
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
        self,
        max_features: int | str | None = "auto",
        *,
        n_channels: int = 1,
        pairs: bool | str = "auto",
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
            The domain of every window. Negative numbers mark a target; only its normal windows are
            used.
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
        if self.max_features not in (None, "auto"):
            as_count(self.max_features, "max_features")
        held = self._first_windows(X)
        labels = None if y is None else check_labels(y, len(held))
        domain = as_domains(sample_domain, len(held))
        source = is_source(domain)
        self.normal_ = learn_normal(held, domain, source, normal, self._layout())
        rows = a_few(source, domain, labels)
        names = domain if normal is not None else np.full(len(domain), None)
        every = np.arange(len(self.normal_.spread))
        Z = self._deviations(held[rows], names[rows], every)
        mean, std = _spread(Z)
        varies = np.flatnonzero(std > 1e-6)
        chosen = varies if len(varies) else every
        most = None if labels is None else self._most(labels[rows])
        if labels is not None and most is not None and len(chosen) > most:
            scaled = np.clip((Z[:, chosen] - mean[chosen]) / std[chosen], -_CLIP, _CLIP)
            chosen = chosen[most_discriminative(scaled, labels[rows], domain[rows], most)]
        self.columns_, self._mean = chosen, mean[chosen]
        self._std = np.where(std[chosen] > 1e-6, std[chosen], 1.0)
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
            :meth:`learn_normal` was called for it, and what the sources have in common otherwise.

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
            domain = as_domains(sample_domain, len(held))
        Z = self._deviations(held, domain, self.columns_)
        return np.asarray(np.clip((Z - self._mean) / self._std, -_CLIP, _CLIP), dtype=np.float64)

    def learn_normal(self, X: Any, domain: Any = TARGET) -> Self:
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

    def _check_domain(self, domain: Any) -> None:
        self.normal_.centre(domain)

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

    def _most(self, labels: Any) -> int | None:
        """Return how many columns are kept at most."""
        if self.max_features is None or isinstance(self.max_features, int | np.integer):
            return self.max_features
        n_classes = len(np.unique(labels))
        return int(np.clip(PER_PAIR * n_classes * (n_classes - 1) // 2, *_KEPT))

    def _paired(self) -> bool:
        return self.n_channels_ <= MOST_PAIRED if self.pairs == "auto" else bool(self.pairs)

    def _layout(self) -> Layout:
        return Layout.of(self.length_, pairs=self._paired())

    def _usual_domain(self) -> Any:
        """Return the target that windows are of if nobody says, if there is just one."""
        names = self.normal_.names
        known = [name for name in names if name == TARGET or (isinstance(name, int) and name < 0)]
        return known[0] if len(known) == 1 else None

    def _deviations(self, held: Any, domain: Any, columns: Any) -> NDArray[np.float32]:
        """Return statistics as deviations from what is normal in the windows' domains."""
        layout, names = self._layout(), domain.tolist()
        found = np.empty((len(held), len(columns)), dtype=np.float32)
        for name in dict.fromkeys(names):
            rows = np.array([one == name for one in names])
            scale = self.normal_.scale(name)
            parts = (describe(chunk, scale, layout) for chunk in in_chunks(some(held, rows)))
            found[rows] = np.concatenate(
                [self.normal_.deviations(part, name, columns) for part in parts]
            )
        return found

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
        model._set_shape(state.length, state.channels)
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


def _spread(Z: NDArray[np.float32]) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of what is there in every column."""
    there = ~np.isnan(Z)
    n = np.maximum(there.sum(axis=0), 1)
    mean = np.where(there, Z, 0.0).sum(axis=0, dtype=np.float64) / n
    square = np.where(there, (Z - mean) ** 2, 0.0).sum(axis=0, dtype=np.float64)
    return mean, np.sqrt(square / n)
