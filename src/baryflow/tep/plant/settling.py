"""The plant at rest in every mode: where all runs begin."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from baryflow import container
from baryflow.exceptions import BaryflowError, FileFormatError
from baryflow.tep.tables import MODES, REACHED_FROM

if TYPE_CHECKING:
    from baryflow.tep.plant.model import Plant, Snapshot

KIND = "tep-settled"
#: Seed of the noise while the modes are approached and settled.
SEED = 197530840.0
#: Hours at the base case, from one mode to the next, and from the start of that to the snapshot.
HOLD, RAMP, SETTLE = 60.0, 60.0, 160.0


def settle(plant: Plant, path: Path) -> dict[int, Snapshot]:
    """Bring the plant to rest in every mode, and keep the result at `path`."""
    from baryflow.tep.plant.model import base_case

    course = plant.run(base_case(), MODES[0], hours=HOLD, seed=SEED)
    settled = {0: course.end}
    for mode, before in REACHED_FROM.items():
        course = plant.run(
            settled[before],
            MODES[mode],
            ramp_from=MODES[before],
            ramp=RAMP,
            hours=SETTLE,
            seed=SEED,
        )
        if course.trip is not None:
            raise BaryflowError(f"the plant tripped on its way to mode {mode}: {course.trip}")
        settled[mode] = course.end
    arrays = {
        f"{name}{mode}": part
        for mode, parts in settled.items()
        for name, part in zip(parts._fields, parts, strict=True)
    }
    container.write(path, KIND, {"seed": SEED}, arrays)
    return settled


def read_settled(path: Path) -> dict[int, Snapshot]:
    """Return what :func:`settle` kept."""
    from baryflow.tep.plant.model import Snapshot

    held = container.read(path)
    wanted = {f"{name}{mode}" for name in Snapshot._fields for mode in MODES}
    if held.kind != KIND or not wanted <= set(held.arrays):
        raise FileFormatError(
            f"{path} does not hold the settled states of the plant: remove it, and they are made again"
        )
    return {
        mode: Snapshot(*(held.arrays[f"{name}{mode}"] for name in Snapshot._fields)) for mode in MODES
    }
