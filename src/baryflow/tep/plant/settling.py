"""The plant at rest in every mode: where all runs begin."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from baryflow import container
from baryflow.exceptions import BaryflowError
from baryflow.tep.tables import MODES, REACHED_FROM

if TYPE_CHECKING:
    from baryflow.tep.plant.model import Plant, Snapshot

KIND = "tep-settled"
#: Seed of the noise while the modes are approached and settled.
SEED = 197530840.0
#: Hours at the base case, from one mode to the next, and from the start of that to the snapshot.
HOLD, RAMP, SETTLE = 60.0, 60.0, 160.0


def load_settled() -> dict[int, Snapshot]:
    """Return the plant at rest in every mode, as :func:`settle` has brought it there."""
    from baryflow.tep.plant.model import Snapshot

    with as_file(files("baryflow.datasets") / "data" / "tep_settled.bary") as path:
        arrays = container.read(path).arrays
    return {mode: Snapshot(*(arrays[f"{name}{mode}"] for name in Snapshot._fields)) for mode in MODES}


def settle(plant: Plant, modes: Iterable[int] = tuple(MODES)) -> dict[int, Snapshot]:
    """Bring the plant to rest in some modes, and in those on the way to them."""
    from baryflow.tep.plant.model import base_case

    settled = {0: plant.run(base_case(), MODES[0], hours=HOLD, seed=SEED).end}

    def reach(mode: int) -> Snapshot:
        if mode not in settled:
            before = REACHED_FROM[mode]
            start = reach(before)
            course = plant.run(
                start, MODES[mode], ramp_from=MODES[before], ramp=RAMP, hours=SETTLE, seed=SEED
            )
            if course.trip is not None:
                raise BaryflowError(f"the plant tripped on its way to mode {mode}: {course.trip}")
            settled[mode] = course.end
        return settled[mode]

    for mode in modes:
        reach(mode)
    return settled
