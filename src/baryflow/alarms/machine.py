"""The state machine: predictions row by row in, alarms and their changes out.

Each class has at most one alarm. Three stages follow each other:

1. *Hysteresis*: the condition is met once the class is predicted with ``probability`` or more, and
   until its probability is below ``clear_probability``.
2. *Delays*: the alarm is on once the condition has been met for ``on_delay``, and off once it has not
   been met for ``off_delay``.
3. *Chatter*: an alarm that is on again soon is the same alarm.

An alarm is ``normal``, ``unacknowledged`` or ``acknowledged`` while it is active, ``returned`` (to
normal, and not acknowledged), ``reclassified`` (the model now calls its rows something else, and this is
not acknowledged), ``shelved`` for a time, or ``suppressed``. Time is that of the rows: their
number, and the sum of the times between them. So a clock that is set back does no harm, and a replay
gives the same states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from baryflow.alarms.config import PRIORITIES, AlarmConfig, Rule, Span
from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import AlarmCommand
from baryflow.streams.label_records import parse_time
from baryflow.streams.sampling.clock import to_microseconds
from baryflow.validation import count_of

State = Literal[
    "normal", "unacknowledged", "acknowledged", "returned", "reclassified", "shelved", "suppressed"
]
Explain = Callable[[str], dict[str, Any]]
Confirm = Callable[[str, tuple[int, ...]], bool]
#: The last rows of an alarm that are predicted again when it ends.
_CHECKED = 16
#: Stands for all alarms in a command that acknowledges.
EVERY = "*"
#: What can be done to an alarm, and what the change is called.
_DONE = {
    "acknowledge": "acknowledged",
    "shelve": "shelved",
    "unshelve": "unshelved",
    "suppress": "suppressed",
    "unsuppress": "unsuppressed",
}
ACTIONS = tuple(_DONE)
#: States that wait for an operator.
_TO_ACKNOWLEDGE: tuple[State, ...] = ("unacknowledged", "reclassified", "returned")


@dataclass(frozen=True)
class Instant:
    """A moment of a stream: rows so far, and microseconds by their times."""

    rows: int = 0
    microseconds: int = 0

    def until(self, now: Instant, span: Span) -> int:
        """Return how much of a span is left; 0 or less if it is over."""
        passed = getattr(now, span.unit) - getattr(self, span.unit)
        return span.amount - int(passed)


@dataclass(frozen=True)
class Shelf:
    """For how long an alarm is shelved, and since when."""

    since: Instant
    span: Span


@dataclass(frozen=True)
class Alarm:
    """The alarm of one class.

    Attributes
    ----------
    name : str
        The class.
    number : int
        Counts the alarms of the target from 1; 0: the class has had none.
    active : bool
    acknowledged : bool
        Also if there is nothing to acknowledge.
    occurrences : int
        How often it came on.
    chattering : bool
        It came back soon after it was cleared, and is active until it has not been on for a while.
    position, time
        The row that raised it.
    probability : float
        Of the class in this row; not of unknown rows.
    cleared : str or None
        Time of the row that cleared it, or position if rows have no times.
    by, comment : str
        Of the last command.
    evidence : dict
        Plain values.
    shelf : Shelf or None
    suppressed : bool
        By a command.
    raised : Instant
        When it was raised.
    met, on : bool
        Whether the condition is met, without and with delays.
    changed, fell : Instant
        When `met` changed; when `on` last became false.
    reclassified : bool
        When it ended, the model called its rows something else.
    rows : tuple of int
        Positions of the last rows that were predicted to be of the class.
    """

    name: str
    number: int = 0
    active: bool = False
    acknowledged: bool = True
    occurrences: int = 0
    chattering: bool = False
    position: int = 0
    time: str = ""
    probability: float = 0.0
    cleared: str | None = None
    by: str = ""
    comment: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    shelf: Shelf | None = None
    suppressed: bool = False
    raised: Instant = Instant()
    met: bool = False
    on: bool = False
    changed: Instant = Instant()
    fell: Instant = Instant()
    reclassified: bool = False
    rows: tuple[int, ...] = ()

    @property
    def needs_rows(self) -> bool:
        """Whether rows of other classes can change it."""
        return self.met or self.on or self.chattering or self.shelf is not None


@dataclass(frozen=True)
class Flood:
    """Many new alarms in a short time.

    Attributes
    ----------
    number : int
        Counts the floods of the target from 1.
    position, time
        The row at which it began.
    members : dict of str → int
        Classes and the numbers of their alarms.
    """

    number: int
    position: int
    time: str
    members: dict[str, int]


@dataclass(frozen=True)
class Change:
    """A change of an alarm, for an event.

    Attributes
    ----------
    kind : str
        raised, repeated, cleared, reclassified, acknowledged, shelved, unshelved, suppressed,
        unsuppressed, flood or flood ended.
    message : str
        For people.
    details : dict
        For programs: plain values.
    """

    kind: str
    message: str
    details: dict[str, Any]


@dataclass
class AlarmState:
    """The state of the alarms of a target; its size is bounded by the number of classes.

    Attributes
    ----------
    alarms : dict of str → Alarm
        Of classes that have or had an alarm.
    now : Instant
    stamp : int or None
        Time of the last row that has one, in microseconds.
    position, time
        Of the last row.
    n_alarms, n_floods, n_changes : int
        So far.
    raised : tuple of Instant
        When the last alarms were raised, as many as a flood needs.
    flood : Flood or None
        The present one.
    """

    alarms: dict[str, Alarm] = field(default_factory=dict)
    now: Instant = Instant()
    stamp: int | None = None
    position: int = 0
    time: str = ""
    n_alarms: int = 0
    n_floods: int = 0
    n_changes: int = 0
    raised: tuple[Instant, ...] = ()
    flood: Flood | None = None


class Alarms:
    """The alarms of one target.

    Parameters
    ----------
    config : AlarmConfig
    state : AlarmState, optional
        To continue from; the settings may differ from those with which it was saved.

    Examples
    --------
    >>> from baryflow.alarms import AlarmCommand, AlarmConfig, Alarms
    >>> alarms = Alarms(AlarmConfig.from_table({"on-delay": 2, "off-delay": 2}))
    >>> names = ["normal", "leak"]
    >>> for row, share in enumerate([0.1, 0.9, 0.8, 0.4], 1):
    ...     label = "leak" if share > 0.5 else "normal"
    ...     for change in alarms.update(row, "", label, names, [1 - share, share]):
    ...         print(row, change.message)
    3 medium alarm 1: leak, probability 80%
    >>> _ = alarms.apply(AlarmCommand("acknowledge", "leak", by="ada"), names)
    >>> alarms.entries()[0]["state"]
    'acknowledged'
    """

    def __init__(self, config: AlarmConfig, state: AlarmState | None = None) -> None:
        self.config = config
        self._normal = frozenset(config.normal)
        state = state or AlarmState()
        alarms = {name: one for name, one in state.alarms.items() if name not in self._normal}
        self._state = replace(state, alarms=alarms)
        self._changes: list[Change] = []  # of this row or command
        self._watch()

    def state(self) -> AlarmState:
        """Return the state, from which further rows give the same changes.

        Returns
        -------
        AlarmState
        """
        return replace(self._state, alarms=dict(self._state.alarms))

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return self._state.now.rows

    @property
    def needs_times(self) -> bool:
        """Whether a delay is in seconds, and no row has had a time so far."""
        return self._state.stamp is None and self.config.needs_times

    # -- rows ------------------------------------------------------------------------------------

    def update(
        self,
        position: int,
        time: str,
        label: str,
        names: Sequence[str],
        probabilities: Sequence[float],
        *,
        novel: bool = False,
        explain: Explain | None = None,
        confirm: Confirm | None = None,
    ) -> list[Change]:
        """Take the prediction for the next row.

        Parameters
        ----------
        position : int
        time : str
            ``""`` if it has none; the clock stands still then.
        label : str
            What is predicted.
        names : sequence of str
            The classes.
        probabilities : sequence of float
            Of each class.
        novel : bool, default=False
            Whether `label` is not a class, but that of unknown rows.
        explain : callable, optional
            Returns the evidence for the alarm of a class, as plain values; called if it is raised.
        confirm : callable, optional
            Returns whether rows, by position, are still predicted to be of a class; called when its
            alarm would be cleared. If they are not, it is reclassified.

        Returns
        -------
        list of Change
        """
        self._changes = []
        self._tick(position, time)
        watched = self._watched
        if label not in watched and label not in self._normal and (self.config.unknown or not novel):
            watched = (*watched, label)
        if not watched and self._state.flood is None:
            return []
        for name in watched:
            rule = self.config.rule_of(name)
            before = self._state.alarms.get(name) or Alarm(name)
            if name == label and novel:
                probability, sure = 0.0, self.config.unknown
            else:
                probability = float(probabilities[names.index(name)]) if name in names else 0.0
                sure = name == label and probability >= rule.probability
            met = sure or (before.met and probability >= rule.clear_probability)
            if sure:
                rows = before.rows if before.met or before.active else ()
                before = replace(before, rows=(*rows, position)[-_CHECKED:])
                self._state.alarms[name] = before
            self._update_one(before, rule, met, probability, explain, confirm)
        self._end_flood()
        return self._changes

    def _tick(self, position: int, time: str) -> None:
        state, number = self._state, parse_time(time) if time else None
        stamp = None if number is None else to_microseconds(number)
        microseconds = state.now.microseconds
        if stamp is not None:
            if state.stamp is not None and stamp > state.stamp:
                microseconds += stamp - state.stamp
            state.stamp = stamp
        state.now = Instant(state.now.rows + 1, microseconds)
        state.position, state.time = position, time

    def _update_one(
        self,
        before: Alarm,
        rule: Rule,
        met: bool,
        probability: float,
        explain: Explain | None,
        confirm: Confirm | None,
    ) -> None:
        """Advance the alarm of one class by one row."""
        alarm, now = before, self._state.now
        if alarm.shelf is not None and alarm.shelf.since.until(now, alarm.shelf.span) <= 0:
            # The time is over: the operator of the last command has not done this.
            alarm = self._unshelve(replace(alarm, by="", comment=""), rule)
            if alarm.suppressed:
                alarm = replace(alarm, by=before.by, comment=before.comment)
        if met != alarm.met:
            alarm = replace(alarm, met=met, changed=now)
        delay = rule.on_delay if met else rule.off_delay
        # The row at which it changed counts: with a delay of 3 rows, the third row decides.
        left = alarm.changed.until(now, delay) - (delay.unit == "rows")
        if met != alarm.on and left <= 0:
            alarm = replace(alarm, on=met, fell=alarm.fell if met else now)
            if met:
                alarm = self._rise(alarm, rule, probability, explain)
            elif alarm.active and not alarm.chattering:
                alarm = self._end(alarm, rule, confirm)
        if alarm.chattering and not alarm.on and alarm.fell.until(now, rule.chatter) <= 0:
            alarm = self._end(replace(alarm, chattering=False), rule, confirm)
        if alarm is not before:
            self._keep(alarm)

    def _rise(
        self,
        alarm: Alarm,
        rule: Rule,
        probability: float,
        explain: Explain | None,
    ) -> Alarm:
        """Raise an alarm, or count one more occurrence of it."""
        if alarm.active:  # it chatters
            return replace(alarm, occurrences=alarm.occurrences + 1)
        if alarm.number and alarm.fell.until(self._state.now, rule.chatter) > 0:
            alarm = replace(
                alarm,
                active=True,
                chattering=True,
                occurrences=alarm.occurrences + 1,
                cleared=None,
                reclassified=False,
            )
            self._report("repeated", alarm, rule)
            return alarm
        self._state.n_alarms += 1
        alarm = replace(
            alarm,
            number=self._state.n_alarms,
            active=True,
            acknowledged=False,
            occurrences=1,
            position=self._state.position,
            time=self._state.time,
            raised=self._state.now,
            probability=probability,
            cleared=None,
            reclassified=False,
            by="",
            comment="",
            evidence={} if explain is None else explain(alarm.name),
        )
        if not _is_hidden(alarm, rule) and not self._joins_flood(alarm, rule):
            self._report("raised", alarm, rule)
        return alarm

    def _end(self, alarm: Alarm, rule: Rule, confirm: Confirm | None) -> Alarm:
        """Clear an alarm, or reclassify it; one that is latched stays active."""
        latched = rule.latch and not alarm.acknowledged and not _is_hidden(alarm, rule)
        if confirm is None or not alarm.rows or confirm(alarm.name, alarm.rows):
            return alarm if latched else self._clear(alarm, rule)
        alarm = replace(alarm, reclassified=True, acknowledged=False)
        if not latched:
            alarm = replace(alarm, active=False, cleared=self._state.time or str(self._state.position))
        self._report("reclassified", alarm, rule)
        return alarm

    def _clear(self, alarm: Alarm, rule: Rule) -> Alarm:
        alarm = replace(alarm, active=False, cleared=self._state.time or str(self._state.position))
        self._report("cleared", alarm, rule)
        return alarm

    def _unshelve(self, alarm: Alarm, rule: Rule) -> Alarm:
        return self._show(replace(alarm, shelf=None), rule, "unshelved")

    def _show(self, alarm: Alarm, rule: Rule, kind: str) -> Alarm:
        """Show an alarm that was shelved or suppressed; it is raised again if it is active."""
        if not _is_hidden(alarm, rule):
            alarm = replace(alarm, acknowledged=not alarm.active)
        self._report(kind, alarm, rule, always=True)
        if alarm.active:
            self._report("raised", alarm, rule)
        return alarm

    # -- floods ----------------------------------------------------------------------------------

    def _joins_flood(self, alarm: Alarm, rule: Rule) -> bool:
        """Count a new alarm; return whether it is in a flood, and so has no event of its own."""
        most = self.config.flood
        if not most:
            return False
        self._state.raised = (*self._state.raised, self._state.now)[-most - 1 :]
        if self._state.flood is not None:
            members = self._state.flood.members | {alarm.name: alarm.number}
            self._state.flood = replace(self._state.flood, members=members)
        elif self._n_recent() > most:
            members = {
                one.name: one.number
                for one in (*self._state.alarms.values(), alarm)
                if one.number
                and one.raised.until(self._state.now, self.config.flood_window) > 0
                and not _is_hidden(one, self.config.rule_of(one.name))
            }
            self._state.n_floods += 1
            self._state.flood = Flood(
                self._state.n_floods, self._state.position, self._state.time, members
            )
            self._report_flood("flood", self._state.flood)
        else:
            return False
        return rule.priority != "critical"

    def _n_recent(self) -> int:
        """Return how many alarms were raised within the window of a flood."""
        window = self.config.flood_window
        return sum(moment.until(self._state.now, window) > 0 for moment in self._state.raised)

    def _end_flood(self) -> None:
        if self._state.flood is not None and self._n_recent() <= self.config.flood // 2:
            flood, self._state.flood = self._state.flood, None
            self._report_flood("flood ended", flood)

    def _report_flood(self, kind: str, flood: Flood) -> None:
        priority = max((self.config.rule_of(name).priority for name in flood.members), key=_urgency)
        names = ", ".join(flood.members)
        message = f"{kind}: {count_of(len(flood.members), 'alarm')}, {names}"
        details = {
            "flood": flood.number,
            "priority": priority,
            "since_row": flood.position,
            "since": flood.time,
            "members": [{"alarm": name, "number": n} for name, n in flood.members.items()],
        }
        self._add(kind, message, details)

    # -- commands --------------------------------------------------------------------------------

    def apply(self, command: AlarmCommand, names: Sequence[str]) -> list[Change]:
        """Do what an operator asks.

        Parameters
        ----------
        command : AlarmCommand
        names : sequence of str
            All classes, and the label of unknown rows.

        Returns
        -------
        list of Change
            None if nothing changes, for instance because the alarm is acknowledged already.

        Raises
        ------
        InvalidInputError
            If it cannot be done; nothing is changed.
        """
        action, name = command.action, command.alarm
        if action not in _DONE:
            raise InvalidInputError(f"expected one of {', '.join(_DONE)}, got {action!r}")
        if name == EVERY and action == "acknowledge":
            open_ = [one["alarm"] for one in self.entries() if one["state"] in _TO_ACKNOWLEDGE]
            each = (replace(command, alarm=one, number=None) for one in open_)
            return [change for one in each for change in self.apply(one, names)]
        if name in self._normal or (name not in names and name not in self._state.alarms):
            known = ", ".join(one for one in names if one not in self._normal)
            raise InvalidInputError(f"{name!r} has no alarms; the classes that have are {known}")
        rule, alarm = self.config.rule_of(name), self._state.alarms.get(name) or Alarm(name)
        if command.number is not None and command.number != alarm.number:
            latest = f"the last alarm of {name} is number {alarm.number}"
            raise InvalidInputError(f"{latest if alarm.number else 'there was none'}: look again")
        self._changes = []
        said = replace(alarm, by=command.by, comment=command.comment)
        if action == "acknowledge":
            alarm = self._acknowledge(alarm, said, rule)
        elif action == "shelve":
            alarm = self._shelve(said, rule, command.duration)
        elif action == "unshelve" and alarm.shelf is not None:
            alarm = self._unshelve(said, rule)
        elif action in ("suppress", "unsuppress"):
            alarm = self._suppress(alarm, said, rule, action == "suppress")
        self._keep(alarm)
        return self._changes

    def _acknowledge(self, alarm: Alarm, said: Alarm, rule: Rule) -> Alarm:
        state = _state(alarm, rule)
        if state in ("shelved", "suppressed") or not alarm.number:
            why = "has had no alarm" if state == "normal" else f"is {state}"
            raise InvalidInputError(f"{alarm.name} {why}: there is nothing to acknowledge")
        if alarm.acknowledged:
            return alarm
        alarm = replace(said, acknowledged=True)
        self._report("acknowledged", alarm, rule)
        if alarm.active and not alarm.on and not alarm.chattering:  # it was latched
            alarm = self._clear(alarm, rule)
        return alarm

    def _shelve(self, alarm: Alarm, rule: Rule, duration: str | int | None) -> Alarm:
        if duration is None:
            raise InvalidInputError(f"shelve {alarm.name} for how long? give for=, such as 30min")
        span = Span.read(duration)
        if not span.amount:
            raise InvalidInputError(f"cannot shelve {alarm.name} for {span}")
        if span.unit != "rows" and self._state.stamp is None:
            raise InvalidInputError(
                f"cannot shelve {alarm.name} for {span}: rows have no times; give a number of rows"
            )
        alarm = replace(alarm, shelf=Shelf(self._state.now, span))
        self._report("shelved", alarm, rule, always=True)
        return alarm

    def _suppress(self, alarm: Alarm, said: Alarm, rule: Rule, wanted: bool) -> Alarm:
        if rule.suppress:
            raise InvalidInputError(f"{alarm.name} is suppressed in the configuration: change it there")
        if wanted == alarm.suppressed:
            return alarm
        alarm = replace(said, suppressed=wanted)
        if not wanted:
            return self._show(alarm, rule, "unsuppressed")
        self._report("suppressed", alarm, rule, always=True)
        return alarm

    # -- what is shown ---------------------------------------------------------------------------

    def entries(self) -> list[dict[str, Any]]:
        """Return the alarms of all classes that have or had one, the most urgent first.

        Returns
        -------
        list of dict
            Plain values.
        """
        found = [
            self._describe(alarm, self.config.rule_of(name))
            for name, alarm in self._state.alarms.items()
        ]
        found = [one for one in found if one["number"] or one["state"] != "normal"]
        order = ["unacknowledged", "acknowledged", "reclassified", "returned"]
        order += ["shelved", "suppressed", "normal"]
        return sorted(
            found,
            key=lambda one: (order.index(one["state"]), -_urgency(one["priority"]), -one["number"]),
        )

    def summary(self) -> dict[str, Any]:
        """Return how many alarms there are.

        Returns
        -------
        dict
            ``active`` and ``unacknowledged`` alarms that are neither shelved nor suppressed, the
            highest ``priority`` of these or None, how many are ``shelved`` or ``suppressed``, and
            whether there is a ``flood``.
        """
        states = {
            name: _state(alarm, self.config.rule_of(name)) for name, alarm in self._state.alarms.items()
        }
        counts = Counter(states.values())
        open_states = ("acknowledged", *_TO_ACKNOWLEDGE)
        priorities = [
            self.config.rule_of(name).priority for name, state in states.items() if state in open_states
        ]
        return {
            "active": counts["unacknowledged"] + counts["acknowledged"],
            "unacknowledged": sum(counts[state] for state in _TO_ACKNOWLEDGE),
            "shelved": counts["shelved"],
            "suppressed": counts["suppressed"],
            "priority": max(priorities, key=_urgency, default=None),
            "flood": self._state.flood is not None,
        }

    def _describe(self, alarm: Alarm, rule: Rule) -> dict[str, Any]:
        found = {
            "alarm": alarm.name,
            "number": alarm.number,
            "priority": rule.priority,
            "state": _state(alarm, rule),
            "active": alarm.active,
            "acknowledged": alarm.acknowledged,
            "occurrences": alarm.occurrences,
            "chattering": alarm.chattering,
            "since_row": alarm.position,
            "since": alarm.time,
            "cleared": alarm.cleared,
            "probability": round(alarm.probability, 6),
            "by": alarm.by,
            "comment": alarm.comment,
            "shelved_for": None,
            "evidence": alarm.evidence,
        }
        if alarm.shelf is not None:
            span = alarm.shelf.span
            found["shelved_for"] = str(
                replace(span, amount=alarm.shelf.since.until(self._state.now, span))
            )
        return found

    def _report(self, kind: str, alarm: Alarm, rule: Rule, *, always: bool = False) -> None:
        """Add a change, unless the alarm is shelved or suppressed."""
        if _is_hidden(alarm, rule) and not always:
            return
        details = self._describe(alarm, rule)
        if kind not in ("raised", "repeated"):
            del details["evidence"]
        self._add(kind, _message(kind, alarm, rule), details)

    def _add(self, kind: str, message: str, details: dict[str, Any]) -> None:
        self._state.n_changes += 1
        details = {
            "change": kind,
            "time": self._state.time,
            "sequence": self._state.n_changes,
            **details,
        }
        self._changes.append(Change(kind, message, details))

    def _keep(self, alarm: Alarm) -> None:
        self._state.alarms[alarm.name] = alarm
        self._watch()

    def _watch(self) -> None:
        self._watched = tuple(name for name, alarm in self._state.alarms.items() if alarm.needs_rows)


def _is_hidden(alarm: Alarm, rule: Rule) -> bool:
    return alarm.suppressed or rule.suppress or alarm.shelf is not None


def _state(alarm: Alarm, rule: Rule) -> State:
    if alarm.suppressed or rule.suppress:
        return "suppressed"
    if alarm.shelf is not None:
        return "shelved"
    if alarm.active:
        return "acknowledged" if alarm.acknowledged else "unacknowledged"
    if alarm.acknowledged:
        return "normal"
    return "reclassified" if alarm.reclassified else "returned"


def _urgency(priority: str) -> int:
    return PRIORITIES.index(priority)


def _message(kind: str, alarm: Alarm, rule: Rule) -> str:
    what = f"{rule.priority} alarm {alarm.number}" if alarm.number else "alarm"
    text = f"{what}: {alarm.name}"
    if kind == "raised":
        return f"{text}, probability {alarm.probability:.0%}" if alarm.probability else text
    more = ": the model now calls its rows something else" if kind == "reclassified" else ""
    if kind == "repeated":
        more = f", occurrence {alarm.occurrences}"
    elif kind == "shelved" and alarm.shelf is not None:
        more = f" for {alarm.shelf.span}"
    return f"{text} {kind}{more}" + (f" by {alarm.by}" if alarm.by and kind in _DONE.values() else "")
