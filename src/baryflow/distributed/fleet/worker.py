"""Follow one target of a fleet, epoch by epoch: from a state and rows to predictions and a new state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from baryflow.distributed.fleet.job import (
    BackfillPlan,
    Counts,
    JobContext,
    TargetSnapshot,
    target_folder,
    write_events,
    write_predictions,
    write_quarantine,
)
from baryflow.distributed.fleet.manifest import encode_targets
from baryflow.distributed.parquet import Folder, Partition
from baryflow.distributed.store import Store, numbered
from baryflow.estimators._unknown import list_answers
from baryflow.exceptions import BaryflowError, FileFormatError
from baryflow.runtime import Event, Rows, Session
from baryflow.runtime.session import Result, describe_error
from baryflow.streams.base import Rejected
from baryflow.streams.blocks import reject_invalid
from baryflow.streams.columnar import arrow_values, as_block
from baryflow.validation import Integers

#: Number of states of a target that are kept: if the last is damaged, the one before is used.
_STATES_KEPT = 2


@dataclass(frozen=True, eq=False)
class Slice:
    """Consecutive rows of a target, usable and rejected: those after row `start` up to row `stop`."""

    rows: Rows
    rejected: list[Rejected]
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def split(self, at: int) -> tuple[Slice, Slice]:
        """Return the rows up to `at`, and those after it."""
        usable = int(np.searchsorted(self.rows.positions, at, side="right"))
        early = [row for row in self.rejected if row.position <= at]
        late = self.rejected[len(early) :]
        return (
            Slice(self.rows.pick(slice(0, usable)), early, self.start, at),
            Slice(self.rows.pick(slice(usable, None)), late, at, self.stop),
        )

    @classmethod
    def join(cls, slices: list[Slice]) -> Slice:
        """Return consecutive slices as one."""
        rows = Rows(
            np.concatenate([one.rows.values for one in slices]),
            np.concatenate([one.rows.positions for one in slices]),
            [time for one in slices for time in one.rows.times],
            [offset for one in slices for offset in one.rows.offsets],
        )
        rejected = [row for one in slices for row in one.rejected]
        return cls(rows, rejected, slices[0].start, slices[-1].stop)


@dataclass
class Target:
    """A target while a worker follows it."""

    context: JobContext
    name: str
    epochs: list[tuple[int, int]]  # start and stop, in rows of the target
    counts: Counts = field(default_factory=Counts)  # as of the last finished epoch
    epochs_done: int = 0
    buffered: list[Slice] = field(default_factory=list)  # read, but not a complete epoch yet
    failure: str = ""  # why the target cannot be followed further

    def load_progress(self) -> None:
        """Find out which epochs are finished: those with a readable state."""
        found = self.context.latest_state(self.name)
        if found is not None:
            self.epochs_done, self.counts = found[0] + 1, found[1].counts
            last = self.epochs[self.epochs_done - 1 : self.epochs_done]
            if [self.counts.rows] != [stop for _, stop in last]:
                raise FileFormatError(
                    f"cannot resume: the state of {self.name!r} belongs to other files; use another "
                    "state folder"
                )
        if self.has_work:
            for store in self._stores():
                if store is not None:
                    store.delete_unfinished()

    @property
    def has_work(self) -> bool:
        """Whether there are epochs left that can be done."""
        return not self.failure and self.epochs_done < len(self.epochs)

    @property
    def rows_read(self) -> int:
        """Number of rows that need not be read again."""
        return self.buffered[-1].stop if self.buffered else self.counts.rows

    def add(self, rows: Slice) -> None:
        """Buffer the next rows until their epoch is complete.

        Small slices are joined, because a thousand slices of one row take ten times the memory of one
        slice of a thousand rows. Each is kept more than twice as large as the next: there are few, and
        each row is copied a few times only.
        """
        self.buffered.append(rows)
        while len(self.buffered) > 1 and len(self.buffered[-2]) <= 2 * len(self.buffered[-1]):
            self.buffered[-2:] = [Slice.join(self.buffered[-2:])]

    def advance(self) -> Iterator[int]:
        """Process all epochs whose rows are buffered; yield the number of each when it is finished."""
        if not self.buffered or self.buffered[-1].stop < self.epochs[self.epochs_done][1]:
            return
        session, rest = self._resume(), Slice.join(self.buffered)
        _, rest = rest.split(min(max(rest.start, self.counts.rows), rest.stop))
        while self.epochs_done < len(self.epochs) and self.epochs[self.epochs_done][1] <= rest.stop:
            epoch, rest = rest.split(self.epochs[self.epochs_done][1])
            session = self._process(session, epoch)
            yield self.epochs_done - 1
        # Copy the rest: a view would keep all processed rows in memory.
        self.buffered = [Slice.join([rest])] if len(rest) else []

    def fail(self, error: BaseException) -> None:
        """Stop following the target, with the reason; finished epochs stay."""
        message = str(error) or type(error).__name__
        if not isinstance(error, OSError | ValueError):
            message = f"{type(error).__name__}: {message}"
        self.failure = message
        self.buffered.clear()

    def _process(self, session: Session, epoch: Slice) -> Session:
        """Predict and learn from the rows of an epoch, write the results, and return the session.

        Rows on which the model fails are quarantined like rows that cannot be read. If the session fails
        as a whole, it would fail again in every later call. The epoch is quarantined then, and the
        session continues from the state before it.
        """
        try:
            result = session.take(epoch.rows)
        except (BaryflowError, OSError, MemoryError):  # not the fault of the rows
            raise
        except Exception as error:
            number, session, result = self.epochs_done, self._resume(), Result()
            if self.epochs_done != number:  # another worker is ahead
                raise
            result.reject(epoch.rows, f"processing its epoch failed: {describe_error(error)}")
        name = numbered(self.epochs_done)
        rejected = sorted([*epoch.rejected, *result.rejected], key=lambda row: row.position)
        counts = self.counts + Counts(
            rows=len(epoch),
            used=len(epoch) - len(rejected),
            predicted=len(result.records),
            quarantined=len(rejected),
            drifts=sum(event.kind == "drift" for event in result.events),
            unlearned=result.unlearned,
        )
        states, predictions, quarantine, events = self._stores()
        if result.records:
            labels = list_answers(self.context.config().model).tolist()
            write_predictions(predictions, f"{name}.parquet", self.name, result.records, labels)
        if rejected:
            write_quarantine(quarantine, f"{name}.ndjson", self.name, rejected)
        if events is not None and (happened := self._events(result.events, epoch.rejected)):
            write_events(events, f"{name}.ndjson", happened)
        # Write the state last: if it exists, so do all other files of the epoch.
        states.save(TargetSnapshot(self.name, counts, session.state()), f"{name}.bary")
        if self.epochs_done >= _STATES_KEPT:
            states.delete(f"{numbered(self.epochs_done - _STATES_KEPT)}.bary")
        self.epochs_done, self.counts = self.epochs_done + 1, counts
        return session

    def _events(self, events: list[Event], rejected: list[Rejected]) -> list[Event]:
        """Return all events of an epoch in the order of the rows, with the name of the target."""
        unreadable = [Event.rejected(row, row.position) for row in rejected]
        ordered = sorted([*unreadable, *events], key=lambda event: event.position)
        return [event.of_target(self.name) for event in ordered]

    def _stores(self) -> tuple[Store, Store, Store, Store | None]:
        """Return the folders of the target's states, predictions, quarantine and events."""
        context, folder = self.context, target_folder(self.name)
        quarantine = context.output / "_quarantine" / folder
        events = None if context.events is None else context.events / folder
        return context.states(self.name), context.output / folder, quarantine, events

    def _resume(self) -> Session:
        config = self.context.config()
        if not self.epochs_done:
            return config.begin()
        last = f"{numbered(self.epochs_done - 1)}.bary"
        found = self.context.states(self.name).load(TargetSnapshot, last)
        if found is None:
            # A worker that was believed dead still runs, and is ahead: continue from its state.
            latest = self.context.latest_state(self.name)
            if latest is None or latest[0] < self.epochs_done:
                raise FileFormatError(
                    f"the state of epoch {self.epochs_done - 1} has disappeared: repeat the call"
                )
            self.epochs_done, found = latest[0] + 1, latest[1]
            self.counts = found.counts
        return config.resume(found.session)


