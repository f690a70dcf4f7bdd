"""Run ``python -m experiments.benchmark``: all methods on streams of targets they know nothing of.

Without ``--data`` only made problems take part. Each stream is appended to the file of its method in
``results``; the same command resumes, and a new method runs alone. ``--tables`` only makes the tables of
``docs/benchmarks/benchmark.md`` and its figure again.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import platform
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import pages
from experiments import jobs, results
from experiments.benchmark import figure, methods, problems, scores, streams, tables

RESULTS = Path(__file__).parent / "results"
PAGE = "docs/benchmarks/benchmark.md"
KEY = ("problem", "kind", "knowledge")
FIELDS = (*KEY, *scores.FIGURES, "version")


def main(arguments=None):
    options = parse(arguments)
    if not options.tables:
        run(options)
    rows = read(options.out)
    for name, make in tables.PARTS.items():
        if options.out == RESULTS:
            pages.fill(PAGE, name, make(rows))
        print(f"{make(rows)}\n")
    if options.out == RESULTS:
        figure.draw(rows, pages.ROOT / figure.PATH)
    return 0


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("BARYFLOW_DATA"), help="sets: .npz")
    parser.add_argument("--out", type=Path, default=RESULTS, help="a folder")
    parser.add_argument("--problems", nargs="*", default=["*"], help='names or patterns, as "fleet*"')
    parser.add_argument("--methods", nargs="*", choices=methods.METHODS, default=[*methods.METHODS])
    parser.add_argument("--kinds", nargs="*", choices=streams.KINDS, default=streams.KINDS)
    parser.add_argument("--jobs", type=int, default=1, help="processes, one problem in each at a time")
    parser.add_argument(
        "--tables", action="store_true", help="only make the tables and the figure again"
    )
    return parser.parse_args(arguments)


def read(folder):
    """Return the rows of all methods, with their names."""
    return [
        {"method": name} | row
        for name in methods.METHODS
        for row in results.read(folder / methods.file_name(name))
    ]


def run(options):
    """Do what is not done yet. Only this process writes, so that the files stay whole."""
    names = [name for name in options.methods if methods.is_installed(name)]
    if left_out := set(options.methods) - set(names):
        print(f"left out, not installed: {', '.join(sorted(left_out))}", file=sys.stderr)
    tasks = [
        (name, problem, options.data, tuple(options.kinds), done(options.out, name, problem))
        for problem in problems.names(options.data)
        if any(fnmatch.fnmatch(problem, pattern) for pattern in options.problems)
        for name in names
    ]
    by_problem = {}
    for task in tasks:  # methods of one problem share what plain classifiers learn
        by_problem.setdefault(task[1], []).append(task)
    for name, rows in jobs.pieces(work, list(by_problem.values()), options.jobs):
        results.append(options.out / methods.file_name(name), FIELDS, rows)


def done(folder, name, problem):
    """Return what a method has done of a problem."""
    rows = results.read(folder / methods.file_name(name))
    return {tuple(row[part] for part in KEY[1:]) for row in rows if row["problem"] == problem}


def work(tasks):
    """Yield the name of a method and its new rows, stream by stream of a problem."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for task in tasks:
            clock = time.process_time()
            yield from judge(*task)
            spent = time.process_time() - clock
            if spent > 0.5:
                print(f"{task[1]}: {task[0]}: {spent:.0f} CPU s", file=sys.stderr, flush=True)


def judge(name, problem, data, kinds, known):
    """Yield the rows of a method on the streams of a problem, except those known."""
    fitted, loaded = None, problems.load(problem, data)
    for kind in kinds:
        todo = [one for one in scores.wanted(methods.make(name), kind) if (kind, one) not in known]
        stream = streams.make(loaded, kind) if todo else None
        if stream is None:
            continue
        if fitted is None:
            fitted = methods.make(name).fit(*loaded.sources)
        about = {"problem": problem, "kind": kind, "version": made_with(name)}
        n_classes = len(np.unique(loaded.sources[1]))
        found = scores.measure(fitted, stream, todo, n_classes)
        yield name, [about | {"knowledge": one} | figures for one, figures in found]


def made_with(name):
    """Return the versions that matter for a method."""
    package = "skada" if name.startswith("skada") else "baryflow"
    if not methods.METHODS[name].startswith(("ours", "with_skada")):
        package = "scikit-learn"
    return f"{package} {version(package)}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())
