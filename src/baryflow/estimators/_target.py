"""What is kept of a target's rows, in bounded memory: a summary, and a tally of their columns."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from baryflow.core.mixture import Mixture
from baryflow.core.settings import Settings
from baryflow.core.summary import StreamSummary, StreamSummaryState
from baryflow.estimators._domains import fill_gaps
from baryflow.estimators._explanations import TargetSummary
from baryflow.estimators._sensors import Limits, Tally, last_values, screen
from baryflow.estimators._source_table import varying
from baryflow.estimators._sources import SourceKnowledge
from baryflow.estimators._units import Units
from baryflow.validation import Booleans, Floats

#: Components kept of a target, for each class.
COMPONENTS_PER_CLASS = 3
#: Adapt after this many new rows: as a part of those before, and at most.
_GROWTH, _MOST_NEW = 0.25, 2048.0


@dataclass(frozen=True, eq=False)
class TargetState:
    """All that is kept of the rows of a target."""

    rows: StreamSummaryState
    tally: Tally
    learned_at: float
    n_new: float
    units: Units
    believed: tuple[Floats, Floats] | None  # range of believable values, in these units


class Target:
    """Rows of a target that flow past: cleaned, and summarised in the columns of the rows.

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
        self.learned_at = 0.0  # mass at the last adaptation
        self.n_new = 0.0  # rows since then
        metric = knowledge.model.metric(knowledge.model.scale) if settings.full_covariance else None
        self.rows = StreamSummary(len(knowledge.model.centre), settings, metric)

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
            past = self.rows.moments() if self.mass > 0.0 else None
            last = self.units.convert(last_values(self.tally.recent, raw))
            self._range = limits.around(last, past)
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
        rows, limits, believed = self.units.convert(raw), self.knowledge.limits, self._range
        if believed is None and limits is not None:  # nothing was counted here yet
            believed = limits.around(self.units.convert(self.tally.recent))
        return rows if believed is None else screen(rows, *believed)

    def _find_units(self, limits: Limits, raw: Floats) -> None:
        """Find the units of the columns, with these new rows."""
        before = self.units
        self.units = limits.recalibrate(self.tally, raw, before)
        if self.units is not before:  # what was learned of the column before is of little use
            self.learned_at = 0.0

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
        self.rows.update(X, weights)
        self.n_new += float(weights.sum())
        return self.n_new >= min(_GROWTH * self.learned_at, _MOST_NEW)

    def learned(self, scale: Floats) -> None:
        """Note that everything was learned, and that the target has this scale.

        From now on components are merged by their distance in the view that fits it.
        """
        self.learned_at, self.n_new = self.mass, 0.0
        self.see_scale(scale)

    def see_stds(self, stds: Floats) -> None:
        """Project rows as fits a target with these standard deviations."""
        self.see_scale(varying(stds, self.knowledge.model.scale))

    def see_scale(self, scale: Floats) -> None:
        """Merge components from now on by their distance in the view of a target with this scale."""
        metric = self.knowledge.model.metric(scale)
        if metric is not None and self.rows.settings.full_covariance:
            self.rows.look_through(metric)

    def join(self, state: TargetState) -> None:
        """Absorb what was seen of this target elsewhere."""
        other = Target.from_state(self.knowledge, state)
        if self.mass > 0.0:
            self.rows.merge(other.rows)
        else:
            other.rows.n_rows += self.rows.n_rows  # those that were forgotten
            self.rows = other.rows
        self.tally, self.units, self._range = self.tally + other.tally, other.units, None

    def change(self, settings: Settings) -> None:
        """Use other settings from now on, as far as they can be changed."""
        if settings != self.rows.settings:
            self.rows.change(settings)

    def rebind(self, knowledge: SourceKnowledge, settings: Settings) -> Target:
        """Return the same target as other sources see it, component by component."""
        bound = Target(knowledge, settings)
        bound.tally, bound.units = self.tally, self.units
        if self.mass > 0.0:
            bound.rows.take_over(self.rows)
        return bound

    # -- looking ---------------------------------------------------------------------------------

    def summary(self) -> TargetSummary:
        """Return the target as an adaptation needs it."""
        parts, full = self.rows.components(), self.rows.settings.full_covariance
        return TargetSummary(
            parts.masses,
            parts.means,
            parts.stds,
            *self.rows.moments(),
            self.mass,
            self.rows.variances_in if full else None,
        )

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
        return twin

    def state(self) -> TargetState:
        """Return all that is kept, to continue bit for bit."""
        return TargetState(
            self.rows.state(), self.tally, self.learned_at, self.n_new, self.units, self._range
        )

    @classmethod
    def from_state(cls, knowledge: SourceKnowledge, state: TargetState) -> Target:
        """Continue from what :meth:`state` returned."""
        target = cls(knowledge, state.rows.settings)
        target.rows = StreamSummary.from_state(state.rows)
        target.tally, target.units = state.tally, state.units
        target.learned_at, target.n_new = state.learned_at, state.n_new
        target._range = state.believed
        return target

    @classmethod
    def from_mixture(cls, knowledge: SourceKnowledge, mixture: Mixture) -> Target:
        """Return a target known only by this mixture."""
        settings = Settings(max_components=mixture.n_components, resolution=1)
        target = cls(knowledge, settings)
        target.rows = StreamSummary.of_mixture(mixture, settings)
        return target


def row_settings(
    n_classes: int, *, max_components: int | None = None, half_life: float | None = None
) -> Settings:
    """Return how a target is summarised for the dictionary."""
    return Settings(
        max_components=max_components or COMPONENTS_PER_CLASS * n_classes,
        resolution=1,
        full_covariance=True,
        half_life=half_life,
    )
