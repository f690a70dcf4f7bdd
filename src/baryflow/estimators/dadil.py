"""Offline multi-source adaptation: sources and target in one fit."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np

from baryflow.estimators._adapter import Adapter
from baryflow.estimators._domains import check_labels, keep_gaps, split_domains
from baryflow.estimators._follow import follow
from baryflow.estimators._sensors import warn
from baryflow.estimators._sources import SourceKnowledge
from baryflow.estimators._state import begin, row_settings
from baryflow.estimators._threads import one_thread
from baryflow.exceptions import InvalidInputError


class DaDiL(Adapter):
    """Adapt a classifier from labelled source domains to an unlabelled target, all at hand.

    Every domain is described by a Gaussian mixture. A dictionary of a few labelled mixtures, the atoms,
    is learned so that each domain is a Wasserstein barycenter of them. A committee predicts: plain
    classifiers, the target's reconstruction from the atoms, and its own components labelled through
    the transport plan. Leave-one-source-out decides how much each counts, and may decide not to adapt:
    :meth:`report` says so.

    Parameters
    ----------
    n_atoms, classifier, class_prior, label_shift, validate
        As in :class:`~baryflow.OnlineDaDiL`.
    n_jobs, verbose, random_state
        As in :class:`~baryflow.OnlineDaDiL`.

    Attributes
    ----------
    classes_, sources_, atoms_, coordinates_, resemblance_, committee_, columns_, history_
        As in :class:`~baryflow.OnlineDaDiL`.
    reliability_, coverage_, novelty_, target_mixture_, explanations_, proportions_
        As in :class:`~baryflow.OnlineDaDiL`.

    Examples
    --------
    >>> import numpy as np
    >>> from baryflow import DaDiL
    >>> from baryflow.datasets import make_domains
    >>> problem = make_domains(n_per_class=20, random_state=0)
    >>> X = np.concatenate([problem.X, problem.X_target])
    >>> y = np.concatenate([problem.y, np.zeros_like(problem.y_target)])  # the last are ignored
    >>> domain = np.concatenate([problem.domain, np.full(len(problem.y_target), -1)])
    >>> model = DaDiL(random_state=0).fit(X, y, sample_domain=domain)
    >>> bool(model.score(problem.X_target, problem.y_target) > 0.9)
    True
    """

    kind = "dadil"

    def __init__(
        self,
        n_atoms: int | None = None,
        *,
        classifier: Any = None,
        class_prior: Any = None,
        label_shift: bool = True,
        validate: bool = True,
        n_jobs: int | None = None,
        verbose: Any = False,
        random_state: Any = None,
    ) -> None:
        self.n_atoms = n_atoms
        self.classifier = classifier
        self.class_prior = class_prior
        self.label_shift = label_shift
        self.validate = validate
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    @one_thread
    def fit(self, X: Any, y: Any, sample_domain: Any = None, *, target: Any = None) -> Self:
        """Learn from labelled source rows and unlabelled target rows.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            A missing value (NaN) counts as the mean of its domain.
        y : array of shape (n_samples,)
            Labels; those of target rows are ignored.
        sample_domain : array of shape (n_samples,), optional
            The domain of each row: a name, or a number, negative for target rows. Without it all rows
            are one source: the model then predicts with the source classifier, and a warning says that
            nothing was adapted.
        target : name, optional
            The name of the target domain, if domains have names.

        Returns
        -------
        DaDiL
            Itself. If it fails, what was learned before stays.

        Raises
        ------
        InvalidInputError
            If something does not fit; the message says what to do.
        """
        if sample_domain is None and target is not None:
            raise InvalidInputError(
                f"target={target!r} names a domain, but no row has one: pass sample_domain"
            )
        with self._unless_it_fails():
            rows = self._first_rows(X)
            names, is_target = split_domains(sample_domain, len(rows), target)
            if is_target.all() or (sample_domain is not None and not is_target.any()):
                raise InvalidInputError(
                    "sample_domain must mark some rows as target and leave some labelled sources: "
                    "target rows have negative numbers, or the name given as target"
                )
            labels = self._source_labels(y, is_target)
            if not is_target.any():
                warnings.warn(
                    "without sample_domain there are no target rows, so nothing is adapted and the "
                    "source classifier predicts: pass the domain of each row, a negative number for "
                    "target rows, or names and target=",
                    UserWarning,
                    stacklevel=3,  # the caller, past the limit on threads
                )
            self._warn_of_counters(rows[~is_target], names[~is_target])
            knowledge, classes, sources = self._learn(rows[~is_target], labels, names[~is_target])
            self._settle(knowledge, classes, sources)
            if is_target.any():
                some = rows[is_target]
                self.state_ = follow(knowledge, self.state_, some, np.ones(len(some)), whole=True)
            warn({}, self.columns_)
        return self

    def _source_labels(self, y: Any, is_target: Any) -> Any:
        """Return the labels of the sources; those of target rows may be anything."""
        if not is_target.any():
            return check_labels(y, len(is_target))
        y = np.asarray(keep_gaps(y))
        if y.shape != is_target.shape:
            raise InvalidInputError(
                f"expected y to have shape (n_samples={len(is_target)},), got {y.shape}"
            )
        positions = np.flatnonzero(~is_target)
        return check_labels(y[positions].tolist(), len(positions), positions)

    def _settle(self, knowledge: SourceKnowledge, classes: Any, sources: list[Any]) -> None:
        """Begin with a target of which nothing is known."""
        self._classes, self.sources_, self.knowledge_ = classes, sources, knowledge
        settings = row_settings(len(classes))
        self.state_ = begin(knowledge, settings, label_shift=bool(self.label_shift))
        self._learned_with, self._kept = {}, None
