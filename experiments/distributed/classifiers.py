"""Classifiers from a sample, or exact over partitions: which is better, and what does it cost?

``python -m experiments.distributed.classifiers`` writes ``results/classifiers.csv``. Samples of 5,000 to
200,000 rows stand against L-BFGS on the loss of all rows, whose gradient is summed over partitions: one
look at all rows for each evaluation, and two classifiers. All else of the models is the same. Three data
sets; a line that is there already is not made again.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from baryflow import OnlineDaDiL
from baryflow.distributed import connect, fit
from baryflow.distributed.fitting.fit import Fit
from baryflow.estimators._classifiers import Linear
from experiments.distributed.client import new_model, read
from experiments.distributed.data import FOLDER, Problem, load, save
from experiments.distributed.judged import judge

SAMPLES, SEEDS, ROWS, COLUMNS = (5_000, 20_000, 50_000, 200_000), (0, 1, 2), 400_000, 32
#: As in the library: inverse strength of the penalty, and iterations.
C, STEPS = 0.1, 100


class ExactFit:
    """Multinomial logistic regression of all rows, by tasks: as ``fit_linear`` has it."""

    def __init__(self, client, parts, roll, own):
        self.client, self.parts, self.roll, self.own = client, parts, roll, own
        self.looks = 0

    def loss(self, flat):
        """Return loss and gradient of all rows: the mean, with the strength of the library's."""
        self.looks += 1
        task = partial(_sum_piece, self.parts.reader, self.roll, self.own)
        futures = self.client.map(task, self.parts.pieces, coefficients=flat, pure=False)
        found = self.client.gather(futures)  # small: a number and a gradient each
        n = self.roll.table.counts.sum()
        table = flat.reshape(-1, self.roll.table.n_classes)
        held = np.vstack([table[:-1], np.zeros((1, table.shape[1]))])  # intercepts are free
        value = sum(one for one, _ in found) + 0.5 / C * np.square(held).sum()
        return value / n, (sum(one for _, one in found) + held / C).ravel() / n

    def fit(self):
        d, n_classes = self.roll.table.means.shape[2], self.roll.table.n_classes
        options = {"maxiter": STEPS, "maxls": 50, "gtol": 1e-4, "ftol": 64 * np.finfo(float).eps}
        start = np.zeros((d + 1) * n_classes)
        found = minimize(self.loss, start, jac=True, method="L-BFGS-B", options=options)
        table = found.x.reshape(-1, n_classes)
        return Linear(table[:-1], table[-1])


def _sum_piece(reader, roll, own, piece, coefficients):
    """Return loss and gradient of the rows of a piece."""
    table, n_classes = roll.table, roll.table.n_classes
    coefficients = coefficients.reshape(-1, n_classes)
    value, gradient = 0.0, np.zeros_like(coefficients)
    for block in reader.blocks(piece):
        X, codes, whose = roll.place(block)
        Z = (X - table.centre) / table.scale
        if own:
            for source in np.unique(whose):
                Z[whose == source] = table.standardise(X[whose == source], source)
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
    """Return a model like the given one, with exact classifiers, and what they took."""
    began = time.perf_counter()
    roll = Fit(new_linear(), parts, client=client).count()[1]
    fits = [ExactFit(client, parts, roll, own) for own in (False, True)]
    pooled, own = (one.fit() for one in fits)
    seconds = time.perf_counter() - began
    model = OnlineDaDiL.from_bytes(content)
    knowledge = model.tracker.knowledge
    knowledge = replace(knowledge, plain=replace(knowledge.plain, raw=[pooled], per_domain=[own]))
    model = new_linear().adopt(knowledge, roll.classes, roll.sources, parts.columns)
    return model.to_bytes(), seconds, sum(one.looks for one in fits)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default=FOLDER)
    parser.add_argument("--rows", type=int, default=ROWS)
    options = parser.parse_args(arguments)
    done = {(int(row["seed"]), row["how"]) for row in load("classifiers")}
    with connect("local", 2) as client:
        for seed in SEEDS:
            problem = Problem(n_columns=COLUMNS, seed=seed)
            parts = read(problem.write(options.folder, options.rows), piece_bytes=8 << 20)

            def keep(how, content, seconds, looks, seed=seed, problem=problem):
                figures = {"seed": seed, "how": how, "seconds": seconds, "looks_at_all_rows": looks}
                save("classifiers", [figures | judge(content, problem)], append=True)

            for n in SAMPLES:
                if (seed, f"sample {n}") not in done:
                    began = time.perf_counter()
                    model = fit(new_linear(), parts, sample_rows=n, client=client)
                    # Of the whole model: the rest of it takes as long whatever the classifiers are.
                    keep(f"sample {n}", model.to_bytes(), time.perf_counter() - began, 3)
            if (seed, "exact") not in done:
                model = fit(new_linear(), parts, sample_rows=50_000, client=client)
                keep("exact", *fit_exactly(client, parts, model.to_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
