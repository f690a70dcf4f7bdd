"""``run``: from a source of rows to predictions and events, batch by batch."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

from baryflow.runtime.loop import Loop, Sessions, attempt, resume_config
from baryflow.runtime.outbox import Outbox
from baryflow.runtime.session import (
    Event,
    Result,
    Rows,
    Session,
    SessionConfig,
    by_key,
    labels_by_key,
    rows_of,
)
from baryflow.runtime.store import Entry, Store
from baryflow.streams import Batch, Label, Rejected, Sink, Source
from baryflow.streams.base import AlarmCommand
from baryflow.streams.label_records import is_before, is_between, read_time
from baryflow.streams.labels import LabelledSource
from baryflow.validation import count_of

#: Labels that wait for their rows, at most.
MOST = 10_000
#: What the row of a label is known by: the kind (position, offset, time, range) and its value.
_Name = tuple[str, Any]
#: Labels without a row that a message lists, at most.
_LISTED = 5
#: Batches between two commits.
EVERY = 64


@dataclass
class Outputs:
    """Where results are written; None: nowhere.

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
        """Return the sinks that are given, by name."""
        return {name: sink for name, sink in vars(self).items() if sink is not None}


@dataclass
class Totals:
    """Counts of rows: ``read`` = ``used`` + ``quarantined``.

    Each row used is predicted, unless rows are raw signals: then windows of them are. From
    ``unlearned`` of the rows used the model failed to learn. ``labels``, and ``baseline`` rows known to
    be of one class, were used; they are no rows. ``alarms`` were raised.
    """

    batches: int = 0
    read: int = 0
    used: int = 0
    predicted: int = 0
    quarantined: int = 0
    position: int = 0  # of the last row that was read
    drifts: int = 0
    unlearned: int = 0
    labels: int = 0
    alarms: int = 0
    baseline: int = 0


