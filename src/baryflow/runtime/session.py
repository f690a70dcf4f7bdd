"""One target being followed: raw rows in; predictions, events and a better model out.

Labels of rows arrive later. The model remembers its last rows, and the session their positions, times
and offsets, so that a label finds its row. The label of a row that waits to be learned is held until
then.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, Self

import numpy as np

from baryflow.alarms import AlarmCommand, AlarmConfig, Alarms, AlarmState, Change
from baryflow.alarms.evidence import find_evidence
from baryflow.drift import DriftMonitor, MonitorState
from baryflow.estimators._follow import rows_until_adapting
from baryflow.estimators._input import InOrder
from baryflow.estimators._sensors import describe_new_faults
from baryflow.estimators._state import TargetState
from baryflow.estimators._unknown import mark_unknown, name_unknown
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.features import FeatureStream, SignalModel
from baryflow.features.cut import Position
from baryflow.streams import Batch, Label, Rejected
from baryflow.streams.base import RAW_LENGTH
from baryflow.streams.label_records import is_before, is_between, read_time
from baryflow.validation import LARGEST, Booleans, Floats, Integers, count_of

#: Decimals of probabilities and other shares in records.
_DECIMALS = 6
#: Labels that are held until rows are learned from, classes of a target that no source has, and
#: characters of their names, at most.
_MOST_HELD, _MOST_NEW, _LONGEST_NAME = 1000, 100, 200


@dataclass(frozen=True)
class Event:
    """Something that happened at a row of a stream, for the command line, logs and services.

    ======================  =====================================================================
    kind                    meaning
    ======================  =====================================================================
    ``batch``               the model learned from a batch: its reliability, the most similar source
    ``label``               the model learned from labels, or will with the next batch: how many
    ``quarantine``          a row that could not be used, or on which the model failed, and why
    ``column``              a column that has a problem
    ``drift``               the target has changed
    ``watch``               from here on the target is watched for drift, or not, and why not
    ``alarm``               an alarm was raised, cleared, acknowledged, … (``baryflow.alarms``)
    ``checkpoint``          everything up to here is on disk
    ``warning``             something to know that stops nothing
    ======================  =====================================================================

    Attributes
    ----------
    kind : str
        See above.
    position : int
        The last row of the input that had been read.
    message : str
        For people.
    details : dict
        For programs: plain values.
    """

    kind: str
    position: int
    message: str
    details: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the event as one flat object, for a line of NDJSON."""
        return {"event": self.kind, "position": self.position, "message": self.message, **self.details}

    def of_target(self, key: str) -> Event:
        """Return the event with the key of its target."""
        message = f"{key}: {self.message}" if key else self.message
        return Event(self.kind, self.position, message, {"key": key, **self.details})

    @classmethod
    def rejected(cls, row: Rejected, position: int) -> Event:
        """Return the event of a row that could not be used."""
        return cls("quarantine", position, f"row {row.position}: {row.reason}", {"reason": row.reason})


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one target.

    Attributes
    ----------
    values : array of shape (n, d)
    positions : array of shape (n,)
    times, offsets : list of str
        As in :class:`~baryflow.streams.Batch`.
    """

    values: Floats
    positions: Integers
    times: list[str]
    offsets: list[str]

    @classmethod
    def none(cls, n_columns: int) -> Self:
        """Return no rows."""
        return cls(np.empty((0, n_columns)), np.empty(0, dtype=np.intp), [], [])

    def __len__(self) -> int:
        return len(self.values)

    def plus(self, *more: Rows) -> Rows:
        """Return these rows and others."""
        rows = (self, *more)
        return Rows(
            np.concatenate([one.values for one in rows]),
            np.concatenate([one.positions for one in rows]),
            [time for one in rows for time in one.times],
            [offset for one in rows for offset in one.offsets],
        )

    def pick(self, which: slice | list[int]) -> Rows:
        """Return some of the rows."""
        if isinstance(which, slice):
            times, offsets = self.times[which], self.offsets[which]
        else:
            times, offsets = [self.times[i] for i in which], [self.offsets[i] for i in which]
        return Rows(self.values[which], self.positions[which], times, offsets)

    def halve(self) -> tuple[Rows, Rows]:
        """Return both halves."""
        half = len(self) // 2
        return self.pick(slice(0, half)), self.pick(slice(half, None))

    def reject(self, reason: str) -> list[Rejected]:
        """Return the rows as rejected ones."""
        found = []
        for position, offset, values in zip(self.positions, self.offsets, self.values, strict=True):
            raw = ",".join("" if np.isnan(value) else repr(float(value)) for value in values)
            found.append(Rejected(int(position), reason, raw[:RAW_LENGTH], offset))
        return found


def rows_of(batch: Batch) -> Rows:
    """Return all usable rows of a batch."""
    return Rows(batch.rows, batch.positions, batch.times, batch.offsets or [""] * len(batch.rows))


def by_key(batch: Batch) -> Iterator[tuple[str, Rows]]:
    """Yield key and rows of each target in a batch, in order of first appearance."""
    rows = rows_of(batch)
    numbers: dict[str, list[int]] = {key: [] for key in batch.keys}
    if len(numbers) == 1:
        yield batch.keys[0], rows
        return
    for i, key in enumerate(batch.keys):
        numbers[key].append(i)
    for key, which in numbers.items():
        yield key, rows.pick(which)


def labels_by_key(labels: Iterable[Label]) -> dict[str, list[Label]]:
    """Return the labels of each target, in order of first appearance."""
    found: dict[str, list[Label]] = {}
    for label in labels:
        found.setdefault(label.key, []).append(label)
    return found


def _nothing_predicted() -> Floats:
    return np.zeros((0, 2))


@dataclass(frozen=True, eq=False)
class SessionState:
    """The state of a session, without the knowledge of the sources that all sessions share."""

    target: TargetState
    monitor: MonitorState | None
    window: Position | None
    waiting: Rows
    remembered: Rows
    held: list[Label]
    metadata: dict[str, Any]
    alarms: AlarmState | None = None
    predicted: Floats = field(default_factory=_nothing_predicted)


@dataclass(frozen=True)
class FirstRows:
    """The first rows of every target are its baseline.

    Attributes
    ----------
    label : str, int or float
        Their class, one of the sources.
    n_rows : int
        How many predicted rows.
    until : str
        If given instead, all rows up to this time.
    """

    label: Any
    n_rows: int = 0
    until: str = ""


@dataclass(frozen=True)
class SessionConfig:
    """How targets are followed.

    Attributes
    ----------
    base : OnlineDaDiL or SignalModel
        Fitted. It is not changed, and its knowledge of the sources is shared. If it has seen a target
        already, sessions continue from there.
    batch_size : int
        The model of a target learns when this many of its rows are waiting.
    drift : {"off", "report", "forget", "restart"}
        Whether to watch for drift, and what to do about it.
    alarms : AlarmConfig or None
        When predictions raise alarms; None: never.
    baseline : FirstRows or None
        Which rows of a stream are the baseline of their target.
    largest_batch : int
        Where the model would not adapt after `batch_size` rows, it learns from more of them at once, up
        to this many. For rows that all exist already.
    """

    base: OnlineDaDiL | SignalModel
    batch_size: int = 32
    drift: str = "off"
    alarms: AlarmConfig | None = None
    baseline: FirstRows | None = None
    largest_batch: int = 0

    @property
    def model(self) -> OnlineDaDiL:
        """The model without its feature extraction."""
        return self.base.model if isinstance(self.base, SignalModel) else self.base

    @property
    def n_classes(self) -> int:
        """Classes of the sources."""
        return self.model.knowledge_.model.n_classes

    def begin(self) -> Session:
        """Return a session for a target that has sent no rows yet."""
        before = self.model.state_
        # Rows that the model has seen elsewhere get positions before all those of the stream.
        recent = replace(before.recent, positions=np.arange(1 - len(before.recent), 1))
        model = self.model.spawn(replace(before, recent=recent))
        monitor = None if self.drift == "off" else DriftMonitor(model, action=self.drift)
        session = Session(
            self, model, monitor, self._stream(), Rows.none(model.n_features_in_), Rows.none(0)
        )
        session.alarms = None if self.alarms is None else Alarms(self.alarms)
        return session

    def resume(self, state: SessionState) -> Session:
        """Return a session in a saved state."""
        model, stream = self.model.spawn(state.target), self._stream()
        monitor = None if state.monitor is None else DriftMonitor.from_state(model, state.monitor)
        if stream is not None and state.window is not None:
            stream.resume(state.window)
        held, metadata = list(state.held), dict(state.metadata)
        alarms = None if self.alarms is None else Alarms(self.alarms, state.alarms)
        return Session(
            self, model, monitor, stream, state.waiting, state.remembered, held, metadata, alarms,
            state.predicted,
        )  # fmt: skip

    def _stream(self) -> FeatureStream | None:
        return self.base.stream() if isinstance(self.base, SignalModel) else None


@dataclass
class Result:
    """The result of applying rows to a session.

    Attributes
    ----------
    records : list of dict
        One for every prediction.
    events : list of Event
        In order.
    features : list of arrays
        The row of features of each record.
    rejected : list of Rejected
        Rows on which the model failed; each also has an event.
    unlearned : int
        Rows that were predicted, but from which the model failed to learn; an event has the reason.
    learned, pending : int
        Labels that the model has learned, and those that are held until their rows are learned from;
        negative when that is done.
    baseline : int
        How many of both are rows of a baseline.
    used : list of Label
        These labels, with the positions and values of their rows.
    refused : list of (Label, str)
        Labels that cannot be used, and why; each also has an event.
    expected : list of Label
        Labels of rows that may still come.
    refused_commands : list of (AlarmCommand, str)
        Commands that cannot be carried out, and why; each also has an event.
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    features: list[Floats] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    unlearned: int = 0
    learned: int = 0
    pending: int = 0
    baseline: int = 0
    used: list[Label] = field(default_factory=list)
    refused: list[tuple[Label, str]] = field(default_factory=list)
    expected: list[Label] = field(default_factory=list)
    refused_commands: list[tuple[AlarmCommand, str]] = field(default_factory=list)

    def add(self, more: Result) -> Self:
        """Append the result of other rows."""
        for name, value in vars(more).items():
            both = getattr(self, name)
            both += value
            setattr(self, name, both)
        return self

    def reject(self, rows: Rows, reason: str) -> None:
        """Append rows on which the model failed."""
        for row in rows.reject(reason):
            self.rejected.append(row)
            self.events.append(Event.rejected(row, row.position))

    def refuse(self, label: Label, reason: str, position: int) -> None:
        """Append a label that cannot be used; `position` is that of the last row."""
        self.refused.append((label, reason))
        details = {"label": label.label, "row": label.position, "reason": reason}
        self.events.append(
            Event("warning", position, f"label {label.label!r} is not used: {reason}", details)
        )

    def refuse_command(self, command: AlarmCommand, reason: str, position: int) -> None:
        """Append a command that cannot be carried out; `position` is that of the last row."""
        self.refused_commands.append((command, reason))
        message = f"cannot {command.action} {command.alarm!r}: {reason}"
        details = {"action": command.action, "alarm": command.alarm, "reason": reason}
        self.events.append(Event("warning", position, message, details))

    def of_target(self, key: str) -> Result:
        """Return the result with the key of its target in every record and event."""
        records = [{"key": key, **record} for record in self.records]
        return replace(self, records=records, events=[event.of_target(key) for event in self.events])


