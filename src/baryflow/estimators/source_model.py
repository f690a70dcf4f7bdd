"""What is known of the labelled sources, before any target row is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from baryflow.core.dictionary import Dictionary, Domain
from baryflow.core.discriminant import Discriminants
from baryflow.core.mixture import Mixture
from baryflow.core.proportions import ProportionPrior
from baryflow.estimators.class_moments import ClassMoments
from baryflow.estimators.linear import LinearClassifier, reweight
from baryflow.estimators.sensors import Limits
from baryflow.validation import Floats, Integers

#: Share of a class without a training row, to divide by.
_RAREST = 1e-12
#: Smallest std of a target component in the loss, in units of the usual spread within a class.
_COMPONENT_FLOOR = 0.05


@dataclass(frozen=True, eq=False)
class Classifiers:
    """What needs rows of the sources: two classifiers, and how their columns and classes behave."""

    pooled: LinearClassifier  # of rows standardised with the pooled moments
    own: LinearClassifier  # of rows standardised with their domain's moments
    shares: Floats  # of the classes in the rows that both were fitted on, all sources pooled
    limits: Limits
    classes: ClassMoments


@dataclass(frozen=True, eq=False)
class SourceModel:
    """Classifiers, view, prior of the proportions and the source-only dictionary.

    In the *view*, rows are standardised with their own domain's moments and projected on the
    discriminant directions; without it they are only centred and scaled with the pooled moments of the
    sources (in the paper's method not scaled). A model of mixtures has no classifiers.
    """

    n_classes: int
    centre: Floats  # pooled mean and std of the sources' columns
    scale: Floats
    units: Floats  # of the columns where mixtures are kept without a view; 1: as they come
    view: Discriminants | None
    unit: Floats  # usual spread within a class, in the coordinates of the mixtures
    classifiers: Classifiers | None
    prior: ProportionPrior
    usual: Floats  # class proportions that are expected of a target
    told: bool  # by the user, and not only by the sources
    dictionary: Dictionary
    domains: list[Domain]
    loss_curve: Floats

    @property
    def n_dimensions(self) -> int:
        """Columns of the means in the coordinates of the mixtures."""
        return len(self.unit)

    @cached_property
    def slot_classes(self) -> Integers:
        """Class of each slot of the atoms."""
        return np.repeat(np.arange(self.n_classes), self.dictionary.n_slots // self.n_classes)

    @property
    def of_rows(self) -> Classifiers:
        """What was learned from rows."""
        if self.classifiers is None:
            raise ValueError("a model of mixtures has no classifiers")
        return self.classifiers

    def pooled_proba(self, X: Floats) -> Floats:
        """Return the probabilities of the source classifier that knows nothing of the target."""
        return self.of_rows.pooled.proba((X - self.centre) / self.scale)

    def own_proba(self, X: Floats, centre: Floats, scale: Floats) -> Floats:
        """Return those of the classifier that standardises with the target's moments."""
        return self.of_rows.own.proba((X - centre) / scale)

    def source_proba(self, X: Floats) -> Floats:
        """Return the pooled classifier's probabilities, given what the user expects of a target."""
        return self.given_prior(self.pooled_proba(X))

    def given_prior(self, pooled: Floats) -> Floats:
        """Return the pooled classifier's probabilities for the mix that the user expects, if any."""
        return reweight(pooled, self.ratios(self.usual)) if self.told else pooled

    def ratios(self, shares: Floats) -> Floats:
        """Return how many times as frequent as in the classifiers' training rows the classes are."""
        return np.asarray(shares / np.maximum(self.of_rows.shares, _RAREST))

    def moments_at(
        self, mean: Floats, variance: Floats, shares: Floats, mass: float
    ) -> tuple[Floats, Floats]:
        """Return centre and scale of a target with this mean and variance, if its mix is `shares`."""
        if self.classifiers is None:
            return self.centre, self.scale
        return self.classifiers.classes.at(mean, variance, shares, mass)

    def project(self, X: Floats, centre: Floats, scale: Floats) -> Floats:
        """Return rows in the coordinates of the mixtures."""
        if self.view is None:
            return (X - self.centre) / self.units
        return ((X - centre) / scale) @ self.view.directions

    def lift(self, mixture: Mixture, centre: Floats, scale: Floats) -> Mixture:
        """Return a mixture of these coordinates in the columns and units of rows."""
        if self.view is None:
            means, stds = mixture.means * self.units + self.centre, mixture.stds * self.units
        else:
            means = centre + scale * (mixture.means @ self.view.lift.T)
            variances = np.square(mixture.stds) @ np.square(self.view.lift.T) + self.view.rest
            stds = scale * np.sqrt(np.maximum(variances, np.finfo(np.float64).tiny))
        return Mixture(mixture.weights, means, stds, mixture.labels, mixture.mass)

    def metric(self, scale: Floats) -> Floats | None:
        """Return the matrix through which raw rows are compared; None: as they are."""
        return None if self.view is None else self.view.directions / scale[:, None]

    def variances(
        self, variances_in: Callable[[Floats], Floats] | None, stds: Floats, scale: Floats
    ) -> Floats:
        """Return the variances of components in the coordinates of the mixtures.

        `variances_in` gives those of ``x @ metric``; without it the stds of the columns must do.
        """
        metric = self.metric(scale)
        if metric is None or variances_in is None:
            return np.square(stds / self.units)
        return variances_in(metric)

    def points(self, means: Floats, variances: Floats, centre: Floats, scale: Floats) -> Floats:
        """Return components of a target as points (mean, std) of the dictionary, without labels.

        `means` are raw, `variances` in the coordinates of the mixtures.
        """
        floored = np.sqrt(np.maximum(variances, (_COMPONENT_FLOOR * self.unit) ** 2))
        return np.hstack([self.project(means, centre, scale), floored])

    def slot_weights(self, shares: Floats) -> Floats:
        """Return the weights of the slots of a domain with these class proportions."""
        classes = self.slot_classes
        return np.asarray(shares[classes] * (self.n_classes / len(classes)))

    def target(self, weights: Floats, points: Floats, slot_weights: Floats) -> Domain:
        """Return a target as a domain of the dictionary, half-way between all atoms."""
        n_atoms = len(self.dictionary.atoms)
        even = np.full(n_atoms, 1.0 / n_atoms)
        return Domain(weights, points, slot_weights, even, n_used=2 * self.n_dimensions)
