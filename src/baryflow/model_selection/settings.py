"""Settings to choose from: how to adapt, and with which knowledge of the target."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing as take_rows

from baryflow.estimators._committee import STANDARDISE
from baryflow.estimators._domains import expect_proportions
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.validation import Floats, Integers, count_of

#: Rows of a target on which settings are compared, at most; of longer ones every k-th.
MOST_ROWS = 1000
_WAYS: dict[Any, str] = {True: "yes", STANDARDISE: STANDARDISE, False: "no"}


@dataclass(frozen=True)
class Setting:
    """How to adapt, and what the model is given besides rows.

    Attributes
    ----------
    adapt : {True, "standardise", False}
        Parameter of :class:`~baryflow.OnlineDaDiL`.
    class_prior : bool
        It knows the class prior.
    baseline_rows : int
        Rows known to be of one class, before the stream.
    labels : int
        Labels in all: of the row that it asks for after each of the first batches.
    """

    adapt: bool | str = True
    class_prior: bool = False
    baseline_rows: int = 0
    labels: int = 0

    @property
    def way(self) -> str:
        """How to adapt, as on the command line: yes, standardise or no."""
        return _WAYS[self.adapt]

    @property
    def n_known(self) -> int:
        """Pieces of knowledge."""
        return self.class_prior + bool(self.baseline_rows) + bool(self.labels)

    def describe_knowledge(self) -> str:
        """Return what has to be known, as text.

        Returns
        -------
        str
        """
        parts = ["class prior"] if self.class_prior else []
        parts += [count_of(self.baseline_rows, "baseline row")] if self.baseline_rows else []
        parts += [count_of(self.labels, "label")] if self.labels else []
        return ", ".join(parts) or "nothing"


@dataclass(frozen=True)
class SettingScore:
    """Scores of a setting on a target.

    Attributes
    ----------
    setting : Setting
    flowing, end : float
        As in :class:`DomainScore`.
    balanced : float
        Balanced accuracy while rows flow.
    """

    setting: Setting
    flowing: float
    end: float
    balanced: float


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What a user may know of the target."""

    class_prior: Mapping[Any, float] | None = None
    baseline_rows: int = 0
    baseline_class: Any = None
    labels: int = 0

    def list_settings(self, adapt: bool | str) -> list[Setting]:
        """Return the settings to try, the simplest first: each piece of knowledge alone, and together.

        A model that adapts is also tried without; one that does not is only tried as it is.
        """
        prior, rows, labels = self.class_prior is not None, self.baseline_rows, self.labels
        pieces: list[dict[str, Any]] = [
            {"class_prior": prior},
            {"baseline_rows": rows},
            {"labels": labels},
        ]
        known: list[dict[str, Any]] = [{}, *(piece for piece in pieces if any(piece.values()))]
        ways = (True, STANDARDISE, False) if adapt is True else (adapt,)
        found = [Setting(way) for way in ways]
        if prior:
            found += [Setting(way, class_prior=True) for way in ways]
        if adapt is True:
            found += [Setting(**piece) for piece in known]
            both = pieces[0] | pieces[1]
            found += [Setting(**both), Setting(**(both | pieces[2]))]
        elif labels:
            found += [Setting(adapt, prior, labels=labels)]
        return sorted(dict.fromkeys(found), key=lambda one: (one.n_known, bool(one.labels)))

    def apply(self, fitted: OnlineDaDiL, setting: Setting, baseline: Any) -> OnlineDaDiL:
        """Return a model with a setting, made of a fitted one; nothing is fitted again."""
        knowledge, classes = fitted.knowledge_, fitted.classes_
        model: OnlineDaDiL = clone(fitted).set_params(adapt=setting.adapt)
        if setting.class_prior:
            shares = self._expect(classes)
            model.set_params(class_prior=shares)
            knowledge = knowledge.expect(shares)
        names = getattr(fitted, "feature_names_in_", None)
        columns = fitted.n_features_in_ if names is None else list(names)
        model.adopt(knowledge, classes, fitted.sources_, columns)
        if setting.baseline_rows and len(baseline) and self.baseline_class in classes.tolist():
            model.set_baseline(baseline, self.baseline_class)
        return model

    def _expect(self, classes: Any) -> Floats:
        """Return the expected class proportions; a class may be missing without the target."""
        known = np.unique([*classes.tolist(), *(self.class_prior or {})])
        shares = expect_proportions(self.class_prior, known)
        found = np.asarray(shares)[np.isin(known, classes)]
        return np.asarray(found / found.sum())


def play(model: OnlineDaDiL, X: Any, y: Any, batch_size: int, labels: int) -> tuple[Any, Any]:
    """Let rows flow past a model; return predictions of each batch as it comes, and at the end.

    After each batch the model asks for the label of one row, until it has as many as it may.
    """
    if model.adapt is False and not labels:
        answers = model.predict(X)
        return answers, answers
    found, places = [], [*range(0, len(y), batch_size), len(y)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "columns? ", UserWarning)  # named elsewhere
        for start, end in pairwise(places):
            batch = take_rows(X, np.arange(start, end))
            found.append(model.predict(batch))
            model.partial_fit(batch)
            if model.n_labels_ < labels:
                query = model.query(1)
                model.feedback(query.rows, y[query.positions])
    return np.concatenate(found), model.predict(X)


def draw_proportions(y: Any, shares: Mapping[Any, float], rng: np.random.Generator) -> Integers:
    """Return the numbers, ascending, of as many rows as have these class proportions.

    Classes without a share keep their proportions to each other; one that has no row has no share.
    """
    shares = {name: share for name, share in shares.items() if (y == name).any()}
    others = np.flatnonzero(~np.isin(y, list(shares)))
    rest = 1.0 - sum(shares.values())
    if not shares or (rest <= 0.0 and not any(shares.values())):
        return np.arange(len(y))
    if not len(others) or rest <= 0.0:
        whole = sum(shares.values())
        shares, rest = {name: share / whole for name, share in shares.items()}, 0.0
    limits = [(y == name).sum() / share for name, share in shares.items() if share]
    limits += [len(others) / rest] if rest else []
    n = min(limits)
    parts = [rng.permutation(others)[: round(n * rest)]]
    parts += [
        rng.permutation(np.flatnonzero(y == name))[: round(n * share)] for name, share in shares.items()
    ]
    return np.sort(np.concatenate(parts)).astype(np.intp)
