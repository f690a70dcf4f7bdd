"""The mixture: a frozen value that everything else is a function of."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from baryflow import codec, container
from baryflow.core.gaussian import LogDensity
from baryflow.exceptions import InvalidInputError
from baryflow.validation import (
    Floats,
    Integers,
    RandomState,
    as_count,
    as_generator,
    as_matrix,
    as_real,
    as_simplex,
    as_simplex_rows,
    as_weights,
)

#: Rows handled at once: their table of densities and its temporaries then stay in the cache.
_BLOCK = 512


@dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """An axis-aligned Gaussian mixture, labelled or not.

    The arrays are copied and made read-only: a mixture never changes. Two mixtures are equal when
    all of their numbers are.

    Parameters
    ----------
    weights : array of shape (n_components,)
        On the simplex.
    means, stds : arrays of shape (n_components, n_features)
        Standard deviations, never variances, and all above zero.
    labels : array of shape (n_components, n_classes), optional
        Soft labels: each row is a distribution over the classes.
    mass : float, default=1.0
        The number of samples, or the sum of sample weights, that the mixture stands for.

    Raises
    ------
    InvalidInputError
        If shapes disagree, a weight or label leaves the simplex, or a std is not positive.

    Examples
    --------
    >>> from baryflow import Mixture
    >>> two = Mixture([0.25, 0.75], [[0.0], [4.0]], [[1.0], [1.0]], labels=[[1, 0], [0, 1]])
    >>> two.predict_proba([[0.0], [4.0]]).round(3)
    array([[0.999, 0.001],
           [0.   , 1.   ]])
    """

    weights: Floats
    means: Floats
    stds: Floats
    labels: Floats | None = None
    mass: float = 1.0

    #: What a file of it says that it holds.
    kind: ClassVar[str] = "mixture"

    def __post_init__(self) -> None:
        means = as_matrix(self.means, "means", rows="n_components")
        k, d = means.shape
        stds = as_matrix(self.stds, "stds", rows=f"n_components={k}", n_columns=d)
        if stds.shape != means.shape:
            raise InvalidInputError(
                f"expected stds to have the shape of means, (n_components={k}, n_features={d}), "
                f"got {stds.shape}"
            )
        if stds.min() <= 0:
            where = tuple(int(i) for i in np.unravel_index(stds.argmin(), stds.shape))
            raise InvalidInputError(
                f"stds must be positive, got {stds[where]} at (component, feature) {where}: "
                f"raise it to a floor relative to the feature's scale"
            )
        weights = as_simplex(self.weights, "weights", length=k, dim="n_components")
        labels = self.labels
        if labels is not None:
            labels = as_simplex_rows(
                labels, "labels", n_rows=k, rows="n_components", columns="n_classes"
            )
            object.__setattr__(self, "labels", _frozen(labels))
        object.__setattr__(self, "weights", _frozen(weights))
        object.__setattr__(self, "means", _frozen(means))
        object.__setattr__(self, "stds", _frozen(stds))
        object.__setattr__(self, "mass", as_real(self.mass, "mass", low=0.0, open_low=True))

    def __repr__(self) -> str:
        classes = "" if self.labels is None else f", n_classes={self.n_classes}"
        return (
            f"Mixture(n_components={self.n_components}, n_features={self.n_features}{classes}, "
            f"mass={self.mass:g})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mixture):
            return NotImplemented
        mine, theirs = self._arrays(), other._arrays()
        return (
            self.mass == other.mass
            and mine.keys() == theirs.keys()
            and all(np.array_equal(mine[name], theirs[name]) for name in mine)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, so that copies are read-only too.
        return type(self), (self.weights, self.means, self.stds, self.labels, self.mass)

    __hash__ = None  # type: ignore[assignment]  # equal by value, and values are long arrays

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

    # -- new mixtures ------------------------------------------------------------------------

    def with_labels(self, labels: Any) -> Mixture:
        """Return the same mixture with other labels.

        Parameters
        ----------
        labels : array of shape (n_components, n_classes), or None
            Each row a distribution over the classes; ``None`` takes the labels away.

        Returns
        -------
        Mixture

        Raises
        ------
        InvalidInputError
            If a label leaves the simplex, or there is not one for each component.
        """
        return replace(self, labels=labels)

    @staticmethod
    def concatenate(mixtures: Sequence[Mixture]) -> Mixture:
        """Return the union of the components, each mixture counting by its mass.

        Parameters
        ----------
        mixtures : sequence of Mixture
            All with the same features, and all with the same classes or none labelled.

        Returns
        -------
        Mixture
            It describes the pooled samples: its mass is the sum of the masses.

        Raises
        ------
        InvalidInputError
            If there is no mixture, or they disagree in features or classes.
        """
        mixtures = list(mixtures)
        if not mixtures:
            raise InvalidInputError("mixtures must hold at least one Mixture, got none")
        first = mixtures[0]
        for position, other in enumerate(mixtures):
            if other.n_features != first.n_features:
                raise InvalidInputError(
                    f"mixtures must agree in n_features={first.n_features}, but number {position} "
                    f"has {other.n_features}"
                )
            if (other.labels is None) != (first.labels is None) or (
                other.labels is not None and other.n_classes != first.n_classes
            ):
                raise InvalidInputError(
                    f"mixtures must all be unlabelled or all have the same classes, but number "
                    f"{position} differs from number 0"
                )
        mass = sum(mixture.mass for mixture in mixtures)
        return Mixture(
            np.concatenate([m.weights * (m.mass / mass) for m in mixtures]),
            np.concatenate([m.means for m in mixtures]),
            np.concatenate([m.stds for m in mixtures]),
            None
            if first.labels is None
            else np.concatenate([m.labels for m in mixtures if m.labels is not None]),
            mass,
        )

    # -- keeping -----------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the mixture to a ``.bary`` file; :func:`baryflow.load` reads it back, bit for bit.

        Parameters
        ----------
        path : str or path
            The file appears under this name only when it is complete.

        Raises
        ------
        FileNotFoundError
            If there is no such folder.
        """
        container.write(path, self.kind, *codec.encode(self))

    def to_bytes(self) -> bytes:
        """Return what :meth:`save` would write, but for the date.

        Returns
        -------
        bytes
            The same mixture is the same bytes.
        """
        return container.to_bytes(self.kind, *codec.encode(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the mixture that :meth:`to_bytes` was asked for.

        Parameters
        ----------
        data : bytes

        Returns
        -------
        Mixture

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
        Mixture

        Raises
        ------
        FileFormatError
            If something is missing or damaged, or the file holds something else.
        """
        mixture: Self = codec.open_content(cls, content, cls.kind)
        return mixture

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

    def _arrays(self) -> dict[str, Floats]:
        arrays = {"weights": self.weights, "means": self.means, "stds": self.stds}
        return arrays if self.labels is None else arrays | {"labels": self.labels}


def _frozen(array: Floats) -> Floats:
    copy = np.array(array, dtype=np.float64, order="C")
    copy.flags.writeable = False
    return copy
