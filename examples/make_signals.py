"""Make the example signals: five fans of cooling towers, four with labelled histories, one without.

A row is a moment, ten of them a second: how the gearbox shakes, what the motor takes and how warm
it is. What is wrong with a fan shows in how these go up and down, not in how high they are; and every
fan turns at its own speed, shakes in its own way, has its own sensors. The files are always the same::

    python examples/make_signals.py                # what is here
    python examples/make_signals.py 1 --to other/  # five other fans
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

SEED = 0
ROWS = 6000
RATE = 10.0  # rows a second
FANS = ("fan_a", "fan_b", "fan_c", "fan_d", "fan_e")
UNLABELLED = "fan_e"
CONDITIONS = ("normal", "unbalance", "loose belt")
CHANNELS = {"acceleration_g": 4, "current_A": 2, "gearbox_temp_C": 1}  # name: decimals
#: Rows for which a condition lasts, at least and at most.
LASTS = (300, 600)
#: One reading in this many never arrived.
GAPS = 250


@dataclass(frozen=True)
class Fan:
    """What one fan is like."""

    turns: float  # a second
    shakes: float  # how strongly it is felt at the sensor
    roughness: float  # of the shaking that has no rhythm
    current: float  # A
    swing: float  # of the current with every turn
    warm: float  # °C
    offset: float  # of the sensor, in g

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Fan:
        """Draw one fan."""
        return cls(
            turns=2.0 * float(np.exp(rng.normal(0.0, 0.08))),
            shakes=float(np.exp(rng.normal(0.0, 0.25))),
            roughness=float(np.exp(rng.normal(0.0, 0.15))),
            current=38.0 * float(np.exp(rng.normal(0.0, 0.15))),
            swing=float(np.exp(rng.normal(0.0, 0.2))),
            warm=52.0 + rng.normal(0.0, 5.0),
            offset=rng.normal(0.0, 0.03),
        )


def episodes(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the condition of every row, and how bad it is."""
    conditions: list[int] = []
    badness: list[float] = []
    while len(conditions) < ROWS:
        # A fan is normal in between.
        number = int(rng.integers(1, len(CONDITIONS))) if conditions and not conditions[-1] else 0
        length = int(rng.integers(*LASTS))
        conditions += [number] * length
        badness += [rng.uniform(0.8, 1.4)] * length
    return np.array(conditions[:ROWS]), np.array(badness[:ROWS])


def slow(rng: np.random.Generator, std: float, memory: float) -> np.ndarray:
    """Return noise that goes up and down slowly."""
    steps = rng.normal(0.0, std * np.sqrt(1.0 - memory**2), ROWS)
    return np.asarray(lfilter([1.0], [1.0, -memory], steps))


def measure(
    fan: Fan, conditions: np.ndarray, badness: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return what the sensors say, shape (rows, channels)."""
    _, unbalance, slack = (np.where(conditions == n, badness, 0.0) for n in range(len(CONDITIONS)))
    wind = slow(rng, 1.0, 0.995)
    # A belt that slips lets the fan hunt for its speed.
    hunting = slow(rng, 1.0, 0.8)
    speed = fan.turns * (1.0 + 0.01 * wind + 0.08 * slack * hunting)
    turn = 2.0 * np.pi * np.cumsum(speed) / RATE
    # Whatever is wrong, the shaking as a whole is about as strong: only its kind changes.
    rhythm = 0.4 + 0.6 * unbalance
    rough = fan.roughness * np.sqrt(np.maximum(1.2 - 0.5 * rhythm**2, 0.2))
    shaking = rhythm * np.sin(turn) + rough * slow(rng, 0.8, 0.3) + 0.3 * slack * hunting
    load = 1.0 + 0.05 * wind
    drawn = fan.swing * (0.25 * np.sin(turn + 0.8) + 0.5 * slow(rng, 1.0, 0.6) - 0.7 * slack * hunting)
    signals = (
        fan.offset + 0.08 * fan.shakes * shaking,
        fan.current * load + drawn,
        fan.warm + 2.0 * wind + slow(rng, 1.5, 0.999),
    )
    return np.column_stack(signals)


def make(seed: int = SEED) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return signals and conditions (numbers) of every fan."""
    fleet = {}
    for name, rng in zip(FANS, np.random.default_rng(seed).spawn(len(FANS)), strict=True):
        fan = Fan.draw(rng)
        conditions, badness = episodes(rng)
        signals = measure(fan, conditions, badness, rng)
        signals[rng.random(signals.shape) < 1.0 / GAPS] = np.nan
        fleet[name] = signals, conditions
    return fleet


def lines_of(signals: np.ndarray, labels: list[str] | None) -> list[str]:
    """Return a file with commas; what never arrived is an empty cell."""
    lines = [",".join(["seconds", *CHANNELS, *([] if labels is None else ["condition"])])]
    for row, values in enumerate(signals.tolist()):
        cells = [
            "" if np.isnan(value) else f"{value:.{decimals}f}"
            for value, decimals in zip(values, CHANNELS.values(), strict=True)
        ]
        lines.append(",".join([f"{row / RATE:.1f}", *cells, *([] if labels is None else [labels[row]])]))
    return lines


def write(folder: Path, seed: int = SEED) -> list[Path]:
    """Write all files; return where."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, (signals, numbers) in make(seed).items():
        labels = [CONDITIONS[number] for number in numbers]
        texts = {f"{name}.csv": lines_of(signals, None if name == UNLABELLED else labels)}
        if name == UNLABELLED:
            told = [f"{row / RATE:.1f},{label}" for row, label in enumerate(labels)]
            texts[f"{name}_labels.csv"] = ["seconds,condition", *told]
        for file, lines in texts.items():
            (folder / file).write_bytes("".join(f"{line}\n" for line in lines).encode())
            written.append(folder / file)
    return written


def main() -> None:
    """Write the files, here or elsewhere."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", nargs="?", type=int, default=SEED)
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "fans")
    arguments = parser.parse_args()
    for path in write(arguments.to, arguments.seed):
        print(path)


if __name__ == "__main__":
    main()
