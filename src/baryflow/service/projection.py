"""Mixtures of many dimensions as ellipses in two, which stay where they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from baryflow.core.mixture import Mixture
from baryflow.validation import Floats


@dataclass(frozen=True, eq=False)
class Plane:
    """Two directions in which the classes of the sources lie apart.

    Only the sources decide on them: while a target flows, nothing but the target moves. Far from the
    middle distances shrink (the inverse hyperbolic sine of each coordinate is drawn): one class that is
    far from all others would otherwise make a point of the others.

    Attributes
    ----------
    centre : array of shape (n_dimensions,)
    axes : array of shape (n_dimensions, 2)
        Orthonormal; the second one is zero if there is only one dimension.
    near : array of shape (2,)
        Up to about here distances are what they are.
    """

    centre: Floats
    axes: Floats
    near: Floats

    @classmethod
    def of(cls, sources: Sequence[Mixture], n_classes: int) -> Self:
        """Find the plane of some labelled mixtures.

        Every pair of classes counts by its direction alone, not by its distance: otherwise the plane
        would show how one class differs from all others, and nothing of the others.

        Parameters
        ----------
        sources : sequence of Mixture
        n_classes : int

        Returns
        -------
        Plane
        """
        means = _class_means(sources, n_classes)
        first, second = np.triu_indices(len(means), k=1)
        gaps = means[first] - means[second]
        lengths = np.linalg.norm(gaps, axis=1, keepdims=True)
        directions = gaps[lengths[:, 0] > 0.0] / lengths[lengths[:, 0] > 0.0]
        _, vectors = np.linalg.eigh(directions.T @ directions)
        axes = np.zeros((means.shape[1], 2))
        found = vectors[:, ::-1][:, :2]
        # An eigenvector may point either way: the same one everywhere.
        signs = np.sign(found[np.abs(found).argmax(axis=0), np.arange(found.shape[1])])
        axes[:, : found.shape[1]] = found * np.where(signs == 0.0, 1.0, signs)
        centre = np.median(means, axis=0)
        usual = np.median(np.abs((means - centre) @ axes), axis=0)
        return cls(centre, axes, np.where(usual > 0.0, usual, 1.0))

    def places(self, Z: Floats) -> Floats:
        """Return where rows of the view lie in the plane.

        Parameters
        ----------
        Z : array of shape (n, n_dimensions)

        Returns
        -------
        array of shape (n, 2)
        """
        return np.asarray(self.near * np.arcsinh((Z - self.centre) @ self.axes / self.near))

    def ellipses(self, mixture: Mixture, classes: Sequence[str]) -> list[dict[str, Any]]:
        """Return each component as an ellipse of one standard deviation.

        Parameters
        ----------
        mixture : Mixture
            Labelled.
        classes : sequence of str

        Returns
        -------
        list of dict
            With x, y, rx, ry, angle (degrees from x towards y), class and weight.
        """
        labels = np.asarray(mixture.labels)
        return [
            self._ellipse(mean, np.diag(np.square(std)), weight, classes[code])
            for mean, std, weight, code in zip(
                mixture.means, mixture.stds, mixture.weights, labels.argmax(axis=1), strict=True
            )
        ]

    def by_class(self, mixture: Mixture, classes: Sequence[str]) -> list[dict[str, Any]]:
        """Return one ellipse for each class that there is, as :meth:`ellipses` has them.

        Parameters
        ----------
        mixture : Mixture
            Labelled.
        classes : sequence of str

        Returns
        -------
        list of dict
        """
        codes, found = np.asarray(mixture.labels).argmax(axis=1), []
        for code in np.unique(codes):
            which = codes == code
            weight = float(mixture.weights[which].sum())
            shares = mixture.weights[which] / weight
            mean = shares @ mixture.means[which]
            gaps = mixture.means[which] - mean
            covariance = np.diag(shares @ np.square(mixture.stds[which]))
            covariance += (shares[:, None] * gaps).T @ gaps
            found.append(self._ellipse(mean, covariance, weight, classes[code]))
        return found

    def _ellipse(self, mean: Floats, covariance: Floats, weight: float, name: str) -> dict[str, Any]:
        x, y = self.places(mean)
        # What the shrinking does to a small surrounding of the mean.
        axes = self.axes / np.hypot(1.0, (mean - self.centre) @ self.axes / self.near)
        variances, vectors = np.linalg.eigh(axes.T @ covariance @ axes)
        small, large = np.sqrt(np.maximum(variances, 0.0))
        angle = math.degrees(math.atan2(vectors[1, 1], vectors[0, 1]))
        angle = (angle + 90.0) % 180.0 - 90.0  # half a turn changes nothing
        drawn = {"x": x, "y": y, "rx": large, "ry": small, "angle": angle, "weight": weight}
        return {key: round(float(value), 4) for key, value in drawn.items()} | {"class": name}


def _class_means(sources: Sequence[Mixture], n_classes: int) -> Floats:
    """Return the mean of every class that there is, each source counting the same."""
    found = []
    for code in range(n_classes):
        parts = []
        for mixture in sources:
            which = np.asarray(mixture.labels).argmax(axis=1) == code
            if which.any():
                parts.append(np.average(mixture.means[which], axis=0, weights=mixture.weights[which]))
        if parts:
            found.append(np.mean(parts, axis=0))
    return np.array(found)
