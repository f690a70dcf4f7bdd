"""Fit a sample, or all rows: how large must the sample be, and what does it cost?

``python -m experiments.distributed.classifiers`` writes ``results/classifiers.csv``. Samples of 5,000 to
200,000 rows stand against all rows in memory. Three data sets; results that exist are not computed
again.
"""

from __future__ import annotations

import argparse
import sys
import time

from baryflow.distributed import connect, fit
from experiments.distributed.client import new_model, read
from experiments.distributed.data import FOLDER, Problem, load, save
from experiments.distributed.judged import judge

SAMPLES, SEEDS, ROWS, COLUMNS = (5_000, 20_000, 50_000, 200_000), (0, 1, 2), 400_000, 32


def new_linear():
    return new_model().set_params(classifier="linear")


def fit_all(problem, n_rows):
    """Fit all rows in memory."""
    X, y, source = problem.rows(n_rows)
    began = time.perf_counter()
    model = new_linear().fit(X, y, sample_domain=source)
    return model, time.perf_counter() - began


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default=FOLDER)
    parser.add_argument("--rows", type=int, default=ROWS)
    options = parser.parse_args(arguments)
    done = {(int(row["seed"]), row["how"]) for row in load("classifiers")}
    with connect("local", 2) as client:
        for seed in SEEDS:
            problem = Problem(n_columns=COLUMNS, seed=seed)
            parts = read(problem.write(options.folder, options.rows), partition_bytes=8 << 20)

            def keep(how, model, seconds, seed=seed, problem=problem):
                figures = {"seed": seed, "how": how, "seconds": seconds}
                save("classifiers", [figures | judge(model.to_bytes(), problem)], append=True)

            for n in SAMPLES:
                if (seed, f"sample {n}") not in done:
                    began = time.perf_counter()
                    model = fit(new_linear(), parts, sample_rows=n, client=client)
                    keep(f"sample {n}", model, time.perf_counter() - began)
            if (seed, "all rows") not in done:
                keep("all rows", *fit_all(problem, options.rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
