"""Which rows of a stream were predicted correctly, by a model that adapts and by one that does not."""

from __future__ import annotations

import csv
import sys
import warnings
from pathlib import Path

import numpy as np

from baryflow import OnlineDaDiL
from experiments import jobs
from experiments.certificate import problems

PATH = Path(__file__).parent / "results" / "streams.csv"
KEY = ("set", "target", "split", "model", "mix", "order")
#: The default, and one that adapts without looking whether that helps, so that there is harm to find.
MODELS = {"default": {}, "unchecked": {"validate": False, "label_shift": False}}
BATCH = 32
#: Problems of the synthetic set.
SPLITS = (0, 1, 2, 3)
ORDERS = ("shuffled", "runs", "class")
STREAMS = (
    *(("as is", order) for order in ORDERS),
    *((mix, order) for mix in ("80 %", "half absent") for order in ("shuffled", "class")),
    ("one class", "shuffled"),  # it has no other order
)


def read(path=PATH):
    """Return each stream: its key, and for every row whether adapting and not adapting were right."""
    if not Path(path).exists():
        return {}
    with Path(path).open(newline="") as file:
        return {tuple(r[name] for name in KEY): decoded(r["outcomes"]) for r in csv.DictReader(file)}


def encoded(right):
    """Return one digit for each row: 2 if adapting was right, plus 1 if not adapting was."""
    return "".join(map(str, right @ [2, 1]))


def decoded(outcomes):
    codes = np.array(list(outcomes), dtype=int)
    return np.column_stack([codes // 2, codes % 2])


def run(options, path):
    """Follow the streams that are not in the file yet; only this process writes to it."""
    for key, outcomes in jobs.pieces(work, list(to_do(options, path)), options.jobs):
        new = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([(*KEY, "outcomes"), (*key, outcomes)] if new else [(*key, outcomes)])
        print(*key, sep=", ", file=sys.stderr, flush=True)


def to_do(options, path):
    """Yield (data, keys) for each target and model of which a stream is missing."""
    done = read(path)
    for which in options.sets:
        for split in SPLITS if which == "make_domains" else (0,):
            for number, target in enumerate(problems.targets(options.data, which, split), split):
                if options.targets and not {target, str(number)} & set(options.targets):
                    continue
                for model in options.models:
                    keys = [(which, target, str(split), model, *stream) for stream in STREAMS]
                    if missing := [key for key in keys if key not in done]:
                        yield options.data, missing


def work(task):
    """Yield each stream's key and outcomes, for one target and one model."""
    data, keys = task
    fitted = None
    for key in keys:
        which, target, split, name, mix, order = key
        p = problems.problem(data, which, target, int(split), mix)
        rows = problems.flow(p, mix, order, 0)[: problems.MOST]
        if len(rows) < problems.FEWEST:
            print(*key, f"{len(rows)} rows, skipped", sep=", ", file=sys.stderr)
            continue
        if fitted is None:  # the sources are the same in every stream
            fitted = OnlineDaDiL(random_state=int(split), **MODELS[name]).fit(*p.sources)
        yield key, encoded(outcomes_of(fitted.spawn(), p.X[rows], p.y[rows]))


def outcomes_of(model, X, y):
    """Predict each batch, then learn from it; return whether it and not adapting were right."""
    not_adapting = model.predict(X) == y
    right = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="columns? ", category=UserWarning)
        for start in range(0, len(y), BATCH):
            batch = slice(start, start + BATCH)
            right.append(model.predict(X[batch]) == y[batch])
            model.partial_fit(X[batch])
    return np.column_stack([np.concatenate(right), not_adapting]).astype(int)
