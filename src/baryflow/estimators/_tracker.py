"""One target being followed: what was seen of it, the latest adaptation, and how both are kept."""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from baryflow.core.mixture import Mixture
from baryflow.core.settings import Settings
from baryflow.estimators._adapt import (
    Adaptation,
    Labelled,
    adapt,
    calibrated,
    classify,
    name_rows,
    novelty_distance,
    standardise,
    typical_in_columns,
)
from baryflow.estimators._certificate import Certificate
from baryflow.estimators._class_summary import ClassSummary
from baryflow.estimators._committee import combine
from baryflow.estimators._experts import expert_logs, unadapted_logits
from baryflow.estimators._explanations import Baseline
from baryflow.estimators._feedback import (
    Answers,
    Correction,
    LabelledTarget,
    fit_correction,
)
from baryflow.estimators._history import History
from baryflow.estimators._novelty import NOVELTY_THRESHOLD, Familiar
from baryflow.estimators._query import RecentRows, choose_rows, measure_disagreement
from baryflow.estimators._sources import SourceKnowledge
from baryflow.estimators._target import Target, TargetState
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Booleans, Floats, Integers

#: Updates whose losses are remembered.
_CURVE = 10_000
#: Predictions for labelled rows that sharpen the estimate of the accuracy: the last ones.
_VERDICTS = 100
#: Rows with labels that are remembered by a short hash, so that none proves anything twice: the last.
_JUDGED = 10_000
#: Rows without a label whose predictions a correction should not change.
_ANCHORS = 100
#: The correction is fitted again when there are this many times as many rows, or labels: after each of
#: the first 50 labels.
_ROW_GROWTH, _LABEL_GROWTH = 1.25, 1.02


@dataclass(frozen=True, eq=False)
class TrackerState:
    """All that is known of a target, without what the sources taught."""

    target: TargetState
    adaptation: Adaptation | None
    baselines: list[Baseline]
    n_last: int
    reliability: float
    novel: float
    familiar: Familiar
    losses: Floats
    history: History
    recent: RecentRows
    n_given: int
    new_classes: list[Any]
    labelled: LabelledTarget
    n_labels: int
    correction: Correction | None
    corrected_at: float
    corrected_labels: int
    certificate: Certificate
    verdicts: Booleans
    summaries: list[ClassSummary]
    judged: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


