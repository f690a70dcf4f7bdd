"""The mixture: a frozen value that everything else is a function of."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from baryflow import codec, container
from baryflow.core.distribution import Distribution
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_matrix, as_real, as_simplex, as_simplex_rows

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture


@dataclass(frozen=True, eq=False, repr=False)
class Mixture(Distribution):
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

    def permute(self, order: Any) -> Mixture:
        """Return the same mixture with its components in another order.

        Parameters
        ----------
        order : array of int, shape (n_components,)
            A permutation: component i of the result is component ``order[i]`` of this one.

        Returns
        -------
        Mixture

        Raises
        ------
        InvalidInputError
            If `order` is not a permutation.
        """
        order = np.asarray(order)
        if sorted(order.tolist()) != list(range(self.n_components)):
            raise InvalidInputError(
                f"order must be a permutation of 0..{self.n_components - 1}, got {order!r}"
            )
        labels = None if self.labels is None else self.labels[order]
        return Mixture(self.weights[order], self.means[order], self.stds[order], labels, self.mass)

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

    # -- doors to the outside ----------------------------------------------------------------

    @classmethod
    def from_sklearn(cls, model: GaussianMixture, *, mass: float = 1.0) -> Self:
        """Take over a fitted scikit-learn mixture with diagonal or spherical covariances.

        Parameters
        ----------
        model : sklearn.mixture.GaussianMixture
        mass : float, default=1.0
            The number of samples that it stands for, which scikit-learn does not keep.

        Returns
        -------
        Mixture

        Raises
        ------
        InvalidInputError
            If the model is not fitted, or its covariances are of another type.
        """
        kind = getattr(model, "covariance_type", None)
        if kind not in ("diag", "spherical"):
            raise InvalidInputError(
                f"model must have covariance_type 'diag' or 'spherical', got {kind!r}: "
                f"an axis-aligned mixture cannot hold correlations"
            )
        if not hasattr(model, "means_"):
            raise InvalidInputError("model is not fitted: call its fit method first")
        stds = np.sqrt(model.covariances_)
        if kind == "spherical":
            stds = np.repeat(stds[:, None], model.means_.shape[1], axis=1)
        return cls(model.weights_, model.means_, stds, None, mass)

    def to_sklearn(self) -> GaussianMixture:
        """Return the same mixture as scikit-learn has it; labels and mass are left behind.

        Returns
        -------
        sklearn.mixture.GaussianMixture
            Fitted, with ``covariance_type="diag"``.
        """
        from sklearn.mixture import GaussianMixture

        model = GaussianMixture(self.n_components, covariance_type="diag")
        model.weights_ = self.weights.copy()
        model.means_ = self.means.copy()
        model.covariances_ = self.stds**2
        model.precisions_ = 1.0 / model.covariances_
        model.precisions_cholesky_ = 1.0 / self.stds
        model.converged_, model.n_iter_, model.lower_bound_ = True, 0, -np.inf
        model.n_features_in_ = self.n_features
        return model

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

    def _arrays(self) -> dict[str, Floats]:
        arrays = {"weights": self.weights, "means": self.means, "stds": self.stds}
        return arrays if self.labels is None else arrays | {"labels": self.labels}


def _frozen(array: Floats) -> Floats:
    copy = np.array(array, dtype=np.float64, order="C")
    copy.flags.writeable = False
    return copy
