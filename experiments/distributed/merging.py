"""Mixtures of classes from partitions: merged from mixtures of each, or one step from a sample?

``python -m experiments.distributed.merging`` writes ``results/merging.csv``: the negative log-likelihood
of all rows of a class of a source, the mean over classes and sources, in three data sets of
``make_domains`` with 4,000 rows a class and source. In the view classes have little structure, so one
component is the bar to be under, and two components of all rows in memory are what can be had.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.core.em import Climb, Reference, StandardisedRows, distinct_rows, fit_rows, seed_indices
from baryflow.core.mixture import Mixture
from baryflow.core.summary import reduce_components
from baryflow.datasets import make_domains
from baryflow.estimators._sources import mix_class
from experiments.distributed.data import save

SEEDS, N_PER_CLASS, KEPT, WIDTH = (0, 1, 2), 4000, 2, 8
PIECES, FINE = (4, 16, 64), (4, 8, 16)
SAMPLES, STEPS = (100, 200, 300, 1000), (0, 1, 2, 5)


def cells_of(seed):
    """Return the rows of every class of every source in the view, and the spread that is usual."""
    p = make_domains(n_per_class=N_PER_CLASS, random_state=seed)
    model = OnlineDaDiL(random_state=0, validate=False).fit(p.X, p.y, sample_domain=p.domain)
    learned = model.knowledge_.model
    cells = []
    for source in np.unique(p.domain):
        rows, y = p.X[p.domain == source], p.y[p.domain == source]
        V = learned.project(rows, rows.mean(axis=0), rows.std(axis=0))
        cells += [V[y == c] for c in np.unique(y)]
    return cells, learned.unit


def nll(mixture, V):
    return float(-mixture.log_density(V).mean())


def mix_piece(V, unit, k):
    rows, weights = distinct_rows(V, np.ones(len(V)))
    reference = Reference(V.mean(axis=0), unit)
    k = min(k, max(1, len(V) // 5))
    return fit_rows(
        rows, weights, reference, min_components=k, max_iter=20, std_floor=1e-2,
        rng=np.random.default_rng(0),
    ).mixture  # fmt: skip


def merge(mixtures, most):
    """Merge components of all mixtures, keeping moments, the cheapest pair in Ward's sense first."""
    mass = np.concatenate([one.mass * one.weights for one in mixtures])
    means, stds = (
        np.concatenate([getattr(one, name) for one in mixtures]) for name in ("means", "stds")
    )
    return reduce_components(mass, means, stds, most, std_floor=0.0)


def refit(mixture, unit, k, starts):
    """Fit k components to the components of a finer mixture by EM; the best of some starts."""
    mass = mixture.mass * mixture.weights
    rows = StandardisedRows.of_components(mass, mixture.means, mixture.stds, np.zeros_like(unit), unit)
    uniforms = np.random.default_rng(0).random((starts, k, 2 + int(np.log(k))))
    seeds = [seed_indices(rows.Z, rows.weights, draws) for draws in uniforms]
    found = [Climb.from_seeds(rows, some, 1e-2).run(50, 1e-3 * mixture.mass) for some in seeds]
    shares, means, stds = max(found, key=lambda one: one.trace[-1]).parameters
    keep = shares > 1e-12
    weights = shares[keep] / shares[keep].sum()
    return Mixture(weights, means[keep] * unit, stds[keep] * unit, mass=mixture.mass)


def step(mixture, V, unit):
    """Return the mixture after a step of EM with all rows."""
    posterior = mixture.posterior(V)
    masses = posterior.sum(axis=0)
    means = posterior.T @ V / masses[:, None]
    variances = posterior.T @ np.square(V) / masses[:, None] - np.square(means)
    stds = np.maximum(np.sqrt(np.maximum(variances, 0.0)), 1e-2 * unit)
    return Mixture(masses / masses.sum(), means, stds, mass=len(V))


def merged(cells, unit, n_pieces, k):
    """Return the figures of mixtures merged as a tree, and reduced to two components in three ways."""
    found = []
    for V in cells:
        level = [mix_piece(part, unit, k) for part in np.array_split(V, n_pieces)]
        while len(level) > 1:
            level = [merge(level[i : i + WIDTH], k) for i in range(0, len(level), WIDTH)]
        fine = level[0]
        reduced = merge([fine], KEPT), refit(fine, unit, KEPT, 1), refit(fine, unit, KEPT, 4)
        found.append([nll(one, V) for one in (fine, *reduced)])
    names = (f"{k} components", "reduced by Ward", "reduced by EM", "reduced by EM, 4 starts")
    return dict(zip(names, np.mean(found, axis=0).tolist(), strict=True))


def sampled(cells, unit, n):
    """Return the figures of mixtures of a sample, after some steps of EM with all rows."""
    rng, found = np.random.default_rng(0), []
    for V in cells:
        mixture, line = mix_class(V[rng.permutation(len(V))[:n]], unit, KEPT, 0), []
        for number in range(max(STEPS) + 1):
            line.append(nll(mixture, V))
            mixture = step(mixture, V, unit) if number < max(STEPS) else mixture
        found.append([line[number] for number in STEPS])
    return dict(zip([f"{n} steps" for n in STEPS], np.mean(found, axis=0).tolist(), strict=True))


def main(arguments=None):
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(arguments)
    table = []
    for seed in SEEDS:
        cells, unit = cells_of(seed)

        def note(how, then, value, seed=seed):
            table.append({"seed": seed, "how": how, "then": then, "nll": value})

        for k, what in ((1, "one component"), (KEPT, "in memory")):
            note(what, "", float(np.mean([nll(mix_class(V, unit, k, 0), V) for V in cells])))
        for n_pieces in PIECES:
            for k in FINE:
                for then, value in merged(cells, unit, n_pieces, k).items():
                    note(f"{n_pieces} pieces, {k} components each", then, value)
        for n in SAMPLES:
            for then, value in sampled(cells, unit, n).items():
                note(f"sample of {n}", then, value)
    save("merging", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
