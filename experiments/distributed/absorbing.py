"""A target in partitions: is a summary merged in a tree as good as the stream, and what does it cost?

``python -m experiments.distributed.absorbing`` writes ``results/absorbing.csv``: three problems, targets
of several sizes, each learned from as a stream in batches, and by ``absorb`` in few partitions and
many, with one worker and two. Accuracy is measured on held-out rows. Results that exist are not computed
again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from baryflow.distributed import absorb, connect, read_parquet
from experiments.distributed.client import digest, new_model
from experiments.distributed.data import DOMAIN, FOLDER, LABEL, Problem, as_table, load, save

SEEDS, SOURCES, HELD, BATCH = (0, 1, 2), 60_000, 6000, 100
#: Rows of the target, and in how many files they are.
TARGETS = ((3000, 4), (30_000, 4), (30_000, 32), (120_000, 32))


def write_target(problem, folder, n_rows, n_files):
    """Return a folder with the rows of the target, and the rows in that order."""
    path = Path(folder) / f"target-{problem.seed}-{n_rows}-{n_files}"
    path.mkdir(parents=True, exist_ok=True)
    X, y = problem.draw(problem.n_sources, n_rows, 0)
    parts = zip(np.array_split(X, n_files), np.array_split(y, n_files), strict=True)
    for number, (some, classes) in enumerate(parts):
        table = as_table(some, classes, 0).drop_columns([LABEL, DOMAIN])
        pq.write_table(table, path / f"part-{number}.parquet")
    return path, X


def judge(model, problem):
    """Return the accuracy and likelihood of held-out rows."""
    X, y = problem.draw(problem.n_sources, HELD, 1_000_000)
    proba = model.predict_proba(X)
    return {
        "accuracy": float((model.classes_[proba.argmax(axis=1)] == y).mean()),
        "nll": float(-np.log(proba[np.arange(len(y)), y]).mean()),
        "bits": digest(model.to_bytes()),
    }


def stream(base, X):
    model = base.spawn()
    for start in range(0, len(X), BATCH):
        model.partial_fit(X[start : start + BATCH])
    return model


def measure(seed, n_rows, how, make):
    """Adapt a model and record its cost and quality, unless the results exist."""
    if (str(seed), str(n_rows), how) in {(r["seed"], r["rows"], r["how"]) for r in load("absorbing")}:
        return
    began = time.perf_counter()
    model = make()
    seconds = time.perf_counter() - began
    row = {"seed": seed, "rows": n_rows, "how": how, "seconds": seconds}
    row["microseconds_a_row"] = 1e6 * seconds / n_rows if n_rows else ""
    save(
        "absorbing", [row | judge(model, Problem(seed=seed)) | {"load": os.getloadavg()[0]}], append=True
    )


def run(seed, folder):
    problem = Problem(seed=seed)
    X, y, source = problem.rows(SOURCES)
    base = new_model().fit(X, y, sample_domain=source)
    measure(seed, 0, "before", base.spawn)
    for n_rows, n_files in TARGETS:
        path, rows = write_target(problem, folder, n_rows, n_files)
        measure(seed, n_rows, "stream", partial(stream, base, rows))
        parts = read_parquet(str(path))
        for workers in (1, 2):
            with connect("local", workers) as client:
                client.run(read_parquet, str(path))  # do not measure imports
                how = f"absorb, {n_files} pieces, {workers} workers"
                measure(seed, n_rows, how, partial(absorb, base, parts, client=client))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default=FOLDER)
    options = parser.parse_args(arguments)
    for seed in SEEDS:
        run(seed, options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
