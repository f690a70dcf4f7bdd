"""Run ``python -m experiments.tep``: six operating modes of a plant, each in turn as the target.

Every finished (target, fold, part) is appended to ``results/tep.csv``, and the same command resumes. The
tables of the documentation are made from that file; ``--tables`` does only that. The features come with
the repository; ``--features FOLDER`` takes others (``baryflow tep encode``).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

from sklearn.exceptions import ConvergenceWarning

from experiments import jobs, results
from experiments.tep import methods, problems, tables

RESULTS = Path(__file__).parent / "results"
KEY = ("encoder", "target", "fold", "part")
#: Figures that are called held out are on the rows kept back, the others on the stream's own.
FIELDS = (
    *KEY, "method", "order", "rows", "not_adapting", "not_adapting_held_out", "flowing", "end",
    "held_out",
)  # fmt: skip
PARTS = ("ours", "rivals")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=Path, default=problems.FEATURES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--targets", type=int, nargs="*", choices=range(1, 7), default=range(1, 7))
    parser.add_argument(
        "--folds", type=int, nargs="*", choices=range(problems.FOLDS), default=range(problems.FOLDS)
    )
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--jobs", type=int, default=1, help="processes, one target in each at a time")
    parser.add_argument("--tables", action="store_true", help="only make the tables again")
    options = parser.parse_args(arguments)
    path = options.out / "tep.csv"
    if not options.tables:
        run(options, path)
    if options.out == RESULTS:
        tables.write_pages(RESULTS)
    rows = results.read(path)
    for encoder in sorted({r["encoder"] for r in rows}):
        print(f"features: {encoder}\n{tables.accuracy_table(rows, 'shuffled', encoder)}")
    return 0


def run(options, path):
    """Do what is not done yet. Only this process writes, so that the file stays whole."""
    done = {tuple(r[name] for name in KEY) for r in results.read(path)}
    for key, rows in jobs.pieces(work, list(to_do(options, done)), options.jobs):
        results.append(path, FIELDS, [dict(zip(KEY, key, strict=True)) | row for row in rows])
        print(*key, f"{len(rows)} rows", file=sys.stderr, flush=True)


def to_do(options, done):
    """Yield (features, target, part, folds) of what is not in the table."""
    for target in options.targets:
        encoder = problems.read(target, options.features)[0].about["encoder"]
        for part in options.parts:
            folds = [f for f in options.folds if (encoder, str(target), str(f), part) not in done]
            if folds:
                yield options.features, target, part, folds


def work(task):
    """Yield the key and the rows of every fold of one target and part."""
    features, target, part, folds = task
    whole, normal = problems.read(target, features)
    follow, fitted = methods.PARTS[part], None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for fold in folds:
            p = problems.problem(whole, normal, fold)
            if fitted is None:  # the sources are the same in every fold
                fitted = methods.LEARN[part](p)
            yield (whole.about["encoder"], str(target), str(fold), part), list(follow(p, fitted))


if __name__ == "__main__":
    sys.exit(main())
