"""Run ``python -m experiments.feedback --data FOLDER``: what labels of target rows are worth.

Streams of six sets are followed without labels; then a few rows get one. Every finished part of a target
is appended to ``results/feedback.csv``, and the same command resumes. The tables of
``docs/method/feedback.md`` are made from that file; ``--tables`` does only that. A quick look:
``--sets make_domains --targets 0 --parts query``.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from benchmarks import pages
from experiments import jobs, results
from experiments.feedback import parts, problems, tables
from experiments.scores import rounded

RESULTS = Path(__file__).parent / "results"
PARTS = ("rivals", *parts.PARTS, "new class")
#: What is done once.
KEY = ("part", "set", "target", "split", "left_out")
FIELDS = (
    *KEY, "detail", "seed", "method", "n_labels", "rows", "before", "accuracy", "recall", "false_alarms",
    "bytes", "seconds",
)  # fmt: skip


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("BARYFLOW_DATA"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--sets", nargs="*", choices=problems.SETS, default=problems.SETS)
    parser.add_argument("--targets", nargs="*", help="names or numbers of targets (default: all)")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--jobs", type=int, default=1, help="processes, one target in each at a time")
    parser.add_argument("--tables", action="store_true", help="only make the tables again")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "feedback.csv"
    if not options.tables:
        for words, rows in jobs.pieces(work, list(to_do(options, path)), options.jobs):
            results.append(path, FIELDS, rows)
            print(words, file=sys.stderr, flush=True)
    for name, make in tables.TABLES.items():
        table = make(tables.read(path))
        if options.out == RESULTS:
            pages.fill(tables.PAGE, name, table)
        print(f"{name}\n\n{table}", end="\n\n")
    return 0


def to_do(options, path):
    """Yield what :func:`work` takes, for each target."""
    done = {tuple(r[name] for name in KEY) for r in tables.read(path)}
    for which in options.sets:
        for number, (target, split) in enumerate(problems.targets(options.data, which)):
            if options.targets and not {target, str(number)} & set(options.targets):
                continue
            wanted = [part for part in options.parts if part != "many" or first(which, number)]
            of_it = {(key[0], key[4]) for key in done if key[1:4] == (which, target, str(split))}
            if set(wanted) - {part for part, _ in of_it} or "new class" in wanted:
                yield options.data, which, target, split, number, wanted, of_it


def first(which, number):
    """Return whether many labels are measured on a target: once."""
    return which == "make_domains" and number == 0


def work(task):
    """Yield words and the rows of every part of one target."""
    start = time.perf_counter()
    for part, left_out, figures in parts.run(*task):
        key = dict(zip(KEY, (part, *task[1:4], left_out), strict=True))
        words = " ".join(str(word) for word in key.values() if word != "")
        yield f"{words}: {time.perf_counter() - start:.0f} s", [key | rounded(one) for one in figures]
        start = time.perf_counter()


if __name__ == "__main__":
    sys.exit(main())
