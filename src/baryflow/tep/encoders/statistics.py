"""Scale and statistics of a run: those of :mod:`baryflow.features`, at scales that suit a fault."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.exceptions import InvalidInputError
from baryflow.features import normal
from baryflow.features.statistics import Layout, Scale
from baryflow.features.statistics import describe as describe_windows
from baryflow.tep.tables import VARIABLES

LENGTH = 600
#: Rows of 3 minutes. A fault shows differently in the first hour, the first hours and later on.
LAYOUT = Layout(
    length=LENGTH,
    levels=tuple(pairwise((0, 20, 60, 120, 200, 300, 400, 500, 600))),
    spreads=tuple(pairwise((0, 60, 200, 400, 600))),
    steps=(1, 4, 16, 64),
    lags=(1, 2, 5, 10, 20, 50),
    bands=tuple(pairwise((1, 2, 3, 5, 8, 13, 21, 36, 60, 100, 170, 301))),
    scales=(2, 4, 8, 16, 32, 64),
)


def describe(X: NDArray[np.float32], scale: Scale) -> NDArray[np.float32]:
    """Return the statistics of signals (n, 600, n_variables) as (n, n_statistics)."""
    if X.ndim != 3 or X.shape[1] != LENGTH or X.shape[2] != len(scale.median):
        raise InvalidInputError(
            f"expected signals of shape (n_runs, {LENGTH}, {len(scale.median)}), got {X.shape}"
        )
    if not np.isfinite(X).all():
        raise InvalidInputError(
            "signals hold missing or infinite values: fill them before they are encoded"
        )
    return describe_windows(X, scale, LAYOUT)


def scales_of(commissioning: dict[int, NDArray[np.float32]]) -> dict[Any, Scale]:
    """Return the scale of every mode from its fault-free runs, each (n_runs, n_times, 34)."""
    check_commissioning(commissioning)
    return normal.scales_of(commissioning)


def check_commissioning(commissioning: dict[int, NDArray[np.float32]]) -> None:
    """Refuse runs of another shape, or with gaps."""
    for mode, runs in commissioning.items():
        if runs.ndim != 3 or runs.shape[2] != len(VARIABLES) or not np.isfinite(runs).all():
            raise InvalidInputError(
                f"expected finite fault-free runs of shape (n_runs, n_times, {len(VARIABLES)}) "
                f"of mode {mode}, got {runs.shape}"
            )
