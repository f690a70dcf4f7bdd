"""Every method on every order and seed: one row of the CSV each."""

from __future__ import annotations

import time

import numpy as np

from baryflow import OnlineGaussianMixture, fit_mixture, mw2_squared
from baryflow.datasets import make_crescents
from experiments.toy.rivals import KLRival, StepwiseEM

BATCH = 32
SIZES = {"max_components": 15, "min_components": 5, "batch_components": 3}
ORDERS = ("ordered", "interleaved", "shuffled")
FIELDS = ("order", "seed", "method", "nll", "mw2_squared_to_offline", "n_components", "seconds")

METHODS = {
    "default": lambda seed: OnlineGaussianMixture(SIZES["max_components"], random_state=seed),
    "rows": lambda seed: OnlineGaussianMixture(SIZES["max_components"], resolution=1, random_state=seed),
    "paper": lambda seed: OnlineGaussianMixture.paper(**SIZES, random_state=seed),
    "kl": lambda seed: KLRival(**SIZES, random_state=seed),
    "stepwise": lambda seed: StepwiseEM(SIZES["max_components"], random_state=seed),
}


def merged_shards(X, seed, n_shards=8):
    """Cut the stream into consecutive parts, summarise each alone, merge in a random order."""
    partitions = []
    for part in np.array_split(X, n_shards):
        model = METHODS["default"](seed)
        for batch in np.array_split(part, range(BATCH, len(part), BATCH)):
            model.partial_fit(batch)
        partitions.append(model)
    whole = METHODS["default"](seed)
    for partition in np.random.default_rng(seed).permutation(n_shards):
        whole.merge(partitions[partition])
    return whole.mixture_


def one_seed(order, seed, n_per_cluster=200):
    """Yield a row for each method."""
    X, _ = make_crescents(n_per_cluster, order=order, random_state=seed)
    test, _ = make_crescents(5 * n_per_cluster, order="shuffled", random_state=10_000 + seed)
    start = time.perf_counter()
    offline = fit_mixture(X, SIZES["max_components"], n_init=10, random_state=seed)
    found = {"offline": (offline, time.perf_counter() - start)}
    for name, make in METHODS.items():
        start = time.perf_counter()
        model = make(seed)
        for batch in np.array_split(X, range(BATCH, len(X), BATCH)):
            model.partial_fit(batch)
        found[name] = (model.mixture_, time.perf_counter() - start)
    start = time.perf_counter()
    found["shards"] = (merged_shards(X, seed), time.perf_counter() - start)
    for name, (mixture, seconds) in found.items():
        yield {
            "order": order,
            "seed": seed,
            "method": name,
            "nll": round(-float(mixture.log_density(test).mean()), 5),
            "mw2_squared_to_offline": round(mw2_squared(mixture, offline), 5),
            "n_components": mixture.n_components,
            "seconds": round(seconds, 4),
        }


def table(rows):
    """Return mean ± std of the NLL and the mean distance to the offline fit, as Markdown."""
    lines = [
        "| method | " + " | ".join(f"{o}: NLL | vs offline | MW2²" for o in ORDERS) + " |",
        "|---|" + "---|" * (3 * len(ORDERS)),
    ]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    for method in methods:
        cells = []
        for order in ORDERS:
            mine = [r for r in rows if (r["order"], r["method"]) == (order, method)]
            base = np.mean([r["nll"] for r in rows if (r["order"], r["method"]) == (order, "offline")])
            nll = np.array([r["nll"] for r in mine])
            distance = np.mean([r["mw2_squared_to_offline"] for r in mine])
            cells += [
                f"{nll.mean():.3f} ± {nll.std():.3f}",
                f"{100 * (nll.mean() / base - 1):+.1f} %",
                f"{distance:.3f}",
            ]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
