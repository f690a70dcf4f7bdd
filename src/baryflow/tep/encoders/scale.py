"""The scale of a mode's signals, from its fault-free commissioning runs alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.exceptions import InvalidInputError
from baryflow.features.scale import FLOOR, Scale
from baryflow.features.scale import scales_of as scales_of_domains
from baryflow.tep.tables import VARIABLES

__all__ = ["FLOOR", "Scale", "check_commissioning", "scales_of"]


def scales_of(commissioning: dict[int, NDArray[np.float32]]) -> dict[Any, Scale]:
    """Return the scale of every mode from its fault-free runs, each (n_runs, n_times, 34)."""
    check_commissioning(commissioning)
    return scales_of_domains(commissioning)


def check_commissioning(commissioning: dict[int, NDArray[np.float32]]) -> None:
    """Refuse runs of another shape, or with gaps."""
    for mode, runs in commissioning.items():
        if runs.ndim != 3 or runs.shape[2] != len(VARIABLES) or not np.isfinite(runs).all():
            raise InvalidInputError(
                f"expected finite fault-free runs of shape (n_runs, n_times, {len(VARIABLES)}) "
                f"of mode {mode}, got {runs.shape}"
            )
