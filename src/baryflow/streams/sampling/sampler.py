"""Values that come one by one to rows: the last of each, every so many seconds of the plant's time.

The rules, all in the plant's time, never in that of the machine that computes:

- Rows stand at instants that are multiples of `every` since the epoch. The row of an instant holds the
  last value of each tag that is not later than it.
- It is made once a later time than the instant plus `lateness` was told, by any tag or the server. So
  the order in which tags arrive does not matter as long as none is behind another by more than that.
- A value that comes after the row it belongs to was due is late: it is counted, and used for the next
  row if its tag has told nothing newer.
- A machine that tells nothing for longer than `max_age` (without one: for 20 instants) has no rows until
  it speaks again; the gap is told.
- A value that is no number, infinite, or not good is NaN; one without a time is passed over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Batch
from baryflow.streams.sampling.clock import (
    SECOND,
    PlantClock,
    Verdict,
    duration_text,
    instant_text,
    to_microseconds,
)
from baryflow.streams.sampling.grid import Grid, SampledRow
from baryflow.streams.sampling.latest import Machine, numbers, plain, to_number
from baryflow.streams.sampling.tags import Tag, check_tags
from baryflow.validation import as_real

#: Without a `max_age`, a machine that tells nothing for so many instants has no more rows.
SILENT_INSTANTS = 20
#: By default a row waits so many seconds for values that are under way, and at most a tenth of `every`.
LATENESS = 1.0
#: A time further ahead than this, and than 20 instants, is believed once another tag says the same.
_LEAP = 600 * SECOND
_ODD = {
    "late": "values that came after the row they belong to was due",
    "untimed": "values without a time that can be used, passed over",
    "doubted": "values from far ahead of time, which wait for another to confirm it",
}


class Sampler:
    """Makes rows of values that come one by one.

    Parameters
    ----------
    columns : sequence of str
        Of a row, in this order.
    tags : sequence of Tag
        Which value is which column, of which machine.
    every : float
        Seconds from one row to the next, at least a thousandth.
    max_age : float, optional
        Seconds after which a value that was not told again is NaN; without it, it is held.
    lateness : float, optional
        Seconds that a row waits for values under way; without it a second, or a tenth of `every` if
        that is less.

    Attributes
    ----------
    position : int
        Rows made so far.
    counts : dict
        Numbers of ``"values"`` taken, of those ``"missing"`` (NaN), ``"late"``, ``"untimed"`` and
        ``"doubted"``.

    Raises
    ------
    InvalidInputError
        If columns have no tag or two, a tag has an unknown column, or a number is out of range.

    Examples
    --------
    >>> from baryflow.streams.sampling.sampler import Sampler
    >>> from baryflow.streams.sampling.tags import Tag
    >>> sampler = Sampler(["flow", "speed"], [Tag("FI1", "flow"), Tag("SI1", "speed")], every=10)
    >>> for address, value, time in [("FI1", 1.5, 8), ("SI1", 9, 9), ("FI1", 2.5, 12), ("SI1", 8, 24)]:
    ...     known = sampler.update(address, value, time)
    >>> [(row.time, row.values) for row in sampler.take()]
    [('1970-01-01T00:00:10Z', [1.5, 9.0]), ('1970-01-01T00:00:20Z', [2.5, 9.0])]
    """

    def __init__(
        self,
        columns: Sequence[str],
        tags: Sequence[Tag],
        every: float,
        max_age: float | None = None,
        lateness: float | None = None,
    ) -> None:
        found = check_tags(tags, columns)
        self.columns = list(columns)
        self._every = round(as_real(every, "every", low=0.001, high=366 * 86400) * SECOND)
        age, asked = _microseconds(max_age, "max_age"), _microseconds(lateness, "lateness")
        self._lateness = min(round(LATENESS * SECOND), self._every // 10) if asked is None else asked
        silence = SILENT_INSTANTS * self._every if age is None else age
        machines = {key: Machine(key, len(self.columns)) for key in found}
        self._grid = Grid(list(machines.values()), self._every, age, silence)
        self._places = {
            tag.address: (machines[tag.key], self.columns.index(tag.column), tag.scale, tag.offset)
            for tag in tags
        }
        leap = max(_LEAP, SILENT_INSTANTS * self._every)
        self._clock = PlantClock(leap, max(100, 3 * len(self._places)))
        self._doubted: list[tuple[str, float, int]] = []
        self.position = 0
        self.counts = dict.fromkeys(("values", "missing", *_ODD), 0)

    def update(self, address: str, value: Any, time: float, good: bool = True) -> bool:
        """Take a value.

        Parameters
        ----------
        address : str
            Of its tag.
        value : object
            A number; text that holds one will do. All else is NaN in this column.
        time : float
            The plant's time of it, in seconds since the epoch.
        good : bool, default=True
            What the plant says of its quality; if it is not, the value is NaN.

        Returns
        -------
        bool
            Whether there is such a tag.
        """
        place = self._places.get(address)
        if place is None:
            return False
        self.counts["values"] += 1
        stamp = to_microseconds(time)
        if stamp is None:
            self._count("untimed")
            return True
        number = to_number(value, place[2], place[3]) if good else math.nan
        if math.isnan(number):
            self.counts["missing"] += 1
        if self._tell(stamp, address) is Verdict.DOUBTED:
            self._count("doubted")
            self._doubted.append((address, number, stamp))
            return True
        self._doubted = []
        self._hold(address, number, stamp)
        return True

    def advance(self, time: float) -> None:
        """Take note that the plant's time is at least this, though no value may have changed.

        Parameters
        ----------
        time : float
            Seconds since the epoch.
        """
        stamp = to_microseconds(time)
        if stamp is not None and self._grid.due is not None:
            self._tell(stamp, "")

    def skip(self, time: float, why: str = "") -> None:
        """Make no rows before this time: nobody knows what the values were then.

        Rows that were due before this call are still made; values that are held stay held. Before the
        first value, this is where rows begin.

        Parameters
        ----------
        time : float
            Seconds since the epoch.
        why : str, optional
            For the notice that tells of the gap; without it there is none.
        """
        stamp = to_microseconds(time)
        if stamp is not None:
            self._clock.move(stamp)
            self._grid.skip(stamp, why)

    def newest(self, address: str) -> float | None:
        """Return the time of the newest value of a tag.

        Parameters
        ----------
        address : str

        Returns
        -------
        float or None
            Seconds since the epoch; None before the first.
        """
        machine, place, _, _ = self._places[address]
        latest = machine.latest[place]
        return None if latest is None else latest[0] / SECOND

    @property
    def every(self) -> float:
        """Seconds from one row to the next."""
        return self._every / SECOND

    @property
    def now(self) -> float | None:
        """The plant's time, in seconds since the epoch; None before anything was told."""
        return None if self._clock.now is None else self._clock.now / SECOND

    def _tell(self, stamp: int, who: str) -> Verdict:
        """Let the clock know of a time; rows become due by it."""
        before = self._clock.now
        verdict = self._clock.tell(stamp, who)
        if verdict is Verdict.LEAPT:
            for doubted in self._doubted:  # before the rows they belong to are due
                self._hold(*doubted)
        if self._grid.due is None:
            self._grid.begin(stamp)
        elif verdict is Verdict.SET_BACK and before is not None:
            self._grid.begin(stamp)
            for machine in self._grid.machines:
                machine.forget()
            self._grid.notices.append(
                f"the plant's clock went back by {duration_text(before - stamp)}, to "
                f"{instant_text(stamp)}; rows go on from there"
            )
        elif self._clock.now is not None:
            self._grid.pass_time(self._clock.now - self._lateness)
        return verdict

    def _hold(self, address: str, number: float, stamp: int) -> None:
        machine, place, _, _ = self._places[address]
        bucket, due = self._grid.bucket(stamp), self._grid.due
        if due is not None and bucket <= due:
            # What a server tells first, and again after a reconnection, may be old and is not late.
            if machine.latest[place] is not None and not machine.knows(place, stamp, number):
                self._count("late")
            bucket = due + 1
        machine.take(bucket, place, stamp, number)

    def _count(self, what: str) -> None:
        self.counts[what] += 1
        count = self.counts[what]
        if count in (1, 10, 100, 1000) or count % 10_000 == 0:  # a flood of notices helps nobody
            self._grid.notices.append(f"{_ODD[what]}: {count} so far")

    def take(self, n: int | None = None) -> list[SampledRow]:
        """Return the next rows that are due.

        Parameters
        ----------
        n : int, optional
            At most so many; all without it.

        Returns
        -------
        list of SampledRow
            By time; several machines in the order of the tags.
        """
        rows = self._grid.take(n)
        self.position += len(rows)
        return rows

    def prepare(self, n: int) -> int:
        """Return how many rows can be taken, counting up to `n`; quicker than to look at a batch."""
        return self._grid.prepare(n)

    def batch(self, n: int | None = None, **more: Any) -> Batch:
        """Return the next rows as a batch, with all notices.

        Parameters
        ----------
        n : int, optional
            At most so many rows; all that are due without it.
        **more : object
            What else the cursor is to hold, beside ``"sampler"``, which is :meth:`state`.

        Returns
        -------
        Batch
        """
        first, rows = self.position + 1, self.take(n)
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
        """Return everything that decides about the next rows.

        Returns
        -------
        dict
            Can be written as JSON.
        """
        doubted = [[address, *plain([number]), stamp] for address, number, stamp in self._doubted]
        return {
            "every": self._every,
            "columns": self.columns,
            "clock": self._clock.state(),
            "doubted": doubted,
            "grid": self._grid.state(),
            "position": self.position,
            "counts": dict(self.counts),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state` returned, as if nothing had happened.

        Parameters
        ----------
        state : dict

        Raises
        ------
        InvalidInputError
            If it is of other columns, or another distance between rows.
        """
        if state["every"] != self._every or state["columns"] != self.columns:
            raise InvalidInputError(
                "cannot resume: the checkpoint has other columns or another --sample-interval; use the "
                "same ones, or another folder"
            )
        self._clock.resume(state["clock"])
        self._doubted = [
            (address, *numbers([number]), stamp) for address, number, stamp in state["doubted"]
        ]
        self._grid.resume(state["grid"])
        self.position, self.counts = state["position"], dict(state["counts"])


def _microseconds(seconds: float | None, name: str) -> int | None:
    return None if seconds is None else round(as_real(seconds, name, low=0.0, high=1e9) * SECOND)
