"""Wasserstein barycenters of (labelled) mixtures, by fixed point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from baryflow.core.mixture import Mixture
from baryflow.core.transport import barycentric_map, label_cost_table, plan_between, w2_squared
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_count, as_real, as_simplex


@dataclass(frozen=True, eq=False)
class Barycenter:
    """What :func:`barycenter` found.

    Parameters
    ----------
    mixture : Mixture
        The barycenter. Its mass is the coordinate-weighted mean of the masses.
    losses : array of shape (n_iter + 1,)
        The objective at the start and after every iteration, which never rises.
    converged : bool
        Whether the objective had stopped falling when the iterations ended.
    """

    mixture: Mixture
    losses: Floats
    converged: bool

    @property
    def n_iter(self) -> int:
        """Iterations taken."""
        return len(self.losses) - 1


def barycenter(
    mixtures: Sequence[Mixture],
    coordinates: Any = None,
    *,
    n_components: int | None = None,
    start: Mixture | None = None,
    label_cost: float | None = None,
    max_iter: int = 100,
    tol: float = 1e-9,
) -> Barycenter:
    r"""Find the mixture-Wasserstein barycenter of mixtures, all labelled or none.

    From a start, solve the plan to every mixture, move each component to the coordinate-weighted
    mean of where the plans send it, and repeat until the objective stops falling:

    .. math:: \hat B = \arg\min_B \sum_c \lambda_c MW_2^2(B, P_c)

    with SMW₂² in place of MW₂² when there are labels. A component's weight is never changed; what the
    plan sends from it is divided by that weight, so the barycenter of P with itself is P. The result is
    a fixed point of these steps: it depends on the start, and need not be the global minimum.

    Parameters
    ----------
    mixtures : sequence of Mixture
    coordinates : array of shape (n_mixtures,), optional
        On the simplex; equal without it. A mixture with coordinate 0 plays no part.
    n_components : int, optional
        Of the result; without it, that of the mixture with the largest coordinate. Fewer come
        from merging, more from splitting its components.
    start : Mixture, optional
        A warm start. Its weights become those of the result, its number of components too.
    label_cost : float, optional
        Cost of different labels; without it the largest squared distance between two components.
    max_iter, tol : int and float
        Stop when the objective falls by less than `tol` relative to itself, or after `max_iter`.

    Returns
    -------
    Barycenter
        With the mixture in ``.mixture``.

    Raises
    ------
    InvalidInputError
        If there is no mixture, mixtures disagree in features or classes, the coordinates leave the
        simplex, or `start` does not fit.
    TransportError
        If no plan could be proved optimal.

    Examples
    --------
    >>> from baryflow import Mixture, barycenter
    >>> P = Mixture([0.25, 0.75], [[0.0], [9.0]], [[1.0], [1.0]])
    >>> Q = Mixture([0.25, 0.75], [[2.0], [5.0]], [[1.0], [3.0]])
    >>> barycenter([P, Q], [0.5, 0.5]).mixture.means.ravel()
    array([1., 7.])
    """
    mixtures, coordinates = _checked(mixtures, coordinates)
    max_iter = as_count(max_iter, "max_iter")
    tol = as_real(tol, "tol", low=0.0)
    used = [(mixture, c) for mixture, c in zip(mixtures, coordinates, strict=True) if c > 0.0]
    labelled = used[0][0].labels is not None
    if labelled and label_cost is None:
        label_cost = max(float(w2_squared(a, b).max()) for a, _ in used for b, _ in used) or 1.0
    mass = float(sum(c * mixture.mass for mixture, c in used))
    current = _checked_start(start, n_components, used)
    if labelled and current.labels is None:  # a first step without labels gives the start some
        current = _moved(current, used, _plans(current, used, None)[1], mass)
    losses: list[float] = []
    converged = False
    for _ in range(max_iter + 1):
        objective, sent = _plans(current, used, label_cost if labelled else None)
        losses.append(objective)
        converged = len(losses) > 1 and losses[-2] - losses[-1] <= tol * losses[-2]
        if converged:
            break
        if len(losses) <= max_iter:
            current = _moved(current, used, sent, mass)
    return Barycenter(current, np.array(losses), converged)


def _plans(
    current: Mixture, used: list[tuple[Mixture, float]], label_cost: float | None
) -> tuple[float, list[Floats]]:
    """Return the objective at `current`, and the optimal plan to every mixture."""
    objective, plans = 0.0, []
    for mixture, coordinate in used:
        costs = w2_squared(current, mixture)
        if label_cost is not None:
            costs = costs + label_cost_table(current, mixture, label_cost)
        plan = plan_between(current.weights, mixture.weights, costs)
        objective += coordinate * float(np.vdot(plan, costs))
        plans.append(plan)
    return objective, plans


def _moved(
    current: Mixture, used: list[tuple[Mixture, float]], plans: list[Floats], mass: float
) -> Mixture:
    """Move every component to the mean of where the plans send it."""
    occurs = (current.weights > 0.0)[:, None]
    moved = {}
    for name in ("means", "stds", "labels"):
        if getattr(used[0][0], name) is None:
            continue
        values = np.sum(
            [
                c * barycentric_map(plan, current.weights, getattr(mixture, name))
                for (mixture, c), plan in zip(used, plans, strict=True)
            ],
            axis=0,
        )
        before = getattr(current, name)
        if before is None:  # an unlabelled start of a labelled barycenter
            before = np.full_like(values, 1.0 / values.shape[1])
        moved[name] = np.where(occurs, values, before)  # one that never occurs stays
    if "labels" in moved:
        moved["labels"] = moved["labels"] / moved["labels"].sum(axis=1, keepdims=True)
    return Mixture(current.weights, mass=mass, **moved)


def _checked(mixtures: Sequence[Mixture], coordinates: Any) -> tuple[list[Mixture], Floats]:
    mixtures = list(mixtures)
    if not mixtures:
        raise InvalidInputError("mixtures must hold at least one Mixture, got none")
    for position, mixture in enumerate(mixtures):
        if not isinstance(mixture, Mixture):
            raise InvalidInputError(
                f"mixtures must hold Mixture objects, got {type(mixture).__name__} at {position}"
            )
        if mixture.n_features != mixtures[0].n_features or _classes(mixture) != _classes(mixtures[0]):
            raise InvalidInputError(
                f"mixtures must agree in features and classes; number 0 is {mixtures[0]!r}, "
                f"number {position} is {mixture!r}"
            )
    if coordinates is None:
        coordinates = np.full(len(mixtures), 1.0 / len(mixtures))
    return mixtures, as_simplex(coordinates, "coordinates", length=len(mixtures), dim="n_mixtures")


def _classes(mixture: Mixture) -> int | None:
    return None if mixture.labels is None else mixture.n_classes


def _checked_start(
    start: Mixture | None,
    n_components: int | None,
    used: list[tuple[Mixture, float]],
) -> Mixture:
    if start is None:
        largest = max(used, key=lambda pair: pair[1])[0]
        k = largest.n_components if n_components is None else as_count(n_components, "n_components")
        if k <= largest.n_components:
            return _merge(largest, k)
        return _split(largest, k)
    first = used[0][0]
    if n_components is not None and n_components != start.n_components:
        raise InvalidInputError(
            f"n_components={n_components} contradicts start, which has {start.n_components}: "
            f"give one of the two"
        )
    if start.n_features != first.n_features or _classes(start) not in (None, _classes(first)):
        raise InvalidInputError(f"start {start!r} does not fit the mixtures, which are like {first!r}")
    return start


def _merge(mixture: Mixture, n_components: int) -> Mixture:
    """Merge the pair that adds the least scatter into its barycenter until `n_components` are left."""
    tiny = np.finfo(np.float64).tiny
    while mixture.n_components > n_components:
        weights = mixture.weights
        products, totals = weights[:, None] * weights, weights[:, None] + weights
        costs = w2_squared(mixture) * ((products + tiny) / (totals + tiny))
        np.fill_diagonal(costs, np.inf)
        i, j = divmod(int(costs.argmin()), len(weights))
        mass = weights[i] + weights[j]
        means, stds, labels = (
            None if table is None else _join_rows(table, i, j, weights[j] / mass if mass > 0.0 else 0.5)
            for table in (mixture.means, mixture.stds, mixture.labels)
        )
        weights = np.delete(np.where(np.arange(len(weights)) == i, mass, weights), j)
        mixture = Mixture(weights, means, stds, labels, mixture.mass)  # type: ignore[arg-type]
    return mixture


def _join_rows(table: Floats, i: int, j: int, share: float) -> Floats:
    """Return a table whose row i is the mean of the rows i and j, without row j."""
    joined = table.copy()
    joined[i] += share * (table[j] - table[i])
    return np.delete(joined, j, axis=0)


def _split(mixture: Mixture, n_components: int) -> Mixture:
    """Cut the heaviest components into equal copies until there are `n_components`."""
    copies = np.ones(mixture.n_components, dtype=np.intp)
    for _ in range(n_components - mixture.n_components):
        copies[(mixture.weights / copies).argmax()] += 1
    chosen = np.repeat(np.arange(mixture.n_components), copies)
    return Mixture(
        (mixture.weights / copies)[chosen],
        mixture.means[chosen],
        mixture.stds[chosen],
        None if mixture.labels is None else mixture.labels[chosen],
        mixture.mass,
    )
