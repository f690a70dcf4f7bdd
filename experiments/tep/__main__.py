"""Run ``python -m experiments.tep``; it can be stopped and goes on where it was.

Every finished (target, fold, part) is put into ``results/tep.csv``, ``curves.csv`` and
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
from experiments.tep import figures, methods, problems, tables

RESULTS = Path(__file__).parent / "results"
KEY = ("encoder", "target", "fold", "part")
FIELDS = (
    *KEY, "method", "order", "batch", "held_out", "prequential", "source_prequential", "first_fifth",
    "last_fifth", "source_first_fifth", "source_last_fifth", "end", "trust", "decision", "resemblance",
    "seconds", "seconds_a_batch",
)  # fmt: skip
CURVE_FIELDS = (*KEY, "method", "step", "phase", "loss", "accuracy")
CONFUSION_FIELDS = (*KEY, "true", "found", "count")
FILES = {"curves.csv": CURVE_FIELDS, "confusion.csv": CONFUSION_FIELDS, "tep.csv": FIELDS}
PARTS = ("ours", "paper", "rivals")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=Path, default=problems.FEATURES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--targets", type=int, nargs="*", choices=range(1, 7), default=range(1, 7))
    parser.add_argument(
        "--folds", type=int, nargs="*", choices=range(problems.FOLDS), default=range(problems.FOLDS)
    )
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--batches", type=int, nargs="*", default=methods.BATCHES)
    parser.add_argument("--tables", action="store_true", help="only make figures and tables again")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.tables:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            run(options)
    figures.draw(options.out)
    if options.out == RESULTS:
        tables.write_pages(RESULTS)
    rows = tables.read(options.out / "tep.csv")
    for encoder in sorted({r["encoder"] for r in rows}):
        print(f"features: {encoder}\n{tables.accuracy_table(rows, 'shuffled', encoder)}")
    return 0


def run(options):
    results = Results(options.out)
    for target in options.targets:
        whole, normal = problems.read(target, options.features)
        encoder = whole.about["encoder"]
        for part in options.parts:
            fitted = None
            for fold in options.folds:
                key = (encoder, str(target), str(fold), part)
                if results.has(key, options.batches):
                    continue
                p = problems.problem(whole, normal, fold)
                if part == "rivals":
                    fitted = fitted or methods.source_models(p)
                    rows = [(*found, "", []) for found in methods.rivals(p, fitted)]
                    confusion = None
                else:
                    if part == "paper":
                        p = methods.on_one_scale(p)
                    online, offline = methods.configurations(seed=0)[part]
                    if fitted is None:  # the sources are the same in every fold
                        fitted = online.fit(p.Xs, p.ys, p.domain)
                    rows, confusion = adapted(p, part, fitted, offline, options.batches)
                results.put(key, rows, confusion)
                print(*key, f"{len(rows)} rows", file=sys.stderr, flush=True)


def adapted(p, part, fitted, offline, batches):
    """Offline and online results of one configuration, and who is taken for whom."""
    decided = fitted._decision.options
    rows = [
        (name, order, figures_, "", [("offline", loss, "") for loss in curve])
        for name, order, figures_, curve in methods.offline(p, part, offline, decided)
    ]
    confusion = None
    for batch in batches:
        for order in problems.ORDERS:
            if part == "paper" and batch != methods.BATCHES[0] and order != "shuffled":
                continue  # the paper's configuration: other batches in one order only
            name, figures_, curve, found = methods.online(p, part, fitted, order, batch)
            rows.append((name, order, figures_, batch, curve))
            if order == "shuffled" and batch == methods.BATCHES[0]:
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
        rows = [r for r in self.tables["tep.csv"] if _key(r) == key]
        held = {r["batch"] for r in rows}
        return bool(rows) and (key[3] == "rivals" or {str(batch) for batch in batches} <= held)

    def put(self, key, rows, confusion):
        """Replace whatever there is of a part."""
        stem = dict(zip(KEY, key, strict=True))
        curves = [
            stem
            | {
                "method": method,
                "step": step,
                "phase": phase,
                "loss": f"{loss:.6g}",
                "accuracy": accuracy,
            }
            for method, _, _, _, curve in rows
            for step, (phase, loss, accuracy) in enumerate(curve)
        ]
        cells = [] if confusion is None or key[3] != "ours" else np.argwhere(confusion).tolist()
        found = [stem | {"true": i, "found": j, "count": confusion[i, j]} for i, j in cells]
        lines = [
            stem | {"method": method, "order": order, "batch": batch}
            | {k: round(float(v), 5) if isinstance(v, float) else v for k, v in values.items()}
            for method, order, values, batch, _ in rows
        ]  # fmt: skip
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
