"""More rows than all workers have memory: does the fit work, do rows stay away, is it as good?

``python -m experiments.distributed.memory [--all]`` writes ``results/memory.csv``: a Parquet set of more
than twice the limits of two workers is fit by a client in another process, and all its bytes are
counted; then a quarter of it, and the same quarter in memory. With ``--all`` the whole set is fit in
memory, too, which takes a while. Results that exist are not computed again; delete the file to start
over.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

from experiments.distributed.client import new_model
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
        "to_client_part_of_the_set": figures["to_client"] / n_bytes, **judged,
    }  # fmt: skip


def fit_here(n_rows):
    X, y, source = PROBLEM.rows(n_rows)
    began = time.perf_counter()
    model = new_model().fit(X, y, sample_domain=source)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    del X, y, source
    judged = judge(model.to_bytes(), PROBLEM)
    return {"how": "in memory", "rows": n_rows, "seconds": seconds, "client_peak_mb": peak, **judged}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default=FOLDER)
    parser.add_argument("--limit", type=int, default=600, help="MB of a worker")
    parser.add_argument("--all", action="store_true", help="also fit all rows in memory")
    options = parser.parse_args(arguments)
    wanted = [("distributed", ROWS), ("distributed", ROWS // 4), ("in memory", ROWS // 4)]
    wanted += [("in memory", ROWS)] if options.all else []
    done = {(row["how"], int(row["rows"])) for row in load("memory")}
    for how, n_rows in wanted:
        if (how, n_rows) in done:
            continue
        apart = how == "distributed"
        row = fit_apart((options.folder, n_rows), options.limit) if apart else fit_here(n_rows)
        save("memory", [row], append=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
