"""What is learned from the labelled sources, before any target row is seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add

import numpy as np

from baryflow.core.dictionary import Dictionary, Domain
from baryflow.core.discriminant import Discriminants, Scatter
from baryflow.core.mixture import Mixture
from baryflow.core.proportions import ProportionPrior
from baryflow.estimators.atoms import mix_class, split_classes, start_dictionary
from baryflow.estimators.class_moments import ClassMoments, spread
from baryflow.estimators.linear import STEPS, LinearClassifier, reweight, telling_basis
from baryflow.estimators.sensors import Limits
from baryflow.validation import Floats, Integers

#: Smallest std of a target component in the loss, in units of the usual spread within a class.
_COMPONENT_FLOOR = 0.05
#: A column whose std is below this part of its largest value does not vary.
_ROUNDING = 1e-10
#: Block steps of the dictionary with the sources, from their rows and from mixtures of unknown making.
_TRAINING_STEPS, _MIXTURE_STEPS = 5, 20
#: With more columns than this, classifiers are fitted on what tells classes apart: on at least so many
#: directions, and on twice as many as there are classes.
_MANY_COLUMNS, _FEWEST_DIRECTIONS = 512, 64


@dataclass(frozen=True)
class SourceOptions:
    """How sources are described."""

    view: bool = True
    components_per_class: int = 2
    n_atoms: int | None = None
    seed: int = 0
    #: Class proportions that the user expects of a target; None: those of the sources.
    class_prior: Floats | None = None
    #: Steps of the classifiers' optimiser.
    classifier_steps: int = STEPS


@dataclass(frozen=True, eq=False)
class Classifiers:
    """What needs rows of the sources: two classifiers, and how their columns and classes behave."""

    pooled: LinearClassifier  # of rows standardised with the pooled moments
    own: LinearClassifier  # of rows standardised with their domain's moments
    limits: Limits
    classes: ClassMoments


@dataclass(frozen=True, eq=False)
class SourceModel:
    """Classifiers, view, prior of the proportions and the source-only dictionary.

    In the *view*, rows are standardised with their own domain's moments and projected on the
    discriminant directions; without it they are only moved to the sources' common centre. A model
    of mixtures has no classifiers.
    """

    n_classes: int
    centre: Floats  # pooled mean and std of the sources' columns
    scale: Floats
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
        return reweight(pooled, self.usual / self.prior.mean) if self.told else pooled

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
            return X - self.centre
        return ((X - centre) / scale) @ self.view.directions

    def lift(self, mixture: Mixture, centre: Floats, scale: Floats) -> Mixture:
        """Return a mixture of these coordinates in the columns and units of rows."""
        if self.view is None:
            means, stds = mixture.means + self.centre, mixture.stds
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
            return np.square(stds)
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


def standardise(X: Floats, scale: Floats) -> Floats:
    """Return the rows of a domain around its mean, in units of its stds; `scale` is the usual one."""
    return np.asarray((X - X.mean(axis=0)) / spread(X, scale))


def measure(rows: Sequence[Floats], codes: Sequence[Integers], n_classes: int, scale: Floats) -> Scatter:
    """Return how rows of the sources spread within classes, each standardised by itself."""
    parts = (Scatter.of(standardise(X, scale), y, n_classes) for X, y in zip(rows, codes, strict=True))
    return reduce(add, parts)


def pooled_moments(rows: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
    """Return mean and std of the columns of all sources, and which columns are constant.

    A constant column, also one that varies by rounding alone, has the std 1.
    """
    everything = np.concatenate(rows)
    centre, scale = everything.mean(axis=0), everything.std(axis=0)
    constant = scale <= _ROUNDING * np.abs(everything).max(axis=0)
    return centre, np.where(constant, 1.0, scale), constant


def learn_sources(
    rows: list[Floats],
    codes: list[Integers],
    n_classes: int,
    options: SourceOptions,
    scatter: Scatter | None = None,
) -> SourceModel:
    """Learn from complete rows, a list entry for each source.

    `scatter`, if it is known already, is what :func:`measure` says of the sources.
    """
    labels = np.concatenate(codes)
    centre, scale, constant = pooled_moments(rows)
    standardised = [standardise(X, scale) for X in rows]
    view = basis = None
    if options.view or len(centre) > _MANY_COLUMNS:
        view = (scatter or measure(rows, codes, n_classes, scale)).discriminants()
        if len(centre) > _MANY_COLUMNS:
            wanted = min(len(centre), max(_FEWEST_DIRECTIONS, 2 * n_classes))
            basis = telling_basis(standardised, codes, view.directions, wanted)
    if options.view and view is not None:
        seen = [Z @ view.directions for Z in standardised]
        unit = np.ones(seen[0].shape[1])  # the shrunken spread within a class, by construction
    else:
        view, seen = None, [X - centre for X in rows]
        unit = _within(seen, codes)
    counts = np.stack([np.bincount(c, minlength=n_classes) for c in codes]).astype(np.float64)
    m = options.components_per_class

    def describe(V: Floats) -> Mixture:
        return mix_class(V, unit, m, options.seed)

    together = np.concatenate(seen)
    dictionary, domains = start_dictionary(
        [
            [describe(V[y == c]) if (y == c).any() else None for c in range(n_classes)]
            for V, y in zip(seen, codes, strict=True)
        ],
        [describe(together[labels == c]) for c in range(n_classes)],
        counts / counts.sum(axis=1, keepdims=True),
        n_slots=m,
        n_atoms=options.n_atoms,
        std_floor=1e-2 * float(unit.min()),
    )
    curve = dictionary.fit(domains, max_steps=_TRAINING_STEPS, tol=1e-3)
    prior = ProportionPrior.of(counts)

    def classify(Z: Floats) -> LinearClassifier:
        return LinearClassifier.fit(
            Z, labels, n_classes, basis=basis, max_steps=options.classifier_steps
        )

    return SourceModel(
        n_classes=n_classes,
        centre=centre,
        scale=scale,
        view=view,
        unit=unit,
        classifiers=Classifiers(
            pooled=classify((np.concatenate(rows) - centre) / scale),
            own=classify(np.concatenate(standardised)),
            limits=Limits.of(rows, centre, scale, constant),
            classes=ClassMoments.of(rows, codes, prior.mean, centre, scale),
        ),
        prior=prior,
        usual=prior.mean if options.class_prior is None else options.class_prior,
        told=options.class_prior is not None,
        dictionary=dictionary,
        domains=domains,
        loss_curve=curve,
    )


def learn_mixtures(
    mixtures: Sequence[Mixture],
    n_classes: int,
    n_atoms: int | None = None,
    class_prior: Floats | None = None,
) -> SourceModel:
    """Learn from labelled mixtures: without rows there is neither a view nor a classifier.

    Mixtures are moved to a common centre, so an offset costs no digits.
    """
    centre = np.mean([mixture.mean() for mixture in mixtures], axis=0)
    moved = [Mixture(m.weights, m.means - centre, m.stds, m.labels, m.mass) for m in mixtures]
    parts, pooled, shares, n_slots = split_classes(moved, n_classes)
    together = np.concatenate([m.stds for m in moved])
    weights = np.concatenate([m.weights / len(moved) for m in moved])
    unit = np.sqrt(weights @ np.square(together))
    dictionary, domains = start_dictionary(
        parts,
        pooled,
        shares,
        n_slots=n_slots,
        n_atoms=n_atoms,
        std_floor=max(1e-3 * float(together.min()), 1e-300),
    )
    curve = dictionary.fit(domains, max_steps=_MIXTURE_STEPS)
    prior = ProportionPrior.of(shares * np.array([[m.mass] for m in mixtures]))
    return SourceModel(
        n_classes=n_classes,
        centre=centre,
        scale=np.ones_like(centre),
        view=None,
        unit=unit,
        classifiers=None,
        prior=prior,
        usual=prior.mean if class_prior is None else class_prior,
        told=class_prior is not None,
        dictionary=dictionary,
        domains=domains,
        loss_curve=curve,
    )


def _within(seen: list[Floats], codes: list[Integers]) -> Floats:
    """Return the pooled std within classes of domains, for every column."""
    total, count = np.zeros(seen[0].shape[1]), 0
    for V, y in zip(seen, codes, strict=True):
        for c in np.unique(y):
            rows = V[y == c]
            total += np.square(rows - rows.mean(axis=0)).sum(axis=0)
            count += len(rows)
    found = np.sqrt(total / count)
    whole = np.concatenate(seen).std(axis=0)
    found = np.maximum(found, 1e-3 * whole)
    return np.where(found > 0.0, found, 1.0)
