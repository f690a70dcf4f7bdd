"""A long file through ``run``: how much of the time is the model's, and does memory stay flat?

``python -m experiments.million [--rows N]`` writes a CSV file (N rows × 32 columns), reads
and parses it alone, follows it with a model (checkpoint, predictions, events), and writes the figures to
``results/million.csv``.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.runtime import Outputs, Runner, SessionConfig, Store
from baryflow.streams import open_sink, open_source

RESULTS = Path(__file__).parent / "results" / "million.csv"
COLUMNS = [f"sensor_{j:02d}" for j in range(32)]
BATCH = 256


def resident():
    """Return the memory of this process, in MB."""
    words = Path("/proc/self/status").read_text()
    return int(words.split("VmRSS:")[1].split()[0]) / 1024


def write(path, problem, n_rows):
    rng = np.random.default_rng(0)
    X = problem.X_target
    with path.open("w") as file:
        file.write(",".join(COLUMNS) + "\n")
        for start in range(0, n_rows, 10_000):
            rows = X[rng.integers(len(X), size=min(10_000, n_rows - start))]
            np.savetxt(file, rows + 0.1 * rng.normal(size=rows.shape), fmt="%.4f", delimiter=",")


class Clock:
    """Adds up the time that some methods of a class take."""

    def __init__(self, kind, names):
        self.seconds = 0.0
        for name in names:
            setattr(kind, name, self._timed(getattr(kind, name)))

    def _timed(self, method):
        def timed(*arguments, **named):
            start = time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


def parse_alone(path):
    source, start, n = open_source(path, columns=COLUMNS), time.perf_counter(), 0
    while (batch := source.read(BATCH)) is not None:
        n += len(batch.rows)
    source.close()
    return n, time.perf_counter() - start


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    problem = make_domains(4, 8, 32, 60, random_state=0)
    model = OnlineDaDiL(keep_sources=False, random_state=0)
    model.fit(problem.X, problem.y, sample_domain=problem.domain)
    model.feature_names_in_ = np.array(COLUMNS, dtype=object)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "rows.csv", problem, options.rows)
        n, parsing = parse_alone(folder / "rows.csv")
        clock = Clock(OnlineDaDiL, ("predict_proba", "novelty", "absorb"))
        memory = {}
        runner = Runner(
            SessionConfig(model, BATCH),
            open_source(folder / "rows.csv", columns=COLUMNS),
            Outputs(open_sink(folder / "out.ndjson"), open_sink(folder / "events.ndjson")),
            store=Store(folder / "checkpoint"),
        )

        def look():
            memory[runner.totals.read] = resident()
            return False

        start = time.perf_counter()
        totals = runner.run(look)
        total = time.perf_counter() - start
        size = (folder / "rows.csv").stat().st_size
    tenth = next(value for rows, value in memory.items() if rows >= options.rows // 10)
    figures = {
        "rows": totals.read,
        "megabytes of the file": round(size / 1e6, 1),
        "rows a second, reading and parsing alone": round(n / parsing),
        "rows a second, run": round(totals.read / total),
        "share of the time outside of the model": round(1.0 - clock.seconds / total, 3),
        "resident MB after a tenth": round(tenth, 1),
        "resident MB at the end": round(resident(), 1),
        "largest resident MB after a tenth": round(
            max(value for rows, value in memory.items() if rows >= options.rows // 10), 1
        ),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(figures.items())
    for words, value in figures.items():
        print(f"{words:<45} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