@dataclass
class Session:
    """One target: its model, drift monitor, unfinished window, and rows not learned from yet.

    Attributes
    ----------
    config : SessionConfig
    model : OnlineDaDiL
    monitor : DriftMonitor or None
    stream : FeatureStream or None
        Makes rows of features from raw rows.
    waiting : Rows
        Rows that were predicted and not learned from yet.
    remembered : Rows
        The last rows learned from, without their values, which the model remembers.
    held : list of Label
        Labels, with values, that the model learns after its next batch of rows.
    metadata : dict
        What else is saved with the session; plain values, as in JSON.
    alarms : Alarms or None
        Updated with every prediction.
    predicted : array of shape (n_waiting, 2)
        Probability of the predicted class, and novelty, of the rows that wait.
    """

    config: SessionConfig
    model: OnlineDaDiL
    monitor: DriftMonitor | None
    stream: FeatureStream | None
    waiting: Rows
    remembered: Rows
    held: list[Label] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    alarms: Alarms | None = None
    predicted: Floats = field(default_factory=_nothing_predicted)

    @property
    def position(self) -> int:
        """Position of the last row, 0 if there was none."""
        rows = self.waiting if len(self.waiting) else self.remembered
        return int(rows.positions[-1]) if len(rows) else 0

    @property
    def _batch_size(self) -> int:
        """Rows to learn from at once: whole batches until the next adaptation, so that none is late."""
        size, most = self.config.batch_size, self.config.largest_batch
        batches = math.ceil(min(rows_until_adapting(self.model.state_) / size, most // size))
        return size * max(1, batches)

    def apply(self, rows: Rows, labels: Mapping[int, Label] | None = None) -> Result:
        """Predict raw rows; learn from every full batch of them, and then its labels.

        A row on which the model fails is rejected, and a batch from which it fails to learn is left out:
        the same rows would fail again after a restart. The model is then as it was before them.

        Parameters
        ----------
        rows : Rows
        labels : mapping of int → Label, optional
            Labels of some of the rows that are known already, by position.

        Returns
        -------
        Result
        """
        result, labels = Result(), dict(labels or {})
        rows = self._features(rows, result)
        while len(rows):
            # Batches and predictions do not depend on how rows were delivered. The batch size may have
            # been larger in an earlier process.
            n = max(1, self._batch_size - len(self.waiting))
            some, rows = rows.pick(slice(0, n)), rows.pick(slice(n, None))
            baseline = list[Label]()
            predicted = self._predict_possible(some, result, labels, baseline)
            self.waiting = self.waiting.plus(predicted)
            known = [labels.pop(one) for one in predicted.positions.tolist() if one in labels]
            if known or baseline:
                self._sort([*baseline, *known], result, hold=True)
            if len(self.waiting) >= self._batch_size:
                result.add(self.learn(int(some.positions[-1])))
        for position, label in labels.items():
            if not label.until:  # some of the rows between two times may have no prediction
                result.refuse(label, f"row {position} was not predicted", position)
        return result

    def _pick_baseline(self, rows: Rows, labels: Mapping[int, Label]) -> list[Label]:
        """Return those of some predicted rows that belong to the baseline, except rows with a label."""
        if (first := self.config.baseline) is None:
            return []
        if first.until:
            end = read_time(first.until)
            some = rows.pick([i for i, time in enumerate(rows.times) if is_before(read_time(time), end)])
        else:
            n_held = self.metadata.get("baseline", 0)
            some = rows.pick(slice(0, max(0, first.n_rows - n_held)))
            self.metadata["baseline"] = n_held + len(some)
        free = [position for position in some.positions.tolist() if position not in labels]
        return [Label(first.label, position, baseline=True) for position in free]

    def _predict_possible(
        self, rows: Rows, result: Result, labels: Mapping[int, Label], baseline: list[Label]
    ) -> Rows:
        """Predict rows and return those on which the model does not fail, found by halving.

        Rows of the baseline are appended to it.
        """
        try:
            records, probabilities, novel, sure = self._predict(rows)
        except MemoryError:
            raise
        except Exception as error:
            if len(rows) == 1:
                result.reject(rows, f"the model failed: {describe_error(error)}")
                return rows.pick([])
            first, second = rows.halve()
            done = self._predict_possible(first, result, labels, baseline)
            return done.plus(self._predict_possible(second, result, labels, baseline))
        result.records += records
        result.features += list(rows.values)
        self.predicted = np.concatenate([self.predicted, sure])
        found = self._pick_baseline(rows, labels)
        baseline += found
        if self.alarms is not None:
            known = {one.position: str(one.label) for one in found}
            result.events += self._update_alarms(self.alarms, rows, records, probabilities, novel, known)
        return rows

    def _update_alarms(
        self,
        alarms: Alarms,
        rows: Rows,
        records: list[dict[str, Any]],
        probabilities: Floats,
        novel: Booleans,
        known: Mapping[int | None, str],
    ) -> list[Event]:
        """Update the alarms row by row with predictions, or with classes that are known."""
        names, events = [str(name) for name in self.model.classes_.tolist()], list[Event]()
        shares, is_novel, i = probabilities.tolist(), novel.tolist(), 0

        def explain(name: str) -> dict[str, Any]:
            code = names.index(name) if name in names else None
            try:
                normal = alarms.config.normal
                return find_evidence(self.model, rows.values[i], code, probabilities[i], normal)
            except MemoryError:
                raise
            except Exception as error:  # the alarm matters more
                return {"error": describe_error(error)}

        confirm = partial(self._confirm, rows)
        for i, record in enumerate(records):
            name = known.get(record["position"])
            changes = alarms.update(
                record["position"],
                record["time"],
                str(record["label"]) if name is None else name,
                names,
                shares[i] if name is None else [float(one == name) for one in names],
                novel=is_novel[i] and name is None,
                explain=explain,
                confirm=confirm,
            )
            events += [_alarm_event(change, record["position"]) for change in changes]
            if alarms.n_rows == 1 and alarms.needs_times:
                message = "a delay of alarms is a time, but rows have no times: give delays in rows"
                events.append(Event("warning", record["position"], message))
        return events

    def _confirm(self, present: Rows, name: str, positions: tuple[int, ...]) -> bool:
        """Return whether at least half of some rows, as far as they are known, are still of a class."""
        rows = self.waiting.plus(present)
        values = np.concatenate(
            [
                self.model.state_.recent.at(np.array(positions))[0],
                rows.values[np.isin(rows.positions, positions)],
            ]
        )
        if not len(values):
            return True
        same = [str(label) == name for label in self._label(values)[0].tolist()]
        return 2 * sum(same) >= len(same)

    def command(self, commands: Iterable[AlarmCommand]) -> Result:
        """Carry out commands about alarms.

        A command that cannot be carried out stops nothing: the result has the reason.

        Parameters
        ----------
        commands : iterable of AlarmCommand

        Returns
        -------
        Result
            Events, and the commands that are refused.
        """
        result, position = Result(), self.position
        classes = self.model.classes_
        names = [str(name) for name in classes.tolist()]
        if self.model.unknown is not None:
            names.append(str(name_unknown(self.model.unknown_label, classes)))
        for command in commands:
            try:
                if self.alarms is None:
                    raise InvalidInputError("alarms are off: add [alarms] to baryflow.toml")
                changes = self.alarms.apply(command, names)
            except InvalidInputError as error:
                result.refuse_command(command, str(error), position)
                continue
            result.events += [_alarm_event(change, position) for change in changes]
        return result

    def learn(self, position: int) -> Result:
        """Check the waiting rows for drift, and learn from them, however few there are.

        Parameters
        ----------
        position : int
            Of the last row, for the events.

        Returns
        -------
        Result
            Events, and how many rows the model failed to learn from.
        """
        if not len(self.waiting):
            return Result()
        rows, self.waiting = self.waiting, self.waiting.pick([])
        predicted, self.predicted = self.predicted, _nothing_predicted()
        result = self._absorb(rows, predicted, position)
        known = self.remembered.plus(replace(rows, values=rows.values[:, :0]))
        _, found = self.model.state_.recent.at(known.positions)
        self.remembered = known.pick(np.flatnonzero(found).tolist())
        if self.held and self.model.state_.mass > 0.0:
            labels, self.held = self.held, []
            result.add(self._teach(labels, position))
            result.pending -= len(labels)
            result.baseline -= sum(label.baseline for label in labels)
        return result

    def _absorb(self, rows: Rows, predicted: Floats, position: int) -> Result:
        model, events = self.model, list[Event]()
        try:
            if self.monitor is not None:
                events += self._check_drift(self.monitor, rows)
            problem = model.absorb(
                InOrder(rows.values),
                positions=rows.positions,
                predicted=(predicted[:, 0], predicted[:, 1]),
            )
        except MemoryError:
            raise
        except Exception as error:
            message = (
                f"{count_of(len(rows), 'row')} predicted but not learned from: the model failed: "
                f"{describe_error(error)}"
            )
            events.append(Event("warning", position, message, {"rows": len(rows)}))
            return Result(events=events, unlearned=len(rows))
        if problem:
            events.append(Event("column", position, problem))
        state = model.state_
        shares = dict(zip(model.sources_, state.resemblance.tolist(), strict=False))
        nearest = max(shares, key=lambda name: shares[name], default=None)
        details = {
            "rows": len(rows),
            "rows_seen": model.n_samples_seen_,
            "reliability": _round(model.reliability_),
            "coverage": _round(state.coverage),
            "novelty": _round(model.novelty_),
            "resemblance": {str(name): _round(share) for name, share in shares.items()},
        }
        message = (
            f"{count_of(len(rows), 'row')}, reliability {model.reliability_:.0%}, most like {nearest}"
        )
        return Result(events=[*events, Event("batch", position, message, details)])

    def label(self, labels: list[Label], *, expecting: bool = False) -> Result:
        """Learn labels of rows, those of waiting rows as soon as the rows are learned from.

        A label that cannot be used stops nothing: the result has the reason.

        Parameters
        ----------
        labels : list of Label
        expecting : bool, default=False
            Return labels of rows that may still come as expected, instead of refusing them.

        Returns
        -------
        Result
            Its events are one that counts the labels, and one for each label that cannot be used. There
            are none if all labels are expected.
        """
        result = Result()
        ready = self._sort(labels, result, expecting=expecting)
        pending, refused = result.pending, len(result.refused)
        if expecting and not (ready or pending or refused):
            return result
        result.pending = 0
        return result.add(self._teach(ready, self.position, pending, refused))

    def _sort(
        self, labels: list[Label], result: Result, *, expecting: bool = False, hold: bool = False
    ) -> list[Label]:
        """Return labels that can be learned now; hold, expect or refuse the others.

        A baseline needs no row of the stream, so it waits for none. With `hold` all labels wait, and
        with `expecting` a baseline waits like them: then what is learned does not depend on how rows
        are delivered.
        """
        index, ready = _Index(self), list[Label]()
        held = {_identity(label): label for label in self.held}
        names = {*self.model.classes_.tolist(), *(label.label for label in self.held)}
        most, known = self.config.n_classes + _MOST_NEW, names_of_sources(self)
        for label in labels:
            try:
                name = _read_class(label.label, self.model.classes_)
                if name is None:
                    continue
                if label.baseline and name not in known:
                    raise InvalidInputError(f"no source has the class {name!r}: a baseline needs one")
                if name not in names and len(names) >= most:
                    raise InvalidInputError(f"the target has {_MOST_NEW} classes of its own already")
                may_come = expecting and index.may_come(label)
                for found, waits in index.find(replace(label, label=name), may_come=may_come):
                    names.add(name)
                    at_once = label.baseline and not expecting
                    if not hold and (at_once or (self.model.state_.mass > 0.0 and not waits)):
                        ready.append(found)
                        continue
                    if not waits and len(held) >= _MOST_HELD:
                        raise InvalidInputError(f"{len(held):,} labels wait for rows: send rows first")
                    held[_identity(found)] = found
                    result.used.append(found)
                    result.pending += 1
                    result.baseline += found.baseline
                if may_come:
                    result.expected.append(label)
            except InvalidInputError as error:
                result.refuse(label, str(error), self.position)
        self.held = list(held.values())
        return ready

    def _teach(self, labels: list[Label], position: int, pending: int = 0, refused: int = 0) -> Result:
        """Learn labels that have values; count them and others in an event."""
        result, known = Result(pending=pending), len(self.model.classes_)
        # A baseline first, all of it at once: it decides how labels are understood.
        known_classes = dict.fromkeys(one.label for one in labels if one.baseline)
        for label in known_classes:
            some = [one for one in labels if one.baseline and one.label == label]
            self._teach_possible(some, False, position, result)
        n_baseline = result.learned
        others = [one for one in labels if not one.baseline]
        for certify, group in groupby(others, key=lambda label: label.certify):
            self._teach_possible(list(group), certify, position, result)
        refused += len(result.refused)
        counts = {"learned": result.learned, "pending": pending, "rejected": refused}
        new = [str(name) for name in self.model.classes_[known:].tolist()]
        n_labels = result.learned - n_baseline
        parts = [f"{count_of(n_labels, 'label')} learned"] if n_labels or not known_classes else []
        parts += [f"{count_of(n_baseline, 'row')} of a baseline learned"] if known_classes else []
        parts += [f"{n} {what}" for what, n in (("pending", pending), ("rejected", refused)) if n]
        parts += [f"new class {name}" for name in new]
        details = counts | {"new_classes": new}
        result.events.append(Event("label", position, ", ".join(parts), details))
        return result

    def _teach_possible(self, labels: list[Label], certify: bool, position: int, result: Result) -> None:
        """Learn labels except those on which the model fails, found by halving."""
        model, before, is_baseline = self.model, _count_known(self.model), labels[0].baseline
        try:
            rows = np.array([label.values for label in labels], dtype=np.float64)
            if is_baseline:
                columns = model.columns_
                model.set_baseline(InOrder(rows), labels[0].label)
                if problem := describe_new_faults(columns, model.columns_):
                    result.events.append(Event("column", position, problem))
            else:
                model.feedback(InOrder(rows), [label.label for label in labels], certify=certify)
        except MemoryError:
            raise
        except Exception as error:
            if len(labels) > 1:
                half = len(labels) // 2
                self._teach_possible(labels[:half], certify, position, result)
                self._teach_possible(labels[half:], certify, position, result)
                return
            is_input = isinstance(error, InvalidInputError)
            reason = str(error) if is_input else f"the model failed: {describe_error(error)}"
            result.refuse(labels[0], reason, position)
            return
        result.used += labels
        n_learned = _count_known(model) - before
        result.learned += n_learned
        result.baseline += n_learned * is_baseline

    def query(self, n: int) -> list[dict[str, Any]]:
        """Return a record for each of the rows that are most worth a label, at most `n`.

        Parameters
        ----------
        n : int

        Returns
        -------
        list of dict
            Position, time, label, probability, novelty, values, and offset if it has one.
        """
        if not self.model.state_.mass:
            return []
        found = self.model.query(n)
        number = {position: i for i, position in enumerate(self.remembered.positions.tolist())}
        records = []
        for position, row, label, probability, novelty in zip(
            found.positions.tolist(),
            found.rows,
            found.labels.tolist(),
            found.probabilities,
            found.novelty,
            strict=True,
        ):
            if position not in number:
                continue  # seen by the model before the stream began
            offset = self.remembered.offsets[number[position]]
            records.append(
                {
                    "position": position,
                    "time": self.remembered.times[number[position]],
                    "label": label,
                    "probability": _round(probability),
                    "novelty": _round(novelty),
                    "values": row.tolist(),
                }
                | ({"offset": offset} if offset else {})
            )
        return records

    def predict(self, rows: Rows) -> list[dict[str, Any]]:
        """Return a record for every row of features, as predicted before learning from it."""
        return self._predict(rows)[0]

    def _predict(self, rows: Rows) -> tuple[list[dict[str, Any]], Floats, Booleans, Floats]:
        """Return records, probabilities of all classes, which rows are unknown, and how sure all is."""
        model = self.model
        labels, probabilities, novelty, novel = self._label(rows.values)
        reliability, seen = _round(model.reliability_), model.n_samples_seen_
        # Rounded: the last bits depend on how many rows are predicted at a time.
        sure = np.column_stack([probabilities.max(axis=1), novelty]).round(_DECIMALS)
        highest = sure[:, 0].tolist()
        records = [
            {
                "position": position,
                "time": time,
                "label": label,
                "probability": probability,
                "reliability": reliability,
                "novelty": far,
                "rows_seen": seen,
            }
            | ({"offset": offset} if offset else {})
            for position, time, offset, label, probability, far in zip(
                rows.positions.tolist(),
                rows.times,
                rows.offsets,
                labels.tolist(),
                highest,
                sure[:, 1].tolist(),
                strict=True,
            )
        ]
        return records, probabilities, novel, sure

    def _label(self, values: Floats) -> tuple[Any, Floats, Floats, Booleans]:
        """Return labels, probabilities of all classes, novelty, and which rows are unknown."""
        model = self.model
        probabilities, novelty = model.assess(InOrder(values))
        labels: Any = model.classes_[probabilities.argmax(axis=1)]
        novel = np.zeros(len(labels), dtype=np.bool_)
        if model.unknown is not None:
            novel = novelty > model.unknown
            labels = mark_unknown(labels, novel, model.unknown_label, model.classes_)
        return labels, probabilities, novelty, novel

    def _features(self, rows: Rows, result: Result) -> Rows:
        """Return the rows of features whose windows these raw rows complete."""
        if self.stream is None:
            return rows
        found: dict[int, Floats] = {}
        for i, row in enumerate(rows.values):
            try:
                features = self.stream.push(row)
            except MemoryError:
                raise
            except Exception as error:
                result.reject(rows.pick([i]), f"the model failed: {describe_error(error)}")
                continue
            if features is not None:
                found[i] = features
        values = np.array([*found.values()]).reshape(len(found), self.model.n_features_in_)
        picked = rows.pick([*found])
        return Rows(values, picked.positions, picked.times, picked.offsets)

    def _check_drift(self, monitor: DriftMonitor, rows: Rows) -> list[Event]:
        """Watch rows in batches of the usual size: drift is found where a live stream finds it."""
        events = list[Event]()
        for n, report in monitor.update_many(InOrder(rows.values), self.config.batch_size):
            position = int(rows.positions[n - 1])
            if report.drift_detected:
                details = {
                    "signals": list(report.signals),
                    "since": report.since,
                    "action": report.action,
                }
                events.append(Event("drift", position, report.describe(), details))
            elif report.news:
                events.append(Event("watch", position, report.describe()))
        return events

    def state(self) -> SessionState:
        """Return the state from which :meth:`SessionConfig.resume` continues bit for bit."""
        return SessionState(
            self.model.state_,
            None if self.monitor is None else self.monitor.state(),
            None if self.stream is None else self.stream.position,
            self.waiting,
            self.remembered,
            self.held,
            self.metadata,
            None if self.alarms is None else self.alarms.state(),
            self.predicted,
        )


class _Index:
    """Finds the rows of labels among those that a session remembers and those that wait."""

    def __init__(self, session: Session) -> None:
        values = session.model.state_.recent.at(session.remembered.positions)[0]
        self.rows = replace(session.remembered, values=values).plus(session.waiting)
        self.n_remembered = len(values)
        self.last = session.position
        self._positions = {position: i for i, position in enumerate(self.rows.positions.tolist())}
        self._offsets = {offset: i for i, offset in enumerate(self.rows.offsets) if offset}
        times = [read_time(time) for time in self.rows.times]
        self._times = {time: i for i, time in enumerate(times) if time != ""}
        self._n_times = Counter(times)
        self._last_time = times[-1] if times else ""

    def find(self, label: Label, *, may_come: bool = False) -> list[tuple[Label, bool]]:
        """Return a label with position and values of its row, and whether the row waits.

        Of a label from one time to another, there is one for each row between them. There are none if
        the row `may_come`.
        """
        numbers = self._numbers(label)
        if numbers:
            return [(self._fill(label, number), number >= self.n_remembered) for number in numbers]
        if may_come:
            return []
        if label.values is None:
            if label.position is not None:
                row = f"row {label.position}"
            elif label.offset or label.time:
                row = f"the row with offset {label.offset!r}" if label.offset else f"time {label.time!r}"
            else:
                raise InvalidInputError("it has neither position, offset, time nor values")
            last = count_of(len(self.rows), "row")
            raise InvalidInputError(f"{row} is not among the last {last}: send the row with its label")
        n_columns = self.rows.values.shape[1]
        values = [math.nan if value is None else float(value) for value in label.values]
        if len(values) != n_columns:
            raise InvalidInputError(f"expected {count_of(n_columns, 'value')}, got {len(values)}")
        if all(math.isnan(value) for value in values):
            raise InvalidInputError("all values of its row are missing")
        if any(abs(value) > LARGEST for value in values):
            raise InvalidInputError(f"a value is beyond ±{LARGEST:g}")
        return [(replace(label, values=values), False)]

    def may_come(self, label: Label) -> bool:
        """Return whether the row of a label, or one of its rows, may still come."""
        if label.until:
            return not is_before(read_time(label.until), self._last_time)
        if label.position is not None:
            return label.position > self.last
        if label.values is not None or self._numbers(label):
            return False
        if label.offset:
            return True
        return bool(label.time) and not is_before(read_time(label.time), self._last_time)

    def _fill(self, label: Label, number: int) -> Label:
        position, values = int(self.rows.positions[number]), self.rows.values[number].tolist()
        return replace(label, position=position, values=values)

    def _numbers(self, label: Label) -> list[int]:
        number = None
        if label.position is not None:
            number = self._positions.get(label.position)
        elif label.offset:
            number = self._offsets.get(label.offset)
        elif label.until:
            return [number for number, time in enumerate(self.rows.times) if is_between(time, label)]
        elif label.time:
            time = read_time(label.time)
            if (n := self._n_times[time]) > 1:
                if label.values is not None:
                    return []
                raise InvalidInputError(f"{n} rows have the time {label.time!r}: give the position")
            number = self._times.get(time)
        return [] if number is None else [number]


def names_of_sources(session: Session) -> list[Any]:
    """Return the classes that the sources of a session have."""
    found: list[Any] = session.model.classes_[: session.config.n_classes].tolist()
    return found


def _identity(label: Label) -> Any:
    """Return what two labels of the same row have in common."""
    return label.position if label.position is not None else np.array(label.values).tobytes()


def _read_class(label: Any, classes: Any) -> Any:
    """Return a label as the classes are written, names or numbers; None if it is no label."""
    is_text, numbered = isinstance(label, str), classes.dtype.kind in "biuf"
    if is_text:
        label = label.strip()
        if not label:
            return None
        if len(label) > _LONGEST_NAME:
            raise InvalidInputError(f"a class has at most {_LONGEST_NAME} characters")
    elif label is None or math.isnan(label):
        return None
    if is_text and numbered:
        known = {str(name): name for name in classes.tolist()}
        if label in known:
            return known[label]
        try:
            number = float(label)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise InvalidInputError(f"classes are numbers, such as {classes.tolist()[0]!r}")
        return int(number) if number.is_integer() else number
    if not is_text and not numbered:
        raise InvalidInputError(f"classes are names, such as {classes.tolist()[0]!r}")
    return label


def _count_known(model: OnlineDaDiL) -> int:
    """Return how many labels and rows of baselines a model has learned."""
    return model.n_labels_ + int(sum(one.n_rows for one in model.state_.baselines))


def _alarm_event(change: Change, position: int) -> Event:
    return Event("alarm", position, change.message, change.details)


def describe_error(error: Exception) -> str:
    """Return the type and message of an error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _round(value: Any) -> float:
    return round(float(value), _DECIMALS)
