"""Ten experts on one target: plain classifiers, and the dictionary in two spaces.

Plain classifiers (``linear``, ``kernel``, ``trees``) see rows standardised with the pooled moments of
the sources ("raw") and rows standardised domain by domain. The dictionary works in the discriminant view
and in the space of the trees' log-probabilities ("stacked"), out of sample for the sources.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import softmax

from baryflow.estimators._classifiers import CLASSIFIERS
from baryflow.estimators.adaptation import Options, adapt
from baryflow.estimators.sources import SourceOptions, learn_sources
from baryflow.estimators.target import Target, row_settings

#: Added to probabilities before logarithms: no expert can veto alone.
FLOOR = 1e-3
PLAIN = tuple(f"{space} {name}" for space in ("raw", "per domain") for name in CLASSIFIERS)
N_RAW = len(CLASSIFIERS)
EXPERTS = (
    *PLAIN,
    "view: reconstruction",
    "view: components",
    "stacked: reconstruction",
    "stacked: components",
)


class Sources:
    """What labelled sources teach: plain classifiers, and a dictionary in each space."""

    def __init__(self, Xs, ys, n_classes):
        self.n_classes = n_classes
        pooled, codes = np.concatenate(Xs), np.concatenate(ys)
        self.centre, std = pooled.mean(axis=0), pooled.std(axis=0)
        self.scale = np.where(std > 0.0, std, 1.0)
        raw = (pooled - self.centre) / self.scale
        own = np.concatenate([self._standardise(X) for X in Xs])
        fitted = [fit(Z, codes, n_classes, None, 0) for Z in (raw, own) for fit in CLASSIFIERS.values()]
        self.classifiers = [one.classifier for one in fitted]
        self.view = learn_sources(Xs, ys, n_classes, SourceOptions())
        trees = [one.out_of_sample for one in fitted if one.out_of_sample is not None]
        stacked = np.log(np.hstack(trees) + FLOOR)
        ends = np.cumsum([len(y) for y in ys])[:-1]
        self.stacked = learn_sources(np.split(stacked, ends), ys, n_classes, SourceOptions())

    def _standardise(self, X):
        std = X.std(axis=0)
        return (X - X.mean(axis=0)) / np.where(std > 1e-9 * self.scale, std, self.scale)

    def plain(self, X, centre, scale):
        """Return the log-probabilities of the plain classifiers, shape (6, n, n_classes)."""
        raw, own = (X - self.centre) / self.scale, (X - centre) / scale
        classifiers = self.classifiers
        tables = [c.proba(raw) for c in classifiers[:N_RAW]] + [
            c.proba(own) for c in classifiers[N_RAW:]
        ]
        return np.log(np.stack(tables) + FLOOR)

    def stack(self, plain):
        return np.hstack([plain[N_RAW - 1], plain[2 * N_RAW - 1]])


@dataclass
class Following:
    """One target: summaries in both spaces, and the votes of the raw committee."""

    sources: Sources
    raw_weights: np.ndarray  # of the raw classifiers
    votes: list = field(default_factory=list)
    n_rows: int = 0

    def __post_init__(self):
        settings = row_settings(self.sources.n_classes, view=True)
        self.view, self.stacked = (
            Target(self.sources.view, settings),
            Target(self.sources.stacked, settings),
        )

    def absorb(self, X):
        self.view.absorb_whole(X)
        self.n_rows += len(X)
        plain = self.sources.plain(X, *self.moments())
        self.stacked.absorb_whole(self.sources.stack(plain))
        self.votes.append(softmax(np.tensordot(self.raw_weights, plain[:N_RAW], 1), axis=1))

    def moments(self, shares=None):
        """Return centre and scale of the target if its class proportions are `shares`."""
        model, summary = self.sources.view, self.view.summary
        return model.moments_at(
            *summary.moments(), model.usual if shares is None else shares, self.n_rows
        )

    def estimate_proportions(self, rounds=30):
        """Return class proportions by maximum likelihood from the raw committee's votes (EM)."""
        model, votes = self.sources.view, np.concatenate(self.votes)
        shares = model.usual
        for _ in range(rounds):
            weighted = votes * (shares / model.prior.mean)
            shares = (weighted / weighted.sum(axis=1, keepdims=True)).mean(axis=0)
        shares = np.maximum(shares, 1e-4)
        return shares / shares.sum()

    def adapt(self, shares=None):
        """Fit the dictionary in both spaces; return a function from rows to the experts' tables."""
        plain_options = Options(proportions=False)
        adapted = [
            adapt(target.model, target.seen(), plain_options, shares=shares)
            for target in (self.view, self.stacked)
        ]
        centre, scale = self.moments(shares)

        def experts(X):
            plain = self.sources.plain(X, centre, scale)
            mixtures = [
                *adapted[0].mixtures_proba(X),
                *adapted[1].mixtures_proba(self.sources.stack(plain)),
            ]
            return np.concatenate([plain, np.log(np.stack(mixtures) + FLOOR)])

        return experts
