"""Section 3.2 of the paper: a dictionary of labelled mixtures, learned offline and online."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from baryflow.core.dictionary import DAMPED, Dictionary, Domain, farthest_first
from baryflow.core.mixture import Mixture
from baryflow.exceptions import InvalidInputError
from baryflow.paper._gmm import (
    OnlineGMM,
    as_mixture,
    as_points,
    as_range,
    barycenter,
    check_alike,
    em,
    gaussian_w2,
    labelled_gmm,
    map_estimate,
    mw2_squared,
    smw2_squared,
)
from baryflow.validation import (
    Booleans,
    Floats,
    RandomState,
    as_choice,
    as_count,
    as_generator,
    as_real,
    as_simplex_rows,
)

# == 3.2 Online GMM-DaDiL =============================================================================


def dictionary_loss(
    sources: Sequence[Mixture],
    target: Mixture | None,
    atoms: Sequence[Mixture],
    coordinates: Any,
    label_cost: float,
) -> float:
    r"""Equation 12: return how far domains are from their reconstructions by the dictionary.

    .. math:: \mathcal L(\Lambda, \mathcal P) = MW_2^2(Q_T, B(\lambda_T, \mathcal P))
        + \sum_\ell SMW_{2,\beta}^2(Q_{S_\ell}, B(\lambda_\ell, \mathcal P))

    Labels cost in every barycenter, also in the target's.

    Parameters
    ----------
    sources : sequence of Mixture
        Labelled.
    target : Mixture or None
        Its labels, if any, play no part. None leaves the first term out.
    atoms : sequence of Mixture
        Labelled, with as many components each, all of the same weight.
    coordinates : array of shape (n_domains, n_atoms)
        Λ: one row for each source, then one for the target.
    label_cost : float
        β.

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        If mixtures do not fit each other, or coordinates leave the simplex.
    TransportError
        If no plan could be proved optimal.
    """
    total = 0.0
    for Q, weights in _checked_domains(sources, target, atoms, coordinates):
        B = barycenter(atoms, weights, label_cost=label_cost, start=_slotwise(atoms, weights))
        total += mw2_squared(Q, B) if Q.labels is None else smw2_squared(Q, B, label_cost)
    return total


def _checked_domains(
    sources: Sequence[Mixture], target: Mixture | None, atoms: Sequence[Mixture], coordinates: Any
) -> list[tuple[Mixture, Floats]]:
    """Return the mixture and the coordinates of each domain, the target's without labels."""
    for P in (*sources, *atoms):
        if P.labels is None:
            raise InvalidInputError(f"sources and atoms must be labelled, got {P}")
    check_alike([*atoms, *sources])
    domains = [*sources]
    if target is not None:
        domains.append(target.with_labels(None))
        check_alike([*(atom.with_labels(None) for atom in atoms), domains[-1]])
    for atom in atoms:
        n = atom.n_components
        if n != atoms[0].n_components or not np.allclose(atom.weights, 1.0 / n):
            raise InvalidInputError(
                f"atoms must have as many components each, all of the same weight, got "
                f"{atoms[0].n_components} and {n}, with weights from {atom.weights.min():g} to "
                f"{atom.weights.max():g}"
            )
    rows = as_simplex_rows(
        coordinates, "coordinates", n_rows=len(domains), rows="n_domains", columns="n_atoms"
    )
    if rows.shape[1] != len(atoms):
        raise InvalidInputError(
            f"coordinates must have {len(atoms)} columns, one for each atom, got {rows.shape[1]}"
        )
    return list(zip(domains, rows, strict=True))


def _slotwise(atoms: Sequence[Mixture], coordinates: Any) -> Mixture:
    """Return the mean of the first components of all atoms, of the second, and so on: a start."""
    points = np.tensordot(coordinates, np.stack([as_points(atom) for atom in atoms]), 1)
    return as_mixture(atoms[0].weights, points, atoms[0].n_features)


