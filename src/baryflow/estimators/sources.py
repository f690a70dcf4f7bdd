"""What is learned from the labelled sources, before any target row is seen."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from baryflow.core.dictionary import Dictionary, Domain, farthest_first
from baryflow.core.discriminant import discriminant_directions
from baryflow.core.em import Reference, distinct_rows, fit_rows
from baryflow.core.gaussian import fast_squared_distances
from baryflow.core.mixture import Mixture
from baryflow.core.proportions import ProportionPrior
from baryflow.estimators.class_moments import ClassMoments, spread
from baryflow.estimators.sensors import Limits
from baryflow.validation import Floats, Integers

#: Logit of a class that a classifier has never seen.
_NEVER = -50.0
#: A class with fewer rows than this in a source is one component, its spread drawn towards the usual.
_FEW_ROWS = 5
#: Rows for each component that a class gets.
_ROWS_PER_COMPONENT = 5
_MAX_ATOMS = 4
#: Smallest std of a target component in the loss, in units of the usual spread within a class.
_COMPONENT_FLOOR = 0.05
#: A column whose std is below this part of its largest value does not vary.
_ROUNDING = 1e-10
_TRAINING_STEPS = 5


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """A fitted logistic regression: nothing but its two arrays."""

    coefficients: Floats  # (d, n_classes)
    intercepts: Floats  # (n_classes,)

    @classmethod
    def fit(cls, Z: Floats, codes: Integers, n_classes: int) -> LinearClassifier:
        """Fit on standardised rows; classes without a row are never predicted."""
        coefficients = np.zeros((Z.shape[1], n_classes))
        intercepts = np.full(n_classes, _NEVER)
        present = np.unique(codes)
        if len(present) == 1:
            intercepts[present] = 0.0
            return cls(coefficients, intercepts)
        model = LogisticRegression()
        with warnings.catch_warnings():
            # A hundred steps are enough for what the classifier is used for.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(Z, codes)
        if len(present) == 2:  # scikit-learn keeps one row of coefficients for two classes
            coefficients[:, present[1]] = model.coef_[0]
            intercepts[present] = [0.0, model.intercept_[0]]
        else:
            coefficients[:, present] = model.coef_.T
            intercepts[present] = model.intercept_
        return cls(coefficients, intercepts)

    def proba(self, Z: Floats) -> Floats:
        """Return the probability of every class."""
        return np.asarray(softmax(Z @ self.coefficients + self.intercepts, axis=1))


@dataclass(frozen=True)
class SourceOptions:
    """How sources are described."""

    view: bool = True
    components_per_class: int = 2
    n_atoms: int | None = None
    seed: int = 0
    #: Class proportions that the user expects of a target; None: those of the sources.
    class_prior: Floats | None = None


@dataclass(frozen=True, eq=False)
class SourceModel:
    """Classifiers, view, prior of the proportions and the source-only dictionary.

    In the *view*, rows are standardised with their own domain's moments and projected on the
    discriminant directions; without it they are only moved to the sources' common centre.
    """

    n_classes: int
    centre: Floats  # pooled mean and std of the sources' columns
    scale: Floats
    limits: Limits
    directions: Floats | None  # None without a view
    unit: Floats  # usual spread within a class, in the coordinates of the mixtures
    pooled: LinearClassifier  # of rows standardised with the pooled moments
    own: LinearClassifier  # of rows standardised with their domain's moments
    prior: ProportionPrior
    usual: Floats  # class proportions that are expected of a target
    told: bool  # by the user, and not only by the sources
    classes: ClassMoments
    slot_classes: Integers  # class of each slot of the atoms
    dictionary: Dictionary
    domains: list[Domain]
    loss_curve: Floats

    @classmethod
    def fit(
        cls, rows: list[Floats], codes: list[Integers], n_classes: int, options: SourceOptions
    ) -> SourceModel:
        """Learn from complete rows, a list entry for each source."""
        everything, labels = np.concatenate(rows), np.concatenate(codes)
        centre, scale = everything.mean(axis=0), everything.std(axis=0)
        # A column that varies by rounding alone is constant.
        constant = scale <= _ROUNDING * np.abs(everything).max(axis=0)
        scale = np.where(constant, 1.0, scale)
        standardised = [(X - X.mean(axis=0)) / spread(X, scale) for X in rows]
        pooled = LinearClassifier.fit((everything - centre) / scale, labels, n_classes)
        own = LinearClassifier.fit(np.concatenate(standardised), labels, n_classes)
        directions = None
        seen = [X - centre for X in rows]
        if options.view:
            directions = discriminant_directions(standardised, codes, n_classes)
            seen = [Z @ directions for Z in standardised]
        counts = np.stack([np.bincount(c, minlength=n_classes) for c in codes]).astype(np.float64)
        # In the view the shrunken spread within a class is 1 by construction.
        unit = np.ones(seen[0].shape[1]) if options.view else _within(seen, codes)
        parts = _class_mixtures(seen, codes, n_classes, unit, options)
        dictionary, domains, slot_classes = _dictionary(parts, seen, codes, counts, unit, options)
        curve = dictionary.fit(domains, max_steps=_TRAINING_STEPS, tol=1e-3)
        prior = ProportionPrior.of(counts)
        return cls(
            n_classes=n_classes,
            centre=centre,
            scale=scale,
            limits=Limits.of(rows, centre, scale, constant),
            directions=directions,
            unit=unit,
            pooled=pooled,
            own=own,
            prior=prior,
            usual=prior.mean if options.class_prior is None else options.class_prior,
            told=options.class_prior is not None,
            classes=ClassMoments.of(rows, codes, prior.mean, centre, scale),
            slot_classes=slot_classes,
            dictionary=dictionary,
            domains=domains,
            loss_curve=curve,
        )

    @property
    def n_dimensions(self) -> int:
        """Columns of the means in the coordinates of the mixtures."""
        return len(self.unit)

    def pooled_proba(self, X: Floats) -> Floats:
        """Return the probabilities of the source classifier that knows nothing of the target."""
        return self.pooled.proba((X - self.centre) / self.scale)

    def own_proba(self, X: Floats, centre: Floats, scale: Floats) -> Floats:
        """Return those of the classifier that standardises with the target's moments."""
        return self.own.proba((X - centre) / scale)

    def project(self, X: Floats, centre: Floats, scale: Floats) -> Floats:
        """Return rows in the coordinates of the mixtures."""
        if self.directions is None:
            return X - self.centre
        return ((X - centre) / scale) @ self.directions

    def metric(self, scale: Floats) -> Floats | None:
        """Return the matrix through which raw rows are compared; None: as they are."""
        return None if self.directions is None else self.directions / scale[:, None]

    def variances(self, covariances: Floats | None, stds: Floats, scale: Floats) -> Floats:
        """Return the variances of components in the coordinates of the mixtures."""
        if self.directions is None or covariances is None:
            return np.square(stds)
        projection = self.directions / scale[:, None]
        found = np.einsum("kjp,jp->kp", covariances @ projection, projection)
        return np.asarray(np.maximum(found, 0.0))

    def points(self, means: Floats, variances: Floats, centre: Floats, scale: Floats) -> Floats:
        """Return components of a target as unlabelled points (mean, std) of the dictionary.

        `means` are raw, `variances` in the coordinates of the mixtures.
        """
        floored = np.sqrt(np.maximum(variances, (_COMPONENT_FLOOR * self.unit) ** 2))
        labels = np.zeros((len(means), self.n_classes))
        return np.hstack([self.project(means, centre, scale), floored, labels])

    def target(self, weights: Floats, points: Floats, slot_weights: Floats) -> Domain:
        """Return a target as a domain of the dictionary, half-way between all atoms."""
        n_atoms = self.dictionary.n_atoms
        return Domain(
            weights=weights,
            points=points,
            slot_weights=slot_weights,
            coordinates=np.full(n_atoms, 1.0 / n_atoms),
            n_used=2 * self.n_dimensions,
        )

    def source_proba(self, X: Floats) -> Floats:
        """Return the pooled classifier's probabilities, given what the user expects of a target."""
        return self.given_prior(self.pooled_proba(X))

    def given_prior(self, pooled: Floats) -> Floats:
        """Return the pooled classifier's probabilities for the mix that the user expects, if any."""
        return reweighted(pooled, self.usual / self.prior.mean) if self.told else pooled


