"""How accurate is ``run --baseline-rows 30`` on machines that are normal 85 % of the time?

``python -m experiments.streams.baseline_rows`` follows the last machine of every fleet as ``run`` does:
thirty rows of normal operation, then 300 rows of which 85 % are normal. It scores these 300, without and
with the baseline, writes ``results/baseline_rows.csv`` and prints the means.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from sklearn.metrics import balanced_accuracy_score

from baryflow.runtime import Rows, SessionConfig
from baryflow.runtime.session import FirstRows
from experiments import results
from experiments.streams import methods, problems

RESULTS = Path(__file__).parent / "results" / "baseline_rows.csv"
FIELDS = ("fleet", "baseline_rows", "rows", "flowing", "balanced")
FLEETS = 6
BASELINE, NORMAL, FAULTS, BATCH = 30, 255, 45, 32
#: Rows of a machine, and of each source.
_ROWS, _SOURCE_ROWS = 1800, 300


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--fleets", type=int, default=FLEETS)
    options = parser.parse_args(arguments)
    known = {row["fleet"] for row in results.read(options.out)}
    for seed in range(options.fleets):
        if f"fleet {seed}" not in known:
            results.append(options.out, FIELDS, list(judge(seed)))
            print(f"fleet {seed} done", file=sys.stderr, flush=True)
    rows = results.read(options.out)
    for n in (0, BASELINE):
        mine = [row for row in rows if int(row["baseline_rows"]) == n]
        means = [np.mean([float(row[name]) for row in mine]) for name in ("flowing", "balanced")]
        print(f"baseline rows {n:2d}: flowing {means[0]:.1%}, balanced {means[1]:.1%}")
    return 0


def judge(seed):
    """Yield a row without and one with the baseline."""
    X, y, domain = problems.make_fleet(seed, _ROWS)
    target = domain.max()
    sources = np.concatenate([np.flatnonzero(domain == d)[:_SOURCE_ROWS] for d in range(target)])
    model = methods.ours().fit(X[sources], y[sources], domain[sources] + 1)
    rng = np.random.default_rng(seed)
    normal = rng.permutation(np.flatnonzero((domain == target) & (y == 0)))
    faults = rng.permutation(np.flatnonzero((domain == target) & (y != 0)))[:FAULTS]
    mixed = rng.permutation(np.concatenate([normal[BASELINE : BASELINE + NORMAL], faults]))
    stream = np.concatenate([normal[:BASELINE], mixed])
    for n in (0, BASELINE):
        first = FirstRows(0, n) if n else None
        session = SessionConfig(model, BATCH, baseline=first).begin()
        blank = [""] * len(stream)
        found = session.take(Rows(X[stream], np.arange(1, len(stream) + 1), blank, blank)).records
        predicted = np.array([record["label"] for record in found])[BASELINE:]
        yield {
            "fleet": f"fleet {seed}",
            "baseline_rows": n,
            "rows": len(mixed),
            "flowing": round(float(np.mean(predicted == y[mixed])), 4),
            "balanced": round(float(balanced_accuracy_score(y[mixed], predicted)), 4),
        }


if __name__ == "__main__":
    sys.exit(main())