class Tracker:
    """Follows one target.

    Rows are absorbed as they come. Adapting to them takes longer, so it waits until there is something
    to learn: see :meth:`Target.absorb`. Predictions, and what is shown of the target, come from the last
    adaptation.

    Parameters
    ----------
    knowledge : SourceKnowledge
        What the sources taught; it is never changed, and many sessions can share it.
    settings : Settings
        How rows are summarised.
    label_shift : bool
        Estimate the target's class proportions.
    """

    def __init__(self, knowledge: SourceKnowledge, settings: Settings, label_shift: bool) -> None:
        self.knowledge, self.settings, self.label_shift = knowledge, settings, label_shift
        self.target = Target(knowledge, settings)
        self.adaptation: Adaptation | None = None
        self.baselines: tuple[Baseline, ...] = ()  # rows known to be of one class, one for each class
        self._n_last = 0  # rows of the last batch
        self.reliability = self.novel = 0.0
        self.familiar = Familiar.none(knowledge.model.expected_prior, knowledge.model.scale)
        self.losses: deque[tuple[float, float]] = deque(maxlen=_CURVE)
        self.history = History.empty(len(knowledge.model.domains), knowledge.model.n_classes)
        self.recent = RecentRows.none(len(knowledge.model.centre))
        self.n_given = 0  # rows that came, readable or not
        self.new_classes: tuple[Any, ...] = ()  # those that no source has
        self.labelled = LabelledTarget.none(len(knowledge.model.centre))
        self.n_labels = 0  # that came
        self.correction: Correction | None = None
        self._corrected_at = 0.0  # mass of the target when the correction was fitted, and labels
        self._corrected_labels = 0
        self.certificate = Certificate.none()
        self.verdicts = np.zeros(0, dtype=bool)  # whether the last predictions it counts were right
        self.judged = np.zeros(0, dtype=np.int64)  # hashes of the last rows with a label
        self.summaries: tuple[ClassSummary, ...] = ()  # of classes that were named elsewhere

    @property
    def n_classes(self) -> int:
        """Classes of the sources, and those of the target alone."""
        return self.knowledge.model.n_classes + len(self.new_classes)

    @property
    def proportions(self) -> Floats:
        """Class proportions of the rows seen; NaN for a class that no source has."""
        if self.adaptation is None:
            raise ValueError("no target row was seen yet")
        return np.append(self.adaptation.proportions, [np.nan] * len(self.new_classes))

    @property
    def resemblance(self) -> Floats:
        """Share of each source in the target; empty before the first row."""
        return np.zeros(0) if self.adaptation is None else self.adaptation.resemblance

    @property
    def n_rows(self) -> int:
        """Rows seen."""
        return self.target.rows.n_rows

    @property
    def coverage(self) -> float:
        """Share of the classes that were seen."""
        return 0.0 if self.adaptation is None else self.adaptation.coverage

    def copy(self) -> Self:
        """Return a copy, which can learn without changing this one."""
        twin: Self = copy(self)  # targets are copied before they change
        twin.losses = self.losses.copy()
        return twin

    # -- learning --------------------------------------------------------------------------------

    def absorb(
        self,
        raw: Floats,
        weights: Floats,
        *,
        whole: bool = False,
        positions: Integers | None = None,
    ) -> None:
        """Absorb rows with their gaps and glitches; adapt if there is something to learn.

        `whole` says that there are no others. `positions` are those of the rows in their stream; without
        them rows are numbered as they come.
        """
        counts = weights > 0.0  # a row without weight is no row: it is not judged either
        raw, weights = raw[counts], weights[counts]
        if not len(raw):
            return
        self.target = self.target.copy()
        self.target.change(self.settings)
        if positions is None:
            positions = np.arange(self.n_given, self.n_given + len(raw))
        else:
            positions = positions[counts]
        self.n_given, self._n_last = self.n_given + len(raw), len(raw)
        if not whole:
            self.recent = self.recent.plus(raw, positions)
        rows, lost = self.target.clean(raw, whole=whole, count=True)
        rows = rows[~lost]
        if not len(rows):  # an empty row teaches nothing
            self._judge(raw, self.familiar)
            return
        grown = self.target.absorb(rows, weights[~lost], whole=whole)
        if grown:
            self.update()
        self._judge(raw, self.familiar)
        if grown:
            self.record()
        self._see(rows)

    def _see(self, rows: Floats) -> None:
        """Let complete rows become familiar."""
        if self.adaptation is not None:
            self.familiar = self.familiar.see(rows, self._name_rows)

    def _name_rows(self, rows: Floats) -> Integers:
        """Return the most probable class of complete rows by the reconstruction alone."""
        if self.adaptation is None:
            raise ValueError("no target row was seen yet")
        return name_rows(self.knowledge, self.adaptation, rows)

    def certify(self, raw: Floats, codes: Integers, unknown: float | None = None) -> None:
        """Hold labels of rows chosen at random against what is predicted of the rows now.

        Classes of the target alone that are not known yet have larger numbers than all others. A row
        whose label is or was known proves nothing: the prediction has learned it. A row that is more
        novel than `unknown` has no class as its prediction, which is not right.
        """
        hashes, known = _hash_rows(raw), set(self.judged.tolist())
        fresh = list({one: i for i, one in enumerate(hashes.tolist()) if one not in known}.values())
        if not fresh:
            return
        raw, codes = raw[fresh], codes[fresh]
        rows = self.target.clean(raw)[0]
        plain = self._predict_unadapted(rows) if self.knowledge.plain is not None else None
        adapting = None
        if self.adaptation is not None:
            adapting = self._predict_explained(self.adaptation, rows)
        other = adapting if plain is None else plain
        if other is None:
            return  # a model made from mixtures, before its first row
        ours = other if adapting is None else adapting
        found = [one.argmax(axis=1) == codes for one in (self.predict_proba(rows), other, ours)]
        harmed = self.certificate.harm
        named = np.ones(len(raw), dtype=bool) if unknown is None else self.assess(raw)[1] <= unknown
        self.certificate = self.certificate.plus(found[0] & named, found[1], found[2])
        self._remember(hashes[fresh])
        self.verdicts = np.append(self.verdicts, found[0])[-_VERDICTS:]
        if self.certificate.harm != harmed:
            self._correct()
        self._judge_again()

    def feedback(
        self, raw: Floats, codes: Integers, new_classes: tuple[Any, ...], *, random: bool
    ) -> None:
        """Learn from labels of rows that were seen.

        Parameters
        ----------
        raw : array of shape (n, d)
        codes : array of shape (n,)
            Classes: of the sources, then of the target alone.
        new_classes : tuple
            Names of the latter, now.
        random : bool
            The rows were chosen at random, whatever was predicted of them.
        """
        known = self.new_classes
        self._name(new_classes)
        self.labelled = self.labelled.plus(raw, codes, random=random)
        self._remember(_hash_rows(raw))
        self.n_labels += len(raw)
        if self.new_classes != known or self.n_labels >= _LABEL_GROWTH * self._corrected_labels:
            self._learn_labels()
        self._judge_again()

    def _learn_labels(self) -> None:
        """Weigh the explanations again, and fit the correction."""
        if self.adaptation is not None and (self.labelled.codes < self.knowledge.model.n_classes).any():
            self._adapt()
        self._correct()

    def set_baseline(self, raw: Floats, code: int) -> None:
        """Learn rows of the target that are known to be of one class of the sources.

        They are no rows of the stream: they only say how the target is calibrated.
        """
        self.target = self.target.copy()
        rows, lost = self.target.clean(raw, whole=True, count=True)
        if lost.all():
            raise InvalidInputError(
                "no row of the baseline can be read: all values are far outside of the sources"
            )
        found = Baseline.of(code, rows[~lost])
        others = [one for one in self.baselines if one.code != code]
        for one in self.baselines:
            found = one.plus(found) if one.code == code else found
        self.baselines = (*others, found)
        if self.adaptation is not None:
            self.update()
            self._judge_again()

    def _remember(self, hashes: Integers) -> None:
        """Remember that rows have labels."""
        known = dict.fromkeys([*self.judged.tolist(), *hashes.tolist()])
        self.judged = np.array(list(known)[-_JUDGED:], dtype=np.int64)

    def add_class(self, summary: ClassSummary) -> None:
        """Learn a class from a summary, which replaces an earlier one of that name."""
        if summary.name not in self.new_classes:
            self._name((*self.new_classes, summary.name))
        others = [one for one in self.summaries if one.name != summary.name]
        self.summaries = (*others, summary)
        self._correct()
        self._judge_again()

    def _name(self, new_classes: tuple[Any, ...]) -> None:
        """Make these the classes that no source has: those there are, and perhaps more."""
        if added := len(new_classes) - len(self.new_classes):
            sources = range(len(self.knowledge.model.domains))
            self.history = self.history.rearrange(sources, [*range(self.n_classes), *[-1] * added])
            self.new_classes = new_classes

    def _correct(self) -> None:
        """Fit the correction to all labels."""
        if self.adaptation is None or not (len(self.labelled) or self.summaries):
            return
        rows, codes = self.target.clean(self.labelled.rows)[0], self.labelled.codes
        random = self.labelled.random
        view, n_known = self.adaptation.believed, self.knowledge.model.n_classes
        for summary in self.summaries:
            drawn = view.centre + view.scale * summary.draw()
            code = n_known + self.new_classes.index(summary.name)
            rows = np.concatenate([rows, drawn])
            codes = np.concatenate([codes, np.full(len(drawn), code)])
            random = np.concatenate([random, np.zeros(len(drawn), dtype=bool)])
        anchors = self.target.clean(self.recent.rows[self.recent.spread(_ANCHORS)])[0]
        first = self._answers(self.adaptation, rows)
        # Without anchors all rows were seen elsewhere.
        second = Answers(first.probabilities[:0], first.logs[:, :0], first.features[:0])
        if len(anchors):
            second = self._answers(self.adaptation, anchors)
        plain = self.knowledge.plain
        statistics = None if plain is None else plain.statistics
        self.correction = fit_correction(
            first, codes, random, second, self.n_classes, statistics, self.correction
        )
        self._corrected_at, self._corrected_labels = self.target.mass, self.n_labels

    def _answers(self, adaptation: Adaptation, rows: Floats) -> Answers:
        """Return what the committee and the experts say of rows."""
        if self.certificate.harm:
            probabilities = self._predict_unadapted(rows)
        else:
            probabilities = self._predict_explained(adaptation, rows)
        logs = expert_logs(self.knowledge, adaptation.believed, rows)
        return Answers.of(probabilities, logs, standardise(self.knowledge, adaptation, rows))

    def join(self, seen: TargetState, rows: Floats) -> None:
        """Absorb what was seen of the target elsewhere, and adapt; judge by some of its rows."""
        self.target = self.target.copy()
        self.target.join(seen)
        self.update()
        self._n_last = 0  # the rows are not remembered
        self._judge(rows, self.familiar)
        self.record()
        known, lost = self.target.clean(rows)
        self._see(known[~lost])

    def take(self, mixture: Mixture) -> None:
        """Take a mixture for all that was seen of the target, and adapt."""
        self.target = Target.from_mixture(self.knowledge, mixture)
        self.settings = self.target.rows.settings
        self.update()

    def rebind(
        self, fresh: Tracker, sources: list[int], classes: list[int], new_classes: tuple[Any, ...] = ()
    ) -> Tracker:
        """Let a tracker with other sources follow the target of this one; return it.

        Parameters
        ----------
        sources, classes : lists of int
            The number of each in this tracker, -1 if it is new.
        new_classes : tuple
            Names of the last of the classes, which no source has.
        """
        fresh.baselines = tuple(replace(one, code=classes.index(one.code)) for one in self.baselines)
        fresh.target = self.target.rebind(fresh.knowledge, fresh.settings)
        if self.target.mass > 0.0:
            fresh.recent, fresh.n_labels = self.recent, self.n_labels
            fresh.n_given, fresh._n_last = self.n_given, self._n_last
            fresh.new_classes, fresh.certificate = new_classes, self.certificate
            fresh.verdicts, fresh.judged = self.verdicts, self.judged
            fresh.summaries = tuple(one for one in self.summaries if one.name in new_classes)
            codes = np.array([classes.index(code) for code in self.labelled.codes], dtype=np.intp)
            fresh.labelled = replace(self.labelled, codes=codes)
            fresh.update()
            fresh.losses.extendleft(reversed(self.losses))
            fresh.reliability, fresh.novel = self.reliability, self.novel
            fresh.familiar = replace(self.familiar, prior=fresh.familiar.prior)
            fresh.history = self.history.rearrange(sources, classes)
        return fresh

    def forget(self, keep: float) -> Tracker:
        """Return a tracker in which the rows seen count `keep` times as much, or with 0 not at all."""
        if keep == 0.0:
            fresh = Tracker(self.knowledge, self.settings, self.label_shift)
            fresh.target.rows.n_rows = self.n_rows
            fresh.losses.extend(self.losses)
            # Classes that were named elsewhere stay known.
            fresh.summaries, n_known = self.summaries, self.knowledge.model.n_classes
            fresh.new_classes = tuple(one.name for one in self.summaries)
            places = [n_known + self.new_classes.index(name) for name in fresh.new_classes]
            sources = range(len(self.knowledge.model.domains))
            fresh.history = self.history.rearrange(sources, [*range(n_known), *places])
            fresh.n_given, fresh.n_labels = self.n_given, self.n_labels
            return fresh
        tracker = self.copy()
        if keep < 1.0 and self.adaptation is not None:
            tracker.target = tracker.target.copy()
            tracker.target.rows.fade(keep)
            tracker.update()
        return tracker

    def update(self) -> None:
        """Adapt to what was seen."""
        before, after = self._adapt().losses.tolist()
        self.losses.append((before, after))
        if not self._corrected_at <= self.target.mass < _ROW_GROWTH * self._corrected_at:
            self._correct()

    def _adapt(self) -> Adaptation:
        known = self.labelled.codes < self.knowledge.model.n_classes
        labelled = None
        if known.any():
            rows, lost = self.target.clean(self.labelled.rows[known])
            codes, random = self.labelled.codes[known], self.labelled.random[known]
            labelled = Labelled(rows[~lost], codes[~lost], random[~lost])
        self.adaptation = adapt(
            self.knowledge,
            self.target.summary(),
            label_shift=self.label_shift,
            labelled=labelled,
            baselines=self.baselines,
        )
        self.target = self.target.copy()
        self.target.learned(self.adaptation.believed.scale)
        return self.adaptation

    # -- looking ---------------------------------------------------------------------------------

    def predict_proba(self, rows: Floats) -> Floats:
        """Return the class probabilities of complete rows."""
        if self.adaptation is None:
            found = self._predict_unadapted(rows)
            return np.hstack([found, np.zeros((len(rows), len(self.new_classes)))])
        if self.correction is not None:
            return self.correction.apply(self._answers(self.adaptation, rows))
        if self.certificate.harm:
            return self._predict_unadapted(rows)
        return self._predict_explained(self.adaptation, rows)

    def _predict_unadapted(self, rows: Floats) -> Floats:
        return combine(unadapted_logits(self.knowledge, rows))

    def _predict_explained(self, adaptation: Adaptation, rows: Floats) -> Floats:
        return calibrated(self.knowledge, adaptation, classify(self.knowledge, adaptation, rows))

    def assess(self, raw: Floats, familiar: Familiar | None = None) -> tuple[Floats, Floats]:
        """Return class probabilities of rows as they come, and how unlike everything known they are.

        `familiar` is what is familiar, if not all that was seen.
        """
        rows, lost = self.target.clean(raw)
        probabilities, model = self.predict_proba(rows), self.knowledge.model
        if self.adaptation is None:
            distance = model.novelty_distance(rows, model.centre, model.scale)
            return probabilities, np.where(lost, 1.0, self.knowledge.novelty.rank_first(distance))
        familiar = self.familiar if familiar is None else familiar
        shares = probabilities[:, : model.n_classes]
        typical = typical_in_columns(self.knowledge, self.adaptation, familiar.rows)
        far = novelty_distance(self.knowledge, self.adaptation, rows, typical)
        chances = familiar.name(self._name_rows).chances(rows, shares.argmax(axis=1))
        novelty = np.where(lost, 1.0, self.knowledge.novelty.rank(far, chances))
        # A class that was named is known.
        return probabilities, novelty * shares.sum(axis=1) if self.new_classes else novelty

    def query(self, n: int) -> tuple[Integers, Floats, Floats]:
        """Return n of the recent rows that are most worth a label, their probabilities and novelty.

        Rows are given by their numbers among the recent ones; those with a label are left out.
        """
        if self.adaptation is None:
            raise ValueError("no target row was seen yet")
        known = {row.tobytes() for row in self.labelled.rows}
        raw = self.recent.rows
        free = np.array([i for i, row in enumerate(raw) if row.tobytes() not in known], dtype=np.intp)
        rows, lost = self.target.clean(raw[free])
        free, rows = free[~lost], rows[~lost]
        if not len(free):
            return free, np.zeros((0, self.n_classes)), np.zeros(0)
        probabilities, novelty = self.assess(raw[free])
        rng = np.random.default_rng([self.n_given, len(self.labelled)])
        columns = standardise(self.knowledge, self.adaptation, rows)
        disagreement = measure_disagreement(classify(self.knowledge, self.adaptation, rows))
        novel = novelty > NOVELTY_THRESHOLD
        chosen = choose_rows(probabilities, columns, novel, disagreement, n, rng)
        return free[chosen], probabilities[chosen], novelty[chosen]

    def _judge(self, raw: Floats, familiar: Familiar) -> None:
        """Estimate how far predictions for rows can be relied on; `familiar` is what was before them."""
        if not len(raw) or self.adaptation is None:
            return
        probabilities, novelty = self.assess(raw, familiar)
        novel = novelty > NOVELTY_THRESHOLD
        self.novel = float(novel.mean())
        self.reliability = self.knowledge.calibration.estimate(
            probabilities, novel, 1.0 - NOVELTY_THRESHOLD, self.verdicts
        )

    def _judge_again(self) -> None:
        """Estimate it again for the last rows, after labels have changed the predictions."""
        if not self._n_last:
            return
        raw = self.recent.rows[-self._n_last :]
        self._judge(raw, self.familiar.before(len(raw)))
        if len(self.history) and self.history.n_rows[-1] == self.n_rows:
            self.history = self.history.amend(reliability=self.reliability, novelty=self.novel)

    def record(self) -> None:
        """Add the present figures to the history."""
        self.history = self._with_present()

    def history_now(self) -> History:
        """Return the history up to the last row, if it came after the last adaptation as well."""
        if self.adaptation is None or not len(self.history) or self.history.n_rows[-1] == self.n_rows:
            return self.history
        return self._with_present()

    def _with_present(self) -> History:
        return self.history.record(
            n_rows=self.n_rows,
            resemblance=self.resemblance,
            proportions=self.proportions,
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
            adaptation=self.adaptation,
            baselines=list(self.baselines),
            n_last=self._n_last,
            reliability=self.reliability,
            novel=self.novel,
            familiar=self.familiar,
            losses=np.array(list(self.losses)).reshape(-1, 2),
            history=self.history,
            recent=self.recent,
            n_given=self.n_given,
            new_classes=list(self.new_classes),
            labelled=self.labelled,
            n_labels=self.n_labels,
            correction=self.correction,
            corrected_at=self._corrected_at,
            corrected_labels=self._corrected_labels,
            certificate=self.certificate,
            verdicts=self.verdicts,
            summaries=list(self.summaries),
            judged=self.judged,
        )

    @classmethod
    def from_state(
        cls,
        knowledge: SourceKnowledge,
        settings: Settings,
        label_shift: bool,
        state: TrackerState,
    ) -> Tracker:
        """Continue from what :meth:`state` returned."""
        tracker = cls(knowledge, settings, label_shift)
        tracker.target = Target.from_state(knowledge, state.target)
        tracker.adaptation, tracker.baselines = state.adaptation, tuple(state.baselines)
        tracker._n_last = state.n_last
        tracker.familiar = state.familiar
        tracker.reliability, tracker.novel = state.reliability, state.novel
        tracker.losses.extend((float(a), float(b)) for a, b in state.losses)
        tracker.history = state.history
        tracker.recent, tracker.n_given = state.recent, state.n_given
        tracker.new_classes = tuple(state.new_classes)
        tracker.labelled, tracker.n_labels = state.labelled, state.n_labels
        tracker.correction, tracker._corrected_at = state.correction, state.corrected_at
        tracker._corrected_labels = state.corrected_labels
        tracker.certificate, tracker.verdicts = state.certificate, state.verdicts
        tracker.summaries, tracker.judged = tuple(state.summaries), state.judged
        return tracker


def _hash_rows(rows: Floats) -> Integers:
    """Return a short hash of each row."""
    digests = b"".join(blake2b(row.tobytes(), digest_size=8).digest() for row in rows)
    return np.frombuffer(digests, dtype="<i8").astype(np.int64)
