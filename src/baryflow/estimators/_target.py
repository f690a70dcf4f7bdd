"""What is kept of a target, in bounded memory: summaries of its rows, and a tally of its columns."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from baryflow.core.mixture import Mixture
from baryflow.core.settings import Settings
from baryflow.core.summary import StreamSummary, StreamSummaryState
from baryflow.estimators._committee import combine, not_adapting
from baryflow.estimators._domains import fill_gaps
from baryflow.estimators._sensors import Limits, Tally, last_values, screen
from baryflow.estimators._source_table import varying
from baryflow.estimators._sources import SourceKnowledge, SourceModel
from baryflow.estimators._units import Units
from baryflow.validation import Booleans, Floats

#: Components kept of a target, for each class.
COMPONENTS_PER_CLASS = 3
#: There is something to learn after n^1.5 of these rows, n being those before: estimates from n rows are
#: off by about 1 / √n, and each time as much is gained. After this many rows there is in any case.
_SLOWNESS, _MOST_NEW = 100.0, 2048.0
#: The same if the class proportions, by the votes, have changed by this much in total variation, beyond
#: what chance explains.
_CHANGE = 0.03
#: The same if there are this many new rows of a class, and more than before: it has just appeared.
_APPEARED = 10.0


@dataclass(frozen=True, eq=False)
class Growth:
    """How much was seen of a target before and after the last time there was something to learn."""

    before: float  # mass
    new: float
    votes_before: Floats  # mass of each class, by the plain classifiers on raw rows
    votes_new: Floats

    @classmethod
    def none(cls, n_classes: int) -> Growth:
        """Return that of a target without rows."""
        return cls(0.0, 0.0, np.zeros(n_classes), np.zeros(n_classes))

    def plus(self, weights: Floats, votes: Floats | None) -> Growth:
        """Count more rows."""
        new = self.new + float(weights.sum())
        return replace(
            self,
            new=new,
            votes_new=self.votes_new if votes is None else self.votes_new + weights @ votes,
        )

    def learned(self, mass: float) -> Growth:
        """Return that of a target of this mass from which everything was learned."""
        # Rows may have faded since.
        kept = max(mass - self.new, 0.0) / self.before if self.before > 0.0 else 0.0
        votes = kept * self.votes_before + self.votes_new
        return Growth(mass, 0.0, votes, np.zeros_like(votes))

    @property
    def is_due(self) -> bool:
        """Whether there is something to learn."""
        if self.new >= min(self.before**1.5 / _SLOWNESS, _MOST_NEW):
            return True
        change = self.votes_new / self.new - self.votes_before / self.before
        whole = self.before + self.new
        shares = (self.votes_before + self.votes_new) / whole
        # The mean of the absolute difference of two proportions, each of as many rows.
        spread = shares * (1.0 - shares) * (1.0 / self.before + 1.0 / self.new)
        chance = np.sqrt(2.0 / np.pi * np.maximum(spread, 0.0))
        moved = self.new / whole * 0.5 * float((np.abs(change) - chance).sum())
        appeared = self.votes_new >= np.maximum(self.votes_before, _APPEARED)
        return bool(moved >= _CHANGE or appeared.any())


@dataclass(frozen=True, eq=False)
class TargetSummary:
    """A target in one space, as an adaptation needs it."""

    masses: Floats
    means: Floats  # in the columns of the rows
    stds: Floats
    #: Returns the variances of the components in other coordinates, if more than the stds is known.
    variances_in: Callable[[Floats], Floats] | None
    votes: Floats | None  # of the plain classifiers on raw rows, mean over the rows of each component
    mean: Floats  # of all rows
    variance: Floats
    mass: float  # rows seen, or the sum of their weights


@dataclass(frozen=True, eq=False)
class TargetState:
    """All that is kept of a target."""

    rows: StreamSummaryState
    stacked: StreamSummaryState | None
    tally: Tally
    standard: tuple[Floats, Floats] | None = None
    growth: Growth | None = None
    units: Units | None = None


class Target:
    """Rows of a target that flow past, summarised in the columns of the rows and in the stacked space.

    Parameters
    ----------
    knowledge : SourceKnowledge
    settings : Settings
        How rows are summarised.
    """

    def __init__(self, knowledge: SourceKnowledge, settings: Settings) -> None:
        self.knowledge = knowledge
        self.tally = Tally.none(len(knowledge.model.centre))
        #: Rows are converted to the units of the sources before anything else.
        self.units = Units.same(len(knowledge.model.centre))
        self._range: tuple[Floats, Floats] | None = None  # of believable values, in these units
        #: Centre and scale by which rows are standardised for the stacked space.
        self.standard: tuple[Floats, Floats] | None = None
        self.growth = Growth.none(knowledge.model.n_classes)
        self.rows = _new_summary(knowledge.model, settings)
        self.stacked: StreamSummary | None = None
        if knowledge.stacked is not None:
            self.stacked = _new_summary(knowledge.stacked, settings)

    @property
    def mass(self) -> float:
        """Rows seen, or the sum of their weights."""
        return self.rows.mass

    # -- learning --------------------------------------------------------------------------------

    def clean(
        self, raw: Floats, *, whole: bool = False, count: bool = False, usual: Floats | None = None
    ) -> tuple[Floats, Booleans]:
        """Return rows without glitches and gaps, and a flag for rows with hardly any value left.

        What is a glitch depends on the sources and on what was counted so far, never on the other rows.

        Parameters
        ----------
        raw : array of shape (n, d)
            Rows as they come.
        whole : bool
            They are all there is of the target: gaps become the mean of their column among them.
            Otherwise they become the mean of the column so far.
        count : bool
            Count values, gaps and glitches, to find columns that are not as they should be. New rows of
            the target are counted before they are judged.
        usual : array of shape (d,), optional
            What gaps become, if it is known.
        """
        model, limits = self.knowledge.model, self.knowledge.limits
        if limits is None:  # a model made from mixtures, which can deal with gaps
            return raw, np.asarray(np.isnan(raw).all(axis=1))
        if count:
            self._find_units(limits, raw)
            self._range = limits.around(self.units.convert(last_values(self.tally.recent, raw)))
        rows = self.screen(raw)
        if count:
            self.tally = self.tally + Tally.of(raw, np.where(np.isnan(rows), np.nan, raw))
        gone = np.isnan(rows)
        if not gone.any():
            return rows, np.zeros(len(rows), dtype=bool)
        there = ~np.isnan(raw)
        lost = gone.all(axis=1) | ((gone & there).sum(axis=1) > 0.5 * there.sum(axis=1))
        if whole:
            return fill_gaps(rows, model.centre), np.asarray(lost)
        if usual is None:
            usual = self.rows.moments()[0] if self.mass > 0.0 else model.centre
        return np.where(gone, usual, rows), np.asarray(lost)

    def screen(self, raw: Floats) -> Floats:
        """Return rows in the units of the sources, glitches left out."""
        if self._range is None and self.knowledge.limits is not None:
            self._range = self.knowledge.limits.around(self.units.convert(self.tally.recent))
        rows = self.units.convert(raw)
        return rows if self._range is None else screen(rows, *self._range)

    def _find_units(self, limits: Limits, raw: Floats) -> None:
        """Find the units of the columns, with these new rows."""
        before = self.units
        self.units = limits.recalibrate(self.tally, raw, before)
        if self.units is not before:  # what was learned of the column before is of little use
            self.growth = replace(self.growth, before=0.0)

    def absorb(self, X: Floats, weights: Floats, *, whole: bool = False) -> bool:
        """Absorb complete rows; return whether there is something to learn from the new ones.

        Parameters
        ----------
        X : array of shape (n, d)
        weights : array of shape (n,)
        whole : bool
            The rows are all there is of the target.
        """
        if whole:
            self.see_stds(X.std(axis=0))
        plain = self.knowledge.plain
        if plain is None:
            self.rows.update(X, weights)
            return self._grow(weights, None)
        raw = plain.raw_logs(X)
        votes = combine(not_adapting(self.knowledge.committee.raw, raw))
        self.rows.update(X, weights, votes)
        grown = self._grow(weights, votes)
        if self.stacked is not None and self.standard is not None:
            self._stack(plain.stack(raw, plain.per_domain_logs(X, *self.standard)), weights, votes)
        if grown and not whole:
            self.look_again()
        return grown

    def _grow(self, weights: Floats, votes: Floats | None) -> bool:
        """Count new rows; if there is something to learn from them, renew what rows are measured by."""
        self.growth = self.growth.plus(weights, votes)
        if self.standard is not None and not self.growth.is_due:
            return False
        self.renew()
        return True

    def renew(self) -> None:
        """Standardise rows from now on with the moments of those seen."""
        model = self.knowledge.model
        self.standard = model.moments_at(*self.rows.moments(), model.expected_prior, self.mass)
        self.growth = self.growth.learned(self.mass)

    def summarise(self, X: Floats, moments: tuple[Floats, Floats, float]) -> None:
        """Add complete rows to the summaries of a target whose moments and mass are known already."""
        plain, model = self.knowledge.plain, self.knowledge.model
        if plain is None:
            raise TypeError("rows are summarised with plain classifiers")
        weights, raw = np.ones(len(X)), plain.raw_logs(X)
        votes = combine(not_adapting(self.knowledge.committee.raw, raw))
        self.rows.update(X, weights, votes)
        if self.stacked is not None:
            standard = model.moments_at(*moments[:2], model.expected_prior, moments[2])
            self._stack(plain.stack(raw, plain.per_domain_logs(X, *standard)), weights, votes)

    def _stack(self, rows: Floats, weights: Floats, votes: Floats) -> None:
        if self.stacked is not None and self.knowledge.stacked is not None:
            if self.stacked.mass <= 0.0:
                _look_through(self.stacked, self.knowledge.stacked, rows.std(axis=0))
            self.stacked.update(rows, weights, votes)

    def see_stds(self, stds: Floats) -> None:
        """Look at rows through the view that fits a target with these standard deviations."""
        _look_through(self.rows, self.knowledge.model, stds)

    def look_again(self) -> None:
        """Look at rows through the view that fits what was seen."""
        for summary, model in (
            (self.rows, self.knowledge.model),
            (self.stacked, self.knowledge.stacked),
        ):
            if summary is not None and model is not None and summary.mass > 0.0:
                _look_through(summary, model)

    def join(self, state: TargetState) -> None:
        """Absorb what was seen of this target elsewhere."""
        other = Target.from_state(self.knowledge, state)
        if self.mass > 0.0:
            self.rows.merge(other.rows)
            if self.stacked is not None and other.stacked is not None:
                self.stacked.merge(other.stacked)
        else:
            other.rows.n_rows += self.rows.n_rows  # those that were forgotten
            self.rows, self.stacked = other.rows, other.stacked
        self.tally, self.units, self._range = self.tally + other.tally, other.units, None
        self.renew()

    def fade(self, factor: float) -> None:
        """Let everything seen so far count less."""
        self.rows.fade(factor)
        if self.stacked is not None:
            self.stacked.fade(factor)
        if self.mass > 0.0:
            self.renew()

    def change(self, settings: Settings) -> None:
        """Use other settings from now on, as far as they can be changed."""
        if settings != self.rows.settings:
            self.rows.change(settings)
            if self.stacked is not None:
                self.stacked.change(settings)

    def rebind(self, knowledge: SourceKnowledge, settings: Settings) -> Target:
        """Return the same target as other sources see it, component by component."""
        bound = Target(knowledge, settings)
        bound.tally, bound.units = self.tally, self.units
        seen = self.rows.components()
        if knowledge.plain is None:
            raise TypeError("sources that were learned from rows cannot be replaced by others")
        raw = knowledge.plain.raw_logs(seen.means)
        votes = combine(not_adapting(knowledge.committee.raw, raw))
        bound.rows.take_over(self.rows, votes)
        bound.renew()
        if bound.stacked is not None and bound.standard is not None:
            # Its space is another one now: components stand for their rows.
            own = knowledge.plain.per_domain_logs(seen.means, *bound.standard)
            bound._stack(knowledge.plain.stack(raw, own), seen.masses, votes)
        return bound

    # -- looking ---------------------------------------------------------------------------------

    def summary(self) -> TargetSummary:
        """Return the target in the columns of its rows."""
        return _summarised(self.rows)

    def stacked_summary(self) -> TargetSummary | None:
        """Return the target in the stacked space, if there is one."""
        return None if self.stacked is None else _summarised(self.stacked)

    def find_faults(self, names: Any) -> dict[Any, str]:
        """Return what is wrong with the columns, by name or number."""
        model, limits = self.knowledge.model, self.knowledge.limits
        if limits is None:
            return {}
        seen = self.mass > 0.0
        stds = np.sqrt(self.rows.moments()[1]) if seen else np.zeros(len(model.centre))
        usual = np.where(np.isfinite(limits.high), model.scale, 0.0)
        return self.tally.faults(names, stds, usual, limits.patience, self.units)

    # -- keeping ---------------------------------------------------------------------------------

    def copy(self) -> Target:
        """Return an independent copy; what the sources taught is shared."""
        twin = copy(self)
        twin.rows = self.rows.copy()
        twin.stacked = None if self.stacked is None else self.stacked.copy()
        return twin

    def state(self) -> TargetState:
        """Return all that is kept, to continue bit for bit."""
        stacked = None if self.stacked is None else self.stacked.state()
        return TargetState(
            self.rows.state(), stacked, self.tally, self.standard, self.growth, self.units
        )

    @classmethod
    def from_state(cls, knowledge: SourceKnowledge, state: TargetState) -> Target:
        """Continue from what :meth:`state` returned."""
        target = cls(knowledge, state.rows.settings)
        target.tally = state.tally
        target.rows = StreamSummary.from_state(state.rows)
        if (state.stacked is None) != (target.stacked is None):
            raise ValueError("the summary of stacked rows does not fit the sources")
        if state.stacked is not None:
            target.stacked = StreamSummary.from_state(state.stacked)
        if state.units is not None:
            target.units = state.units
        target.standard = state.standard
        if state.growth is not None:
            target.growth = state.growth
        return target

    @classmethod
    def from_mixture(cls, knowledge: SourceKnowledge, mixture: Mixture) -> Target:
        """Return a target known only by this mixture."""
        settings = Settings(max_components=mixture.n_components, resolution=1)
        target = cls(knowledge, settings)
        target.rows = StreamSummary.of_mixture(mixture, settings)
        target.renew()
        return target


def _new_summary(model: SourceModel, settings: Settings) -> StreamSummary:
    metric = model.metric(model.scale) if settings.full_covariance else None
    return StreamSummary(len(model.centre), settings, metric)


def _look_through(summary: StreamSummary, model: SourceModel, stds: Floats | None = None) -> None:
    """Merge components by their distance in the view, given the stds of the columns or those seen."""
    if stds is not None:
        scale = varying(stds, model.scale)
    else:
        scale = model.moments_at(*summary.moments(), model.expected_prior, summary.mass)[1]
    metric = model.metric(scale)
    if metric is not None and summary.settings.full_covariance:
        summary.look_through(metric)


def _summarised(summary: StreamSummary) -> TargetSummary:
    parts = summary.components()
    return TargetSummary(
        parts.masses,
        parts.means,
        parts.stds,
        summary.variances_in if summary.settings.full_covariance else None,
        parts.votes if parts.votes.shape[1] else None,
        *summary.moments(),
        summary.mass,
    )


def row_settings(
    n_classes: int, *, max_components: int | None = None, half_life: float | None = None
) -> Settings:
    """Return how a target is summarised for the dictionary."""
    return Settings(
        max_components=max_components or COMPONENTS_PER_CLASS * n_classes,
        resolution=1,
        full_covariance=True,
        n_votes=n_classes,
        half_life=half_life,
    )
