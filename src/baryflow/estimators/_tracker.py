"""One target being followed: what was seen of it, the latest adaptation, and how both are kept."""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from baryflow.core.mixture import Mixture
from baryflow.core.settings import PaperSettings, Settings
from baryflow.estimators._experts import predict_not_adapting
from baryflow.estimators._fit_dictionary import AdaptConfig, AdaptedDictionary
from baryflow.estimators._history import History
from baryflow.estimators._novelty import NOVELTY_THRESHOLD, Familiar
from baryflow.estimators._resemblance import compare_sources
from baryflow.estimators._sources import SourceKnowledge
from baryflow.estimators._target import Target, TargetState
from baryflow.estimators._update import Adaptation, update
from baryflow.validation import Booleans, Floats

#: Updates whose losses are remembered.
_CURVE = 10_000


@dataclass(frozen=True, eq=False)
class TrackerState:
    """All that is known of a target, without what the sources taught."""

    target: TargetState
    start: AdaptedDictionary | None  # of a warm start; other updates are recomputed
    reliability: float
    novel: float
    familiar: Familiar
    losses: Floats
    history: History


class Tracker:
    """Follows one target.

    Parameters
    ----------
    knowledge : SourceKnowledge
        What the sources taught; it is never changed, and many sessions can share it.
    settings : Settings or PaperSettings
        How rows are summarised.
    config : AdaptConfig
    """

    def __init__(
        self, knowledge: SourceKnowledge, settings: Settings | PaperSettings, config: AdaptConfig
    ) -> None:
        self.knowledge, self.settings, self.config = knowledge, settings, config
        self.target = Target(knowledge, settings)
        self.adaptation: Adaptation | None = None
        self.resemblance = np.zeros(0)
        self.reliability = self.novel = 0.0
        self.familiar = Familiar.none(knowledge.model.expected_prior, knowledge.model.scale)
        self.losses: deque[tuple[float, float]] = deque(maxlen=_CURVE)
        self.history = History.empty(len(knowledge.model.domains), knowledge.model.n_classes)
        self._start: AdaptedDictionary | None = None

    @property
    def n_rows(self) -> int:
        """Rows seen."""
        return self.target.rows.n_rows

    @property
    def coverage(self) -> float:
        """Share of the classes that were seen."""
        return 0.0 if self.adaptation is None else self.adaptation.coverage

    @property
    def estimates_shift(self) -> bool:
        """Whether class proportions are estimated: not without plain classifiers."""
        return self.config.label_shift and self.knowledge.plain is not None

    def copy(self) -> Tracker:
        """Return an independent copy; what the sources taught is shared."""
        twin = copy(self)
        twin.target, twin.losses = self.target.copy(), self.losses.copy()
        return twin

    # -- learning --------------------------------------------------------------------------------

    def absorb(self, raw: Floats, weights: Floats, *, whole: bool = False) -> None:
        """Absorb rows with their gaps and glitches, and adapt; `whole`: there are no others."""
        self.target.change(self.settings)
        counts = weights > 0.0  # a row without weight is no row: it is not judged either
        raw, weights = raw[counts], weights[counts]
        rows, lost = self.target.clean(raw, whole=whole, count=True)
        if not lost.all():  # an empty row teaches nothing
            self.target.absorb(rows[~lost], weights[~lost], whole=whole)
            self.update()
        self._judge(rows, lost)

    def join(self, seen: TargetState, rows: Floats) -> None:
        """Absorb what was seen of the target elsewhere, and adapt; judge by some of its rows."""
        self.target.join(seen)
        self.update()
        self._judge(*self.target.clean(rows))

    def take(self, mixture: Mixture) -> None:
        """Take a mixture for all that was seen of the target, and adapt."""
        self.target = Target.from_mixture(self.knowledge, mixture)
        self.settings = self.target.rows.settings
        self.update()

    def rebind(self, fresh: Tracker, sources: list[int], classes: list[int]) -> Tracker:
        """Let a tracker with other sources follow the target of this one; return it.

        Parameters
        ----------
        sources, classes : lists of int
            The number of each in this tracker, -1 if it is new.
        """
        if self.target.mass > 0.0:
            fresh.target = self.target.rebind(fresh.knowledge, fresh.settings)
            fresh.update()
            fresh.losses.extendleft(reversed(self.losses))
            fresh.reliability, fresh.novel = self.reliability, self.novel
            fresh.familiar = self.familiar.rearrange(classes, fresh.familiar.prior)
            fresh.history = self.history.rearrange(sources, classes)
        return fresh

    def forget(self, keep: float) -> Tracker:
        """Return a tracker in which the rows seen count `keep` times as much, or with 0 not at all."""
        if keep == 0.0:
            fresh = Tracker(self.knowledge, self.settings, self.config)
            fresh.target.rows.n_rows = self.n_rows
            fresh.losses.extend(self.losses)
            fresh.history = self.history
            return fresh
        tracker = self.copy()
        if keep < 1.0 and self.adaptation is not None:
            tracker.target.fade(keep)
            tracker.update()
        return tracker

    def update(self) -> None:
        """Adapt to what was seen."""
        last = self.adaptation if self.config.warm_start else None
        start = None if last is None else last.expected.view.adapted
        adaptation = self._adapt(self.config, start)
        self._start = None if last is None else adaptation.expected.view.adapted
        space = adaptation.believed.view
        before = float(space.losses[0, -1]) if len(space.losses) else space.adapted.target.loss
        self.losses.append((before, space.adapted.target.loss))

    def _adapt(self, config: AdaptConfig, start: AdaptedDictionary | None) -> Adaptation:
        self.adaptation = update(self.knowledge, self.target, config, start)
        self.resemblance = compare_sources(self.adaptation.believed.view.adapted)
        return self.adaptation

    # -- looking ---------------------------------------------------------------------------------

    def predict_proba(self, rows: Floats) -> Floats:
        """Return the class probabilities of complete rows."""
        if self.adaptation is None:
            return predict_not_adapting(self.knowledge, rows)
        return self.adaptation.predict_proba(rows)

    def novelty(self, raw: Floats) -> Floats:
        """Return how unlike everything known rows are, 0 to 1, as they come."""
        rows, lost = self.target.clean(raw)
        return np.where(lost, 1.0, self._novelty(rows))

    def _novelty(self, rows: Floats, probabilities: Floats | None = None) -> Floats:
        novelty, model = self.knowledge.novelty, self.knowledge.model
        if self.adaptation is None:
            return novelty.rank_first(model.novelty_distance(rows, model.centre, model.scale))
        far = self.adaptation.novelty_distance(rows, self.familiar.rows)
        if probabilities is None:
            probabilities = self.predict_proba(rows)
        return novelty.rank(far, self.familiar.chances(rows, probabilities.argmax(axis=1)))

    def _judge(self, rows: Floats, lost: Booleans) -> None:
        """Estimate how far predictions for the last rows can be relied on, and record the state."""
        self.reliability = self.novel = 0.0
        if not len(rows) or self.adaptation is None:
            return
        # What the first rows were called may be wrong: name them as they are seen now.
        self.familiar = self.familiar.name(self.adaptation.name_rows)
        probabilities = self.predict_proba(rows)
        novel = lost | (self._novelty(rows, probabilities) > NOVELTY_THRESHOLD)
        self.novel = float(novel.mean())
        calibration = self.knowledge.calibration
        self.reliability = calibration.estimate(probabilities, novel, 1.0 - NOVELTY_THRESHOLD)
        self.familiar = self.familiar.see(rows[~lost], probabilities[~lost].argmax(axis=1))
        self.history = self.history.record(
            n_rows=self.n_rows,
            resemblance=self.resemblance,
            proportions=self.adaptation.proportions,
            reliability=self.reliability,
            coverage=self.coverage,
            novelty=self.novel,
            losses=self.losses[-1],
        )

    # -- keeping ---------------------------------------------------------------------------------

    def state(self) -> TrackerState:
        """Return all that is known of the target, to continue bit for bit."""
        return TrackerState(
            target=self.target.state(),
            start=self._start,
            reliability=self.reliability,
            novel=self.novel,
            familiar=self.familiar,
            losses=np.array(list(self.losses)).reshape(-1, 2),
            history=self.history,
        )

    @classmethod
    def from_state(
        cls,
        knowledge: SourceKnowledge,
        settings: Settings | PaperSettings,
        config: AdaptConfig,
        state: TrackerState,
    ) -> Tracker:
        """Continue from what :meth:`state` returned."""
        tracker = cls(knowledge, settings, config)
        tracker.target = Target.from_state(knowledge, state.target)
        if tracker.target.mass > 0.0:
            warm = state.start is not None
            tracker._adapt(replace(config, n_steps=0) if warm else config, state.start)
        tracker._start, tracker.familiar = state.start, state.familiar
        tracker.reliability, tracker.novel = state.reliability, state.novel
        tracker.losses.extend((float(a), float(b)) for a, b in state.losses)
        tracker.history = state.history
        return tracker
