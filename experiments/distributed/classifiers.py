"""Classifiers from a sample, or exact over partitions: which is better, and what does it cost?

``python -m experiments.distributed.classifiers`` writes ``results/classifiers.csv``. Samples of 5,000 to
200,000 rows stand against L-BFGS on the loss of all rows, whose gradient is summed over partitions: one
pass over all rows for each evaluation, and two classifiers. The rest of the models is the same. Three
data sets; results that exist are not computed again.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
from baryflow.distributed.fitting.fit import Fit
from scipy.optimize import minimize
from scipy.special import log_softmax

from baryflow import OnlineDaDiL
from baryflow.distributed import connect, fit
from baryflow.estimators._classifiers import Linear
from experiments.distributed.client import new_model, read
from experiments.distributed.data import FOLDER, Problem, load, save
from experiments.distributed.judged import judge

SAMPLES, SEEDS, ROWS, COLUMNS = (5_000, 20_000, 50_000, 200_000), (0, 1, 2), 400_000, 32
#: As in the library: inverse strength of the penalty, and iterations.
C, STEPS = 0.1, 100


class ExactFit:
    """Multinomial logistic regression of all rows, by tasks: as ``fit_linear`` has it."""

    def __init__(self, client, parts, catalog, own):
        self.client, self.parts, self.catalog, self.own = client, parts, catalog, own
        self.passes = 0

    def loss(self, flat):
        """Return loss and gradient of all rows: the mean, with the strength of the library's."""
        self.passes += 1
        task = partial(_sum_partition, self.parts.reader, self.catalog, self.own)
        futures = self.client.map(task, self.parts.partitions, coefficients=flat, pure=False)
        found = self.client.gather(futures)  # small: a number and a gradient each
        n = self.catalog.table.counts.sum()
        table = flat.reshape(-1, self.catalog.table.n_classes)
        held = np.vstack([table[:-1], np.zeros((1, table.shape[1]))])  # intercepts are free
        value = sum(one for one, _ in found) + 0.5 / C * np.square(held).sum()
        return value / n, (sum(one for _, one in found) + held / C).ravel() / n

    def fit(self):
        d, n_classes = self.catalog.table.means.shape[2], self.catalog.table.n_classes
        options = {"maxiter": STEPS, "maxls": 50, "gtol": 1e-4, "ftol": 64 * np.finfo(float).eps}
        start = np.zeros((d + 1) * n_classes)
        found = minimize(self.loss, start, jac=True, method="L-BFGS-B", options=options)
        table = found.x.reshape(-1, n_classes)
        return Linear(table[:-1], table[-1])


def _sum_partition(reader, catalog, own, partition, coefficients):
    """Return loss and gradient of the rows of a partition."""
    table, n_classes = catalog.table, catalog.table.n_classes
    coefficients = coefficients.reshape(-1, n_classes)
    value, gradient = 0.0, np.zeros_like(coefficients)
    for block in reader.blocks(partition):
        X, codes, sources = catalog.encode(block)
        Z = (X - table.centre) / table.scale
        if own:
            for source in np.unique(sources):
                Z[sources == source] = table.standardise(X[sources == source], source)
        logs = log_softmax(Z @ coefficients[:-1] + coefficients[-1], axis=1)
        rows = np.arange(len(codes))
        value -= logs[rows, codes].sum()
        errors = np.exp(logs)
        errors[rows, codes] -= 1.0
        gradient[:-1] += Z.T @ errors
        gradient[-1] += errors.sum(axis=0)
    return value, gradient


def new_linear():
    return new_model().set_params(classifier="linear")


def fit_exactly(client, parts, content):
    """Return a model like the given one with exact classifiers, their seconds and passes."""
    began = time.perf_counter()
    catalog = Fit(new_linear(), parts, client=client).count()[1]
    fits = [ExactFit(client, parts, catalog, own) for own in (False, True)]
    pooled, own = (one.fit() for one in fits)
    seconds = time.perf_counter() - began
    model = OnlineDaDiL.from_bytes(content)
    knowledge = model.knowledge_
    knowledge = replace(knowledge, plain=replace(knowledge.plain, raw=[pooled], per_domain=[own]))
    model = new_linear().adopt(knowledge, catalog.classes, catalog.sources, parts.columns)
    return model.to_bytes(), seconds, sum(one.passes for one in fits)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default=FOLDER)
    parser.add_argument("--rows", type=int, default=ROWS)
    options = parser.parse_args(arguments)
    done = {(int(row["seed"]), row["how"]) for row in load("classifiers")}
    with connect("local", 2) as client:
        for seed in SEEDS:
            problem = Problem(n_columns=COLUMNS, seed=seed)
            parts = read(problem.write(options.folder, options.rows), partition_bytes=8 << 20)

            def keep(how, content, seconds, passes, seed=seed, problem=problem):
                figures = {"seed": seed, "how": how, "seconds": seconds, "looks_at_all_rows": passes}
                save("classifiers", [figures | judge(content, problem)], append=True)

            for n in SAMPLES:
                if (seed, f"sample {n}") not in done:
                    began = time.perf_counter()
                    model = fit(new_linear(), parts, sample_rows=n, client=client)
                    # Time of the whole model: the rest takes as long with any classifiers.
                    keep(f"sample {n}", model.to_bytes(), time.perf_counter() - began, 3)
            if (seed, "exact") not in done:
                model = fit(new_linear(), parts, sample_rows=50_000, client=client)
                keep("exact", *fit_exactly(client, parts, model.to_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
