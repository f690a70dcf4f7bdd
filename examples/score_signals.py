"""Score the example signals: how many windows of the fan without labels are named rightly, by whom.

A window counts as right if its last row is named rightly, also where the condition changes within it.
Windows have 60 rows, one every 10. `rows` is without them: each row by itself, standardised. `known`
is with known normal operation: of the labelled fans by their labels, of the new one its first 18
seconds. All else is as in ``score_machines.py``::

    python examples/score_signals.py          # the files that are here
    python examples/score_signals.py 1 2 3    # other fleets, made by make_signals.py

With ``--unmixed``, windows in which the condition changes are left out of learning, and of nothing else.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from make_signals import CHANNELS, FANS, UNLABELLED, write

from baryflow import OnlineDaDiL
from baryflow.features import SignalFeatures, windows
from baryflow.features.labelled import fit_signals
from baryflow.model_selection.rivals import FIRST, Rivals

HERE = Path(__file__).parent / "fans"
LENGTH, STEP, BATCH = 60, 10, 32
COMMISSIONED = 180  # rows


@dataclass(frozen=True)
class Score:
    """Shares of right answers; `flowing` is before each batch was learned from, `end` after the last."""

    rows: float
    source: float
    standardised_flowing: float
    standardised_end: float
    flowing: float
    end: float
    known_flowing: float
    known_end: float


def read(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return signals and conditions of a fan; NaN where a cell is empty."""
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    signals = np.array([[float(line[one] or "nan") for one in CHANNELS] for line in lines])
    if name == UNLABELLED:
        with (folder / f"{name}_labels.csv").open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
    return signals, np.array([line["condition"] for line in lines])


def follow(model: OnlineDaDiL, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what is said of each batch before it is learned from, and of all after the last."""
    answers = []
    for start in range(0, len(target), BATCH):
        batch = target[start : start + BATCH]
        answers.append(model.predict(batch))  # test ...
        model.partial_fit(batch)  # ... then train
    return np.concatenate(answers), model.predict(target)


def score(folder: Path = HERE, *, unmixed: bool = False) -> Score:
    """Let the fan without labels flow past."""
    sources = [name for name in FANS if name != UNLABELLED]
    found = [read(folder, name) for name in sources]
    raw, states = np.concatenate([X for X, _ in found]), np.concatenate([y for _, y in found])
    names = np.repeat(sources, [len(X) for X, _ in found])
    known = windows(raw, LENGTH, STEP, by=names, label=states)
    if unmixed:
        known = known.where(~known.mixed)
    signals, truth = read(folder, UNLABELLED)
    new = windows(signals, LENGTH, STEP, label=truth)

    pair = fit_signals(known, known.group, SignalFeatures(), OnlineDaDiL(random_state=0), step=STEP)
    target = pair.features.transform(new)
    rivals = Rivals.fit(pair.features.transform(known), known.label, known.group)
    pooled, standardised = (rivals.predict(target, BATCH)[name] for name in FIRST)
    said = [pooled[-1], *standardised]
    said += follow(pair.model, target)
    model = OnlineDaDiL(random_state=0)
    pair = fit_signals(known, known.group, SignalFeatures(), model, step=STEP, normal="normal")
    said += follow(pair.learn_normal(signals[:COMMISSIONED]).model, pair.features.transform(new))
    alone = Rivals.fit(raw, states, names).predict(signals, BATCH)[FIRST[1]][-1]
    shares = [float(np.mean(one == new.label)) for one in said]
    return Score(float(np.mean(alone == truth)), *shares)


def line_of(name: str, found: Score) -> str:
    """Return a line of the table in the README."""
    return f"| {name} | " + " | ".join(f"{100 * value:.1f}" for value in vars(found).values()) + " |"


def main(arguments: list[str]) -> None:
    """Print a line for every fleet."""
    unmixed = "--unmixed" in arguments
    seeds = [word for word in arguments if word != "--unmixed"]
    if not seeds:
        print(line_of("0, the fans here", score(unmixed=unmixed)))
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), int(seed))
            print(line_of(seed, score(Path(folder), unmixed=unmixed)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
