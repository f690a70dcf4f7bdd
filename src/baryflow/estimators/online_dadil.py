"""Online multi-source adaptation: the target flows past."""

from __future__ import annotations

import os
import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from baryflow import container
from baryflow.core.dictionary import DAMPED, PROXIMAL
from baryflow.core.mixture import Mixture
from baryflow.core.paper_summary import PaperSummary
from baryflow.core.settings import PaperSettings
from baryflow.core.summary import StreamSummary
from baryflow.estimators.adaptation import ONLINE_STEPS, Adapted
from baryflow.estimators.decision import blend
from baryflow.estimators.keeping import pack, unpack
from baryflow.estimators.learning import LearnsSources
from baryflow.estimators.novelty import source_remoteness
from baryflow.estimators.sensors import warn
from baryflow.estimators.shared import (
    atoms_of,
    coordinates_of,
    describe,
    resemblance,
)
from baryflow.estimators.target import absorb, new_summary
from baryflow.exceptions import InvalidInputError
from baryflow.validation import (
    Floats,
    as_count,
    as_weights,
)

KIND = "online_dadil"
#: Rows above this novelty are strange.
_STRANGE = 0.99
#: How firmly the steps of `refine` hold the atoms at least: many exact steps follow the target's noise.
_REFINING = 1.0
_FEWEST_STEPS = 10


