"""A dictionary of labelled mixtures, of which every domain is a Wasserstein barycenter (paper, eq. 12).

An axis-aligned Gaussian is the point (mean, std) of R^2d; with its label it is the point
(mean, std, √label_cost · label). A mixture is then weights and points, and all costs are squared
Euclidean distances.

The atoms are C mixtures of K points each. Domain ℓ is rebuilt from them slot by slot: slot j of its
reconstruction is the point Σ_c λ_c · atom_c[match_c[j]], where the matches are the plans of the
barycenter, which are permutations. The loss is Σ_ℓ min over plans of ‖Q_ℓ − B_ℓ‖². With all
plans held fixed it is a quadratic in the atoms, minimised exactly, and a small quadratic on the
simplex in each domain's coordinates: one *block step* does plans, coordinates and atoms in turn.

An exact step goes all the way to where the plans of the moment want the atoms. That is right for domains
that are known and wrong for a stream, whose first plans are mistaken: a slot that has jumped to another
class is matched with it ever after. A large `proximal` takes the same steps in small portions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from baryflow.core.transport import (
    assignment,
    barycentric_map,
    fast_squared_distances,
    plan_between,
)
from baryflow.validation import Booleans, Floats, Integers


@dataclass(frozen=True, eq=False)
class Points:
    """Points (mean | std | label) in one array, seen by the names of its columns.

    Under the 2-Wasserstein metric an axis-aligned Gaussian is the point (mean, std) of R^2d; its label,
    scaled by √label_cost, is written behind. All properties are views: writing into one writes into
    `values`, and nothing is ever copied.

    Parameters
    ----------
    values : array of shape (..., n_points, 2·n_features + n_classes)
        Leading dimensions count sets of points, such as atoms.
    n_features : int
        Columns of the means, and as many of the stds; the rest are labels.
    """

    values: Floats
    n_features: int

    @classmethod
    def join(cls, means: Floats, stds: Floats, labels: Floats) -> Self:
        """Put means, stds and labels side by side."""
        return cls(np.concatenate([means, stds, labels], axis=-1), int(means.shape[-1]))

    @property
    def n_spatial(self) -> int:
        """Columns of means and stds, all that is known of a Gaussian without a label."""
        return 2 * self.n_features

    @property
    def means(self) -> Floats:
        """Means, shape (..., n_points, n_features)."""
        return self.values[..., : self.n_features]

    @property
    def stds(self) -> Floats:
        """Standard deviations, shape (..., n_points, n_features)."""
        return self.values[..., self.n_features : self.n_spatial]

    @property
    def spatial(self) -> Floats:
        """Means and standard deviations side by side: the points without their labels."""
        return self.values[..., : self.n_spatial]

    @property
    def labels(self) -> Floats:
        """Labels, shape (..., n_points, n_classes), with the scale they have among the points."""
        return self.values[..., self.n_spatial :]


def solve_atoms(
    columns: Integers, values: Floats, weights: Floats, goals: Floats, old: Floats, proximal: float
) -> Floats:
    """Solve (Rᵀ W R + proximal·I) X = Rᵀ W goals + proximal·old, one row of R for each slot.

    `columns` and `values`, of shape (rows, C), are the entries of R: the atom slots that make up each
    domain's slots, and the domain's coordinates.
    """
    from scipy.sparse import csr_array, eye_array
    from scipy.sparse.linalg import splu

    n, n_atoms = columns.shape
    starts = np.arange(0, n * n_atoms + 1, n_atoms)
    rows = csr_array((values.ravel(), columns.ravel(), starts), shape=(n, len(old)))
    weighted = rows.T.multiply(weights).tocsr()
    matrix = weighted @ rows + proximal * eye_array(len(old))
    return np.asarray(splu(matrix.tocsc()).solve(weighted @ goals + proximal * old))


def simplex_least_squares(quadratic: Floats, linear: Floats, start: Floats | None = None) -> Floats:
    """Minimise xᵀ·quadratic·x − 2·linearᵀ·x over the simplex, for many such problems at once.

    A primal active-set method. The minimum is the minimum on the plane of one of the simplex's faces;
    the search goes from face to face downhill, and ends where no unknown is negative and none that is
    zero wants to grow.

    Parameters
    ----------
    quadratic : array of shape (..., n, n)
        Positive semi-definite; next to nothing is added to its diagonal, for one solution.
    linear : array of shape (..., n)
    start : array of shape (..., n), optional
        A point of the simplex to start from; on the right face already, it saves the search. Without
        it the middle.

    Returns
    -------
    array of shape (..., n)
    """
    n = linear.shape[-1]
    size = np.trace(quadratic, axis1=-2, axis2=-1)[..., None] / n
    size = np.maximum(size, np.finfo(np.float64).tiny)
    matrices = (quadratic / size[..., None] + 1e-10 * np.eye(n)).reshape(-1, n, n)
    vectors = (linear / size).reshape(-1, n)
    found = np.full(vectors.shape, 1.0 / n) if start is None else start.reshape(-1, n).copy()
    faces = found > 0.0
    going = np.arange(len(vectors))
    for _ in range(_TURNS * n):
        going = going[_turn(matrices[going], vectors[going], found, faces, going)]
        if not going.size:
            break
    np.maximum(found, 0.0, out=found)
    found /= found.sum(axis=1, keepdims=True)
    return np.asarray(found.reshape(linear.shape))


#: Turns of the search for each unknown, at most; it needs about one for each that is zero in the end.
_TURNS = 10
#: What counts as zero for an unknown, and for the slope along which one would grow.
_ZERO = 1e-12


def _turn(
    matrices: Floats, vectors: Floats, found: Floats, faces: Booleans, going: Integers
) -> Booleans:
    """Go to the minimum on each face, or as far as its border; return which searches continue."""
    face = faces[going]
    best, slope = _on_faces(matrices, vectors, face)
    outside = face & (best < -_ZERO)
    leaving = outside.any(axis=1)
    grows = np.where(face, np.inf, slope)
    entering = ~leaving & (grows.min(axis=1) < -_ZERO)
    if leaving.any():
        here, out = found[going[leaving]], outside[leaving]
        there = best[leaving]
        ways = np.where(out, here / np.where(out, here - there, 1.0), np.inf)
        first = ways.argmin(axis=1)
        there = here + ways.min(axis=1)[:, None] * (there - here)
        there[np.arange(len(first)), first] = 0.0
        best[leaving] = there
        faces[going[leaving], first] = False
    faces[going[entering], grows[entering].argmin(axis=1)] = True
    found[going] = best
    return np.asarray(leaving | entering)


def _on_faces(matrices: Floats, vectors: Floats, face: Booleans) -> tuple[Floats, Floats]:
    """Return the minimum on the plane of each face, and how the objective slopes off the face there."""
    count, n = face.shape
    systems = np.zeros((count, n + 1, n + 1))
    systems[:, :n, :n] = matrices * (face[:, :, None] & face[:, None, :])
    systems[:, :n, n] = systems[:, n, :n] = face
    systems[:, np.arange(n), np.arange(n)] += ~face  # x = 0 off the face
    right = np.ones((count, n + 1, 1))
    right[:, :n, 0] = vectors * face
    solution = np.linalg.solve(systems, right)[:, :, 0]
    best, level = solution[:, :n], solution[:, n:]
    slope = (matrices @ best[:, :, None])[:, :, 0] - vectors + level
    return best, slope


#: Weight of the proximal term that keeps atoms near where they were, relative to a point's own: next to
#: nothing, enough for the normal equations to have one solution.
PROXIMAL = 1e-2
#: The same for steps that continue along a stream: a step goes a hundredth of the way.
DAMPED = 100.0
#: Coordinates below this play no part in a barycenter.
_NEGLIGIBLE = 1e-9


@dataclass
class Domain:
    """One domain's mixture, and how the dictionary rebuilds it at the moment.

    Parameters
    ----------
    weights, points : arrays of shape (n,) and (n, D)
        The mixture; an unlabelled one has zeros in the label columns.
    slot_weights : array of shape (K,)
        Weights of the reconstruction's components.
    coordinates : array of shape (C,)
        On the simplex.
    n_used : int
        Leading columns that the cost sees: all of them, or without labels only means and stds.
    extra_costs : array of shape (n, K), optional
        Added to the plan's costs, for instance from a classifier's votes.
    """

    weights: Floats
    points: Floats
    slot_weights: Floats
    coordinates: Floats
    n_used: int
    extra_costs: Floats | None = None
    match: Integers = field(default_factory=lambda: np.zeros((0, 0), dtype=np.intp))  # (C, K)
    plan: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # (n, K)
    goal: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # (K, D): where the plan wants slots
    loss: float = np.inf

    def copy(self) -> Domain:
        """Return a domain that can be moved without moving this one; its arrays are never changed."""
        return Domain(**vars(self))


@dataclass(eq=False)
class Dictionary:
    """Atoms, and the steps that improve them.

    Parameters
    ----------
    atoms : array of shape (C, K, D)
        The values of :class:`~baryflow.core.dictionary.Points`, with labels that sum to `label_scale`.
    n_features : int
        Of the points: D is 2·n_features + n_classes.
    label_scale : float
        √label_cost: what a label's row sums to.
    std_floor : float
        Smallest standard deviation of an atom.
    proximal : float, default=1e-2
        How firmly a step holds the atoms where they were: a domain with all its coordinates on one
        atom moves the points of that atom 1 / (1 + proximal) of the way to where its plan wants them.
    """

    atoms: Floats
    n_features: int
    label_scale: float = 1.0
    std_floor: float = 1e-3
    proximal: float = PROXIMAL

    @property
    def n_atoms(self) -> int:
        """Number of atoms, C."""
        return int(self.atoms.shape[0])

    @property
    def n_slots(self) -> int:
        """Components of each atom, K."""
        return int(self.atoms.shape[1])

    # Columns of points; others use :class:`~baryflow.core.dictionary.Points`.

    @property
    def _spatial(self) -> slice:
        return slice(2 * self.n_features)

    @property
    def _stds(self) -> slice:
        return slice(self.n_features, 2 * self.n_features)

    @property
    def _labels(self) -> slice:
        return slice(2 * self.n_features, None)

    def copy(self) -> Dictionary:
        """Return a dictionary that can be trained without changing this one."""
        return replace(self)

    # -- barycenters and plans -----------------------------------------------------------------

    def reconstruction(self, domain: Domain) -> Floats:
        """Return the points of the domain's barycenter, shape (K, D), with the present matches.

        Matches are one to one, so a slot's weight goes with it: this is the barycenter of atoms whose
        components weigh what the slots matched with them do. Where a domain's classes have unequal
        shares it is therefore not exactly the barycenter of the atoms with components of equal weight,
        as they are shown; their points are the same.
        """
        return _mixed(domain.coordinates, self._sent(domain))

    def reconstructions(self, domains: Sequence[Domain]) -> list[Floats]:
        """Return the points of the barycenters of several domains."""
        return [self.reconstruction(domain) for domain in domains]

    def _sent(self, domain: Domain) -> Floats:
        """Return the atoms' points in the order of the domain's slots, shape (C, K, D)."""
        sent: Floats = self.atoms[np.arange(self.n_atoms)[:, None], domain.match]
        return sent

    def transport(self, domain: Domain) -> float:
        """Renew matches and plan, starting from the last ones; return the domain's loss."""
        self._transport(domain, self._matching())
        return domain.loss

    def _matching(self) -> tuple[Floats, Floats]:
        """Return all atoms' points as columns, and half their squared norms: the costs of matches."""
        flat = self.atoms.reshape(-1, self.atoms.shape[2])
        return flat.T.copy(), 0.5 * np.vecdot(flat, flat)

    def _transport(self, domain: Domain, matching: tuple[Floats, Floats]) -> Floats:
        """Renew matches and plan; return the atoms' points in the order of the domain's slots."""
        if not domain.match.size:
            domain.match = np.tile(np.arange(self.n_slots), (self.n_atoms, 1))
        sent = self._sent(domain)
        slots = _mixed(domain.coordinates, sent)
        if self.n_atoms > 1 and self._match(domain, slots, *matching):
            sent = self._sent(domain)
            slots = _mixed(domain.coordinates, sent)
        costs = fast_squared_distances(domain.points[:, : domain.n_used], slots[:, : domain.n_used])
        if domain.extra_costs is not None:
            costs += domain.extra_costs
        domain.plan = plan_between(domain.weights, domain.slot_weights, costs)
        domain.loss = float(np.vdot(domain.plan, costs))
        domain.goal = barycentric_map(domain.plan.T, domain.slot_weights, domain.points)
        return sent

    def _match(self, domain: Domain, slots: Floats, columns: Floats, norms: Floats) -> bool:
        """Match the atoms with the domain's slots once more; return whether anything has changed.

        An atom whose coordinate is next to nothing stays matched as it was.
        """
        # Half the squared distances, up to the slots' own norms, which no assignment depends on.
        costs = slots @ columns
        costs = np.subtract(norms, costs, out=costs).reshape(self.n_slots, self.n_atoms, self.n_slots)
        # Where every slot has its nearest point already, no assignment can be better.
        unsure = (costs.argmin(axis=2) != domain.match.T).any(axis=0)
        unsure &= domain.coordinates > _NEGLIGIBLE
        if not unsure.any():
            return False
        before, domain.match = domain.match, domain.match.copy()
        for c in np.flatnonzero(unsure):
            domain.match[c] = assignment(costs[:, c])
        return bool((domain.match != before).any())

    def settle(self, domain: Domain, n_times: int = 1) -> Floats:
        """Find the domain's place among the atoms as they are: plan and coordinates in turn.

        Return where its slots are then, means and stds side by side, shape (K, 2·n_features).
        """
        for _ in range(n_times):
            self.transport(domain)
            self.move_coordinates(domain)
        return self.reconstruction(domain)[:, self._spatial]

    # -- block steps ---------------------------------------------------------------------------

    def step(self, domains: Sequence[Domain], frozen: Sequence[Domain] = ()) -> Floats:
        """Take one block step; return the domains' losses before it.

        Domains in `frozen` keep their plans and coordinates: they pull on the atoms at no cost.
        """
        matching = self._matching()
        products = [self._gap_products(domain, self._transport(domain, matching)) for domain in domains]
        losses = np.array([domain.loss for domain in domains])
        self._move_coordinates(domains, products)
        self.move_atoms([*domains, *frozen])
        return losses

    def fit(
        self,
        domains: Sequence[Domain],
        *,
        max_steps: int = 50,
        tol: float = 1e-3,
        frozen: Sequence[Domain] = (),
    ) -> Floats:
        """Take block steps until the loss falls by less than `tol`, relatively, twice in a row.

        Return the loss of every domain at every step, shape (n_steps, n_domains).
        """
        curve: list[Floats] = []
        calm = 0
        for _ in range(max_steps):
            curve.append(self.step(domains, frozen))
            if len(curve) > 1:
                before, now = curve[-2].sum(), curve[-1].sum()
                calm = calm + 1 if before - now <= tol * before else 0
                if calm == 2:
                    break
        return np.array(curve)

    def move_coordinates(self, domain: Domain) -> None:
        """Set the domain's coordinates to the exact minimiser with plans and atoms fixed."""
        self._move_coordinates([domain], [self._gap_products(domain, self._sent(domain))])

    def _gap_products(self, domain: Domain, sent: Floats) -> Floats:
        """Return the products of the atoms' gaps to the domain's goal, shape (C, C).

        `sent` are the atoms' points in the order of the slots. It is overwritten: at its size a fresh
        array costs more than what is done with it.
        """
        # Coordinates sum to one, so the goal can be taken as the origin: an offset costs no digits.
        whole = domain.n_used == sent.shape[2]
        gaps = np.subtract(
            sent[:, :, : domain.n_used], domain.goal[:, : domain.n_used], out=sent if whole else None
        )
        weighted = (gaps * domain.slot_weights[:, None]).reshape(self.n_atoms, -1)
        return np.asarray(weighted @ gaps.reshape(self.n_atoms, -1).T)

    def _move_coordinates(self, domains: Sequence[Domain], products: Sequence[Floats]) -> None:
        if self.n_atoms == 1 or not domains:
            return
        start = np.stack([domain.coordinates for domain in domains])
        found = simplex_least_squares(np.stack(products), np.zeros_like(start), start)
        for domain, coordinates in zip(domains, found, strict=True):
            domain.coordinates = coordinates

    def move_atoms(self, domains: Sequence[Domain]) -> None:
        """Set the atoms to the exact minimiser with plans fixed, staying near where they were.

        The normal equations are the same for all columns, except that unlabelled domains say nothing
        about labels.
        """
        old = self.atoms.reshape(-1, self.atoms.shape[2])
        new = old.copy()
        if domains:
            new[:, self._spatial] = self._solved(domains, self._spatial, old)
        labelled = [domain for domain in domains if domain.n_used > 2 * self.n_features]
        # In the usual case the plans keep the classes apart, and no label has to move.
        if labelled and not self._labels_fit(labelled):
            labels = np.maximum(self._solved(labelled, self._labels, old), 0.0)
            totals = labels.sum(axis=1, keepdims=True)
            new[:, self._labels] = np.where(
                totals > 0.0,
                labels * (self.label_scale / np.where(totals > 0.0, totals, 1.0)),
                old[:, self._labels],
            )
        stds = new[:, self._stds]
        np.maximum(stds, self.std_floor, out=stds)
        self.atoms = new.reshape(self.atoms.shape)

    def _solved(self, domains: Sequence[Domain], columns: slice, old: Floats) -> Floats:
        """Return where some columns of the atoms bring the domains' slots nearest to their goals."""
        offsets = np.arange(self.n_atoms)[:, None] * self.n_slots
        return solve_atoms(
            np.concatenate([(offsets + domain.match).T for domain in domains]),
            np.repeat([d.coordinates for d in domains], self.n_slots, axis=0),
            np.concatenate([d.slot_weights for d in domains]),
            np.concatenate([domain.goal[:, columns] for domain in domains]),
            old[:, columns],
            self.proximal / self.n_slots,
        )

    def _labels_fit(self, domains: Sequence[Domain]) -> bool:
        """Tell whether the plans send every slot to labels that it has already."""
        atoms = self.atoms[:, :, self._labels]
        matches = np.stack([domain.match for domain in domains])
        sent = atoms[np.arange(self.n_atoms)[:, None], matches]  # (domains, C, K, classes)
        coordinates = np.stack([domain.coordinates for domain in domains])
        labels = (coordinates[:, None] @ sent.reshape(*sent.shape[:2], -1)).reshape(-1, atoms.shape[2])
        goals = np.concatenate([domain.goal[:, self._labels] for domain in domains])
        occurs = np.concatenate([domain.slot_weights for domain in domains]) > 0.0
        gap = np.abs(labels - goals)[occurs]
        return bool(gap.max(initial=0.0) <= 1e-12 * self.label_scale)


def _mixed(coordinates: Floats, sent: Floats) -> Floats:
    """Return Σ_c coordinates[c] · sent[c]."""
    return np.asarray((coordinates @ sent.reshape(len(sent), -1)).reshape(sent.shape[1:]))


def farthest_first(points: Sequence[Floats], n_chosen: int) -> list[int]:
    """Choose domains to start the atoms from: the most central one, then the farthest from those."""
    gaps = np.array([[np.square(a - b).sum() for b in points] for a in points])
    chosen = [int(gaps.sum(axis=1).argmin())]
    while len(chosen) < n_chosen:
        chosen.append(int(gaps[:, chosen].min(axis=1).argmax()))
    return chosen
