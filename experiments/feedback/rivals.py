"""Rivals that learn from the same labels: plain classifiers of sources and labels, or of labels."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

CLASSIFIERS = {
    "logistic regression": lambda: LogisticRegression(C=0.1, max_iter=1000),
    "SVC": lambda: SVC(C=3.0),
}
MEMBERS = tuple((name, space) for name in CLASSIFIERS for space in ("raw", "per domain"))
#: Share of the labelled rows in the weight of all; without one each counts as a row of the sources.
SHARES = {"one row": None, "quarter": 0.25, "half": 0.5}
#: Sources that are left out, at most; folds of the labelled rows.
LEFT_OUT, FOLDS = 4, 3


def standardise(X, like):
    spread = like.std(axis=0)
    return (X - like.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)


class Plain:
    """Plain classifiers of the sources' rows and labelled ones of the target."""

    def __init__(self, p):
        own = np.empty_like(p.Xs)
        for name in np.unique(p.domain):
            rows = p.domain == name
            own[rows] = standardise(p.Xs[rows], p.Xs[rows])
        self.sources = {"raw": standardise(p.Xs, p.Xs), "per domain": own}
        stream = p.X[: p.n_stream]
        self.target = {"raw": standardise(p.X, p.Xs), "per domain": standardise(p.X, stream)}
        self.p = p
        self.member = self._pick_member()

    def predict(self, member, weight, labelled, rows):
        """Return predictions for rows of the target by a member that learned from others of them."""
        name, space = member
        X = np.concatenate([self.sources[space], self.target[space][labelled]])
        y = np.concatenate([self.p.ys, self.p.y[labelled]])
        weights = np.ones(len(y))
        share = SHARES[weight]
        if share is not None and len(labelled):
            weights[-len(labelled) :] = share * len(y) / len(labelled)
            weights[: -len(labelled)] = (1.0 - share) * len(y) / len(self.p.ys)
        model = CLASSIFIERS[name]().fit(X, y, sample_weight=weights)
        return model.predict(self.target[space][rows])

    def pick_weight(self, labelled):
        """Return the weight that cross-validation over the labelled rows picks, half for too few."""
        y = self.p.y[labelled]
        if np.bincount(np.unique(y, return_inverse=True)[1]).max() < 2:
            return "half"
        place = np.empty(len(y), dtype=int)
        for label in np.unique(y):
            place[y == label] = np.arange((y == label).sum())
        right = dict.fromkeys(SHARES, 0)
        for fold in range(FOLDS):
            out = place % FOLDS == fold
            if out.any():
                for weight in SHARES:
                    found = self.predict(self.member, weight, labelled[~out], labelled[out])
                    right[weight] += int((found == y[out]).sum())
        return max(reversed(SHARES), key=right.get)  # half, if they are as good

    def _pick_member(self):
        """Return the member that is best on sources left out."""
        names = np.unique(self.p.domain)
        right = dict.fromkeys(MEMBERS, 0.0)
        for name in names[np.unique(np.linspace(0, len(names) - 1, LEFT_OUT).astype(int))]:
            out = self.p.domain == name
            for member in MEMBERS:
                X = self.sources[member[1]]
                model = CLASSIFIERS[member[0]]().fit(X[~out], self.p.ys[~out])
                right[member] += float((model.predict(X[out]) == self.p.ys[out]).mean())
        return max(right, key=right.get)


def labels_alone(p, labelled, rows):
    """Return predictions of a logistic regression of the labelled rows."""
    stream = p.X[: p.n_stream]
    y = p.y[labelled]
    if len(np.unique(y)) == 1:
        return np.full(len(rows), y[0])
    model = LogisticRegression(max_iter=1000).fit(standardise(p.X[labelled], stream), y)
    return model.predict(standardise(p.X[rows], stream))
