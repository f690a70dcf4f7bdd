"""Simulate the benchmark: modes × faults × runs, in parallel, resumable; same seed, same bits.

A folder holds one simulation::

    manifest.json            every parameter, versions, and which runs tripped and were drawn again
    mode1/commissioning.bary some fault-free runs: what a new plant shows before anything happens
    mode1/run000.bary        one run of every fault: signals (n_faults, 600, 34), float32
    ...

A file appears only when it is complete. A simulation that was interrupted resumes where it stopped; one
that is finished can be extended by further runs and modes.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from baryflow import container
from baryflow.exceptions import BaryflowError, InvalidInputError
from baryflow.tep.plant import settling
from baryflow.tep.plant.settling import load_settled
from baryflow.tep.signals import KIND, MANIFEST, read_manifest
from baryflow.tep.tables import FAULTS, MAGNITUDES, MODES, VARIABLES
from baryflow.tep.workers import in_parallel
from baryflow.validation import as_count, as_real

if TYPE_CHECKING:
    from baryflow.tep.plant.model import Plant, Snapshot

#: A run that tripped is drawn again with another seed at most so often.
MAX_DRAWS = 20
#: The numbers of commissioning runs start here, above those of any other run.
FIRST_COMMISSIONING = 1000
#: Hours of a run: more than a year would not fit into memory.
LONGEST = 10_000.0


@dataclass(frozen=True)
class Plan:
    """What to simulate. Runs and modes of a folder can be extended later, the rest is fixed."""

    modes: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    runs: int = 50
    faults: tuple[int, ...] = tuple(range(len(FAULTS)))
    seed: int = 2024
    lead: float = 5.0  # h of undisturbed operation between the snapshot and the fault, not recorded
    hours: float = 30.0  # h recorded from the fault on
    interval: float = 0.05  # h between two rows: 3 minutes
    commissioning: int = 5  # fault-free runs of each mode, beside class 0
    magnitudes: Mapping[tuple[int, int], float] = field(default_factory=lambda: dict(MAGNITUDES))

    def __post_init__(self) -> None:
        _check_choice(self.modes, "modes", 1, max(MODES))
        _check_choice(self.faults, "faults", 0, len(FAULTS) - 1)
        as_count(self.runs, "runs", minimum=1)
        as_count(self.seed, "seed", minimum=0)
        as_count(self.commissioning, "commissioning", minimum=0)
        if self.runs > FIRST_COMMISSIONING:
            raise InvalidInputError(
                f"expected runs to be at most {FIRST_COMMISSIONING}, got {self.runs}"
            )
        for name in ("lead", "hours", "interval"):
            as_real(getattr(self, name), name, low=0.0 if name == "lead" else 0.0005, high=LONGEST)
        for (mode, fault), size in self.magnitudes.items():
            if mode not in MODES or not 1 <= fault < len(FAULTS) or not 0 < size <= 1:
                raise InvalidInputError(
                    "expected magnitudes to map (mode, fault) to a share in (0, 1], "
                    f"got {mode, fault}: {size}"
                )

    @property
    def fixed(self) -> dict[str, Any]:
        """What all files of a folder have in common."""
        return {
            "faults": list(self.faults),
            "seed": self.seed,
            "lead_hours": self.lead,
            "recorded_hours": self.hours,
            "interval_hours": self.interval,
            "commissioning_runs": self.commissioning,
            "magnitudes": {
                f"{mode}:{fault}": size for (mode, fault), size in sorted(self.magnitudes.items())
            },
        }


def _check_choice(numbers: tuple[int, ...], name: str, low: int, high: int) -> None:
    if not numbers or len(set(numbers)) < len(numbers) or not set(numbers) <= set(range(low, high + 1)):
        raise InvalidInputError(f"{name} must be different numbers from {low} to {high}, got {numbers}")


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
        Called with a ``Progress`` at the start and after every file.

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
    _open_manifest(folder, plan, complete=not missing)
    for mode in plan.modes:
        (folder / f"mode{mode}").mkdir(exist_ok=True)
    found = len(partitions) - len(missing)
    state = Progress(found, len(partitions), found, ())
    tell(state)
    if missing:
        make = partial(_make, folder=folder, plan=plan)
        with closing(in_parallel(make, missing, jobs=jobs, start=_begin)) as results:
            for redrawn in results:
                state = dataclasses.replace(state, done=state.done + 1, redrawn=state.redrawn + redrawn)
                tell(state)
    _close_manifest(folder, plan)
    return state


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

    return draw(Simulator(), load_settled()[mode], plan, mode, fault, 0)[0]


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


def _begin() -> None:
    from baryflow.tep.plant.model import Plant

    _worker["plant"], _worker["settled"] = Plant(), load_settled()


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


# ------------------------------------------------------------------------------------ manifest

#: What in a manifest says by which plant a simulation was made.
_PLANT = ("setpoints", "settling", "model")


def _open_manifest(folder: Path, plan: Plan, *, complete: bool) -> None:
    """Make sure that the folder is new or holds a simulation of the same plan by the same plant."""
    if (folder / MANIFEST).is_file():
        there, here = read_manifest(folder), _manifest(plan, {})
        held = there["plan"] | {name: there.get(name) for name in _PLANT}
        asked = plan.fixed | {name: here[name] for name in _PLANT}
        differ = [name for name, value in asked.items() if held.get(name) != value]
        if differ:
            was, wanted = ({name: one.get(name) for name in differ} for one in (held, asked))
            raise InvalidInputError(
                f"{folder} holds another simulation: it has {was}, asked for is {wanted}; "
                "choose another folder"
            )
    folder.mkdir(parents=True, exist_ok=True)
    if not complete:
        _write_manifest(folder, plan, {"complete": False})


def _close_manifest(folder: Path, plan: Plan) -> None:
    """Write down what the folder now holds, and every run that was drawn again."""
    partitions = sorted(folder.glob("mode[1-6]/*.bary"))
    redrawn = [trip for partition in partitions for trip in container.read(partition).values["redrawn"]]
    held: dict[str, int] = {}
    for partition in partitions:
        if partition.stem != "commissioning":
            held[partition.parent.name] = held.get(partition.parent.name, 0) + 1
    _write_manifest(folder, plan, {"complete": True, "runs": held, "redrawn": redrawn})


def _write_manifest(folder: Path, plan: Plan, content: dict[str, Any]) -> None:
    text = json.dumps(_manifest(plan, content), indent=1, ensure_ascii=False) + "\n"
    container.write_bytes(folder / MANIFEST, text.encode())


def _manifest(plan: Plan, content: dict[str, Any]) -> dict[str, Any]:
    from baryflow.tep.plant.control import STEP
    from baryflow.tep.plant.model import MODEL_FLAG

    return {
        "what": "Tennessee Eastman process, closed loop, simulated",
        "plan": plan.fixed,
        **content,
        "variables": [f"{variable.name} ({variable.unit})" for variable in VARIABLES],
        "classes": {str(fault): FAULTS[fault] for fault in plan.faults},
        "setpoints": {str(mode): dataclasses.asdict(MODES[mode]) for mode in MODES},
        "settling": {
            "seed": settling.SEED,
            "hold_hours": settling.HOLD,
            "ramp_hours": settling.RAMP,
            "settle_hours": settling.SETTLE,
        },
        "model": {"step_hours": STEP, "flag": MODEL_FLAG, "integrator": "Euler"},
        "versions": {name: version(name) for name in ("baryflow", "tep-studio", "numba", "numpy")},
    }