def dictionary_gradient(
    sources: Sequence[Mixture],
    target: Mixture | None,
    atoms: Sequence[Mixture],
    coordinates: Any,
    label_cost: float,
) -> tuple[Floats, Floats]:
    """Equation 12, differentiated: return the gradient of the loss, in closed form.

    Almost everywhere the optimal plans stay the same for a small change of the dictionary. With plans
    held fixed, the loss is a quadratic in the components of the atoms, and one in the coordinates.

    Parameters
    ----------
    sources, target, atoms, coordinates, label_cost
        As in :func:`dictionary_loss`.

    Returns
    -------
    of_atoms : array of shape (n_atoms, n_components, 2 · n_features + n_classes)
        By means, stds and labels, side by side.
    of_coordinates : array of shape (n_domains, n_atoms)

    Raises
    ------
    InvalidInputError
        If mixtures do not fit each other, or coordinates leave the simplex.
    TransportError
        If no plan could be proved optimal.
    """
    mixtures = _checked_domains(sources, target, atoms, coordinates)
    scale = float(np.sqrt(as_real(label_cost, "label_cost", low=0.0)))
    dictionary = Dictionary(
        np.stack([as_points(atom, scale) for atom in atoms]), atoms[0].n_features, label_scale=scale
    )
    domains = [_as_domain(dictionary, Q, weights) for Q, weights in mixtures]
    for domain in domains:
        _settle(dictionary, domain)
    of_atoms, of_coordinates = _gradients(dictionary, domains)
    of_atoms[:, :, 2 * dictionary.n_features :] *= scale
    return of_atoms, of_coordinates


def _as_domain(dictionary: Dictionary, Q: Mixture, coordinates: Floats) -> Domain:
    """Return a mixture as the core's dictionary has it; slots of a reconstruction weigh the same."""
    width = dictionary.atoms.shape[2]
    n_spatial = 2 * dictionary.n_features
    return Domain(
        weights=Q.weights,
        points=as_points(Q, dictionary.label_scale, width - n_spatial),
        slot_weights=np.full(dictionary.n_slots, 1.0 / dictionary.n_slots),
        coordinates=coordinates,
        n_used=n_spatial if Q.labels is None else width,
    )


#: Iterations of the barycenter's fixed point in one step. A warm start needs one or two.
_FIXED_POINT_STEPS = 20


def _settle(dictionary: Dictionary, domain: Domain) -> float:
    """Solve equation 9 and then equation 7 for one domain; return its term of equation 12."""
    for _ in range(_FIXED_POINT_STEPS):
        before = domain.match
        dictionary.transport(domain)
        if np.array_equal(before, domain.match):
            break
    return domain.loss


def _gradients(dictionary: Dictionary, domains: Sequence[Domain]) -> tuple[Floats, Floats]:
    """Return the gradients by the atoms' points and by the coordinates, with the present plans."""
    of_atoms = np.zeros_like(dictionary.atoms)
    of_coordinates = np.zeros((len(domains), dictionary.n_atoms))
    numbers = np.arange(dictionary.n_atoms)[:, None]
    for row, domain in enumerate(domains):
        sent = dictionary.atoms[numbers, domain.match]  # (C, K, D), in the order of the slots
        slots = np.tensordot(domain.coordinates, sent, 1)
        # The plan wants slot j at its goal, Σ_k ω_kj q_k / w_j.
        pull = 2.0 * domain.slot_weights[:, None] * (slots - domain.goal)
        pull[:, domain.n_used :] = 0.0
        of_coordinates[row] = np.tensordot(sent, pull, 2)
        # Matches are one to one: no slot of an atom occurs twice.
        of_atoms[numbers, domain.match] += domain.coordinates[:, None, None] * pull
    return of_atoms, of_coordinates


