"""Learning from the labelled sources, before any target row is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add

import numpy as np

from baryflow.core.discriminant import Discriminants, Scatter
from baryflow.core.mixture import Mixture
from baryflow.core.proportions import ProportionPrior
from baryflow.estimators.atoms import mix_class, split_classes, start_dictionary
from baryflow.estimators.class_moments import ClassMoments
from baryflow.estimators.linear import STEPS, LinearClassifier, telling_basis
from baryflow.estimators.sensors import Limits
from baryflow.estimators.source_model import Classifiers, SourceModel
from baryflow.estimators.source_table import SourceTable
from baryflow.validation import Floats, Integers

#: Block steps of the dictionary with the sources, from their rows and from mixtures of unknown making.
_TRAINING_STEPS, _MIXTURE_STEPS = 5, 20
#: With more columns than this, classifiers are fitted on what tells classes apart: on at least so many
#: directions, and on twice as many as there are classes.
MANY_COLUMNS, _FEWEST_DIRECTIONS = 512, 64


@dataclass(frozen=True)
class SourceOptions:
    """How sources are described."""

    view: bool = True
    #: Without a view: scale columns with the sources' pooled stds, or take them as they come.
    scaled: bool = True
    components_per_class: int = 2
    n_atoms: int | None = None
    seed: int = 0
    #: Class proportions that the user expects of a target; None: those of the sources.
    class_prior: Floats | None = None
    #: Steps of the classifiers' optimiser.
    classifier_steps: int = STEPS


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Complete rows and class numbers of every source, a list entry for each.

    `weights`, for all rows one source after the other: for how many rows each of them stands.
    """

    rows: list[Floats]
    codes: list[Integers]
    weights: Floats | None = None

    @cached_property
    def labels(self) -> Integers:
        """Class numbers of all rows."""
        return np.concatenate(self.codes)

    def standardised(self, table: SourceTable) -> list[Floats]:
        """Return the rows of every source around its mean, in units of its stds."""
        return [table.standardise(X, number) for number, X in enumerate(self.rows)]

    def measure(self, table: SourceTable) -> Scatter:
        """Return how the rows spread within classes, each source standardised by itself."""
        parts = zip(self.standardised(table), self.codes, strict=True)
        return reduce(add, (Scatter.of(Z, y, table.n_classes) for Z, y in parts))


@dataclass(frozen=True, eq=False)
class Outlook:
    """How rows of the sources are looked at: through a view, or with their pooled moments."""

    table: SourceTable
    units: Floats  # of the columns, without a view
    view: Discriminants | None
    unit: Floats  # usual spread within a class, in the coordinates of the mixtures
    #: Directions in which classes stand apart, also if they are not looked through.
    directions: Floats | None

    @classmethod
    def of(
        cls, table: SourceTable, scatter: Scatter | None, *, view: bool, scaled: bool = True
    ) -> Outlook:
        """Find the discriminants of a scatter; without one nothing is known of directions."""
        found = None if scatter is None else scatter.discriminants()
        directions = None if found is None else found.directions
        as_they_come = np.ones_like(table.scale)
        if found is None or not view:
            units = table.scale if scaled else as_they_come
            return cls(table, units, None, table.within / units, directions)
        # The shrunken spread within a class is 1, by construction.
        return cls(table, as_they_come, found, np.ones(found.directions.shape[1]), directions)

    def see(self, X: Floats, number: int) -> Floats:
        """Return complete rows of a source in the coordinates of the mixtures."""
        if self.view is None:
            return (X - self.table.centre) / self.units
        return self.table.standardise(X, number) @ self.view.directions

    def basis(self, sources: LabelledRows) -> Floats | None:
        """Return the directions in which classifiers are fitted, if there are too many columns."""
        d, n_classes = len(self.table.centre), self.table.n_classes
        if d <= MANY_COLUMNS or self.directions is None:
            return None
        wanted = min(d, max(_FEWEST_DIRECTIONS, 2 * n_classes))
        return telling_basis(sources.standardised(self.table), sources.codes, self.directions, wanted)


