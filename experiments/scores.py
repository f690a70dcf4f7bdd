"""Let a stream flow past a model that has learned the sources, and keep score."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np

BINS = 15


@dataclass(frozen=True)
class Stream:
    """Rows in the order in which they flow, and rows held out; labels are for scoring only."""

    X: np.ndarray
    y: np.ndarray
    X_held: np.ndarray
    y_held: np.ndarray

    def accuracies(self, predict):
        """Return the accuracy on the stream's rows and on those held out."""
        return accuracy(predict(self.X), self.y), accuracy(predict(self.X_held), self.y_held)


def accuracy(found, y):
    return round(float((found == y).mean()), 5)


def calibration_error(proba, right):
    """Return the expected calibration error of the top probability, in bins of equal width.

    It is Σ_b n_b / n · |accuracy_b − confidence_b| (Naeini, Cooper and Hauskrecht, 2015).
    """
    top = proba.max(axis=1)
    bins = np.minimum((BINS * top).astype(int), BINS - 1)
    return float(np.abs(np.bincount(bins, weights=right - top)).sum() / len(top))


def follow(model, stream, batch, watch=None):
    """Predict each batch, then learn from it; return the figures of the stream and of its end.

    Beside each figure stands that of not adapting: what the model predicts before its first target row.
    `watch` is called with the model after every batch.
    """
    not_adapting = model.predict_proba(stream.X)
    figures = {"rows": len(stream.y)}
    figures["not_adapting"], figures["not_adapting_held_out"] = stream.accuracies(model.predict)
    flowing, reliability, spent = [], [], 0.0
    for start in range(0, len(stream.y), batch):
        X = stream.X[start : start + batch]
        flowing.append(model.predict_proba(X))
        clock = time.perf_counter()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="columns? ", category=UserWarning)
            model.partial_fit(X)
        spent += time.perf_counter() - clock
        reliability.append(float(model.reliability_))
        if watch is not None:
            watch(model)
    figures |= _along(model.classes_, np.concatenate(flowing), not_adapting, stream.y)
    figures["end"], figures["held_out"] = stream.accuracies(model.predict)
    return figures | {
        "reliability": float(np.mean(reliability)),
        "reliability_first": reliability[0],
        "adapts": bool(model.committee_.adapts),
        "shift_belief": shift_belief(model),
        "seconds_a_batch": spent / len(reliability),
    }


def shift_belief(model):
    """Return how likely class proportions are that differ from the expected ones."""
    return sum(one.weight for one in model.explanations_ if one.name not in ("expected", "not adapting"))


def _along(classes, ours, not_adapting, y):
    """Return accuracy and calibration while the stream flows, all of it and its outer fifths.

    The calibration error grows as rows get fewer: for not adapting it is the mean of both fifths.
    """
    right, right_before = (classes[proba.argmax(axis=1)] == y for proba in (ours, not_adapting))
    first, last = outer_fifths(y)
    return {
        "flowing": right.mean(),
        "first_fifth": right[first].mean(),
        "last_fifth": right[last].mean(),
        "not_adapting_first_fifth": right_before[first].mean(),
        "not_adapting_last_fifth": right_before[last].mean(),
        "ece_first": calibration_error(ours[first], right[first]),
        "ece_last": calibration_error(ours[last], right[last]),
        "ece_not_adapting": np.mean(
            [calibration_error(not_adapting[part], right_before[part]) for part in (first, last)]
        ),
    }


def outer_fifths(y):
    """Return the slices of the first and of the last fifth of a stream."""
    fifth = max(1, len(y) // 5)
    return slice(fifth), slice(-fifth, None)


def rounded(figures):
    """Return figures as they are written into a table."""
    return {k: round(float(v), 5) if isinstance(v, float) else v for k, v in figures.items()}
