"""One worker, then two, with the same rows: what is the speedup, and where does the time go?

``python -m experiments.distributed.scaling`` writes ``results/scaling.csv``: the better of two runs
each. Nothing else should run at the same time.
"""

from __future__ import annotations

import argparse
import os
import sys

from experiments.distributed.data import FOLDER, Problem, save
from experiments.distributed.watched import Watched

ROWS, REPEATS = 2_400_000, 2
#: Tasks whose share of the time is reported; all others are small.
STAGES = {
    "count": ("counting-rows", "merge-counting-rows"),
    "sample": ("sampling-rows", "merge-sampling-rows"),
    "learn": ("learn",),
}


def share_out(seconds):
    """Return what each stage took of all seconds that workers computed."""
    total = sum(seconds.values())
    return {
        f"{stage}_share": sum(seconds.get(name, 0.0) for name in names) / total
        for stage, names in STAGES.items()
    }


def measure(folder, workers):
    runs = []
    for _ in range(REPEATS):
        with Watched(workers) as cluster:
            figures, _ = cluster.fit(folder)
            stages = cluster.stages()
        runs.append((figures["seconds"], sum(stages.values()), figures["bits"], share_out(stages)))
    return min(runs, key=lambda run: run[0])


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default=FOLDER)
    parser.add_argument("--rows", type=int, default=ROWS)
    options = parser.parse_args(arguments)
    folder = Problem().write(options.folder, options.rows)
    table = []
    for workers in (1, 2):
        seconds, computed, bits, shares = measure(folder, workers)
        faster = table[0]["seconds"] / seconds if table else 1.0
        busy = {"load_of_the_machine": os.getloadavg()[0]}
        row = {"workers": workers, "rows": options.rows, "seconds": seconds, "times_as_fast": faster}
        table.append(row | {"computed_seconds": computed, "bits": bits} | shares | busy)
    save("scaling", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
