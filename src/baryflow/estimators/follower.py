"""One target followed while it flows: what was seen of it, what to believe, how far."""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import dataclass

import numpy as np

from baryflow.core.dictionary import PROXIMAL
from baryflow.core.mixture import Mixture
from baryflow.core.settings import PaperSettings, Settings
from baryflow.estimators.adaptation import ONLINE_STEPS, Adaptation, Bent, Options, Steps, adapt
from baryflow.estimators.decision import blend
from baryflow.estimators.history import History
from baryflow.estimators.learned import Learned
from baryflow.estimators.resemblance import compare_sources
from baryflow.estimators.target import Target, TargetState
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans, Floats

#: Rows above this novelty are strange.
STRANGE = 0.99
#: How firmly the steps of `refine` hold the atoms at least: many exact steps follow the target's noise.
_REFINING = 1.0
_FEWEST_STEPS = 10
#: Updates whose losses are remembered.
_CURVE = 10_000


@dataclass(frozen=True)
class Manner:
    """How a target is followed; see :class:`baryflow.OnlineDaDiL` for the meaning."""

    settings: Settings | PaperSettings
    options: Options = Options()  # noqa: RUF009 - frozen
    n_steps: int = ONLINE_STEPS
    proximal: float = PROXIMAL
    ramp: float = 0.0
    warm_start: bool = False  # start an update from the last one
    freeze_sources: bool = True  # let only the target choose its place among the atoms


@dataclass(frozen=True, eq=False)
class FollowerState:
    """All that is known of a target, without what the sources taught."""

    target: TargetState
    steps: Steps | None  # of the last update; None before the first
    start: Bent | None  # where a warm start goes on; an update from the sources can be made again
    refined: int
    reliability: float
    losses: Floats
    history: History


