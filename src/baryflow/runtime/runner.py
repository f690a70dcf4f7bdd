"""From a source of rows to predictions and events, batch by batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from baryflow import codec, container
from baryflow.drift import DriftMonitor, MonitorState
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.estimators.unknown import mark_unknown
from baryflow.runtime.checkpoint import Checkpoint, Standing
from baryflow.runtime.events import Event
from baryflow.streams import Batch, Sink, Source
from baryflow.validation import Floats

#: Batches from one snapshot to the next.
EVERY = 64
#: Batches that are replayed between snapshots.
_REPLAYED = 16
#: Digits of probabilities and the like: what follows is noise.
_DIGITS = 6
_MONITOR = "drift_monitor"


@dataclass
class Outputs:
    """Where things are written; what is None is not.

    Attributes
    ----------
    predictions : Sink
        A record for every row.
    events : Sink
        A record for every event.
    quarantine : Sink
        A record for every row that could not be used.
    """

    predictions: Sink | None = None
    events: Sink | None = None
    quarantine: Sink | None = None

    def named(self) -> dict[str, Sink]:
        """Return those that there are, by name.

        Returns
        -------
        dict of str → Sink
        """
        return {name: sink for name, sink in vars(self).items() if sink is not None}


@dataclass
class Totals:
    """How much came and went: ``read`` is ``predicted`` and ``quarantined`` together."""

    batches: int = 0
    read: int = 0
    predicted: int = 0
    quarantined: int = 0
    position: int = 0  # of the last row that was read
    drifts: int = 0


@dataclass
class Runner:
    """Follows a stream with a model.

    Parameters
    ----------
    model : OnlineDaDiL
        Fitted; it is changed.
    source : Source
    outputs : Outputs
    batch_size : int
        Rows of a batch, at most.
    timeout : float, optional
        Seconds after which a batch is taken as it is, from its first row on.
    checkpoint : Checkpoint, optional
        Without it nothing is kept if the process dies.
    every : int
        Batches from one snapshot to the next.
    listen : callable, optional
        Called with every :class:`Event`.
    monitor : DriftMonitor, optional
        Watches the target for drift, and does about it what it was told to.
    """

    model: OnlineDaDiL
    source: Source
    outputs: Outputs = field(default_factory=Outputs)
    batch_size: int = 32
    timeout: float | None = None
    checkpoint: Checkpoint | None = None
    every: int = EVERY
    listen: Callable[[Event], None] | None = None
    monitor: DriftMonitor | None = None
    totals: Totals = field(default_factory=Totals, init=False)
    _cursor: dict[str, Any] | None = field(default=None, init=False)
    _replaying: bool = field(default=False, init=False)

    def run(self, stop: Callable[[], bool] = lambda: False) -> Totals:
        """Go on from the checkpoint, if there is one, until the source ends or `stop` says so.

        Parameters
        ----------
        stop : callable
            Asked before every batch.

        Returns
        -------
        Totals

        Raises
        ------
        OSError
            If something cannot be written, for instance because the disk is full. With a checkpoint
            nothing is lost: the same call goes on.
        """
        if self.checkpoint is not None:
            self._recover(self.checkpoint)
        while not stop():
            batch = self.source.read(self.batch_size, self.timeout)
            if batch is None:
                break
            if not batch:
                continue  # nothing came for a while
            if self.checkpoint is not None:
                self.checkpoint.append(batch)
                self.source.acknowledge(batch.cursor)
            self._take(batch)
            if self.checkpoint is None:
                self.source.acknowledge(batch.cursor)
        if self.checkpoint is not None:
            self._snapshot(self.checkpoint)
        for sink in self.outputs.named().values():
            sink.flush(sync=True)
        return self.totals

    # -- one batch -------------------------------------------------------------------------------

    def _take(self, batch: Batch) -> None:
        """Predict the rows of a batch, write, then learn from them."""
        totals = self.totals
        for notice in batch.notices:
            self._tell("warning", notice)
        for row in batch.rejected:
            totals.position = max(totals.position, row.position)
            if self.outputs.quarantine is not None:
                self.outputs.quarantine.write([asdict(row)])
            self._tell("quarantine", f"row {row.position}: {row.reason}", reason=row.reason)
        totals.quarantined += len(batch.rejected)
        totals.read += len(batch.rejected) + len(batch.rows)
        if len(batch.rows):
            totals.position = max(totals.position, int(batch.positions[-1]))
            totals.predicted += len(batch.rows)
            self._learn(batch)
        totals.batches += 1
        self._cursor = batch.cursor
        if not self._replaying:
            for sink in self.outputs.named().values():
                sink.flush(sync=False)  # somebody may be waiting for it
        if self.checkpoint is not None and totals.batches % self.every == 0:
            words = f"{totals.batches} batches, {totals.read} rows are on disk"
            self._tell("checkpoint", words, batches=totals.batches)
            if not self._replaying:  # the journal is still needed
                self._snapshot(self.checkpoint)

    def _learn(self, batch: Batch) -> None:
        model = self.model
        records = self.predict(batch)
        if self.outputs.predictions is not None:
            self.outputs.predictions.write(records)
        if self.monitor is not None:
            self._watch(self.monitor, batch.rows)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            # Sources bring columns in the order in which the model knows them.
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            model.partial_fit(batch.rows)
        for warning in caught:
            self._tell("column", str(warning.message))
        nearest = max(model.resemblance_, key=lambda name: model.resemblance_[name], default=None)
        self._tell(
            "batch",
            f"{len(batch.rows)} rows, reliability {model.reliability_:.0%}, most like {nearest}",
            rows=len(batch.rows),
            rows_seen=model.n_samples_seen_,
            reliability=_rounded(model.reliability_),
            resemblance={str(k): _rounded(v) for k, v in model.resemblance_.items()},
        )

    def predict(self, batch: Batch) -> list[dict[str, Any]]:
        """Return a record for every row of a batch: what the model says before it learns from them.

        Parameters
        ----------
        batch : Batch

        Returns
        -------
        list of dict
        """
        model = self.model
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            probabilities, novelty = model.predict_proba(batch.rows), model.novelty(batch.rows)
        best = probabilities.argmax(axis=1)
        labels: Any = model.classes_[best]
        if model.unknown is not None:
            labels = mark_unknown(labels, novelty > model.unknown, model.unknown_label, model.classes_)
        reliability, seen = _rounded(model.reliability_), model.n_samples_seen_
        chances = probabilities[np.arange(len(best)), best]
        offsets = batch.offsets or [""] * len(best)
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
            | ({"key": key} if key else {})
            | ({"offset": offset} if offset else {})
            for position, time, key, offset, label, chance, novel in zip(
                batch.positions, batch.times, batch.keys, offsets, labels.tolist(), chances, novelty,
                strict=True,
            )
        ]  # fmt: skip

    def _watch(self, monitor: DriftMonitor, rows: Floats) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            report = monitor.update(rows)
        if report.drift_detected:
            self.totals.drifts += 1
            details = {"signals": list(report.signals), "since": report.since, "action": report.action}
            self._tell("drift", report.describe(), **details)

    def _tell(self, kind: str, words: str, **details: Any) -> None:
        event = Event(kind, self.totals.position, words, details)
        if self.outputs.events is not None:
            self.outputs.events.write([event.record()])
        if self.listen is not None and not self._replaying:
            self.listen(event)

    # -- going on --------------------------------------------------------------------------------

    def _recover(self, checkpoint: Checkpoint) -> None:
        found = checkpoint.recover()
        if found is None:
            self._snapshot(checkpoint)  # so that there is something to go on from
            return
        standing, batches = found
        self.model = OnlineDaDiL.from_bytes(standing.model)
        self.totals = Totals(**standing.counts)
        self._cursor = standing.cursor
        if standing.monitor:
            content = container.from_bytes(standing.monitor)
            state = codec.open_content(MonitorState, content, _MONITOR)
            self.monitor = DriftMonitor.from_state(self.model, state)
        for name, sink in self.outputs.named().items():
            sink.truncate(standing.outputs.get(name, 0))
        self._replaying = True
        n_replayed = 0
        for batch in batches:
            self._take(batch)
            n_replayed += 1
            if n_replayed % _REPLAYED == 0:  # kills may come faster than snapshots
                checkpoint.save_midway(self._standing())
        self._replaying = False
        if n_replayed:
            self._snapshot(checkpoint)
        if self._cursor is not None:
            self.source.seek(self._cursor)

    def _snapshot(self, checkpoint: Checkpoint) -> None:
        checkpoint.save(self._standing())

    def _standing(self) -> Standing:
        """Return how far the run is, all outputs being on disk."""
        sinks = self.outputs.named()
        for sink in sinks.values():
            sink.flush(sync=True)
        monitor = b""
        if self.monitor is not None:
            monitor = container.to_bytes(_MONITOR, *codec.encode(self.monitor.state()))
        return Standing(
            self.model.to_bytes(),
            self._cursor,
            asdict(self.totals),
            {name: sink.position for name, sink in sinks.items()},
            monitor,
        )


def _rounded(value: Any) -> float:
    return round(float(value), _DIGITS)
