"""Optimal transport between the components of mixtures. The only caller of POT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from baryflow.core.gaussian import squared_distances, w2_squared_table
from baryflow.core.mixture import Mixture
from baryflow.exceptions import InvalidInputError, TransportError
from baryflow.validation import Floats, Integers, as_real

#: Pivots allowed to the network simplex; far more than any problem here has needed.
_MAX_PIVOTS = 10_000_000


@dataclass(frozen=True, eq=False)
class Plan:
    """How one mixture is carried to another: what :func:`transport_plan` found.

    Parameters
    ----------
    cost : float
        Of the whole plan, the sum of ``coupling * costs``.
    coupling : array of shape (K_P, K_Q)
        The weight that goes from each component of P to each of Q; rows sum to the weights of P,
        columns to those of Q.
    costs : array of shape (K_P, K_Q)
        Of each pair of components: the squared 2-Wasserstein distance, and what labels add.
    """

    cost: float
    coupling: Floats
    costs: Floats


def w2_squared(P: Mixture, Q: Mixture | None = None) -> Floats:
    r"""Return the squared 2-Wasserstein distances between components, shape (K_P, K_Q).

    ``w2_squared(P)`` is the table of P with itself. A single Gaussian is a mixture of one component.
    The table is one matrix product, not a loop over pairs.

    .. math:: W_2^2 = \|m_k - m_l\|^2 + \|s_k - s_l\|^2 \qquad \text{(paper, eq. 6)}

    Parameters
    ----------
    P : Mixture
    Q : Mixture, optional
        With the same features; P itself without it.

    Returns
    -------
    array of shape (K_P, K_Q)

    Raises
    ------
    InvalidInputError
        If P or Q is no mixture, or their features differ.

    Examples
    --------
    >>> from baryflow import Mixture, w2_squared
    >>> w2_squared(Mixture([1], [[0.0, 0.0]], [[1, 1]]), Mixture([1], [[3.0, 0.0]], [[1, 5]]))
    array([[25.]])
    """
    Q = P if Q is None else Q
    _check_features(P, Q)
    table = w2_squared_table(P.means, P.stds, Q.means, Q.stds)
    return (table + table.T) / 2.0 if Q is P else table


def assignment(costs: Floats) -> Integers:
    """Return the column assigned to each row at the lowest total cost, for a square table."""
    from scipy.optimize import linear_sum_assignment

    columns: Integers = linear_sum_assignment(costs)[1]
    return columns


def plan_between(weights_p: Floats, weights_q: Floats, costs: Floats) -> Floats:
    """Return the plan of lowest cost with these marginals, exactly.

    Two uniform sides of the same size have a permutation among their optimal plans, so the
    assignment problem is solved instead of the linear program: the same optimum, several times sooner.
    """
    k = len(weights_p)
    if k == len(weights_q) and (weights_p == weights_p[0]).all() and (weights_q == weights_p[0]).all():
        plan = np.zeros_like(costs)
        plan[np.arange(k), assignment(costs)] = weights_p[0]
        return plan
    # Here and not above: POT looks for every array framework when it is imported.
    from ot import emd

    total_p, total_q = weights_p.sum(), weights_q.sum()
    scale = float(costs.max())
    plan, log = emd(
        weights_p,
        weights_q * (total_p / total_q),
        costs / scale if scale > 0.0 else costs,  # the solver's tolerance is absolute
        numItermax=_MAX_PIVOTS,
        log=True,
        check_marginals=False,
    )
    if log["warning"] is not None:
        raise TransportError(
            f"no optimal plan between {k} and {len(weights_q)} components: {log['warning']}"
        )
    return np.asarray(plan)


def fast_squared_distances(points: Floats, others: Floats) -> Floats:
    """Return the table of squared distances with errors relative to the points' norms; never below 0.

    For inner loops over points that lie around the origin.
    """
    table: Floats = points @ others.T
    table *= -2.0
    table += np.vecdot(points, points)[:, None]
    table += np.vecdot(others, others)
    return np.maximum(table, 0.0, out=table)


def barycentric_map(plan: Floats, weights: Floats, points: Floats) -> Floats:
    """Return the mean of the points to which a plan sends each row; 0 for rows without weight."""
    if weights.all() and np.count_nonzero(plan) == len(weights):  # one point for each row
        chosen: Floats = points[plan.argmax(axis=1)]
        return chosen
    sums: Floats = plan @ points
    return sums / np.where(weights > 0.0, weights, 1.0)[:, None]


def match_slots(slots: Floats, others: Sequence[Floats]) -> list[Integers]:
    """Return which point of each of the others goes with each slot, so that distances are smallest."""
    return [assignment(fast_squared_distances(slots, points)) for points in others]


def mw2_squared(P: Mixture, Q: Mixture) -> float:
    r"""Return the squared mixture-Wasserstein distance.

    .. math:: MW_2^2(P, Q) = \min_\omega \sum_{kl} \omega_{kl} W_2^2(P_k, Q_l)
        \qquad \text{(paper, eq. 8)}

    where ω runs over the plans whose marginals are the weights of P and Q. Labels play no part.

    Parameters
    ----------
    P, Q : Mixture
        With the same features.

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        If P or Q is no mixture, or their features differ.
    TransportError
        If no plan could be proved optimal.

    See Also
    --------
    transport_plan : the plan too.

    Examples
    --------
    >>> from baryflow import Mixture, mw2_squared
    >>> P = Mixture([0.5, 0.5], [[0.0], [4.0]], [[1.0], [1.0]])
    >>> Q = Mixture([0.5, 0.5], [[5.0], [0.0]], [[1.0], [1.0]])
    >>> mw2_squared(P, Q)
    0.5
    """
    return transport_plan(P, Q).cost


def smw2_squared(P: Mixture, Q: Mixture, label_cost: float | None = None) -> float:
    """Return the squared *supervised* mixture-Wasserstein distance between labelled mixtures.

    As :func:`mw2_squared`, with label_cost · ‖y_k − y_l‖² added to the cost of each pair.

    Parameters
    ----------
    P, Q : Mixture
        Labelled, with the same features and classes.
    label_cost : float, optional
        Without it, the largest squared distance between two components, which keeps classes apart.

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        If P or Q is no labelled mixture, features or classes differ, or `label_cost` is negative.
    TransportError
        If no plan could be proved optimal.

    Examples
    --------
    >>> from baryflow import Mixture, smw2_squared
    >>> P = Mixture([0.5, 0.5], [[0.0], [4.0]], [[1.0], [1.0]], labels=[[1, 0], [0, 1]])
    >>> smw2_squared(P, P.with_labels([[0, 1], [1, 0]]), label_cost=3.0)
    6.0
    """
    costs = w2_squared(P, Q)
    return _solve(P, Q, _with_labels(P, Q, costs, label_cost)).cost


def transport_plan(P: Mixture, Q: Mixture, label_cost: float | None = 0.0) -> Plan:
    """Find the optimal transport between the components of two mixtures.

    Its cost is :func:`mw2_squared`, or with a `label_cost` :func:`smw2_squared`.

    Parameters
    ----------
    P, Q : Mixture
        With the same features, and the same classes where labels count.
    label_cost : float, optional
        Cost of different labels; 0 leaves labels out. ``None`` stands for the largest squared distance
        between two components, which keeps classes apart.

    Returns
    -------
    Plan

    Raises
    ------
    InvalidInputError
        If P or Q is no mixture, their features differ, or labels count and do not fit.
    TransportError
        If no plan could be proved optimal.

    Examples
    --------
    >>> from baryflow import Mixture, transport_plan
    >>> P = Mixture([0.5, 0.5], [[0.0], [4.0]], [[1.0], [1.0]])
    >>> Q = Mixture([0.5, 0.5], [[5.0], [0.0]], [[1.0], [1.0]])
    >>> transport_plan(P, Q).coupling
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    costs = w2_squared(P, Q)
    if label_cost is None or label_cost != 0.0:
        costs = _with_labels(P, Q, costs, label_cost)
    return _solve(P, Q, costs)


