"""The cases. Each returns a Result; their order is that of the table."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from baryflow import (
    Mixture,
    MixtureClassifier,
    OnlineGaussianMixture,
    mw2_squared,
    sweep_components,
    w2_squared,
)
from baryflow.core.transport import plan_between
from baryflow.datasets import make_domains
from baryflow.paper import OnlineGMM
from benchmarks import dictionary_cases, estimator_cases, feature_cases, reference, scaling, stream_cases
from benchmarks.harness import Result, best_of, compare, judge

#: Starts over which log-likelihoods are averaged, on every batch.
QUALITY_SEEDS = 10


def features(n_classes=29, n_features=128, n_per_class=100, seed=0):
    """Standardised features of one domain, and their classes."""
    data = make_domains(1, n_classes, n_features, n_per_class, shift=0.0, random_state=seed)
    X = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    return X, data.y


def batches(size, count=24, seed=0):
    """Batches of a stream: half of them class by class, half of them shuffled."""
    X, y = features(seed=seed)
    by_class = X[np.argsort(y, kind="stable")]
    half = count // 2
    start = np.linspace(0, len(X) - size, half).astype(int)
    return [by_class[s : s + size] for s in start] + [X[s : s + size] for s in start]


def bic_sweep(size, k_max, bar) -> Result:
    data = batches(size)
    ks = range(1, k_max + 1)

    def ours():
        return [sweep_components(X, 1, k_max, random_state=i) for i, X in enumerate(data)]

    def theirs():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return [reference.get_best_gmm(X, 1, k_max, seed=i) for i, X in enumerate(data)]

    # Mean log-likelihood for each number of components, over more starts than are timed.
    mine, other = np.zeros(k_max), np.zeros(k_max)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for seed in range(QUALITY_SEEDS):
            for X in data:
                sweep = sweep_components(X, 1, k_max, random_state=seed)
                _, models = reference.get_best_gmm(X, 1, k_max, seed=seed)
                mine += sweep.log_likelihood / size / len(data) / QUALITY_SEEDS
                other += np.array([m.score(X) for m in models]) / len(data) / QUALITY_SEEDS
    below = float(((other - mine) / np.abs(other)).max())
    quality = {
        "mean log-likelihood, ours": [round(float(v), 3) for v in mine],
        "mean log-likelihood, rival": [round(float(v), 3) for v in other],
        "components": list(ks),
        "worst shortfall": round(below, 5),
        "allowed shortfall": 0.005,
        "ok": below <= 0.005,
    }
    return compare(
        f"BIC sweep of a batch {size} x 128, k = 1..{k_max}",
        ours,
        "scikit-learn GaussianMixture(diag)",
        theirs,
        bar=bar,
        calls=len(data),
        quality=quality,
    )


def predict() -> Result:
    rng = np.random.default_rng(0)
    n, d, k = 100_000, 128, 87
    X, y = features(n_per_class=60)
    model = MixtureClassifier(3, random_state=0).fit(X, y)
    assert model.mixture_.n_components == k
    rows = rng.standard_normal((n, d))
    squares, factors = rows * rows, rng.standard_normal((d, k))
    return compare(
        "MixtureClassifier.predict, 100,000 x 128, 87 components",
        lambda: model.predict(rows),
        "the two matrix products it cannot avoid",
        lambda: (squares @ factors, rows @ factors),
        bar=1 / 2.5,
    )


def w2_table() -> Result:
    rng = np.random.default_rng(0)
    m = Mixture(np.full(300, 1 / 300), rng.normal(size=(300, 128)), rng.uniform(0.5, 2, (300, 128)))
    off_diagonal = ~np.eye(300, dtype=bool)
    slow = reference.w2_table_double_loop(m.means, m.stds)
    np.testing.assert_allclose(w2_squared(m)[off_diagonal], slow[off_diagonal], rtol=1e-10)
    return compare(
        "pairwise W2 table, K = 300, d = 128",
        lambda: w2_squared(m),
        "double loop",
        lambda: reference.w2_table_double_loop(m.means, m.stds),
        bar=50,
        rival_rounds=3,
    )


def assignment() -> Result:
    import ot

    rng = np.random.default_rng(0)
    k = 87
    P, Q = (
        Mixture(np.full(k, 1 / k), rng.normal(size=(k, 128)), rng.uniform(0.5, 2, (k, 128)))
        for _ in range(2)
    )
    costs = w2_squared(P, Q)
    plan = plan_between(P.weights, Q.weights, costs)
    value = float(ot.emd2(P.weights, Q.weights, costs))
    quality = {
        "transport cost, ours": float((plan * costs).sum()),
        "transport cost, rival": value,
        "ok": bool(abs(mw2_squared(P, Q) - value) <= 1e-9 * value),
    }
    return compare(
        "plan of two uniform mixtures, K = 87",
        lambda: plan_between(P.weights, Q.weights, costs),
        "POT ot.emd",
        lambda: ot.emd(P.weights, Q.weights, costs),
        bar=1.0,
        rounds=25,
        quality=quality,
    )


def online_batch() -> Result:
    """The paper's own algorithm on both sides, with the mixture already full."""
    data = batches(32, count=60)
    model = OnlineGMM(100, batch_components=5, random_state=0)
    while not hasattr(model, "mixture_") or model.mixture_.n_components < 100:
        for X in data:
            model.partial_fit(X)
    full = model.mixture_
    rival = reference.PaperOnlineMixture(100, 5).start(
        full.weights.copy(), full.means.copy(), full.stds.copy(), full.mass
    )
    some = data[:6]
    default = OnlineGaussianMixture(100)
    for X in data:
        default.partial_fit(X)
    default_s = best_of(lambda: [default.partial_fit(X) for X in some], 5) / len(some)
    return compare(
        "online mixture, a batch 32 x 128, max_components 100 (paper's algorithm)",
        lambda: [model.partial_fit(X) for X in some],
        "scikit-learn and the double loop",
        lambda: [rival.partial_fit(X) for X in some],
        bar=10,
        calls=len(some),
        rounds=5,
        rival_rounds=2,
        quality={"the default configuration, seconds a batch": round(default_s, 6)},
    )


