"""From a source of rows to predictions and events, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from baryflow import container
from baryflow.exceptions import InvalidInputError
from baryflow.persistence import open_content
from baryflow.runtime.checkpoint import Checkpoint, Snapshot
from baryflow.runtime.events import Event, tell_rejected
from baryflow.runtime.session import Result, Session, SessionConfig, by_key
from baryflow.runtime.store import SessionStore
from baryflow.streams import Batch, Rejected, Sink, Source
from baryflow.validation import count_of

#: Batches from one snapshot to the next.
EVERY = 64
#: Batches that are replayed between snapshots.
_REPLAYED = 16


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
    """How much came and went: ``read`` is ``used`` and ``quarantined`` together.

    Each row used is predicted, unless rows are raw signals: then windows of them are. Of the rows used,
    ``unlearned`` made the model fail when it learned from them.
    """

    batches: int = 0
    read: int = 0
    used: int = 0
    predicted: int = 0
    quarantined: int = 0
    position: int = 0  # of the last row that was read
    drifts: int = 0
    unlearned: int = 0


@dataclass
class Runner:
    """Follows a stream: one machine, or many by key, each with a model of its own.

    Parameters
    ----------
    recipe : Recipe
        The model, and how machines are followed with it.
    source : Source
    outputs : Outputs
    read_size : int, optional
        Rows that are read at a time, at most; without it the recipe's batch.
    timeout : float, optional
        Seconds after which what was read is taken as it is, from its first row on.
    checkpoint : Checkpoint, optional
        Without it nothing is kept if the process dies.
    every : int
        Reads from one snapshot to the next.
    listen : callable, optional
        Called with every :class:`Event`.
    in_memory : int, optional
        Machines that are kept in memory, at most; without it as many as fit into half a gigabyte.
    keyed : bool
        Whether every record has a key, be it empty: a table has the same columns in all rows.

    Attributes
    ----------
    totals : Totals
    fleet : Fleet
        The machines; a stream without keys is the machine ``""``.
    """

    config: SessionConfig
    source: Source
    outputs: Outputs = field(default_factory=Outputs)
    read_size: int | None = None
    timeout: float | None = None
    checkpoint: Checkpoint | None = None
    every: int = EVERY
    listen: Callable[[Event], None] | None = None
    in_memory: int | None = None
    keyed: bool = False
    totals: Totals = field(default_factory=Totals, init=False)
    fleet: SessionStore = field(init=False)
    _cursor: dict[str, Any] | None = field(default=None, init=False)
    _outputs_before: dict[str, int] = field(default_factory=dict, init=False)
    _replaying: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.fleet = SessionStore(self.config, most=self.in_memory)

    @property
    def session(self) -> Session:
        """The machine of a stream without keys."""
        return self.fleet.look("")

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
        cursor = self.recover()
        if cursor is not None:
            self.source.seek(cursor)
        while not stop():
            batch = self.source.read(self.read_size or self.config.batch_size, self.timeout)
            if batch is None:
                self._learn_rest()
                break
            self.handle(batch)
        self.rest()
        return self.totals

    def handle(self, batch: Batch) -> None:
        """Take a batch of the source: on disk before anything is made of it.

        Parameters
        ----------
        batch : Batch

        Raises
        ------
        OSError
            If something cannot be written.
        """
        if not batch:
            return  # nothing came for a while
        if self.checkpoint is not None:
            self.checkpoint.append(batch)
            self.source.acknowledge(batch.cursor)
        self._take(batch)
        if self.checkpoint is None:
            self.source.acknowledge(batch.cursor)

    def rest(self) -> None:
        """Put everything on disk, as far as there is a place for it.

        Raises
        ------
        OSError
            If something cannot be written.
        """
        if self.checkpoint is not None:
            self._snapshot(self.checkpoint)
        for sink in self.outputs.named().values():
            sink.flush(sync=True)

    def close(self) -> None:
        """Remove what was written for want of memory only."""
        self.fleet.close()

    # -- one batch -------------------------------------------------------------------------------

    def _take(self, batch: Batch) -> None:
        """Predict the rows of a batch, write, then learn from them."""
        totals = self.totals
        for notice in batch.notices:
            self._tell(Event("warning", totals.position, notice))
        for row in batch.rejected:
            totals.position = max(totals.position, row.position)
            self._quarantine(row)
            self._tell(tell_rejected(row, totals.position))
        totals.quarantined += len(batch.rejected)
        totals.read += len(batch.rejected) + len(batch.rows)
        totals.used += len(batch.rows)
        if len(batch.rows):
            totals.position = max(totals.position, int(batch.positions[-1]))
            self._follow(batch)
        totals.batches += 1
        self._cursor = batch.cursor
        if not self._replaying:
            for sink in self.outputs.named().values():
                sink.flush(sync=False)  # somebody may be waiting for it
        if self.checkpoint is not None and totals.batches % self.every == 0:
            words = (
                f"{count_of(totals.batches, 'batch', 'batches')}, {count_of(totals.read, 'row')} on disk"
            )
            self._tell(Event("checkpoint", totals.position, words, {"batches": totals.batches}))
            if not self._replaying:  # the journal is still needed
                self._snapshot(self.checkpoint)

    def _follow(self, batch: Batch) -> None:
        found = Result()
        for key, rows in by_key(batch):
            found.add(_named(self.fleet[key].take(rows), key, self.keyed))
        found.records.sort(key=lambda record: record["position"])  # also if machines take turns
        self._write(found)

    def _learn_rest(self) -> None:
        """Learn from rows that were waiting for more, now that there will be none."""
        for key in self.fleet:
            if len(self.fleet.look(key).waiting):
                found = self.fleet[key].learn(self.totals.position)
                self._write(_named(found, key, self.keyed))

    def _write(self, outcome: Result) -> None:
        self.totals.predicted += len(outcome.records)
        self.totals.used -= len(outcome.rejected)
        self.totals.quarantined += len(outcome.rejected)
        self.totals.unlearned += outcome.unlearned
        for row in outcome.rejected:
            self._quarantine(row)
        if self.outputs.predictions is not None and outcome.records:
            self.outputs.predictions.write(outcome.records)
        for event in outcome.events:
            self.totals.drifts += event.kind == "drift"
            self._tell(event)

    def _quarantine(self, row: Rejected) -> None:
        if self.outputs.quarantine is not None:
            record = asdict(row)
            self.outputs.quarantine.write([record if row.offset else _without(record, "offset")])

    def _tell(self, event: Event) -> None:
        if self.outputs.events is not None:
            self.outputs.events.write([event.record()])
        if self.listen is not None and not self._replaying:
            self.listen(event)

    # -- going on --------------------------------------------------------------------------------

    def recover(self) -> dict[str, Any] | None:
        """Go on from the checkpoint, if there is one.

        Returns
        -------
        dict or None
            Where the source goes on; None: at its beginning.
        """
        checkpoint = self.checkpoint
        if checkpoint is None:
            return None
        given = self.config.base.to_bytes()
        kept = checkpoint.keep_model(given)
        if kept != given:
            words = (
                f"{checkpoint.folder} goes on with the model it began with, which is another one than "
                "the one given: use another folder for that"
            )
            self._tell_without_writing(words)
            base = open_content(container.from_bytes(kept))
            if _columns(base) != _columns(self.config.base):
                raise InvalidInputError(
                    f"{checkpoint.folder} began with a model of other columns than the one given: give "
                    "that one, or use another folder"
                )
            self.config = SessionConfig(base, self.config.batch_size, self.config.drift)
        self.fleet = SessionStore(self.config, checkpoint.machines, self.in_memory)
        batches = checkpoint.recover(self._go_back)
        if batches is None:
            self._snapshot(checkpoint)  # so that there is something to go on from
            return None
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
        return self._cursor

    def _go_back(self, snapshot: Snapshot) -> None:
        if not asdict(Totals()).keys() >= snapshot.counts.keys() >= {"read", "used"}:
            raise InvalidInputError(
                "the checkpoint is that of a service or of rows sent to one: use another folder"
            )
        self.fleet.resume(snapshot.machines)
        self.totals = Totals(**snapshot.counts)
        self._cursor, self._outputs_before = snapshot.cursor, snapshot.outputs
        for name, sink in self.outputs.named().items():
            sink.truncate(snapshot.outputs.get(name, 0))

    def _tell_without_writing(self, words: str) -> None:
        """Tell what concerns this life only: outputs are those of a run that was never interrupted."""
        if self.listen is not None:
            self.listen(Event("warning", self.totals.position, words))

    def _snapshot(self, checkpoint: Checkpoint) -> None:
        checkpoint.save(self._standing())
        self.fleet.tidy(checkpoint.tables())

    def _standing(self) -> Snapshot:
        """Return how far the run is, all outputs being on disk."""
        sinks = self.outputs.named()
        for sink in sinks.values():
            sink.flush(sync=True)
        return Snapshot(
            self.fleet.save(),
            self._cursor,
            asdict(self.totals),
            # Those that are left out this time may come back.
            self._outputs_before | {name: sink.position for name, sink in sinks.items()},
        )


def _named(outcome: Result, key: str, keyed: bool) -> Result:
    """Write the key of a machine into all that came of its rows, if it has one."""
    if not (key or keyed):
        return outcome
    return Result(
        [{"key": key, **record} for record in outcome.records],
        [event.named(key) for event in outcome.events],
        rejected=outcome.rejected,
        unlearned=outcome.unlearned,
    )


def _columns(base: Any) -> list[str] | int:
    """Return what a model wants of a source: names, or their number."""
    names = getattr(base, "feature_names_in_", None)
    return int(getattr(base, "model", base).n_features_in_) if names is None else list(names)


def _without(record: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}
