"""Many columns: should classifiers be fitted on all of them, or on how many directions?

``python -m experiments.wide --data FOLDER`` makes wide sets of the gas sensors (1,000 columns: the 128
and rectified sums of them) and of the music (1,710: the 57 and all products of two), lets every
domain flow in, shuffled, and writes the accuracy to ``results/wide.csv`` and its means into
``docs/method/numerics.md``. It can be stopped, and resumes where it was.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import warnings
from pathlib import Path

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.estimators import _sources
from baryflow.estimators._orders import stream_order
from benchmarks import pages

RESULTS = Path(__file__).parent / "results" / "wide.csv"
FIELDS = ("set", "target", "columns", "directions", "source", "flow", "end")
#: Directions of the classifiers; 0: all columns.
DIRECTIONS = (0, 64, 128, 256)
BATCH = 32


def wide(name, X, centre, scale):
    """Return the columns and more that are made of them."""
    Z = (X - centre) / scale
    if name == "mgr":
        Z = np.clip(Z, -5.0, 5.0)
        first, second = np.triu_indices(X.shape[1])
        return np.hstack([Z, Z[:, first] * Z[:, second]])
    rng = np.random.default_rng(0)
    n = 1000 - X.shape[1]
    A, b = rng.normal(size=(X.shape[1], n)) / np.sqrt(X.shape[1]), rng.normal(size=n)
    return np.hstack([Z, np.maximum(Z @ A + b, 0.0)])


def problem(folder, name, target):
    data = np.load(next(Path(folder).rglob(f"{name}.npz")))
    X, y, mine = data["X"].astype(np.float64), data["y"], data["domain"] == target
    centre, scale = X[~mine].mean(axis=0), X[~mine].std(axis=0)
    X = wide(name, X, centre, scale)
    X = X[:, X[~mine].std(axis=0) > 1e-9]
    return X[~mine], y[~mine], data["domain"][~mine] + 1, X[mine], y[mine]


def run(p, directions):
    Xs, ys, domain, X, y = p
    _sources._MANY_COLUMNS = 10**9 if directions == 0 else 512
    _sources._FEWEST_DIRECTIONS = directions
    # Not validated: even weights, so that nothing else differs.
    model = OnlineDaDiL(validate=False, keep_sources=False, random_state=0)
    model.fit(Xs, ys, sample_domain=domain)
    source = model.score(X, y)
    turn, right = stream_order(y, "shuffled", np.random.default_rng(0)), 0
    for start in range(0, len(turn), BATCH):
        some = turn[start : start + BATCH]
        right += (model.predict(X[some]) == y[some]).sum()
        model.partial_fit(X[some])
    return source, right / len(turn), model.score(X, y)


def read():
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def table(rows):
    lines = [
        "| set | directions | source classifier | while it flows | at the end |",
        "|---|---|---:|---:|---:|",
    ]
    for name in dict.fromkeys(row["set"] for row in rows):
        for directions in DIRECTIONS:
            some = [r for r in rows if r["set"] == name and r["directions"] == str(directions)]
            if some:
                means = [np.mean([float(r[f]) for r in some]) for f in ("source", "flow", "end")]
                what = f"all {some[0]['columns']}" if directions == 0 else str(directions)
                lines.append(f"| {name} | {what} | " + " | ".join(f"{m:.1f}" for m in means) + " |")
    return "\n".join(lines)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("BARYFLOW_DATA"))
    parser.add_argument("--tables", action="store_true", help="only make the table again")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # of columns that hardly vary in one of the domains
    if not options.tables:
        done = {(r["set"], r["target"], r["directions"]) for r in read()}
        for name, n_domains in (("gas_drift8", 8), ("mgr", 5)):
            for target in range(n_domains):
                wanted = [d for d in DIRECTIONS if (name, str(target), str(d)) not in done]
                p = problem(options.data, name, target) if wanted else None
                for directions in wanted:
                    scores = [round(100.0 * s, 3) for s in run(p, directions)]
                    append(name, target, p[0].shape[1], directions, scores)
                    print(name, target, directions, *scores, file=sys.stderr, flush=True)
    pages.fill("docs/method/numerics.md", "wide", table(read()))
    print(table(read()))
    return 0


def append(name, target, columns, directions, scores):
    new = not RESULTS.exists()
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(FIELDS)
        writer.writerow([name, target, columns, directions, *scores])


if __name__ == "__main__":
    sys.exit(main())