class ExpectedLabels:
    """Labels of all targets, by what their rows are known by; of two of the same row the latest counts.

    At most `MOST` wait. Labels with a position or a time say when their row will come: they are read as
    far as there is room, and those of the nearest rows are kept. Other labels, which have an offset,
    never keep others from being read: the oldest of them are dropped.

    Parameters
    ----------
    labels : iterable of Label
    idle : int, default=0
        As in a snapshot.

    Attributes
    ----------
    idle : int
        Rows that have come since there is no room, none of them with a label.
    """

    def __init__(self, labels: Iterable[Label] = (), idle: int = 0) -> None:
        #: Target → kind and value of what the row is known by → label.
        self._labels: dict[str, dict[_Name, Label]] = {}
        self._unordered: dict[tuple[str, _Name], None] = {}  # the oldest first
        self._newest: tuple[str, _Name] | None = None  # since `remove_excess` was called
        self.idle = idle
        for label in labels:
            self.add(label)
        self._newest = None

    def __len__(self) -> int:
        return sum(map(len, self._labels.values()))

    def __iter__(self) -> Iterator[Label]:
        for key, labels in self._labels.items():
            yield from (one for name, one in labels.items() if (key, name) not in self._unordered)
        yield from (self._labels[key][name] for key, name in self._unordered)

    @property
    def room(self) -> int:
        """How many labels to read.

        The last one shows whether the next labels are needed sooner than those that wait.
        """
        return MOST - (len(self) - len(self._unordered))

    def add(self, label: Label) -> None:
        """Add a label."""
        name = _name(label)
        self._pop(label.key, name)  # so that the order is that of the latest labels
        self._labels.setdefault(label.key, {})[name] = label
        self._newest = label.key, name
        if _due(name) is None:
            self._unordered[label.key, name] = None

    def _pop(self, key: str, name: _Name) -> Label | None:
        labels = self._labels.get(key, {})
        label = labels.pop(name, None)
        self._unordered.pop((key, name), None)
        if label is not None and not labels:
            del self._labels[key]
        return label

    def remove_matched(self, key: str, rows: Rows) -> dict[int, Label]:
        """Return the labels of rows of a target that have come, by position.

        The label of a single row counts more than one from one time to another.
        """
        labels, found = self._labels.get(key), dict[int, Label]()
        if not labels:
            return found
        ranges = [label for label in labels.values() if label.until]
        for position, time, offset in zip(
            rows.positions.tolist(), rows.times, rows.offsets, strict=True
        ):
            names: list[_Name] = [("time", read_time(time)), ("offset", offset), ("position", position)]
            known = [label for label in ranges if is_between(time, label)][-1:]
            known += [label for name in names if (label := self._pop(key, name)) is not None]
            if known:
                found[position] = replace(known[-1], position=position)
        return found

    def remove_passed(self, position: int) -> list[Label]:
        """Remove and return labels of rows up to a position."""
        return self._remove(lambda label: label.position is not None and label.position <= position)

    def remove_earlier(self, key: str, time: str) -> list[Label]:
        """Remove and return labels of a target for rows up to a time."""
        last = read_time(time)
        return self._remove(
            lambda label: label.key == key and is_before(read_time(label.until or label.time), last)
        )

    def _remove(self, is_over: Callable[[Label], bool]) -> list[Label]:
        over = [label for label in self if is_over(label)]
        for label in over:
            self._pop(label.key, _name(label))
        return over

    def remove_excess(self) -> list[Label]:
        """Remove and return labels that are too many."""
        oldest = list(islice(self._unordered, max(0, len(self) - MOST)))
        dropped = [self._pop(*one) for one in oldest]
        if self.room <= 0 and self._newest is not None and self._newest not in self._unordered:
            ahead = self._farthest(1 - self.room)
            if ahead == [self._newest]:
                ahead = []  # labels come in the order of their rows: the next ones have time
            dropped += [self._pop(*one) for one in ahead]
        self._newest = None
        return [label for label in dropped if label is not None]

    def pass_rows(self, n: int, *, found: bool) -> list[Label]:
        """Count rows, and whether labels were found for them; remove and return a label that blocks.

        If as many rows have come as labels wait, and none of the labels was theirs, one of them makes
        room for others.
        """
        self.idle = 0 if found or self.room > 0 else self.idle + n
        if self.idle < MOST:
            return []
        self.idle = 0
        return [label for one in self._farthest(1) if (label := self._pop(*one)) is not None]

    def _farthest(self, n: int) -> list[tuple[str, _Name]]:
        """Return the names of the labels whose rows come last.

        Positions and times cannot be compared: those of the more frequent kind are meant.
        """
        names = [(key, name) for key, labels in self._labels.items() for name in labels]
        due = [one for one in names if _due(one[1]) is not None]
        by_position = [one for one in due if one[1][0] == "position"]
        by_time = [one for one in due if one[1][0] != "position"]
        most = max(by_position, by_time, key=len)
        return heapq.nlargest(n, most, key=lambda one: _due(one[1]) or 0.0)


