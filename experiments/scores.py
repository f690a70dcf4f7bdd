"""Let a stream flow past a model that has learned the sources, and keep score."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np


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


def follow(model, stream, batch):
    """Predict each batch, then learn from it; return accuracies of the stream and of its end.

    Beside them stand those of not adapting: what the model predicts before its first target row.
    """
    figures = {"rows": len(stream.y)}
    figures["not_adapting"], figures["not_adapting_held_out"] = stream.accuracies(model.predict)
    flowing = []
    for start in range(0, len(stream.y), batch):
        X = stream.X[start : start + batch]
        flowing.append(model.predict(X))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="columns? ", category=UserWarning)
            model.partial_fit(X)
    figures["flowing"] = accuracy(np.concatenate(flowing), stream.y)
    figures["end"], figures["held_out"] = stream.accuracies(model.predict)
    return figures


def rounded(figures):
    """Return figures as they are written into a table."""
    return {k: round(float(v), 5) if isinstance(v, float) else v for k, v in figures.items()}
