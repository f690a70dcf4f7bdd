"""Follow one target of a backfill, epoch by epoch: a state and rows give predictions and a state."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from baryflow.distributed.files import Files, numbered
from baryflow.distributed.manifest import NO_TARGET, encode_targets, named_by_folder
from baryflow.distributed.output import (
    BackfillPlan,
    Job,
    Summary,
    TargetSnapshot,
    latest_state,
    states,
    target_folder,
    write_events,
    write_predictions,
    write_quarantine,
)
from baryflow.distributed.parquet import Folder, Partition
from baryflow.estimators._unknown import list_answers
from baryflow.exceptions import BaryflowError, FileFormatError
from baryflow.runtime import Event, Rows, Session
from baryflow.runtime.session import Result, describe_error
from baryflow.streams.base import RAW_LENGTH, Rejected
from baryflow.streams.columnar import arrow_values, as_block
from baryflow.streams.decoding import reject_invalid, valid_text
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

    @classmethod
    def join(cls, slices: list[Slice]) -> Slice:
        """Return consecutive slices as one."""
        rows = slices[0].rows.plus(*(one.rows for one in slices[1:]))
        rejected = [row for one in slices for row in one.rejected]
        return cls(rows, rejected, slices[0].start, slices[-1].stop)


@dataclass
class Target:
    """A target while a worker follows it."""

    job: Job
    name: str
    ends: list[int]  # number of its rows up to the end of each manifest
    counts: Summary = field(default_factory=Summary)  # as of the last finished epoch
    epoch: int = 0  # that comes next
    failure: str = ""  # why the target cannot be followed further
    _buffer: list[Slice] = field(default_factory=list)  # rows of the next epoch

    @property
    def has_work(self) -> bool:
        """Whether there are epochs left that can be done."""
        return not self.failure and self.counts.rows < self.ends[-1]

    def epoch_end(self, row: int) -> int:
        """Return where the epoch of a row ends: when it is full, or at the end of its manifest."""
        number = bisect_right(self.ends, row)
        start, size = self.ends[number - 1] if number else 0, self.job.plan.epoch_rows
        return min(start + ((row - start) // size + 1) * size, self.ends[number])

    def load(self) -> None:
        """Continue after the last finished epoch."""
        self._find_state()
        if self.has_work:
            for files in self._folders():
                if files is not None:
                    files.delete_unfinished()

    def add(self, rows: Slice) -> bool:
        """Buffer rows of one epoch, and process it when it is complete; return whether it is."""
        self._buffer.append(rows)
        if rows.stop < self.epoch_end(rows.start):
            return False
        epoch, self._buffer = Slice.join(self._buffer), []
        session = self._resume()
        if self.counts.rows < epoch.stop:  # otherwise a worker that was believed dead has done it
            if self.counts.rows != epoch.start:
                raise FileFormatError("its last state has disappeared: repeat the call")
            self._process(session, epoch)
        return True

    def fail(self, error: BaseException) -> None:
        """Stop following the target, with the reason; finished epochs stay."""
        message = str(error) or type(error).__name__
        if not isinstance(error, OSError | ValueError):
            message = f"{type(error).__name__}: {message}"
        self.failure, self._buffer = message, []

    def _find_state(self) -> TargetSnapshot | None:
        """Return the last state, perhaps one of another worker with the same group."""
        found = latest_state(self.job.state, self.name)
        self.epoch, self.counts = (0, Summary()) if found is None else (found[0] + 1, found[1].counts)
        return None if found is None else found[1]

    def _resume(self) -> Session | None:
        """Return a session in the last state; rows that name no target have none."""
        found = self._find_state()
        if self.name == NO_TARGET:
            return None
        session = None if found is None else found.session
        return self.job.config.begin() if session is None else self.job.config.resume(session)

    def _process(self, session: Session | None, epoch: Slice) -> None:
        """Predict and learn from the rows of an epoch, and write the results.

        Rows on which the model fails are quarantined like rows that cannot be read. If the session fails
        as a whole, it would fail again in every later call. The epoch is quarantined then, and the
        session continues from the state before it.
        """
        result, name = Result(), numbered(self.epoch)
        if session is not None:
            try:
                result = session.apply(epoch.rows)
            except (BaryflowError, OSError, MemoryError):  # not the fault of the rows
                raise
            except Exception as error:
                session = self._resume()
                result.reject(epoch.rows, f"processing its epoch failed: {describe_error(error)}")
        rejected = sorted([*epoch.rejected, *result.rejected], key=lambda row: row.position)
        n_rows = epoch.stop - epoch.start
        counts = self.counts + Summary(
            rows=n_rows,
            used=n_rows - len(rejected),
            predicted=len(result.records),
            quarantined=len(rejected),
            drifts=sum(event.kind == "drift" for event in result.events),
            unlearned=result.unlearned,
        )
        snapshots, predictions, quarantine, events = self._folders()
        if result.records:
            labels = list_answers(self.job.config.model).tolist()
            write_predictions(predictions, f"{name}.parquet", self.name, result.records, labels)
        if rejected:
            write_quarantine(quarantine, f"{name}.ndjson", self.name, rejected)
        if events is not None and (happened := self._events(result.events, epoch.rejected)):
            write_events(events, f"{name}.ndjson", happened)
        # Write the state last: if it exists, so do all other files of the epoch.
        after = None if session is None else session.state()
        snapshots.save_next(self.epoch, TargetSnapshot(self.name, counts, after), _STATES_KEPT)
        self.epoch, self.counts = self.epoch + 1, counts

    def _events(self, events: list[Event], rejected: list[Rejected]) -> list[Event]:
        """Return all events of an epoch in the order of the rows, with the name of the target."""
        unreadable = [Event.rejected(row, row.position) for row in rejected]
        ordered = sorted([*unreadable, *events], key=lambda event: event.position)
        return [event.of_target(self.name) for event in ordered]

    def _folders(self) -> tuple[Files, Files, Files, Files | None]:
        """Return the folders of the target's states, predictions, quarantine and events."""
        job, folder = self.job, target_folder(self.name)
        nameless = self.name == NO_TARGET
        quarantine = job.output / "_quarantine" / ("no-target" if nameless else folder)
        events = None if job.events is None or nameless else job.events / folder
        return states(job.state, self.name), job.output / folder, quarantine, events


