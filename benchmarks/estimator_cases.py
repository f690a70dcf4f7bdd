"""What it costs to learn sources and to follow a wide stream, in units of what cannot be avoided."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from baryflow import OnlineDaDiL
from baryflow.datasets import load_tep, make_domains
from benchmarks.harness import Result, best_of, judge

#: Streams a saved model over rows in a file, and says how much memory that took at most.
_STREAM = """
import re, sys
from pathlib import Path
import numpy as np
import baryflow
model = baryflow.load(sys.argv[1])
for batch in np.load(sys.argv[2]):
    model.predict(batch)
    model.partial_fit(batch)
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024)
"""


def cpu(function):
    start = time.process_time()
    found = function()
    return time.process_time() - start, found


def plant(runs=25):
    """Return sources and target of the embedded plant data: 3,625 labelled rows, or all 7,250."""
    data = load_tep(runs=runs)
    source, X = ~data.is_target, data.X.astype(np.float64)
    return X[source], data.y[source], data.domain[source], X[~source]


def fit_with_everything_decided() -> Result:
    """``fit`` against the plain classifiers that it cannot avoid, in CPU time."""
    X, y, domain, _ = plant()

    def classifiers():
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for Z in two_spaces(X, domain):
                found += [LogisticRegression(C=0.1).fit(Z, y), SVC(C=3.0).fit(Z, y)]
                trees = ExtraTreesClassifier(100, bootstrap=True, oob_score=True, random_state=0)
                found.append(trees.fit(Z, y))
        return found

    def ours():
        return OnlineDaDiL(n_jobs=1, random_state=0).fit(X, y, sample_domain=domain)

    rounds = [(cpu(ours)[0], cpu(classifiers)[0]) for _ in range(3)]
    ours_s, rival_s = (min(times) for times in zip(*rounds, strict=True))
    return judge(
        f"OnlineDaDiL.fit, {len(X):,} x {X.shape[1]}, 29 classes, 5 sources (CPU)",
        ours_s,
        "six plain classifiers",
        rival_s,
        1 / 8,
    )


def two_spaces(X, domain):
    """Return rows standardised together, and domain by domain."""
    own = np.empty_like(X)
    for name in np.unique(domain):
        rows = X[domain == name]
        own[domain == name] = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    return (X - X.mean(axis=0)) / X.std(axis=0), own


def fit_linear() -> Result:
    """``fit`` with one plain classifier against two logistic regressions, with all rows of the plant."""
    X, y, domain, _ = plant(runs=50)

    def regressions():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return [LogisticRegression(C=0.1).fit(Z, y) for Z in two_spaces(X, domain)]

    def ours():
        model = OnlineDaDiL(classifier="linear", n_jobs=1, random_state=0)
        return model.fit(X, y, sample_domain=domain)

    rounds = [(cpu(ours)[0], cpu(regressions)[0]) for _ in range(3)]
    ours_s, rival_s = (min(times) for times in zip(*rounds, strict=True))
    return judge(
        f"OnlineDaDiL(classifier='linear').fit, {len(X):,} x {X.shape[1]}, 29 classes (CPU)",
        ours_s,
        "two logistic regressions",
        rival_s,
        1 / 5,
    )


#: Fits sources in a file, and says how long that took and how much memory in all.
_FIT = """
import re, sys, time
from pathlib import Path
import numpy as np
from baryflow import OnlineDaDiL
X, labels = np.load(sys.argv[1]), np.load(sys.argv[2])
start = time.process_time()
model = OnlineDaDiL(keep_sources=False, n_jobs=1, random_state=0)
model.fit(X, labels["y"], sample_domain=labels["domain"])
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
print(time.process_time() - start, peak)
"""


def wide_fit() -> Result:
    """``fit`` of 20,000 x 4,096, 200 classes, against one covariance of the rows; and its memory."""
    data = make_domains(5, 200, 4096, 20, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "rows.npy", data.X)
        np.savez(Path(folder) / "labels.npz", y=data.y, domain=data.domain)
        said = subprocess.run(
            [sys.executable, "-c", _FIT, *(str(Path(folder) / n) for n in ("rows.npy", "labels.npz"))],
            check=True,
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
    seconds, memory = map(float, said.stdout.split())
    rival_s = cpu(lambda: data.X.T @ data.X)[0]
    quality = {"peak memory with 655 MB of rows, MB": round(memory), "ok": memory <= 2048.0}
    return judge(
        "OnlineDaDiL.fit, 20,000 x 4,096, 200 classes (CPU)",
        seconds,
        "X.T @ X",
        rival_s,
        1 / 15,
        quality,
    )


def wide_stream() -> Result:
    """A batch of 32 x 2,048 against one of 32 x 128, and the memory of the stream."""
    times, memory = {}, 0.0
    for d in (128, 2048):
        data = make_domains(5, 29, d, 25, random_state=0)
        model = OnlineDaDiL(validate=False, keep_sources=False, random_state=0)
        model.fit(data.X, data.y, sample_domain=data.domain)
        batches = data.X_target[: 32 * 20].reshape(20, 32, d)
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "model.bary")
            np.save(Path(folder) / "rows.npy", batches)
            arguments = [str(Path(folder) / name) for name in ("model.bary", "rows.npy")]
            said = subprocess.run(
                [sys.executable, "-c", _STREAM, *arguments],
                check=True,
                capture_output=True,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
            memory = float(said.stdout)
        for batch in batches[:10]:
            model.partial_fit(batch)
        times[d] = best_of(lambda m=model, b=batches: [m.partial_fit(x) for x in b[10:]], 3) / 10
    quality = {"peak memory of the stream of 2,048 columns, MB": round(memory), "ok": memory <= 400.0}
    return judge(
        "OnlineDaDiL.partial_fit, 32 x 2,048, 29 classes", times[2048], "32 x 128", times[128], 1 / 3,
        quality,
    )  # fmt: skip


def many_sources() -> Result:
    """``fit`` with 30 sources of 80 rows and 8 columns: what deciding costs."""
    return _deciding("30 sources x 80 rows x 8 columns", make_domains(30, 8, 8, 10, random_state=0))


def many_classes() -> Result:
    """``fit`` with 200 classes and 3 sources: what deciding costs."""
    return _deciding("3 sources, 200 classes x 20 rows", make_domains(3, 200, 32, 20, random_state=0))


def _deciding(name, data) -> Result:
    def fit(**how):
        return OnlineDaDiL(n_jobs=1, random_state=0, **how).fit(
            data.X, data.y, sample_domain=data.domain
        )

    ours_s, rival_s = cpu(fit)[0], cpu(lambda: fit(validate=False))[0]
    rival = "the same, nothing decided"
    return judge(f"OnlineDaDiL.fit, {name} (CPU)", ours_s, rival, rival_s, 1 / 10)


CASES = {
    "fit": fit_with_everything_decided,
    "fit-linear": fit_linear,
    "wide-fit": wide_fit,
    "wide-stream": wide_stream,
    "many-sources": many_sources,
    "many-classes": many_classes,
}
