"""Run ``python -m experiments.reliability --data FOLDER``: is the estimated accuracy right?

On every set of :mod:`experiments.msda`, with fewer rows: streams in several orders and with other class
proportions. In windows of 200 rows, the mean of `reliability_` is compared with the accuracy of the
predictions that were made before each batch was learned from. Every finished target is appended to
``results/reliability.csv``; the same command resumes.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from baryflow import OnlineDaDiL
from experiments import mixes, results
from experiments.ablation import __main__ as ablation
from experiments.msda import problems
from experiments.scores import calibration_error

RESULTS = Path(__file__).parent / "results" / "reliability.csv"
PAGE = "docs/benchmarks/trust.md"
KEY = ("set", "target", "classifier", "mix", "order")
FIELDS = (*KEY, "rows", "windows", "error", "estimated", "accuracy", "ece", "auc")
TARGETS, BATCH, WINDOW = 2, 50, 200
STREAMS = (("as is", "shuffled"), ("as is", "class"), *((mix, "shuffled") for mix in mixes.MIXES[1:]))


def main(arguments=None):
    parser = results.parser(__doc__, RESULTS, problems.SETS, TARGETS)
    parser.add_argument("--classifier")
    return results.make(parser.parse_args(arguments), run, table, RESULTS, PAGE, "reliability")


def run(options):
    """Do what is not done yet."""
    done = {tuple(row[name] for name in KEY[:3]) for row in results.read(options.out)}
    for which in options.sets:
        for target in ablation.targets(options.data, which, options.targets):
            if (which, target, options.classifier or "all") in done:
                continue
            p = ablation.problem(options.data, which, target)
            model = OnlineDaDiL(classifier=options.classifier, random_state=0).fit(*p.pooled())
            rows = []
            for mix, order in STREAMS:
                stream = problems.flow(p, mix, order, 0)
                if len(stream) >= 2 * BATCH:
                    stem = dict(
                        zip(KEY, (which, target, options.classifier or "all", mix, order), strict=True)
                    )
                    rows.append(stem | follow(model.spawn(), p.X[stream], p.y[stream]))
            results.append(options.out, FIELDS, rows)
            print(f"{which} {target}: {len(rows)} streams", file=sys.stderr, flush=True)


def follow(model, X, y):
    """Predict each batch, then learn from it; compare estimated and true accuracy."""
    probabilities, estimates = [], []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="columns? ", category=UserWarning)
        for start in range(0, len(y), BATCH):
            batch = X[start : start + BATCH]
            probabilities.append(model.predict_proba(batch))
            model.partial_fit(batch)
            estimates.append(np.full(len(batch), model.reliability_))
    found, estimated = np.concatenate(probabilities), np.concatenate(estimates)
    right = model.classes_[found.argmax(axis=1)] == y
    starts = range(0, max(1, len(y) - WINDOW // 2), WINDOW)
    errors = [abs(estimated[i : i + WINDOW].mean() - right[i : i + WINDOW].mean()) for i in starts]
    mixed = 0 < right.sum() < len(right)
    return {
        "rows": len(y),
        "windows": len(errors),
        "error": round(float(np.mean(errors)), 4),
        "estimated": round(float(estimated.mean()), 4),
        "accuracy": round(float(right.mean()), 4),
        "ece": round(calibration_error(found, right), 4),
        "auc": round(float(roc_auc_score(~right, -found.max(axis=1))), 4) if mixed else "",
    }


def table(rows):
    """One line a set, for streams as they come and with other class proportions."""
    columns = ("set", "accuracy", "estimated", "mean error of a window", "ECE", "AUC")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    means = []
    for which in problems.SETS:
        mine = [r for r in rows if r["set"] == which]
        if not mine:
            continue
        plain = [r for r in mine if r["mix"] == "as is" and r["order"] == "shuffled"]
        pairs = [[_mean(some, name) for some in (plain, mine)] for name in FIELDS[7:]]
        error, estimated, accuracy, ece, auc = pairs
        means.append([*error, *ece])
        cells = [f"{100 * a:.0f} / {100 * b:.0f}" for a, b in (accuracy, estimated)]
        cells += [f"{100 * a:.1f} / {100 * b:.1f}" for a, b in (error, ece)]
        lines.append(f"| {which} | {' | '.join(cells)} | {auc[0]:.2f} / {auc[1]:.2f} |")
    if means:
        a, b, c, d = 100 * np.mean(means, axis=0)
        lines.append(f"| mean of sets | | | {a:.1f} / {b:.1f} | {c:.1f} / {d:.1f} | |")
    return "\n".join(lines)


def _mean(rows, name):
    return float(np.mean([float(r[name]) for r in rows if r[name] != ""] or [np.nan]))


if __name__ == "__main__":
    sys.exit(main())