class _Adam:
    """Adam steps with the settings of the authors' public code.

    Atoms start from noise: means from N(0, 1), stds of 1, uniform labels, which are softmax functions of
    what is learned. Coordinates start uniform and are projected to the simplex.
    """

    def __init__(self, dictionary: Dictionary, learning_rate: float) -> None:
        n_labels = dictionary.atoms.shape[2] - 2 * dictionary.n_features
        self.learning_rate = learning_rate
        self.logits = np.zeros((*dictionary.atoms.shape[:2], n_labels))
        self.moments: dict[str, tuple[Any, Any, int]] = {}

    def move(self, dictionary: Dictionary, domains: Sequence[Domain]) -> None:
        """Take one step down the gradient of equation 12."""
        of_atoms, of_coordinates = _gradients(dictionary, domains)
        d, scale = dictionary.n_features, dictionary.label_scale
        labels = dictionary.atoms[:, :, 2 * d :] / scale
        of_labels = scale * of_atoms[:, :, 2 * d :]
        of_logits = labels * (of_labels - (labels * of_labels).sum(axis=2, keepdims=True))
        spatial = dictionary.atoms[:, :, : 2 * d] - self._step("atoms", of_atoms[:, :, : 2 * d])
        np.maximum(spatial[:, :, d:], dictionary.std_floor, out=spatial[:, :, d:])
        self.logits = self.logits - self._step("labels", of_logits)
        shares = np.exp(self.logits - self.logits.max(axis=2, keepdims=True))
        shares /= shares.sum(axis=2, keepdims=True)
        dictionary.atoms = np.concatenate([spatial, scale * shares], axis=2)
        for number, domain in enumerate(domains):
            step = self._step(f"coordinates {number}", of_coordinates[number])
            domain.coordinates = _project_to_simplex(domain.coordinates - step)

    def _step(self, name: str, gradient: Floats) -> Floats:
        """Return the step by one set of unknowns, and remember the moments of their gradient.

        Each set counts its own steps: the target's coordinates come later than the others.
        """
        mean, square, n_steps = self.moments.get(name, (0.0, 0.0, 0))
        mean, n_steps = 0.9 * mean + 0.1 * gradient, n_steps + 1
        square = 0.999 * square + 0.001 * np.square(gradient)
        self.moments[name] = (mean, square, n_steps)
        mean_now, square_now = mean / (1 - 0.9**n_steps), square / (1 - 0.999**n_steps)
        return np.asarray(self.learning_rate * mean_now / (np.sqrt(square_now) + 1e-8))


class _Block:
    """The damped block step of the core: with plans fixed, a hundredth of the way to the minimum."""

    def move(self, dictionary: Dictionary, domains: Sequence[Domain]) -> None:
        """Move the coordinates to their minimum, then the atoms towards theirs."""
        for domain in domains:
            dictionary.move_coordinates(domain)
        dictionary.move_atoms(domains)


def _project_to_simplex(vector: Floats) -> Floats:
    """Return the nearest point of the simplex."""
    ordered = np.sort(vector)[::-1]
    excess = (np.cumsum(ordered) - 1.0) / np.arange(1, len(vector) + 1)
    last = int(np.flatnonzero(ordered > excess)[-1])
    found: Floats = np.maximum(vector - excess[last], 0.0)
    return np.asarray(found / found.sum())


#: The name of the target beside those of the sources.
_TARGET = "target"


