"""Make the example files: five pumps of one type, four with labelled histories, one without.

Every pump has its own operating point, its own sensors (gain and offset), its own mounting, and its own
faults: some often, some rarely. Run it from anywhere; the files are written beside it, always the same::

    python examples/make_machines.py                # what is here
    python examples/make_machines.py 1 --to other/  # five other pumps
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

SEED = 0
ROWS = 900
PUMPS = ("pump_a", "pump_b", "pump_c", "pump_d", "pump_e")
#: This one was exported from a historian by an office program; that one has no labels.
EXPORTED, UNLABELLED = "pump_d", "pump_e"
CONDITIONS = ("normal", "cavitation", "bearing wear", "misalignment", "clogged filter", "seal leak")
#: Shares of the conditions in a fleet; every pump's own are drawn around them.
USUAL = (0.40, 0.12, 0.12, 0.12, 0.12, 0.12)
BEGINS = datetime(2024, 3, 4)  # by the clock on the wall, as in the files
STEP = timedelta(hours=2)
#: What an export writes where there is no value, and how often.
NO_VALUE = {"Bad": 0.5, "": 0.3, "I/O Timeout": 0.1, "No Data": 0.1}


@dataclass(frozen=True)
class Sensor:
    """A column: name, unit, decimals, noise, and how far offsets and gains of such sensors are apart."""

    name: str
    unit: str
    decimals: int
    noise: float
    offset: float
    gain: float


SENSORS = (
    Sensor("speed_rpm", "rpm", 0, 2.0, 2.5, 0.001),
    Sensor("flow_m3_h", "m³/h", 1, 1.0, 0.5, 0.01),
    Sensor("suction_pressure_bar", "bar", 3, 0.04, 0.02, 0.012),
    Sensor("discharge_pressure_bar", "bar", 2, 0.07, 0.03, 0.006),
    Sensor("motor_current_A", "A", 1, 0.5, 0.25, 0.006),
    Sensor("winding_temp_C", "°C", 1, 0.7, 0.5, 0.006),
    Sensor("bearing_temp_DE_C", "°C", 1, 0.9, 0.6, 0.006),
    Sensor("bearing_temp_NDE_C", "°C", 1, 0.9, 0.6, 0.006),
    Sensor("vibration_DE_mm_s", "mm/s", 2, 0.21, 0.05, 0.05),
    Sensor("vibration_NDE_mm_s", "mm/s", 2, 0.20, 0.05, 0.05),
    Sensor("vibration_axial_mm_s", "mm/s", 2, 0.17, 0.05, 0.05),
    Sensor("seal_temp_C", "°C", 1, 1.0, 0.6, 0.006),
)


@dataclass(frozen=True)
class Pump:
    """What one pump is like: where it runs, how it stands, and what its sensors say too much."""

    speed: float  # rpm
    flow: float  # m³/h
    suction: float  # bar
    current: float  # A
    ambient: float  # °C
    mounting: float  # how strongly it shakes
    gains: np.ndarray
    offsets: np.ndarray
    shares: np.ndarray  # of the conditions

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Pump:
        """Draw one pump of the fleet."""
        return cls(
            speed=1480.0 * rng.normal(1.0, 0.002),
            flow=120.0 * rng.normal(1.0, 0.02),
            suction=1.6 + rng.normal(0.0, 0.04),
            current=62.0 * rng.normal(1.0, 0.013),
            ambient=21.0 + rng.normal(0.0, 1.3),
            mounting=float(np.exp(rng.normal(0.0, 0.08))),
            gains=np.array([rng.normal(1.0, sensor.gain) for sensor in SENSORS]),
            offsets=np.array([rng.normal(0.0, sensor.offset) for sensor in SENSORS]),
            shares=rng.dirichlet(12.0 * np.array(USUAL)) * 0.8 + 0.2 * np.array(USUAL),
        )


def episodes(pump: Pump, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the condition of every row and how severe it is: faults come, grow, are repaired."""
    conditions: list[int] = []
    severity: list[float] = []
    left = np.maximum(np.round(pump.shares * ROWS), 15.0)
    while len(conditions) < ROWS:
        number = int(rng.choice(len(CONDITIONS), p=left / left.sum())) if conditions else 0
        length = int(min(rng.integers(8, 25), max(left[number], 4)))
        left[number] = max(left[number] - length, 0.01)
        conditions += [number] * length
        first = rng.uniform(0.35, 0.8)
        severity += np.linspace(first, first + rng.uniform(0.1, 0.5), length).tolist()
    return np.array(conditions[:ROWS]), np.array(severity[:ROWS])


def wander(rng: np.random.Generator, std: float, memory: float) -> np.ndarray:
    """Return something that goes up and down slowly."""
    steps = rng.normal(0.0, std * np.sqrt(1.0 - memory**2), ROWS)
    steps[0] = rng.normal(0.0, std)
    for row in range(1, ROWS):
        steps[row] += memory * steps[row - 1]
    return steps


