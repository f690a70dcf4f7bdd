"""Evaluate a fitted model on the stream of a target, and on held-out rows of the sources."""

from __future__ import annotations

import numpy as np

from baryflow import OnlineDaDiL
from baryflow.core.dictionary import Points
from baryflow.core.mixture import Mixture
from experiments.scores import Stream, follow

BATCH, FLOWING, HELD = 100, 3000, 6000


def judge(content, problem):
    """Return accuracies on the target and the negative log-likelihoods of a model's bytes."""
    model = OnlineDaDiL.from_bytes(content)
    vars(model).pop("feature_names_in_", None)  # rows have no column names here
    nll = nll_of_sources(model, problem)
    X, y = problem.target(2 * FLOWING)
    stream = Stream(X[:FLOWING], y[:FLOWING], X[FLOWING:], y[FLOWING:])
    found = follow(model, stream, BATCH)
    proba = model.predict_proba(stream.X_held)
    return {
        "before": found["not_adapting_held_out"],
        "flowing": found["flowing"],
        "end": found["held_out"],
        "nll_sources": nll,
        "nll_target": float(-np.log(proba[np.arange(len(proba)), stream.y_held]).mean()),
    }


def nll_of_sources(model, problem):
    """Return the mean negative log-density of rows held out, under the mixture of class and source."""
    learned = model.knowledge_.model
    X, y, source = problem.held_out(HELD)
    total = 0.0
    for number, domain in enumerate(learned.domains):
        rows, classes = X[source == 1 + number], y[source == 1 + number]
        V = learned.project(rows, rows.mean(axis=0), rows.std(axis=0))
        points = Points(domain.points, V.shape[1])
        whose = points.labels.argmax(axis=1)
        for c in np.unique(classes):
            some = whose == c
            weights = domain.weights[some] / domain.weights[some].sum()
            mixture = Mixture(weights, points.means[some], points.stds[some])
            total -= mixture.log_density(V[classes == c]).sum()
    return float(total / len(y))
