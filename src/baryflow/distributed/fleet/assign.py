"""Groups of targets: a task follows one, reading every file once for all of its targets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from baryflow.distributed.fleet.manifest import Arrival, cut, numbered, rows_in
from baryflow.distributed.fleet.slices import slices
from baryflow.distributed.fleet.worker import Counts, JobContext, Plan, Target, fail
from baryflow.distributed.parquet import Folder, Piece
from baryflow.exceptions import FileFormatError

#: Seconds between two words about how far a group is.
_EVERY = 0.25
#: Bytes of rows that wait for the rest of their epochs, in a group, at most.
_WAITING = 128 << 20
#: Bytes of a row that waits, beside its numbers: its places in three lists; and its time as text.
_BESIDE, _TIME = 24, 80
#: Bytes of a target: itself, and what its slices take however short they are.
_TARGET = 16 << 10


@dataclass(frozen=True)
class Group:
    """Some targets, for one task.

    Attributes
    ----------
    number : int
    errand : Errand
    keys : list of str
    n_arrivals : int
        Those that count: files that came later are for a later call.
    topic : str
        Under which it tells how far it is.
    """

    number: int
    context: JobContext
    keys: list[str]
    n_arrivals: int
    topic: str = ""


@dataclass
class Report:
    """What came of a group: counts over its targets, and why some of them failed."""

    counts: Counts = field(default_factory=Counts)
    failed: dict[str, str] = field(default_factory=dict)


def weigh(plan: Plan) -> int:
    """Return the bytes that a target takes whose epoch is all but complete.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    int
    """
    row = 8 * len(plan.columns) + _BESIDE + (0 if plan.time is None else _TIME)
    return _TARGET + plan.epoch_rows * row


def deal(arrivals: Sequence[Arrival], n: int, weight: int) -> list[list[str]]:
    """Deal targets to groups of about equally many rows; neighbours in files stay together.

    Parameters
    ----------
    arrivals : sequence of Arrival
    n : int
        Groups that are wanted. There are more if rows that wait for others would fill the memory.
    weight : int
        Bytes of a target's rows that wait, at most.

    Returns
    -------
    list of list of str
    """
    rows: dict[str, int] = {}
    where: dict[str, tuple[int, int]] = {}
    for number, arrival in enumerate(arrivals):
        found = zip(arrival.keys, arrival.rows.tolist(), arrival.first.tolist(), strict=True)
        for key, count, first in found:
            rows[key] = rows.get(key, 0) + count
            where.setdefault(key, (number, first))
    most = max(1, _WAITING // weight)
    share = max(1.0, sum(rows.values()) / max(1, n))
    groups: list[list[str]] = []
    filled = 0
    for key in sorted(rows, key=lambda one: (where[one], one)):
        # A target goes where its middle falls: a large one does not drag small ones along.
        if not groups or filled + rows[key] / 2 > share * len(groups) or len(groups[-1]) >= most:
            groups.append([])
        groups[-1].append(key)
        filled += rows[key]
    return groups


def follow_group(group: Group) -> Report:
    """Follow the targets of a group to their ends; what is done already is not done again.

    Parameters
    ----------
    group : Group

    Returns
    -------
    Report
    """
    tell = _Teller(group)
    arrivals = [_load(group.context, number) for number in range(group.n_arrivals)]
    targets = _open(group, arrivals)
    tell(sum(target.counts.rows for target in targets.values()))
    if any(target.has_work for target in targets.values()):
        course = _Course(group.context, targets, tell, dict.fromkeys(targets, 0))
        for number, arrival in enumerate(arrivals):
            course.walk(number, arrival)
    report = Report()
    for target in targets.values():
        if target.has_work:
            fail(target, FileFormatError("its files hold fewer rows than they did: put them back"))
        report.counts += target.counts
        if target.failure:
            report.failed[target.key] = target.failure
    return report


def count_done(group: Group) -> int:
    """Return how many epochs of a group are done, by the names of its states alone.

    Parameters
    ----------
    group : Group

    Returns
    -------
    int
    """
    names = (group.context.states(key).names() for key in group.keys)
    return sum(1 + int(some[-1].removesuffix(".bary")) for some in names if some)


class _Teller:
    """Tells how many rows of a group are done: to all who listen, but not too often."""

    def __init__(self, group: Group) -> None:
        self._group, self._told = group, 0.0

    def __call__(self, rows: int) -> None:
        if not self._group.topic or time.monotonic() - self._told < _EVERY:
            return
        import distributed

        self._told = time.monotonic()
        distributed.get_worker().log_event(self._group.topic, (self._group.number, rows))


def _load(context: JobContext, number: int) -> Arrival:
    found = context.state.load(Arrival, f"arrivals/{numbered(number)}.bary")
    if found is None:
        raise FileFormatError(
            f"{context.state.url} lacks its list of files, or it is damaged: begin anew"
        )
    return found  # type: ignore[no-any-return]


def _open(group: Group, arrivals: Sequence[Arrival]) -> dict[str, Target]:
    counts = [dict(zip(one.keys, one.rows.tolist(), strict=True)) for one in arrivals]
    size = group.context.plan.epoch_rows
    targets = {}
    for key in group.keys:
        target = Target(group.context, key, list(cut((some.get(key, 0) for some in counts), size)))
        try:
            target.look()
        except Exception as error:  # one target must not cost the others
            fail(target, error)
        targets[key] = target
    return targets


@dataclass
class _Course:
    """A walk through all files of a fleet, in the order in which they came."""

    context: JobContext
    targets: dict[str, Target]
    tell: _Teller
    seen: dict[str, int]

    def walk(self, number: int, arrival: Arrival) -> None:
        """Read the files of an arrival, as far as somebody needs their rows."""
        plan, index = self.context.plan, self.context.state / "index" / numbered(number)
        folder = Folder(plan.source, self.context.source.options, [], {})
        found = zip(arrival.keys, arrival.rows.tolist(), arrival.first.tolist(), strict=True)
        mine = {key: (self.seen[key] + n, first) for key, n, first in found if key in self.targets}
        ends = {key: end for key, (end, _) in mine.items()}
        # Not even notes are read of pieces in which there is nobody to follow: in a daily job, those of
        # all days but the last.
        start = min((mine[key][1] for key in self._needing(ends)), default=len(arrival.pieces))
        for piece in arrival.pieces[start:]:
            if not self._needing(ends):
                break
            counted = rows_in(folder, piece, arrival.identify(piece), plan.key, index)
            now = {key: self.seen[key] + n for key, n in counted.items() if key in self.targets}
            if needed := self._needing(now):
                self._read(folder, piece, needed)
            self.seen.update(now)
        self.seen.update(ends)

    def _needing(self, ends: dict[str, int]) -> dict[str, Target]:
        """Return the targets that need rows before these."""
        targets = {key: self.targets[key] for key in ends}
        return {key: one for key, one in targets.items() if one.has_work and ends[key] > one.read}

    def _read(self, folder: Folder, piece: Piece, needed: dict[str, Target]) -> None:
        try:
            for target, some in slices(folder, piece, self.context.plan, needed, self.seen):
                if target.has_work:
                    target.take(some)
                    self._advance(target)
        except Exception as error:  # a file that is gone must not cost other targets
            for target in needed.values():
                fail(target, error)

    def _advance(self, target: Target) -> None:
        try:
            for _ in target.advance():
                self.tell(sum(one.counts.rows for one in self.targets.values()))
        except Exception as error:  # one target must not cost the others
            fail(target, error)
