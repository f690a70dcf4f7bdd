"""What a row of a stream costs: against a bare mixture, plain classifiers and river's online ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from baryflow import OnlineDaDiL, OnlineGaussianMixture
from baryflow.datasets import make_domains
from benchmarks import pages
from benchmarks.harness import Result, cpu_seconds, judge

BATCH = 32
#: A target whose classes overlap, so that neither adapting nor predicting is trivial.
NOISE = 4.0


def problem(n_sources=5, n_classes=29, n_features=128, n_rows=10_000, per_class=40):
    """Labelled sources, and the batches and classes of a stream from the same target."""
    sizes = (n_sources, n_classes, n_features)
    sources = make_domains(*sizes, per_class, noise=NOISE, random_state=0)
    # The same seed makes the same domains, whatever the number of rows.
    target = make_domains(*sizes, -(-n_rows // n_classes), noise=NOISE, random_state=0)
    return sources, in_batches(target.X_target[:n_rows]), target.y_target[:n_rows]


def in_batches(X):
    return [X[start : start + BATCH] for start in range(0, len(X), BATCH)]


def fitted(sources, **options):
    model = OnlineDaDiL(random_state=0, **options)
    return model.fit(sources.X, sources.y, sample_domain=sources.domain)


def follow(model, batches):
    """Predict every batch, then learn from it; return the predictions."""
    found = []
    for batch in batches:
        found.append(model.predict(batch))
        model.partial_fit(batch)
    return np.concatenate(found)


def mix(batches, max_components):
    model = OnlineGaussianMixture(max_components=max_components)
    for batch in batches:
        model.partial_fit(batch)


def stream(**options) -> Result:
    """``predict`` and ``partial_fit`` against the mixture that any summary of the rows needs."""
    sources, batches, y = problem()
    model, accuracy = fitted(sources, **options), []
    ours_s = rival_s = float("inf")
    for _ in range(2):
        one = model.spawn()
        ours_s = min(
            ours_s, cpu_seconds(lambda m=one: accuracy.append((follow(m, batches) == y).mean()))
        )
        rival_s = min(rival_s, cpu_seconds(lambda: mix(batches, 87)))
    which = options.get("classifier", "default")
    return judge(
        f"stream: predict + partial_fit, 10,000 x 128, 29 classes, batches of 32, {which} classifier",
        ours_s,
        "OnlineGaussianMixture(87).partial_fit",
        rival_s,
        1 / 1.8 if which == "linear" else 1 / 3,
        {"rows a second": round(len(y) / ours_s), "accuracy while flowing": round(accuracy[0], 4)},
    )


def wide_stream() -> Result:
    """200 classes in 4,096 columns: the time of a batch, and the memory of ``fit``."""
    sources, batches, y = problem(3, 200, 4096, n_rows=1_600, per_class=8)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of making the data
    before = _peak_memory()
    model = fitted(sources, classifier="linear", validate=False)
    peak = _peak_memory()
    right = []
    ours_s = cpu_seconds(lambda: right.append((follow(model, batches) == y).mean())) / len(batches)
    return judge(
        f"stream: predict + partial_fit, {BATCH} x 4,096, 200 classes, 3 sources, linear classifier",
        ours_s,
        "ten batches a second",
        0.1,
        1.0,
        {
            "peak memory of fit, MB": round(peak),
            "resident before, with the data, MB": round(before),
            "accuracy while flowing": round(right[0], 4),
            "ok": peak <= 2048,
        },
    )


#: Rows of the long file, and how many of them are left out: starting, and adapting often at first.
LONG, FIRST = int(os.environ.get("BARYFLOW_BENCH_ROWS", "200_000")), 10_000
#: The last commit of 0.2.0, and how many rows more than the first it is given.
RIVAL, RIVAL_ROWS = "24b53e9", 20_000


def run_file() -> Result | None:
    """``baryflow run`` from CSV to CSV, 8 columns, 8 classes, drift watched, against 0.2.0."""
    sources = make_domains(random_state=0)
    target = make_domains(n_per_class=-(-LONG // 8), random_state=0)
    order = np.random.default_rng(0).permutation(len(target.X_target))[:LONG]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        code = {"ours": "", "rival": _checkout(folder)}
        if code["rival"] is None:
            print("run: the code of 0.2.0 is not in this repository", file=sys.stderr)
            return None
        columns = [f"x{i}" for i in range(8)]
        labelled = np.column_stack([sources.X, sources.y, sources.domain])
        _write(folder / "sources.csv", [*columns, "class", "plant"], labelled)
        sizes = {"first": FIRST, "rival": FIRST + RIVAL_ROWS, "ours": LONG}
        for size, n_rows in sizes.items():
            _write(folder / f"{size}.csv", columns, target.X_target[order[:n_rows]])
        for which, path in code.items():
            fit = ["sources.csv", "--label", "class", "--domain", "plant", "-o", f"{which}.bary"]
            _command(folder, path, "fit", *fit)
        spent, memory, right = {}, {}, {}
        for size in ("first", "all"):
            for which, path in code.items():  # in turn
                rows = "first.csv" if size == "first" else f"{which}.csv"
                out = f"{which}-out.csv"
                found = _command(folder, path, "run", f"{which}.bary", rows, "-o", out)
                spent[which, size], memory[which, size] = found
                labels = np.loadtxt(folder / out, delimiter=",", skiprows=1, usecols=2)
                right[which] = labels == target.y_target[order[: len(labels)]]
    ours_s = (spent["ours", "all"] - spent["ours", "first"]) / (LONG - FIRST)
    rival_s = (spent["rival", "all"] - spent["rival", "first"]) / RIVAL_ROWS
    grown = memory["ours", "all"] - memory["ours", "first"]
    both = FIRST + RIVAL_ROWS
    return judge(
        f"run: a row of a CSV file of {LONG:,} x 8, 8 classes, drift watched (CPU)",
        ours_s,
        f"0.2.0, a row of {RIVAL_ROWS:,}",
        rival_s,
        7.0,
        {
            "rows a second": round(1.0 / ours_s),
            "rows a second, rival": round(1.0 / rival_s),
            f"accuracy of {both:,} rows, ours": round(right["ours"][:both].mean(), 4),
            f"accuracy of {both:,} rows, rival": round(right["rival"].mean(), 4),
            "peak memory, MB": round(memory["ours", "all"]),
            "more than for the first rows, MB": round(grown),
            "ok": grown <= 50.0,
        },
    )


def _checkout(folder: Path) -> str | None:
    """Unpack the code of 0.2.0; None if it is not there."""
    git = ["/usr/bin/env", "git", "-C", pages.ROOT, "archive", "-o", folder / "rival.tar", RIVAL, "src"]
    if subprocess.run(git, check=False, stderr=subprocess.DEVNULL).returncode:
        return None
    with tarfile.open(folder / "rival.tar") as packed:
        packed.extractall(folder, filter="data")
    return str(folder / "src")


def _write(path: Path, columns, rows):
    np.savetxt(path, rows, fmt="%.6g", delimiter=",", header=",".join(columns), comments="")


def _command(folder: Path, code: str, *arguments: str) -> tuple[float, float]:
    """Run a command of the command line; return its CPU time and its peak memory in MB."""
    python = [sys.executable, "-m", "baryflow", *arguments]
    env = os.environ | ({"PYTHONPATH": code} if code else {})
    null = subprocess.DEVNULL
    child = subprocess.Popen(python, cwd=folder, env=env, stdout=null, stderr=null)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise RuntimeError(f"baryflow {' '.join(arguments)} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def _peak_memory() -> float:
    """Peak resident memory of this process in MB."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024