# -- reading the rows of several targets -------------------------------------------------------------


def read_slices(
    folder: Folder,
    partition: Partition,
    plan: BackfillPlan,
    targets: dict[str, Target],
    seen: dict[str, int],
) -> Iterator[tuple[Target, Slice]]:
    """Yield the rows of some targets in a partition, in order, without those they have read already.

    `seen` counts the rows of each target in earlier partitions, and is updated.
    """
    texts = [] if plan.time is None else [plan.time]
    for batch in folder.batches(partition, [plan.key, *texts, *plan.columns]):
        selected: list[tuple[Target, int, Integers]] = []
        for name, rows in _find_rows(batch, partition, plan.key, targets):
            start = seen[name]
            seen[name] += len(rows)
            skipped = max(0, min(targets[name].rows_read - start, len(rows)))
            if skipped < len(rows):
                selected.append((targets[name], start + skipped, rows[skipped:]))
        if selected:
            # Convert the cells of all targets at once, and only of rows that are needed.
            needed = batch.take(np.concatenate([rows for _, _, rows in selected]))
            yield from _split_by_target(needed, partition, plan, texts, selected)


def _find_rows(
    batch: Any, partition: Partition, key: str, targets: dict[str, Target]
) -> Iterator[tuple[str, Integers]]:
    """Yield the wanted targets in a batch, with the numbers of their rows."""
    if key in partition.folders:
        yield partition.folders[key], np.arange(batch.num_rows)
        return
    names, codes = encode_targets(batch.column(key))
    # Different spellings of a name, for example with spaces around it, are one target.
    wanted = {name: number for number, name in enumerate(dict.fromkeys(names)) if name in targets}
    numbers = np.array([wanted.get(name, -1) for name in names])[codes]
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], list(wanted.values()), side="left")
    ends = np.searchsorted(numbers[order], list(wanted.values()), side="right")
    for name, start, end in zip(wanted, starts.tolist(), ends.tolist(), strict=True):
        if start < end:
            yield name, order[start:end]


