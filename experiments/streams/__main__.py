"""How good are predictions on machines with their own calibration that run normally most of the time?

``python -m experiments.streams --data FOLDER`` lets targets of fleets and of sets flow past: as they
are, with other class proportions, and with a fault that stays on; without knowledge, and with labels, a
baseline or a class prior. It appends to ``results/ours.csv``, resumes, and makes the tables of
``docs/benchmarks/own-calibration.md`` and of the guide. Without ``--data`` only fleets take part.

``--method plain``        measure plain classifiers instead, into ``results/plain.csv``
``--method 0.2.0``        write into ``results/0.2.0.csv``, with another version in PYTHONPATH
``--reference FILE.py``   measure a module with the functions fit, explanations and weigh
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from functools import cache, partial
from pathlib import Path

import numpy as np

import baryflow
from benchmarks import pages
from experiments import results
from experiments.streams import methods, problems, tables

RESULTS = Path(__file__).parent / "results"
KEY = ("method", "problem", "target", "kind", "knowledge")
FIELDS = (
    *KEY, "rows", "not_adapting", "flowing", "end", "balanced", "claimed", "ambiguity", "last",
    "last_not_learning",
)  # fmt: skip
TARGETS, BATCH = 2, 32
LABELS, DRAWS, BASELINE = {"1 label": 1, "3 labels": 3, "5 labels": 5}, 3, 30
#: Rows at the end of a lasting fault, and the share of normal rows that a user expects there.
LAST, NORMAL = 180, 0.85


def main(arguments=None):
    options = parse(arguments)
    name = "reference" if options.reference else options.method
    if not options.tables:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(options, options.out / f"{name}.csv", choose(options))
    rows = read(options.out)
    for part, (page, made) in tables.PARTS.items():
        if options.out == RESULTS:
            pages.fill(page, part, made(rows))
        print(f"{made(rows)}\n")
    return 0


def read(folder):
    """Return the rows of all methods."""
    rows = [row for path in sorted(folder.glob("*.csv")) for row in results.read(path)]
    return [row for row in rows if "method" in row]  # other experiments write there, too


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("BARYFLOW_DATA"))
    parser.add_argument("--out", type=Path, default=RESULTS, help="a folder")
    parser.add_argument("--sets", nargs="*", choices=problems.PROBLEMS, default=problems.PROBLEMS)
    parser.add_argument("--targets", type=int, default=TARGETS, help="of each problem, at most")
    parser.add_argument("--method", default="ours", help="plain, or the name of what is measured")
    parser.add_argument("--reference", type=Path, metavar="FILE.py")
    parser.add_argument("--tables", action="store_true", help="only make the tables again")
    return parser.parse_args(arguments)


def choose(options):
    """Return functions that make the methods, by name."""
    if options.reference:
        return {"reference": partial(methods.Reference, methods.read_module(options.reference))}
    if options.method == "plain":
        return {
            "raw": methods.Plain,
            "standardised": partial(methods.Plain, per_domain=True),
            "picked": methods.Picked,
        }
    print(f"{options.method}: {baryflow.__file__}", file=sys.stderr)
    return {options.method: methods.ours}


def run(options, path, made):
    """Do what is not done yet; class priors, which cost a fit each, after everything else."""
    for with_priors in (False, True):
        done = {tuple(row[name] for name in KEY) for row in results.read(path)}
        for problem in options.sets:
            if problem not in problems.SETS or options.data is not None:
                measure(options, path, made, done, problem, with_priors)
            elif not with_priors:
                print(f"{problem}: left out, there is no --data", file=sys.stderr)


def measure(options, path, made, done, problem, with_priors):
    """Append what is left of a problem, and print what it costs."""
    clock = time.process_time()
    for number, target in enumerate(problems.targets(problem, options.data, options.targets)):
        for name, make in made.items():
            key = {"method": name, "problem": problem, "target": target.name}
            known = {key[3:] for key in done if key[:3] == (name, problem, target.name)}
            kinds = problems.FAULTS if with_priors and number else target.streams
            for row in judge(make, target, known, kinds, with_priors=with_priors):
                results.append(path, FIELDS, [key | row])
    label = "with class priors, " if with_priors else ""
    print(f"{problem}: {label}{time.process_time() - clock:.0f} CPU s", file=sys.stderr, flush=True)


def judge(make, target, done=(), kinds=(*problems.KINDS, *problems.FAULTS), *, with_priors=False):
    """Yield a row for every kind of stream and kind of knowledge, except those done."""
    n_classes = len(np.unique(target.sources[1]))

    @cache
    def fit(prior):
        model = make() if prior is None else make(class_prior=np.array(prior))
        return model.fit(*target.sources)

    for kind in (kind for kind in kinds if kind in target.streams):
        X, y = (part[target.streams[kind]] for part in (target.X, target.y))
        todo = [one for one in knowledge_of(make(), kind, with_priors) if (kind, one) not in done]
        follow = hold if kind in problems.FAULTS else flow
        about = {"kind": kind, "rows": len(y)}
        if set(todo) & {"none", *LABELS}:
            model = fit(None).spawn()
            figures = {"none": follow(model, X, y)}
            figures |= {name: learn_labels(model, X, y, LABELS[name]) for name in todo if name in LABELS}
            yield from (about | {"knowledge": name} | figures[name] for name in figures if name in todo)
        if "baseline" in todo:
            model = fit(None).spawn()
            given = partial(model.set_baseline, *target.baseline(kind, BASELINE))
            yield about | {"knowledge": "baseline"} | flow(model, X, y, given)
        for name in todo:
            if name.endswith("prior"):
                model = fit(tuple(class_prior(name, y, n_classes))).spawn()
                yield about | {"knowledge": name} | follow(model, X, y)


def knowledge_of(model, kind, with_priors):
    """Return what a method can be given, as its public names show: class priors, or all else."""
    lasting = kind in problems.FAULTS
    if with_priors:
        priors = ["normal prior"] if lasting else ["right prior", "wrong prior"]
        return priors if hasattr(model, "class_prior") else []
    found = ["none"]
    if hasattr(model, "feedback") and not lasting:
        found += LABELS
    if hasattr(model, "set_baseline") and not lasting:
        found += ["baseline"]
    return found


def class_prior(name, y, n_classes):
    """Return the proportions of a stream; those of the neighbouring class; or mostly normal ones."""
    if name == "normal prior":
        return [NORMAL, *[(1.0 - NORMAL) / (n_classes - 1)] * (n_classes - 1)]
    return np.roll(problems.proportions(y, n_classes), name == "wrong prior")


def flow(model, X, y, given=None):
    """Return the figures of a stream and of its end; `given` is called before its first row."""
    figures = {"not_adapting": accuracy(model.predict(X), y)}
    if given is not None:
        given()
    return figures | {"flowing": rounded(_predict_then_learn(model, X, y).mean())} | at_end(model, X, y)


def hold(model, X, y):
    """Return how much of a lasting fault is found at its end, and without learning after it began."""
    start = _predict_then_learn(model, X[: problems.MIXED], y[: problems.MIXED])
    frozen = model.spawn()
    found = _predict_then_learn(model, X[problems.MIXED :], y[problems.MIXED :])
    return {
        "flowing": rounded(np.concatenate([start, found]).mean()),
        "last": rounded(found[-LAST:].mean()),
        "last_not_learning": accuracy(frozen.predict(X[-LAST:]), y[-LAST:]),
    }


def _predict_then_learn(model, X, y):
    right = []
    for start in range(0, len(X), BATCH):
        rows = slice(start, start + BATCH)
        right.append(model.predict(X[rows]) == y[rows])
        model.partial_fit(X[rows])
    return np.concatenate(right)


def learn_labels(model, X, y, n):
    """Return the figures on other rows after labels of `n` random rows in all, the mean of draws."""
    draws = []
    for draw in range(DRAWS):
        chosen = np.random.default_rng([n, draw]).permutation(len(X))[:n]
        rest = np.setdiff1d(np.arange(len(X)), chosen)
        draws.append(at_end(model.spawn().feedback(X[chosen], y[chosen]), X[rest], y[rest]))
    return {name: rounded(np.mean([one[name] for one in draws])) for name in draws[0]}


def at_end(model, X, y):
    """Return accuracy, its mean over classes, the mean probability of predictions, and ambiguity."""
    if not hasattr(model, "predict_proba"):
        found, claimed = model.predict(X), {}
    else:
        proba = model.predict_proba(X)
        found = model.classes_[proba.argmax(axis=1)]
        claimed = {"claimed": rounded(proba.max(axis=1).mean())}
        if hasattr(model, "ambiguity_"):
            claimed["ambiguity"] = rounded(model.ambiguity_)
    balanced = np.mean([(found[y == label] == label).mean() for label in np.unique(y)])
    return {"end": accuracy(found, y), "balanced": rounded(balanced)} | claimed


def accuracy(found, y):
    return rounded((found == y).mean())


def rounded(value):
    return round(float(value), 4)


if __name__ == "__main__":
    sys.exit(main())