def _with_labels(P: Mixture, Q: Mixture, costs: Floats, label_cost: float | None) -> Floats:
    if label_cost is None:
        label_cost = float(costs.max()) or 1.0  # where all components coincide only labels differ
    return costs + label_cost_table(P, Q, label_cost)


def _solve(P: Mixture, Q: Mixture, costs: Floats) -> Plan:
    coupling = plan_between(P.weights, Q.weights, costs)
    return Plan(float(np.vdot(coupling, costs)), coupling, costs)


def label_cost_table(P: Mixture, Q: Mixture, label_cost: float) -> Floats:
    """Return label_cost · ‖y_k − y_l‖² for every pair of components."""
    label_cost = as_real(label_cost, "label_cost", low=0.0)
    if P.labels is None or Q.labels is None or P.n_classes != Q.n_classes:
        raise InvalidInputError(
            f"expected two labelled mixtures with the same classes, got "
            f"{_describe_labels(P)} and {_describe_labels(Q)}; without labels use mw2_squared"
        )
    return label_cost * squared_distances(P.labels, Q.labels)


def _check_features(P: Mixture, Q: Mixture) -> None:
    for name, mixture in (("P", P), ("Q", Q)):
        if not isinstance(mixture, Mixture):
            raise InvalidInputError(f"{name} must be a Mixture, got {type(mixture).__name__}")
    if P.n_features != Q.n_features:
        raise InvalidInputError(
            f"expected two mixtures with the same features, got P with n_features={P.n_features} "
            f"and Q with n_features={Q.n_features}"
        )


def _describe_labels(mixture: Mixture) -> str:
    return "no labels" if mixture.labels is None else f"{mixture.n_classes} classes"
