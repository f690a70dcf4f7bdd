"""Three curved clusters in the plane, the toy stream of the paper."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from baryflow.validation import (
    Floats,
    Integers,
    RandomState,
    as_choice,
    as_count,
    as_generator,
    as_real,
)

Order = Literal["ordered", "interleaved", "shuffled"]
ORDERS: tuple[Order, ...] = get_args(Order)

#: Centre, radius, first and last angle (in units of π) of each arc.
_ARCS = (((-1.6, 0.0), 1.5, 0.1, 1.0), ((1.3, 0.3), 1.5, 1.0, 2.0), ((0.2, 3.4), 1.6, 0.75, 2.1))


def make_crescents(
    n_per_cluster: int = 200,
    *,
    noise: float = 0.15,
    order: Order = "ordered",
    random_state: RandomState = None,
) -> tuple[Floats, Integers]:
    """Make three arcs in the plane, as a stream.

    Parameters
    ----------
    n_per_cluster : int, default=200
    noise : float, default=0.15
        Standard deviation across the arc.
    order : {"ordered", "interleaved", "shuffled"}
        ``"ordered"``: one cluster after the other, each along its arc, so that every batch shows a
        corner of the whole that never comes back. ``"interleaved"``: the clusters take turns, each still
        along its arc. ``"shuffled"``: in no order.
    random_state : int, Generator or None

    Returns
    -------
    X : array of shape (3 · n_per_cluster, 2)
    cluster : array of shape (3 · n_per_cluster,)

    Raises
    ------
    InvalidInputError
        If a parameter is out of its range, or the order is not known.

    Examples
    --------
    >>> from baryflow.datasets import make_crescents
    >>> X, cluster = make_crescents(order="interleaved", random_state=0)
    >>> X.shape, cluster[:6].tolist()
    ((600, 2), [0, 1, 2, 0, 1, 2])
    """
    n = as_count(n_per_cluster, "n_per_cluster")
    noise = as_real(noise, "noise", low=0.0)
    as_choice(order, "order", ORDERS)
    rng = as_generator(random_state)
    X = np.empty((len(_ARCS), n, 2))
    for rows, (centre, radius, first, last) in zip(X, _ARCS, strict=True):
        angle = np.pi * np.sort(rng.uniform(first, last, size=n))
        rows[:] = np.array(centre) + radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    X += noise * rng.standard_normal(X.shape)
    cluster = np.repeat(np.arange(len(_ARCS)), n)
    flat = X.reshape(-1, 2)
    if order == "interleaved":
        turn = np.arange(len(flat)).reshape(len(_ARCS), n).T.ravel()
    elif order == "shuffled":
        turn = rng.permutation(len(flat))
    else:
        turn = np.arange(len(flat))
    return flat[turn], cluster[turn]
