"""One run of the plant from beginning to end, for those who want to see it run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from baryflow.exceptions import BaryflowError
from baryflow.tep.plant.plan import Plan
from baryflow.tep.plant.settling import HOLD, RAMP, SEED, SETTLE
from baryflow.tep.plant.simulation import draw
from baryflow.tep.tables import MODES, REACHED_FROM

if TYPE_CHECKING:
    from baryflow.tep.plant.model import Plant, Snapshot


def play(
    mode: int = 1, fault: int = 0, *, hours: float = 30.0, seed: int = 2024
) -> NDArray[np.floating[Any]]:
    """Run the plant, and return what it measures every three minutes.

    Parameters
    ----------
    mode : int, default=1
        1 to 6.
    fault : int, default=0
        From the first row on; 0 is normal operation.
    hours : float, default=30.0
    seed : int, default=2024

    Returns
    -------
    float32 array of shape (n_times, 34)
        As the first run of this mode and fault in a folder that :func:`baryflow.tep.simulate` makes with
        the same seed, bit for bit.

    Raises
    ------
    InvalidInputError
        If there is no such mode or fault.
    ModuleNotFoundError
        Without the extra ``tep``.
    BaryflowError
        If the fault shuts the plant down however often it is drawn.
    """
    plan = Plan(modes=(mode,), faults=(fault,), hours=hours, seed=seed, runs=1)
    from baryflow.tep.plant.model import Plant as Simulator

    plant = Simulator()
    return draw(plant, settle_in(plant, mode), plan, mode, fault, 0)[0]


def settle_in(plant: Plant, mode: int) -> Snapshot:
    """Return the plant at rest in one mode, as :func:`settle` brings it there."""
    from baryflow.tep.plant.model import base_case

    way = [mode]
    while way[-1] in REACHED_FROM:
        way.append(REACHED_FROM[way[-1]])
    rest = plant.run(base_case(), MODES[0], hours=HOLD, seed=SEED).end
    for before, after in zip(way[:0:-1], way[-2::-1], strict=True):
        course = plant.run(
            rest, MODES[after], ramp_from=MODES[before], ramp=RAMP, hours=SETTLE, seed=SEED
        )
        if course.trip is not None:
            raise BaryflowError(f"the plant tripped on its way to mode {after}: {course.trip}")
        rest = course.end
    return rest
