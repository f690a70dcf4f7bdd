"""What a folder says of itself: by which plan, and by which plant, its signals were made."""

from __future__ import annotations

import dataclasses
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from baryflow import container
from baryflow.exceptions import InvalidInputError
from baryflow.tep.plant import settling
from baryflow.tep.plant.plan import Plan
from baryflow.tep.signals import MANIFEST, read_manifest
from baryflow.tep.tables import FAULTS, MODES, VARIABLES

#: What in a manifest says by which plant a simulation was made.
_PLANT = ("setpoints", "settling", "model")


def open_manifest(folder: Path, plan: Plan, *, complete: bool) -> None:
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


def close_manifest(folder: Path, plan: Plan) -> None:
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
