"""Let a stream flow past a model that has learned the sources, and keep score."""

from __future__ import annotations

import time
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

    Beside each figure stands that of the source classifier on the same rows. `watch` is called
    with the model after every batch.
    """
    ours, source, reliability, spent = [], [], [], 0.0
    for start in range(0, len(stream.y), batch):
        X = stream.X[start : start + batch]
        ours.append(model.predict_proba(X))
        source.append(model._session.knowledge.model.pooled_proba(X))
        clock = time.perf_counter()
        model.partial_fit(X)
        spent += time.perf_counter() - clock
        reliability.append(float(model.reliability_))
        if watch is not None:
            watch(model)
    figures = {
        "rows": len(stream.y),
        **_along(model.classes_, np.concatenate(ours), np.concatenate(source), stream.y),
        "reliability": float(np.mean(reliability)),
        "reliability_first": reliability[0],
        "decision": model._session.knowledge.decision.summary(),
        "seconds_a_batch": spent / len(reliability),
    }
    figures["end"], figures["held_out"] = stream.accuracies(model.predict)
    figures["source_end"], figures["source_held_out"] = stream.accuracies(
        lambda X: model.classes_[model._session.knowledge.model.pooled_proba(X).argmax(axis=1)]
    )
    return figures


def _along(classes, ours, source, y):
    """Return accuracy and calibration while the stream flows, all of it and its outer fifths.

    The error of calibration grows as rows get fewer: for the source classifier the mean of both fifths.
    """
    right, source_right = (classes[proba.argmax(axis=1)] == y for proba in (ours, source))
    fifth = max(1, len(y) // 5)
    first, last = slice(fifth), slice(-fifth, None)
    return {
        "prequential": right.mean(),
        "source_prequential": source_right.mean(),
        "first_fifth": right[first].mean(),
        "last_fifth": right[last].mean(),
        "source_first_fifth": source_right[first].mean(),
        "source_last_fifth": source_right[last].mean(),
        "ece_first": calibration_error(ours[first], right[first]),
        "ece_last": calibration_error(ours[last], right[last]),
        "ece_source": np.mean(
            [calibration_error(source[part], source_right[part]) for part in (first, last)]
        ),
    }


def rounded(figures):
    """Return figures as they are written into a table."""
    return {k: round(float(v), 5) if isinstance(v, float) else v for k, v in figures.items()}