class _GMMDaDiL(ClassifierMixin, BaseEstimator):
    """What the offline and the online method share: the dictionary (Λ, P), and prediction by it."""

    classes_: Any
    sources_: list[Any]
    target_mixture_: Mixture
    n_features_in_: int
    n_atoms: int | None
    components_per_class: int
    max_components: int | None
    optimizer: str
    learning_rate: float
    label_cost: float | None
    random_state: RandomState

    def _learn_sources(self, X: Floats, y: Any, names: Any) -> None:
        """Fit a labelled mixture to each source, and start the dictionary."""
        as_choice(self.optimizer, "optimizer", ("adam", "block"))
        rate = as_real(self.learning_rate, "learning_rate", low=0.0, open_low=True)
        n_each = as_count(self.components_per_class, "components_per_class")
        self.classes_, codes = np.unique(y, return_inverse=True)
        n_classes = len(self.classes_)
        if n_classes < 2:
            raise InvalidInputError(f"y holds only one class, {self.classes_[0]!r}; give at least two")
        self.sources_ = np.unique(names).tolist()
        self._rng = as_generator(self.random_state)
        self.source_mixtures_ = [
            labelled_gmm(
                X[names == name], codes[names == name], n_classes, n_each, random_state=self._rng
            )
            for name in self.sources_
        ]
        # β: as much as the farthest two components are apart, so that plans keep classes apart.
        everything = Mixture.concatenate(self.source_mixtures_)
        cost = self.label_cost
        if cost is None:
            cost = float(np.square(gaussian_w2(everything, everything)).max()) or 1.0
        scale = float(np.sqrt(as_real(cost, "label_cost", low=0.0, open_low=True)))
        n_sources = len(self.sources_)
        n_atoms = max(2, n_sources - 1) if self.n_atoms is None else as_count(self.n_atoms, "n_atoms")
        self._dictionary = Dictionary(
            np.zeros((n_atoms, n_classes * n_each, 2 * X.shape[1] + n_classes)),
            X.shape[1],
            label_scale=scale,
            # No atom has to be narrower than the narrowest component of a source.
            std_floor=float(everything.stds.min()),
            proximal=DAMPED,
        )
        self._optimiser: _Adam | _Block
        if self.optimizer == "adam":
            self._dictionary.atoms = self._random_atoms(self._dictionary.atoms.shape)
            self._optimiser = _Adam(self._dictionary, rate)
        else:
            self._dictionary.atoms = self._source_atoms(n_atoms, n_each, everything)
            self._optimiser = _Block()
        even = np.full(n_atoms, 1.0 / n_atoms)
        self._domains = [_as_domain(self._dictionary, Q, even) for Q in self.source_mixtures_]
        self._losses: list[Floats] = []
        if hasattr(self, "target_mixture_"):  # of an earlier fit
            del self.target_mixture_

    def _random_atoms(self, shape: tuple[int, ...]) -> Floats:
        """Return atoms as the authors' code starts them."""
        d, n_classes = self.n_features_in_, len(self.classes_)
        means = self._rng.normal(size=(*shape[:2], d))
        labels = np.full((*shape[:2], n_classes), self._dictionary.label_scale / n_classes)
        return np.concatenate([means, np.ones_like(means), labels], axis=2)

    def _source_atoms(self, n_atoms: int, n_each: int, everything: Mixture) -> Floats:
        """Return atoms that are sources: a central one, then those farthest from the ones chosen.

        A class that a source lacks is taken from all sources together.
        """
        n_classes, scale = len(self.classes_), self._dictionary.label_scale

        def slots(Q: Mixture) -> Floats:
            mine, all_sources = as_points(Q, scale), as_points(everything, scale)
            found = []
            for column in range(mine.shape[1] - n_classes, mine.shape[1]):
                part = mine if mine[:, column].any() else all_sources
                of_class = part[part[:, column] > 0.0]
                found.append(of_class[np.arange(n_each) % len(of_class)])
            return np.concatenate(found)

        points = [slots(Q) for Q in self.source_mixtures_]
        chosen = farthest_first(points, min(n_atoms, len(points)))
        return np.stack([points[chosen[number % len(chosen)]] for number in range(n_atoms)])

    def _see_target(self, target: Mixture) -> None:
        """Put a target mixture in the place of the last one; coordinates and matches stay."""
        self.target_mixture_ = target
        known = len(self._domains) > len(self.sources_)
        domain = _as_domain(self._dictionary, target, self.coordinates_[_TARGET])
        if known:
            domain.match = self._domains.pop().match
        self._domains.append(domain)

    def optimise(self, n_steps: int = 100) -> Self:
        """Take steps on equation 12, while the target's rows flow in or after their end.

        The target's mixture stands for all rows that were seen, so no row is needed again.

        Parameters
        ----------
        n_steps : int, default=100

        Returns
        -------
        object
            Itself.

        Raises
        ------
        InvalidInputError
            If `n_steps` is negative or no integer.
        NotFittedError
            If it was not fitted.
        """
        check_is_fitted(self, "_domains")
        for _ in range(as_count(n_steps, "n_steps", minimum=0)):
            losses = np.full(len(self.sources_) + 1, np.nan)
            for number, domain in enumerate(self._domains):
                losses[number] = _settle(self._dictionary, domain)
            self._losses.append(losses)
            self._optimiser.move(self._dictionary, self._domains)
        self._reconstruct()
        return self

    def _reconstruct(self) -> None:
        """Equation 9: the reconstruction of the target, which predicts."""
        coordinates, start = self.coordinates_[_TARGET], None
        if len(self._domains) > len(self.sources_) and self._domains[-1].match.size:
            slots = self._dictionary.reconstruction(self._domains[-1])
            start = as_mixture(self._domains[-1].slot_weights, slots, self.n_features_in_)
        atoms = self.atoms_
        self.reconstruction_ = barycenter(
            atoms,
            coordinates,
            label_cost=self._dictionary.label_scale**2,
            start=_slotwise(atoms, coordinates) if start is None else start,
        )

    @property
    def atoms_(self) -> list[Mixture]:
        """The atoms P, labelled mixtures with components of equal weight."""
        check_is_fitted(self, "_dictionary")
        even = np.full(self._dictionary.n_slots, 1.0 / self._dictionary.n_slots)
        return [as_mixture(even, atom, self.n_features_in_) for atom in self._dictionary.atoms]

    @property
    def coordinates_(self) -> dict[Any, Floats]:
        """The coordinates Λ by the name of the source, and those of the target under "target".

        Until its first rows, the target has the mean of the sources' coordinates.
        """
        check_is_fitted(self, "_domains")
        vectors = [domain.coordinates.copy() for domain in self._domains]
        if len(vectors) == len(self.sources_):
            vectors.append(np.mean(vectors, axis=0))
        return dict(zip([*self.sources_, _TARGET], vectors, strict=True))

    @property
    def loss_curve_(self) -> Floats:
        """The terms of equation 12 before each step, shape (n_steps, n_sources + 1).

        The target's, in the last column, is what Fig. 3 (a) shows; NaN before its first rows. Every
        step since ``fit`` adds a row, so memory grows with the number of steps.
        """
        check_is_fitted(self, "_domains")
        return np.array(self._losses).reshape(-1, len(self.sources_) + 1)

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of every class, by the reconstruction of the target.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_classes)

        Raises
        ------
        InvalidInputError
            If the rows do not fit.
        """
        check_is_fitted(self)
        return self.reconstruction_.predict_proba(validate_data(self, X, reset=False, dtype=np.float64))

    def predict(self, X: Any) -> Any:
        """Equation 3: return the most probable class of every row.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)

        Raises
        ------
        InvalidInputError
            If the rows do not fit.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        return self.classes_[map_estimate(self.reconstruction_, rows)]

    def _n_target_components(self) -> int:
        if self.max_components is None:
            return 3 * len(self.classes_)
        return as_count(self.max_components, "max_components")