def reweighted(table: Floats, ratios: Floats) -> Floats:
    """Return probabilities for classes that are so many times as frequent."""
    weighted = table * ratios
    return np.asarray(weighted / weighted.sum(axis=1, keepdims=True))


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


def _class_mixtures(
    seen: list[Floats],
    codes: list[Integers],
    n_classes: int,
    unit: Floats,
    options: SourceOptions,
) -> list[list[Mixture | None]]:
    """Return the mixture of every class of every source; None where it does not occur."""
    return [
        [_class_mixture(V[y == c], unit, options) if (y == c).any() else None for c in range(n_classes)]
        for V, y in zip(seen, codes, strict=True)
    ]


def _class_mixture(V: Floats, unit: Floats, options: SourceOptions) -> Mixture:
    k = min(options.components_per_class, max(1, len(V) // _ROWS_PER_COMPONENT))
    reference = Reference(V.mean(axis=0), unit)
    rows, weights = distinct_rows(V, np.ones(len(V)))
    mixture = fit_rows(
        rows,
        weights,
        reference,
        min_components=k,
        std_floor=1e-2,
        rng=np.random.default_rng(options.seed),
    ).mixture
    if len(V) >= _FEW_ROWS:
        return mixture
    stds = np.sqrt((len(V) * mixture.stds**2 + unit**2) / (len(V) + 1))
    return Mixture(mixture.weights, mixture.means, stds, mass=mixture.mass)


def _dictionary(
    parts: list[list[Mixture | None]],
    seen: list[Floats],
    codes: list[Integers],
    counts: Floats,
    unit: Floats,
    options: SourceOptions,
) -> tuple[Dictionary, list[Domain], Integers]:
    """Start the atoms from the sources themselves, and set up every source's reconstruction."""
    n_sources, n_classes = counts.shape
    m = options.components_per_class
    V, y = np.concatenate(seen), np.concatenate(codes)
    pooled = [_class_mixture(V[y == c], unit, options) for c in range(n_classes)]
    # A class that a source lacks starts where it is on the whole; its slots have no weight there.
    slots = [
        np.concatenate([_slots(part or pooled[c], m) for c, part in enumerate(source)])
        for source in parts
    ]
    slot_classes = np.repeat(np.arange(n_classes), m)
    stacked = np.concatenate(slots)
    # What a label costs: the largest distance between two components, so that classes stay apart.
    root = float(np.sqrt(fast_squared_distances(stacked, stacked).max())) or 1.0
    n_atoms = options.n_atoms or max(2, min(_MAX_ATOMS, n_sources - 1))
    chosen = farthest_first(slots, min(n_atoms, n_sources))
    labels = root * np.eye(n_classes)
    dictionary = Dictionary(
        np.stack([np.hstack([slots[s], labels[slot_classes]]) for s in chosen]),
        len(unit),
        label_scale=root,
        std_floor=1e-2 * float(unit.min()),
    )
    domains = []
    for number, source in enumerate(parts):
        share = counts[number] / counts[number].sum()
        present = [(c, part) for c, part in enumerate(source) if part is not None]
        points = [
            np.hstack([part.means, part.stds, np.tile(labels[c], (part.n_components, 1))])
            for c, part in present
        ]
        coordinates = np.full(len(chosen), 1.0 / len(chosen))
        if number in chosen:
            coordinates = 0.2 * coordinates + 0.8 * np.eye(len(chosen))[chosen.index(number)]
        domains.append(
            Domain(
                weights=np.concatenate([share[c] * part.weights for c, part in present]),
                points=np.concatenate(points),
                slot_weights=share[slot_classes] / m,
                coordinates=coordinates,
                n_used=dictionary.atoms.shape[2],
            )
        )
    return dictionary, domains, slot_classes


def _slots(mixture: Mixture, m: int) -> Floats:
    """Return exactly m points (mean, std) for a class, the heaviest components repeated."""
    order = np.argsort(-mixture.weights, kind="stable")[np.arange(m) % mixture.n_components]
    return np.hstack([mixture.means, mixture.stds])[order]
