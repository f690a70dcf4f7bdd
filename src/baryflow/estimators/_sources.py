"""What the labelled sources teach before any target row is seen.

:class:`SourceKnowledge` is all of it, shared by every target: :class:`PlainClassifiers`, and
:class:`SourceModel`, the discriminant view in which the dictionary works.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from baryflow.core.dictionary import Dictionary, Domain, Points, farthest_first
from baryflow.core.discriminant import Discriminants, Scatter
from baryflow.core.em import Reference, distinct_rows, fit_rows
from baryflow.core.mixture import Mixture
from baryflow.core.transport import fast_squared_distances
from baryflow.estimators._classifiers import Classifier, Fit, ScikitClassifier
from baryflow.estimators._committee import FLOOR, Calibration, Committee
from baryflow.estimators._domains import fill_gaps
from baryflow.estimators._explanations import DomainModel
from baryflow.estimators._novelty import Novelty, nearest_distance
from baryflow.estimators._orders import number_within
from baryflow.estimators._sensors import Limits, Units, find_other_units
from baryflow.estimators._source_table import ClassMoments, SourceTable
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans, Floats, Integers

#: Components of each class in every source and atom.
COMPONENTS_PER_CLASS = 2
#: A class with fewer rows than this in a source is one component, its spread drawn towards the usual.
_FEW_ROWS = 5
#: Rows for each component that a class gets.
_ROWS_PER_COMPONENT = 5
_MAX_ATOMS = 4
#: Block steps of the dictionary with the sources.
_TRAINING_STEPS = 5
#: With more columns than this, classifiers are fitted in the span of discriminative directions: at least
#: this many, and twice as many as there are classes.
_MANY_COLUMNS, _FEWEST_DIRECTIONS = 512, 64
#: Rows on which the plain classifiers are fitted at most: a kernel machine takes time by their square.
_MOST_ROWS = 12_000
#: Smallest std of a target component in the loss, in units of the usual spread within a class.
_COMPONENT_FLOOR = 0.05
#: Smallest std of a predicting component, in the same units.
PREDICTOR_FLOOR = 0.1
#: Least variance within classes in a direction of all columns, as a part of the usual one.
_LEAST_VARIANCE = 1e-3
#: Share of a class without a training row, to divide by.
_RAREST = 1e-12


@dataclass(frozen=True)
class SourceOptions:
    """How sources are described."""

    n_atoms: int | None = None
    seed: int = 0
    #: Class proportions that the user expects of a target; None: those of the sources.
    class_prior: Floats | None = None
    #: Estimate the class proportions of targets.
    label_shift: bool = True


@dataclass(frozen=True, eq=False)
class Prototypes:
    """The mean of every class of every source, in columns in which classes spread alike.

    Rows are standardised with the moments of their domain first.
    """

    whitening: Floats  # (d, d)
    means: Floats  # (n_prototypes, d)

    @classmethod
    def of(cls, table: SourceTable, scatter: Scatter) -> Prototypes:
        """Take them from the moments of the sources and the spread within classes."""
        values, vectors = np.linalg.eigh(scatter.covariance())
        floor = max(_LEAST_VARIANCE * float(values.mean()), np.finfo(np.float64).tiny)
        whitening = vectors / np.sqrt(np.maximum(values, floor))
        means = [
            table.standardise(table.means[number][counts > 0], number)
            for number, counts in enumerate(table.counts)
        ]
        return cls(whitening, np.concatenate(means) @ whitening)

    def distances(self, Z: Floats) -> Floats:
        """Return the mean squared distance of standardised rows from the nearest prototype."""
        squared = fast_squared_distances(Z @ self.whitening, self.means).min(axis=1)
        return np.asarray(squared / len(self.whitening))


@dataclass(frozen=True, eq=False)
class SourceModel:
    """The sources in the view: where classes lie, how domains differ, and the source-only dictionary.

    In the *view*, rows are standardised with their own domain's moments and projected on the
    discriminant directions.
    """

    n_classes: int
    centre: Floats  # pooled mean and std of the sources' columns
    scale: Floats
    view: Discriminants
    unit: Floats  # usual spread within a class, in the coordinates of the mixtures
    domain_model: DomainModel
    expected_prior: Floats  # class proportions expected of a target: the user's, or the sources'
    dictionary: Dictionary
    domains: list[Domain]
    #: Where each class of each source is if all columns count; None if there are many.
    prototypes: Prototypes | None = None

    @property
    def n_dimensions(self) -> int:
        """Columns of the means in the coordinates of the mixtures."""
        return len(self.unit)

    @property
    def moments(self) -> ClassMoments:
        """The moments of the classes."""
        return self.domain_model.moments

    @cached_property
    def slot_classes(self) -> Integers:
        """Class of each slot of the atoms."""
        return np.repeat(np.arange(self.n_classes), self.dictionary.n_slots // self.n_classes)

    def project(self, X: Floats, centre: Floats, scale: Floats) -> Floats:
        """Return rows in the coordinates of the mixtures."""
        return ((X - centre) / scale) @ self.view.directions

    def distance(self, X: Floats, centre: Floats, scale: Floats) -> Floats:
        """Return the distance of rows from the nearest component of any source, in the view."""
        occurring = [domain.points[domain.weights > 0.0] for domain in self.domains]
        points = Points(np.concatenate(occurring), self.n_dimensions)
        return nearest_distance(self.project(X, centre, scale), points.means, points.stds)

    def novelty_distance(self, X: Floats, centre: Floats, scale: Floats) -> Floats:
        """Return the distance of rows from the sources, in the view and in all columns."""
        distance = self.distance(X, centre, scale)
        if self.prototypes is None:
            return distance
        return np.asarray(np.sqrt(distance * self.prototypes.distances((X - centre) / scale)))

    def lift(self, mixture: Mixture, centre: Floats, scale: Floats) -> Mixture:
        """Return a mixture of these coordinates in the columns and units of rows."""
        means = centre + scale * (mixture.means @ self.view.lift.T)
        variances = np.square(mixture.stds) @ np.square(self.view.lift.T) + self.view.rest
        stds = scale * np.sqrt(np.maximum(variances, np.finfo(np.float64).tiny))
        return Mixture(mixture.weights, means, stds, mixture.labels, mixture.mass)

    def metric(self, scale: Floats) -> Floats:
        """Return the matrix through which raw rows are compared."""
        return self.view.directions / scale[:, None]

    def points(self, means: Floats, variances: Floats, centre: Floats, scale: Floats) -> Floats:
        """Return components of a target as points (mean, std) of the dictionary, without labels.

        `means` are raw, `variances` in the coordinates of the mixtures.
        """
        floored = np.sqrt(np.maximum(variances, (_COMPONENT_FLOOR * self.unit) ** 2))
        return np.hstack([self.project(means, centre, scale), floored])

    def floor_stds(self, points: Points) -> Floats:
        """Return the stds of points that predict."""
        return np.maximum(points.stds, PREDICTOR_FLOOR * self.unit)

    def slot_weights(self, shares: Floats) -> Floats:
        """Return the weights of the slots of a domain with these class proportions."""
        classes = self.slot_classes
        return np.asarray(shares[classes] * (self.n_classes / len(classes)))

    def target(self, weights: Floats, points: Floats, slot_weights: Floats) -> Domain:
        """Return a target as a domain of the dictionary, half-way between all atoms."""
        n_atoms = len(self.dictionary.atoms)
        even = np.full(n_atoms, 1.0 / n_atoms)
        return Domain(weights, points, slot_weights, even, n_used=2 * self.n_dimensions)


@dataclass(frozen=True, eq=False)
class LinearStatistics:
    """What least squares needs to know of rows, with a column of ones: means of their products."""

    gram: Floats  # (d + 1, d + 1)
    cross: Floats  # (d + 1, n_classes): with the one-hot labels

    @classmethod
    def of(cls, Z: Floats, codes: Integers, n_classes: int) -> LinearStatistics:
        """Measure labelled rows."""
        rows = np.column_stack([Z, np.ones(len(Z))])
        sums = [rows[codes == c].sum(axis=0) for c in range(n_classes)]
        return cls(rows.T @ rows / len(Z), np.stack(sums, axis=1) / len(Z))


@dataclass(frozen=True, eq=False)
class PlainClassifiers:
    """Classifiers of the pooled rows of all sources, on raw rows and on rows standardised per domain.

    Raw means: standardised with the pooled moments of the sources.
    """

    names: tuple[str, ...]
    raw: list[Classifier]
    per_domain: list[Classifier]
    centre: Floats  # pooled mean and std of the sources' columns
    scale: Floats
    shares: Floats  # of the classes in the training rows
    #: Orthonormal directions in which rows are classified, if there are many columns.
    basis: Floats | None
    statistics: LinearStatistics  # of rows standardised per domain

    def __post_init__(self) -> None:
        if not len(self.raw) == len(self.per_domain) == len(self.names):
            raise ValueError("expected a classifier for every name")

    def raw_logs(self, X: Floats) -> Floats:
        """Return log-probabilities for raw rows, shape (n_classifiers, n, n_classes)."""
        return self._logs(self.raw, (X - self.centre) / self.scale)

    def per_domain_logs(self, X: Floats, centre: Floats, scale: Floats) -> Floats:
        """Return those for rows standardised with their domain's moments."""
        return self._logs(self.per_domain, (X - centre) / scale)

    def reduce(self, Z: Floats) -> Floats:
        """Return standardised rows in the directions in which they are classified."""
        return Z if self.basis is None else Z @ self.basis

    def _logs(self, classifiers: list[Classifier], Z: Floats) -> Floats:
        Z = self.reduce(Z)
        tables = np.stack([one.proba(Z) for one in classifiers])
        tables += FLOOR
        return np.log(tables, out=tables)

    def packed(self) -> PlainClassifiers:
        """Return them as they can be saved; InvalidInputError if a user's own cannot be."""
        raw, per_domain = (
            [one.packed() if isinstance(one, ScikitClassifier) else one for one in some]
            for some in (self.raw, self.per_domain)
        )
        return replace(self, raw=raw, per_domain=per_domain)

    def prior_log_ratios(self, shares: Floats) -> Floats:
        """Return what to add to log-probabilities if classes are as frequent as this."""
        return np.log(np.maximum(shares, _RAREST) / np.maximum(self.shares, _RAREST))