@dataclass
class Runner:
    """Follows a stream of one target, or of many targets by key, each with a model of its own.

    Parameters
    ----------
    config : SessionConfig
        The model, and how targets are followed with it.
    source : Source
    outputs : Outputs
    read_size : int, optional
        Rows to read at a time, at most; default: the batch size.
    timeout : float, optional
        Seconds after its first row after which an incomplete batch is processed.
    store : Store, optional
        Without it nothing survives the process.
    every : int
        Batches between two commits.
    listen : callable, optional
        Called with every :class:`Event`.
    in_memory : int, optional
        Targets in memory, at most; default: as many as fit into half a gigabyte.
    keyed : bool
        Write a key into every record, even if it is empty: all rows of a table have the same columns.
    alarms : Outbox, optional
        Sends a record for every event of an alarm. After a kill some may be sent again, unchanged.

    Attributes
    ----------
    totals : Totals
    sessions : Sessions
        A stream without keys is the target ``""``.
    """

    config: SessionConfig
    source: Source
    outputs: Outputs = field(default_factory=Outputs)
    read_size: int | None = None
    timeout: float | None = None
    store: Store | None = None
    every: int = EVERY
    listen: Callable[[Event], None] | None = None
    in_memory: int | None = None
    keyed: bool = False
    alarms: Outbox | None = None
    totals: Totals = field(default_factory=Totals, init=False)
    sessions: Sessions = field(init=False)
    owner: str = field(default="run", init=False)
    _expected: ExpectedLabels = field(default_factory=ExpectedLabels, init=False)
    _loop: Loop = field(init=False)
    _cursor: dict[str, Any] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        store = Store(None) if self.store is None else self.store
        self.sessions = Sessions(self.config, store, self.in_memory)
        self._loop = Loop(self, store, self.outputs.named(), self.sessions)
        if isinstance(self.source, LabelledSource):
            self.source.room = lambda: self._expected.room

    @property
    def session(self) -> Session:
        """The session of a stream without keys."""
        return self.sessions.read("")

    def run(self, stop: Callable[[], bool] = lambda: False) -> Totals:
        """Resume from the store, if there is one, and follow until the source ends.

        Parameters
        ----------
        stop : callable
            Called before every batch; True ends the run.

        Returns
        -------
        Totals

        Raises
        ------
        OSError
            If something cannot be written, for instance because the disk is full. With a store
            nothing is lost, and the same call resumes.
        """
        cursor = self.recover()
        if cursor is not None:
            self.source.seek(cursor)
        ended = self._loop.follow(
            self.source,
            stop,
            read_size=self.read_size or self.config.batch_size,
            timeout=self.timeout,
        )
        if ended:
            self._learn_rest()
            self._report_unused()
        self.save()
        return self.totals

    def handle(self, batch: Batch) -> None:
        """Process a batch of a source that is shared with other runners."""
        if batch:
            self._loop.handle(Entry(batch), self.source)

    def save(self) -> None:
        """Commit, if there is a store, and bring all outputs to disk."""
        self._loop.commit()
        for sink in self.outputs.named().values():
            sink.flush()

    def close(self) -> None:
        """Write what has become of alarms, and delete temporary files."""
        self._loop.flush()
        if self.store is None:
            self._loop.store.close()

    def is_commit_due(self) -> bool:
        """Return whether to commit after the last batch."""
        return self.totals.batches % self.every == 0

    # -- one batch -------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> Result:
        """Predict the rows of a batch, learn from them, then learn its labels."""
        result, waiting, batch = Result(), len(self._expected), entry.batch
        for key, rows in by_key(batch):
            # Each target by itself: models of others have learned from their rows already.
            session, labels = self.sessions.change(key), self._expected.remove_matched(key, rows)
            found = attempt(partial(session.apply, rows, labels), partial(_reject, rows))
            result.add(self._of_target(key, found))
        result.records.sort(key=lambda record: record["position"])  # rows of targets may alternate
        were_expected = len(self._expected) < waiting
        for key, late in labels_by_key(batch.labels).items():
            result.add(self._of_target(key, self._learn_labels(key, late)))
        for command in batch.commands:
            result.add(self._of_target(command.key, self._command(command)))
        passed = self._refuse_passed(batch)
        excess = self._expected.remove_excess()
        moved_on = were_expected or bool(passed.refused)
        excess += self._expected.pass_rows(len(batch.rows), found=moved_on)
        return result.add(passed).add(self._refuse_excess(excess))

    def _learn_labels(self, key: str, labels: list[Label]) -> Result:
        """Learn labels of rows that have come, and expect those of others."""
        refuse = partial(_refuse, labels, self.totals.position)
        if self.keyed and not key:
            return refuse("it has no key: rows have one")
        if key in self.sessions:
            session = self.sessions.change(key)
            result = attempt(partial(session.label, labels, expecting=True), refuse)
        else:
            coming = [label for label in labels if self._may_come(label)]
            reason = f"no rows of {key!r} have come" if key else "no rows have come"
            orphans = [label for label in labels if label not in coming]
            result = _refuse(orphans, self.totals.position, reason)
            result.expected = coming
        before = len(self._expected)
        for label in result.expected:
            self._expected.add(label)
        if before < MOST <= len(self._expected):
            message = f"{before:,} labels wait for rows that have not come; more are read later"
            result.events.append(Event("warning", self.totals.position, message))
        return result

    def _command(self, command: AlarmCommand) -> Result:
        """Carry out a command about an alarm of a target."""
        if command.key in self.sessions or not (self.keyed or command.key):
            return self.sessions.change(command.key).command([command])
        result = Result()
        reason = (
            f"no rows of {command.key!r} have come" if command.key else "it has no key: rows have one"
        )
        result.refuse_command(command, reason, self.totals.position)
        return result

    def _may_come(self, label: Label) -> bool:
        """Return whether the row of a label may come, if none of its target has."""
        if label.position is not None:
            return label.position > self.totals.position
        return bool(label.time or label.offset)

    def _refuse_passed(self, batch: Batch) -> Result:
        """Refuse labels of rows that cannot come any more: their positions or times have passed."""
        result = Result()
        if not len(self._expected):
            return result
        positions = [*batch.positions.tolist(), *(row.position for row in batch.rejected)]
        last = max(positions, default=0)
        for label in self._expected.remove_passed(last):
            result.refuse(label, f"row {label.position} was not predicted", last)
        if len(self._expected) >= MOST:  # rows may be out of order, so only if need be
            for key, rows in by_key(batch):
                for label in self._expected.remove_earlier(key, rows.times[-1]):
                    result.refuse(label, f"no row has the time {label.time!r}", last)
        return result

    def _refuse_excess(self, labels: list[Label]) -> Result:
        """Refuse labels that would wait for their rows, with one event for all of them."""
        result = Result()
        if labels:
            reason = f"more than {MOST:,} labels wait for rows that have not come"
            result.refused = [(label, reason) for label in labels]
            message = f"{count_of(len(labels), 'label')} not used: {reason}"
            details = {"labels": len(labels), "reason": reason}
            result.events.append(Event("warning", self.totals.position, message, details))
        return result

    def quarantine(self, entry: Entry, reason: str) -> Result:
        """Quarantine all rows of a batch, and refuse its labels and commands."""
        position, batch = self.totals.position, entry.batch
        result = _reject(rows_of(batch), reason).add(_refuse(batch.labels, position, reason))
        for command in batch.commands:
            result.refuse_command(command, reason, position)
        return result

    def _of_target(self, key: str, result: Result) -> Result:
        return result.of_target(key) if key or self.keyed else result

    def finish(self, entry: Entry, result: Result) -> None:
        """Count a batch, and write its result."""
        totals, batch = self.totals, entry.batch
        for notice in batch.notices:
            self._emit(Event("warning", totals.position, notice))
        for row in batch.rejected:
            totals.position = max(totals.position, row.position)
            self._write_rejected(row)
            self._emit(Event.rejected(row, totals.position))
        totals.quarantined += len(batch.rejected)
        totals.read += len(batch.rejected) + len(batch.rows)
        totals.used += len(batch.rows)
        if len(batch.rows):
            totals.position = max(totals.position, int(batch.positions[-1]))
        self._write(result)
        totals.batches += 1
        self._cursor = batch.cursor
        self._send_alarms(entry, result)
        if self.store is not None and self.is_commit_due():
            batches = count_of(totals.batches, "batch", "batches")
            message = f"{batches}, {count_of(totals.read, 'row')} on disk"
            self._emit(Event("checkpoint", totals.position, message, {"batches": totals.batches}))

    def _learn_rest(self) -> None:
        """Learn from incomplete batches at the end of the source."""
        for key in self.sessions:
            if len(self.sessions.read(key).waiting):
                session = self.sessions.change(key)
                self._write(self._of_target(key, session.learn(self.totals.position)))
                self._loop.make_room()

    def _report_unused(self) -> None:
        """Say which labels found no row; they wait for more rows of a later run."""
        labels = [label for label in self._expected if not label.until]
        if labels and self.listen is not None:  # not an output: the same end may come again
            names = [
                f"row {label.position}" if label.position is not None else label.offset or label.time
                for label in labels[:_LISTED]
            ]
            more = f" and {len(labels) - _LISTED:,} more" if len(labels) > _LISTED else ""
            message = f"{count_of(len(labels), 'label')} without a row: {', '.join(names)}{more}"
            self.listen(Event("warning", self.totals.position, message, {"labels": len(labels)}))

    def _write(self, result: Result) -> None:
        self.totals.predicted += len(result.records)
        self.totals.used -= len(result.rejected)
        self.totals.quarantined += len(result.rejected)
        self.totals.unlearned += result.unlearned
        self.totals.labels += result.learned + result.pending - result.baseline
        self.totals.baseline += result.baseline
        for row in result.rejected:
            self._write_rejected(row)
        if self.outputs.predictions is not None and result.records:
            self.outputs.predictions.write(result.records)
        for event in result.events:
            self.totals.drifts += event.kind == "drift"
            self.totals.alarms += event.details.get("change") == "raised"
            self._emit(event)

    def _write_rejected(self, row: Rejected) -> None:
        if self.outputs.quarantine is not None:
            record = asdict(row)
            if not row.offset:
                del record["offset"]
            self.outputs.quarantine.write([record])

    def _emit(self, event: Event) -> None:
        if self.outputs.events is not None:
            self.outputs.events.write([event.record()])
        if self.listen is not None and not self._loop.replaying:
            self.listen(event)

    def _send_alarms(self, entry: Entry, result: Result) -> None:
        if self.alarms is not None:
            events = [event.record() for event in result.events if event.kind == "alarm"]
            self.alarms.send(self._loop.post(entry, "alarms", events), self._loop.note)

    # -- resuming --------------------------------------------------------------------------------

    def recover(self) -> dict[str, Any] | None:
        """Resume from the store, if there is one.

        Returns
        -------
        dict or None
            The cursor at which the source resumes; None: its beginning.
        """
        if self.store is None:
            return None
        self.config, warning = resume_config(self.config, self.store)
        self.sessions.config = self.config
        if warning and self.listen is not None:  # not an output: those are as if never interrupted
            self.listen(Event("warning", self.totals.position, warning))
        if self.alarms is not None:
            self.alarms.send(self._loop.unsent("alarms"), self._loop.note)
        self._loop.recover()
        return self._cursor

    def state(self) -> dict[str, Any]:
        """Return cursor, counts, and labels of rows that have not come yet."""
        return {
            "cursor": self._cursor,
            "counts": asdict(self.totals),
            "labels": [to_plain(label) for label in self._expected],
            "labels_idle": self._expected.idle,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a state."""
        self._cursor, self.totals = state["cursor"], Totals(**state["counts"])
        self._expected = ExpectedLabels(map(from_plain, state["labels"]), state["labels_idle"])


def _reject(rows: Rows, reason: str) -> Result:
    result = Result()
    result.reject(rows, reason)
    return result


def _refuse(labels: list[Label], position: int, reason: str) -> Result:
    result = Result()
    for label in labels:
        result.refuse(label, reason, position)
    return result


def to_plain(label: Label) -> dict[str, Any]:
    """Return a label as plain values, as in JSON: None stands for a missing value of its row."""
    found = asdict(label)
    if label.values is not None:
        found["values"] = [None if math.isnan(value) else value for value in label.values]
    return found


def from_plain(found: Mapping[str, Any]) -> Label:
    """Return the label that :func:`to_plain` was given."""
    values = found.get("values")
    if values is not None:
        values = [math.nan if value is None else float(value) for value in values]
    return Label(**{**found, "values": values})


def _name(label: Label) -> _Name:
    if label.until:
        return "range", (read_time(label.time), read_time(label.until))
    if label.position is not None:
        return "position", label.position
    return ("offset", label.offset) if label.offset else ("time", read_time(label.time))


def _due(name: _Name) -> float | None:
    """Return the position or time of the row of a label, None if it does not say when the row comes."""
    value = name[1][1] if name[0] == "range" else name[1]
    return float(value) if isinstance(value, int | float) else None
