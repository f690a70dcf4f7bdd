"""All that is known of one target: a value, and what can be read from it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from baryflow.core.mixture import Mixture
from baryflow.core.summary import Settings, StreamSummary
from baryflow.estimators._certificate import Certificate
from baryflow.estimators._domains import fill_gaps
from baryflow.estimators._explanations import Baseline, Explanation, TargetSummary
from baryflow.estimators._feedback import Correction, LabelledTarget, RecentRows
from baryflow.estimators._history import History
from baryflow.estimators._novelty import Familiar
from baryflow.estimators._sensors import Tally, Units, last_values, screen
from baryflow.estimators._sources import SourceKnowledge
from baryflow.validation import Booleans, Floats, Integers

#: Components kept of a target, for each class.
COMPONENTS_PER_CLASS = 3
#: This many rows of a class are enough to know it.
_ENOUGH = 10.0


@dataclass(frozen=True, eq=False)
class Adaptation:
    """What the sources taught, adapted to one target."""

    mass: float  # rows seen
    explanations: tuple[Explanation, ...]  # the likeliest first
    atoms: Floats  # of the likeliest that adapts, after their step towards the target
    coordinates: Floats
    losses: Floats  # of the target, before and after that step
    known_means: Floats  # its reconstruction before that step
    known_stds: Floats
    resemblance: Floats  # share of each source in the target
    typical: float  # median distance of what was seen from the reconstruction
    ambiguity: float  # share of rows whose class depends on which explanation is right
    #: How often each two experts agree about the target's components.
    agreements: Floats = field(default_factory=lambda: np.ones((1, 1)))

    @property
    def believed(self) -> Explanation:
        """The likeliest explanation that adapts."""
        return next(one for one in self.explanations if one.adapts)

    @property
    def proportions(self) -> Floats:
        """Class proportions of the rows seen, averaged over explanations."""
        return np.asarray(sum(one.weight * one.proportions for one in self.explanations))

    @property
    def coverage(self) -> float:
        """Share of the classes that were seen: 1 after ten rows of each; averaged over explanations."""
        seen = [
            np.minimum(self.mass * one.proportions / _ENOUGH, 1.0).mean() for one in self.explanations
        ]
        return min(float(np.dot([one.weight for one in self.explanations], seen)), 1.0)

    @property
    def reconstruction(self) -> Mixture:
        """The target rebuilt from the atoms, by the likeliest explanation that adapts."""
        return self.believed.reconstruction  # type: ignore[return-value]

    @property
    def labelled(self) -> Mixture:
        """The target's own components with labels, by the same explanation."""
        return self.believed.labelled  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class TargetState:
    """All that is known of one target, without what the sources taught.

    It is a value: functions return another one, and nothing in it is changed in place. To add something
    to it, add a field with a default; it is then saved and resumed with the rest.
    """

    rows: StreamSummary  # components and moments of the rows, in the units of the sources
    label_shift: bool  # the class proportions may be other than expected
    tally: Tally
    units: Units  # rows are converted to the units of the sources before anything else
    familiar: Familiar
    history: History
    recent: RecentRows
    labelled: LabelledTarget
    certificate: Certificate
    believable: tuple[Floats, Floats] | None = None  # range of values, in the units of the sources
    n_new: float = 0.0  # rows since the last adaptation
    learned_at: float = 0.0  # mass at the last adaptation
    adaptation: Adaptation | None = None
    baselines: tuple[Baseline, ...] = ()  # rows known to be of one class, one for each class
    n_given: int = 0  # rows that came, readable or not
    n_last: int = 0  # rows of the last batch
    #: Of the predictions for the last rows; None: they are judged when they are read.
    reliability: float | None = 0.0
    novel: float | None = 0.0
    new_classes: tuple[Any, ...] = ()  # those that no source has
    n_labels: int = 0  # that came
    correction: Correction | None = None
    corrected_at: float = 0.0  # mass of the target when the correction was fitted, and labels
    corrected_labels: int = 0
    #: Whether the last predictions that the certificate counts were right.
    verdicts: Booleans = field(default_factory=lambda: np.zeros(0, dtype=bool))
    #: Hashes of the last rows with a label.
    judged: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def mass(self) -> float:
        """Rows that count: those seen, less what has faded."""
        return self.rows.mass

    @property
    def n_rows(self) -> int:
        """Rows seen."""
        return self.rows.n_rows

    @property
    def adapted(self) -> Adaptation:
        """The last adaptation; there must be one."""
        if self.adaptation is None:
            raise ValueError("no target row was seen yet")
        return self.adaptation

    @property
    def coverage(self) -> float:
        """Share of the classes that were seen."""
        return 0.0 if self.adaptation is None else self.adaptation.coverage

    @property
    def resemblance(self) -> Floats:
        """Share of each source in the target; empty before the first row."""
        return np.zeros(0) if self.adaptation is None else self.adaptation.resemblance

    @property
    def proportions(self) -> Floats:
        """Class proportions of the rows seen; NaN for a class that no source has."""
        return np.append(self.adapted.proportions, [np.nan] * len(self.new_classes))

    def recorded(self) -> TargetState:
        """Return it with the present figures in its history, unless they are there or not judged."""
        if self.adaptation is None or (len(self.history) and self.history.n_rows[-1] == self.n_rows):
            return self
        if self.reliability is None or self.novel is None:
            return self
        history = self.history.record(
            n_rows=self.n_rows,
            resemblance=self.resemblance,
            proportions=self.proportions,
            reliability=self.reliability,
            coverage=self.coverage,
            novelty=self.novel,
            losses=tuple(self.adapted.losses),
        )
        return replace(self, history=history)


