"""Run ``python -m experiments.schedule --data FOLDER``: what does it cost to adapt less often?

On every set of :mod:`experiments.msda`, with fewer rows, and on the embedded plant data: each stream is
predicted batch by batch, with the last scheduled adaptation and as if the model had adapted after every
batch. Every finished target is appended to ``results/schedule.csv``; the same command resumes.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.datasets import load_tep
from baryflow.estimators._follow import update
from experiments import mixes, results
from experiments.ablation import __main__ as ablation
from experiments.msda import problems

RESULTS = Path(__file__).parent / "results" / "schedule.csv"
PAGE = "docs/method/what-was-tried.md"
KEY = ("set", "target", "classifier", "order")
FIELDS = (*KEY, "rows", "batches", "adaptations", "flowing", "every_batch", "differing")
SETS, TARGETS, BATCH = (*problems.SETS, "tennessee eastman"), 2, 32
ORDERS = ("shuffled", "runs", "class")


def main(arguments=None):
    parser = results.parser(__doc__, RESULTS, SETS, TARGETS)
    parser.add_argument("--classifier")
    return results.make(parser.parse_args(arguments), run, table, RESULTS, PAGE, "schedule")


def run(options):
    """Do what is not done yet."""
    done = {tuple(row[name] for name in KEY[:3]) for row in results.read(options.out)}
    classifier = options.classifier or "all"
    for which in options.sets:
        for target, sources, X, y in streams(options, which):
            if (which, target, classifier) in done:
                continue
            model = OnlineDaDiL(classifier=options.classifier, random_state=0).fit(*sources())
            rows = []
            for order in ORDERS:
                turn = mixes.in_order(y, order, np.random.default_rng([0, 11]))
                key = dict(zip(KEY, (which, target, classifier, order), strict=True))
                rows.append(key | follow(model.spawn(), X[turn], y[turn]))
            results.append(options.out, FIELDS, rows)
            print(f"{which} {target}: {len(rows)} streams", file=sys.stderr, flush=True)


def streams(options, which):
    """Yield the name of each target, a function that returns its sources, its rows and labels."""
    if which == "tennessee eastman":
        data = load_tep(runs=25)
        X, target = data.X.astype(np.float64), data.is_target
        sources = X[~target], data.y[~target], data.domain[~target]
        yield str(data.domain[target][0]), lambda: sources, X[target], data.y[target]
        return
    for target in ablation.targets(options.data, which, options.targets):
        p = ablation.problem(options.data, which, target)
        yield target, p.pooled, p.X, p.y


def follow(model, X, y):
    """Predict each batch in both ways, then learn from it."""
    scheduled, exact = [], []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="columns? ", category=UserWarning)
        for start in range(0, len(y), BATCH):
            batch = X[start : start + BATCH]
            scheduled.append(model.predict(batch))
            twin = model.spawn()
            if twin.state_.n_new:
                twin.state_ = update(twin.knowledge_, twin.state_)
            exact.append(twin.predict(batch))
            model.partial_fit(batch)
    scheduled, exact = np.concatenate(scheduled), np.concatenate(exact)
    return {
        "rows": len(y),
        "batches": -(-len(y) // BATCH),
        "adaptations": model.state_.history.n_updates,
        "flowing": round(float((scheduled == y).mean()), 5),
        "every_batch": round(float((exact == y).mean()), 5),
        "differing": round(float((scheduled != exact).mean()), 5),
    }


def table(rows):
    """One line a set: accuracy while flowing, on the schedule and after every batch, in each order."""
    columns = ("set", *ORDERS, "adaptations / batches")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for which in SETS:
        mine = [row for row in rows if row["set"] == which]
        if not mine:
            continue
        cells = []
        for order in ORDERS:
            some = [row for row in mine if row["order"] == order]
            a, b = (100 * _mean(some, name) for name in ("flowing", "every_batch"))
            cells.append(f"{a:.1f} / {b:.1f}")
        work = f"{_mean(mine, 'adaptations'):.0f} / {_mean(mine, 'batches'):.0f}"
        lines.append(f"| {which} | {' | '.join(cells)} | {work} |")
    return "\n".join(lines)


def _mean(rows, name):
    return float(np.mean([float(row[name]) for row in rows]))


if __name__ == "__main__":
    sys.exit(main())
