"""Sample rows from tag values that arrive one at a time.

All rules use the plant's time, never that of this computer:

- Rows are at multiples of the sample interval since the epoch. The row of an instant holds the last
  value of each tag that is not later than the instant.
- A row is made once a timestamp later than the instant plus `lateness` was seen, from any tag or from
  the server. The order in which tags arrive does not matter unless one is further behind than that.
- A value that arrives after its row was made is late. It is counted, and used for the next row unless
  its tag has sent a newer one.
- A target without values for longer than `max_age` (default: 20 intervals) has no rows until values
  arrive again. The gap is reported.
- A value that is not a number, infinite or of bad quality becomes NaN. One without a time is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Batch
from baryflow.streams.numbers import parse_number
from baryflow.streams.sampling.clock import (
    SECOND,
    PlantClock,
    Verdict,
    duration_text,
    instant_text,
    to_microseconds,
)
from baryflow.streams.sampling.tags import Tag, check_tags
from baryflow.validation import LARGEST, as_real

#: Without `max_age`, a target without values for this many intervals has no more rows.
SILENT_INTERVALS = 20
#: Default seconds for which a row waits for late values, limited to a tenth of the interval.
LATENESS = 1.0
#: A timestamp further ahead than this, and than 20 intervals, needs confirmation by another tag.
_JUMP = 600 * SECOND
#: Counted irregularities and how notices describe them. The names are part of the checkpoint format.
_COUNTED = {
    "late": "values that arrived after their row was made",
    "untimed": "values without a valid time, skipped",
    "doubted": "values with a time far ahead, waiting for confirmation by another tag",
}


class SampledRow(NamedTuple):
    """The values of one target at one instant."""

    instant: int  # microseconds since the epoch
    key: str
    values: list[float]

    @property
    def time(self) -> str:
        """The instant as text."""
        return instant_text(self.instant)


class _TargetValues:
    """The values of one target: those in force, and those that take effect at a later instant.

    ``latest`` has the newest (time, value) of each column, in force or not. ``newest`` is the time of
    the newest value in force. ``silent`` is the first instant without a row while no values arrive.
    """

    def __init__(self, key: str, width: int) -> None:
        self.key, self.width = key, width
        self.forget()

    def forget(self) -> None:
        """Discard all values."""
        self.latest: list[tuple[int, float] | None] = [None] * self.width
        self.newest: int | None = None
        self.silent: int | None = None
        self._times = [-1] * self.width
        self._values = [math.nan] * self.width
        # Instant from which a value is in force → column → (time, value).
        self._pending: dict[int, dict[int, tuple[int, float]]] = {}

    @property
    def name(self) -> str:
        """The name of the target in notices."""
        return self.key or "the plant"

    @property
    def next_change(self) -> int | None:
        """The next instant at which a value takes effect."""
        return min(self._pending, default=None)

    def add(self, instant: int, column: int, stamp: int, number: float) -> None:
        """Add a value that takes effect at an instant; the newest value for an instant wins."""
        pending = self._pending.setdefault(instant, {})
        if column not in pending or stamp >= pending[column][0]:
            pending[column] = stamp, number
        latest = self.latest[column]
        if latest is None or stamp >= latest[0]:
            self.latest[column] = stamp, number

    def is_repeated(self, column: int, stamp: int, number: float) -> bool:
        """Return whether this is the newest value of a column, sent again."""
        latest = self.latest[column]
        if latest is None or latest[0] != stamp:
            return False
        return latest[1] == number or (math.isnan(latest[1]) and math.isnan(number))

    def apply(self, instant: int) -> None:
        """Put the values in force that take effect up to an instant."""
        if not self._pending:
            return
        for due in sorted(one for one in self._pending if one <= instant):
            for column, (stamp, number) in self._pending.pop(due).items():
                if stamp >= self._times[column]:
                    self._times[column], self._values[column] = stamp, number
                    self.newest = stamp if self.newest is None else max(self.newest, stamp)

    def row(self, oldest: int) -> list[float]:
        """Return the values in force, NaN for those from before `oldest`."""
        pairs = zip(self._times, self._values, strict=True)
        return [value if stamp >= oldest else math.nan for stamp, value in pairs]

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-serialisable values."""
        return {
            "times": list(self._times),
            "values": _nan_to_none(self._values),
            "pending": [
                [instant, column, stamp, *_nan_to_none([number])]
                for instant, pending in self._pending.items()
                for column, (stamp, number) in pending.items()
            ],
            "newest": self.newest,
            "silent": self.silent,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.forget()
        self._times, self._values = list(state["times"]), _none_to_nan(state["values"])
        self.newest, self.silent = state["newest"], state["silent"]
        pairs = zip(self._times, self._values, strict=True)
        self.latest = [None if stamp < 0 else (stamp, number) for stamp, number in pairs]
        for instant, column, stamp, value in state["pending"]:
            self.add(instant, column, stamp, _none_to_nan([value])[0])


class _Grid:
    """Makes the rows that are due. Instants are counted in multiples of the interval.

    `interval`, `max_age` and `silence` are in microseconds; ``due`` is the last instant whose rows can
    be made.
    """

    def __init__(
        self, targets: Sequence[_TargetValues], interval: int, max_age: int | None, silence: int
    ) -> None:
        self.targets = list(targets)
        self.due: int | None = None
        self.notices: list[str] = []
        self._interval, self._max_age, self._silence = interval, max_age, silence
        self._next = (0, 0)  # instant and target of the next row
        self._ready: list[SampledRow] = []  # made but not returned

    def instant_of(self, stamp: int) -> int:
        """Return the first instant at which a value with this time is in force."""
        return -(-stamp // self._interval)

    def begin(self, stamp: int) -> None:
        """Start with the first instant from a time on, even if it is before the last one."""
        self._ready += self._make(None)
        first = self.instant_of(stamp)
        self.due, self._next = first - 1, (first, 0)

    def skip(self, stamp: int, why: str) -> None:
        """Continue with the first instant from a time on, unless it has passed already."""
        self._ready += self._make(None)
        first, begun = self.instant_of(stamp), self.due is not None
        missed = first - self._next[0]
        if begun and missed <= 0:
            return
        if begun and why:
            self.notices.append(f"{self._span(self._next[0], first - 1)} are missing: {why}")
        for target in self.targets:
            target.apply(first - 1)
        self.begin(stamp)

    def advance(self, stamp: int) -> None:
        """Make all instants before a time due."""
        self.due = max(self.due or 0, (stamp - 1) // self._interval)

    def prepare(self, n: int) -> int:
        """Make rows that are due, up to `n`, and return how many there are."""
        if len(self._ready) < n:
            self._ready += self._make(n - len(self._ready))
        return len(self._ready)

    def pop_rows(self, n: int | None) -> list[SampledRow]:
        """Return the next rows that are due, at most `n`."""
        rows = self._ready[:n]
        self._ready = self._ready[len(rows) :]
        return rows + self._make(None if n is None else n - len(rows))

    def _make(self, n: int | None) -> list[SampledRow]:
        rows: list[SampledRow] = []
        due = -1 if self.due is None else self.due
        instant, first = self._next
        while instant <= due:
            live = first > 0
            for number in range(first, len(self.targets)):
                if len(rows) == n:
                    self._next = (instant, number)
                    return rows
                target = self.targets[number]
                values = self._row(target, instant)
                if values is not None:
                    live = True
                    rows.append(SampledRow(instant * self._interval, target.key, values))
            instant, first = instant + 1, 0
            if not live:  # no target has values: jump to the next one that has
                changes = (target.next_change for target in self.targets)
                coming = (max(instant, change) for change in changes if change is not None)
                instant = min(due + 1, min(coming, default=due + 1))
            self._next = (instant, 0)
        return rows

    def _row(self, target: _TargetValues, instant: int) -> list[float] | None:
        target.apply(instant)
        if target.newest is None:
            return None
        now = instant * self._interval
        if now - target.newest > self._silence:
            if target.silent is None:
                target.silent = instant
                since = instant_text(target.newest)
                self.notices.append(
                    f"no values from {target.name} since {since}: no rows until some arrive"
                )
            return None
        if target.silent is not None:
            missing = self._span(target.silent, instant - 1)
            self.notices.append(f"values from {target.name} arrive again; {missing} are missing")
            target.silent = None
        return target.row(-1 if self._max_age is None else now - self._max_age)

    def _span(self, first: int, last: int) -> str:
        count = last - first + 1
        begin, end = instant_text(first * self._interval), instant_text(last * self._interval)
        return f"{count} instant{'s' * (count > 1)} from {begin} to {end}"

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-serialisable values."""
        return {
            "due": self.due,
            "next": list(self._next),
            "ready": [[row.instant, row.key, _nan_to_none(row.values)] for row in self._ready],
            "notices": list(self.notices),
            # The name is part of the checkpoint format.
            "machines": {target.key: target.state() for target in self.targets},
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.due, self._next = state["due"], (state["next"][0], state["next"][1])
        self._ready = [SampledRow(at, key, _none_to_nan(values)) for at, key, values in state["ready"]]
        self.notices = list(state["notices"])
        for target in self.targets:
            if target.key in state["machines"]:
                target.resume(state["machines"][target.key])


class _TagColumn(NamedTuple):
    """Where the values of a tag belong, and how they are scaled."""

    target: _TargetValues
    column: int
    scale: float
    offset: float


class Sampler:
    """Samples rows from values that arrive one at a time.

    `interval` is in seconds, at least a millisecond. Values older than `max_age` seconds become NaN;
    without it, the last value is held. A row waits `lateness` seconds for late values, by default one
    second or a tenth of the interval. ``position`` is the number of rows so far; ``counts`` has the
    numbers of ``"values"``, and of ``"missing"``, ``"late"``, ``"untimed"`` and ``"doubted"`` ones.

    Examples
    --------
    >>> from baryflow.streams.sampling.sampler import Sampler
    >>> from baryflow.streams.sampling.tags import Tag
    >>> sampler = Sampler(["flow", "speed"], [Tag("FI1", "flow"), Tag("SI1", "speed")], interval=10)
    >>> for address, value, time in [("FI1", 1.5, 8), ("SI1", 9, 9), ("FI1", 2.5, 12), ("SI1", 8, 24)]:
    ...     known = sampler.update(address, value, time)
    >>> [(row.time, row.values) for row in sampler.pop_rows()]
    [('1970-01-01T00:00:10Z', [1.5, 9.0]), ('1970-01-01T00:00:20Z', [2.5, 9.0])]
    """

    def __init__(
        self,
        columns: Sequence[str],
        tags: Sequence[Tag],
        interval: float,
        max_age: float | None = None,
        lateness: float | None = None,
    ) -> None:
        by_target = check_tags(tags, columns)
        self.columns = list(columns)
        self._interval = round(as_real(interval, "interval", low=0.001, high=366 * 86400) * SECOND)
        age, asked = _microseconds(max_age, "max_age"), _microseconds(lateness, "lateness")
        self._lateness = min(round(LATENESS * SECOND), self._interval // 10) if asked is None else asked
        silence = SILENT_INTERVALS * self._interval if age is None else age
        targets = {key: _TargetValues(key, len(self.columns)) for key in by_target}
        self._grid = _Grid(list(targets.values()), self._interval, age, silence)
        self._tags = {
            tag.address: _TagColumn(
                targets[tag.key], self.columns.index(tag.column), tag.scale, tag.offset
            )
            for tag in tags
        }
        jump = max(_JUMP, SILENT_INTERVALS * self._interval)
        self._clock = PlantClock(jump, max(100, 3 * len(self._tags)))
        self._unconfirmed: list[tuple[str, float, int]] = []
        self.position = 0
        self.counts = dict.fromkeys(("values", "missing", *_COUNTED), 0)

    def update(self, address: str, value: Any, time: float, good: bool = True) -> bool:
        """Add a value of a tag, with the plant's time in seconds since the epoch.

        Text that holds a number will do; all else, and a value that is not `good`, becomes NaN. Return
        whether there is a tag with this address.
        """
        found = self._tags.get(address)
        if found is None:
            return False
        self.counts["values"] += 1
        stamp = to_microseconds(time)
        if stamp is None:
            self._count("untimed")
            return True
        number = _to_number(value, found.scale, found.offset) if good else math.nan
        if math.isnan(number):
            self.counts["missing"] += 1
        if self._observe(stamp, address) is Verdict.UNCONFIRMED:
            self._count("doubted")
            self._unconfirmed.append((address, number, stamp))
            return True
        self._unconfirmed = []
        self._add(address, number, stamp)
        return True

    def advance(self, time: float) -> None:
        """Advance the plant's time to at least this many seconds since the epoch."""
        stamp = to_microseconds(time)
        if stamp is not None and self._grid.due is not None:
            self._observe(stamp, "")

    def skip(self, time: float, why: str = "") -> None:
        """Make no rows before this time, because the values until then are unknown.

        Rows that are due already are still made, and values in force stay in force. Before the first
        value, this is where rows begin. With `why`, a notice reports the gap.
        """
        stamp = to_microseconds(time)
        if stamp is not None:
            self._clock.move(stamp)
            self._grid.skip(stamp, why)

    def newest(self, address: str) -> float | None:
        """Return the time of the newest value of a tag, in seconds since the epoch, if it has one."""
        found = self._tags[address]
        latest = found.target.latest[found.column]
        return None if latest is None else latest[0] / SECOND

    @property
    def interval(self) -> float:
        """Seconds between rows."""
        return self._interval / SECOND

    @property
    def now(self) -> float | None:
        """The plant's time, in seconds since the epoch; None before the first value."""
        return None if self._clock.now is None else self._clock.now / SECOND

    def _observe(self, stamp: int, tag: str) -> Verdict:
        """Update the clock with a timestamp, and make the rows before it due."""
        before = self._clock.now
        verdict = self._clock.observe(stamp, tag)
        if verdict is Verdict.JUMPED:
            for unconfirmed in self._unconfirmed:  # before their rows become due
                self._add(*unconfirmed)
        if self._grid.due is None:
            self._grid.begin(stamp)
        elif verdict is Verdict.SET_BACK and before is not None:
            self._grid.begin(stamp)
            for target in self._grid.targets:
                target.forget()
            self._grid.notices.append(
                f"the plant's clock went back by {duration_text(before - stamp)}, to "
                f"{instant_text(stamp)}; rows continue from there"
            )
        elif self._clock.now is not None:
            self._grid.advance(self._clock.now - self._lateness)
        return verdict

    def _add(self, address: str, number: float, stamp: int) -> None:
        target, column, _, _ = self._tags[address]
        instant, due = self._grid.instant_of(stamp), self._grid.due
        if due is not None and instant <= due:
            # The first values of a server, and those after a reconnection, may be old but not late.
            if target.latest[column] is not None and not target.is_repeated(column, stamp, number):
                self._count("late")
            instant = due + 1
        target.add(instant, column, stamp, number)

    def _count(self, what: str) -> None:
        self.counts[what] += 1
        count = self.counts[what]
        if count in (1, 10, 100, 1000) or count % 10_000 == 0:  # avoid a flood of notices
            self._grid.notices.append(f"{_COUNTED[what]}: {count} so far")

    def pop_rows(self, n: int | None = None) -> list[SampledRow]:
        """Return the next rows that are due, at most `n`, by time and then by target."""
        rows = self._grid.pop_rows(n)
        self.position += len(rows)
        return rows

    def prepare(self, n: int) -> int:
        """Return how many rows are due, counting up to `n`; cheaper than making a batch."""
        return self._grid.prepare(n)

    def batch(self, n: int | None = None, **more: Any) -> Batch:
        """Return the next rows that are due, at most `n`, with all notices.

        The cursor holds :meth:`state` as ``"sampler"``, and `more`.
        """
        first, rows = self.position + 1, self.pop_rows(n)
        notices, self._grid.notices = self._grid.notices, []
        times = [row.time for row in rows]
        pairs = zip(rows, times, strict=True)
        return Batch(
            rows=np.array([row.values for row in rows], dtype=float).reshape(-1, len(self.columns)),
            positions=np.arange(first, first + len(rows)),
            times=times,
            keys=[row.key for row in rows],
            rejected=[],
            cursor={"sampler": self.state(), **more},
            offsets=[f"{row.key}@{time}" if row.key else time for row, time in pairs],
            notices=notices,
        )

    def state(self) -> dict[str, Any]:
        """Return all that determines the next rows, as JSON-serialisable values."""
        return {
            "every": self._interval,
            "columns": self.columns,
            "clock": self._clock.state(),
            "doubted": [
                [tag, *_nan_to_none([number]), stamp] for tag, number, stamp in self._unconfirmed
            ],
            "grid": self._grid.state(),
            "position": self.position,
            "counts": dict(self.counts),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned, for the same columns and interval."""
        if state["every"] != self._interval or state["columns"] != self.columns:
            raise InvalidInputError(
                "cannot resume: the checkpoint has other columns or another sample interval; use the "
                "same ones, or another checkpoint folder"
            )
        self._clock.resume(state["clock"])
        self._unconfirmed = [
            (address, *_none_to_nan([number]), stamp) for address, number, stamp in state["doubted"]
        ]
        self._grid.resume(state["grid"])
        self.position, self.counts = state["position"], dict(state["counts"])


def _microseconds(seconds: float | None, name: str) -> int | None:
    return None if seconds is None else round(as_real(seconds, name, low=0.0, high=1e9) * SECOND)


def _nan_to_none(values: list[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]


def _none_to_nan(values: list[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _to_number(value: Any, scale: float, offset: float) -> float:
    """Return a scaled value, NaN if it is not a usable number."""
    if isinstance(value, str):
        value = parse_number(value)
    try:
        number = float(value) if isinstance(value, Real) else math.nan
    except (OverflowError, ValueError, TypeError):
        return math.nan
    if scale != 1.0 or offset != 0.0:
        number = number * scale + offset
    return number if -LARGEST <= number <= LARGEST else math.nan
