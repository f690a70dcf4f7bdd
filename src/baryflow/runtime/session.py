"""One machine that is followed: raw rows in; predictions, drift and what was learned out."""

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
from baryflow.runtime.events import Event, tell_rejected
from baryflow.streams import Batch, Rejected
from baryflow.streams.base import RAW_LENGTH
from baryflow.validation import Floats, Integers, count_of

#: Digits of probabilities and the like: what follows is noise.
_DIGITS = 6


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one machine.

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
        """Return some of them."""
        places = range(len(self))[which] if isinstance(which, slice) else which
        return Rows(
            self.values[which], self.positions[which],
            [self.times[i] for i in places], [self.offsets[i] for i in places],
        )  # fmt: skip

    def reject(self, reason: str) -> list[Rejected]:
        """Return them as rows that cannot be used."""
        found = []
        for position, offset, values in zip(self.positions, self.offsets, self.values, strict=True):
            raw = ",".join("" if np.isnan(value) else repr(float(value)) for value in values)
            found.append(Rejected(int(position), reason, raw[:RAW_LENGTH], offset))
        return found


def by_key(batch: Batch) -> Iterator[tuple[str, Rows]]:
    """Yield the rows of each machine in a batch, in the order in which machines first come.

    Parameters
    ----------
    batch : Batch

    Yields
    ------
    key, rows : str and Rows
    """
    rows = Rows(batch.rows, batch.positions, batch.times, batch.offsets or [""] * len(batch.rows))
    whose: dict[str, list[int]] = {}
    for i, key in enumerate(batch.keys):
        whose.setdefault(key, []).append(i)
    for key, which in whose.items():
        yield key, rows if len(which) == len(rows) else rows.pick(which)


@dataclass(frozen=True, eq=False)
class SessionState:
    """All that is known of a machine, but for what the sources taught."""

    follower: TrackerState
    monitor: MonitorState | None
    window: Position | None
    waiting: Floats
    notes: dict[str, Any]


@dataclass(frozen=True)
class SessionConfig:
    """How machines are followed.

    Attributes
    ----------
    base : OnlineDaDiL or SignalModel
        Fitted; it is not changed, and what it has learned from the sources is shared. If it has seen a
        target already, a machine goes on from there.
    batch_size : int
        A machine's model learns once so many of its rows are waiting.
    drift : {"off", "report", "forget", "restart"}
        Whether drift is watched for, and what to do about it.
    """

    base: OnlineDaDiL | SignalModel
    batch_size: int = 32
    drift: str = "off"

    @property
    def model(self) -> OnlineDaDiL:
        """The model itself, without what makes features."""
        return self.base.model if isinstance(self.base, SignalModel) else self.base

    def begin(self) -> Session:
        """Return a machine of which no row was seen.

        Returns
        -------
        Followed
        """
        model = self.model.spawn()
        monitor = None if self.drift == "off" else DriftMonitor(model, action=self.drift)
        return Session(self, model, monitor, self._stream(), np.empty((0, model.n_features_in_)))

    def resume(self, state: SessionState) -> Session:
        """Return a machine as it was.

        Parameters
        ----------
        state : FollowedState

        Returns
        -------
        Followed
        """
        model, stream = self.model.spawn(state.follower), self._stream()
        monitor = None if state.monitor is None else DriftMonitor.from_state(model, state.monitor)
        if stream is not None and state.window is not None:
            stream.resume(state.window)
        return Session(self, model, monitor, stream, state.waiting, dict(state.notes))

    def _stream(self) -> FeatureStream | None:
        return self.base.stream() if isinstance(self.base, SignalModel) else None