def rows() -> list[Result]:
    """A row of our stream against a row of classifiers that do not adapt, or that need its label."""
    sources, batches, y = problem(n_rows=2_560)
    X = np.concatenate(batches)
    model = fitted(sources, classifier="linear")
    right = []
    ours_s = min(
        cpu_seconds(lambda: right.append((follow(model.spawn(), batches) == y).mean())) for _ in range(2)
    ) / len(X)
    plain = {
        "scikit-learn LogisticRegression.predict": LogisticRegression(C=0.1, max_iter=300),
        "scikit-learn SVC.predict": SVC(C=3.0),
        "scikit-learn ExtraTreesClassifier.predict": ExtraTreesClassifier(100, random_state=0),
    }
    found = []

    def add(rival, rival_s, accuracy):
        quality = {"accuracy, ours": round(right[0], 4), "accuracy, rival": round(accuracy, 4)}
        name = "a row: predict + partial_fit, 128 columns, 29 classes, linear classifier"
        found.append(judge(name, ours_s, rival, rival_s, None, quality))

    for name, classifier in plain.items():
        trained = make_pipeline(StandardScaler(), classifier).fit(sources.X, sources.y)
        said = []
        spent = cpu_seconds(lambda t=trained, s=said: s.extend(t.predict(batch) for batch in batches))
        add(name, spent / len(X), (np.concatenate(said) == y).mean())
    some = 200  # they take milliseconds a row
    for name, classifier in _river().items():
        for i in np.random.default_rng(0).permutation(len(sources.X))[:1_000]:
            classifier.learn_one(_named(sources.X[i]), int(sources.y[i]))
        said = []
        flow = _river_flow(classifier, X[:some], y[:some])
        spent = cpu_seconds(lambda s=said, f=flow: s.extend(f))
        right_of = (np.array(said) == y[:some]).mean()
        add(f"river {name}, given the label of each row", spent / some, right_of)
    return found


def _river():
    """Return river's online classifiers, if it is installed."""
    try:
        from river import linear_model, multiclass, naive_bayes, preprocessing, tree
    except ImportError:
        print("rows: river is not installed, its classifiers are left out", file=sys.stderr)
        return {}
    return {
        "LogisticRegression": preprocessing.StandardScaler()
        | multiclass.OneVsRestClassifier(linear_model.LogisticRegression()),
        "GaussianNB": naive_bayes.GaussianNB(),
        "HoeffdingTreeClassifier": tree.HoeffdingTreeClassifier(),
    }


def _named(row):
    return dict(enumerate(row.tolist()))


def _river_flow(classifier, X, y):
    """Predict every row, then learn from it and its label."""
    for row, label in zip(X, y, strict=True):
        features = _named(row)
        yield classifier.predict_one(features)
        classifier.learn_one(features, int(label))


CASES = {
    "run": run_file,
    "stream-default": stream,
    "stream-linear": lambda: stream(classifier="linear"),
    "stream-wide": wide_stream,
    "rows": rows,
}
