"""A monitor of one target: has it changed, in what, since when, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from baryflow.drift.betting import Alarm, BettingDetector, BettingState, Detector
from baryflow.drift.ranking import SIGNALS, Watch, WatchState, count_effectively
from baryflow.estimators._watching import KnownTarget, classes_apart, known_target, measure, place
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers, as_choice, as_count, as_real, count_of

#: What can be done about drift.
ACTIONS = ("report", "forget", "restart")
#: Rows between false alarms at least, on average.
FALSE_ALARM_EVERY = 100_000.0
#: Rows of each class, and rows at least, from which the model learns before it is watched.
_WARM_UP_PER_CLASS, _LEAST_WARM_UP = 10, 200

_WORDS = {
    "likelihood": "rows are not as likely as before",
    "loss": "rows are not as far as before from what the sources explain",
    "resemblance": "rows resemble other sources than before",
    "proportions": "classes come in other proportions",
}
_DONE = {
    "report": "the model continues unchanged",
    "forget": "earlier rows count as little as those since",
    "restart": "the target was forgotten and starts over",
}


@dataclass(frozen=True)
class DriftReport:
    """What a monitor found in a batch.

    Attributes
    ----------
    n_rows : int
        Rows seen by then.
    phase : {"learning", "watching"}
        Whether drift can be found.
    drift_detected : bool
    signals : tuple of str
        Which signals have changed; empty without drift.
    since : int or None
        The number of the row with which the change seems to have begun, the first being 0.
    strength : float
        The value of the detector that has changed most, to be compared with its threshold. With another
        detector than ours 0.
    action : str
        What was done: "report", "forget" or "restart"; empty without drift.
    measures : dict of str → float
        Mean likelihood, loss and likeness of the batch, and its share of novel rows.
    reason : str
        Why drift cannot be found; empty while the target is watched.
    news : bool
        Whether this is the first batch that is watched, or not watched for this kind of reason.
    """

    n_rows: int
    phase: str
    drift_detected: bool = False
    signals: tuple[str, ...] = ()
    since: int | None = None
    strength: float = 0.0
    action: str = ""
    measures: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    news: bool = False

    def describe(self) -> str:
        """Return the report as a sentence.

        Returns
        -------
        str
        """
        rows = count_of(self.n_rows, "row")
        if not self.drift_detected:
            if self.phase == "learning":
                return f"{rows}: not watched for drift: {self.reason}."
            return f"{rows}: {'watched for drift from now on' if self.news else 'no drift'}."
        why = "; ".join(_WORDS[name] for name in self.signals)
        return (
            f"{rows}: the target has changed, it seems since row {self.since}: {why}; "
            f"{_DONE[self.action]}."
        )


@dataclass(frozen=True)
class Suspect:
    """A change after which only few classes have come: a run of one class can look like that."""

    signals: tuple[str, ...]
    since: int
    strength: float


@dataclass(frozen=True, eq=False)
class MonitorState:
    """All that a :class:`DriftMonitor` knows, but for its model.

    Attributes
    ----------
    action, signals, warm_up, seed
        Its parameters.
    n_rows, n_drifts, detected
        How far it has come, how often there was drift, and whether in the last batch.
    suspect : Suspect or None
        A change that may be a run of one class.
    watch : WatchState
    detectors : dict of str → BettingState
        By signal.
    """

    action: str
    signals: tuple[str, ...]
    warm_up: int
    seed: int
    n_rows: int
    n_drifts: int
    detected: bool
    suspect: Suspect | None
    watch: WatchState
    detectors: dict[str, BettingState]


class DriftMonitor:
    """Watch the target of a model that follows a stream.

    Call :meth:`update` with each batch before the model learns from it.

    Parameters
    ----------
    model : OnlineDaDiL
        Fitted on its sources.
    action : {"report", "forget", "restart"}
        What to do about drift. "report": only report it, and learn again what is usual. "forget": let
        all rows seen count as little as those since the change. "restart": forget the target, and keep
        the sources.
    signals : sequence of str
        What to watch: "likelihood", "loss" (of the reconstruction; novel rows have a large one),
        "resemblance" (to the sources, as the coordinates have it) and "proportions" (of the classes).
    detectors : mapping of str → detector, optional
        Other detectors for some of the signals, such as those of river: anything with ``update(x)`` and
        ``drift_detected``. Each gets ranks, which are even between 0 and 1 until something changes.
    false_alarm_every : float, default=100_000
        Rows between false alarms, on average at least. It holds for all of our own detectors together.
    warm_up : int, optional
        Rows from which the model learns before it is watched; without it ten of each class, and 200 at
        least.
    seed : int, default=0
        Of the chances by which ties are broken.

    Attributes
    ----------
    drift_detected : bool
        Whether the last batch has shown drift.
    n_drifts : int
        How often there was some.

    Examples
    --------
    >>> from baryflow import OnlineDaDiL
    >>> from baryflow.datasets import make_domains
    >>> from baryflow.drift import DriftMonitor
    >>> plant = make_domains(n_sources=3, n_classes=4, n_per_class=100, random_state=0)
    >>> model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    >>> model = model.fit(plant.X, plant.y, sample_domain=plant.domain)
    >>> monitor = DriftMonitor(model, warm_up=100)
    >>> for batch in (*plant.X_target.reshape(10, 40, -1), plant.X[:40]):  # at last another plant
    ...     report = monitor.update(batch)
    ...     model = model.partial_fit(batch)
    >>> monitor.drift_detected, report.since
    (True, 400)
    """

    def __init__(
        self,
        model: Any,
        *,
        action: str = "report",
        signals: Sequence[str] = SIGNALS,
        detectors: Mapping[str, Detector] | None = None,
        false_alarm_every: float = FALSE_ALARM_EVERY,
        warm_up: int | None = None,
        seed: int = 0,
    ) -> None:
        as_choice(action, "action", ACTIONS)
        self.model, self.action, self.signals = model, action, check_signals(signals)
        usual = max(_LEAST_WARM_UP, _WARM_UP_PER_CLASS * _n_classes(model))
        self.warm_up = usual if warm_up is None else as_count(warm_up, "warm_up")
        self.seed = as_count(seed, "seed", minimum=0)
        every = as_real(false_alarm_every, "false_alarm_every", low=1.0, open_low=True)
        # Each of several detectors may err as much more rarely.
        self.detectors: dict[str, Detector] = {
            name: BettingDetector(every * len(self.signals)) for name in self.signals
        }
        for name, detector in (detectors or {}).items():
            if name not in self.detectors:
                raise InvalidInputError(f"a detector for {name!r}, which is not among {self.signals}")
            if not isinstance(detector, Detector):
                raise InvalidInputError(
                    f"the detector for {name!r} must have update(x) and drift_detected, got {detector!r}"
                )
            self.detectors[name] = detector
        self.n_rows, self.n_drifts, self.drift_detected = 0, 0, False
        self._suspect: Suspect | None = None
        self._watch = self._new_watch()

    def update(self, X: Any) -> DriftReport:
        """Look at rows from which the model has not learned yet.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)

        Returns
        -------
        DriftReport

        Raises
        ------
        InvalidInputError
            If the rows do not fit the model.
        """
        return self._update(self.model.check_rows(X))

    def update_many(self, X: Any, size: int) -> list[tuple[int, DriftReport]]:
        """Look at rows as :meth:`update` does at one batch of this size after the other.

        Batches in which nothing happens are looked at together, which is several times as fast.

        Parameters
        ----------
        X : array or frame of shape (n_samples, n_features)
        size : int
            Rows of a batch.

        Returns
        -------
        list of (int, DriftReport)
            How many of the rows had come by then, and what was found.

        Raises
        ------
        InvalidInputError
            If the rows do not fit the model.
        """
        rows, reports, done = self.model.check_rows(X), list[tuple[int, DriftReport]](), 0
        alone = 0  # rows up to which something happens
        while done < len(rows):
            # Until the order of classes is checked again, batches only add to each other.
            together = -(-self._watch.rows_until_check // size) * size
            some, report = rows[done : done + max(together, size)], None
            if done >= alone and len(some) > size:
                report = self._look_if_quiet(some)
                alone = done if report else done + len(some)
            if report is None:
                some = some[:size]
                report = self._update(some)
            done += len(some)
            reports.append((done, report))
        return reports

    def _look_if_quiet(self, rows: Floats) -> DriftReport | None:
        """Look at rows of several batches; undo it and return None if something happens in them."""
        watch = self._watch
        quiet = watch.known is not None and not watch.reason and self._suspect is None
        if not quiet or not all(isinstance(one, BettingDetector) for one in self.detectors.values()):
            return None
        before = self.state()
        report = self._update(rows)
        if not (report.news or report.drift_detected or report.reason or self._suspect):
            return report
        self._resume(before)
        return None

    def _update(self, rows: Floats) -> DriftReport:
        watch, before = self._watch, self._watch.status
        self.drift_detected, model = False, self.model
        if watch.ready and model.state_.mass > 0.0:
            watch.put_down(known_target(model.knowledge_, model.state_))
        report = self._learn(rows) if watch.known is None else self._compare(rows, watch.known)
        return replace(report, news=self._watch.status not in ("learned", before))

    def _learn(self, rows: Floats) -> DriftReport:
        """Take note of rows while the target is not watched."""
        classes, points = place(self.model.knowledge_, self.model.state_, rows)
        self._watch.learn(classes, points)
        self.n_rows += len(classes)
        return DriftReport(self.n_rows, "learning", reason=self._watch.reason)

    def _compare(self, raw: Floats, known: KnownTarget) -> DriftReport:
        """Hold rows against the target as it was known."""
        first, model = self.n_rows, self.model
        measured = measure(model.knowledge_, model.state_, raw, known)
        rows, ranks = self._watch.rank(measured)
        self.n_rows += len(measured.lost)
        for detector in self.detectors.values():
            if isinstance(detector, BettingDetector):
                detector.block = max(self._watch.stride, 1)
        self._suspect = self._suspect or self._find_suspect(first + rows, ranks)
        measures = measured.summary()
        if self._suspect is not None and self._is_drift(self._suspect, measures["novelty"]):
            return self._sound(self._suspect, measures)
        if self._suspect is None:
            self._watch.check()
        if self._watch.known is None:  # stopped
            self._reset()
        phase, reason = "learning" if self._watch.reason else "watching", self._watch.reason
        return DriftReport(self.n_rows, phase, measures=measures, reason=reason)

    def _is_drift(self, found: Suspect, novel: float) -> bool:
        """Return whether a change is more than a run of one class; stop watching if that stays open.

        It is if rows are of several classes, or if most are unlike all that is known.
        """
        n_since = self.n_rows - found.since
        if novel > 0.5 or not self._watch.shows_one_class(n_since):
            return True
        if n_since >= self.warm_up:
            self._watch.stop(_run_since(found.since))
        return False

    def _find_suspect(self, rows: Integers, ranks: Floats) -> Suspect | None:
        """Give ranks to the detectors; return what has changed, and since when, if one sounds."""
        alarms = {
            name: _feed(self.detectors[name], ranks[:, SIGNALS.index(name)]) for name in self.signals
        }
        found = {name: one[0] for name, one in alarms.items() if one}
        if not found:
            return None
        first = min(alarm.number for alarm in found.values())
        sounding = {name: alarm for name, alarm in found.items() if alarm.number == first}
        since = min(int(rows[first]) + 1 - alarm.since for alarm in sounding.values())
        return Suspect(tuple(sounding), max(since, 0), max(alarm.value for alarm in sounding.values()))

    def _sound(self, found: Suspect, measures: dict[str, float]) -> DriftReport:
        """Report drift, do something about it, and start over."""
        if self.action == "restart":
            self.model.forget()
        elif self.action == "forget":
            recent = self.n_rows - found.since
            self.model.forget(min(1.0, recent / max(self.model.state_.mass, recent)))
        self.drift_detected, self.n_drifts = True, self.n_drifts + 1
        self._watch = self._new_watch()
        self._reset()
        return DriftReport(
            self.n_rows,
            "watching",
            True,
            found.signals,
            found.since,
            found.strength,
            self.action,
            measures,
        )

    def _reset(self) -> None:
        self._suspect = None
        for name, detector in self.detectors.items():
            if isinstance(detector, BettingDetector):
                self.detectors[name] = BettingDetector(detector.threshold)

    def _new_watch(self) -> Watch:
        model = self.model.knowledge_.model
        expected = count_effectively(model.expected_prior)
        seed = self.seed + 2 * self.n_drifts
        return Watch(_n_classes(self.model), expected, classes_apart(model), self.warm_up, seed)

    # -- keeping ---------------------------------------------------------------------------------

    def state(self) -> MonitorState:
        """Return the whole state without the model, to resume bit for bit.

        Returns
        -------
        MonitorState
            Plain values and arrays; part of a saved session.

        Raises
        ------
        InvalidInputError
            If there are other detectors than ours: what they know cannot be kept.
        """
        kept: dict[str, BettingState] = {}
        for name, detector in self.detectors.items():
            if not isinstance(detector, BettingDetector):
                raise InvalidInputError(
                    f"the detector for {name!r} is a {type(detector).__name__}, which cannot be kept: "
                    "leave it out, and ours takes its place"
                )
            kept[name] = detector.state()
        return MonitorState(
            self.action, self.signals, self.warm_up, self.seed, self.n_rows, self.n_drifts,
            self.drift_detected, self._suspect, self._watch.state(), kept,
        )  # fmt: skip

    @classmethod
    def from_state(cls, model: Any, state: MonitorState) -> Self:
        """Go on from what :meth:`state` gave.

        Parameters
        ----------
        model : OnlineDaDiL
            As it was when the state was taken.
        state : MonitorState

        Returns
        -------
        DriftMonitor

        Raises
        ------
        InvalidInputError
            If the parts do not fit each other.
        """
        monitor = cls(
            model, action=state.action, signals=state.signals, warm_up=state.warm_up, seed=state.seed
        )
        if set(state.detectors) != set(monitor.detectors):
            raise InvalidInputError(f"expected detectors for {state.signals}, got {[*state.detectors]}")
        monitor._resume(state)
        return monitor

    def _resume(self, state: MonitorState) -> None:
        self.detectors = {
            name: BettingDetector.from_state(state.detectors[name]) for name in state.signals
        }
        self.n_rows, self.n_drifts = state.n_rows, state.n_drifts
        self.drift_detected, self._suspect = state.detected, state.suspect
        self._watch = self._new_watch()
        self._watch.resume(state.watch)


def check_signals(signals: Sequence[str]) -> tuple[str, ...]:
    """Return names of signals, each once."""
    for name in signals:
        as_choice(name, "signals", SIGNALS)
    if not signals or len(set(signals)) < len(signals):
        raise InvalidInputError(f"expected some of {SIGNALS} as signals, each once, got {signals!r}")
    return tuple(signals)


def _n_classes(model: Any) -> int:
    """Return the number of classes of the sources: the target's own do not count for the signals."""
    return int(model.knowledge_.model.n_classes)


def _feed(detector: Detector, ranks: Floats) -> list[Alarm]:
    """Give ranks to a detector; return when it has sounded. Of others than ours little is known then."""
    if isinstance(detector, BettingDetector):
        return detector.update_many(ranks)
    alarms = []
    for number, rank in enumerate(ranks.tolist()):
        detector.update(rank)
        if detector.drift_detected:
            alarms.append(Alarm(number, 1, 0.0))
    return alarms


def _run_since(row: int) -> str:
    return (
        f"rows since row {row} are unlike those before, but most are of one class; a long run of a "
        "class cannot be distinguished from another target"
    )
