"""What was seen of a target: components of bounded number, and how its columns behave."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from baryflow.core.mixture import Mixture
from baryflow.core.paper_summary import PaperSummary, PaperSummaryState
from baryflow.core.settings import PaperSettings, Settings
from baryflow.core.summary import StreamSummary, StreamSummaryState
from baryflow.estimators.domains import fill_gaps
from baryflow.estimators.sensors import Tally
from baryflow.estimators.source_model import SourceModel
from baryflow.estimators.source_table import spread
from baryflow.validation import Booleans, Floats

#: Components kept of a target, for each class.
COMPONENTS_PER_CLASS = 3


@dataclass(frozen=True, eq=False)
class Seen:
    """A target as an adaptation needs it."""

    masses: Floats
    means: Floats  # in the columns of the rows
    stds: Floats
    #: Gives the variances of the components in other coordinates, if more than the stds is known.
    variances_in: Callable[[Floats], Floats] | None
    votes: Floats | None  # of the pooled source classifier
    mean: Floats  # of all rows
    variance: Floats
    mass: float  # rows seen, or the sum of their weights


@dataclass(frozen=True, eq=False)
class TargetState:
    """All that is kept of a target."""

    summary: StreamSummaryState | PaperSummaryState
    tally: Tally


class Target:
    """Rows of a target that flow past.

    They are summarised in the units of the source model, and looked at in the columns of the rows.

    Parameters
    ----------
    model : SourceModel
    settings : Settings or PaperSettings
        How rows are summarised: each as a component that is merged later, or as in the paper.
    """

    def __init__(self, model: SourceModel, settings: Settings | PaperSettings) -> None:
        d = len(model.centre)
        self.model = model
        self.tally = Tally.none(d)
        self.summary: StreamSummary | PaperSummary
        if isinstance(settings, PaperSettings):
            self.summary = PaperSummary(d, settings, np.random.default_rng(0))
        else:
            metric = model.metric(model.scale) if settings.full_covariance else None
            self.summary = StreamSummary(d, settings, metric)

    @property
    def mass(self) -> float:
        """Rows seen, or the sum of their weights."""
        return self.summary.mass

    def clean(
        self, raw: Floats, *, whole: bool = False, count: bool = False, usual: Floats | None = None
    ) -> tuple[Floats, Booleans]:
        """Return rows without glitches and gaps, and which rows were hardly anything else.

        Parameters
        ----------
        raw : array of shape (n, d)
            Rows as they come.
        whole : bool
            They are all there is of the target: gaps become the mean of their column among them.
            Otherwise they become what was seen of the column so far.
        count : bool
            Count values, gaps and glitches, to know of columns that are not as they should be.
        usual : array of shape (d,), optional
            What gaps become, if it is known.
        """
        if self.model.classifiers is None:  # mixtures know what to do with gaps
            return raw, np.asarray(np.isnan(raw).all(axis=1))
        rows = self.model.classifiers.limits.screen(raw)
        if count:
            self.tally = self.tally + Tally.of(raw, rows)
        gone = np.isnan(rows)
        if not gone.any():
            return rows, np.zeros(len(rows), dtype=bool)
        there = ~np.isnan(raw)
        lost = gone.all(axis=1) | ((gone & there).sum(axis=1) > 0.5 * there.sum(axis=1))
        if whole:
            return fill_gaps(rows, self.model.centre), np.asarray(lost)
        if usual is None:
            usual = self.moments()[0] if self.mass > 0.0 else self.model.centre
        return np.where(gone, usual, rows), np.asarray(lost)

    def absorb(self, X: Floats, weights: Floats | None = None) -> None:
        """Absorb complete rows, looking through the view as the target's moments now have it."""
        summary, model = self.summary, self.model
        if (
            isinstance(summary, StreamSummary)
            and summary.mass > 0.0
            and summary.settings.full_covariance
        ):
            scale = model.moments_at(*self.moments(), model.usual, summary.mass)[1]
            metric = model.metric(scale)
            if metric is not None:
                summary.look_through(metric)
        self.summarise(X, np.ones(len(X)) if weights is None else weights)

    def summarise(self, X: Floats, weights: Floats) -> None:
        """Add complete rows to the summary, looking through the view as it is."""
        if isinstance(self.summary, PaperSummary):
            self.summary.update(X / self.model.units, weights)
        else:
            self.summary.update(X / self.model.units, weights, self.model.pooled_proba(X))

    def absorb_whole(self, X: Floats) -> None:
        """Absorb rows that are all at hand: their moments are known before the first merge."""
        metric = self.model.metric(spread(X, self.model.scale))
        if metric is not None and isinstance(self.summary, StreamSummary):
            self.summary.look_through(metric)
        self.absorb(X)

    def join(self, state: TargetState) -> None:
        """Absorb what was seen of this target elsewhere."""
        other = Target.from_state(self.model, state)
        if self.mass > 0.0:
            self.summary.merge(other.summary)  # type: ignore[arg-type]  # refuses what is of another kind
        else:
            self.summary = other.summary
        self.tally = self.tally + other.tally

    def take(self, mixture: Mixture) -> None:
        """Take a mixture for all that was seen."""
        settings = Settings(max_components=mixture.n_components, resolution=1)
        self.summary = StreamSummary.of_mixture(mixture, settings)

    def copy(self) -> Target:
        """Return an independent copy; the source model is shared."""
        twin = copy(self)
        twin.summary = self.summary.copy()
        return twin

    def moments(self) -> tuple[Floats, Floats]:
        """Return mean and variance of every column of the rows seen."""
        mean, variance = self.summary.moments()
        return mean * self.model.units, variance * np.square(self.model.units)

    def seen(self) -> Seen:
        """Return what an adaptation needs."""
        units, moments = self.model.units, self.moments()
        if isinstance(self.summary, PaperSummary):
            mixture = self.summary.mixture()
            masses, means, stds = mixture.weights * mixture.mass, mixture.means, mixture.stds
            return Seen(masses, means * units, stds * units, None, None, *moments, self.mass)
        parts = self.summary.components()
        return Seen(
            parts.masses,
            parts.means * units,
            parts.stds * units,
            self.summary.variances_in if self.summary.settings.full_covariance else None,
            parts.votes if parts.votes.shape[1] else None,
            *moments,
            self.mass,
        )

    def retell(self, model: SourceModel, settings: Settings | PaperSettings) -> Target:
        """Return the same target as another source model sees it, component by component."""
        told = Target(model, settings)
        told.tally = self.tally
        if isinstance(self.summary, PaperSummary):  # it carries no votes: nothing to retell
            told.summary = self.summary.copy()
            told.summary.change(settings)
        elif isinstance(told.summary, StreamSummary):
            votes = model.pooled_proba(self.summary.components().means * self.model.units)
            told.summary.take_over(self.summary, votes, self.model.units / model.units)
        return told

    def find_faults(self, names: Any) -> dict[Any, str]:
        """Return what is wrong with the columns, by name or number."""
        seen = self.mass > 0.0
        stds = np.sqrt(self.moments()[1]) if seen else np.zeros(len(self.model.centre))
        limits = self.model.of_rows.limits
        usual = np.where(np.isfinite(limits.high), self.model.scale, 0.0)
        return self.tally.faults(names, stds, usual, limits.patience)

    def state(self) -> TargetState:
        """Return all that is kept, to go on bit for bit."""
        return TargetState(self.summary.state(), self.tally)

    @classmethod
    def from_state(cls, model: SourceModel, state: TargetState) -> Target:
        """Go on from what :meth:`state` gave."""
        target = cls(model, state.summary.settings)
        target.tally = state.tally
        kind: Any = PaperSummary if isinstance(state.summary, PaperSummaryState) else StreamSummary
        target.summary = kind.from_state(state.summary)
        return target


def row_settings(
    n_classes: int,
    *,
    view: bool,
    max_components: int | None = None,
    half_life: float | None = None,
) -> Settings:
    """Return how a target is summarised row by row for the dictionary."""
    return Settings(
        max_components=max_components or COMPONENTS_PER_CLASS * n_classes,
        resolution=1,
        full_covariance=view,
        n_votes=n_classes,
        half_life=half_life,
    )


def paper_settings(
    n_classes: int,
    *,
    max_components: int | None = None,
    batch_components: int | None = None,
    half_life: float | None = None,
) -> PaperSettings:
    """Return how the paper summarises a target batch by batch."""
    return PaperSettings(
        max_components=max_components or COMPONENTS_PER_CLASS * n_classes,
        distance="w2",
        merging="wasserstein",
        batch_components=batch_components,
        batch_limit=n_classes,
        half_life=half_life,
    )
