"""What the offline and the online estimator share: everything but how they come to know a target."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from baryflow.core.mixture import Mixture
from baryflow.estimators._classifiers import choose_classifiers
from baryflow.estimators._committee import Committee
from baryflow.estimators._domains import TARGET, by_source
from baryflow.estimators._history import History
from baryflow.estimators._input import InOrder, InputMixin
from baryflow.estimators._leave_one_out import learn
from baryflow.estimators._parameters import progress_of, restore_classifier, source_options
from baryflow.estimators._persistence import Persistable, Shell, plain
from baryflow.estimators._predict import assess, atoms_of, judged, predict_proba
from baryflow.estimators._report import (
    ColumnComparison,
    TargetExplanation,
    compare_columns,
    describe,
    describe_competing,
    describe_proportions,
)
from baryflow.estimators._sensors import describe_units, find_counters
from baryflow.estimators._sources import (
    SourceKnowledge,
    atoms_as_mixtures,
    complete_sources,
)
from baryflow.estimators._state import Adaptation, TargetState, clean, find_faults
from baryflow.estimators._threads import one_thread
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats


@dataclass(frozen=True, eq=False)
class SourceRows:
    """Rows of the sources as they came, their labels, and the source of each."""

    X: Floats
    y: Any
    names: Any

    def plus(self, X: Floats, y: Any, name: Any) -> SourceRows:
        """Return them with those of one more source."""
        if (y.dtype.kind in "UO") != (self.y.dtype.kind in "UO"):
            raise InvalidInputError(
                f"y must hold classes of the same kind as before, {self.y.dtype}, got {y.dtype}"
            )
        names = np.array([*self.names.tolist(), *[name] * len(X)])
        return SourceRows(np.concatenate([self.X, X]), np.concatenate([self.y, y]), names)


@dataclass(frozen=True, eq=False)
class AdapterState:
    """All that an estimator knows."""

    shell: Shell
    classes: Any
    sources: list[Any]
    knowledge: SourceKnowledge
    learned_with: dict[str, Any]
    target: TargetState
    kept: SourceRows | None


class Adapter(Persistable, InputMixin, ClassifierMixin, BaseEstimator):
    """A classifier that adapts to a target.

    Attributes
    ----------
    sources_ : list
        Names of the sources.
    knowledge_ : SourceKnowledge
        What the sources taught; it is never changed, and many models can share it.
    state_ : TargetState
        All that is known of the target: the one thing that changes while it is followed.
    _classes : array
        Classes of the sources.
    _kept : SourceRows or None
        The sources themselves.
    """

    classifier: Any
    validate: bool
    n_jobs: int | None
    random_state: Any

    sources_: list[Any]
    knowledge_: SourceKnowledge
    state_: TargetState
    _classes: Any
    _kept: SourceRows | None
    _learned_with: dict[str, Any]
    state_type = AdapterState

    # -- learning --------------------------------------------------------------------------------

    def _learn(self, X: Floats, y: Any, names: Any) -> tuple[SourceKnowledge, Any, list[Any]]:
        """Learn from the rows of all sources; return it, the classes and the sources' names."""
        classes, codes = np.unique(y, return_inverse=True)
        rows, labels, sources = by_source(X, codes, names)
        options = source_options(self, classes, len(sources))
        columns = getattr(self, "feature_names_in_", None)
        complete, units = complete_sources(rows, labels, len(classes), columns)
        for found in describe_units(units, sources, columns):
            warnings.warn(
                found, UserWarning, stacklevel=5
            )  # the caller of fit, past the limit on threads
        knowledge = learn(
            complete,
            choose_classifiers(self.classifier),
            options,
            validate=bool(self.validate),
            n_jobs=self.n_jobs,
            progress=progress_of(self),
        )
        return knowledge, classes, sources

    def _warn_of_counters(self, X: Floats, names: Any) -> None:
        """Point out columns of the sources that look like a counter or a clock."""
        columns = getattr(self, "feature_names_in_", range(X.shape[1]))
        for column in find_counters([X[names == name] for name in np.unique(names)]).tolist():
            warnings.warn(
                f"column {columns[column]!r} rises from row to row in every source: leave it out if it "
                "counts rows or time, which continue in a target",
                UserWarning,
                stacklevel=4,  # the caller of fit, past the limit on threads
            )

    # -- looking ---------------------------------------------------------------------------------

    @property
    def classes_(self) -> Any:
        """Classes of the sources, then those of the target alone."""
        known, more = self._classes, self._fitted().new_classes
        if not more:
            return known
        kind = str if known.dtype.kind == "U" else known.dtype  # names of any length
        return np.array([*known.tolist(), *more], dtype=kind)

    @property
    def columns_(self) -> dict[Any, str]:
        """Columns of the target that are not as they should be, and what is wrong with them."""
        return self._find_faults(self._fitted())

    def _find_faults(self, state: TargetState) -> dict[Any, str]:
        return find_faults(self.knowledge_, state, getattr(self, "feature_names_in_", None))

    @property
    def committee_(self) -> Committee:
        """Whether it adapts, why, and the weights of the experts."""
        self._fitted()
        return self.knowledge_.committee

    def _fitted(self) -> TargetState:
        """Return the state; AttributeError before `fit`."""
        if "state_" not in vars(self):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        return self.state_

    @one_thread
    def _judged(self) -> TargetState:
        """Return the state, the predictions for the last rows judged."""
        return judged(self.knowledge_, self._fitted())

    def _adaptation(self) -> Adaptation:
        """Return the last adaptation; AttributeError before the first one."""
        adaptation = self._fitted().adaptation
        if adaptation is None:
            raise AttributeError("no target row was seen yet")
        return adaptation

    @property
    def reliability_(self) -> float:
        """Estimated accuracy of the predictions for the last rows, 0 before the first.

        No label is needed. It is the mean probability of the predicted classes, in which novel rows
        count as wrong. Labels of rows that were chosen at random sharpen it.
        """
        return self._judged().reliability or 0.0

    @property
    def coverage_(self) -> float:
        """Share of the classes that were seen; one of fewer than ten rows counts in part."""
        return self._fitted().coverage

    @property
    def novelty_(self) -> float:
        """Share of the last rows whose novelty is above 0.99."""
        return self._judged().novel or 0.0

    @property
    def history_(self) -> History:
        """Resemblance, proportions, reliability, coverage, novelty and loss along the stream.

        Its size is bounded. :meth:`plot` draws it.
        """
        state = self._fitted()
        return self._judged().recorded().history if len(state.history) else state.history

    @property
    def resemblance_(self) -> dict[Any, float]:
        """How much of each source is in the target, by its name; empty before the first target row.

        The shares sum to 1. Domains are compared in the coordinates of the view, where shift and scale
        of a domain no longer count.
        """
        shares = self._fitted().resemblance.tolist()
        return dict(zip(self.sources_, shares, strict=True)) if shares else {}

    @property
    def proportions_(self) -> Floats:
        """Class proportions of the target rows seen."""
        self._adaptation()
        return self._fitted().proportions

    @property
    def explanations_(self) -> list[TargetExplanation]:
        """What could explain the target, the likeliest first, in the user's units."""
        units, usual = self._fitted().units, self.knowledge_.model.moments
        return [
            TargetExplanation.of(one, self._classes, units, usual)
            for one in self._adaptation().explanations
        ]

    @property
    def ambiguity_(self) -> float:
        """Share of the rows seen whose predicted class depends on which explanation is right."""
        return self._adaptation().ambiguity

    @property
    def target_mixture_(self) -> Mixture:
        """The labelled reconstruction of the target, in the coordinates of the view."""
        return self._adaptation().reconstruction

    @property
    def coordinates_(self) -> dict[Any, Floats]:
        """Barycentric coordinates of every source by its name, and of the target."""
        state = self._fitted()
        found = zip(self.sources_, self.knowledge_.model.domains, strict=True)
        coordinates = {name: domain.coordinates for name, domain in found}
        if state.adaptation is not None:
            coordinates[TARGET] = state.adaptation.coordinates
        return coordinates

    @property
    def atoms_(self) -> list[Mixture]:
        """The atoms as labelled mixtures, in the coordinates of the view."""
        check_is_fitted(self, "state_")
        if self.state_.adaptation is None:
            return atoms_as_mixtures(self.knowledge_.model.dictionary)
        return atoms_as_mixtures(atoms_of(self.knowledge_, self.state_.adaptation))

    # -- predictions -----------------------------------------------------------------------------

    @one_thread
    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of every class for target rows.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_classes)

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        rows = clean(*self._known(), self.check_rows(X))[0]
        return predict_proba(*self._known(), rows)

    def predict(self, X: Any) -> Any:
        """Return the most probable class of every target row.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def novelty(self, X: Any) -> Floats:
        """Return how unlike everything known the rows are, 0 to 1.

        The share of known rows that are less novel: above 0.99 a row is more unusual than all but one
        in a hundred. It may be farther from the sources than rows of left-out sources are, or lie where
        the target has rows now and had none before.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        return self.assess(X)[1]

    @one_thread
    def assess(self, X: Any) -> tuple[Floats, Floats]:
        """Return what :meth:`predict_proba` and :meth:`novelty` return, in nearly half the time.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)

        Returns
        -------
        probabilities : array of shape (n_samples, n_classes)
        novelty : array of shape (n_samples,)

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on, or do not hold numbers.
        """
        return assess(*self._known(), self.check_rows(X))

    def _known(self) -> tuple[SourceKnowledge, TargetState]:
        """Return what the sources taught, and what is known of the target."""
        check_is_fitted(self, "state_")
        return self.knowledge_, self.state_

    # -- looking ---------------------------------------------------------------------------------

    def report(self) -> str:
        """Return a text that explains what was learned and decided, and why.

        Returns
        -------
        str
        """
        check_is_fitted(self)
        return describe(self.knowledge_, self._judged(), self.classes_, self.sources_, self.columns_)

    def describe_proportions(self) -> str:
        """Return what explains the target: how often each class occurs, and how likely that is.

        Returns
        -------
        str

        Raises
        ------
        InvalidInputError
            If no target row was seen yet.
        """
        check_is_fitted(self)
        if self.state_.adaptation is None:
            raise InvalidInputError("no target row was seen yet")
        return describe_proportions(self.state_.adaptation, self._classes)

    def describe_explanations(self) -> list[str]:
        """Return a sentence for each explanation of the target, if several compete; otherwise none.

        Each has the class proportions, and the columns that would be calibrated least like the sources,
        in the units of the rows.

        Returns
        -------
        list of str
        """
        names = getattr(self, "feature_names_in_", None)
        return describe_competing(*self._known(), self._classes, names)

    def plot(self) -> Any:
        """Draw resemblance, reliability, novelty, proportions and loss along the stream.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        InvalidInputError
            If no target row was seen yet.
        ModuleNotFoundError
            If matplotlib is not there: ``pip install 'baryflow[plot]'``.
        """
        from baryflow.estimators._plots import plot_stream

        check_is_fitted(self)
        return plot_stream(self.history_, self.sources_, self.classes_)

    @property
    def n_samples_seen_(self) -> int:
        """Target rows seen."""
        check_is_fitted(self, "state_")
        return self.state_.n_rows

    def compare_columns(self) -> ColumnComparison:
        """Compare the columns of the target with those of the sources, in the units of rows.

        Use it to see which sensors of the target are set differently, or show another operating point.
        Other class proportions move means too.

        Returns
        -------
        ColumnComparison
            Means and standard deviations of every column; what was not seen of the target is NaN.

        Examples
        --------
        >>> from baryflow import OnlineDaDiL
        >>> from baryflow.datasets import make_domains
        >>> p = make_domains(n_per_class=40, random_state=0)
        >>> model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
        >>> model = model.fit(p.X, p.y, p.domain).partial_fit(p.X_target)
        >>> found = model.compare_columns()
        >>> first = found.order()[0]  # the column that differs most
        >>> bool(abs(found.differences[first]) == abs(found.differences).max())
        True
        """
        check_is_fitted(self)
        return compare_columns(*self._known(), getattr(self, "feature_names_in_", None))

    # -- keeping ---------------------------------------------------------------------------------

    def _state(self) -> AdapterState:
        knowledge = self.knowledge_
        knowledge = replace(knowledge, plain=knowledge.plain.packed())
        return AdapterState(
            Shell.of(self),
            self._classes,
            self.sources_,
            knowledge,
            {name: plain(value) for name, value in self._learned_with.items()},
            self.state_,
            self._kept,
        )

    @classmethod
    def _from_state(cls, state: AdapterState) -> Self:
        model = cls(**state.shell.parameters)
        state.shell.fill(model)
        restore_classifier(model, state.knowledge)
        if len(set(state.classes.tolist())) != state.knowledge.model.n_classes:
            raise InvalidInputError("the classes do not fit the model")
        if state.knowledge.model.centre.shape != (model.n_features_in_,):
            raise InvalidInputError("the number of columns does not fit the model")
        model._classes, model.sources_ = state.classes, state.sources
        model.knowledge_, model.state_ = state.knowledge, state.target
        model._learned_with, model._kept = dict(state.learned_with), state.kept
        if "classifier" in model._learned_with:
            model._learned_with["classifier"] = model.classifier
        model.predict_proba(InOrder(np.zeros((1, model.n_features_in_))))  # finds what does not fit
        return model
