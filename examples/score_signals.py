"""Score the example signals: how many windows of the fan without labels are named rightly, by whom.

A window counts as right if its last row is named rightly, also where the condition changes within it.
Features are made from windows of 60 rows, one every 10, the most telling ones by the labels of the other
fans. Then as in ``score_machines.py``; `rows` is the same without windows: each row as it stands::

    python examples/score_signals.py          # the files that are here
    python examples/score_signals.py 1 2 3    # other fleets, made by make_signals.py
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
from baryflow.model_selection.rivals import Rivals

HERE = Path(__file__).parent / "fans"
LENGTH, STEP, BATCH = 60, 10, 32


@dataclass(frozen=True)
class Score:
    """Shares of right answers; `flowing` is before each batch was learned from, `end` after the last."""

    rows: float
    source: float
    standardised_flowing: float
    standardised_end: float
    flowing: float
    end: float


def read(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return signals and conditions of a fan; NaN where a cell is empty."""
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    signals = np.array([[float(line[one] or "nan") for one in CHANNELS] for line in lines])
    if name == UNLABELLED:
        with (folder / f"{name}_labels.csv").open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
    return signals, np.array([line["condition"] for line in lines])


def score(folder: Path = HERE) -> Score:
    """Let the fan without labels flow past."""
    sources = [name for name in FANS if name != UNLABELLED]
    found = [read(folder, name) for name in sources]
    raw, states = np.concatenate([X for X, _ in found]), np.concatenate([y for _, y in found])
    names = np.repeat(sources, [len(X) for X, _ in found])
    known = windows(raw, LENGTH, STEP, by=names, label=states)
    known = known.where(~known.mixed)
    signals, truth = read(folder, UNLABELLED)
    new = windows(signals, LENGTH, STEP, label=truth)

    features = SignalFeatures()
    X, y, domain = features.fit_transform(known, known.label, known.group), known.label, known.group
    target = features.transform(new)
    model = OnlineDaDiL(random_state=0).fit(X, y, sample_domain=domain)
    answers = []
    for start in range(0, len(target), BATCH):
        batch = target[start : start + BATCH]
        answers.append(model.predict(batch))  # test ...
        model.partial_fit(batch)  # ... then train
    rivals = Rivals.fit(X, y, domain)
    everyone = (
        rivals.predict_pooled(target),
        rivals.follow_own(target, BATCH),
        rivals.predict_own(target),
        np.concatenate(answers),
        model.predict(target),
    )
    alone = Rivals.fit(raw, states, names).predict_own(signals)
    return Score(
        float(np.mean(alone == truth)), *(float(np.mean(said == new.label)) for said in everyone)
    )


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