def long_stream(n_batches=10_000) -> Result:
    """Time and memory must not grow with the stream."""
    rng = np.random.default_rng(0)
    centres = 2 * rng.standard_normal((29, 128))
    model = OnlineGaussianMixture(100)
    memory = {}

    def batch():
        return centres[rng.integers(29, size=32)] + rng.standard_normal((32, 128))

    def seconds(one):
        X = batch()
        start = time.perf_counter()
        one.partial_fit(X)
        return time.perf_counter() - start

    for i in range(n_batches - 1_000):
        model.partial_fit(batch())
        if i + 1 == 1_000:
            young = copy.deepcopy(model)
            memory["resident MiB after 1000 batches"] = round(_resident() / 2**20, 1)
    # Batches 1,000 to 2,000 of a twin and the last 1,000 take turns: a busy moment hits both alike.
    pairs = np.array([(seconds(young), seconds(model)) for _ in range(1_000)])
    early, late = (float(column.mean()) for column in pairs.T)
    memory[f"resident MiB after {n_batches} batches"] = round(_resident() / 2**20, 1)
    first, last = memory.values()
    return judge(
        "online mixture, last 1,000 of 10,000 batches 32 x 128, max_components 100",
        late,
        "its own batches 1,000 to 2,000, in turn",
        early,
        1 / 1.2,
        {**memory, "allowed growth, MiB": 8, "ok": last <= first + 8},
    )


def _resident() -> int:
    """Resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def import_time() -> Result:
    """Whole processes, alternately; the interpreter's own start is taken off both."""

    def seconds(statement):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        return time.perf_counter() - start

    times = {s: [] for s in ("pass", "import baryflow", "import sklearn.mixture")}
    for _ in range(9):
        for statement, found in times.items():
            found.append(seconds(statement))
    empty, ours_s, rival_s = (float(np.median(t)) for t in times.values())
    ours_s, rival_s = ours_s - empty, rival_s - empty
    return judge("import baryflow", ours_s, "import sklearn.mixture", rival_s, 1 / 1.5)


CASES = {
    "sweep-32": lambda: bic_sweep(32, 3, bar=12),
    "sweep-256": lambda: bic_sweep(256, 5, bar=6),
    "predict": predict,
    "w2-table": w2_table,
    "assignment": assignment,
    "online-batch": online_batch,
    "long-stream": long_stream,
    **dictionary_cases.CASES,
    **estimator_cases.CASES,
    **stream_cases.CASES,
    **scaling.CASES,
    **feature_cases.CASES,
    "import": import_time,
}