def begin(sources: SourceKnowledge, settings: Settings, *, label_shift: bool) -> TargetState:
    """Return a target of which nothing is known.

    Parameters
    ----------
    sources : SourceKnowledge
    settings : Settings
        How rows are summarised.
    label_shift : bool
        The class proportions may be other than expected.
    """
    model, d = sources.model, len(sources.model.centre)
    return TargetState(
        rows=StreamSummary(d, settings, model.metric(model.scale)),
        label_shift=label_shift,
        tally=Tally.none(d),
        units=Units.same(d),
        familiar=Familiar.none(model.expected_prior, model.scale),
        history=History.empty(len(model.domains), model.n_classes),
        recent=RecentRows.none(d),
        labelled=LabelledTarget.none(d),
        certificate=Certificate.none(),
    )


def row_settings(
    n_classes: int, *, max_components: int | None = None, half_life: float | None = None
) -> Settings:
    """Return how a target is summarised for the dictionary."""
    return Settings(
        max_components=max_components or COMPONENTS_PER_CLASS * n_classes,
        resolution=1,
        half_life=half_life,
    )


def clean(
    sources: SourceKnowledge,
    state: TargetState,
    raw: Floats,
    *,
    whole: bool = False,
    usual: Floats | None = None,
) -> tuple[Floats, Booleans]:
    """Return rows without glitches and gaps, and a flag for rows with hardly any value left.

    What is a glitch depends on the sources and on what was counted so far, never on the other rows. Gaps
    become what is `usual`: by default the mean of the column so far, or among the rows if these are the
    `whole` target.
    """
    rows = screen_rows(sources, state, raw)
    gone = np.isnan(rows)
    if not gone.any():
        return rows, np.zeros(len(rows), dtype=bool)
    there = ~np.isnan(raw)
    lost = gone.all(axis=1) | ((gone & there).sum(axis=1) > 0.5 * there.sum(axis=1))
    if whole:
        return fill_gaps(rows, sources.model.centre), np.asarray(lost)
    if usual is None:
        usual = state.rows.moments()[0] if state.mass > 0.0 else sources.model.centre
    return np.where(gone, usual, rows), np.asarray(lost)


def screen_rows(sources: SourceKnowledge, state: TargetState, raw: Floats) -> Floats:
    """Return rows in the units of the sources, glitches left out."""
    rows, believable = state.units.convert(raw), state.believable
    if believable is None:  # nothing was counted yet
        believable = sources.limits.around(state.units.convert(state.tally.recent))
    return screen(rows, *believable)


def count(sources: SourceKnowledge, state: TargetState, raw: Floats) -> TargetState:
    """Count values, gaps and glitches of new rows; find the units of columns, and what is believable."""
    limits = sources.limits
    units = limits.recalibrate(state.tally, raw, state.units)
    past = state.rows.moments() if state.mass > 0.0 else None
    believable = limits.around(units.convert(last_values(state.tally.recent, raw)), past)
    # What was learned of a column in other units is of little use.
    learned_at = state.learned_at if units is state.units else 0.0
    state = replace(state, units=units, believable=believable, learned_at=learned_at)
    read = np.where(np.isnan(screen_rows(sources, state, raw)), np.nan, raw)
    return replace(state, tally=state.tally + Tally.of(raw, read))


def summarise(state: TargetState) -> TargetSummary:
    """Return what was seen as an adaptation needs it."""
    rows = state.rows
    masses, means, _ = rows.components()
    return TargetSummary(masses, means, *rows.moments(), rows.mass, rows.variances_in)


def see_scale(sources: SourceKnowledge, rows: StreamSummary, scale: Floats) -> StreamSummary:
    """Return a summary that merges components by distances in the view of a target of this scale."""
    rows = rows.copy()
    rows.set_metric(sources.model.metric(scale))
    return rows


def find_faults(sources: SourceKnowledge, state: TargetState, names: Any) -> dict[Any, str]:
    """Return what is wrong with the columns of a target, by name or number."""
    model, limits = sources.model, sources.limits
    stds = np.sqrt(state.rows.moments()[1]) if state.mass > 0.0 else np.zeros(len(model.centre))
    usual = np.where(np.isfinite(limits.high), model.scale, 0.0)
    return state.tally.faults(names, stds, usual, limits.patience, state.units)
