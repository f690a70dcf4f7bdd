"""Optimal transport between the components of mixtures. The only caller of POT."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np

from baryflow.core.gaussian import squared_distances, w2_squared_table
from baryflow.core.mixture import Mixture
from baryflow.exceptions import InvalidInputError, TransportError
from baryflow.validation import Floats, Integers, as_real

#: Pivots allowed to the network simplex; far more than any problem here has needed.
_MAX_PIVOTS = 10_000_000


def w2_squared(P: Mixture, Q: Mixture | None = None) -> Floats:
    """Return the squared 2-Wasserstein distances between components, shape (K_P, K_Q).

    ``w2_squared(P)`` is the table of P with itself. A single Gaussian is a mixture of one component.
    The table is one matrix product, not a loop over pairs.

    .. math:: W_2^2 = ‖m_k − m_l‖² + ‖s_k − s_l‖²     (paper, eq. 6)

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


@overload
def mw2_squared(P: Mixture, Q: Mixture, *, return_plan: Literal[False] = ...) -> float: ...
@overload
def mw2_squared(P: Mixture, Q: Mixture, *, return_plan: Literal[True]) -> tuple[float, Floats]: ...
def mw2_squared(P: Mixture, Q: Mixture, *, return_plan: bool = False) -> float | tuple[float, Floats]:
    """Return the squared mixture-Wasserstein distance, and on request the plan between components.

    .. math:: MW_2^2(P, Q) = min_ω Σ_kl ω_kl W_2^2(P_k, Q_l)     (paper, eq. 8)

    where ω runs over the plans whose marginals are the weights of P and Q. Labels play no part.

    Examples
    --------
    >>> from baryflow import Mixture, mw2_squared
    >>> P = Mixture([0.5, 0.5], [[0.0], [4.0]], [[1.0], [1.0]])
    >>> Q = Mixture([0.5, 0.5], [[5.0], [0.0]], [[1.0], [1.0]])
    >>> mw2_squared(P, Q)
    0.5
    """
    costs = w2_squared(P, Q)
    return _solved(P, Q, costs, return_plan)


@overload
def smw2_squared(
    P: Mixture, Q: Mixture, label_cost: float | None = ..., *, return_plan: Literal[False] = ...
) -> float: ...
@overload
def smw2_squared(
    P: Mixture, Q: Mixture, label_cost: float | None = ..., *, return_plan: Literal[True]
) -> tuple[float, Floats]: ...
def smw2_squared(
    P: Mixture, Q: Mixture, label_cost: float | None = None, *, return_plan: bool = False
) -> float | tuple[float, Floats]:
    """Return the squared *supervised* mixture-Wasserstein distance between labelled mixtures.

    As :func:`mw2_squared`, with label_cost · ‖y_k − y_l‖² added to the cost of each pair. Without a
    `label_cost` it is the largest squared distance between two components, which keeps classes apart.

    Examples
    --------
    >>> from baryflow import Mixture, smw2_squared
    >>> P = Mixture([0.5, 0.5], [[0.0], [4.0]], [[1.0], [1.0]], labels=[[1, 0], [0, 1]])
    >>> smw2_squared(P, P.with_labels([[0, 1], [1, 0]]), label_cost=3.0)
    6.0
    """
    costs = w2_squared(P, Q)
    if label_cost is None:
        label_cost = float(costs.max()) or 1.0  # where all components coincide only labels differ
    return _solved(P, Q, costs + label_cost_table(P, Q, label_cost), return_plan)


def label_cost_table(P: Mixture, Q: Mixture, label_cost: float) -> Floats:
    """Return label_cost · ‖y_k − y_l‖² for every pair of components."""
    label_cost = as_real(label_cost, "label_cost", low=0.0)
    if P.labels is None or Q.labels is None or P.n_classes != Q.n_classes:
        raise InvalidInputError(
            f"expected two labelled mixtures with the same classes, got "
            f"{_describe_labels(P)} and {_describe_labels(Q)}; without labels use mw2_squared"
        )
    return label_cost * squared_distances(P.labels, Q.labels)


def _solved(P: Mixture, Q: Mixture, costs: Floats, return_plan: bool) -> float | tuple[float, Floats]:
    plan = plan_between(P.weights, Q.weights, costs)
    value = float(np.vdot(plan, costs))
    return (value, plan) if return_plan else value


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
