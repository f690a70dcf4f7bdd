"""One target of a fleet, epoch by epoch: from a state and rows to predictions and the next state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from baryflow import container
from baryflow.distributed.fleet.manifest import folder_of, numbered
from baryflow.distributed.fleet.tables import write_events, write_predictions, write_quarantine
from baryflow.distributed.models import remember
from baryflow.distributed.store import Store
from baryflow.estimators._unknown import list_answers
from baryflow.exceptions import FileFormatError
from baryflow.persistence import open_content
from baryflow.runtime import Event, Rows, Session, SessionConfig
from baryflow.runtime.session import SessionState
from baryflow.streams.base import Rejected

#: States of a target that are kept: should the last be damaged, there is the one before.
_KEPT = 2


@dataclass(frozen=True)
class Counts:
    """Rows of a target so far: ``rows`` is ``used`` and ``quarantined`` together."""

    rows: int = 0
    used: int = 0
    predicted: int = 0
    quarantined: int = 0
    drifts: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What is in a state file: all that is known of a target after an epoch."""

    key: str
    counts: Counts
    state: SessionState


@dataclass(frozen=True)
class Plan:
    """What a fleet's folder of states was begun with; later calls must want the same.

    Attributes
    ----------
    source, output : str
        Where rows come from, and predictions go to.
    key : str
        Column that names the target.
    time : str or None
        Column that is repeated beside predictions.
    columns : list of str
        Those that the model wants.
    batch_size : int
    drift : str
    epoch_rows : int
    events : str or None
        Where events go to, if they are wanted.
    """

    source: str
    output: str
    key: str
    time: str | None
    columns: list[str]
    batch_size: int
    drift: str
    epoch_rows: int
    events: str | None = None


@dataclass(frozen=True)
class JobContext:
    """Where everything is that concerns a fleet. It travels to workers; models do not.

    Attributes
    ----------
    source, state, output : Store
    mark : str
        Of the model: workers that know it need not read it again.
    events : Store or None
        None: nobody wants them.
    """

    source: Store
    state: Store
    output: Store
    mark: str
    events: Store | None = None

    @cached_property
    def plan(self) -> Plan:
        """What was wanted in the first call."""
        found = self.state.load(Plan, "plan.bary")
        if found is None:
            raise FileFormatError(f"{self.state.url}/plan.bary is missing or damaged: begin anew")
        return found  # type: ignore[no-any-return]

    def config(self) -> SessionConfig:
        """Return how targets are followed, reading the model once in each process."""
        return remember(self.mark, self.read_recipe)  # type: ignore[no-any-return]

    def read_recipe(self) -> SessionConfig:
        """Return it anew, from the model that the fleet was begun with."""
        content = self.state.read("model.bary")
        if content is None:
            raise FileFormatError(f"{self.state.url}/model.bary is missing: begin anew")
        base = open_content(container.from_bytes(content, name="model.bary"))
        return SessionConfig(base, self.plan.batch_size, self.plan.drift)

    def states(self, key: str) -> Store:
        """Return where the states of a target are."""
        return self.state / "targets" / folder_of(key)

    def last(self, key: str) -> tuple[int, Snapshot] | None:
        """Return the last epoch of a target that is done, and how it stood then; None if none is."""
        states = self.states(key)
        for name in reversed(states.names()):
            if name.endswith(".bary") and (found := states.load(Snapshot, name)) is not None:
                return int(name.removesuffix(".bary")), found
        return None


@dataclass(frozen=True, eq=False)
class Slice:
    """Some rows of a target, good and bad: those after row `start` up to row `stop`."""

    rows: Rows
    rejected: list[Rejected]
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def split(self, at: int) -> tuple[Slice, Slice]:
        """Return what is up to a row, and what is after it."""
        good = int(np.searchsorted(self.rows.positions, at, side="right"))
        early = [row for row in self.rejected if row.position <= at]
        late = self.rejected[len(early) :]
        return (
            Slice(self.rows.pick(slice(0, good)), early, self.start, at),
            Slice(self.rows.pick(slice(good, None)), late, at, self.stop),
        )


def join(slices: list[Slice]) -> Slice:
    """Return slices that follow each other as one.

    Parameters
    ----------
    slices : list of Slice

    Returns
    -------
    Slice
    """
    rows = Rows(
        np.concatenate([one.rows.values for one in slices]),
        np.concatenate([one.rows.positions for one in slices]),
        [time for one in slices for time in one.rows.times],
        [offset for one in slices for offset in one.rows.offsets],
    )
    rejected = [row for one in slices for row in one.rejected]
    return Slice(rows, rejected, slices[0].start, slices[-1].stop)