def _split_by_target(
    rows: Any,
    partition: Partition,
    plan: BackfillPlan,
    texts: list[str],
    selected: list[tuple[Target, int, Integers]],
) -> Iterator[tuple[Target, Slice]]:
    folders = partition.folders
    from_folders = {name: [folders[name]] * rows.num_rows for name in texts if name in folders}
    values = {name: arrow_values(rows.column(name)) for name in rows.schema.names} | from_folders
    block = as_block(values, plan.columns, texts, np.arange(rows.num_rows), {})
    usable, rejected = reject_invalid(block, plan.columns)
    times = block.texts[0] if texts else [""] * rows.num_rows
    start, next_rejected = 0, 0
    for target, before, which in selected:
        stop = start + len(which)
        mine = usable[np.searchsorted(usable, start) : np.searchsorted(usable, stop)]
        bad = []
        while next_rejected < len(rejected) and rejected[next_rejected].position < stop:
            row = rejected[next_rejected]
            bad.append(replace(row, position=row.position - start + before + 1))
            next_rejected += 1
        good = Rows(
            np.ascontiguousarray(block.numbers[mine]),
            mine - start + before + 1,
            [times[row] for row in mine],
            [""] * len(mine),
        )
        yield target, Slice(good, bad, before, before + len(which))
        start = stop