# -- reading the rows of several targets -----------------------------------------------------------


def read_slices(
    folder: Folder,
    partition: Partition,
    rows_before: int,
    plan: BackfillPlan,
    targets: dict[str, Target],
    seen: dict[str, int],
) -> Iterator[tuple[Target, Slice]]:
    """Yield the rows of some targets in a partition, in order, without those that are done.

    Each slice is of one epoch. `rows_before` are those of the file before the partition. `seen` counts
    the rows of each target in earlier partitions, and is updated.
    """
    for batch in folder.batches(partition, [plan.key, *_texts(plan), *plan.columns]):
        selected: list[tuple[Target, int, Integers]] = []
        for name, rows in _find_rows(batch, partition, plan.key, targets):
            target, before = targets[name], seen[name]
            seen[name] = end = before + len(rows)
            start = max(before, target.counts.rows)
            while start < end:
                stop = min(target.epoch_end(start), end)
                selected.append((target, start, rows[start - before : stop - before]))
                start = stop
        if selected:
            yield from _make_slices(batch, partition, rows_before, plan, selected)
        rows_before += batch.num_rows


def _texts(plan: BackfillPlan) -> list[str]:
    return [] if plan.time is None else [plan.time]


def _find_rows(
    batch: Any, partition: Partition, key: str, targets: dict[str, Target]
) -> Iterator[tuple[str, Integers]]:
    """Yield the wanted targets in a batch, with the numbers of their rows."""
    if key in partition.folders:
        yield named_by_folder(partition, key), np.arange(batch.num_rows)
        return
    names, codes = encode_targets(batch.column(key))
    # Different spellings of a name, for example with spaces around it, are one target.
    wanted = {name: number for number, name in enumerate(dict.fromkeys(names)) if name in targets}
    numbers = np.array([wanted.get(name, -1) for name in names])[codes]
    order = np.argsort(numbers, kind="stable")
    starts, ends = (
        np.searchsorted(numbers[order], list(wanted.values()), side=side) for side in ("left", "right")
    )
    for name, start, end in zip(wanted, starts.tolist(), ends.tolist(), strict=True):
        if start < end:
            yield name, order[start:end]


def _make_slices(
    batch: Any,
    partition: Partition,
    rows_before: int,
    plan: BackfillPlan,
    selected: list[tuple[Target, int, Integers]],
) -> Iterator[tuple[Target, Slice]]:
    # Convert the cells of all targets at once, and only of rows that are needed.
    rows = batch.take(np.concatenate([some for _, _, some in selected]))
    folders, texts = partition.folders, _texts(plan)
    values = {name: arrow_values(rows.column(name)) for name in rows.schema.names}
    values |= {name: [folders[name]] * rows.num_rows for name in texts if name in folders}
    block = as_block(values, plan.columns, texts, np.arange(rows.num_rows))
    usable, rejected = reject_invalid(block, plan.columns)
    times = block.texts[0] if texts else [""] * rows.num_rows
    places, first = [row.position for row in rejected], 0
    for target, start, some in selected:
        stop = first + len(some)
        if target.name == NO_TARGET:
            good, bad = Rows.none(len(plan.columns)), []
            reason = f"column {plan.key!r}, which names the target, is empty in {partition.path}."
            for row, number in enumerate(some.tolist(), first):
                raw = valid_text(",".join(str(values[name][row]) for name in plan.columns))
                bad.append(Rejected(rows_before + number + 1, reason, raw[:RAW_LENGTH]))
        else:
            mine = usable[np.searchsorted(usable, first) : np.searchsorted(usable, stop)]
            bad = [
                replace(row, position=row.position - first + start + 1)
                for row in rejected[bisect_left(places, first) : bisect_left(places, stop)]
            ]
            good = Rows(
                np.ascontiguousarray(block.numbers[mine]),
                mine - first + start + 1,
                [times[row] for row in mine],
                [""] * len(mine),
            )
        yield target, Slice(good, bad, start, start + len(some))
        first = stop
