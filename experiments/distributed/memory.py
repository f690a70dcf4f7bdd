"""More rows than all workers have memory: does the fit work, and do rows stay away from the client?

``python -m experiments.distributed.memory`` writes ``results/memory.csv``: a Parquet set of more than
twice the limits of two workers is fit by a client in another process, and all its bytes are counted;
then a quarter of it. Results that exist are not computed again; delete the file to start over.
"""

from __future__ import annotations

import argparse
import sys

from experiments.distributed.data import FOLDER, Problem, load, save, size
from experiments.distributed.judged import judge
from experiments.distributed.watched import Watched

ROWS = 4_800_000
WORKERS = 2
PROBLEM = Problem()


def fit_apart(rows, limit):
    folder = PROBLEM.write(rows[0], rows[1])
    with Watched(WORKERS, f"{limit}MB") as cluster:
        figures, content = cluster.fit(folder)
    judged = judge(content, PROBLEM)
    limits, n_bytes = WORKERS * limit * 1e6, size(folder)
    del figures["bits"]
    return {
        "how": "distributed", "rows": rows[1], "parquet_mb": n_bytes / 1e6, "limits_mb": limits / 1e6,
        "times_the_limits": n_bytes / limits, **figures,
        "rest_to_client_part_of_the_set": (figures["to_client"] - figures["model_bytes"]) / n_bytes,
        **judged,
    }  # fmt: skip


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default=FOLDER)
    parser.add_argument("--limit", type=int, default=600, help="MB of a worker")
    options = parser.parse_args(arguments)
    done = {int(row["rows"]) for row in load("memory")}
    for n_rows in (ROWS, ROWS // 4):
        if n_rows not in done:
            save("memory", [fit_apart((options.folder, n_rows), options.limit)], append=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
