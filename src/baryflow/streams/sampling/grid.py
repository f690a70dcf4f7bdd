"""The instants at which rows stand, and the rows that machines have there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from baryflow.streams.sampling.clock import instant_text
from baryflow.streams.sampling.latest import Machine, numbers, plain


class SampledRow(NamedTuple):
    """The values of one machine at one instant."""

    instant: int  # microseconds since the epoch
    key: str
    values: list[float]

    @property
    def time(self) -> str:
        """The instant as text."""
        return instant_text(self.instant)


class Grid:
    """Makes the rows that are due; instants are counted in multiples of `every`.

    Parameters
    ----------
    machines : sequence of Machine
    every : int
        Microseconds.
    max_age : int or None
        Microseconds after which a value is NaN.
    silence : int
        Microseconds after which a machine that tells nothing has no rows.

    Attributes
    ----------
    due : int or None
        The last instant whose rows can be made.
    notices : list of str
    """

    def __init__(
        self, machines: Sequence[Machine], every: int, max_age: int | None, silence: int
    ) -> None:
        self.machines = list(machines)
        self.due: int | None = None
        self.notices: list[str] = []
        self._every, self._max_age, self._silence = every, max_age, silence
        self._next = (0, 0)  # instant and machine of the next row
        self._ready: list[SampledRow] = []  # of before a break, and not fetched yet

    def bucket(self, stamp: int) -> int:
        """Return the first instant that a time counts for."""
        return -(-stamp // self._every)

    def begin(self, stamp: int) -> None:
        """Begin with the first instant from a time on, also if that is earlier than the last one."""
        self._ready += self._make(None)
        first = self.bucket(stamp)
        self.due, self._next = first - 1, (first, 0)

    def skip(self, stamp: int, why: str) -> None:
        """Go on with the first instant from a time on, if it is not that far yet."""
        self._ready += self._make(None)
        first, begun = self.bucket(stamp), self.due is not None
        missed = first - self._next[0]
        if begun and missed <= 0:
            return
        if begun and why:
            self.notices.append(f"{self._span(self._next[0], first - 1)} are missing: {why}")
        for machine in self.machines:
            machine.absorb(first - 1)
        self.begin(stamp)

    def pass_time(self, stamp: int) -> None:
        """Let all instants before a time be due."""
        self.due = max(self.due or 0, (stamp - 1) // self._every)

    def prepare(self, n: int) -> int:
        """Make rows that are due, up to `n`, and return how many can be taken."""
        if len(self._ready) < n:
            self._ready += self._make(n - len(self._ready))
        return len(self._ready)

    def take(self, n: int | None) -> list[SampledRow]:
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
            for number in range(first, len(self.machines)):
                if len(rows) == n:
                    self._next = (instant, number)
                    return rows
                machine = self.machines[number]
                values = self._row(machine, instant)
                if values is not None:
                    live = True
                    rows.append(SampledRow(instant * self._every, machine.key, values))
            instant, first = instant + 1, 0
            if not live:  # all are silent: go to where somebody speaks
                told = (machine.first_bucket for machine in self.machines)
                spoken = (max(instant, bucket) for bucket in told if bucket is not None)
                instant = min(due + 1, min(spoken, default=due + 1))
            self._next = (instant, 0)
        return rows

    def _row(self, machine: Machine, instant: int) -> list[float] | None:
        machine.absorb(instant)
        if machine.newest is None:
            return None
        now = instant * self._every
        if now - machine.newest > self._silence:
            if machine.silent is None:
                machine.silent = instant
                since = instant_text(machine.newest)
                self.notices.append(f"{machine.name} is silent since {since}: no rows until it speaks")
            return None
        if machine.silent is not None:
            missing = self._span(machine.silent, instant - 1)
            self.notices.append(f"{machine.name} speaks again; {missing} are missing")
            machine.silent = None
        return machine.row(-1 if self._max_age is None else now - self._max_age)

    def _span(self, first: int, last: int) -> str:
        count = last - first + 1
        begin, end = instant_text(first * self._every), instant_text(last * self._every)
        return f"{count} instant{'s' * (count > 1)} from {begin} to {end}"

    def state(self) -> dict[str, Any]:
        """Return all it knows; can be written as JSON."""
        return {
            "due": self.due,
            "next": list(self._next),
            "ready": [[row.instant, row.key, plain(row.values)] for row in self._ready],
            "notices": list(self.notices),
            "machines": {machine.key: machine.state() for machine in self.machines},
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state` returned."""
        self.due, self._next = state["due"], (state["next"][0], state["next"][1])
        self._ready = [SampledRow(at, key, numbers(values)) for at, key, values in state["ready"]]
        self.notices = list(state["notices"])
        for machine in self.machines:
            if machine.key in state["machines"]:
                machine.resume(state["machines"][machine.key])
