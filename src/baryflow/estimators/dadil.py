"""Offline multi-source adaptation: sources and target in one fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from baryflow.core.mixture import Mixture
from baryflow.core.settings import Settings
from baryflow.estimators.adaptation import OFFLINE_STEPS, WEIGHTS
from baryflow.estimators.base import Adapter
from baryflow.estimators.decision import Decision, weights_of
from baryflow.estimators.domains import (
    TARGET,
    check_labels,
    expect_proportions,
    keep_gaps,
    split_domains,
)
from baryflow.estimators.follower import Follower, Manner
from baryflow.estimators.learned import Learned
from baryflow.estimators.novelty import Novelty
from baryflow.estimators.parameters import check_atoms, switches
from baryflow.estimators.sensors import warn
from baryflow.estimators.sources import learn_mixtures
from baryflow.estimators.target import row_settings
from baryflow.estimators.threads import one_thread
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_count


class DaDiL(Adapter):
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
        Without it mixtures live in the features, centred and scaled with the pooled sources.
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
    n_jobs : int, optional
        Sources that play a target at the same time, as in joblib; -1 uses all cores. The outcome is the
        same.
    verbose : bool or callable, default=False
        Say on standard error how far ``fit`` is; or call this with what is done, of how much, and what.
    random_state : int, RandomState, Generator or None
        Starts of the sources' mixtures.

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
        The labelled reconstruction of the target.
    proportions_ : array of shape (n_classes,)
        Class proportions of the target.
    mix_ : Mix
        What was found about the classes of the target: shares, and whether they are as usual.
    decision_ : Decision
        Whether it adapts, the weights of the experts, and why; :meth:`report` says it in words.
    reliability_ : float
        Of the predictions for the last rows, 0 to 1, to raise an alarm on: the mean probability of
        the predicted classes, times the share of rows that are not novel, times (if it adapts) the
        share of classes that were seen, one of fewer than ten rows as far as it goes. Low while only
        one class comes, and when rows are unlike everything known.
    columns_ : dict of column → str
        Columns of the target that are not as they should be, and what is wrong with them.
    history_ : History
        How resemblance, proportions, reliability, novelty and loss went, in constant memory;
        :meth:`plot` draws it.
    class_means_ : array of shape (n_classes, n_features)
        Of the target, in the columns and units of rows.
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

    kind = "dadil"

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
        self.n_steps = n_steps
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
        weights_of(self.predictor)  # checks
        as_count(self.n_steps, "n_steps")
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
            learned, classes, sources = self._learn(rows[~is_target], labels, names[~is_target])
            settings = row_settings(len(classes), view=bool(self.view))
            follower = Follower(learned, self._manner(settings))
            if is_target.any():
                follower.absorb_whole(rows[is_target])
            self._take(follower, classes, sources)
            self.columns_ = self._find_faults()
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

    @one_thread
    def fit_mixtures(
        self, sources: Mapping[Any, Mixture], target: Mixture, *, classes: Any = None
    ) -> Self:
        """Learn from mixtures instead of rows, so that a plant can share a summary and keep its data.

        Without rows there is neither a view nor a source classifier: mixtures are taken in the
        coordinates they come in, and ``"auto"`` predicts with ``"map"`` and ``"plan"`` together.

        Parameters
        ----------
        sources : mapping of name → labelled Mixture
        target : Mixture
            Its labels, if any, are ignored.
        classes : array of shape (n_classes,), optional
            Names of the classes; without them their numbers.

        Returns
        -------
        DaDiL
            Itself.

        Raises
        ------
        InvalidInputError
            If mixtures do not fit each other, or a source is not labelled.
        """
        if self.predictor == "source":
            raise InvalidInputError("predictor='source' needs rows: mixtures bring no source classifier")
        fixed = weights_of(self.predictor)
        chosen = "chosen by you" if fixed is not None else "reconstruction and plan, averaged"
        weights = (0.5, 0.5, 0.0, 0.0) if fixed in (None, WEIGHTS["combined"]) else fixed
        why = f"{chosen}; mixtures were given: no source classifier, nothing to leave out"
        n_classes = _check_mixtures(sources, target)
        named = np.arange(n_classes) if classes is None else np.asarray(classes)
        if len(set(named.tolist())) != n_classes or len(named) != n_classes:
            raise InvalidInputError(
                f"expected classes to have n_classes={n_classes} different names, got {named.tolist()}"
            )
        check_atoms(self.n_atoms, len(sources))
        model = learn_mixtures(
            list(sources.values()), n_classes, self.n_atoms, expect_proportions(self.class_prior, named)
        )
        learned = Learned(model, Decision.fixed(weights, why), Novelty.none())
        follower = Follower(learned, self._manner(Settings(max_components=target.n_components)))
        follower.take(Mixture(target.weights, target.means, target.stds, None, target.mass))
        self.n_features_in_ = target.n_features
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit
        self._take(follower, named, list(sources))
        return self

    def _manner(self, settings: Settings) -> Manner:
        """Return how the target is adapted to: sources and target move together."""
        n_steps = as_count(self.n_steps, "n_steps")
        return Manner(settings, switches(self), n_steps=n_steps, freeze_sources=False)

    def _take(self, follower: Follower, classes: Any, sources: list[Any]) -> None:
        self.classes_, self.sources_, self._follower = classes, sources, follower
        self._learned_with, self._kept, self.columns_ = {}, None, {}
        self._expose()

    @property
    def loss_curve_(self) -> Floats:
        """Loss of every domain before each step, the target last."""
        check_is_fitted(self, "_follower")
        adaptation = self._follower.adaptation
        return np.zeros((0, 0)) if adaptation is None else adaptation.losses


def _check_mixtures(sources: Mapping[Any, Mixture], target: Any) -> int:
    """Check that mixtures fit each other; return the number of classes."""
    if not isinstance(target, Mixture):
        raise InvalidInputError(f"target must be a Mixture, got {type(target).__name__}")
    if not sources:
        raise InvalidInputError("sources must hold at least one labelled Mixture, got none")
    if TARGET in sources:
        raise InvalidInputError(f"no source can be called {TARGET!r}: coordinates_ uses that name")
    for name, mixture in sources.items():
        if not isinstance(mixture, Mixture) or mixture.labels is None:
            raise InvalidInputError(f"source {name!r} must be a labelled Mixture, got {mixture!r}")
        if mixture.n_features != target.n_features:
            raise InvalidInputError(
                f"source {name!r} has n_features={mixture.n_features}, the target {target.n_features}"
            )
    counts = {mixture.n_classes for mixture in sources.values()}
    if len(counts) > 1:
        raise InvalidInputError("all sources must have the same classes: pad their labels with zeros")
    return counts.pop()
