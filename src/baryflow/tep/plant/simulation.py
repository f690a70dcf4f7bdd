"""Simulate the benchmark: modes × faults × runs, in parallel, resumable; same seed, same bits.

A folder holds one simulation::

    manifest.json            every parameter, versions, and which runs tripped and were drawn again
    settled.bary             the plant and its controller, settled in every mode
    mode1/commissioning.bary some fault-free runs: what a new plant shows before anything happens
    mode1/run000.bary        one run of every fault: signals (n_faults, 600, 34), float32
    ...

A file appears only when it is complete. A simulation that was interrupted resumes where it stopped; one
that is finished can be extended by further runs and modes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from baryflow import container
from baryflow.exceptions import BaryflowError
from baryflow.tep.plant.manifest import close_manifest, open_manifest
from baryflow.tep.plant.plan import FIRST_COMMISSIONING, Plan
from baryflow.tep.plant.settling import read_settled, settle
from baryflow.tep.signals import KIND
from baryflow.tep.tables import MODES
from baryflow.tep.workers import in_parallel

if TYPE_CHECKING:
    from baryflow.tep.plant.model import Plant, Snapshot

#: A run that tripped is drawn again with another seed at most so often.
MAX_DRAWS = 20
_SETTLED = "settled.bary"


class Shard(NamedTuple):
    """One file to make; run −1 stands for the commissioning runs."""

    mode: int
    run: int

    def path(self, folder: Path) -> Path:
        """Return where the shard is kept."""
        name = "commissioning" if self.run < 0 else f"run{self.run:03d}"
        return folder / f"mode{self.mode}" / f"{name}.bary"


@dataclass(frozen=True)
class Redrawn:
    """A run that shut the plant down, and was drawn again with another seed."""

    mode: int
    fault: int
    run: int
    hours: float  # from the fault to the trip
    reason: str


@dataclass(frozen=True)
class Progress:
    """How far the simulation is."""

    done: int  # files there are
    total: int
    found: int  # of these, files that were there before
    redrawn: tuple[Redrawn, ...]
    settled: bool  # the plant is at rest in its modes, and files are being made


def simulate(
    folder: str | os.PathLike[str],
    plan: Plan | None = None,
    *,
    jobs: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Progress:
    """Make the files of `plan` that `folder` does not have yet.

    The plant runs in other processes only: this one stays free to hear an interruption, after which
    they end at once and what was finished is kept.

    Parameters
    ----------
    folder : path
        A new folder, or one that holds a part of the same simulation.
    plan : Plan, optional
        What to simulate; without it, the whole benchmark.
    jobs : int, optional
        Processes; without it, one for each core.
    progress : callable, optional
        Called with a ``Progress`` at the start, when the plant has settled and after every file.

    Returns
    -------
    Progress
        As last reported.

    Raises
    ------
    InvalidInputError
        If the folder holds another simulation.
    ModuleNotFoundError
        Without the extra ``tep``; before anything is written.
    BaryflowError
        If a fault shuts the plant down however often it is drawn, or a process was killed.
    """
    from baryflow.tep.plant import model  # noqa: F401 - says what is missing before anything is written

    plan, folder = plan or Plan(), Path(folder)
    tell = progress or (lambda _: None)
    partitions = [Shard(mode, -1) for mode in plan.modes if plan.commissioning]
    partitions += [Shard(mode, run) for run in range(plan.runs) for mode in plan.modes]
    container.sweep(folder)
    missing = [partition for partition in partitions if not partition.path(folder).is_file()]
    open_manifest(folder, plan, complete=not missing)
    for mode in plan.modes:
        (folder / f"mode{mode}").mkdir(exist_ok=True)
    found, rest = len(partitions) - len(missing), folder / _SETTLED
    state = Progress(found, len(partitions), found, (), settled=not missing or rest.is_file())
    tell(state)
    if not state.settled:
        with closing(in_parallel(_settle, [rest], jobs=1)) as results:
            list(results)
        state = dataclasses.replace(state, settled=True)
        tell(state)
    if missing:
        make, start = partial(_make, folder=folder, plan=plan), (read_settled(rest),)
        with closing(in_parallel(make, missing, jobs=jobs, start=_begin, arguments=start)) as results:
            for redrawn in results:
                state = dataclasses.replace(state, done=state.done + 1, redrawn=state.redrawn + redrawn)
                tell(state)
    close_manifest(folder, plan)
    return state


def draw(
    plant: Plant, begin: Snapshot, plan: Plan, mode: int, fault: int, run: int
) -> tuple[np.ndarray[Any, np.dtype[np.float32]], tuple[Redrawn, ...]]:
    """Return the signal of one run, and the draws before it that tripped."""
    redrawn: list[Redrawn] = []
    for attempt in range(MAX_DRAWS):
        course = plant.run(
            begin,
            MODES[mode],
            hours=plan.lead + plan.hours,
            seed=noise_seed(plan.seed, mode, fault, run, attempt),
            fault=fault,
            magnitude=plan.magnitudes.get((mode, fault), 1.0),
            onset=plan.lead,
            record_from=plan.lead,
            interval=plan.interval,
        )
        if course.trip is None:
            return course.signal.astype(np.float32), tuple(redrawn)
        redrawn.append(Redrawn(mode, fault, run, course.trip.time - plan.lead, course.trip.reason))
    raise BaryflowError(
        f"fault {fault} shut the plant down {MAX_DRAWS} times out of {MAX_DRAWS} in mode {mode} (last: "
        f"{redrawn[-1].reason}): lower its magnitude"
    )


def noise_seed(seed: int, mode: int, fault: int, run: int, attempt: int = 0) -> float:
    """Return the seed of a run's noise: 8 × odd, for which the model's generator computes exactly."""
    key = [seed, mode, fault, run] + ([attempt] if attempt else [])
    word = int(np.random.SeedSequence(key).generate_state(1)[0])
    return 8.0 * ((word >> 3) | 1)


# ------------------------------------------------------------------------------------- workers

_worker: dict[str, Any] = {}  # what a worker process keeps from one shard to the next


def _settle(path: Path) -> None:
    from baryflow.tep.plant.model import Plant

    settle(Plant(), path)


def _begin(settled: dict[int, Snapshot]) -> None:
    from baryflow.tep.plant.model import Plant, Snapshot

    _worker["plant"] = Plant()
    _worker["settled"] = {mode: Snapshot(*parts) for mode, parts in settled.items()}


def _make(partition: Shard, *, folder: Path, plan: Plan) -> tuple[Redrawn, ...]:
    """Simulate one shard and write it."""
    plant, begin = _worker["plant"], _worker["settled"][partition.mode]
    if partition.run < 0:
        cases = [(0, FIRST_COMMISSIONING + number) for number in range(plan.commissioning)]
    else:
        cases = [(fault, partition.run) for fault in plan.faults]
    drawn = [draw(plant, begin, plan, partition.mode, fault, run) for fault, run in cases]
    redrawn = tuple(trip for _, trips in drawn for trip in trips)
    values = {
        "mode": partition.mode,
        "cases": [list(case) for case in cases],
        "plan": plan.fixed,
        "redrawn": [dataclasses.asdict(trip) for trip in redrawn],
    }
    signals = np.stack([signal for signal, _ in drawn])
    container.write_bytes(partition.path(folder), container.to_bytes(KIND, values, {"signals": signals}))
    return redrawn
