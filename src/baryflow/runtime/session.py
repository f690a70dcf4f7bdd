"""One target being followed: raw rows in; predictions, drift events and a better model out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from baryflow.drift import DriftMonitor, MonitorState
from baryflow.estimators._input import InOrder
from baryflow.estimators._tracker import TrackerState
from baryflow.estimators._unknown import mark_unknown
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.features import FeatureStream, SignalModel
from baryflow.features.streaming import Position
from baryflow.runtime.events import Event
from baryflow.streams import Batch, Rejected
from baryflow.streams.base import RAW_LENGTH
from baryflow.validation import Floats, Integers, count_of

#: Decimals of probabilities and other shares in records.
_DECIMALS = 6


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

    def __len__(self) -> int:
        return len(self.values)

    def pick(self, which: slice | list[int]) -> Rows:
        """Return some of the rows."""
        numbers = range(len(self))[which] if isinstance(which, slice) else which
        times, offsets = [self.times[i] for i in numbers], [self.offsets[i] for i in numbers]
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
    numbers: dict[str, list[int]] = {}
    for i, key in enumerate(batch.keys):
        numbers.setdefault(key, []).append(i)
    for key, which in numbers.items():
        yield key, rows if len(which) == len(rows) else rows.pick(which)


@dataclass(frozen=True, eq=False)
class SessionState:
    """The state of a session, without the knowledge of the sources that all sessions share."""

    tracker: TrackerState
    monitor: MonitorState | None
    window: Position | None
    waiting: Floats
    metadata: dict[str, Any]


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
    drift : {"off", "tell", "forget", "restart"}
        Whether to watch for drift, and what to do about it.
    """

    base: OnlineDaDiL | SignalModel
    batch_size: int = 32
    drift: str = "off"

    @property
    def model(self) -> OnlineDaDiL:
        """The model without its feature extraction."""
        return self.base.model if isinstance(self.base, SignalModel) else self.base

    def begin(self) -> Session:
        """Return a session for a target that has sent no rows yet."""
        model = self.model.spawn()
        monitor = None if self.drift == "off" else DriftMonitor(model, action=self.drift)
        return Session(self, model, monitor, self._stream(), np.empty((0, model.n_features_in_)))

    def resume(self, state: SessionState) -> Session:
        """Return a session in a saved state."""
        model, stream = self.model.spawn(state.tracker), self._stream()
        monitor = None if state.monitor is None else DriftMonitor.from_state(model, state.monitor)
        if stream is not None and state.window is not None:
            stream.resume(state.window)
        return Session(self, model, monitor, stream, state.waiting, dict(state.metadata))

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
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    features: list[Floats] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    unlearned: int = 0

    def add(self, more: Result) -> Self:
        """Append the result of other rows."""
        self.records += more.records
        self.events += more.events
        self.features += more.features
        self.rejected += more.rejected
        self.unlearned += more.unlearned
        return self

    def reject(self, rows: Rows, reason: str) -> None:
        """Append rows on which the model failed."""
        for row in rows.reject(reason):
            self.rejected.append(row)
            self.events.append(Event.rejected(row, row.position))

    def of_target(self, key: str) -> Result:
        """Return the result with the key of its target in every record and event."""
        return Result(
            [{"key": key, **record} for record in self.records],
            [event.of_target(key) for event in self.events],
            self.features,
            self.rejected,
            self.unlearned,
        )


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
    waiting : array of shape (n, d)
        Rows that were predicted and not learned from yet.
    metadata : dict
        What else is saved with the session; plain values, as in JSON.
    """

    config: SessionConfig
    model: OnlineDaDiL
    monitor: DriftMonitor | None
    stream: FeatureStream | None
    waiting: Floats
    metadata: dict[str, Any] = field(default_factory=dict)

    def take(self, rows: Rows) -> Result:
        """Predict raw rows; learn from every full batch of them.

        A row on which the model fails is rejected, and a batch from which it fails to learn is left out:
        the same rows would fail again after a restart. The model is then as it was before them.

        Parameters
        ----------
        rows : Rows

        Returns
        -------
        Result
        """
        result = Result()
        rows = self._features(rows, result)
        while len(rows):
            # Batches and predictions do not depend on how rows were delivered. The batch size may have
            # been larger in an earlier process.
            n = max(1, self.config.batch_size - len(self.waiting))
            some, rows = rows.pick(slice(0, n)), rows.pick(slice(n, None))
            predicted = self._predict_possible(some, result)
            self.waiting = np.concatenate([self.waiting, predicted])
            if len(self.waiting) >= self.config.batch_size:
                result.add(self.learn(int(some.positions[-1])))
        return result

    def _predict_possible(self, rows: Rows, result: Result) -> Floats:
        """Predict rows and return those on which the model does not fail, found by halving."""
        try:
            result.records += self.predict(rows)
        except MemoryError:
            raise
        except Exception as error:
            if len(rows) == 1:
                result.reject(rows, f"the model failed: {describe_error(error)}")
                return rows.values[:0]
            return np.concatenate([self._predict_possible(half, result) for half in rows.halve()])
        result.features += list(rows.values)
        return rows.values

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
        model, rows, events = self.model, self.waiting, list[Event]()
        self.waiting = rows[:0]
        try:
            if self.monitor is not None:
                events += self._check_drift(self.monitor, rows, position)
            problem = model.absorb(InOrder(rows))
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
        nearest = max(model.resemblance_, key=lambda name: model.resemblance_[name], default=None)
        details = {
            "rows": len(rows),
            "rows_seen": model.n_samples_seen_,
            "reliability": _round(model.reliability_),
            "resemblance": {str(k): _round(v) for k, v in model.resemblance_.items()},
        }
        message = (
            f"{count_of(len(rows), 'row')}, reliability {model.reliability_:.0%}, most like {nearest}"
        )
        return Result(events=[*events, Event("batch", position, message, details)])

    def predict(self, rows: Rows) -> list[dict[str, Any]]:
        """Return a record for every row of features, as predicted before learning from it."""
        model, values = self.model, InOrder(rows.values)
        probabilities, novelty = model.predict_proba(values), model.novelty(values)
        best = probabilities.argmax(axis=1)
        labels: Any = model.classes_[best]
        if model.unknown is not None:
            labels = mark_unknown(labels, novelty > model.unknown, model.unknown_label, model.classes_)
        reliability, seen = _round(model.reliability_), model.n_samples_seen_
        highest = probabilities[np.arange(len(best)), best]
        return [
            {
                "position": int(position),
                "time": time,
                "label": label,
                "probability": _round(probability),
                "reliability": reliability,
                "novelty": _round(novel),
                "rows_seen": seen,
            }
            | ({"offset": offset} if offset else {})
            for position, time, offset, label, probability, novel in zip(
                rows.positions, rows.times, rows.offsets, labels.tolist(), highest, novelty, strict=True
            )
        ]

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

    def _check_drift(self, monitor: DriftMonitor, values: Floats, position: int) -> list[Event]:
        report = monitor.update(InOrder(values))
        if not report.drift_detected:
            return []
        details = {"signals": list(report.signals), "since": report.since, "action": report.action}
        return [Event("drift", position, report.describe(), details)]

    def state(self) -> SessionState:
        """Return the state from which :meth:`SessionConfig.resume` continues bit for bit."""
        return SessionState(
            self.model.target_state(),
            None if self.monitor is None else self.monitor.state(),
            None if self.stream is None else self.stream.position,
            self.waiting,
            self.metadata,
        )


def describe_error(error: Exception) -> str:
    """Return the type and message of an error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _round(value: Any) -> float:
    return round(float(value), _DECIMALS)
