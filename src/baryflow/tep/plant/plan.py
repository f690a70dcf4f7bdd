"""What to simulate: modes, faults, runs, hours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from baryflow.exceptions import InvalidInputError
from baryflow.tep.tables import FAULTS, MAGNITUDES, MODES
from baryflow.validation import as_count, as_real

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
