"""Online multi-source adaptation: the target flows past."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from baryflow.estimators._adapter import Adapter, AdapterState, SourceRows
from baryflow.estimators._certificate import Certificate
from baryflow.estimators._committee import check_way
from baryflow.estimators._domains import (
    check_labels,
    check_new_source,
    find_places,
    name_sources,
    read_partial_labels,
)
from baryflow.estimators._feedback import Query
from baryflow.estimators._follow import (
    certify,
    follow,
    forget,
    learn_labels,
    rebind,
    reconfigure,
    set_baseline,
)
from baryflow.estimators._parameters import follow_settings, remember_fixed, require_unchanged
from baryflow.estimators._predict import Predicted, choose_queries
from baryflow.estimators._sensors import describe_new_faults
from baryflow.estimators._sources import SourceKnowledge
from baryflow.estimators._state import TargetState, begin
from baryflow.estimators._threads import one_thread
from baryflow.estimators._unknown import check_unknown, mark_unknown, name_unknown
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_count, as_real, as_vector, as_weights


class OnlineDaDiL(Adapter):
    """Adapt a classifier from labelled sources to one unlabelled stream, while it flows.

    ``fit`` learns the sources. Each ``partial_fit`` absorbs target rows into a mixture of bounded size.
    When enough rows are new, it looks for explanations of the target: class proportions, and the offset
    and gain of every column that follow from them. Evidence, labels and a baseline weigh them. Under
    each, the dictionary is fitted to the mixture, starting from the source-only dictionary, so that the
    result depends on the rows seen and hardly on their order. A committee of experts predicts: plain
    classifiers, the reconstruction of the target from the atoms, and its own components labelled through
    the transport plan. Their weights are learned by leave-one-source-out.

    Parameters
    ----------
    n_atoms : int, optional
        Mixtures in the dictionary; without it one fewer than there are sources, between 2 and 4.
    classifier : None, str, scikit-learn classifier, or list of these, optional
        The plain classifiers. None is logistic regression (``"linear"``), a support vector machine with
        an RBF kernel (``"kernel"``) and extremely randomised trees (``"trees"``); ``"linear"`` alone is
        the cheapest. A classifier of your own needs ``predict_proba`` or ``decision_function``, and
        skops to be saved.
    class_prior : mapping of class → share, or array of shape (n_classes,), optional
        What you know of the target: ``{"normal": 0.5}`` says that half of its rows are normal, and the
        other classes share the rest equally. Without it classes are expected as in the sources. Rows can
        overrule it where they tell classes apart.
    label_shift : bool, default=True
        Classes may be more or less frequent than expected. Without it the target has the expected
        proportions.
    validate : bool, default=True
        Learn the weights of the experts by leave-one-source-out. Without it all count the same.
    adapt : {True, "standardise", False}, default=True
        ``"standardise"`` only standardises the target by its mean and deviation, corrected for
        `class_prior`, and asks the plain classifiers that learned each source in that way. False asks
        those of raw rows. Labels are learned from in each case; a baseline only with True.
    target_components : int, optional
        Components kept of the target; without it three times the number of classes.
    half_life : float, optional
        After this many more target rows a row counts half. Without it all rows count the same.
    unknown : float, optional
        Novelty above which :meth:`predict` answers `unknown_label`, for example 0.999. Off without it.
    unknown_label : optional
        Without it -1 for numbered classes and "unknown" for named ones.
    keep_sources : bool, default=False
        Keep the sources' rows, which :meth:`add_source` needs; a saved model then holds them too.
    n_jobs : int, optional
        Leave-one-source-out folds at the same time, as in joblib. By default one per core, if they take
        long and this is the main thread of a program. The outcome is the same.
    verbose : bool or callable, default=False
        Print the progress of ``fit`` to standard error, or call this with how much is done, of how
        much, and a description. It is an estimate by the time that steps take.
    random_state : int, RandomState, Generator or None
        Seeds the starts of the sources' mixtures and the trees.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    sources_ : list
        Names of the sources.
    coordinates_ : dict of domain name → array of shape (n_atoms,)
        The target's are under ``"target"``.
    resemblance_ : dict of source name → float
        Shares of the sources in the target, on the simplex: which histories it resembles, in the
        coordinates of the view, where shift and scale of a domain no longer count.
    atoms_ : list of Mixture
        Labelled, in the coordinates of the view.
    target_mixture_ : Mixture
        The labelled reconstruction of the target, after the first ``partial_fit``.
    proportions_ : array of shape (n_classes,)
        Class proportions of the target, after the first ``partial_fit``.
    explanations_ : list of TargetExplanation
        What could explain the target, the likeliest first: weight, class proportions, and offset and
        gain of every column.
    ambiguity_ : float
        Share of the rows seen whose predicted class depends on which explanation is right.
    committee_ : Committee
        Whether it adapts, why, and the weights of the experts.
    reliability_ : float
        Estimated accuracy of the predictions for the last rows, without labels: the mean probability
        of the predicted classes, in which novel rows count as wrong.
    coverage_ : float
        Share of the classes that were seen; one of fewer than ten rows counts in part.
    novelty_ : float
        Share of the last rows whose novelty is above 0.99.
    columns_ : dict of column → str
        Columns of the target that are not as they should be, and what is wrong with them.
    history_ : History
        How resemblance, proportions, reliability, coverage, novelty and loss went, in constant memory;
        :meth:`plot` draws it.
    n_samples_seen_ : int
        Target rows seen.
    n_labels_ : int
        Labels of target rows that came.
    certificate_ : Certificate
        What labels of rows chosen at random prove about the predictions.

    Examples
    --------
    >>> from baryflow import OnlineDaDiL
    >>> from baryflow.datasets import make_domains
    >>> problem = make_domains(n_per_class=20, random_state=0)
    >>> model = OnlineDaDiL(random_state=0).fit(problem.X, problem.y, sample_domain=problem.domain)
    >>> for batch in problem.X_target.reshape(5, 32, -1):
    ...     labels = model.predict(batch)     # test ...
    ...     model = model.partial_fit(batch)  # ... then train
    >>> bool(model.score(problem.X_target, problem.y_target) > 0.9)
    True
    """

    kind = "online_dadil"

    def __init__(
        self,
        n_atoms: int | None = None,
        *,
        classifier: Any = None,
        class_prior: Any = None,
        label_shift: bool = True,
        validate: bool = True,
        adapt: bool | str = True,
        target_components: int | None = None,
        half_life: float | None = None,
        unknown: float | None = None,
        unknown_label: Any = None,
        keep_sources: bool = False,
        n_jobs: int | None = None,
        verbose: Any = False,
        random_state: Any = None,
    ) -> None:
        self.n_atoms = n_atoms
        self.classifier = classifier
        self.class_prior = class_prior
        self.label_shift = label_shift
        self.validate = validate
        self.adapt = adapt
        self.target_components = target_components
        self.half_life = half_life
        self.unknown = unknown
        self.unknown_label = unknown_label
        self.keep_sources = keep_sources
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    # -- the sources -----------------------------------------------------------------------------

    @one_thread
    def fit(self, X: Any, y: Any, sample_domain: Any = None) -> Self:
        """Learn the labelled sources; forget any target.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            A missing value (NaN) counts as the mean of its domain, or of the other sources if its domain
            lacks the column. A column of a source in another unit is converted, and a warning names it.
        y : array of shape (n_samples,)
        sample_domain : array of shape (n_samples,), optional
            The source of each row, a name or a positive number. Without it all rows are one source:
            whether adapting helps cannot be tested then, and a warning says so.

        Returns
        -------
        OnlineDaDiL
            Itself. If it fails, what was learned before stays.

        Raises
        ------
        InvalidInputError
            If something does not fit; the message says what to do.
        """
        with self._unless_it_fails():
            rows, y = self._first_labelled(X, y)
            if sample_domain is None and self.validate:
                warnings.warn(
                    "without sample_domain all rows are one source, so whether adapting helps cannot be "
                    "tested and nothing is adapted: pass the source of each row",
                    UserWarning,
                    stacklevel=3,  # the caller, past the limit on threads
                )
            names = name_sources(sample_domain, len(rows))
            self._warn_of_counters(rows, names)
            self._begin(rows, y, names)
        return self

    @one_thread
    def add_source(self, X: Any, y: Any, name: Any) -> Self:
        """Learn one more labelled source, which may bring new classes; the target seen is kept.

        The view, the classifiers and the dictionary are learned again from all sources, which needs
        ``keep_sources=True``. The target's mixture stays: it is a summary of raw rows.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        name : str or int
            Of the source.

        Returns
        -------
        OnlineDaDiL
            Itself.

        Raises
        ------
        InvalidInputError
            If the sources' rows were not kept, the name is taken, or something does not fit.
        """
        check_is_fitted(self)
        # Class proportions are expected again, perhaps of more classes.
        require_unchanged(self, self._learned_with, but=("class_prior",))
        if (kept := self._kept) is None:
            raise InvalidInputError(
                "add_source needs the rows of the sources, which were not kept: fit with "
                "keep_sources=True, in memory"
            )
        check_new_source(X, y, name, self.sources_)
        rows = self.check_rows(X)
        known = kept.plus(rows, check_labels(y, len(rows)), name)
        before, sources, classes = self.state_, self.sources_, self.classes_.tolist()
        with self._unless_it_fails():
            self._begin(known.X, known.y, known.names)
            now = self._classes.tolist()
            own = tuple(name for name in before.new_classes if name not in now)
            places = find_places(self.sources_, sources), find_places([*now, *own], classes)
            self.state_ = rebind(self.knowledge_, self.state_, before, places, own)
        return self

    def _begin(self, X: Floats, y: Any, names: Any) -> None:
        """Learn all sources; nothing of the model changes unless all of it succeeds."""
        check_way(self.adapt)
        follow_settings(self, len(np.unique(y)))  # refuses wrong parameters before the long work
        found = self._learn(X, y, names)
        rows = SourceRows(X.copy(), np.array(y), np.array(names)) if self.keep_sources else None
        self._settle(*found, rows)

    def _settle(
        self, knowledge: SourceKnowledge, classes: Any, sources: list[Any], rows: SourceRows | None
    ) -> None:
        """Begin to follow a target with what was learned of the sources, and their rows, if any."""
        settings, label_shift = follow_settings(self, len(classes))
        self._classes, self.sources_ = classes, sources
        self.knowledge_ = knowledge.limit(check_way(self.adapt))
        self.state_ = begin(self.knowledge_, settings, label_shift=label_shift)
        self._learned_with, self._kept = remember_fixed(self), rows

    def adopt(
        self, knowledge: SourceKnowledge, classes: Any, sources: list[Any], columns: list[Any] | int
    ) -> Self:
        """Begin to follow a target with what was learned elsewhere, from rows that are not here.

        Parameters
        ----------
        knowledge : SourceKnowledge
        classes : array of shape (n_classes,)
        sources : list
            Their names.
        columns : list or int
            Names of the features, or how many there are.

        Returns
        -------
        OnlineDaDiL
            Itself.

        Raises
        ------
        InvalidInputError
            If parameters are out of their range, or the parts do not fit together.
        """
        model = knowledge.model
        if len(classes) != model.n_classes or len(sources) != len(model.domains):
            raise InvalidInputError(
                f"what was learned is of {model.n_classes} classes and {len(model.domains)} sources, "
                f"got {len(classes)} and {len(sources)}"
            )
        with self._unless_it_fails():
            self.n_features_in_ = columns if isinstance(columns, int) else len(columns)
            self.__dict__.pop("feature_names_in_", None)
            if not isinstance(columns, int) and all(isinstance(name, str) for name in columns):
                self.feature_names_in_ = np.array(columns, dtype=object)
            self._settle(knowledge, classes, sources, None)
        return self

    # -- the target ------------------------------------------------------------------------------

    @one_thread
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        classes: Any = None,
        certify: bool = False,
    ) -> Self:
        """Absorb target rows and adapt; learn from their labels, if some have any.

        On a model that was never fitted, labelled rows are its sources, as in :meth:`fit`.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            A missing value (NaN) counts as the mean of what was seen of its column.
        y : array of shape (n_samples,), optional
            Labels, as in :meth:`feedback`. None, NaN, and -1 if it is no class, mark rows without one.
        sample_weight : array of shape (n_samples,), optional
            Counts: 2 is a row seen twice, 0 a row not seen.
        classes : ignored
        certify : bool, default=False
            The labelled rows were chosen at random, as in :meth:`feedback`.

        Returns
        -------
        OnlineDaDiL
            Itself. If it fails, nothing of the batch was absorbed.

        Raises
        ------
        InvalidInputError
            If rows, labels or weights do not fit, or a parameter was changed that cannot be.
        """
        if y is not None and not hasattr(self, "state_"):
            if sample_weight is not None:
                raise InvalidInputError("sample_weight is for target rows: sources take none")
            return self.fit(X, y)
        with self._unless_it_fails():  # a warning may be made an error
            found = self.absorb(X, sample_weight, y=y, certify=certify)
            if found:
                warnings.warn(found, UserWarning, stacklevel=3)
        return self

    @one_thread
    def absorb(
        self,
        X: Any,
        sample_weight: Any = None,
        *,
        y: Any = None,
        positions: Any = None,
        certify: bool = False,
        predicted: tuple[Any, Any] | None = None,
    ) -> str:
        """Absorb target rows and adapt, and return what is wrong with columns.

        :meth:`partial_fit` for a program that follows many targets: what it warns about is returned
        instead. If it fails, the model stays as it was.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
        sample_weight : array of shape (n_samples,), optional
        y : array of shape (n_samples,), optional
            Labels, as in :meth:`partial_fit`.
        positions : array of shape (n_samples,), optional
            Whole numbers by which :meth:`query` knows the rows. Without them rows
            are numbered from 0 as they come.
        certify : bool, default=False
            The labelled rows were chosen at random, as in :meth:`feedback`.
        predicted : tuple of two arrays of shape (n_samples,), optional
            The probability of the predicted class of each row, and its novelty, as :meth:`assess`
            returned them before. ``reliability_`` is then that of these predictions, unless this call
            adapts; the rows are not predicted again.

        Returns
        -------
        str
            Columns that were in order until now and are not any more; empty if there are none.

        Raises
        ------
        InvalidInputError
            If rows, labels or weights do not fit, or a parameter was changed that cannot be.
        """
        rows = self.check_rows(X)
        weights = as_weights(sample_weight, "sample_weight", length=len(rows))
        labelled, labels = self._read_labels(y, len(rows))
        counts = weights > 0.0  # a row without weight is no row: its label says nothing
        labels = [label for label, there in zip(labels, counts[labelled], strict=True) if there]
        labelled = labelled & counts
        places = None if positions is None else _as_positions(positions)
        if places is not None and places.shape != (len(rows),):
            raise InvalidInputError(f"positions must be {len(rows)} numbers, one for each row")
        state = self._current_state()
        if labels and certify:
            state = self._certify(state, rows[labelled], labels)
        known = None
        if predicted is not None:
            known = Predicted(*(as_vector(one, "predicted", length=len(rows)) for one in predicted))
        state = follow(self.knowledge_, state, rows, weights, positions=places, predicted=known)
        state = self._learn_labels(state, rows[labelled], labels, random=certify)
        found = describe_new_faults(self.columns_, self._find_faults(state))
        self.state_ = state
        return found

    @one_thread
    def feedback(self, X: Any, y: Any, *, certify: bool = False) -> Self:
        """Learn from labels of target rows that were seen before; no row is counted again.

        A label that no source has becomes a class of this target, the last of ``classes_``. Labels may
        come in any order and more than once: the latest of a row counts. At most 50 rows of a class and
        1,000 in all are kept, the latest.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            None, NaN, and -1 if it is no class, mark rows without a label.
        certify : bool, default=False
            The rows were chosen at random, whatever was predicted of them. Then the labels count for
            ``certificate_``, and are trusted fully where predictions are mostly wrong. Labels of queried
            rows, or of errors alone, must not be certified.

        Returns
        -------
        OnlineDaDiL
            Itself. If it fails, nothing was learned.

        Raises
        ------
        InvalidInputError
            If no target row was seen yet, or rows or labels do not fit.

        Examples
        --------
        >>> import numpy as np
        >>> from baryflow import OnlineDaDiL
        >>> from baryflow.datasets import make_domains
        >>> p = make_domains(n_per_class=40, random_state=0)
        >>> model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
        >>> model = model.fit(p.X, p.y, p.domain).partial_fit(p.X_target)
        >>> asked = model.query(5)
        >>> model = model.feedback(asked.rows, p.y_target[asked.positions])
        >>> model.n_labels_
        5
        """
        rows = self.check_rows(X)
        if not self.state_.mass:
            raise InvalidInputError("no target row was seen yet: call partial_fit, with labels if any")
        labelled, labels = self._read_labels(y, len(rows))
        if not labels:
            return self
        state = self._current_state()
        if certify:
            state = self._certify(state, rows[labelled], labels)
        self.state_ = self._learn_labels(state, rows[labelled], labels, random=certify)
        return self

    @one_thread
    def set_baseline(self, X: Any, label: Any) -> Self:
        """Learn rows of this target that are known to be of one class.

        They fix how the target is calibrated: thirty rows of normal operation settle most cases in which
        several explanations fit. They can come before the first row of the stream or during it, and take
        effect at once. They are not counted as rows of the stream. Further rows of a class are added to
        the earlier ones; a row that is given again does not count again.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
        label : str or int
            A class of the sources.

        Returns
        -------
        OnlineDaDiL
            Itself. If it fails, nothing was learned.

        Raises
        ------
        InvalidInputError
            If no source has the class, or no row can be read.

        Examples
        --------
        >>> from baryflow import OnlineDaDiL
        >>> from baryflow.datasets import make_domains
        >>> p = make_domains(n_per_class=40, random_state=0)
        >>> model = OnlineDaDiL(classifier="linear", random_state=0).fit(p.X, p.y, p.domain)
        >>> model = model.set_baseline(p.X_target[p.y_target == 0][:10], 0).partial_fit(p.X_target)
        >>> round(sum(one.weight for one in model.explanations_), 6)
        1.0
        """
        rows, known = self.check_rows(X), self._classes.tolist()
        if label not in known:
            raise InvalidInputError(f"no source has the class {label!r}: use one of {known}")
        rows = rows[~np.isnan(rows).all(axis=1)]
        if not len(rows):
            raise InvalidInputError("a baseline needs at least one row with a value")
        code = known.index(label)
        self.state_ = set_baseline(self.knowledge_, self._current_state(), rows, code)
        return self

    def _read_labels(self, y: Any, n: int) -> tuple[Any, list[Any]]:
        """Return which rows have a label, and these labels."""
        if y is None:
            return np.zeros(n, dtype=bool), []
        unknown = name_unknown(self.unknown_label, self._classes)
        return read_partial_labels(y, n, self._classes, unknown)

    def _learn_labels(
        self, state: TargetState, rows: Floats, labels: list[Any], *, random: bool
    ) -> TargetState:
        """Learn labels, except those of empty rows: nothing can be learned from them."""
        there = np.asarray(~np.isnan(rows).all(axis=1))
        if not there.any():
            return state
        some = [label for label, readable in zip(labels, there, strict=True) if readable]
        return learn_labels(
            self.knowledge_, state, rows[there], *self._number(state, some), random=random
        )

    def _certify(self, state: TargetState, rows: Floats, labels: list[Any]) -> TargetState:
        """Hold labels of rows chosen at random against the predictions."""
        codes, _ = self._number(state, labels)
        return certify(self.knowledge_, state, rows, codes, self.unknown)

    def _number(self, state: TargetState, labels: list[Any]) -> tuple[Any, tuple[Any, ...]]:
        """Return the numbers of labels, and all classes of the target alone, in the order they came."""
        known = self._classes.tolist()
        names = list(dict.fromkeys([*known, *state.new_classes, *labels]))
        number = {name: i for i, name in enumerate(names)}
        codes = np.array([number[label] for label in labels], dtype=np.intp)
        return codes, tuple(names[len(known) :])

    @one_thread
    def query(self, n: int = 10) -> Query:
        """Return the rows that are most worth a label: uncertain, novel, and unlike each other.

        They are chosen among the last rows, at most 1,000 (fewer of many columns), without those that
        have a label. The same model and `n` give the same rows.

        Parameters
        ----------
        n : int, default=10

        Returns
        -------
        Query
            Fewer rows if there are not as many.

        Raises
        ------
        InvalidInputError
            If no target row was seen yet.
        """
        check_is_fitted(self)
        as_count(n, "n")
        if not self.state_.mass:
            raise InvalidInputError("no target row was seen yet: call partial_fit first")
        chosen, probabilities, novelty = choose_queries(*self._known(), n)
        recent = self.state_.recent
        best = probabilities.argmax(axis=1)
        return Query(
            recent.positions[chosen],
            recent.rows[chosen],
            self.classes_[best],
            probabilities[np.arange(len(best)), best],
            novelty,
        )

    @property
    def certificate_(self) -> Certificate:
        """What labels of rows chosen at random prove about the predictions, and about adapting."""
        check_is_fitted(self, "state_")
        return self.state_.certificate

    @property
    def n_labels_(self) -> int:
        """Labels of target rows that came."""
        check_is_fitted(self, "state_")
        return self.state_.n_labels

    @one_thread
    def forget(self, keep: float = 0.0) -> Self:
        """Forget the target, or let what was seen of it count less; the sources stay.

        Parameters
        ----------
        keep : float, default=0.0
            How much a row that was seen counts from now on, 0 to 1. With 0 the target starts from
            nothing, but ``n_samples_seen_`` and ``history_`` continue.

        Returns
        -------
        OnlineDaDiL
            Itself.

        Raises
        ------
        InvalidInputError
            If `keep` is not between 0 and 1.
        """
        check_is_fitted(self)
        keep = as_real(keep, "keep", low=0.0, high=1.0)
        self.state_ = forget(*self._known(), keep)
        return self

    def _current_state(self) -> TargetState:
        """Return the state with the current parameters, as far as these may change."""
        require_unchanged(self, self._learned_with)
        settings, label_shift = follow_settings(self, len(self._classes))
        return reconfigure(self.state_, settings, label_shift=label_shift)

    # -- looking ---------------------------------------------------------------------------------

    def predict(self, X: Any) -> Any:
        """Return the most probable class of every target row, or `unknown_label` for novel ones.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)

        Raises
        ------
        InvalidInputError
            If the columns are not those that it was fitted on or do not hold numbers, if `unknown` is
            not between 0 and 1, or if `unknown_label` is a class.
        """
        if self.unknown is None:
            return super().predict(X)
        check_unknown(self.unknown)
        probabilities, novelty = self.assess(X)
        labels = self.classes_[probabilities.argmax(axis=1)]
        return mark_unknown(labels, novelty > self.unknown, self.unknown_label, self.classes_)

    # -- many targets ----------------------------------------------------------------------------

    def spawn(self, target: TargetState | None = None) -> Self:
        """Return a model of another target, which shares what the sources taught.

        Thousands of targets can be followed, each by a model spawned from one, and the sources are in
        memory once.

        Parameters
        ----------
        target : TargetState, optional
            The ``state_`` of that target; without it that of this model.

        Returns
        -------
        OnlineDaDiL

        Raises
        ------
        InvalidInputError
            If `target` is something else.

        Examples
        --------
        >>> from baryflow import OnlineDaDiL
        >>> from baryflow.datasets import make_domains
        >>> p = make_domains(n_per_class=40, random_state=0)
        >>> model = OnlineDaDiL(validate=False, classifier="linear").fit(p.X, p.y, p.domain)
        >>> pumps = {name: model.spawn() for name in ("north", "south")}
        >>> pumps["north"].partial_fit(p.X_target).n_samples_seen_, pumps["south"].n_samples_seen_
        (320, 0)
        """
        check_is_fitted(self)
        state = self.state_ if target is None else target
        if not isinstance(state, TargetState):
            raise InvalidInputError(
                f"target must be the state_ of a model, or None, got a {type(state).__name__}"
            )
        spawned = type(self).__new__(type(self))
        spawned.__dict__.update(self.__dict__)
        spawned.state_ = state
        return spawned

    # -- keeping ---------------------------------------------------------------------------------

    def _state(self) -> AdapterState:
        require_unchanged(self, self._learned_with)
        follow_settings(self, len(self._classes))  # a model that cannot be used could not be loaded
        return super()._state()

    @classmethod
    def _from_state(cls, state: AdapterState) -> Self:
        model = super()._from_state(state)
        follow_settings(model, state.knowledge.model.n_classes)
        return model


def _as_positions(positions: Any) -> Any:
    """Return positions of rows as whole numbers."""
    found = np.asarray(positions)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise InvalidInputError(f"positions must be whole numbers, got {positions!r}")
    return found.astype(np.int64)
