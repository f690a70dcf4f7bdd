"""Make the two files with which ``baryflow demo --live --plant`` begins.

Run ``baryflow tep simulate FOLDER --runs 6`` first (or use any folder of the whole benchmark), then
``python scripts/plant_model.py FOLDER``. It writes into ``src/baryflow/datasets/data``:

- ``tep_plant.bary``: windows of five hours to features, and a model of modes 2 to 6. Of mode 1 it knows
  how it runs when nothing is wrong (the commissioning runs), and none of its faults;
- ``tep_settled.bary``: the plant at rest in every mode.

A fault of the live plant begins in the middle of a window. So must those that the model learns from:
windows begin some time before the fault or after it. What was before the fault is the end of a run
without one: all runs begin at the same state.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from baryflow import OnlineDaDiL
from baryflow.features import SignalFeatures, SignalModel
from baryflow.live.plant import class_name
from baryflow.tep.signals import read_commissioning, read_shard
from baryflow.tep.tables import FAULTS, VARIABLES

DATA = Path(__file__).parent.parent / "src" / "baryflow" / "datasets" / "data"
SOURCES, TARGET = range(2, 7), 1
#: Rows of a window (five hours), and from one to the next.
LENGTH, STEP = 100, 25
#: Where windows begin, in rows from the fault on.
BEGINNINGS = (-25, 0, 25, 50, 100, 200, 400)
RUNS = 6
FEATURES = 256
#: What an operator would say: most of the time nothing is wrong.
USUALLY_NORMAL = 0.8


def cut(folder: Path, mode: int) -> tuple[np.ndarray, np.ndarray]:
    """Return windows of a mode, and the fault in each."""
    windows, faults = [], []
    for run in range(RUNS):
        signals, cases = read_shard(folder / f"mode{mode}" / f"run{run:03d}.bary")
        before = signals[[fault for fault, _ in cases].index(0)][-LENGTH:]
        for (fault, _), signal in zip(cases, signals, strict=True):
            whole = np.concatenate([before, signal])
            starts = [LENGTH + beginning for beginning in BEGINNINGS]
            windows += [whole[start : start + LENGTH] for start in starts]
            faults += [fault] * len(starts)
    return np.array(windows), np.array(faults)


def main() -> None:
    """Make both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="what 'baryflow tep simulate' has written")
    folder = parser.parse_args().folder
    parts = {mode: cut(folder, mode) for mode in SOURCES}
    X = np.concatenate([windows for windows, _ in parts.values()])
    faults = np.concatenate([labels for _, labels in parts.values()])
    mode = np.repeat([f"mode {number}" for number in parts], [len(w) for w, _ in parts.values()])
    labels = np.array([class_name(fault) for fault in range(len(FAULTS))])[faults]
    features = SignalFeatures(max_features=FEATURES)
    rows = features.fit_transform(X, labels, mode, normal=faults == 0)
    commissioning = read_commissioning(folder, TARGET)
    starts = range(0, commissioning.shape[1] - LENGTH + 1, LENGTH // 2)
    normal = np.concatenate([commissioning[:, start : start + LENGTH] for start in starts])
    features.learn_normal(normal, f"mode {TARGET}")
    features.channels_ = [variable.label for variable in VARIABLES]
    model = OnlineDaDiL(
        classifier="linear",  # a file of a megabyte instead of many
        class_prior={"normal": USUALLY_NORMAL},
        keep_sources=False,
        random_state=0,
    )
    model.fit(pd.DataFrame(rows, columns=features.get_feature_names_out()), labels, sample_domain=mode)
    SignalModel(features, model, STEP).save(DATA / "tep_plant.bary")
    shutil.copyfile(folder / "settled.bary", DATA / "tep_settled.bary")
    print(model.report())
    for name in ("tep_plant.bary", "tep_settled.bary"):
        print(f"{name}: {(DATA / name).stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
