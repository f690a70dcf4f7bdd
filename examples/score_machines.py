"""Score the example files: how many rows of the pump without labels are named rightly, by whom.

Three ways, each in the order of time and in batches of 32 rows: a classifier of all labelled pumps as it
is, the same with every pump standardised by itself, and :class:`baryflow.OnlineDaDiL`, whose parameters
are left alone::

    python examples/score_machines.py          # the files that are here
    python examples/score_machines.py 1 2 3    # other fleets, made by make_machines.py
"""

from __future__ import annotations

import csv
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from make_machines import PUMPS, SENSORS, UNLABELLED, write

from baryflow import OnlineDaDiL
from baryflow.model_selection.rivals import FIRST, Rivals

HERE = Path(__file__).parent / "pumps"
BATCH = 32


@dataclass(frozen=True)
class Score:
    """Shares of right answers; `flowing` is before each batch was learned from, `end` after the last."""

    source: float
    standardised_flowing: float
    standardised_end: float
    flowing: float
    end: float


def read(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Return readings and conditions of a file of either kind; what is no number is missing."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        separator = ";" if ";" in file.readline() else ","
        file.seek(0)
        lines = list(csv.DictReader(file, delimiter=separator))
    lines = [line for line in lines if line["time"]]  # the row of units has none
    table = [[number(line[sensor.name], separator) for sensor in SENSORS] for line in lines]
    labels = np.array([line["condition"] for line in lines]) if "condition" in lines[0] else None
    return np.array(table), labels


def number(cell: str, separator: str) -> float:
    """Return what a cell says, NaN if it is no number."""
    try:
        return float(cell.replace(",", ".") if separator == ";" else cell)
    except ValueError:
        return float("nan")


def score(folder: Path = HERE) -> Score:
    """Let the pump without labels flow past."""
    sources = [name for name in PUMPS if name != UNLABELLED]
    found = [read(folder / f"{name}.csv") for name in sources]
    X, y = np.concatenate([X for X, _ in found]), np.concatenate([y for _, y in found])
    names = np.repeat(sources, [len(X) for X, _ in found])
    target, _ = read(folder / f"{UNLABELLED}.csv")
    with (folder / f"{UNLABELLED}_labels.csv").open(encoding="utf-8", newline="") as file:
        truth = np.array([line["condition"] for line in csv.DictReader(file)])

    model = OnlineDaDiL(random_state=0).fit(X, y, sample_domain=names)
    answers = []
    for start in range(0, len(target), BATCH):
        batch = target[start : start + BATCH]
        answers.append(model.predict(batch))  # test ...
        model.partial_fit(batch)  # ... then train
    plain = Rivals.fit(X, y, names).predict(target, BATCH)
    pooled, standardised = (plain[name] for name in FIRST)
    everyone = (
        pooled[-1],
        *standardised,
        np.concatenate(answers),
        model.predict(target),
    )
    return Score(*(float(np.mean(said == truth)) for said in everyone))


def line_of(name: str, found: Score) -> str:
    """Return a line of the table in the README."""
    return f"| {name} | " + " | ".join(f"{100 * value:.1f}" for value in vars(found).values()) + " |"


def main(seeds: list[str]) -> None:
    """Print a line for every fleet."""
    if not seeds:
        print(line_of("0, the files here", score()))
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), int(seed))
            print(line_of(seed, score(Path(folder))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