def _split(sample_domain: Any, n: int) -> tuple[Any, Booleans]:
    """Return the domain of every row, and which rows are the target's: those with a negative number."""
    if sample_domain is None:
        return np.ones(n, dtype=np.intp), np.zeros(n, dtype=bool)
    names = np.asarray(sample_domain, dtype=object)  # keeps names and numbers apart
    if names.shape != (n,):
        raise InvalidInputError(f"sample_domain must have shape ({n},), got {names.shape}")
    whole = np.array([isinstance(v, Integral) and not isinstance(v, bool) for v in names], dtype=bool)
    for value in names[~whole]:
        if not isinstance(value, str) or value == _TARGET:
            raise InvalidInputError(
                f"sample_domain must hold names other than 'target' or whole numbers, got {value!r}"
            )
    if (names[whole] == 0).any():
        raise InvalidInputError(
            "sample_domain must not hold 0: sources have positive numbers or names, target rows "
            "negative numbers"
        )
    is_target = whole.copy()
    is_target[whole] = names[whole] < 0
    if 0 < whole[~is_target].sum() < (~is_target).sum():
        raise InvalidInputError("sample_domain must hold either names or positive numbers of sources")
    return names, is_target


class GMMDaDiL(_GMMDaDiL):
    """GMM-DaDiL, section 3.2: sources and target at hand, equation 12 minimised offline.

    Put features on comparable scales first: the paper's features come from one network.

    Parameters
    ----------
    n_atoms : int, optional
        C. Without it one fewer than sources, at least 2: with as many atoms as domains, each domain is
        an atom of its own, and nothing is shared.
    components_per_class : int, default=1
        Of each class in a source's mixture and in an atom. One is enough where a class is one cluster.
    max_components : int, optional
        Components of the target's mixture. Without it three for each class, because a component fit
        without labels may fall between classes.
    n_steps : int, default=200
        Steps taken by ``fit``; 200 is the number in the authors' code.
    optimizer : {"block", "adam"}, default="block"
        ``"adam"`` has the authors' settings; ``"block"`` is the damped block step, which starts from the
        sources and needs no learning rate that fits the scale of the data.
    learning_rate : float, default=0.1
        Of Adam; the authors'.
    label_cost : float, optional
        β. Without it the largest squared distance between two components of the sources, which keeps
        classes apart.
    random_state : int, Generator or None

    Attributes
    ----------
    classes_, sources_ : array and list
        Names of the classes and of the sources.
    source_mixtures_, target_mixture_ : list of Mixture, Mixture
        Q_S and Q_T.
    atoms_, coordinates_ : list of Mixture, dict
        The dictionary: P, and Λ by the name of the domain.
    reconstruction_ : Mixture
        B(λ_T, P), labelled: it predicts.
    loss_curve_ : array of shape (n_steps, n_sources + 1)
        The terms of equation 12 before each step, the target's last.

    Notes
    -----
    Components of atoms and reconstructions have equal weights, while sources keep their class weights.
    Under class imbalance a rare class may get recall 0. Stds of atoms stay above the smallest std of the
    source mixtures. A barycenter gets at most 20 fixed-point iterations in a step.

    A model is not saved; its mixtures can be: ``model.reconstruction_.save(path)``.

    Examples
    --------
    >>> import numpy as np
    >>> from baryflow.datasets import make_domains
    >>> from baryflow.paper import GMMDaDiL
    >>> p = make_domains(n_per_class=40, random_state=0)
    >>> X, y = np.concatenate([p.X, p.X_target]), np.concatenate([p.y, p.y_target])
    >>> domain = np.concatenate([p.domain, np.full(len(p.y_target), -1)])
    >>> model = GMMDaDiL(random_state=0).fit(X, y, sample_domain=domain)  # ignores y of the target
    >>> bool(model.score(p.X_target, p.y_target) > 0.8)
    True
    """

    def __init__(
        self,
        n_atoms: int | None = None,
        *,
        components_per_class: int = 1,
        max_components: int | None = None,
        n_steps: int = 200,
        optimizer: Literal["block", "adam"] = "block",
        learning_rate: float = 0.1,
        label_cost: float | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_atoms = n_atoms
        self.components_per_class = components_per_class
        self.max_components = max_components
        self.n_steps = n_steps
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.label_cost = label_cost
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_domain: Any = None) -> Self:
        """Learn from labelled source rows and unlabelled target rows.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Labels; those of target rows are ignored, and may be NaN or None.
        sample_domain : array of shape (n_samples,), optional
            The domain of each row: a name or a positive number for a source, a negative number for the
            target. Without it all rows are one source, and a warning says that nothing was adapted.

        Returns
        -------
        GMMDaDiL
            Itself.

        Raises
        ------
        InvalidInputError
            If rows, labels, domains or parameters do not fit.
        """
        if sample_domain is not None and y is not None:
            y = np.array(y)
            _, is_target = _split(sample_domain, len(y))
            if is_target.all() or not is_target.any():
                raise InvalidInputError(
                    "sample_domain must mark some rows, not all, as target by negative numbers"
                )
            y[is_target] = y[~is_target][0]  # any known label: scikit-learn refuses NaN
            y = np.array(y.tolist()) if y.dtype == object else y
        X, y = validate_data(self, X, y, dtype=np.float64)
        names, is_target = _split(sample_domain, len(X))
        check_classification_targets(y[~is_target])
        self._learn_sources(X[~is_target], y[~is_target], names[~is_target])
        if is_target.any():
            k = self._n_target_components()
            self._see_target(em(X[is_target], k, random_state=self._rng))
        else:
            warnings.warn(
                "without sample_domain there are no target rows, so nothing is adapted: pass the domain "
                "of each row, a negative number for target rows",
                UserWarning,
                stacklevel=2,
            )
        return self.optimise(self.n_steps)


