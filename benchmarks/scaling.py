"""How costs grow: one size at a time, everything else held."""

from __future__ import annotations

import numpy as np

from baryflow import Mixture, barycenter, transport_plan
from benchmarks.harness import Curve, best_of, cpu_seconds
from benchmarks.stream_cases import BATCH, fitted, follow, mix, problem

#: The sizes that are held; one of them grows in each panel.
HELD = {"n_sources": 5, "n_classes": 10, "n_features": 32, "n_rows": 960}
OURS, MIXTURE = "predict + partial_fit", "bare mixture (partial_fit)"


def grow(label: str, parameter: str, sizes: list[int]) -> Curve:
    """Time a row of the stream, and of a mixture with three components a class, for each size."""
    costs: dict[str, list[float | None]] = {OURS: [], MIXTURE: []}
    for size in sizes:
        how = HELD | {parameter: size}
        sources, batches, _ = problem(**how, per_class=15)
        model = fitted(sources, classifier="linear", validate=False)
        follow(model.spawn(), batches[:2])  # imports
        n, k = sum(map(len, batches)), 3 * how["n_classes"]
        rounds = range(1 if n > 5_000 else 2)
        costs[OURS].append(
            min(cpu_seconds(lambda m=model, b=batches: follow(m.spawn(), b)) for _ in rounds) / n
        )
        costs[MIXTURE].append(min(cpu_seconds(lambda b=batches, k=k: mix(b, k)) for _ in rounds) / n)
    return Curve(label, label, "CPU time of a row", sizes, costs)


def targets(sizes: list[int]) -> Curve:
    """Follow several targets in turn, batch by batch: what switching between them costs."""
    sources, batches, _ = problem(**HELD, per_class=15)
    model = fitted(sources, classifier="linear", validate=False)
    follow(model.spawn(), batches[:2])
    few = batches[:5]

    def all_at_once(n):
        trackers = [model.spawn() for _ in range(n)]
        for batch in few:
            for tracker in trackers:
                tracker.predict(batch)
                tracker.partial_fit(batch)

    def all_mixed(n):
        for _ in range(n):
            mix(few, 3 * HELD["n_classes"])

    n_rows = len(few) * BATCH
    costs = {
        name: [cpu_seconds(lambda f=flow, n=n: f(n)) / n / n_rows for n in sizes]
        for name, flow in ((OURS, all_at_once), (MIXTURE, all_mixed))
    }
    return Curve("targets", f"targets, {n_rows} rows of each", "CPU time of a row", sizes, costs)


def transport(sizes: list[int]) -> list[Curve]:
    """Plans and barycenters of mixtures in 128 dimensions, against POT on the same points."""
    found = [_transport(k) for k in sizes]
    plans = {name: [plan[name] for plan, _ in found] for name in found[0][0]}
    centres = {name: [centre[name] for _, centre in found] for name in found[0][1]}
    label = "components of each mixture"
    return [
        Curve("an optimal plan", label, "time", sizes, plans),
        Curve("a barycenter of four mixtures", label, "time", sizes, centres),
    ]


def _transport(k: int) -> tuple[dict[str, float], dict[str, float]]:
    import ot

    rng, uniform = np.random.default_rng(0), np.full(k, 1 / k)
    some = [Mixture(uniform, rng.normal(size=(k, 128)), rng.uniform(0.5, 2, (k, 128))) for _ in range(4)]
    points = [np.hstack([m.means, m.stds]) for m in some]
    plans = {
        "baryflow": best_of(lambda: transport_plan(some[0], some[1]), 5),
        "POT: ot.dist, ot.emd": best_of(lambda: ot.emd(uniform, uniform, ot.dist(*points[:2])), 5),
    }
    # The same fixed point from the same start, to the end.
    centres = {
        "baryflow": best_of(lambda: barycenter(some, start=some[0]), 3),
        "POT: free_support_barycenter": best_of(
            lambda: ot.lp.free_support_barycenter(points, [uniform] * 4, points[0], uniform), 3
        ),
    }
    return plans, centres


CASES = {
    "scaling-rows": lambda: grow("rows of the stream", "n_rows", [100, 320, 1_000, 3_200, 10_000]),
    "scaling-columns": lambda: grow("columns", "n_features", [8, 32, 128, 512, 2_048]),
    "scaling-classes": lambda: grow("classes", "n_classes", [2, 5, 10, 20, 50, 100]),
    "scaling-sources": lambda: grow("sources", "n_sources", [2, 4, 8, 16, 32]),
    "scaling-targets": lambda: targets([1, 3, 10, 30, 100]),
    "scaling-transport": lambda: transport([10, 30, 100, 300]),
}