@dataclass(frozen=True, eq=False)
class SourceKnowledge:
    """All that is known before the first row of a target; many targets share it."""

    model: SourceModel
    plain: PlainClassifiers
    limits: Limits
    user_prior: bool  # the expected class proportions are the user's
    committee: Committee
    novelty: Novelty
    calibration: Calibration = field(default_factory=Calibration.none)

    def expect(self, prior: Floats) -> SourceKnowledge:
        """Return the same for a user who expects these class proportions; nothing is learned again."""
        return replace(self, model=replace(self.model, expected_prior=prior), user_prior=True)

    def limit(self, adapt: bool | str) -> SourceKnowledge:
        """Return the same for a target that is adapted to in another way."""
        return replace(self, committee=self.committee.limit(adapt))


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Complete rows and class numbers of every source, a list entry for each."""

    rows: list[Floats]
    codes: list[Integers]
    n_classes: int

    def table(self) -> SourceTable:
        """Return counts and moments of the rows."""
        return SourceTable.of(self.rows, self.codes, self.n_classes)

    def thinned(self, most: int) -> LabelledRows:
        """Return every k-th row of each class and source, so that about `most` are left."""
        kept = self.thin(most)
        rows = [X[some] for X, some in zip(self.rows, kept, strict=True)]
        codes = [y[some] for y, some in zip(self.codes, kept, strict=True)]
        return LabelledRows(rows, codes, self.n_classes)

    def thin(self, most: int) -> list[Any]:
        """Return which rows of each source these are."""
        step = -(-sum(map(len, self.rows)) // most)
        if step <= 1:
            return [slice(None)] * len(self.rows)
        return [number_within(y) % step == 0 for y in self.codes]

    @cached_property
    def labels(self) -> Integers:
        """Class numbers of all rows."""
        return np.concatenate(self.codes)

    def measure(self, table: SourceTable) -> Scatter:
        """Return how the rows spread within classes, each source standardised by itself."""
        found: Scatter | None = None
        for number, (X, y) in enumerate(zip(self.rows, self.codes, strict=True)):
            part = Scatter.of(table.standardise(X, number), y, table.n_classes)
            found = part if found is None else found + part
            del part  # with many columns it is large
        if found is None:
            raise ValueError("there are no sources")
        return found


def complete_sources(
    rows: list[Floats], codes: list[Integers], n_classes: int, names: Any = None
) -> tuple[LabelledRows, list[Units]]:
    """Fill the gaps of the sources and convert columns in other units; return the units, too.

    A missing value becomes the mean of its column in its source, or, in a column that the source lacks,
    the mean of the other sources. `names` are those of the columns.
    """
    there = np.stack([(~np.isnan(X)).any(axis=0) for X in rows])
    require_columns(there, names)
    filled = _fill_sources(rows, there)
    units = find_other_units(SourceTable.of(filled, codes, n_classes))
    if any(one.other.any() for one in units):
        converted = [one.convert(X) for one, X in zip(units, rows, strict=True)]
        filled = _fill_sources(converted, there)
    return LabelledRows(filled, codes, n_classes), units


def _fill_sources(rows: list[Floats], there: Booleans) -> list[Floats]:
    if not there.all():
        # Only means of what is there: a sum of all rows would have gaps.
        means = np.stack([fill_gaps(X, np.zeros(X.shape[1])).mean(axis=0) for X in rows])
        return [fill_gaps(X, average_sources(means, there)) for X in rows]
    return [fill_gaps(X, X[0]) for X in rows]


def average_sources(means: Floats, there: Booleans) -> Floats:
    """Return the mean of each column over the sources that have it."""
    return np.asarray(np.where(there, means, 0.0).sum(axis=0) / there.sum(axis=0))


def require_columns(there: Booleans, names: Any = None) -> None:
    """Refuse a column that no source has."""
    if not (held := there.any(axis=0)).all():
        column = int(held.argmin())
        name = f"number {column}" if names is None else repr(names[column])
        raise InvalidInputError(f"no source has any value at all in column {name}: leave it out")


@dataclass(frozen=True, eq=False)
class Outlook:
    """How rows of the sources are projected on discriminants."""

    table: SourceTable
    view: Discriminants
    unit: Floats  # usual spread within a class, in the coordinates of the mixtures
    #: Directions in which classifiers are fitted, if there are too many columns.
    basis: Floats | None
    prototypes: Prototypes | None = None

    @classmethod
    def of(cls, table: SourceTable, scatter: Scatter) -> Outlook:
        """Find the discriminants of a scatter."""
        found = scatter.discriminants()
        basis, prototypes, d = None, None, len(table.centre)
        if d > _MANY_COLUMNS:
            wanted = min(d, max(_FEWEST_DIRECTIONS, 2 * table.n_classes))
            basis = discriminative_basis(table, scatter, found.directions, wanted)
        else:
            prototypes = Prototypes.of(table, scatter)
        # The shrunken spread within a class is 1, by construction.
        return cls(table, found, np.ones(found.directions.shape[1]), basis, prototypes)

    def see(self, X: Floats, number: int) -> Floats:
        """Return complete rows of a source in the coordinates of the mixtures."""
        return self.table.standardise(X, number) @ self.view.directions


def fit_sources(
    sources: LabelledRows, classifiers: Mapping[str, Fit], options: SourceOptions
) -> tuple[SourceModel, PlainClassifiers, Limits]:
    """Learn all that needs no leave-one-source-out."""
    table = sources.table()
    outlook = Outlook.of(table, sources.measure(table))
    model = build_model(outlook, *mix_sources(sources, outlook, options), options=options)
    plain = fit_plain(sources, table, classifiers, basis=outlook.basis, seed=options.seed)
    return model, plain, Limits.of(table)


def mix_sources(
    sources: LabelledRows, outlook: Outlook, options: SourceOptions
) -> tuple[list[list[Mixture | None]], list[Mixture]]:
    """Return the mixture of every class of every source, and of every class of all rows."""
    seen = [outlook.see(X, number) for number, X in enumerate(sources.rows)]

    def describe(V: Floats) -> Mixture:
        return mix_class(V, outlook.unit, COMPONENTS_PER_CLASS, options.seed)

    classes = range(outlook.table.n_classes)
    together = np.concatenate(seen)
    return (
        [
            [describe(V[y == c]) if (y == c).any() else None for c in classes]
            for V, y in zip(seen, sources.codes, strict=True)
        ],
        [describe(together[sources.labels == c]) for c in classes],
    )


def fit_plain(
    sources: LabelledRows,
    table: SourceTable,
    classifiers: Mapping[str, Fit],
    *,
    basis: Floats | None = None,
    seed: int = 0,
) -> PlainClassifiers:
    """Fit all classifiers on raw rows and per domain; of very many rows only some are used."""
    kept = sources.thin(_MOST_ROWS)
    chosen = [(number, X, kept[number]) for number, X in enumerate(sources.rows)]
    # One source at a time, because rows may be long.
    spaces = [
        _join(((X[some] - table.centre) / table.scale for _, X, some in chosen), basis),
        _join((table.standardise(X[some], n) for n, X, some in chosen), basis),
    ]
    codes = [y[some] for y, some in zip(sources.codes, kept, strict=True)]
    labels = np.concatenate(codes)
    fitted = [
        [fit(Z, labels, table.n_classes, None, seed) for fit in classifiers.values()] for Z in spaces
    ]
    return PlainClassifiers(
        names=tuple(classifiers),
        raw=fitted[0],
        per_domain=fitted[1],
        centre=table.centre,
        scale=table.scale,
        shares=np.bincount(labels, minlength=table.n_classes) / len(labels),
        basis=basis,
        statistics=LinearStatistics.of(spaces[1], labels, table.n_classes),
    )


def _join(parts: Iterable[Floats], basis: Floats | None) -> Floats:
    """Return all rows, in the directions of a basis, if any."""
    return np.concatenate([Z if basis is None else Z @ basis for Z in parts])


def build_model(
    outlook: Outlook,
    parts: list[list[Mixture | None]],
    together: list[Mixture],
    *,
    options: SourceOptions,
) -> SourceModel:
    """Learn the dictionary from mixtures as :func:`mix_sources` returns them."""
    table = outlook.table
    dictionary, domains = start_dictionary(
        parts,
        together,
        table.shares,
        n_slots=COMPONENTS_PER_CLASS,
        n_atoms=options.n_atoms,
        std_floor=1e-2 * float(outlook.unit.min()),
    )
    dictionary.fit(domains, max_steps=_TRAINING_STEPS, tol=1e-3)
    usual = table.shares.mean(axis=0)
    domain_model = DomainModel.of(table, ClassMoments.of(table, usual), outlook.view)
    return SourceModel(
        n_classes=table.n_classes,
        centre=table.centre,
        scale=table.scale,
        view=outlook.view,
        unit=outlook.unit,
        domain_model=domain_model,
        expected_prior=usual if options.class_prior is None else options.class_prior,
        dictionary=dictionary,
        domains=domains,
        prototypes=outlook.prototypes,
    )


def mix_class(V: Floats, unit: Floats, n_components: int, seed: int) -> Mixture:
    """Return the mixture of the rows of one class; `unit` is the usual spread within a class."""
    k = min(n_components, max(1, len(V) // _ROWS_PER_COMPONENT))
    rows, weights = distinct_rows(V, np.ones(len(V)))
    mixture = fit_rows(
        rows,
        weights,
        Reference(V.mean(axis=0), unit),
        min_components=k,
        std_floor=1e-2,
        rng=np.random.default_rng(seed),
    ).mixture
    if len(V) >= _FEW_ROWS:
        return mixture
    stds = np.sqrt((len(V) * mixture.stds**2 + unit**2) / (len(V) + 1))
    return Mixture(mixture.weights, mixture.means, stds, mass=mixture.mass)


def start_dictionary(
    parts: list[list[Mixture | None]],
    pooled: list[Mixture],
    shares: Floats,
    *,
    n_slots: int,
    n_atoms: int | None,
    std_floor: float,
) -> tuple[Dictionary, list[Domain]]:
    """Start the atoms from the sources themselves, and set up every source's reconstruction.

    Parameters
    ----------
    parts : list of lists of Mixture or None
        The mixture of every class of every source; None where it does not occur.
    pooled : list of Mixture
        Of every class on the whole: where a class that a source lacks starts. Its slots have no weight.
    shares : array of shape (n_sources, n_classes)
    n_slots : int
        Components of every class in an atom: slot j is of class j // n_slots.
    """
    n_sources, n_classes = shares.shape
    slots = [
        np.concatenate([_fill_slots(part or pooled[c], n_slots) for c, part in enumerate(source)])
        for source in parts
    ]
    stacked = np.concatenate(slots)
    # What a label costs: the largest distance between two components, so that classes stay apart.
    root = float(np.sqrt(fast_squared_distances(stacked, stacked).max())) or 1.0
    wanted = n_atoms or max(2, min(_MAX_ATOMS, n_sources - 1))
    chosen = farthest_first(slots, min(wanted, n_sources))
    labels = root * np.repeat(np.eye(n_classes), n_slots, axis=0)
    dictionary = Dictionary(
        np.stack([np.hstack([slots[s], labels]) for s in chosen]),
        stacked.shape[1] // 2,
        label_scale=root,
        std_floor=std_floor,
    )
    even = np.full(len(chosen), 1.0 / len(chosen))
    domains = []
    for number, source in enumerate(parts):
        present = [(c, part) for c, part in enumerate(source) if part is not None]
        start = even
        if number in chosen:
            start = 0.2 * even + 0.8 * np.eye(len(chosen))[chosen.index(number)]
        domains.append(
            Domain(
                weights=np.concatenate([shares[number, c] * part.weights for c, part in present]),
                points=np.concatenate([_label(part, c, root, n_classes) for c, part in present]),
                slot_weights=np.repeat(shares[number], n_slots) / n_slots,
                coordinates=start,
                n_used=dictionary.atoms.shape[2],
            )
        )
    return dictionary, domains


def _fill_slots(mixture: Mixture, n_slots: int) -> Floats:
    """Return exactly `n_slots` points (mean, std) for a class, the heaviest components repeated."""
    order = np.argsort(-mixture.weights, kind="stable")[np.arange(n_slots) % mixture.n_components]
    return np.hstack([mixture.means, mixture.stds])[order]


def _label(part: Mixture, c: int, root: float, n_classes: int) -> Floats:
    """Return the components of a class as labelled points."""
    labels = np.tile(np.eye(n_classes)[c], (part.n_components, 1))
    return Points.join(part.means, part.stds, root * labels).values


def atoms_as_mixtures(dictionary: Dictionary) -> list[Mixture]:
    """Return the atoms as labelled mixtures of uniform weight."""
    even = np.full(dictionary.n_slots, 1.0 / dictionary.n_slots)
    atoms = [Points(atom, dictionary.n_features) for atom in dictionary.atoms]
    return [
        Mixture(even, atom.means, atom.stds, atom.labels / atom.labels.sum(axis=1, keepdims=True))
        for atom in atoms
    ]


def discriminative_basis(
    table: SourceTable, scatter: Scatter, directions: Floats, n_directions: int
) -> Floats:
    """Return an orthonormal basis of directions that tell classes apart, shape (d, n_directions).

    The discriminant directions, the means of the classes of every source, and the directions in which
    rows spread most around these means.
    """
    from scipy.linalg import qr
    from sklearn.utils.extmath import randomized_svd

    means = [
        table.standardise(table.means[number][counts > 0], number) * np.sqrt(counts[counts > 0])[:, None]
        for number, counts in enumerate(table.counts)
    ]
    scaled = directions / np.linalg.norm(directions, axis=0)
    _, _, leading = np.linalg.svd(np.concatenate(means), full_matrices=False)
    room = max(1, n_directions // 2)
    basis, _ = qr(np.hstack([scaled[:, :room], leading[:room].T]), mode="economic")
    if n_directions > basis.shape[1]:
        # The scatter without what lies in the basis: (1 − BBᵀ) W (1 − BBᵀ).
        along = scatter.within @ basis
        along -= 0.5 * basis @ (basis.T @ along)
        known = along @ basis.T
        rest = scatter.within - known
        rest -= known.T
        _, _, spreads = randomized_svd(rest, n_directions - basis.shape[1], random_state=0)
        basis = np.hstack([basis, spreads.T])
    return np.ascontiguousarray(basis[:, :n_directions])
