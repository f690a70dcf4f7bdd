"""What the offline and the online estimator have in common: all but how they come to know a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from baryflow.core.mixture import Mixture
from baryflow.estimators._state import Saves, Shell, plain
from baryflow.estimators.atoms import atoms_as_mixtures
from baryflow.estimators.columns import ColumnComparison, compare
from baryflow.estimators.domains import TARGET, by_source, fill_gaps
from baryflow.estimators.follower import Follower, FollowerState, Manner
from baryflow.estimators.learned import Learned, learn
from baryflow.estimators.parameters import progress_of, source_options, switches
from baryflow.estimators.report import describe, describe_stream
from baryflow.estimators.rows import TakesRows
from baryflow.estimators.shown import ShowsView
from baryflow.estimators.threads import one_thread
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats


@dataclass(frozen=True, eq=False)
class SourceRows:
    """Rows of the sources as they came, their labels, and whose they are."""

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
    learned: Learned
    learned_with: dict[str, Any]
    manner: Manner
    follower: FollowerState
    kept: SourceRows | None


class Adapter(Saves, TakesRows, ShowsView, ClassifierMixin, BaseEstimator):
    """A classifier that follows a target; how it comes to know sources and target is up to others.

    Attributes
    ----------
    classes_, sources_ : array and list
    _follower : Follower
        Follows the target, with what the sources taught.
    _kept : SourceRows or None
        The sources themselves.
    """

    predictor: str
    rehearse: bool
    n_jobs: int | None
    random_state: Any

    classes_: Any
    sources_: list[Any]
    columns_: dict[Any, str]
    _follower: Follower
    _kept: SourceRows | None
    _learned_with: dict[str, Any]
    state_type = AdapterState

    # -- learning --------------------------------------------------------------------------------

    def _learn(self, X: Floats, y: Any, names: Any) -> tuple[Learned, Any, list[Any]]:
        """Learn from the rows of all sources; return it, the classes and the sources' names."""
        classes, codes = np.unique(y, return_inverse=True)
        rows, labels, sources = by_source(X, codes, names)
        learned = learn(
            [fill_gaps(R) for R in rows],
            labels,
            len(classes),
            source_options(self, classes, len(sources)),
            switches(self),
            predictor=self.predictor,
            rehearsing=self.rehearse,
            n_jobs=self.n_jobs,
            progress=progress_of(self),
        )
        return learned, classes, sources

    def _find_faults(self) -> dict[Any, str]:
        if self._follower.learned.model.classifiers is None:
            return {}
        return self._follower.target.find_faults(getattr(self, "feature_names_in_", None))

    def _expose(self) -> None:
        """Set the fitted attributes that users look at."""
        follower, adaptation = self._follower, self._follower.adaptation
        self.reliability_, self.history_ = follower.reliability, follower.history
        self.decision_ = follower.learned.decision
        self.resemblance_: dict[Any, float] = {}
        if adaptation is None:
            model = follower.learned.model
            dictionary, domains = model.dictionary, model.domains
            for name in ("target_mixture_", "proportions_", "mix_"):  # of an earlier target
                self.__dict__.pop(name, None)
        else:
            dictionary, domains = adaptation.bent.dictionary, adaptation.bent.sources
            shares = follower.resemblance.tolist()
            self.resemblance_ = dict(zip(self.sources_, shares, strict=True))
            self.target_mixture_: Mixture = adaptation.reconstruction
            self.mix_, self.proportions_ = adaptation.mix, adaptation.mix.shares
        self._dictionary = dictionary
        self.coordinates_ = {
            name: domain.coordinates for name, domain in zip(self.sources_, domains, strict=True)
        }
        if adaptation is not None:
            self.coordinates_[TARGET] = adaptation.bent.target.coordinates

    @property
    def atoms_(self) -> list[Mixture]:
        """The atoms as labelled mixtures, in the coordinates of the view."""
        check_is_fitted(self, "_follower")
        return atoms_as_mixtures(self._dictionary)

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
        rows = self._rows(X)
        return self._follower.proba(self._follower.target.clean(rows)[0])

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

    @one_thread
    def novelty(self, X: Any) -> Floats:
        """Return how unlike everything known the rows are, 0 to 1.

        The share of the rows of sources left out that were nearer to their reconstruction, in units of
        what is typical of each, than these rows are to the target's: above 0.999 a row is farther out
        than all but one in a thousand.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)

        Raises
        ------
        InvalidInputError
            If the model was made from mixtures: nothing is known of rows then.
        """
        rows = self._rows(X)
        return self._follower.novelty(rows)

    # -- looking ---------------------------------------------------------------------------------

    def report(self) -> str:
        """Say in words what was learned and decided, and why.

        Returns
        -------
        str
        """
        check_is_fitted(self)
        follower = self._follower
        mix = None if follower.adaptation is None else follower.adaptation.mix
        decision = follower.learned.decision
        words = describe(self.classes_, self.sources_, decision, self.resemblance_, mix)
        return f"{words}\n{describe_stream(follower, self.columns_)}"

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
        from baryflow.estimators.plots import plot_stream

        check_is_fitted(self)
        return plot_stream(self.history_, self.sources_, self.classes_)

    @property
    def n_samples_seen_(self) -> int:
        """Target rows seen."""
        check_is_fitted(self, "_follower")
        return self._follower.n_rows

    def compare_columns(self) -> ColumnComparison:
        """Compare the columns of the target with those of the sources, in the units of rows.

        Use it to see which sensors of the target are set otherwise, or show another operating point. A
        mix of other classes moves means too.

        Returns
        -------
        ColumnComparison
            Means and standard deviations of every column; what was not seen of the target is NaN.

        Examples
        --------
        >>> from baryflow import OnlineDaDiL
        >>> from baryflow.datasets import make_domains
        >>> p = make_domains(n_per_class=40, random_state=0)
        >>> model = OnlineDaDiL(random_state=0).fit(p.X, p.y, p.domain).partial_fit(p.X_target)
        >>> found = model.compare_columns()
        >>> first = found.order()[0]  # the column that differs most
        >>> bool(abs(found.differences[first]) == abs(found.differences).max())
        True
        """
        check_is_fitted(self)
        return compare(self._follower, getattr(self, "feature_names_in_", None))

    def in_columns(self, mixture: Mixture) -> Mixture:
        """Return a mixture of the view, as ``atoms_`` are, in the columns and units of rows.

        What the view does not show of a row is taken to be what is most likely, so that class means
        come back exactly and details within a class roughly.

        Parameters
        ----------
        mixture : Mixture
            One of ``atoms_``, or ``target_mixture_``.

        Returns
        -------
        Mixture
            As the target would show it, or before its first row the sources on the whole.

        Raises
        ------
        NotFittedError
            If there is no view yet.
        """
        check_is_fitted(self)
        model, adaptation = self._follower.learned.model, self._follower.adaptation
        centre, scale = model.centre, model.scale
        if adaptation is not None:
            centre, scale = adaptation.mix.centre, adaptation.mix.scale
        return model.lift(mixture, centre, scale)

    @property
    def class_means_(self) -> Floats:
        """Mean of every class in the columns and units of rows, shape (n_classes, n_features).

        As the target shows it, or before its first row the sources on the whole; NaN for a class that
        no source has.
        """
        check_is_fitted(self, "_follower")
        adaptation = self._follower.adaptation
        shown = self.atoms_ if adaptation is None else [adaptation.reconstruction]
        found = [_class_means(self.in_columns(mixture)) for mixture in shown]
        return np.asarray(np.mean(found, axis=0))

    # -- keeping ---------------------------------------------------------------------------------

    def _state(self) -> AdapterState:
        return AdapterState(
            Shell.of(self),
            self.classes_,
            self.sources_,
            self._follower.learned,
            {name: plain(value) for name, value in self._learned_with.items()},
            self._follower.manner,
            self._follower.state(),
            self._kept,
        )

    @classmethod
    def _from_state(cls, state: AdapterState) -> Self:
        model = cls(**state.shell.parameters)
        state.shell.fill(model)
        model.classes_, model.sources_ = state.classes, state.sources
        if len(set(model.classes_.tolist())) != state.learned.model.n_classes:
            raise InvalidInputError("the classes do not fit the model")
        if state.learned.model.centre.shape != (model.n_features_in_,):
            raise InvalidInputError("the number of columns does not fit the model")
        model._follower = Follower.from_state(state.learned, state.manner, state.follower)
        model._learned_with, model._kept = dict(state.learned_with), state.kept
        model.columns_ = model._find_faults()
        model._expose()
        model.predict_proba(np.zeros((1, model.n_features_in_)))  # finds what does not fit together
        return model


def _class_means(mixture: Mixture) -> Floats:
    shares = mixture.weights[:, None] * np.asarray(mixture.labels)
    totals = shares.sum(axis=0)
    return np.asarray((shares / np.where(totals > 0.0, totals, np.nan)).T @ mixture.means)
