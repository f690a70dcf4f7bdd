"""Online multi-source adaptation: the target flows past."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from baryflow.core.dictionary import PROXIMAL
from baryflow.estimators.adaptation import ONLINE_STEPS
from baryflow.estimators.base import Adapter, AdapterState, SourceRows
from baryflow.estimators.domains import check_labels, check_new_source, find_places, name_sources
from baryflow.estimators.follower import Follower
from baryflow.estimators.parameters import (
    PAPER,
    check_following,
    manner_of,
    require_unchanged,
)
from baryflow.estimators.sensors import describe_new_faults
from baryflow.estimators.threads import one_thread
from baryflow.estimators.twins import HasTwins
from baryflow.estimators.unknown import TellsUnknown
from baryflow.estimators.watching import Watched
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_count, as_weights


class OnlineDaDiL(TellsUnknown, Watched, Adapter, HasTwins):
    """Adapt a classifier from labelled sources to one unlabelled stream, while it flows.

    ``fit`` learns the sources. Each ``partial_fit`` absorbs target rows into a mixture of bounded size
    and rebuilds the labelled reconstruction of the target, starting again from the source-only
    dictionary, so that the result depends on what was seen and hardly on its order. The target's mix of
    classes is found along with it: it may be any. How many rows it takes until the result is believed,
    and whether to adapt at all, is learned by playing each source as a stream.

    Parameters
    ----------
    n_atoms, components_per_class, view, proportions, votes, predictor, class_prior, rehearse
        As in :class:`~baryflow.DaDiL`.
    warm_start : bool, default=False
        Start every update from the last one; otherwise from the source-only dictionary.
    ramp : float, default=0.0
        The target's weight in the loss is mass / (mass + ramp); 0 is the paper's.
    n_steps : int, default=3
        Block steps after each batch.
    proximal : float, default=0.01
        How firmly a block step holds the atoms where they were. A warm start needs 100 or so: with
        exact steps it never forgets what the first batches, which show little, made it believe.
    target_components : int, optional
        Components kept of the target; without it three times the number of classes.
    target_mixture : {"rows", "paper"}
        How the target's mixture is kept: a component for every row, merged by Ward distance in the
        view, or the paper's algorithm, which goes without a view and without votes.
    batch_components : int, optional
        With ``target_mixture="paper"``: components that a batch becomes at most, the paper's ΔK.
        Without it as many as there are classes, and fewer than the batch has rows.
    half_life : float, optional
        After this many target rows a row counts half.
    unknown : float, optional
        Novelty above which :meth:`predict` answers `unknown_label`; 0.999, say. Off without it.
    unknown_label : optional
        Without it -1 for numbered classes and "unknown" for named ones.
    keep_sources : bool, default=True
        Keep the sources' rows, which :meth:`add_source` needs; a saved model then holds them too.
    n_jobs, verbose, random_state
        As in :class:`~baryflow.DaDiL`; they concern ``fit``.

    Attributes
    ----------
    classes_, sources_, atoms_, coordinates_, decision_, columns_, history_, reliability_, resemblance_
        As in :class:`~baryflow.DaDiL`.
    target_mixture_, mix_, proportions_, class_means_
        As there, after the first ``partial_fit``.
    n_samples_seen_ : int
        Target rows seen.
    loss_curve_ : array of shape (n_batches, 2)
        Loss of the target before and after the steps of each update, of the last 10,000 updates.

    Examples
    --------
    >>> from baryflow import OnlineDaDiL
    >>> from baryflow.datasets import make_domains
    >>> problem = make_domains(n_per_class=40, random_state=0)
    >>> model = OnlineDaDiL(random_state=0).fit(problem.X, problem.y, sample_domain=problem.domain)
    >>> for batch in problem.X_target.reshape(10, 32, -1):
    ...     labels = model.predict(batch)     # test ...
    ...     model = model.partial_fit(batch)  # ... then train
    >>> bool(model.refine().score(problem.X_target, problem.y_target) > 0.9)
    True
    """

    kind = "online_dadil"

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
        warm_start: bool = False,
        ramp: float = 0.0,
        n_steps: int = ONLINE_STEPS,
        proximal: float = PROXIMAL,
        target_components: int | None = None,
        target_mixture: str = "rows",
        batch_components: int | None = None,
        half_life: float | None = None,
        unknown: float | None = None,
        unknown_label: Any = None,
        keep_sources: bool = True,
        n_jobs: int | None = None,
        verbose: Any = False,
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
        self.warm_start = warm_start
        self.ramp = ramp
        self.n_steps = n_steps
        self.proximal = proximal
        self.target_components = target_components
        self.target_mixture = target_mixture
        self.batch_components = batch_components
        self.half_life = half_life
        self.unknown = unknown
        self.unknown_label = unknown_label
        self.keep_sources = keep_sources
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    @classmethod
    def paper(cls, n_atoms: int | None = None, *, random_state: Any = None) -> Self:
        """Return the paper's own method: its mixture, small steps from a warm start, MAP.

        No ramp, no view, no rehearsal: features are taken as they come, so put them on comparable
        scales first. The paper names no sizes for its plant; here K_min is 5, K_max three times the
        number of classes, and a batch becomes up to `batch_components`. For its small steps along the
        gradient stand block steps damped by `proximal`.

        Parameters
        ----------
        n_atoms : int, optional
        random_state : int, RandomState, Generator or None

        Returns
        -------
        OnlineDaDiL
            Not fitted.
        """
        return cls(n_atoms, random_state=random_state, **PAPER)

    # -- the sources -----------------------------------------------------------------------------

    @one_thread
    def fit(self, X: Any, y: Any, sample_domain: Any = None) -> Self:
        """Learn the labelled sources; forget any target.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            A missing value (NaN) counts as the mean of its domain.
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
            if sample_domain is None and self.rehearse:
                warnings.warn(
                    "without sample_domain all rows are one source, so whether adapting helps cannot be "
                    "tested and nothing is adapted: pass the source of each row",
                    UserWarning,
                    stacklevel=3,  # the caller, past the limit on threads
                )
            self._begin(rows, y, name_sources(sample_domain, len(rows)))
        return self

    @one_thread
    def add_source(self, X: Any, y: Any, name: Any) -> Self:
        """Learn one more labelled source, which may bring new classes; the target seen is kept.

        The view, the classifiers and the dictionary are learned anew from all sources, which needs
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
        # What is expected of the classes is learned anew, perhaps for more of them.
        require_unchanged(self, self._learned_with, but=("class_prior",))
        if (kept := self._kept) is None:
            raise InvalidInputError(
                "add_source needs the rows of the sources, which were not kept: fit with "
                "keep_sources=True, in memory"
            )
        check_new_source(X, y, name, self.sources_)
        rows = self._rows(X)
        known = kept.plus(rows, check_labels(y, len(rows)), name)
        before, columns = self._follower, self.columns_
        sources, classes = self.sources_, self.classes_.tolist()
        with self._unless_it_fails():
            self._begin(known.X, known.y, known.names)
            if before.target.mass > 0.0:
                places = find_places(self.sources_, sources), find_places(self.classes_, classes)
                self._follower = before.retell(self._follower.learned, self._follower.manner, *places)
                self.columns_ = columns
                self._expose()
        return self

    def _begin(self, X: Floats, y: Any, names: Any) -> None:
        """Learn all sources; nothing of the model changes unless all of it succeeds."""
        manner_of(self, len(np.unique(y)))  # refuses what cannot be before the long work
        found = self._learn(X, y, names)
        rows = SourceRows(X.copy(), np.array(y), np.array(names)) if self.keep_sources else None
        self._settle(*found, rows)

    # -- the target ------------------------------------------------------------------------------

    @one_thread
    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, classes: Any = None
    ) -> Self:
        """Absorb unlabelled target rows and adapt.

        Labels are never used: a target has none, and passing some gives a warning. On a model that was
        never fitted, labelled rows are its sources, as in :meth:`fit`.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            A missing value (NaN) counts as the mean of what was seen of its column.
        y, classes : ignored
        sample_weight : array of shape (n_samples,), optional
            Counts: 2 is a row seen twice, 0 a row not seen.

        Returns
        -------
        OnlineDaDiL
            Itself. If it fails, nothing of the batch was absorbed.

        Raises
        ------
        InvalidInputError
            If rows or weights do not fit, or a parameter was changed that cannot be.
        """
        if y is not None and not hasattr(self, "_follower"):
            if sample_weight is not None:
                raise InvalidInputError("sample_weight is for target rows: sources take none")
            return self.fit(X, y)
        with self._unless_it_fails():  # a warning may be made an error
            found = self.absorb(X, sample_weight)
            if y is not None:
                warnings.warn(
                    "y was not used: rows of a target have no labels. To learn another labelled source, "
                    "call add_source; to score predictions, call score",
                    UserWarning,
                    stacklevel=3,  # the caller, past the limit on threads
                )
            if found:
                warnings.warn(found, UserWarning, stacklevel=3)
        return self

    @one_thread
    def absorb(self, X: Any, sample_weight: Any = None) -> str:
        """Absorb unlabelled target rows and adapt, and return what is wrong with columns.

        :meth:`partial_fit` for a program that follows many targets: what it warns about is returned
        instead. If it fails, the model stays as it was.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
        sample_weight : array of shape (n_samples,), optional

        Returns
        -------
        str
            Columns that were in order until now and are not any more; empty if there are none.

        Raises
        ------
        InvalidInputError
            If rows or weights do not fit, or a parameter was changed that cannot be.
        """
        rows = self._rows(X)
        weights = as_weights(sample_weight, "sample_weight", length=len(rows))
        with self._unless_it_fails():
            follower = self._next_follower()
            follower.absorb(rows, weights)
            self._follower = follower
            before, self.columns_ = self.columns_, self._find_faults()
            self._expose()
        return describe_new_faults(before, self.columns_)

    @one_thread
    def refine(self, n_steps: int = 10) -> Self:
        """Go on improving without data: more steps of the dictionary, each held back a little.

        Parameters
        ----------
        n_steps : int, default=10
            Further steps. Without ``warm_start`` they begin at the sources again, and are ten at
            least: fewer would say less than what is there already.

        Returns
        -------
        OnlineDaDiL
            Itself.

        Raises
        ------
        InvalidInputError
            If no target row was seen yet.
        """
        check_is_fitted(self)
        with self._unless_it_fails():
            follower = self._next_follower()
            follower.refine(as_count(n_steps, "n_steps"))
            self._follower = follower
            self._expose()
        return self

    def _next_follower(self) -> Follower:
        """Return a copy of the follower with the current parameters, if these may have changed."""
        require_unchanged(self, self._learned_with)
        follower = self._follower.copy()
        now, before = self.get_params(deep=False), vars(self).get("_following_with", {})
        if any(value is not before.get(name, self) for name, value in now.items()):
            follower.manner = manner_of(self, len(self.classes_))
            self._following_with = now
        return follower

    @property
    def loss_curve_(self) -> Floats:
        """Loss of the target before and after the steps of each update."""
        check_is_fitted(self, "_follower")
        return np.array(list(self._follower.losses)).reshape(-1, 2)

    def _state(self) -> AdapterState:
        require_unchanged(self, self._learned_with)
        manner_of(self, len(self.classes_))  # what cannot be used could not be loaded either
        return super()._state()

    @classmethod
    def _from_state(cls, state: AdapterState) -> Self:
        model = super()._from_state(state)
        check_following(model)
        return model