def needs_scatter(n_features: int, options: SourceOptions) -> bool:
    """Tell whether discriminants are needed: for the view, or because of many columns."""
    return options.view or n_features > MANY_COLUMNS


def learn_sources(
    rows: list[Floats],
    codes: list[Integers],
    n_classes: int,
    options: SourceOptions,
    scatter: Scatter | None = None,
) -> SourceModel:
    """Learn from complete rows, a list entry for each source.

    `scatter`, if it is known already, is what :meth:`LabelledRows.measure` says of the sources.
    """
    sources, table = LabelledRows(rows, codes), SourceTable.of(rows, codes, n_classes)
    if scatter is None and needs_scatter(rows[0].shape[1], options):
        scatter = sources.measure(table)
    outlook = Outlook.of(table, scatter, view=options.view, scaled=options.scaled)
    basis = outlook.basis(sources)
    return build_model(
        outlook,
        *mix_sources(sources, outlook, options),
        pooled=fit_pooled(sources, table, options, basis),
        own=fit_own(sources, table, options, basis),
        options=options,
    )


def mix_sources(
    sources: LabelledRows, outlook: Outlook, options: SourceOptions
) -> tuple[list[list[Mixture | None]], list[Mixture]]:
    """Return the mixture of every class of every source, and of every class on the whole."""
    seen = [outlook.see(X, number) for number, X in enumerate(sources.rows)]

    def describe(V: Floats) -> Mixture:
        return mix_class(V, outlook.unit, options.components_per_class, options.seed)

    classes = range(outlook.table.n_classes)
    together = np.concatenate(seen)
    return (
        [
            [describe(V[y == c]) if (y == c).any() else None for c in classes]
            for V, y in zip(seen, sources.codes, strict=True)
        ],
        [describe(together[sources.labels == c]) for c in classes],
    )


def fit_pooled(
    sources: LabelledRows, table: SourceTable, options: SourceOptions, basis: Floats | None
) -> LinearClassifier:
    """Fit the classifier that knows nothing of where a row comes from."""
    Z = (np.concatenate(sources.rows) - table.centre) / table.scale
    return _fit(Z, sources, table, options, basis)


def fit_own(
    sources: LabelledRows, table: SourceTable, options: SourceOptions, basis: Floats | None
) -> LinearClassifier:
    """Fit the classifier of rows that are standardised source by source."""
    return _fit(np.concatenate(sources.standardised(table)), sources, table, options, basis)


def _fit(
    Z: Floats,
    sources: LabelledRows,
    table: SourceTable,
    options: SourceOptions,
    basis: Floats | None,
) -> LinearClassifier:
    return LinearClassifier.fit(
        Z,
        sources.labels,
        table.n_classes,
        weights=sources.weights,
        basis=basis,
        max_steps=options.classifier_steps,
    )


def build_model(
    outlook: Outlook,
    parts: list[list[Mixture | None]],
    together: list[Mixture],
    *,
    pooled: LinearClassifier,
    own: LinearClassifier,
    options: SourceOptions,
) -> SourceModel:
    """Learn the dictionary, and put together what is known of the sources.

    Parameters
    ----------
    parts, together
        As :func:`mix_sources` gives them.
    pooled, own : LinearClassifier
    """
    table = outlook.table
    dictionary, domains = start_dictionary(
        parts,
        together,
        table.shares,
        n_slots=options.components_per_class,
        n_atoms=options.n_atoms,
        std_floor=1e-2 * float(outlook.unit.min()),
    )
    curve = dictionary.fit(domains, max_steps=_TRAINING_STEPS, tol=1e-3)
    prior = ProportionPrior.of(table.counts)
    return SourceModel(
        n_classes=table.n_classes,
        centre=table.centre,
        scale=table.scale,
        units=outlook.units,
        view=outlook.view,
        unit=outlook.unit,
        classifiers=Classifiers(
            pooled=pooled,
            own=own,
            shares=table.pooled_shares,
            limits=Limits.of(table),
            classes=ClassMoments.of(table, prior.mean),
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
        units=np.ones_like(centre),
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