class Follower:
    """Follows one target while it flows.

    Parameters
    ----------
    learned : Learned
        What the sources taught; it is never changed, and many followers can share it.
    manner : Manner
    """

    def __init__(self, learned: Learned, manner: Manner) -> None:
        model = learned.model
        self.learned, self.manner = learned, manner
        self.target = Target(model, manner.settings)
        self.adaptation: Adaptation | None = None
        self.resemblance = np.zeros(0)
        self.reliability = 0.0
        self.losses: deque[tuple[float, float]] = deque(maxlen=_CURVE)
        self.history = History.empty(len(model.domains), model.n_classes)
        self._steps: Steps | None = None
        self._warm = False  # the last update did not start from the sources
        self._refined = 0

    @property
    def n_rows(self) -> int:
        """Rows seen."""
        return self.target.summary.n_rows

    def copy(self) -> Follower:
        """Return an independent copy; what the sources taught is shared."""
        twin = copy(self)
        twin.target, twin.losses = self.target.copy(), self.losses.copy()
        return twin

    # -- learning --------------------------------------------------------------------------------

    def absorb(self, raw: Floats, weights: Floats) -> None:
        """Absorb rows, with gaps and glitches as they come, and adapt."""
        if self.manner.settings != self.target.summary.settings:
            self.target.summary.change(self.manner.settings)
        counts = weights > 0.0  # a row that does not count is no row: nothing judges by it either
        raw, weights = raw[counts], weights[counts]
        rows, lost = self.target.clean(raw, count=True)
        weights = np.where(lost, 0.0, weights)  # a row of which nothing is left teaches nothing
        if weights.any():
            self.target.absorb(rows, weights)
            self._refined = 0
            self._update(self.manner.n_steps)
        self._judge(rows, lost)

    def absorb_whole(self, raw: Floats) -> None:
        """Absorb a target that is all at hand, and adapt."""
        rows, lost = self.target.clean(raw, whole=True, count=True)
        if not lost.all():  # as in a stream, a row of which nothing is left teaches nothing
            self.target.absorb_whole(rows[~lost])
            self._update(self.manner.n_steps)
        self._judge(rows, lost)

    def join(self, seen: TargetState, rows: Floats) -> None:
        """Absorb what was seen of the target elsewhere, and adapt; judge by some of its rows."""
        self.target.join(seen)
        self._refined = 0
        self._update(self.manner.n_steps)
        self._judge(*self.target.clean(rows))

    def take(self, mixture: Mixture) -> None:
        """Take a mixture for all that was seen of the target, and adapt."""
        self.target.take(mixture)
        self._update(self.manner.n_steps)

    def refine(self, n_steps: int) -> None:
        """Take further steps without data; from the sources, they are ten at least."""
        if self.adaptation is None:
            raise InvalidInputError("nothing to refine: no target row was seen yet")
        self._refined = self._refined + n_steps if self._refined else n_steps
        if not self.manner.warm_start:
            n_steps = max(self._refined, _FEWEST_STEPS, self.manner.n_steps)
        self._update(n_steps)

    def retell(
        self, learned: Learned, manner: Manner, sources: list[int], classes: list[int]
    ) -> Follower:
        """Return a follower of the same target, with other sources.

        Parameters
        ----------
        sources, classes : lists of int
            The number that each has here, -1 if it is new.
        """
        fresh = Follower(learned, manner)
        if self.target.mass > 0.0:
            fresh.target = self.target.retell(learned.model, manner.settings)
            fresh._update(manner.n_steps)
            fresh.reliability = self.reliability
            fresh.history = self.history.rearrange(sources, classes)
        return fresh

    def forget(self, keep: float) -> Follower:
        """Let rows seen count `keep` times as much; with 0, return a follower that has seen none.

        The new one goes on counting rows and remembers the history; this one is then not changed.
        """
        if keep == 0.0:
            fresh = Follower(self.learned, self.manner)
            fresh.target.summary.n_rows = self.n_rows
            fresh.losses.extend(self.losses)
            fresh.history = self.history
            return fresh
        if keep < 1.0 and self.adaptation is not None:
            self.target.summary.fade(keep)
            self._refined = 0
            self._update(self.manner.n_steps)
        return self

    def _update(self, n_steps: int) -> None:
        manner, mass = self.manner, self.target.mass
        warm = manner.warm_start and self.adaptation is not None
        self._warm = warm
        self._steps = Steps(
            int(n_steps),
            freeze_sources=manner.freeze_sources,
            loss_weight=float(mass / (mass + manner.ramp)),
            proximal=float(max(manner.proximal, _REFINING) if self._refined else manner.proximal),
        )
        start = self.adaptation.bent if warm and self.adaptation is not None else None
        self._adapt(self._steps, start)
        adaptation = self._adapted()
        before = float(adaptation.losses[0, -1])
        self.losses.append((before, self._steps.loss_weight * adaptation.bent.target.loss))

    def _adapt(self, steps: Steps, start: Bent | None) -> None:
        learned = self.learned
        self.adaptation = adapt(
            learned.model,
            self.target.seen(),
            self.manner.options,
            learned.decision.weights,
            steps=steps,
            start=start,
        )
        self.resemblance = compare_sources(self.adaptation.bent)

    def _adapted(self) -> Adaptation:
        if self.adaptation is None:
            raise InvalidInputError("no target row was seen yet")
        return self.adaptation

    # -- looking ---------------------------------------------------------------------------------

    def proba(self, rows: Floats) -> Floats:
        """Return the class probabilities of complete rows."""
        if self.adaptation is None:
            return self.learned.model.source_proba(rows)
        return blend(self.learned.decision, self.adaptation, rows)

    def novelty(self, raw: Floats) -> Floats:
        """Return how unlike everything known rows are, 0 to 1, as they come."""
        rows, lost = self.target.clean(raw)
        return np.where(lost, 1.0, self._novelty(rows))

    def _novelty(self, rows: Floats) -> Floats:
        return self.learned.novelty.rank(self.learned.model, self.adaptation, rows)

    def _judge(self, rows: Floats, lost: Booleans) -> None:
        """Say how far predictions for the last rows can be relied on, and remember how things stand."""
        self.reliability = 0.0
        if not len(rows) or self.adaptation is None:
            return
        sure = float(self.proba(rows).max(axis=1).mean())
        strange = float((lost | (self._novelty(rows) > STRANGE)).mean())
        known = 1.0 - max(0.0, strange - (1.0 - STRANGE)) / STRANGE
        adapts = self.learned.decision.adapts
        self.reliability = sure * known * (self.adaptation.seen if adapts else 1.0)
        self.history = self.history.record(
            n_rows=self.n_rows,
            resemblance=self.resemblance,
            proportions=self.adaptation.mix.shares,
            reliability=self.reliability,
            novelty=strange,
            losses=self.losses[-1],
        )

    # -- keeping ---------------------------------------------------------------------------------

    def state(self) -> FollowerState:
        """Return all that is known of the target, to go on bit for bit."""
        start = self.adaptation.bent if self._warm and self.adaptation is not None else None
        return FollowerState(
            target=self.target.state(),
            steps=self._steps,
            start=start,
            refined=self._refined,
            reliability=self.reliability,
            losses=np.array(list(self.losses)).reshape(-1, 2),
            history=self.history,
        )

    @classmethod
    def from_state(cls, learned: Learned, manner: Manner, state: FollowerState) -> Follower:
        """Go on from what :meth:`state` gave; an update that came from the sources is made again."""
        follower = cls(learned, manner)
        follower.target = Target.from_state(learned.model, state.target)
        if state.steps is not None:
            steps = state.steps
            if state.start is not None:
                steps = Steps(0, steps.freeze_sources, steps.loss_weight, steps.proximal)
            follower._adapt(steps, state.start)
        follower._steps, follower._warm = state.steps, state.start is not None
        follower._refined, follower.reliability = state.refined, state.reliability
        follower.losses.extend((float(a), float(b)) for a, b in state.losses)
        follower.history = state.history
        return follower
