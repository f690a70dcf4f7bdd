"""Simulate the benchmark: modes × faults × runs, in parallel, resumable; same seed, same bits.

A folder holds one simulation::

    manifest.json            every parameter, versions, and which runs tripped and were drawn again
    settled.bary             the plant and its controller, settled in every mode
    mode1/commissioning.bary some fault-free runs: what a new plant shows before anything happens
    mode1/run000.bary        one run of every fault: signals (n_faults, 600, 34), float32
    ...

A file appears only when it is complete. A simulation that was interrupted goes on where it stopped; one
that is finished can be extended by further runs and modes.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from baryflow import container
from baryflow.datasets.tep.signals import KIND
from baryflow.datasets.tep.tables import FAULTS, MAGNITUDES, MODES, REACHED_FROM, VARIABLES
from baryflow.datasets.tep.workers import in_parallel
from baryflow.exceptions import BaryflowError, FileFormatError, InvalidInputError
from baryflow.validation import as_count, as_real

if TYPE_CHECKING:
    from baryflow.datasets.tep.plant import Plant, Snapshot

#: Seed of the noise while the modes are approached and settled.
SETTLING_SEED = 197530840.0
#: Hours at the base case, from one mode to the next, and from the start of that to the snapshot.
HOLD, RAMP, SETTLE = 60.0, 60.0, 160.0
#: The numbers of commissioning runs start here, above those of any other run.
FIRST_COMMISSIONING = 1000
#: A run that tripped is drawn again with another seed at most so often.
MAX_DRAWS = 20
_SETTLED, _MANIFEST = "settled.bary", "manifest.json"
#: What in a manifest says by which plant a simulation was made.
_PLANT = ("setpoints", "settling", "model")


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
            as_real(getattr(self, name), name, low=0.0 if name == "lead" else 0.0005)
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
    """Make the files of `plan` that `folder` does not have yet, `jobs` at a time (one a core)."""
    from baryflow.datasets.tep import plant  # says which extra is missing before anything is written

    plan, folder = plan or Plan(), Path(folder)
    tell = progress or (lambda _: None)
    shards = [Shard(mode, -1) for mode in plan.modes if plan.commissioning]
    shards += [Shard(mode, run) for run in range(plan.runs) for mode in plan.modes]
    missing = [shard for shard in shards if not shard.path(folder).is_file()]
    _open_manifest(folder, plan, complete=not missing)
    for mode in plan.modes:
        (folder / f"mode{mode}").mkdir(exist_ok=True)
    found = len(shards) - len(missing)
    state = Progress(found, len(shards), found, ())
    tell(state)
    if missing:
        settled = settle(plant.Plant(), folder / _SETTLED)
        make = partial(_make, folder=folder, plan=plan)
        for redrawn in in_parallel(make, missing, jobs=jobs, start=_start_worker, arguments=(settled,)):
            state = dataclasses.replace(state, done=state.done + 1, redrawn=state.redrawn + redrawn)
            tell(state)
    _close_manifest(folder, plan)
    return state


def settle(plant: Plant, path: Path) -> dict[int, Snapshot]:
    """Bring the plant to rest in every mode; keep the result at `path`, or take it from there."""
    from baryflow.datasets.tep.plant import Snapshot, base_case

    names = Snapshot._fields
    if path.is_file():
        kind, _, arrays = container.read(path)
        if kind != "tep-settled":
            raise FileFormatError(f"expected settled states of the plant in {path}, got kind {kind!r}")
        return {mode: Snapshot(*(arrays[f"{name}{mode}"] for name in names)) for mode in MODES}
    course = plant.run(base_case(), MODES[0], hours=HOLD, seed=SETTLING_SEED)
    settled = {0: course.end}
    for mode, before in REACHED_FROM.items():
        course = plant.run(
            settled[before],
            MODES[mode],
            ramp_from=MODES[before],
            ramp=RAMP,
            hours=SETTLE,
            seed=SETTLING_SEED,
        )
        if course.trip is not None:
            raise BaryflowError(f"the plant tripped on its way to mode {mode}: {course.trip}")
        settled[mode] = course.end
    arrays = {
        f"{name}{mode}": part
        for mode, parts in settled.items()
        for name, part in zip(names, parts, strict=True)
    }
    container.write(path, "tep-settled", {"seed": SETTLING_SEED}, arrays)
    return settled


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


def _start_worker(settled: dict[int, Snapshot]) -> None:
    from baryflow.datasets.tep.plant import Plant, Snapshot

    _worker["plant"] = Plant()
    _worker["settled"] = {mode: Snapshot(*parts) for mode, parts in settled.items()}


def _make(shard: Shard, *, folder: Path, plan: Plan) -> tuple[Redrawn, ...]:
    """Simulate one shard and write it."""
    plant, begin = _worker["plant"], _worker["settled"][shard.mode]
    if shard.run < 0:
        cases = [(0, FIRST_COMMISSIONING + number) for number in range(plan.commissioning)]
    else:
        cases = [(fault, shard.run) for fault in plan.faults]
    drawn = [draw(plant, begin, plan, shard.mode, fault, run) for fault, run in cases]
    redrawn = tuple(trip for _, trips in drawn for trip in trips)
    values = {
        "mode": shard.mode,
        "cases": [list(case) for case in cases],
        "plan": plan.fixed,
        "redrawn": [dataclasses.asdict(trip) for trip in redrawn],
    }
    signals = np.stack([signal for signal, _ in drawn])
    container.write(shard.path(folder), KIND, values, {"signals": signals})
    return redrawn


# ------------------------------------------------------------------------------------ manifest


def _open_manifest(folder: Path, plan: Plan, *, complete: bool) -> None:
    """Make sure that the folder is new or holds a simulation of the same plan by the same plant."""
    if (folder / _MANIFEST).is_file():
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
    shards = sorted(folder.glob("mode[1-6]/*.bary"))
    redrawn = [trip for shard in shards for trip in container.read(shard)[1]["redrawn"]]
    held: dict[str, int] = {}
    for shard in shards:
        if shard.stem != "commissioning":
            held[shard.parent.name] = held.get(shard.parent.name, 0) + 1
    _write_manifest(folder, plan, {"complete": True, "runs": held, "redrawn": redrawn})


def _write_manifest(folder: Path, plan: Plan, content: dict[str, Any]) -> None:
    text = json.dumps(_manifest(plan, content), indent=1, ensure_ascii=False) + "\n"
    container.write_bytes(folder / _MANIFEST, text.encode())


def _manifest(plan: Plan, content: dict[str, Any]) -> dict[str, Any]:
    from baryflow.datasets.tep.control import STEP
    from baryflow.datasets.tep.plant import MODEL_FLAG

    return {
        "what": "Tennessee Eastman process, closed loop, simulated",
        "plan": plan.fixed,
        **content,
        "variables": [f"{variable.name} ({variable.unit})" for variable in VARIABLES],
        "classes": {str(fault): FAULTS[fault] for fault in plan.faults},
        "setpoints": {str(mode): dataclasses.asdict(MODES[mode]) for mode in MODES},
        "settling": {
            "seed": SETTLING_SEED,
            "hold_hours": HOLD,
            "ramp_hours": RAMP,
            "settle_hours": SETTLE,
        },
        "model": {"step_hours": STEP, "flag": MODEL_FLAG, "integrator": "Euler"},
        "versions": {name: version(name) for name in ("baryflow", "tep-studio", "numba", "numpy")},
    }


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the manifest of a simulation."""
    path = Path(folder) / _MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"no simulation in {Path(folder)}: there is no {_MANIFEST}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        manifest["plan"]["faults"]
    except (ValueError, TypeError, KeyError) as error:
        raise FileFormatError(f"{path} is not the manifest of a simulation: {error!r}") from error
    return dict(manifest)


def _check_choice(numbers: tuple[int, ...], name: str, low: int, high: int) -> None:
    if not numbers or len(set(numbers)) < len(numbers) or not set(numbers) <= set(range(low, high + 1)):
        raise InvalidInputError(f"{name} must be different numbers from {low} to {high}, got {numbers}")
