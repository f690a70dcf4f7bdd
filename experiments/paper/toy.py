"""The paper's toy: three curved clusters as a stream, every method on every order and seed."""

from __future__ import annotations

import time

import numpy as np

from baryflow import Mixture, OnlineGaussianMixture, fit_mixture, mw2_squared
from baryflow.datasets import make_crescents
from baryflow.paper import OnlineGMM

BATCH = 32
PAGE = "docs/method/online-mixture.md"
SIZES = {"max_components": 15, "min_components": 5, "batch_components": 3}
ORDERS = ("ordered", "interleaved", "shuffled")
FIELDS = ("order", "seed", "method", "nll", "mw2_squared_to_offline", "n_components", "seconds")


class StepwiseEM:
    """Mini-batch EM: sufficient statistics move towards each batch's own by a step (t + 2)^-power."""

    def __init__(self, n_components, power=0.6, random_state=0):
        self.n_components, self.power = n_components, power
        self.rng = np.random.default_rng(random_state)
        self.mixture_ = None
        self.t = 0

    def partial_fit(self, X):
        if self.mixture_ is None:
            self.mixture_ = fit_mixture(X, self.n_components, random_state=self.rng)
            self.floor = 1e-2 * X.std(axis=0)
            self.statistics = self._statistics(X)
            return self
        self.t += 1
        step = (self.t + 2) ** -self.power
        batch = self._statistics(X)
        self.statistics = [
            (1 - step) * old + step * new for old, new in zip(self.statistics, batch, strict=True)
        ]
        counts, sums, squares = self.statistics
        counts = np.maximum(counts, 1e-12)
        means = sums / counts[:, None]
        variances = squares / counts[:, None] - means**2
        stds = np.sqrt(np.maximum(variances, self.floor**2))
        mass = self.mixture_.mass + len(X)
        self.mixture_ = Mixture(counts / counts.sum(), means, stds, mass=mass)
        return self

    def _statistics(self, X):
        shares = self.mixture_.posterior(X) / len(X)
        return [shares.sum(axis=0), shares.T @ X, shares.T @ X**2]


METHODS = {
    "default": lambda _: OnlineGaussianMixture(SIZES["max_components"]),
    "rows": lambda _: OnlineGaussianMixture(SIZES["max_components"], resolution=1),
    "paper": lambda seed: OnlineGMM(**SIZES, random_state=seed),
    "kl": lambda seed: OnlineGMM(**SIZES, compression="kullback-leibler", random_state=seed),
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
            base = np.mean(_values(rows, order, "offline", "nll"))
            nll = np.array(_values(rows, order, method, "nll"))
            distance = np.mean(_values(rows, order, method, "mw2_squared_to_offline"))
            cells += [
                f"{nll.mean():.3f} ± {nll.std():.3f}",
                f"{100 * (nll.mean() / base - 1):+.1f} %",
                f"{distance:.3f}",
            ]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _values(rows, order, method, figure):
    return [float(r[figure]) for r in rows if (r["order"], r["method"]) == (order, method)]
