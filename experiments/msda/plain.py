"""Plain classifiers that do not adapt: the rival is the one that leave-one-source-out picks.

Four classifiers, each on rows standardised with the pooled moments of the sources ("raw") and on rows
standardised per domain. A target is standardised with the moments of all its rows, and while it flows of
those before the batch; before the first row as if it were raw.
"""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

from experiments.scores import accuracy, outer_fifths

CLASSIFIERS = {
    "logistic regression": lambda: LogisticRegression(C=0.1),
    "SVC": lambda: SVC(C=3.0),
    "extra trees": lambda: ExtraTreesClassifier(100, random_state=0),
    "MLP": lambda: MLPClassifier((128,), random_state=0),
}
MEMBERS = tuple((name, space) for name in CLASSIFIERS for space in ("raw", "per domain"))
#: Sources that are left out, and rows of all sources that take part, at most.
FOLDS, ROWS = 4, 3000


def standardise(X, like=None):
    like = X if like is None else like
    spread = like.std(axis=0)
    return (X - like.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


class PlainClassifiers:
    """All members, fitted on all sources, and which of them is picked."""

    def __init__(self, Xs, ys):
        step = -(-sum(map(len, ys)) // ROWS)
        scores = leave_one_out([X[::step] for X in Xs], [y[::step] for y in ys])
        self.picked = max(scores, key=scores.get)
        self.pooled, y = np.concatenate(Xs), np.concatenate(ys)
        own = np.concatenate([standardise(X) for X in Xs])
        raw = standardise(self.pooled)
        self.fitted = {
            (name, space): CLASSIFIERS[name]().fit(raw if space == "raw" else own, y)
            for name, space in MEMBERS
        }

    def stream(self, stream, batch):
        """Yield (member, figures) for the rows of a stream and those held out."""
        X, y = stream.X, stream.y
        raw, raw_held = standardise(X, self.pooled), standardise(stream.X_held, self.pooled)
        flowing = [raw[:batch]]
        flowing += [standardise(X[i : i + batch], X[:i]) for i in range(batch, len(X), batch)]
        own, own_held = standardise(X), standardise(stream.X_held, X)
        for (name, space), model in self.fitted.items():
            rows, held = (raw, raw_held) if space == "raw" else (own, own_held)
            at_end = model.predict(rows)
            found = at_end if space == "raw" else model.predict(np.concatenate(flowing))
            first, last = outer_fifths(y)
            yield (
                (name, space),
                {
                    "rows": len(y),
                    "flowing": accuracy(found, y),
                    "first_fifth": accuracy(found[first], y[first]),
                    "last_fifth": accuracy(found[last], y[last]),
                    "end": accuracy(at_end, y),
                    "held_out": accuracy(model.predict(held), stream.y_held),
                },
            )


def leave_one_out(Xs, ys):
    """Return the mean accuracy of each member on sources left out."""
    found = {member: [] for member in MEMBERS}
    for left_out in np.unique(np.linspace(0, len(Xs) - 1, FOLDS).astype(int)):
        rest = [i for i in range(len(Xs)) if i != left_out]
        pooled, y = (np.concatenate([part[i] for i in rest]) for part in (Xs, ys))
        spaces = {
            "raw": (standardise(pooled), standardise(Xs[left_out], pooled)),
            "per domain": (
                np.concatenate([standardise(Xs[i]) for i in rest]),
                standardise(Xs[left_out]),
            ),
        }
        for name, space in MEMBERS:
            train, test = spaces[space]
            model = CLASSIFIERS[name]().fit(train, y)
            found[name, space].append(accuracy(model.predict(test), ys[left_out]))
    return {member: float(np.mean(scores)) for member, scores in found.items()}