@dataclass
class Target:
    """A target in the hands of a worker.

    Attributes
    ----------
    errand : Errand
    key : str
    epochs : list of (start, stop)
        In rows of the target.
    counts : Counts
        As of the last epoch that is done.
    done : int
        Epochs that are.
    waiting : list of Slice
        Rows that were read and are not a whole epoch yet.
    failure : str
        Why it cannot be gone on with; "" if it can.
    """

    context: JobContext
    key: str
    epochs: list[tuple[int, int]]
    counts: Counts = field(default_factory=Counts)
    done: int = 0
    waiting: list[Slice] = field(default_factory=list)
    failure: str = ""

    def look(self) -> None:
        """Find out how far it is: a state that can be read is an epoch that is done."""
        found = self.context.last(self.key)
        if found is not None:
            self.done, self.counts = found[0] + 1, found[1].counts
            if [self.counts.rows] != [stop for _, stop in self.epochs[self.done - 1 : self.done]]:
                raise FileFormatError("its state is not of these files: give it a folder of its own")
        if self.has_work:
            for store in self._stores():
                if store is not None:
                    store.sweep()

    @property
    def has_work(self) -> bool:
        """Whether something is left that can be done."""
        return not self.failure and self.done < len(self.epochs)

    @property
    def read(self) -> int:
        """Rows that need not be read any more."""
        return self.waiting[-1].stop if self.waiting else self.counts.rows

    def take(self, some: Slice) -> None:
        """Keep the next rows until their epoch is complete.

        Small slices are joined: a thousand of one row each would take ten times the memory of one of a
        thousand. Each is more than twice as large as the one after it, so there are few, and a row is
        copied few times.
        """
        self.waiting.append(some)
        while len(self.waiting) > 1 and len(self.waiting[-2]) <= 2 * len(self.waiting[-1]):
            self.waiting[-2:] = [join(self.waiting[-2:])]

    def advance(self) -> Iterator[int]:
        """Do all epochs whose rows are there, yielding the number of each when it is done."""
        if not self.waiting or self.waiting[-1].stop < self.epochs[self.done][1]:
            return
        session, rest = self._resume(), join(self.waiting)
        _, rest = rest.split(min(max(rest.start, self.counts.rows), rest.stop))
        while self.done < len(self.epochs) and self.epochs[self.done][1] <= rest.stop:
            now, rest = rest.split(self.epochs[self.done][1])
            self._follow(session, now)
            yield self.done - 1
        # A copy: the rest is a view, which would keep all rows that are done in memory.
        self.waiting = [join([rest])] if len(rest) else []

    def _follow(self, session: Session, some: Slice) -> None:
        context, name = self.context, numbered(self.done)
        outcome = session.take(some.rows)
        drifts = sum(event.kind == "drift" for event in outcome.events)
        rejected = sorted([*some.rejected, *outcome.rejected], key=lambda row: row.position)
        n_rows, n_bad = len(some), len(rejected)
        counts = Counts(n_rows, n_rows - n_bad, len(outcome.records), n_bad, drifts)
        states, predictions, aside, told = self._stores()
        if outcome.records:
            labels = list_answers(context.config().model).tolist()
            write_predictions(predictions, f"{name}.parquet", self.key, outcome.records, labels)
        if rejected:
            write_quarantine(aside, f"{name}.ndjson", self.key, rejected)
        if told is not None and (events := self._name_events(outcome.events, some.rejected)):
            write_events(told, f"{name}.ndjson", events)
        # The state comes last: if it is there, so is all that came of the epoch.
        states.keep(Snapshot(self.key, self.counts + counts, session.state()), f"{name}.bary")
        if self.done >= _KEPT:
            states.drop(f"{numbered(self.done - _KEPT)}.bary")
        self.done, self.counts = self.done + 1, self.counts + counts

    def _name_events(self, events: list[Event], rejected: list[Rejected]) -> list[Event]:
        """Return all that happened in an epoch, in the order of the rows, with its key."""
        bad = [Event.rejected(row, row.position) for row in rejected]
        together = sorted([*bad, *events], key=lambda event: event.position)
        return [event.of_target(self.key) for event in together]

    def _stores(self) -> tuple[Store, Store, Store, Store | None]:
        """Return where its states are, its predictions, rows that could not be used, and events."""
        context, folder = self.context, folder_of(self.key)
        output, events = context.output, context.events
        aside, told = output / "_quarantine" / folder, None if events is None else events / folder
        return context.states(self.key), output / folder, aside, told

    def _resume(self) -> Session:
        config = self.context.config()
        if not self.done:
            return config.begin()
        found = self.context.states(self.key).load(Snapshot, f"{numbered(self.done - 1)}.bary")
        if found is None:
            # Somebody who was given up for dead is still at it, and ahead: its states are as good.
            before, last = self.done, self.context.last(self.key)
            if last is None or last[0] < before:
                raise FileFormatError(f"the state of epoch {before - 1} is gone: call it again")
            self.done, found = last[0] + 1, last[1]
            self.counts = found.counts
        return config.resume(found.state)


def fail(target: Target, error: BaseException) -> None:
    """Give a target up, with the reason; what was done of it stays.

    Parameters
    ----------
    target : Target
    error : BaseException
    """
    words = str(error) or type(error).__name__
    target.failure = (
        words if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {words}"
    )
    target.waiting.clear()