class OnlineDaDiL(LearnsSources, ClassifierMixin, BaseEstimator):
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
    restart : bool, default=True
        Start every update from the source-only dictionary; otherwise from the last update.
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
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    classes_, coordinates_, resemblance_, atoms_, target_mixture_, proportions_
        As in :class:`~baryflow.DaDiL`; the last two and the target's coordinates exist after the
        first ``partial_fit``.
    sources_ : list
        Names of the sources.
    n_samples_seen_ : int
        Target rows seen.
    mix_ : Mix
        What was found about the classes of the target: shares, and whether they are as usual.
    reliability_ : float
        Of the predictions for the last batch, 0 to 1, to raise an alarm on: the mean probability of
        the predicted classes, times the share of rows that are not novel, times (if it adapts) the
        share of classes that were seen, one of fewer than ten rows as far as it goes. Low at the
        beginning, while only one class comes, and when rows are unlike everything known.
    columns_ : dict of column → str
        Columns of the target that are not as they should be, and what is wrong with them.
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
        restart: bool = True,
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
        self.restart = restart
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
        self.random_state = random_state

    @classmethod
    def paper(cls, n_atoms: int | None = None, *, random_state: Any = None) -> Self:
        """Return the paper's own method: its mixture, small steps from a warm start, MAP.

        No ramp, no view, no rehearsal: features are taken as they come, so put them on comparable
        scales first. The paper names no sizes for its plant; here K_min is 5, K_max three times the
        number of classes, and a batch becomes up to `batch_components`. For its small steps along the
        gradient stand block steps damped by `proximal`.
        """
        return cls(
            n_atoms,
            components_per_class=1,
            view=False,
            proportions=False,
            votes=False,
            predictor="map",
            rehearse=False,
            restart=False,
            n_steps=1,
            proximal=DAMPED,
            target_mixture="paper",
            random_state=random_state,
        )

    # -- the target ------------------------------------------------------------------------------

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, classes: Any = None
    ) -> Self:
        """Absorb unlabelled target rows and adapt.

        Labels are never used: a target has none, and passing some gives a warning. On a model that was
        never fitted, labelled rows are its sources, as in :meth:`fit`; `classes` is accepted for
        scikit-learn's sake and ignored.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            A missing value (NaN) counts as the mean of what was seen of its column.
        sample_weight : array of shape (n_samples,), optional
            Counts: 2 is a row seen twice, 0 a row not seen.
        """
        if y is not None and not hasattr(self, "_model"):
            if sample_weight is not None:
                raise InvalidInputError("sample_weight is for target rows: sources take none")
            return self.fit(X, y)
        raw = self._rows(X)
        rows = self._complete(raw)
        self._require_learned()
        self._check_parameters()
        if y is not None:
            warnings.warn(
                "y was not used: rows of a target have no labels. To learn another labelled source, "
                "call add_source; to score predictions, call score",
                UserWarning,
                stacklevel=2,
            )
        weights = as_weights(sample_weight, "sample_weight", length=len(rows))
        if (settings := self._settings(self._model.n_classes)) != self._summary.settings:
            self._summary.change(settings)
        self._tally = self._tally.plus(raw, self._model.limits.screened(raw))
        lost = self._lost(raw)
        weights = np.where(lost, 0.0, weights)  # a row of which nothing is left teaches nothing
        if weights.any():
            absorb(self._model, self._summary, rows, weights)
            self._refined = 0
            self._update(self.n_steps)
        self.reliability_ = self._reliability(rows, lost)
        before, self.columns_ = self.columns_, self._faults()
        warn(before, self.columns_)
        return self

    def refine(self, n_steps: int = 10) -> Self:
        """Go on improving without data: more steps of the dictionary, each held back a little.

        Parameters
        ----------
        n_steps : int, default=10
            Further steps. Those of a model that restarts begin at the sources again, and are ten at
            least: fewer would say less than what is there already.
        """
        check_is_fitted(self)
        self._require_learned()
        self._check_parameters()
        n_steps = as_count(n_steps, "n_steps")
        if self._adapted is None:
            raise InvalidInputError("nothing to refine: no target row was seen yet")
        self._refined = self._refined + n_steps if self._refined else n_steps
        self._update(max(self._refined, _FEWEST_STEPS, self.n_steps) if self.restart else n_steps)
        return self

    def _update(self, n_steps: int) -> None:
        mass = self._summary.mass
        previous = None if self.restart else self._adapted
        self._last = {
            "n_steps": int(n_steps),
            "freeze_sources": bool(self.restart),
            "trust": float(mass / (mass + self.ramp)),
            "proximal": float(max(self.proximal, _REFINING) if self._refined else self.proximal),
        }
        self._adapted = self._adapt(previous, **self._last)
        self._last["from_scratch"] = previous is None
        before = float(self._adapted.losses[0, -1])
        self._losses.append((before, self._last["trust"] * self._adapted.target.loss))
        self._expose()

    def _adapt(self, previous: Adapted | None, **how: Any) -> Adapted:
        return Adapted(
            self._model,
            self._summary,
            self._switches(),
            self._decision.weights,
            previous=previous,
            **how,
        )

    def _reliability(self, rows: Floats, lost: Any) -> float:
        """Return how far the predictions for some rows can be relied on; see `reliability_`."""
        if not len(rows) or self._adapted is None:
            return 0.0
        sure = float(self._proba(rows).max(axis=1).mean())
        strange = float((lost | (self._novelty(rows) > _STRANGE)).mean())
        known = 1.0 - max(0.0, strange - (1.0 - _STRANGE)) / _STRANGE
        if not self._decision.adapts:
            return sure * known
        return sure * known * self._adapted.seen

    def _retell(self, summary: StreamSummary | PaperSummary) -> None:
        """Tell a new source model what was seen of the target, component by component."""
        settings = self._settings(self._model.n_classes)
        if isinstance(summary, PaperSummary) or isinstance(settings, PaperSettings):
            # The paper's mixture carries no votes: nothing to retell.
            summary.change(settings)
            self._summary = summary
            return
        fresh = new_summary(self._model, settings)
        fresh.take_over(summary, self._model.pooled_proba(summary.components().means))
        self._summary = fresh

    def _expose(self) -> None:
        """Set the fitted attributes that users look at."""
        self.n_samples_seen_ = self._summary.n_rows
        adapted = self._adapted
        domains = self._model.domains if adapted is None else adapted.sources
        dictionary = self._model.dictionary if adapted is None else adapted.dictionary
        self.atoms_ = atoms_of(dictionary)
        if adapted is None:
            self.coordinates_ = {
                name: d.coordinates for name, d in zip(self.sources_, domains, strict=True)
            }
            self.resemblance_: dict[Any, float] = {}
            self.reliability_ = 0.0
            for name in ("target_mixture_", "proportions_", "mix_"):  # of an earlier target
                self.__dict__.pop(name, None)
            return
        self.coordinates_ = coordinates_of(self.sources_, domains, adapted.target)
        self.resemblance_ = resemblance(self.sources_, dictionary, domains, adapted.target)
        self.target_mixture_: Mixture = adapted.reconstruction
        self.mix_ = adapted.mix
        self.proportions_ = adapted.mix.shares

    @property
    def loss_curve_(self) -> Floats:
        """Loss of the target before and after the steps of each update."""
        check_is_fitted(self, "_model")
        return np.array(list(self._losses)).reshape(-1, 2)

    # -- predictions -----------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of every class for target rows, shape (n_samples, n_classes)."""
        return self._proba(self._target_rows(X))

    def _proba(self, rows: Floats) -> Floats:
        if self._adapted is None:
            return self._model.source_proba(rows)
        return blend(self._decision, self._adapted, rows)

    def predict(self, X: Any) -> Any:
        """Return the most probable class of every target row, or `unknown_label` for novel ones."""
        probabilities = self.predict_proba(X)
        labels = self.classes_[probabilities.argmax(axis=1)]
        if self.unknown is None:
            return labels
        numbered = self.classes_.dtype.kind in "biuf"
        label = self.unknown_label
        if label is None:
            label = -1 if numbered else "unknown"
        if label in self.classes_.tolist():
            raise InvalidInputError(
                f"{label!r} is a class: choose another unknown_label, one that is not"
            )
        same_kind = isinstance(label, str) != numbered
        kind = np.result_type(labels.dtype, np.asarray(label).dtype) if same_kind else object
        answers = labels.astype(kind)
        answers[self.novelty(X) > self.unknown] = label
        return answers

    def novelty(self, X: Any) -> Floats:
        """Return how unlike everything known the rows are, 0 to 1.

        The share of the rows of sources left out that were nearer to their reconstruction, in units of
        what is typical of each, than these rows are to the target's: above 0.999 a row is farther out
        than all but one in a thousand.
        """
        raw = self._rows(X)
        return np.where(self._lost(raw), 1.0, self._novelty(self._complete(raw)))

    def _novelty(self, rows: Floats) -> Floats:
        if self._adapted is None:
            far = source_remoteness(self._model, rows) / self._source_typical
        else:
            far = self._adapted.remoteness(rows)
        return np.asarray(np.searchsorted(self._usual, far, side="left") / len(self._usual))

    def report(self) -> str:
        """Say in words what was learned and decided, and why."""
        check_is_fitted(self)
        adapted = self._adapted
        words = describe(
            self.classes_,
            self.sources_,
            self._decision,
            self.resemblance_,
            None if adapted is None else adapted.mix,
        )
        stream = f"{self.n_samples_seen_} target rows seen; "
        if adapted is None or not self._decision.adapts:
            stream += "predictions are the source classifier's."
        else:
            stream += f"{adapted.seen:.0%} of the classes were seen (ten rows or more of each). "
            stream += f"Reliability of the last batch: {self.reliability_:.0%}."
        faults = "".join(f"\nColumn {name}: {fault}." for name, fault in self.columns_.items())
        return f"{words}\n{stream}{faults}"

    def _target_rows(self, X: Any) -> Floats:
        """Check target rows and fill their gaps with what was seen of the column."""
        return self._complete(self._rows(X))

    def _lost(self, raw: Floats) -> Any:
        """Tell which rows are mostly glitches, or nothing but gaps: unlike everything known."""
        gone, missing = np.isnan(self._model.limits.screened(raw)), np.isnan(raw)
        glitches = (gone & ~missing).sum(axis=1)
        return gone.all(axis=1) | (glitches > 0.5 * (~missing).sum(axis=1))

    def _complete(self, rows: Floats) -> Floats:
        rows = self._model.limits.screened(rows)
        if not np.isnan(rows).any():
            return rows
        fallback = self._model.centre
        if self._summary.mass > 0.0:
            fallback = self._summary.moments()[0]
        return np.where(np.isnan(rows), fallback, rows)

    def _faults(self) -> dict[Any, str]:
        """Return what is wrong with the target's columns."""
        seen = self._summary.mass > 0.0
        stds = np.sqrt(self._summary.moments()[1]) if seen else np.zeros(self.n_features_in_)
        usual = np.where(np.isfinite(self._model.limits.high), self._model.scale, 0.0)
        names = getattr(self, "feature_names_in_", None)
        found: dict[Any, str] = self._tally.faults(names, stds, usual)
        return found

    # -- keeping ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a ``.bary`` file; :func:`baryflow.load` goes on from it, bit for bit.

        With ``keep_sources=True``, the default, the file holds the sources' rows. To hand a model on
        without them, fit it with ``keep_sources=False``.
        """
        check_is_fitted(self)
        self._require_learned()
        container.write(path, KIND, *pack(self))

    @classmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, Any]) -> Self:
        """Rebuild a model from what :meth:`save` put into the file, checking all of it."""
        model: Self = unpack(cls, values, arrays)
        return model
