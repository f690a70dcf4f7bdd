"""How good are predictions on machines with their own calibration that run normally most of the time?

``python -m experiments.streams --data FOLDER`` lets targets of fleets and of sets flow past, as they are
and with other class proportions, and gives a few labels. It writes ``results/streams.csv`` and the table
of ``docs/benchmarks/own-calibration.md``. It can be stopped, and resumes. Without ``--data`` only fleets
take part.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from baryflow import OnlineDaDiL
from experiments import results
from experiments.streams import problems

RESULTS = Path(__file__).parent / "results" / "streams.csv"
PAGE = "docs/benchmarks/own-calibration.md"
KEY = ("problem", "target", "kind")
FIGURES = (
    "raw", "standardised", "not_adapting", "flowing", "end", "claimed",
    "labels_1", "labels_3", "labels_5",
)  # fmt: skip
FIELDS = (*KEY, "rows", *FIGURES)
SOURCE_ROWS, TARGET_ROWS, TARGETS, BATCH = 1500, 600, 2, 32
#: Rows of a stream at least.
FEWEST = 30
LABELS, DRAWS = (1, 3, 5), 3


def main(arguments=None):
    names = (*problems.FLEETS, *problems.SETS)
    options = results.parser(__doc__, RESULTS, names, TARGETS).parse_args(arguments)
    return results.make(options, run, table, RESULTS, PAGE, "streams")


def run(options):
    """Do what is not done yet."""
    done = {tuple(row[name] for name in KEY) for row in results.read(options.out)}
    for name in options.sets:
        if name in problems.SETS and options.data is None:
            print(f"{name}: left out, there is no --data", file=sys.stderr)
            continue
        X, y, domain = problems.load(name, options.data)
        for target in np.unique(domain)[-options.targets :]:
            if all((name, str(target), kind) in done for kind in problems.KINDS):
                continue
            rng = np.random.default_rng(0)
            rows = [rng.permutation(np.flatnonzero(domain != target))[:SOURCE_ROWS]]
            rows += [rng.permutation(np.flatnonzero(domain == target))[:TARGET_ROWS]]
            taught = X[rows[0]], y[rows[0]], domain[rows[0]] + 1  # sources are positive
            found = list(judge(taught, X[rows[1]], y[rows[1]]))
            key = {"problem": name, "target": target}
            results.append(options.out, FIELDS, [key | row for row in found])


def judge(taught, X, y):
    """Yield a row for every kind of stream that can be made of a target."""
    model, plain = OnlineDaDiL(random_state=0).fit(*taught), fit_plain(*taught)
    for number, kind in enumerate(problems.KINDS):
        some = problems.draw(y, kind, np.random.default_rng(number))
        if len(some) < FEWEST:  # a row of nothing: it is done
            yield {"kind": kind, "rows": len(some)}
            continue
        found = {name: right(predict(X[some]), y[some]) for name, predict in plain.items()}
        yield {"kind": kind, "rows": len(some)} | found | follow(model.spawn(), X[some], y[some])


def fit_plain(X, y, domain):
    """Return logistic regression on raw rows, and on rows standardised per domain."""
    raw = make_pipeline(StandardScaler(), LogisticRegression(C=0.3, max_iter=500)).fit(X, y)
    Z = np.empty_like(X)
    for name in np.unique(domain):
        Z[domain == name] = StandardScaler().fit_transform(X[domain == name])
    own = LogisticRegression(C=0.3, max_iter=500).fit(Z, y)
    return {
        "raw": raw.predict,
        "standardised": lambda rows: own.predict(StandardScaler().fit_transform(rows)),
    }


def follow(model, X, y):
    """Return the figures of a stream, of its end, and after a few labels of random rows in all."""
    figures = {"not_adapting": right(model.predict(X), y)}
    flowing = []
    for start in range(0, len(X), BATCH):
        rows = slice(start, start + BATCH)
        flowing.append(model.predict(X[rows]) == y[rows])
        model.partial_fit(X[rows])
    probabilities = model.predict_proba(X)
    figures["flowing"] = round(float(np.concatenate(flowing).mean()), 4)
    figures["end"] = right(model.classes_[probabilities.argmax(axis=1)], y)
    figures["claimed"] = round(float(probabilities.max(axis=1).mean()), 4)
    for n in LABELS:
        scores = []
        for draw in range(DRAWS):
            chosen = np.random.default_rng([n, draw]).permutation(len(X))[:n]
            rest = np.setdiff1d(np.arange(len(X)), chosen)
            told = model.spawn().feedback(X[chosen], y[chosen])
            scores.append(right(told.predict(X[rest]), y[rest]))
        figures[f"labels_{n}"] = round(float(np.mean(scores)), 4)
    return figures


def right(found, y):
    return round(float((found == y).mean()), 4)


# -- the table -------------------------------------------------------------------------------------

_HEADS = {
    "raw": "raw", "standardised": "standardised", "not_adapting": "not adapting", "flowing": "flowing",
    "end": "end", "claimed": "(claimed)", "labels_1": "1 label", "labels_3": "3 labels",
    "labels_5": "5 labels",
}  # fmt: skip


def table(rows):
    """Return accuracy in percent by kind of stream: of fleets, and of sets."""
    rows = [row for row in rows if row["end"] != ""]
    lines = [
        f"| problems | stream | {' | '.join(_HEADS[name] for name in FIGURES)} |",
        "|---|---|" + "---|" * len(FIGURES),
    ]
    for title, is_mine in (
        ("fleets", lambda name: name in problems.FLEETS),
        ("sets", lambda name: name in problems.SETS),
    ):
        for kind in problems.KINDS:
            mine = [row for row in rows if row["kind"] == kind and is_mine(row["problem"])]
            if mine:
                cells = [_mean([100.0 * float(row[name]) for row in mine]) for name in FIGURES]
                lines.append(f"| {title} ({len(mine)}) | {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean(values):
    """Return a mean and its standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.1f} ± {error:.1f}"


if __name__ == "__main__":
    sys.exit(main())
