"""What a fit costs, as a small model: constants from the smallest set, checked on the others.

``python -m experiments.distributed.cost`` writes two tables. ``results/rates.csv``: seconds of a pass
per row, and of a merge of eight results, with few and with many columns, in one process.
``results/cost.csv``: the seconds of whole fits of 0.25, 1 and 4 million rows (64 columns, 29 classes, 6
sources) with one and with two workers, what the model predicts, and its prediction for 10⁹ rows on 100
workers. All constants come from the fit of the smallest set with one worker, and from empty tasks.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
from baryflow.distributed.fitting.passes import (
    CellMixtures,
    SourceCatalog,
    complete_scatter,
    measure_partition,
    merge_samples,
    merge_statistics,
    merge_sums,
    sample_partition,
    sum_partition,
)
from distributed import Client

from baryflow.core.mixture import Mixture
from baryflow.estimators._leave_one_out import MOST_FOLDS
from baryflow.estimators._sources import Outlook
from experiments.distributed.client import read
from experiments.distributed.data import FOLDER, Problem, save
from experiments.distributed.watched import Watched

PASSES = ("statistics", "sample", "em")
SIZES, COLUMNS, CLASSES, SOURCES = (250_000, 1_000_000, 4_000_000), 64, 29, 6
SAMPLE, WIDTH, PARTITION_BYTES = 50_000, 8, 32 << 20
#: Learning that is done during the third pass; the rest is done before or after it.
BESIDE = (
    "start", "mix", "fit_plain", "make_folds", "fit_fold", "learn_evidence", "run_fold", "collect",
)  # fmt: skip
BEYOND = (1_000_000_000, 100)


@dataclass(frozen=True)
class Costs:
    """Seconds, measured."""

    row: dict[str, float]  # of each pass
    merge: dict[str, float]  # of up to eight results of each pass
    learning: dict[str, float]  # of tasks that learn from the sample: their sum, by name
    start: float  # before the first and after the last task
    task: float  # of the scheduler, for any task

    def predict(self, rows, workers, partitions):
        """Return the seconds of a fit.

        All workers share a pass, a partition at a time; merges overlap with it, except for the last of
        every level. Classifiers and leave-one-source-out folds are learned during the third pass: that
        takes as long as its longest chain, or all of it, shared. One worker does the rest.
        """
        per_partition = {name: rate * rows / partitions for name, rate in self.row.items()}
        rounds, levels = math.ceil(partitions / workers), max(1, math.ceil(math.log(partitions, WIDTH)))
        merges = partitions / (WIDTH - 1)
        scheduling = self.task * (partitions + merges)

        def seconds_of(name):
            merging = self.merge[name] * (levels + merges / workers)
            return max(rounds * per_partition[name] + merging, scheduling)

        folds = min(SOURCES, MOST_FOLDS)
        turns = math.ceil(folds / workers) / folds
        leave_one_out = sum(self.learning[name] for name in ("make_folds", "learn_evidence", "collect"))
        leave_one_out += turns * sum(self.learning[name] for name in ("fit_fold", "run_fold"))
        mixtures = self.learning["start"] + seconds_of("em") + self.learning["mix"]
        chains = (mixtures, self.learning["fit_plain"], leave_one_out)
        beside = sum(self.learning[name] for name in BESIDE)
        shared = (beside + partitions * per_partition["em"]) / workers
        last = sum(self.learning.values()) - beside
        return self.start + seconds_of("statistics") + seconds_of("sample") + max(*chains, shared) + last


# -- one process -----------------------------------------------------------------------------------


def clock(work, repeats=3):
    """Return the best of some times, and the result."""
    best, found = math.inf, None
    for _ in range(repeats):
        began = time.perf_counter()
        found = work()
        best = min(best, time.perf_counter() - began)
    return best, found


def rates(folder, columns):
    """Measure the passes over one partition, and merges of their results."""
    problem = Problem(SOURCES, CLASSES, columns)
    parts = read(problem.write(folder, SOURCES * 16_384))
    partition, n = parts.partitions[0], parts.partitions[0].n_rows
    statistics = [measure_partition(parts.reader, one, columns) for one in parts.partitions]
    catalog = SourceCatalog.of(merge_statistics(statistics))
    again = partial(sample_partition, parts.reader, catalog=catalog, n_rows=SAMPLE, seed=0)
    second = merge_samples([again(one) for one in parts.partitions])
    outlook = Outlook.of(catalog.table, complete_scatter(second.scatter, catalog.table))
    start = _some_mixtures(len(outlook.unit))
    took = {
        "statistics": clock(lambda: measure_partition(parts.reader, partition, columns)),
        "sample": clock(lambda: again(partition)),
        "em": clock(lambda: sum_partition(parts.reader, partition, catalog, outlook, start)),
    }
    merges = {"statistics": merge_statistics, "sample": merge_samples, "em": merge_sums}
    return [
        {
            "pass": name,
            "columns": columns,
            "seconds_a_row": took[name][0] / n,
            "nanoseconds_a_value": 1e9 * took[name][0] / n / columns,
            "seconds_a_merge": clock(lambda name=name: merges[name]([took[name][1]] * WIDTH))[0],
        }
        for name in PASSES
    ]


def _some_mixtures(p):
    rng = np.random.default_rng(0)
    cells = range(SOURCES * CLASSES)
    even = np.full(2, 0.5)
    found = {cell: Mixture(even, rng.standard_normal((2, p)), np.ones((2, p))) for cell in cells}
    return CellMixtures.of(found, 2, p)


# -- whole fits --------------------------------------------------------------------------------------


def idle_task(number):
    return number


def measure(folder, workers):
    """Return the wall-clock seconds of a fit, what tasks took by name, and seconds of an empty task."""
    with Watched(workers) as cluster:
        figures, _ = cluster.fit(folder)
        stages = cluster.stages()
        with Client(cluster.cluster) as client:
            began = time.perf_counter()
            client.gather(client.map(idle_task, range(3000)))
            task = (time.perf_counter() - began) / 3000
    return figures["seconds"], stages, task


def calibrate(seconds, stages, task, rows, merges):
    """Return the constants that a fit with one worker shows."""
    learning = {n: s for n, s in stages.items() if n not in PASSES and not n.startswith("merge-")}
    learning.pop("idle_task", None)
    return Costs(
        row={name: stages[name] / rows for name in PASSES},
        merge=merges,
        learning=learning,
        start=max(0.0, seconds - sum(stages.values())),
        task=task,
    )


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default=FOLDER)
    parser.add_argument("--repeats", type=int, default=2, help="fits of each kind: the best one counts")
    options = parser.parse_args(arguments)
    micro = [row for columns in (16, 64, 256) for row in rates(options.folder, columns)]
    save("rates", micro)
    merges = {row["pass"]: row["seconds_a_merge"] for row in micro if row["columns"] == COLUMNS}
    problem, costs, begun = Problem(SOURCES, CLASSES, COLUMNS), None, False
    for rows in SIZES:
        folder = problem.write(options.folder, rows)
        partitions = len(read(folder).partitions)
        for workers in (1, 2):
            runs = [measure(folder, workers) for _ in range(options.repeats)]
            best = min(runs, key=lambda run: run[0])
            costs = costs or calibrate(*best, rows, merges)
            predicted = costs.predict(rows, workers, partitions)
            save("cost", [_line(rows, workers, partitions, predicted, best[0])], append=begun)
            begun = True
    rows, workers = BEYOND
    partitions = math.ceil(rows * 8 * (COLUMNS + 2) / PARTITION_BYTES)
    predicted = costs.predict(rows, workers, partitions)
    save("cost", [_line(rows, workers, partitions, predicted, None)], append=True)
    return 0


def _line(rows, workers, partitions, predicted, seconds):
    return {
        "rows": rows, "workers": workers, "pieces": partitions, "predicted_seconds": predicted,
        "measured_seconds": "" if seconds is None else seconds,
        "predicted_by_measured": "" if seconds is None else predicted / seconds,
        "load_of_the_machine": os.getloadavg()[0],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
