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
from baryflow.streams.decoding import parse_number
from baryflow.streams.sampling.clock import SECOND, duration_text, instant_text, to_microseconds
from baryflow.streams.sampling.tags import Tag, check_tags
from baryflow.validation import LARGEST, as_real

#: Without `max_age`, a target without values for this many intervals has no more rows.
SILENT_INTERVALS = 20
#: Default seconds for which a row waits for late values, limited to a tenth of the interval.
LATENESS = 1.0
#: A timestamp further ahead than this, and than 20 intervals, needs confirmation by another tag, or this
#: many timestamps in a row from its own.
_JUMP, _TRUSTED_AFTER = 600 * SECOND, 100
#: Counted irregularities and how notices describe them.
_COUNTED = {
    "late": "values that arrived after their row was made",
    "untimed": "values without a valid time, skipped",
    "doubted": "values with a time far ahead, waiting for confirmation by another tag",
}


#: A value with its time in microseconds; None is a missing value.
_Value = tuple[int, float | None]
_NEVER: _Value = (-1, None)


class _Target:
    """The values of one target: those in force, and those that take effect at a later instant."""

    def __init__(self, key: str, width: int) -> None:
        self.key, self._width = key, width
        self.forget()

    def forget(self) -> None:
        """Discard all values."""
        self.latest = [_NEVER] * self._width  # the newest of each column, in force or not
        self.silent: int | None = None  # the first instant without a row while no values arrive
        self._current = [_NEVER] * self._width
        self._pending: dict[int, dict[int, _Value]] = {}  # instant from which it is in force → column →

    @property
    def newest(self) -> int:
        """The time of the newest value in force; negative if there is none."""
        return max(stamp for stamp, _ in self._current)

    @property
    def next_change(self) -> int | None:
        """The next instant at which a value takes effect."""
        return min(self._pending, default=None)

    def add(self, instant: int, column: int, value: _Value) -> None:
        """Add a value that takes effect at an instant; the newest value for an instant wins."""
        pending = self._pending.setdefault(instant, {})
        if value[0] >= pending.get(column, _NEVER)[0]:
            pending[column] = value
        if value[0] >= self.latest[column][0]:
            self.latest[column] = value

    def apply(self, instant: int) -> None:
        """Put the values in force that take effect up to an instant."""
        for due in sorted(one for one in self._pending if one <= instant):
            for column, value in self._pending.pop(due).items():
                if value[0] >= self._current[column][0]:
                    self._current[column] = value

    def row(self, oldest: int) -> list[float | None]:
        """Return the values in force, None for those from before `oldest`."""
        return [number if stamp >= oldest else None for stamp, number in self._current]

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-serialisable values."""
        pending = [[at, list(found.items())] for at, found in self._pending.items()]
        return {"current": list(self._current), "pending": pending, "silent": self.silent}

    def resume(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self._current = [(stamp, number) for stamp, number in state["current"]]
        self.latest, self._pending, self.silent = list(self._current), {}, state["silent"]
        for instant, found in state["pending"]:
            for column, (stamp, number) in found:
                self.add(instant, column, (stamp, number))


class _TagColumn(NamedTuple):
    """Where the values of a tag belong, and how they are scaled."""

    target: _Target
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
    >>> batch = sampler.batch()
    >>> batch.times, batch.rows.tolist()
    (['1970-01-01T00:00:10Z', '1970-01-01T00:00:20Z'], [[1.5, 9.0], [2.5, 9.0]])
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
        self._max_age, asked = _microseconds(max_age, "max_age"), _microseconds(lateness, "lateness")
        self._lateness = min(round(LATENESS * SECOND), self._interval // 10) if asked is None else asked
        self._jump = max(_JUMP, SILENT_INTERVALS * self._interval)
        self._patience = max(100, 3 * len(tags))
        self._targets = [_Target(key, len(self.columns)) for key in by_target]
        targets = dict(zip(by_target, self._targets, strict=True))
        self._tags = {
            tag.address: _TagColumn(
                targets[tag.key], self.columns.index(tag.column), tag.scale, tag.offset
            )
            for tag in tags
        }
        self.position = 0
        self.counts = dict.fromkeys(("values", "missing", *_COUNTED), 0)
        # Instants are counted in multiples of the interval.
        self._due = -1  # the last instant whose rows can be made
        self._next = (0, 0)  # instant and target of the next row
        self._ready: list[tuple[int, str, list[float | None]]] = []  # rows made but not returned
        self._notices: list[str] = []
        # The plant's time, which is the latest timestamp that is trusted; see `_observe`.
        self._now: int | None = None
        self._ahead: list[tuple[str, float | None, int]] = []  # consecutive values from far ahead
        self._behind = 0

    @property
    def interval(self) -> float:
        """Seconds between rows."""
        return self._interval / SECOND

    def newest(self, address: str) -> float | None:
        """Return the time of the newest value of a tag, in seconds since the epoch, if it has one."""
        found = self._tags[address]
        stamp, _ = found.target.latest[found.column]
        return None if stamp < 0 else stamp / SECOND

    # -- values ----------------------------------------------------------------------------------------

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
        number = _to_number(value, found.scale, found.offset) if good else None
        if number is None:
            self.counts["missing"] += 1
        if self._observe(stamp, address, number):
            self._add(address, number, stamp)
        else:
            self._count("doubted")
        return True

    def advance(self, time: float) -> None:
        """Advance the plant's time to at least this many seconds since the epoch."""
        stamp = to_microseconds(time)
        if stamp is not None and self._now is not None:
            self._observe(stamp)

    def skip(self, time: float, why: str = "") -> None:
        """Make no rows before this time, because the values until then are unknown.

        Rows that are due already are still made, and values in force stay in force. Before the first
        value, this is where rows begin. With `why`, a notice reports the gap.
        """
        stamp = to_microseconds(time)
        if stamp is None:
            return
        begun = self._now is not None
        self._now, self._ahead, self._behind = max(stamp, self._now or 0), [], 0
        self.prepare()
        first, expected = self._instant_of(stamp), self._next[0]
        if begun and first <= expected:
            return
        if begun and why:
            self._notices.append(f"{self._span(expected, first - 1)} are missing: {why}")
        for target in self._targets:
            target.apply(first - 1)
        self._begin(stamp)

    def _add(self, address: str, number: float | None, stamp: int) -> None:
        target, column, _, _ = self._tags[address]
        instant, latest = self._instant_of(stamp), target.latest[column]
        if instant <= self._due:
            # The first values of a server, and those after a reconnection, may be old but not late.
            if latest not in (_NEVER, (stamp, number)):
                self._count("late")
            instant = self._due + 1
        target.add(instant, column, (stamp, number))

    def _count(self, what: str) -> None:
        self.counts[what] += 1
        count = self.counts[what]
        if count in (1, 10, 100, 1000) or count % 10_000 == 0:  # avoid a flood of notices
            self._notices.append(f"{_COUNTED[what]}: {count} so far")

    # -- the plant's time ------------------------------------------------------------------------------

    def _observe(self, stamp: int, tag: str = "", number: float | None = None) -> bool:
        """Update the plant's time with a timestamp, and make the rows before it due.

        Return whether it is trusted. One from far ahead counts only if another tag confirms it before
        any ordinary timestamp arrives, or if the same tag repeats it a hundred times in a row. The clock
        is set back if timestamps from far behind are in a clear majority: each ordinary one cancels two.
        """
        if self._now is None:
            self._now = stamp
            self._begin(stamp)
            return True
        if stamp > self._now + self._jump:
            if self._ahead and abs(stamp - self._ahead[-1][2]) > self._jump:
                self._ahead = []
            self._ahead.append((tag, number, stamp))
            if len({one for one, _, _ in self._ahead}) < 2 and len(self._ahead) < _TRUSTED_AFTER:
                return False
            for one in self._ahead[:-1]:  # before their rows become due
                if one[0]:
                    self._add(*one)
            self._now, self._behind = stamp, 0
        elif stamp >= self._now - self._jump:
            self._now, self._behind = max(self._now, stamp), max(0, self._behind - 2)
        else:
            self._behind += 1
            if self._behind >= self._patience:
                self._set_back(stamp, self._now)
                return True
        self._ahead = []
        self._due = max(self._due, (self._now - self._lateness - 1) // self._interval)
        return True

    def _set_back(self, stamp: int, before: int) -> None:
        """Continue at an earlier time."""
        self._begin(stamp)
        for target in self._targets:
            target.forget()
        self._now, self._ahead, self._behind = stamp, [], 0
        self._notices.append(
            f"the plant's clock went back by {duration_text(before - stamp)}, to {instant_text(stamp)}; "
            "rows continue from there"
        )

    def _begin(self, stamp: int) -> None:
        """Start with the first instant from a time on, even if it is before the last one."""
        self.prepare()
        first = self._instant_of(stamp)
        self._due, self._next = first - 1, (first, 0)

    def _instant_of(self, stamp: int) -> int:
        """Return the first instant at which a value with this time is in force."""
        return -(-stamp // self._interval)

    # -- rows ------------------------------------------------------------------------------------------

    def prepare(self, n: int | None = None) -> int:
        """Make rows that are due, up to `n`, and return how many there are."""
        instant, first = self._next
        while instant <= self._due:
            live = first > 0
            for number in range(first, len(self._targets)):
                if n is not None and len(self._ready) >= n:
                    self._next = (instant, number)
                    return len(self._ready)
                target = self._targets[number]
                values = self._make_row(target, instant)
                if values is not None:
                    live = True
                    self._ready.append((instant * self._interval, target.key, values))
            instant, first = instant + 1, 0
            if not live:  # no target has values: jump to the next one that has
                changes = (target.next_change for target in self._targets)
                coming = (max(instant, change) for change in changes if change is not None)
                instant = min(self._due + 1, min(coming, default=self._due + 1))
            self._next = (instant, 0)
        return len(self._ready)

    def _make_row(self, target: _Target, instant: int) -> list[float | None] | None:
        target.apply(instant)
        now, newest = instant * self._interval, target.newest
        if newest < 0:
            return None
        silence = SILENT_INTERVALS * self._interval if self._max_age is None else self._max_age
        if now - newest > silence:
            if target.silent is None:
                target.silent = instant
                self._notices.append(
                    f"no values from {target.key or 'the plant'} since {instant_text(newest)}: no rows "
                    "until some arrive"
                )
            return None
        if target.silent is not None:
            missing = self._span(target.silent, instant - 1)
            self._notices.append(
                f"values from {target.key or 'the plant'} arrive again; {missing} are missing"
            )
            target.silent = None
        return target.row(0 if self._max_age is None else now - self._max_age)

    def _span(self, first: int, last: int) -> str:
        count = last - first + 1
        begin, end = instant_text(first * self._interval), instant_text(last * self._interval)
        return f"{count} instant{'s' * (count > 1)} from {begin} to {end}"

    def batch(self, n: int | None = None) -> Batch:
        """Return the next rows that are due, at most `n`, by time and then by target, with all notices.

        The cursor holds :meth:`state` as ``"sampler"``.
        """
        self.prepare(n)
        rows, self._ready = self._ready[:n], self._ready[n:] if n is not None else []
        notices, self._notices = self._notices, []
        first, self.position = self.position + 1, self.position + len(rows)
        times, keys = [instant_text(instant) for instant, _, _ in rows], [key for _, key, _ in rows]
        values = np.array([values for _, _, values in rows], dtype=float)  # NaN for None
        return Batch(
            rows=values.reshape(-1, len(self.columns)),
            positions=np.arange(first, first + len(rows)),
            times=times,
            keys=keys,
            rejected=[],
            cursor={"sampler": self.state()},
            offsets=[f"{key}@{time}" if key else time for key, time in zip(keys, times, strict=True)],
            notices=notices,
        )

    # -- resuming --------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return all that determines the next rows, as JSON-serialisable values."""
        return {
            "every": self._interval,
            "columns": self.columns,
            "clock": [self._now, list(self._ahead), self._behind],
            "grid": [self._due, self._next, list(self._ready)],
            "targets": {target.key: target.state() for target in self._targets},
            "notices": list(self._notices),
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
        self._now, ahead, self._behind = state["clock"]
        self._ahead = [(tag, number, stamp) for tag, number, stamp in ahead]
        self._due, (instant, number), ready = state["grid"]
        self._next, self._ready = (instant, number), [(at, key, row) for at, key, row in ready]
        for target in self._targets:
            if target.key in state["targets"]:
                target.resume(state["targets"][target.key])
        self._notices = list(state["notices"])
        self.position, self.counts = state["position"], dict(state["counts"])


def _microseconds(seconds: float | None, name: str) -> int | None:
    return None if seconds is None else round(as_real(seconds, name, low=0.0, high=1e9) * SECOND)


def _to_number(value: Any, scale: float, offset: float) -> float | None:
    """Return a scaled value, None if it is not a usable number."""
    if isinstance(value, str):
        value = parse_number(value)
    try:
        number = float(value) if isinstance(value, Real) else math.nan
    except (OverflowError, ValueError, TypeError):
        return None
    if scale != 1.0 or offset != 0.0:
        number = number * scale + offset
    return number if -LARGEST <= number <= LARGEST else None
