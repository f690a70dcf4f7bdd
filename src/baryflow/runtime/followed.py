"""One machine that is followed: raw rows in; predictions, drift and what was learned out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from baryflow.drift import DriftMonitor, MonitorState
from baryflow.estimators.follower import FollowerState
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.estimators.unknown import mark_unknown
from baryflow.features import FeatureStream, SignalModel
from baryflow.features.streaming import Position
from baryflow.runtime.events import Event
from baryflow.streams import Batch
from baryflow.validation import Floats, Integers, count_of

#: Digits of probabilities and the like: what follows is noise.
_DIGITS = 6
#: Sources bring columns in the order in which the model knows them: it need not say this.
_NAMELESS = "X does not have valid feature names"


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
class FollowedState:
    """All that is known of a machine, but for what the sources taught."""

    follower: FollowerState
    monitor: MonitorState | None
    window: Position | None
    waiting: Floats
    notes: dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """How machines are followed.

    Attributes
    ----------
    base : OnlineDaDiL or SignalModel
        Fitted; it is not changed, and what it has learned from the sources is shared. If it has seen a
        target already, a machine goes on from there.
    batch_size : int
        A machine's model learns once so many of its rows are waiting.
    drift : {"off", "tell", "forget", "restart"}
        Whether drift is watched for, and what to do about it.
    """

    base: OnlineDaDiL | SignalModel
    batch_size: int = 32
    drift: str = "off"

    @property
    def model(self) -> OnlineDaDiL:
        """The model itself, without what makes features."""
        return self.base.model if isinstance(self.base, SignalModel) else self.base

    def begin(self) -> Followed:
        """Return a machine of which no row was seen.

        Returns
        -------
        Followed
        """
        model = self.model.twin()
        monitor = None if self.drift == "off" else DriftMonitor(model, action=self.drift)
        return Followed(self, model, monitor, self._stream(), np.empty((0, model.n_features_in_)))

    def resume(self, state: FollowedState) -> Followed:
        """Return a machine as it was.

        Parameters
        ----------
        state : FollowedState

        Returns
        -------
        Followed
        """
        model, stream = self.model.twin(state.follower), self._stream()
        monitor = None if state.monitor is None else DriftMonitor.from_state(model, state.monitor)
        if stream is not None and state.window is not None:
            stream.resume(state.window)
        return Followed(self, model, monitor, stream, state.waiting, dict(state.notes))

    def _stream(self) -> FeatureStream | None:
        return self.base.stream() if isinstance(self.base, SignalModel) else None


@dataclass
class Outcome:
    """What came of some rows: a record for every prediction, events in order, and what was predicted."""

    records: list[dict[str, Any]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    features: list[Floats] = field(default_factory=list)  # a row for each record

    def add(self, more: Outcome) -> Self:
        """Add what came of other rows."""
        self.records += more.records
        self.events += more.events
        self.features += more.features
        return self


@dataclass
class Followed:
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

    recipe: Recipe
    model: OnlineDaDiL
    monitor: DriftMonitor | None
    stream: FeatureStream | None
    waiting: Floats
    notes: dict[str, Any] = field(default_factory=dict)

    def take(self, rows: Rows) -> Outcome:
        """Predict rows; whenever a batch of them is full, look for drift in it and learn from it.

        Parameters
        ----------
        rows : Rows
            Raw ones.

        Returns
        -------
        Outcome
        """
        rows, outcome = self._features(rows), Outcome()
        while len(rows):
            # Where a batch ends does not depend on how rows were delivered, nor does what is predicted.
            n = max(1, self.recipe.batch_size - len(self.waiting))  # batches may have been larger before
            some, rows = rows.pick(slice(0, n)), rows.pick(slice(n, None))
            outcome.records += self.predict(some)
            outcome.features += list(some.values)
            self.waiting = np.concatenate([self.waiting, some.values])
            if len(self.waiting) >= self.recipe.batch_size:
                outcome.events += self.learn(int(some.positions[-1]))
        return outcome

    def learn(self, position: int) -> list[Event]:
        """Look for drift in the rows that are waiting, and learn from them, however few.

        Parameters
        ----------
        position : int
            Of the last of them, for the events.

        Returns
        -------
        list of Event
        """
        if not len(self.waiting):
            return []
        model, rows = self.model, self.waiting
        events = [] if self.monitor is None else self._watch(self.monitor, rows, position)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            warnings.filterwarnings("ignore", message=_NAMELESS)
            model.partial_fit(rows)
        self.waiting = rows[:0]
        events += [Event("column", position, str(warning.message)) for warning in caught]
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
        return [*events, Event("batch", position, words, details)]

    def predict(self, rows: Rows) -> list[dict[str, Any]]:
        """Return a record for every row of features: what the model says before it learns from it.

        Parameters
        ----------
        rows : Rows

        Returns
        -------
        list of dict
        """
        model = self.model
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_NAMELESS)
            probabilities, novelty = model.predict_proba(rows.values), model.novelty(rows.values)
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

    def _features(self, rows: Rows) -> Rows:
        """Return the rows of features whose windows these rows complete."""
        if self.stream is None:
            return rows
        found = [self.stream.push(row) for row in rows.values]
        full = [i for i, features in enumerate(found) if features is not None]
        values = np.array([found[i] for i in full]).reshape(len(full), self.model.n_features_in_)
        picked = rows.pick(full)
        return Rows(values, picked.positions, picked.times, picked.offsets)

    def _watch(self, monitor: DriftMonitor, values: Floats, position: int) -> list[Event]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_NAMELESS)
            report = monitor.update(values)
        if not report.drift_detected:
            return []
        details = {"signals": list(report.signals), "since": report.since, "action": report.action}
        return [Event("drift", position, report.describe(), details)]

    def state(self) -> FollowedState:
        """Return all there is to know but for what the sources taught, to go on bit for bit.

        Returns
        -------
        FollowedState
        """
        return FollowedState(
            self.model.target_state(),
            None if self.monitor is None else self.monitor.state(),
            None if self.stream is None else self.stream.position,
            self.waiting,
            self.notes,
        )


def _rounded(value: Any) -> float:
    return round(float(value), _DIGITS)
