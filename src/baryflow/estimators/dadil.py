"""Offline multi-source adaptation: sources and target in one fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    assert_all_finite,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from baryflow.core.dictionary import Dictionary, Domain
from baryflow.core.mixture import Mixture
from baryflow.estimators.adaptation import OFFLINE_STEPS, Adapted, Options
from baryflow.estimators.decision import Decision, blend
from baryflow.estimators.from_mixtures import adapt_mixtures
from baryflow.estimators.rows import TakesGaps
from baryflow.estimators.shared import (
    atoms_of,
    by_source,
    coordinates_of,
    decided,
    describe,
    fill_gaps,
    fixed_weights,
    resemblance,
    source_options,
    split_domains,
)
from baryflow.estimators.sources import SourceModel
from baryflow.estimators.target import summarise_whole
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_count, check_values


class DaDiL(TakesGaps, ClassifierMixin, BaseEstimator):
    """Adapt a classifier from labelled source domains to an unlabelled target, all at hand.

    Every domain is described by a Gaussian mixture; a dictionary of a few labelled mixtures is learned
    so that each domain is a Wasserstein barycenter of them, and the target is classified with its
    labelled reconstruction, together with the sources' own classifier. What is used is decided by
    playing each source as the target, and may be "do not adapt": :meth:`report` says so.

    Parameters
    ----------
    n_atoms : int, optional
        Mixtures in the dictionary; without it one fewer than there are sources, between 2 and 4.
    components_per_class : int, default=2
        Components of each class in every source and atom.
    view : bool, default=True
        Look at the data standardised domain by domain and projected on the sources' discriminants.
        Without it mixtures live in the plain features.
    proportions : bool, default=True
        Estimate the target's class proportions; how far they may go is learned from the sources.
    votes : bool, default=True
        Let the source classifier's votes take part in matching the target's components.
    predictor : {"auto", "combined", "map", "plan", "source"}
        Who predicts. ``"combined"`` averages the logarithms of four experts: the reconstruction, the
        target's own components labelled through the plan, the pooled source classifier and the one
        that standardises each domain by itself. ``"auto"`` learns their weights on sources left out.
        ``"map"`` is the paper's: the reconstruction alone; ``"plan"`` the labelled components alone;
        ``"source"`` does not adapt.
    class_prior : mapping of class → share, or array of shape (n_classes,), optional
        What you know of the target: ``{"normal": 0.5}`` says that half of its rows are normal, and the
        other classes share the rest equally. Without it classes are expected as in the sources. Rows can
        overrule it where they tell classes apart.
    rehearse : bool, default=True
        Play each source as a target, to learn the weights of the experts, at the beginning and when
        every class was seen. Without it a fixed predictor (or even weights) is believed at once.
    n_steps : int, default=8
        Block steps of the dictionary with the target.
    random_state : int, RandomState, Generator or None
        Starts of the sources' mixtures.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    coordinates_ : dict of domain name → array of shape (n_atoms,)
        The target's are under ``"target"``.
    resemblance_ : dict of source name → float
        Shares of the sources in the target, on the simplex: which histories it resembles, in the
        coordinates of the view, where shift and scale of a domain no longer count.
    atoms_ : list of Mixture
        Labelled, in the coordinates of the view.
    target_mixture_ : Mixture
        The labelled reconstruction of the target.
    proportions_ : array of shape (n_classes,)
        Class proportions of the target.
    loss_curve_ : array of shape (n_steps, n_domains)
        Loss of every domain before each step, the target last.

    Examples
    --------
    >>> import numpy as np
    >>> from baryflow import DaDiL
    >>> from baryflow.datasets import make_domains
    >>> problem = make_domains(n_per_class=40, random_state=0)
    >>> X = np.concatenate([problem.X, problem.X_target])
    >>> y = np.concatenate([problem.y, np.zeros_like(problem.y_target)])  # the last are ignored
    >>> domain = np.concatenate([problem.domain, np.full(len(problem.y_target), -1)])
    >>> model = DaDiL(random_state=0).fit(X, y, sample_domain=domain)
    >>> bool(model.score(problem.X_target, problem.y_target) > 0.9)
    True
    """

    def __init__(
        self,
        n_atoms: int | None = None,
        *,
        components_per_class: int = 2,
        view: bool = True,
        proportions: bool = True,
        votes: bool = True,
        predictor: str = "auto",
        class_prior: Any = None,
        rehearse: bool = True,
        n_steps: int = OFFLINE_STEPS,
        random_state: Any = None,
    ) -> None:
        self.n_atoms = n_atoms
        self.components_per_class = components_per_class
        self.view = view
        self.proportions = proportions
        self.votes = votes
        self.predictor = predictor
        self.class_prior = class_prior
        self.rehearse = rehearse
        self.n_steps = n_steps
        self.random_state = random_state

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
            are one source and there is no target.
        target : name, optional
            The name of the target domain, if domains have names.
        """
        fixed_weights(self)  # checks
        n_steps = as_count(self.n_steps, "n_steps")
        if sample_domain is None:
            X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan")
        else:  # labels of target rows may be anything
            X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
            y = np.asarray(y)
        check_values(X, "X", allow_nan=True)
        names, is_target = split_domains(sample_domain, len(X), target)
        if y.shape != (len(X),):
            raise InvalidInputError(f"expected y to have shape (n_samples={len(X)},), got {y.shape}")
        if is_target.all() or (sample_domain is not None and not is_target.any()):
            raise InvalidInputError(
                "sample_domain must mark some rows as target and leave some labelled sources: target "
                "rows have negative numbers, or the name given as target"
            )
        y = column_or_1d(np.array(y[~is_target].tolist()))
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        rows, labels, self.sources_ = by_source(X[~is_target], codes, names[~is_target])
        filled = [fill_gaps(R) for R in rows]
        options = source_options(self, self.classes_)
        switches = Options(bool(self.proportions), bool(self.votes))
        self._model = SourceModel.fit(filled, labels, len(self.classes_), options)
        self._decision = decided(self, filled, labels, len(self.classes_), options, switches)
        rows_of_target = X[is_target] if is_target.any() else np.concatenate(filled)
        rows_of_target = fill_gaps(self._model.limits.screened(rows_of_target), self._model.centre)
        self._fill = rows_of_target.mean(axis=0)
        summary = summarise_whole(self._model, rows_of_target)
        adapted = Adapted(
            self._model,
            summary,
            switches,
            self._decision.weights,
            n_steps=n_steps,
            freeze_sources=False,
        )
        self._adapted: Adapted | None = adapted
        self._expose(adapted.dictionary, adapted.sources, adapted.target)
        self.target_mixture_ = adapted.reconstruction
        self.proportions_ = adapted.mix.shares
        self.loss_curve_ = adapted.losses
        return self

    def fit_mixtures(
        self, sources: Mapping[Any, Mixture], target: Mixture, *, classes: Any = None
    ) -> Self:
        """Learn from mixtures instead of rows, so that a plant can share a summary and keep its data.

        Parameters
        ----------
        sources : mapping of name → labelled Mixture
        target : Mixture
            Its labels, if any, are ignored.
        classes : array of shape (n_classes,), optional
            Names of the classes; without them their numbers.

        Without rows there is neither a view nor a source classifier: mixtures are taken in the
        coordinates they come in, and ``"auto"`` predicts with ``"map"`` and ``"plan"`` together.
        """
        fixed_weights(self)  # checks
        if self.predictor == "source":
            raise InvalidInputError("predictor='source' needs rows: mixtures bring no source classifier")
        if self.n_atoms is not None:
            as_count(self.n_atoms, "n_atoms")
        adapted = adapt_mixtures(dict(sources), target, self.n_atoms, as_count(self.n_steps, "n_steps"))
        dictionary, domains, domain, self.loss_curve_, reconstruction, labelled = adapted
        n_classes = reconstruction.n_classes
        self.classes_ = np.arange(n_classes) if classes is None else np.asarray(classes)
        if len(self.classes_) != n_classes:
            raise InvalidInputError(
                f"expected classes to have n_classes={n_classes} names, got {len(self.classes_)}"
            )
        self.sources_ = list(sources)
        self.n_features_in_ = target.n_features
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit
        self._expose(dictionary, domains, domain)
        self.target_mixture_ = reconstruction
        self.proportions_ = reconstruction.class_shares()
        self._mixtures = {"map": [reconstruction], "plan": [labelled]}.get(
            self.predictor, [reconstruction, labelled]
        )
        self._adapted = None
        chosen = "chosen by you" if self.predictor != "auto" else "reconstruction and plan, averaged"
        weights = {"map": (1.0, 0.0, 0.0, 0.0), "plan": (0.0, 1.0, 0.0, 0.0)}.get(
            self.predictor, (0.5, 0.5, 0.0, 0.0)
        )
        why = f"{chosen}; mixtures were given: no source classifier, nothing to leave out"
        self._decision = Decision(True, weights, (*weights, 0.0), why)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of every class for target rows, shape (n_samples, n_classes)."""
        X = self._rows(X)
        if self._adapted is None:
            tables = [mixture.predict_proba(X) for mixture in self._mixtures]
            return np.asarray(sum(tables) / len(tables))
        X = self._model.limits.screened(X)
        rows = np.where(np.isnan(X), self._fill, X)
        return blend(self._decision, self._adapted, rows)

    def predict(self, X: Any) -> Any:
        """Return the most probable class of every target row."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def report(self) -> str:
        """Say in words what was learned and decided, and why."""
        check_is_fitted(self)
        return describe(
            self.classes_,
            self.sources_,
            self._decision,
            self.resemblance_,
            None if self._adapted is None else self._adapted.mix,
        )

    def _expose(self, dictionary: Dictionary, domains: list[Domain], target: Domain) -> None:
        self.coordinates_ = coordinates_of(self.sources_, domains, target)
        self.resemblance_ = resemblance(self.sources_, dictionary, domains, target)
        self.atoms_ = atoms_of(dictionary)
