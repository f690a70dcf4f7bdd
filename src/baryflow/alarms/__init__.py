"""Alarms: diagnoses that people act on, after ISA-18.2 and IEC 62682.

:class:`Alarms` turns the predictions for a target, row by row, into alarms with states. It is a plain
state machine: same rows and commands, same states, whatever the wall clock says.
:class:`AlarmConfig` holds its settings; in ``baryflow.toml`` they are the section ``[alarms]``.
"""

from baryflow.alarms.config import PRIORITIES, AlarmConfig, Rule, Span
from baryflow.alarms.machine import Alarm, Alarms, AlarmState, Change, Flood
from baryflow.streams.base import AlarmCommand

__all__ = [
    "PRIORITIES",
    "Alarm",
    "AlarmCommand",
    "AlarmConfig",
    "AlarmState",
    "Alarms",
    "Change",
    "Flood",
    "Rule",
    "Span",
]
