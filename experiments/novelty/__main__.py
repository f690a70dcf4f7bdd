"""Run ``python -m experiments.novelty --data FOLDER``: is a class found that no source has?

Each class in turn is taken out of the sources, and out of the first two fifths of a shuffled stream. A
class counts as separable if a classifier that is trained on the target finds 90 % of its rows. Beside it
the same stream ends with noise: every column drawn by itself. Every finished class is appended to
``results/novelty.csv``; the same command resumes.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from baryflow import OnlineDaDiL
from baryflow.estimators._novelty import NOVELTY_THRESHOLD
from experiments import results
from experiments.ablation import __main__ as ablation
from experiments.tep import problems as tep

RESULTS = Path(__file__).parent / "results" / "novelty.csv"
PAGE = "docs/benchmarks/trust.md"
SETS = ("make_domains", "cstr7", "gas_drift8", "digits4", "tep")
KEY = ("set", "target", "class", "classifier")
FIELDS = (
    *KEY, "rows", "new_rows", "separable", "detected", "false_alarms", "false_alarms_before", "noise",
    "reliability_before", "reliability_new", "reliability_noise", "novelty_share_of_time", "seconds",
)  # fmt: skip
TARGETS, BATCH, BEFORE, SEPARABLE, FEWEST = 2, 50, 0.4, 0.9, 12
SOURCE_ROWS, TARGET_ROWS = 2000, 1600


def main(arguments=None):
    parser = results.parser(__doc__, RESULTS, SETS, TARGETS)
    parser.add_argument("--classes", type=int, help="of each target, at most; all if not given")
    parser.add_argument("--classifier")
    return results.make(parser.parse_args(arguments), run, table, RESULTS, PAGE, "novelty")


def run(options):
    """Do what is not done yet."""
    done = {tuple(row[name] for name in KEY) for row in results.read(options.out)}
    for which in options.sets:
        for target in targets(options.data, which, options.targets):
            X, y, domain, T, codes = problem(options.data, which, target)
            recalls = find_separable(T, codes)
            chosen = np.random.default_rng(0).permutation(sorted(recalls))[: options.classes]
            for c in chosen.tolist():
                if (which, target, str(c), options.classifier or "all") in done:
                    continue
                figures = follow(X, y, domain, T, codes, c, options.classifier)
                stem = dict(zip(KEY, (which, target, c, options.classifier or "all"), strict=True))
                row = stem | {"separable": round(recalls[c], 3)} | figures
                results.append(options.out, FIELDS, [row])
                print(f"{which} {target} {c}: {figures}", file=sys.stderr, flush=True)


def targets(data, which, most):
    if which == "tep":
        return [str(target) for target in (2, 5, 3, 4)[:most]]
    return ablation.targets(data, which, most)


def problem(data, which, target):
    """Return rows, classes and domains of the sources, and rows and classes of a shuffled target."""
    rng = np.random.default_rng(0)
    if which == "tep":
        p = tep.problem(*tep.read(int(target)), 0)
        X, y, domain, T, codes = p.Xs, p.ys, p.domain, p.X, p.y
    else:
        seed = int(target[4:]) if target.startswith("seed") else 0
        p = ablation.problems.problem(data, which, target, seed)
        (X, y, domain), T, codes = p.pooled(), p.X, p.y
    some = np.sort(rng.permutation(len(y))[:SOURCE_ROWS])
    turn = rng.permutation(len(codes))[:TARGET_ROWS]
    return X[some], y[some], domain[some], T[turn], codes[turn]


def find_separable(T, codes):
    """Return the recall of each class by a classifier that is trained on the target itself."""
    counts = dict(zip(*np.unique(codes, return_counts=True), strict=True))
    kept = np.isin(codes, [c for c, n in counts.items() if n >= FEWEST])
    T, codes = T[kept], codes[kept]
    found = cross_val_predict(make_pipeline(StandardScaler(), SVC(C=3.0)), T, codes, cv=4)
    return {c.item(): float((found[codes == c] == c).mean()) for c in np.unique(codes)}


def follow(X, y, domain, T, codes, c, classifier):
    """Let a stream flow in which a class that no source has appears; return the figures."""
    early = np.arange(len(codes)) < BEFORE * len(codes)
    kept = ~(early & (codes == c))
    T, codes, early = T[kept], codes[kept], early[kept]
    known = y != c
    model = OnlineDaDiL(classifier=classifier, random_state=0)
    model.fit(X[known], y[known], domain[known])
    novelty, reliability, spent, looking = [], [], 0.0, 0.0
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        for start in range(0, len(codes), BATCH):
            batch = T[start : start + BATCH]
            clock = time.perf_counter()
            novelty.append(model.novelty(batch))
            looking += time.perf_counter() - clock
            clock = time.perf_counter()
            model.partial_fit(batch)
            spent += time.perf_counter() - clock
            reliability.append(model.reliability_)
        new = codes == c
        again = model.spawn(model.state_).partial_fit(T[new & ~early][:BATCH])
        rng = np.random.default_rng(1)
        noise = np.column_stack([rng.permutation(column) for column in T.T])[:BATCH]
        noise += rng.normal(size=noise.shape) * T.std(axis=0) * 0.1
        found = float((model.novelty(noise) > NOVELTY_THRESHOLD).mean())
        noisy = model.spawn(model.state_).partial_fit(noise)
    novel = np.concatenate(novelty) > NOVELTY_THRESHOLD
    before = [
        value for i, value in enumerate(reliability) if early[min((i + 1) * BATCH, len(early)) - 1]
    ]
    return {
        "rows": len(codes),
        "new_rows": int(new.sum()),
        "detected": round(float(novel[new].mean()), 4),
        "false_alarms": round(float(novel[~new].mean()), 4),
        "false_alarms_before": round(float(novel[early].mean()), 4),
        "noise": round(found, 3),
        "reliability_before": round(float(np.mean(before)), 3),
        "reliability_new": round(again.reliability_, 3),
        "reliability_noise": round(noisy.reliability_, 3),
        "novelty_share_of_time": round(looking / (looking + spent), 3),
        "seconds": round(spent, 1),
    }


def table(rows):
    """One line a set: means over targets and separable classes."""
    columns = (
        "set", "classes", "rows found, %", "false alarms, %", "noise found, %",
        "reliability before / new class / noise, %",
    )  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for which in SETS:
        mine = [r for r in rows if r["set"] == which]
        some = [r for r in mine if float(r["separable"]) >= SEPARABLE]
        if not some:
            continue
        mean = {name: 100 * np.mean([float(r[name]) for r in some]) for name in FIELDS[6:-1]}
        lines.append(
            f"| {which} | {len(some)} of {len(mine)} | {mean['detected']:.0f} "
            f"| {mean['false_alarms']:.1f} | {mean['noise']:.0f} "
            f"| {mean['reliability_before']:.0f} / {mean['reliability_new']:.0f} "
            f"/ {mean['reliability_noise']:.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
