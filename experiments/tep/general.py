"""The general transformer against the light encoder, on the same simulated signals.

``python -m experiments.tep.general SIGNALS --runs 5`` needs signals of all six modes (``baryflow tep
simulate``; the simulation need not be complete) and, for ``light``, PyTorch. Protocol as in
:mod:`experiments.tep`: five modes are sources, every fifth run of the sixth (of fewer than five, one) is
kept back, the rest flows past in shuffled batches of 32; accuracy is on what is kept back.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from baryflow import OnlineDaDiL
from baryflow.features import SignalFeatures
from baryflow.features.normal import Normal
from baryflow.features.statistics import Layout, describe
from baryflow.tep.encoders import light as light_encoder
from baryflow.tep.encoders.encoding import _load
from baryflow.tep.signals import read_commissioning, read_signals
from experiments.tep.methods import BATCH
from experiments.tep.problems import FOLDS

MODES = range(1, 7)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("signals", type=Path)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--targets", type=int, nargs="*", default=MODES)
    parser.add_argument("--kinds", nargs="*", choices=MAKERS, default=("light", "general"))
    parser.add_argument("--out", type=Path, help="CSV file: runs, target, kind, source, end")
    options = parser.parse_args(arguments)
    makers = {kind: MAKERS[kind](options.signals, options.runs) for kind in options.kinds}
    found = {kind: [] for kind in makers}
    for target in options.targets:
        for kind, make in makers.items():
            row = scores(*make(target), target)
            found[kind].append(row)
            print(target, kind, *(f"{100 * value:.1f}" for value in row), flush=True)
            if options.out is not None:
                line = [options.runs, target, kind, *(f"{100 * value:.1f}" for value in row)]
                with options.out.open("a") as file:
                    file.write(",".join(map(str, line)) + "\n")
    for kind, rows in found.items():
        print("mean", kind, *(f"{100 * value:.1f}" for value in np.mean(rows, axis=0)))
    return 0


def general(folder, runs):
    """Return what gives the features for a target: statistics, normal by the commissioning runs."""
    held = read_signals(folder, MODES, runs)
    normal = {mode: read_commissioning(folder, mode) for mode in MODES}
    X = np.concatenate([held.X, *normal.values()])
    mask = np.arange(len(X)) >= len(held)
    y = np.concatenate([held.y, np.zeros(mask.sum(), dtype=held.y.dtype)])
    domain = np.concatenate([held.domain, *(np.full(len(part), m) for m, part in normal.items())])

    def make(target):
        marked = np.where(domain == target, -target, domain)
        F = SignalFeatures().fit_transform(X, y, marked, mask)[~mask]
        return F, held.y, held.domain, held.run

    return make


def light(folder, runs):
    """Return what gives the features for a target: the light encoder."""
    _, data = _load(folder, "light", runs)
    return network(data.X, data.y, data.domain, data.run)


def general_network(folder, runs):
    """Return the same with the network of the light encoder on the general statistics."""
    held, layout = read_signals(folder, MODES, runs), Layout.of(600)
    normal = Normal.of({mode: read_commissioning(folder, mode) for mode in MODES}, layout)
    X = np.empty((len(held), len(normal.spread)), dtype=np.float32)
    for mode in MODES:
        rows = held.domain == mode
        X[rows] = normal.deviations(describe(held.X[rows], normal.scale(mode), layout), mode)
    return network(X, held.y, held.domain, held.run)


def network(X, y, domain, run):
    """Return what trains the light encoder's network on the sources of a target, and applies it."""
    import torch

    torch.set_num_threads(1)

    def make(target):
        known = domain != target
        model = light_encoder.train(X[known], y[known], domain[known], random_state=0)
        with torch.no_grad():
            F = model.network[:-1](torch.from_numpy(model.prepared(X))).numpy()
        return F.astype(np.float64), y, domain, run

    return make


MAKERS = {"light": light, "general": general, "general-network": general_network}


def scores(X, y, domain, run, target):
    """Return accuracies on rows kept back: of a source-only regression, and of OnlineDaDiL."""
    known, rows = domain != target, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = LogisticRegression().fit(X[known], y[known])
        fitted = OnlineDaDiL(random_state=0).fit(X[known], y[known], sample_domain=domain[known])
        folds = min(FOLDS, run.max() + 1)
        for fold in range(folds):
            held = ~known & (run % folds == fold)
            flows = np.flatnonzero(~known & (run % folds != fold))
            flows = np.random.default_rng([target, fold]).permutation(flows)
            model = fitted.spawn()
            for i in range(0, len(flows), BATCH):
                model.partial_fit(X[flows[i : i + BATCH]])
            rows.append((source.score(X[held], y[held]), model.score(X[held], y[held])))
    return np.mean(rows, axis=0)


if __name__ == "__main__":
    sys.exit(main())
