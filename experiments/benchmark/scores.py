"""Let streams flow past a method that has learned the sources, and keep score."""

from __future__ import annotations

import time

import numpy as np

from experiments.benchmark import streams

BATCH = 32
#: Labels in all, of random rows, given after the stream; how often they are drawn.
LABELS, DRAWS = {"1 label": 1, "3 labels": 3, "5 labels": 5}, 2
KNOWLEDGE = ("none", *LABELS, "baseline", "class prior")
#: Kinds of streams for which the class proportions are given.
WITH_PRIOR = ("80 % one class",)
FIGURES = ("rows", "flowing", "flowing_balanced", "end", "end_balanced", "claimed", "seconds")


def wanted(method, kind):
    """Return what a method can be given, by its public names."""
    if not method.flows and kind in streams.ORDERS:
        return []
    found = ["none"]
    if hasattr(method, "learn"):
        found += LABELS
    if hasattr(method, "set_baseline"):
        found += ["baseline"]
    if hasattr(method, "set_prior") and kind in WITH_PRIOR:
        found += ["class prior"]
    return found


def measure(fitted, stream, knowledge, n_classes):
    """Yield (kind of knowledge, figures) for all that is asked for; `fitted` stays as it is."""
    if {"none", *LABELS} & set(knowledge):
        method = fitted.copy()
        found = {"none": flow(method, stream)}
        found |= {
            name: _with_labels(method, stream, LABELS[name]) for name in LABELS if name in knowledge
        }
        yield from ((name, found[name]) for name in knowledge if name in found)
    if "baseline" in knowledge:
        method = fitted.copy()
        method.set_baseline(*stream.baseline)
        yield "baseline", flow(method, stream)
    if "class prior" in knowledge:
        method = fitted.copy()
        method.set_prior(streams.proportions(stream, n_classes))
        yield "class prior", flow(method, stream)


def flow(method, stream):
    """Predict each batch, then learn from it; return the figures of the stream and of its end."""
    X, y, found = stream.X, stream.y, []
    clock = time.process_time()
    for start in range(0, len(y), BATCH):
        batch = X[start : start + BATCH]
        if method.flows:
            found.append(method.predict(batch))
        method.update(batch)
    seconds = time.process_time() - clock
    method.finish()
    figures = {"rows": len(y)}
    if method.flows:
        figures |= dict(
            zip(("flowing", "flowing_balanced"), _accuracies(np.concatenate(found), y), strict=True)
        )
        figures["seconds"] = round(seconds, 3)
    return figures | _at_end(method, X, y)


def _with_labels(method, stream, n):
    """Return the figures on other rows after labels of `n` random rows, the mean of some draws."""
    draws = []
    for draw in range(DRAWS):
        chosen = np.random.default_rng([n, draw]).permutation(len(stream.y))[:n]
        rest = np.setdiff1d(np.arange(len(stream.y)), chosen)
        told = method.copy()
        told.learn(stream.X[chosen], stream.y[chosen])
        draws.append(_at_end(told, stream.X[rest], stream.y[rest]))
    return {"rows": len(stream.y)} | {
        name: round(float(np.mean([one[name] for one in draws])), 4) for name in draws[0]
    }


def _at_end(method, X, y):
    """Return accuracy, its mean over classes, and the mean probability of what is predicted."""
    if not hasattr(method, "predict_proba"):
        return dict(zip(("end", "end_balanced"), _accuracies(method.predict(X), y), strict=True))
    proba = method.predict_proba(X)
    accuracies = _accuracies(method.classes[proba.argmax(axis=1)], y)
    claimed = round(float(proba.max(axis=1).mean()), 4)
    return dict(zip(("end", "end_balanced"), accuracies, strict=True)) | {"claimed": claimed}


def _accuracies(found, y):
    """Return accuracy and its mean over classes."""
    right = found == y
    balanced = np.mean([right[y == label].mean() for label in np.unique(y)])
    return round(float(right.mean()), 4), round(float(balanced), 4)
