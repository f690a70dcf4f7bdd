"""Run ``python -m experiments.tep``; after a stop, the same command resumes.

Every finished (target, fold, part, mix) is put into ``results/tep.csv``, ``curves.csv`` and
``confusion.csv``; figures and tables are made from these, with ``--tables`` without computing anything.
The features come with the repository; ``--features FOLDER`` takes others (``baryflow tep encode``).
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from baryflow import container
from experiments import jobs, mixes
from experiments.scores import rounded
from experiments.tep import figures, methods, problems, tables

RESULTS = Path(__file__).parent / "results"
KEY = ("encoder", "target", "fold", "part", "mix")
#: ``held_out`` and ``not_adapting_held_out`` are on the rows kept back, the others on the stream's own.
FIELDS = (
    *KEY, "method", "order", "batch", "rows", "held_out", "not_adapting_held_out", "not_adapting",
    "flowing", "end", "first_fifth", "last_fifth", "not_adapting_first_fifth",
    "not_adapting_last_fifth", "ece_first", "ece_last", "ece_not_adapting", "reliability",
    "reliability_first", "adapts", "shift_belief", "resemblance", "seconds", "seconds_a_batch",
)  # fmt: skip
CURVE_FIELDS = (*KEY, "method", "step", "phase", "loss", "accuracy")
CONFUSION_FIELDS = (*KEY, "true", "found", "count")
FILES = {"curves.csv": CURVE_FIELDS, "confusion.csv": CONFUSION_FIELDS, "tep.csv": FIELDS}
PARTS = ("ours", "rivals", "prior")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=Path, default=problems.FEATURES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--targets", type=int, nargs="*", choices=range(1, 7), default=range(1, 7))
    parser.add_argument(
        "--folds", type=int, nargs="*", choices=range(problems.FOLDS), default=range(problems.FOLDS)
    )
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--mixes", nargs="*", choices=mixes.MIXES, default=mixes.MIXES)
    parser.add_argument("--batches", type=int, nargs="*", default=methods.BATCHES)
    parser.add_argument("--jobs", type=int, default=1, help="processes, one target in each at a time")
    parser.add_argument("--tables", action="store_true", help="only make figures and tables again")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.tables:
        run(options)
    figures.draw(options.out)
    if options.out == RESULTS:
        tables.write_pages(RESULTS)
    rows = tables.read(options.out / "tep.csv")
    for encoder in sorted({r["encoder"] for r in rows}):
        print(f"features: {encoder}\n{tables.accuracy_table(rows, 'shuffled', encoder)}")
    return 0


def run(options):
    """Do what is not done yet. Only this process writes, so that the tables stay whole."""
    results = Results(options.out)
    for key, rows, confusion in jobs.pieces(work, list(to_do(options, results)), options.jobs):
        if rows:
            results.put(key, rows, confusion)
        print(*key, f"{len(rows)} rows", file=sys.stderr, flush=True)


def to_do(options, results):
    """Yield (features, target, part, [(fold, mix)], batches) of what is not in the tables."""
    for target in options.targets:
        encoder = problems.read(target, options.features)[0].about["encoder"]
        for part in options.parts:
            wanted = [
                (fold, mix)
                for mix in (mixes.MIXES if part == "ours" else ("as is",))
                for fold in options.folds
                if mix in options.mixes
                and (mix == "as is" or fold in problems.MIX_FOLDS)
                and not results.has((encoder, str(target), str(fold), part, mix), options.batches)
            ]
            if wanted:
                yield options.features, target, part, wanted, options.batches


def work(task):
    """Yield (key, rows, who is taken for whom) of every fold and mix of one target and part."""
    features, target, part, wanted, batches = task
    whole, normal = problems.read(target, features)
    fitted = offline = None  # the sources are the same in every fold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for fold, mix in wanted:
            p, confusion = problems.problem(whole, normal, fold), None
            if part == "rivals":
                fitted = fitted or methods.source_models(p)
                rows = [(*found, "", []) for found in methods.rivals(p, fitted)]
            else:
                if fitted is None:
                    online, offline = methods.configuration(part, seed=0)
                    fitted = online.fit(p.Xs, p.ys, p.domain)
                rows, confusion = adapted(p, part, mix, fitted, offline, batches)
            yield (whole.about["encoder"], str(target), str(fold), part, mix), rows, confusion


def adapted(p, part, mix, fitted, offline, batches):
    """Offline and online results of one configuration, and who is taken for whom."""
    rows, confusion = [], None
    if mix == "as is" and offline is not None:
        rows = [
            (name, order, figures_, "", curve)
            for name, order, figures_, curve in methods.offline(p, part, offline)
        ]
    for order, batch in methods.streams_of(part, mix, batches):
        n = len(problems.stream(p, order, mix).y)
        if mix != "as is" and n < mixes.FEWEST:
            print(f"mode {p.target}, fold {p.fold}: {mix}: {n} rows, skipped", file=sys.stderr)
            continue
        name, figures_, curve, found = methods.online(p, part, fitted, order, batch, mix)
        rows.append((name, order, figures_, batch, curve))
        if (mix, order, batch) == ("as is", "shuffled", methods.BATCHES[0]):
            confusion = np.zeros((29, 29), dtype=int)
            np.add.at(confusion, (p.y_held, found), 1)
    return rows, confusion


class Results:
    """The three tables. They are written whole and atomically, the one that says what is done last."""

    def __init__(self, out):
        self.out = out
        self.tables = {name: tables.read(out / name) for name in FILES}

    def has(self, key, batches):
        """Tell whether a part was finished, with these batches."""
        held = {(r["order"], r["batch"]) for r in self.tables["tep.csv"] if _key(r) == key}
        if key[3] == "rivals":
            return bool(held)
        wanted = methods.streams_of(*key[3:], batches)
        return bool(held) and {(order, str(batch)) for order, batch in wanted} <= held

    def put(self, key, rows, confusion):
        """Replace whatever there is of a part."""
        stem = dict(zip(KEY, key, strict=True))
        curves = [
            stem | {"method": method, "step": step, "phase": phase}
            | {"loss": f"{loss:.6g}", "accuracy": accuracy}
            for method, _, _, _, curve in rows
            for step, phase, loss, accuracy in curve
        ]  # fmt: skip
        cells = [] if confusion is None or key[3] != "ours" else np.argwhere(confusion).tolist()
        found = [stem | {"true": i, "found": j, "count": confusion[i, j]} for i, j in cells]
        lines = [
            stem | {"method": method, "order": order, "batch": batch} | rounded(values)
            for method, order, values, batch, _ in rows
        ]
        for (name, fields), new in zip(FILES.items(), (curves, found, lines), strict=True):
            kept = [r for r in self.tables[name] if _key(r) != key]
            text = io.StringIO()
            writer = csv.DictWriter(text, fields, lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept + new)
            container.write_bytes(self.out / name, text.getvalue().encode())
            self.tables[name] = tables.read(self.out / name)


def _key(row):
    return tuple(row[name] for name in KEY)


if __name__ == "__main__":
    sys.exit(main())
