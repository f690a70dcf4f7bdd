"""Settings of alarms, and how they are read from a configuration file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from baryflow.exceptions import InvalidInputError
from baryflow.streams.sampling.clock import SECOND, parse_duration

Priority = Literal["low", "medium", "high", "critical"]
#: From the least to the most urgent.
PRIORITIES: tuple[Priority, ...] = ("low", "medium", "high", "critical")


@dataclass(frozen=True)
class Span:
    """A number of rows, or of microseconds by the times of the rows.

    Attributes
    ----------
    amount : int
    unit : {"rows", "microseconds"}
    """

    amount: int
    unit: Literal["rows", "microseconds"] = "rows"

    @classmethod
    def read(cls, value: Any) -> Self:
        """Return the span that is written as a number of rows or as a duration.

        Parameters
        ----------
        value : int or str
            ``5`` or ``"5 rows"``; ``"30s"``, ``"2min"``.

        Returns
        -------
        Span

        Raises
        ------
        InvalidInputError
            If it is neither.

        Examples
        --------
        >>> from baryflow.alarms import Span
        >>> str(Span.read(5)), str(Span.read("2min"))
        ('5 rows', '120 s')
        """
        if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d{1,15})\s*rows?\s*", value)):
            value = int(match[1])
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15:
            return cls(value)
        if isinstance(value, str):
            try:
                return cls(round(parse_duration(value) * SECOND), "microseconds")
            except InvalidInputError:
                pass
        raise InvalidInputError(
            f"expected a number of rows such as 5, or a duration such as '30s' or '2min', got {value!r}"
        )

    def __str__(self) -> str:
        if self.unit == "rows":
            return f"{self.amount} row{'' if self.amount == 1 else 's'}"
        return f"{self.amount / SECOND:g} s"


@dataclass(frozen=True)
class Rule:
    """When the alarm of a class is raised and cleared.

    Attributes
    ----------
    probability : float
        The condition of the alarm is met once the class is predicted with this probability or more ...
    clear_probability : float
        ... and until its probability is below this one.
    on_delay, off_delay : Span
        How long the condition must be met without interruption until the alarm is raised, and not be
        met until it is cleared.
    chatter : Span
        If the condition is met again this soon after the alarm was cleared, it is the same alarm. It
        counts one more occurrence, and it is cleared once there was none for this long.
    priority : {"low", "medium", "high", "critical"}
    suppress : bool
        Whether the alarm is out of use.
    latch : bool
        Whether the alarm stays active until it is acknowledged.
    """

    probability: float = 0.6
    clear_probability: float = 0.3
    on_delay: Span = Span(3)
    off_delay: Span = Span(5)
    chatter: Span = Span(60)
    priority: Priority = "medium"
    suppress: bool = False
    latch: bool = False

    @property
    def spans(self) -> tuple[Span, ...]:
        """All times and numbers of rows."""
        return self.on_delay, self.off_delay, self.chatter


@dataclass(frozen=True)
class AlarmConfig:
    """Settings of the alarms of a target.

    Attributes
    ----------
    normal : tuple of str
        Classes of normal operation, which raise no alarm.
    rule : Rule
        Of classes that have none of their own.
    classes : dict of str → Rule
    unknown : bool
        Whether rows that are predicted to be unknown raise an alarm, too. Only a model fitted with
        ``unknown`` predicts this.
    flood : int
        More new alarms than this within `flood_window` are a flood: one event lists them. 0: never.
    flood_window : Span

    Examples
    --------
    >>> from baryflow.alarms import AlarmConfig
    >>> config = AlarmConfig.from_table({"on-delay": "2min", "classes": {"leak": {"priority": "high"}}})
    >>> config.rule_of("leak").priority, str(config.rule_of("leak").on_delay)
    ('high', '120 s')
    """

    normal: tuple[str, ...] = ("normal",)
    rule: Rule = Rule()
    classes: dict[str, Rule] = field(default_factory=dict)
    unknown: bool = True
    flood: int = 5
    flood_window: Span = Span(30)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Self:
        """Return the settings in a table of a configuration file.

        Parameters
        ----------
        table : mapping of str → value
            The section ``[alarms]``: the names of the fields with hyphens, those of :class:`Rule`
            among them, and a table ``classes`` with such settings for single classes.

        Returns
        -------
        AlarmConfig

        Raises
        ------
        InvalidInputError
            If a key or a value is invalid; the message names the key.
        """
        given = dict(table)
        classes = given.pop("classes", {})
        if not isinstance(classes, Mapping):
            raise InvalidInputError(
                "alarms.classes must hold a section for each class, such as "
                f"[alarms.classes.leak], got {classes!r}"
            )
        own = {name: given.pop(name) for name in _OWN if name in given}
        rule = _read_rule(given, Rule(), "alarms", [*_OWN, "classes"])
        rules = {}
        for name, values in classes.items():
            where = f"alarms.classes.{name}"
            if not isinstance(values, Mapping):
                raise InvalidInputError(f"{where} must be a section of settings, got {values!r}")
            rules[str(name)] = _read_rule(values, rule, where, [])
        found = {
            key.replace("-", "_"): _read(f"alarms.{key}", _OWN[key], value) for key, value in own.items()
        }
        return cls(rule=rule, classes=rules, **found)

    @property
    def needs_times(self) -> bool:
        """Whether a delay is in seconds, so that rows need times."""
        spans = [span for rule in (self.rule, *self.classes.values()) for span in rule.spans]
        return any(span.unit != "rows" for span in (*spans, self.flood_window))

    def latch(self, names: Iterable[str]) -> Self:
        """Return the settings with alarms that stay active until they are acknowledged.

        Parameters
        ----------
        names : iterable of str
            Classes, or ``"all"``.

        Returns
        -------
        AlarmConfig
        """
        found = self
        for name in names:
            classes = found.classes if name == "all" else {name: found.rule_of(name)}
            latched = {one: replace(rule, latch=True) for one, rule in classes.items()}
            rule = replace(found.rule, latch=True) if name == "all" else found.rule
            found = replace(found, rule=rule, classes=found.classes | latched)
        return found

    def rule_of(self, name: str) -> Rule:
        """Return the rule of a class.

        Parameters
        ----------
        name : str

        Returns
        -------
        Rule
        """
        return self.classes.get(name, self.rule)

    def check_classes(self, names: Iterable[str]) -> list[str]:
        """Check that the settings fit the classes of a model.

        Parameters
        ----------
        names : iterable of str
            Its classes, and the label of unknown rows.

        Returns
        -------
        list of str
            Warnings: settings of classes that the model does not have.

        Raises
        ------
        InvalidInputError
            If no class is normal although some should be.
        """
        known = list(names)
        if self.normal and not set(self.normal) & set(known):
            raise InvalidInputError(
                f"alarms.normal is {list(self.normal)}, but the classes are {', '.join(known)}: list "
                "those of normal operation, or set normal = [] if there is none"
            )
        return [
            f"alarms.classes.{name}: the model has no such class; its classes are {', '.join(known)}"
            for name in self.classes
            if name not in known
        ]


def _read_rule(values: Mapping[str, Any], rule: Rule, where: str, more: list[str]) -> Rule:
    found = {}
    for key, value in values.items():
        if key not in _RULE:
            names = ", ".join(sorted([*_RULE, *more]))
            raise InvalidInputError(f"{where}: unknown key {key!r}; known keys: {names}")
        found[key.replace("-", "_")] = _read(f"{where}.{key}", _RULE[key], value)
    if "probability" in found and "clear_probability" not in found:
        found["clear_probability"] = min(rule.clear_probability, found["probability"])
    rule = replace(rule, **found)
    if rule.clear_probability > rule.probability:
        raise InvalidInputError(
            f"{where}.clear-probability is {rule.clear_probability:g}, above probability = "
            f"{rule.probability:g}: an alarm could not last"
        )
    return rule


def _read(where: str, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except InvalidInputError as error:
        raise InvalidInputError(f"{where}: {error}") from None


def _read_share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= 1.0:
        raise InvalidInputError(f"expected a probability above 0 and up to 1, got {value!r}")
    return float(value)


def _read_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInputError(f"expected true or false, got {value!r}")
    return value


def _read_count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1000:
        raise InvalidInputError(f"expected a whole number from 0 to 1000, got {value!r}")
    return value


def _read_priority(value: Any) -> str:
    if value not in PRIORITIES:
        raise InvalidInputError(f"expected one of {', '.join(PRIORITIES)}, got {value!r}")
    return str(value)


def _read_names(value: Any) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    if any(isinstance(name, bool) or not isinstance(name, str | int | float) for name in names):
        raise InvalidInputError(f"expected a list of classes such as ['normal'], got {value!r}")
    return tuple(str(name) for name in names)


#: Key → reader, of settings that a class can have for itself, and of those for all classes together.
_RULE: dict[str, Callable[[Any], Any]] = {
    "probability": _read_share,
    "clear-probability": _read_share,
    "on-delay": Span.read,
    "off-delay": Span.read,
    "chatter": Span.read,
    "priority": _read_priority,
    "suppress": _read_flag,
    "latch": _read_flag,
}
_OWN: dict[str, Callable[[Any], Any]] = {
    "normal": _read_names,
    "unknown": _read_flag,
    "flood": _read_count,
    "flood-window": Span.read,
}
