"""The half of OnlineDaDiL that learns the sources."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from copy import copy
from typing import Any, Self

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from baryflow.core.paper_summary import PaperSummary
from baryflow.core.settings import PaperSettings, Settings
from baryflow.core.summary import StreamSummary
from baryflow.estimators.adaptation import Adapted, Options
from baryflow.estimators.novelty import usual_remoteness
from baryflow.estimators.rows import TakesGaps
from baryflow.estimators.sensors import Tally
from baryflow.estimators.shared import (
    by_source,
    check_new_source,
    decided,
    fill_gaps,
    fixed_weights,
    source_options,
    split_domains,
)
from baryflow.estimators.sources import SourceModel
from baryflow.estimators.target import COMPONENTS_PER_CLASS, start_summary, summary_settings
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, as_choice, as_count, as_real, check_values

#: Parameters that cannot change between fit and the end of the stream.
_FIXED = (
    "n_atoms", "components_per_class", "view", "proportions", "votes", "predictor", "class_prior",
    "rehearse", "target_mixture", "keep_sources",
)  # fmt: skip
#: Updates whose losses are remembered.
_CURVE = 10_000


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Mapping) or isinstance(b, Mapping):
        return isinstance(a, Mapping) and isinstance(b, Mapping) and dict(a) == dict(b)
    return np.array_equal(np.asarray(a, dtype=object), np.asarray(b, dtype=object))


class LearnsSources(TakesGaps):
    """Learns labelled sources, all of them or one more; what it is mixed into follows the target."""

    # Parameters and methods of the estimator that it is half of.
    predictor: Any
    view: Any
    proportions: Any
    votes: Any
    class_prior: Any
    rehearse: Any
    ramp: Any
    n_steps: Any
    proximal: Any
    target_components: Any
    target_mixture: Any
    batch_components: Any
    half_life: Any
    unknown: Any
    keep_sources: Any

    classes_: Any
    sources_: list[Any]
    columns_: dict[Any, str]
    reliability_: float
    _summary: StreamSummary | PaperSummary
    _tally: Tally
    _kept: tuple[Any, Any, Any] | None

    @abstractmethod
    def _retell(self, summary: StreamSummary | PaperSummary) -> None:
        """Tell a new source model what was seen of the target."""

    @abstractmethod
    def _update(self, n_steps: int) -> None:
        """Adapt to what was seen of the target."""

    @abstractmethod
    def _expose(self) -> None:
        """Set the fitted attributes that users look at."""

    def fit(self, X: Any, y: Any, sample_domain: Any = None) -> Self:
        """Learn the labelled sources; forget any target.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
            A missing value (NaN) counts as the mean of its domain.
        y : array of shape (n_samples,)
        sample_domain : array of shape (n_samples,), optional
            The source of each row, a name or a positive number; without it all are one source.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan")
        check_values(X, "X", allow_nan=True)
        check_classification_targets(y)
        names, is_target = split_domains(sample_domain, len(X), None)
        if is_target.any():
            raise InvalidInputError(
                "sample_domain holds negative numbers, which mark target rows: pass those to partial_fit"
            )
        self._learn(X, y, names)
        return self

    def add_source(self, X: Any, y: Any, name: Any) -> Self:
        """Learn one more labelled source, which may bring new classes; the target seen is kept.

        The view, the classifiers and the dictionary are learned anew from all sources, which needs
        ``keep_sources=True``. The target's mixture stays: it is a summary of raw rows.
        """
        check_is_fitted(self)
        self._require_learned(but=("class_prior",))  # which is learned anew, perhaps for more classes
        if self._kept is None:
            raise InvalidInputError("add_source needs the rows of the sources: use keep_sources=True")
        check_new_source(name, self.sources_)
        X, y = validate_data(self, X, y, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        check_values(X, "X", allow_nan=True)
        check_classification_targets(y)
        old_X, old_y, old_names = self._kept
        if (y.dtype.kind in "UO") != (old_y.dtype.kind in "UO"):
            raise InvalidInputError(
                f"y must hold classes of the same kind as before, {old_y.dtype}, got {y.dtype}"
            )
        names = np.array([*old_names.tolist(), *[name] * len(X)])
        summary, seen = self._summary, (self._tally, self.columns_, self.reliability_)
        self._learn(np.concatenate([old_X, X]), np.concatenate([old_y, y]), names)
        if summary.mass > 0.0:
            self._retell(summary)
            self._update(self.n_steps)
            self._tally, self.columns_, self.reliability_ = seen
        return self

    def _learn(self, X: Floats, y: Any, names: Any) -> None:
        """Learn from all sources; nothing of the model changes unless all of it succeeds."""
        self._check_parameters()
        classes, codes = np.unique(y, return_inverse=True)
        options = source_options(self, classes)
        rows, labels, sources = by_source(X, codes, names)
        rows = [fill_gaps(R) for R in rows]
        settings = self._settings(len(classes))
        model = SourceModel.fit(rows, labels, len(classes), options)
        decision = decided(self, rows, labels, len(classes), options, self._switches())
        self._usual, self._source_typical = usual_remoteness(model, rows, decision)
        self.classes_, self.sources_ = classes, sources
        self._model, self._decision = model, decision
        self._summary = start_summary(model, settings)
        self._adapted: Adapted | None = None
        self._last: dict[str, Any] = {}
        self._refined = 0
        self._tally, self.columns_ = Tally.none(X.shape[1]), {}
        self._losses: deque[tuple[float, float]] = deque(maxlen=_CURVE)
        self._learned = {name: copy(getattr(self, name)) for name in _FIXED}
        self._kept = None
        if self.keep_sources:
            self._kept = (X.copy(), np.array(y), np.array(names))
        self._expose()

    def _require_learned(self, *, but: tuple[str, ...] = ()) -> None:
        """Refuse to go on with other parameters than the sources were learned with."""
        for name, before in self._learned.items():
            if name not in but and not _same(getattr(self, name), before):
                raise InvalidInputError(
                    f"{name} was {before!r} when the sources were learned and is now "
                    f"{getattr(self, name)!r}: set it back, or call fit again"
                )

    def _check_parameters(self) -> None:
        as_count(self.n_steps, "n_steps")
        as_real(self.ramp, "ramp", low=0.0)
        as_real(self.proximal, "proximal", low=0.0, open_low=True)
        as_choice(self.target_mixture, "target_mixture", ("rows", "paper"))
        fixed_weights(self)
        if self.target_mixture == "paper" and (
            self.view or self.votes or self.proportions or self.rehearse or self.predictor == "auto"
        ):
            raise InvalidInputError(
                "target_mixture='paper' keeps neither full covariances nor votes: it needs view=False, "
                "votes=False, proportions=False, rehearse=False and a predictor that is not 'auto', as "
                "in OnlineDaDiL.paper()"
            )
        if self.target_components is not None:
            as_count(self.target_components, "target_components")
        if self.batch_components is not None:
            as_count(self.batch_components, "batch_components")
        if self.unknown is not None:
            as_real(self.unknown, "unknown", low=0.0, high=1.0)

    def _switches(self) -> Options:
        return Options(bool(self.proportions), bool(self.votes))

    def _settings(self, n_classes: int) -> Settings | PaperSettings:
        limit = self.target_components or COMPONENTS_PER_CLASS * n_classes
        if self.target_mixture == "rows":
            return summary_settings(
                n_classes,
                max_components=limit,
                half_life=self.half_life,
                full_covariance=bool(self.view),
            )
        return PaperSettings(
            max_components=limit,
            distance="w2",
            merging="wasserstein",
            batch_components=self.batch_components,
            batch_limit=n_classes,
            half_life=self.half_life,
        )