def measure(
    pump: Pump, conditions: np.ndarray, severity: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return what the sensors say, shape (rows, sensors)."""
    hours = np.arange(ROWS) * STEP.total_seconds() / 3600.0
    day = np.sin(2.0 * np.pi * (hours - 9.0) / 24.0)
    load = 1.0 + 0.03 * day + wander(rng, 0.035, 0.9)
    ambient = pump.ambient + 2.0 * day + wander(rng, 1.2, 0.97)
    _, cavitation, wear, misalignment, clogging, leak = (
        np.where(conditions == number, severity, 0.0) for number in range(len(CONDITIONS))
    )
    turning = pump.speed / 1480.0 * (1.0 - 0.008 * (load - 1.0))
    flow = pump.flow * load * (1.0 - 0.06 * cavitation - 0.08 * clogging - 0.03 * leak)
    suction = pump.suction - 0.12 * load**2 - 0.16 * cavitation - 0.28 * clogging
    head = 4.2 * turning**2 * (1.25 - 0.25 * load**2) - 0.30 * cavitation - 0.18 * leak
    effort = 0.4 + 0.6 * load - 0.03 * cavitation - 0.035 * clogging + 0.02 * misalignment + 0.01 * wear
    shaking = pump.mounting * (1.0 + 0.5 * (load - 1.0))
    truth = (
        1480.0 * turning,
        flow,
        suction,
        suction + head,
        pump.current * effort,
        ambient + 34.0 * effort**2 + 1.5 * misalignment,
        ambient + 24.0 + 9.0 * load + 6.5 * wear + 3.0 * misalignment,
        ambient + 20.0 + 8.0 * load + 1.0 * wear + 3.0 * misalignment,
        shaking * (1.9 + 0.75 * cavitation + 0.95 * wear + 0.35 * misalignment),
        shaking * (1.7 + 0.70 * cavitation + 0.30 * wear + 0.35 * misalignment),
        shaking * (1.1 + 0.25 * cavitation + 0.10 * wear + 0.75 * misalignment),
        ambient + 17.0 + 5.0 * load + 5.0 * leak + 1.0 * cavitation,
    )
    noise = rng.normal(size=(ROWS, len(SENSORS))) * [sensor.noise for sensor in SENSORS]
    return np.asarray(pump.gains * np.column_stack(truth) + pump.offsets + noise)


def make(seed: int = SEED) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return readings and conditions (numbers) of every pump."""
    fleet = {}
    for name, rng in zip(PUMPS, np.random.default_rng(seed).spawn(len(PUMPS)), strict=True):
        pump = Pump.draw(rng)
        conditions, severity = episodes(pump, rng)
        fleet[name] = measure(pump, conditions, severity, rng), conditions
    return fleet


# -- files -------------------------------------------------------------------------------------------


def rows_of(readings: np.ndarray) -> list[list[str]]:
    """Return readings as people write them."""
    return [
        [f"{value:.{sensor.decimals}f}" for value, sensor in zip(row, SENSORS, strict=True)]
        for row in readings.tolist()
    ]


def stamps() -> list[datetime]:
    """Return the time of every row."""
    return [BEGINS + row * STEP for row in range(ROWS)]


def shift_of(stamp: datetime) -> str:
    """Return who was on duty."""
    return ("night", "early", "late")[stamp.hour // 8]


def csv_lines(readings: np.ndarray, labels: Iterable[str] | None) -> list[str]:
    """Return an ordinary file with commas."""
    head = ["time", *(sensor.name for sensor in SENSORS), "shift"]
    body = [
        [stamp.isoformat(timespec="seconds"), *cells, shift_of(stamp)]
        for stamp, cells in zip(stamps(), rows_of(readings), strict=True)
    ]
    if labels is not None:
        head.append("condition")
        body = [[*line, label] for line, label in zip(body, labels, strict=True)]
    return [",".join(line) for line in (head, *body)]


def export_lines(readings: np.ndarray, labels: Iterable[str], rng: np.random.Generator) -> list[str]:
    """Return a historian's export: semicolons, decimal commas, a row of units, words in cells."""
    names, units = [s.name for s in SENSORS], [s.unit for s in SENSORS]
    lines = [["time", *names, "shift", "condition"], ["", *units, "", ""]]
    for stamp, cells, label in zip(stamps(), rows_of(readings), labels, strict=True):
        shown = [cell.replace(".", ",") for cell in cells]
        for number in np.flatnonzero(rng.random(len(shown)) < 0.012):
            shown[number] = str(rng.choice(list(NO_VALUE), p=list(NO_VALUE.values())))
        lines.append([stamp.strftime("%d.%m.%Y %H:%M:%S"), *shown, shift_of(stamp), label])
    return [";".join(line) for line in lines]


def write(folder: Path, seed: int = SEED) -> list[Path]:
    """Write all files; return where."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, (readings, numbers) in make(seed).items():
        labels = [CONDITIONS[number] for number in numbers]
        texts = {}
        if name == EXPORTED:
            lines = export_lines(readings, labels, np.random.default_rng([seed, 1]))
            texts[f"{name}.csv"] = "\ufeff" + "".join(f"{line}\r\n" for line in lines)
        else:
            told = None if name == UNLABELLED else labels
            texts[f"{name}.csv"] = "".join(f"{line}\n" for line in csv_lines(readings, told))
        if name == UNLABELLED:
            answers = zip(stamps(), labels, strict=True)
            lines = ["time,condition", *(f"{stamp.isoformat()},{label}" for stamp, label in answers)]
            texts[f"{name}_labels.csv"] = "".join(f"{line}\n" for line in lines)
        for file, text in texts.items():
            (folder / file).write_bytes(text.encode())
            written.append(folder / file)
    return written


def main() -> None:
    """Write the files, here or elsewhere."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", nargs="?", type=int, default=SEED)
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "pumps")
    arguments = parser.parse_args()
    for path in write(arguments.to, arguments.seed):
        print(path)


if __name__ == "__main__":
    main()