class OnlineGMMDaDiL(_GMMDaDiL):
    """Online GMM-DaDiL, section 3.2: sources are at hand, the target flows in.

    ``fit`` keeps a mixture of each source as the replay memory. ``partial_fit`` updates the target's
    mixture Q_T by Algorithm 1, then takes steps on equation 12. When the stream has ended, ``optimise``
    continues. Put features on comparable scales first.

    Parameters
    ----------
    n_atoms, components_per_class, optimizer, learning_rate, label_cost, random_state
        As in :class:`GMMDaDiL`.
    max_components : int, optional
        K_max of the target's mixture. Without it three for each class. The paper has 15 for the three
        clusters of its toy, and names no number for its plant.
    min_components, batch_components : int, optional
        K_min and ΔK. Without them the number of classes, because a batch may hold every class; K_min is
        at most K_max, and ΔK always smaller than the batch. The 5 and 3 of the paper's toy are too few
        where batches mix many classes: components then lie between classes, and stay there.
    source_steps : int, default=200
        Steps of ``fit`` on the terms of the sources, before the target comes; 200 is the number in the
        authors' code.
    batch_steps : int, default=10
        Steps after each batch. A damped step goes a hundredth of the way, so ten of them let the
        dictionary follow the target's mixture.

    Attributes
    ----------
    classes_, sources_, source_mixtures_, target_mixture_, atoms_, coordinates_, reconstruction_
        As in :class:`GMMDaDiL`; the target's are of what was seen so far.
    loss_curve_ : array of shape (n_steps, n_sources + 1)
        The terms of equation 12 before each step, the target's last, which is NaN until it comes.

    Notes
    -----
    The notes of :class:`GMMDaDiL` hold here, too.

    Examples
    --------
    >>> from baryflow.datasets import make_domains
    >>> from baryflow.paper import OnlineGMMDaDiL
    >>> p = make_domains(n_per_class=40, random_state=0)
    >>> model = OnlineGMMDaDiL(random_state=0).fit(p.X, p.y, p.domain)
    >>> round(model.score(p.X_target, p.y_target), 2)
    0.89
    >>> for start in range(0, len(p.X_target), 32):
    ...     model = model.partial_fit(p.X_target[start : start + 32])
    >>> model = model.optimise(100)  # the stream has ended
    >>> round(model.score(p.X_target, p.y_target), 2)
    0.95
    """

    def __init__(
        self,
        n_atoms: int | None = None,
        *,
        components_per_class: int = 1,
        max_components: int | None = None,
        min_components: int | None = None,
        batch_components: int | None = None,
        source_steps: int = 200,
        batch_steps: int = 10,
        optimizer: Literal["block", "adam"] = "block",
        learning_rate: float = 0.1,
        label_cost: float | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_atoms = n_atoms
        self.components_per_class = components_per_class
        self.max_components = max_components
        self.min_components = min_components
        self.batch_components = batch_components
        self.source_steps = source_steps
        self.batch_steps = batch_steps
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.label_cost = label_cost
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_domain: Any = None) -> Self:
        """Learn the sources: their mixtures, and a dictionary of them.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Labels.
        sample_domain : array of shape (n_samples,), optional
            The source of each row, a name or a positive number. Without it all rows are one source.

        Returns
        -------
        OnlineGMMDaDiL
            Itself.

        Raises
        ------
        InvalidInputError
            If rows, labels, domains or parameters do not fit.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        names, is_target = _split(sample_domain, len(X))
        if is_target.any():
            raise InvalidInputError("negative numbers mark target rows: pass those to partial_fit")
        self._learn_sources(X, y, names)
        n_classes, limit = len(self.classes_), self._n_target_components()
        smallest = min(n_classes, limit) if self.min_components is None else self.min_components
        as_range(smallest, limit)
        self._gmm = OnlineGMM(
            limit,
            min_components=smallest,
            batch_components=n_classes if self.batch_components is None else self.batch_components,
            random_state=self._rng,
        )
        return self.optimise(self.source_steps)

    def partial_fit(self, X: Any, y: Any = None, *, classes: Any = None) -> Self:
        """Absorb a batch of target rows: update Q_T, then take steps on equation 12.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
        y : array, optional
            On a model that was never fitted, labelled rows are a source, as in :meth:`fit`. Otherwise
            ignored.
        classes : ignored

        Returns
        -------
        OnlineGMMDaDiL
            Itself.

        Raises
        ------
        InvalidInputError
            If the rows do not fit.
        NotFittedError
            If there are no sources yet, and rows have no labels.
        """
        if not hasattr(self, "_gmm") and y is not None:
            return self.fit(X, y)
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        self._see_target(self._gmm.partial_fit(X).mixture_)
        return self.optimise(self.batch_steps)
