"""Plain classifiers, which do not adapt: the rival is the one that leave-one-source-out picks.

Four classifiers, each on rows standardised with the pooled moments of the sources (raw) and on rows
standardised per domain. A target is standardised with the moments of its rows so far, and before the
first as if it were raw.
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

CLASSIFIERS = {
    "logistic regression": lambda: LogisticRegression(C=0.1),
    "SVC": lambda: SVC(C=3.0),
    "extra trees": lambda: ExtraTreesClassifier(100, random_state=0),
    "MLP": lambda: MLPClassifier((128,), random_state=0),
}
SPACES = ("raw", "per domain")
MEMBERS = tuple((name, space) for name in CLASSIFIERS for space in SPACES)
#: Sources that are left out at most; factors of the logits among which they choose.
FOLDS, SHARPNESS = 4, np.logspace(-1.0, 1.3, 24)
_TINY = 1e-6


def standardise(X, like=None):
    like = X if like is None else like
    spread = like.std(axis=0)
    return (X - like.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)


class Method:
    """What every method has."""

    #: Whether it can predict while rows flow.
    flows = True

    def copy(self):
        """Return one that learns on its own; ours never change what they hold in place."""
        return copy.copy(self)

    def fit(self, X, y, domain):
        """Learn the sources: rows, class numbers, and domains from 1."""
        raise NotImplementedError

    def predict(self, X):
        return self.classes[self.predict_proba(X).argmax(axis=1)]

    def update(self, X):
        """Learn from rows of the target."""

    def finish(self):
        """Do what is to be done when the stream has ended."""


@dataclass
class Taught:
    """All members, fitted on all sources, and what they predicted of sources left out."""

    X: np.ndarray
    domain: np.ndarray
    y: np.ndarray  # class numbers
    classes: np.ndarray
    fitted: dict
    sharpness: dict
    #: Log-probabilities of rows of sources left out, by member; and these rows, source by source.
    left_out: dict
    folds: list

    def log_proba(self, member, Z):
        return log_softmax(
            self.sharpness[member] * _logits(self.fitted[member], Z, len(self.classes)), 1
        )

    def accuracy(self, member):
        """Return the mean accuracy over sources left out."""
        found = self.left_out[member].argmax(axis=1)
        y, ends = self.y[np.concatenate(self.folds)], np.cumsum([len(rows) for rows in self.folds])
        return float(np.mean([part.mean() for part in np.split(found == y, ends[:-1])]))

    def pick(self, space=None):
        """Return the member that is best on sources left out."""
        some = [member for member in MEMBERS if space in (None, member[1])]
        return max(some, key=self.accuracy)


_taught: dict = {}


def forget():
    """Forget what the last answer of :func:`teach` was."""
    _taught.clear()


def teach(X, y, domain):
    """Return what plain classifiers learn of the sources; several methods share the last answer."""
    key = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in (X, y, domain)))
    if key.digest() not in _taught:
        _taught.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            _taught[key.digest()] = _teach(X, y, domain)
    return _taught[key.digest()]


def folds_of(domain):
    """Return the rows of each source that is left out."""
    names = np.unique(domain)
    some = np.unique(np.linspace(0, len(names) - 1, FOLDS).astype(int))
    return [np.flatnonzero(domain == names[i]) for i in some]


def own_moments(X, domain):
    """Return rows standardised per domain."""
    found = np.empty_like(X)
    for name in np.unique(domain):
        found[domain == name] = standardise(X[domain == name])
    return found


def _teach(X, y, domain):
    classes, codes = np.unique(y, return_inverse=True)
    own, folds, left_out, sharpness = own_moments(X, domain), folds_of(domain), {}, {}
    of_folds = codes[np.concatenate(folds)]
    for name, space in MEMBERS:
        parts = []
        for rows in folds:
            rest = np.setdiff1d(np.arange(len(y)), rows)
            Z = standardise(X, X[rest]) if space == "raw" else own
            model = CLASSIFIERS[name]().fit(Z[rest], codes[rest])
            parts.append(_logits(model, Z[rows], len(classes)))
        logits = np.concatenate(parts)
        losses = [
            -log_softmax(s * logits, 1)[np.arange(len(of_folds)), of_folds].mean() for s in SHARPNESS
        ]
        sharpness[name, space] = SHARPNESS[int(np.argmin(losses))]
        left_out[name, space] = log_softmax(sharpness[name, space] * logits, 1)
    raw = standardise(X)
    fitted = {
        (name, space): CLASSIFIERS[name]().fit(raw if space == "raw" else own, codes)
        for name, space in MEMBERS
    }
    return Taught(X, domain, codes, classes, fitted, sharpness, left_out, folds)


def _logits(model, Z, n_classes):
    """Return a score of every class; classes that the model has not seen get a low one."""
    if hasattr(model, "predict_proba"):
        found = np.log(np.maximum(model.predict_proba(Z), _TINY))
    else:
        found = model.decision_function(Z)
        if found.ndim == 1:
            found = np.stack([-found, found], axis=1) / 2.0
    logits = np.full((len(Z), n_classes), min(np.log(_TINY), found.min()))
    logits[:, model.classes_] = found
    return logits


class Plain(Method):
    """One plain classifier."""

    space = None

    def fit(self, X, y, domain):
        self.taught, self.seen, self.prior = teach(X, y, domain), X[:0], None
        self.member, self.classes = self.taught.pick(self.space), self.taught.classes
        return self

    def update(self, X):
        if self.member[1] != "raw":
            self.seen = np.concatenate([self.seen, X])

    def moments_of(self, space):
        """Return the rows with whose moments the target is standardised."""
        return self.taught.X if space == "raw" or not len(self.seen) else self.seen

    def log_proba(self, X):
        Z = standardise(X, self.moments_of(self.member[1]))
        return self.taught.log_proba(self.member, Z)

    def predict_proba(self, X):
        found = self.log_proba(X)
        if self.prior is not None:
            found = found + self.prior
        return np.exp(log_softmax(found, 1))

    def set_prior(self, proportions):
        """Weigh classes by how much more frequent they are than in the sources."""
        of_sources = np.bincount(self.taught.y, minlength=len(self.classes)) / len(self.taught.y)
        self.prior = np.log(proportions) - np.log(of_sources)


class Raw(Plain):
    """The best on raw rows. The reference: it does not adapt."""

    space = "raw"


class Standardised(Plain):
    """The best on rows standardised per domain. With a baseline: by the moments of these rows."""

    space = "per domain"

    def set_baseline(self, X, label):
        """Standardise every domain by its rows of one class, and learn the sources again."""
        code = int(np.searchsorted(self.classes, label))
        taught, self.baseline = self.taught, X
        Z = np.empty_like(taught.X)
        for name in np.unique(taught.domain):
            rows = taught.domain == name
            normal = rows & (taught.y == code)
            Z[rows] = standardise(taught.X[rows], taught.X[normal if normal.sum() > 1 else rows])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.by_baseline = CLASSIFIERS[self.member[0]]().fit(Z, taught.y)

    def log_proba(self, X):
        if not hasattr(self, "by_baseline"):
            return super().log_proba(X)
        logits = _logits(self.by_baseline, standardise(X, self.baseline), len(self.classes))
        return log_softmax(self.taught.sharpness[self.member] * logits, 1)


class Picked(Plain):
    """The best of all. Labels choose among the classifiers: each times their likelihood under it."""

    def learn(self, X, y):
        codes = np.searchsorted(self.classes, y)

        def score(member):
            logs = self.taught.log_proba(member, standardise(X, self.moments_of(member[1])))
            return (
                np.log(self.taught.accuracy(member))
                + np.maximum(logs[np.arange(len(codes)), codes], -4.0).sum()
            )

        self.member = max(MEMBERS, key=score)

    def update(self, X):
        self.seen = np.concatenate([self.seen, X])