@dataclass
class Result:
    """What came of some rows.

    Attributes
    ----------
    records : list of dict
        One for every prediction.
    events : list of Event
        In order.
    features : list of arrays
        A row of features for each record.
    rejected : list of Rejected
        Rows on which the model failed; each has an event, too.
    unlearned : int
        Rows that were predicted, but on which the model failed to learn; an event says why.
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    features: list[Floats] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    unlearned: int = 0

    def add(self, more: Result) -> Self:
        """Add what came of other rows."""
        self.records += more.records
        self.events += more.events
        self.features += more.features
        self.rejected += more.rejected
        self.unlearned += more.unlearned
        return self

    def reject(self, rows: Rows, error: Exception) -> None:
        """Add rows on which the model failed."""
        for row in rows.reject(f"it could not be learned from or predicted: {_describe(error)}"):
            self.rejected.append(row)
            self.events.append(tell_rejected(row, row.position))


@dataclass
class Session:
    """One machine: its model, its monitor, its half-filled window, and rows not learned from yet.

    Attributes
    ----------
    recipe : Recipe
    model : OnlineDaDiL
    monitor : DriftMonitor or None
    stream : FeatureStream or None
        Makes rows of features from raw rows.
    waiting : array of shape (n, d)
        Rows that were predicted and not learned from yet.
    notes : dict
        Whatever else should be kept of it: plain values, as in JSON.
    """

    config: SessionConfig
    model: OnlineDaDiL
    monitor: DriftMonitor | None
    stream: FeatureStream | None
    waiting: Floats
    notes: dict[str, Any] = field(default_factory=dict)

    def take(self, rows: Rows) -> Result:
        """Predict rows; whenever a batch of them is full, look for drift in it and learn from it.

        A row on which the model fails is rejected, and a batch from which it fails to learn is left out:
        the same rows would fail again after a restart. The model is then as it was before them.

        Parameters
        ----------
        rows : Rows
            Raw ones.

        Returns
        -------
        Outcome
        """
        outcome = Result()
        rows = self._features(rows, outcome)
        while len(rows):
            # Where a batch ends does not depend on how rows were delivered, nor does what is predicted.
            n = max(1, self.config.batch_size - len(self.waiting))  # batches may have been larger before
            some, rows = rows.pick(slice(0, n)), rows.pick(slice(n, None))
            predicted = self._predict_possible(some, outcome)
            self.waiting = np.concatenate([self.waiting, predicted])
            if len(self.waiting) >= self.config.batch_size:
                outcome.add(self.learn(int(some.positions[-1])))
        return outcome

    def _predict_possible(self, rows: Rows, outcome: Result) -> Floats:
        """Predict all rows that can be, and return them; find the others by halving."""
        try:
            outcome.records += self.predict(rows)
        except MemoryError:
            raise
        except Exception as error:
            if len(rows) == 1:
                outcome.reject(rows, error)
                return rows.values[:0]
            half = len(rows) // 2
            parts = rows.pick(slice(0, half)), rows.pick(slice(half, None))
            return np.concatenate([self._predict_possible(part, outcome) for part in parts])
        outcome.features += list(rows.values)
        return rows.values

    def learn(self, position: int) -> Result:
        """Look for drift in the rows that are waiting, and learn from them, however few.

        Parameters
        ----------
        position : int
            Of the last of them, for the events.

        Returns
        -------
        Outcome
            Events, and how many rows the model failed to learn from.
        """
        if not len(self.waiting):
            return Result()
        model, rows, events = self.model, self.waiting, list[Event]()
        self.waiting = rows[:0]
        try:
            if self.monitor is not None:
                events += self._watch(self.monitor, rows, position)
            found = model.absorb(InOrder(rows))
        except MemoryError:
            raise
        except Exception as error:
            words = f"{len(rows)} rows were predicted, but could not be learned from: {_describe(error)}"
            events.append(Event("warning", position, words, {"rows": len(rows)}))
            return Result(events=events, unlearned=len(rows))
        if found:
            events.append(Event("column", position, found))
        nearest = max(model.resemblance_, key=lambda name: model.resemblance_[name], default=None)
        details = {
            "rows": len(rows),
            "rows_seen": model.n_samples_seen_,
            "reliability": _rounded(model.reliability_),
            "resemblance": {str(k): _rounded(v) for k, v in model.resemblance_.items()},
        }
        words = (
            f"{count_of(len(rows), 'row')}, reliability {model.reliability_:.0%}, most like {nearest}"
        )
        return Result(events=[*events, Event("batch", position, words, details)])

    def predict(self, rows: Rows) -> list[dict[str, Any]]:
        """Return a record for every row of features: what the model says before it learns from it.

        Parameters
        ----------
        rows : Rows

        Returns
        -------
        list of dict
        """
        model, values = self.model, InOrder(rows.values)
        probabilities, novelty = model.predict_proba(values), model.novelty(values)
        best = probabilities.argmax(axis=1)
        labels: Any = model.classes_[best]
        if model.unknown is not None:
            labels = mark_unknown(labels, novelty > model.unknown, model.unknown_label, model.classes_)
        reliability, seen = _rounded(model.reliability_), model.n_samples_seen_
        chances = probabilities[np.arange(len(best)), best]
        return [
            {
                "position": int(position),
                "time": time,
                "label": label,
                "probability": _rounded(chance),
                "reliability": reliability,
                "novelty": _rounded(novel),
                "rows_seen": seen,
            }
            | ({"offset": offset} if offset else {})
            for position, time, offset, label, chance, novel in zip(
                rows.positions, rows.times, rows.offsets, labels.tolist(), chances, novelty, strict=True
            )
        ]

    def _features(self, rows: Rows, outcome: Result) -> Rows:
        """Return the rows of features whose windows these rows complete."""
        if self.stream is None:
            return rows
        found: dict[int, Floats] = {}
        for i, row in enumerate(rows.values):
            try:
                features = self.stream.push(row)
            except MemoryError:
                raise
            except Exception as error:
                outcome.reject(rows.pick([i]), error)
                continue
            if features is not None:
                found[i] = features
        values = np.array([*found.values()]).reshape(len(found), self.model.n_features_in_)
        picked = rows.pick([*found])
        return Rows(values, picked.positions, picked.times, picked.offsets)

    def _watch(self, monitor: DriftMonitor, values: Floats, position: int) -> list[Event]:
        report = monitor.update(InOrder(values))
        if not report.drift_detected:
            return []
        details = {"signals": list(report.signals), "since": report.since, "action": report.action}
        return [Event("drift", position, report.describe(), details)]

    def state(self) -> SessionState:
        """Return all there is to know but for what the sources taught, to go on bit for bit.

        Returns
        -------
        FollowedState
        """
        return SessionState(
            self.model.target_state(),
            None if self.monitor is None else self.monitor.state(),
            None if self.stream is None else self.stream.position,
            self.waiting,
            self.notes,
        )


def _describe(error: Exception) -> str:
    """Return what went wrong, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _rounded(value: Any) -> float:
    return round(float(value), _DIGITS)
