"""What happens while a target is followed: one kind of event for the command line, logs and services.

======================  =====================================================================
kind                    meaning
======================  =====================================================================
``batch``               the model learned from a batch: its reliability, the most similar source
``label``               the model learned from labels, or will with the next batch: how many
``quarantine``          a row that could not be used, or on which the model failed, and why
``column``              a column that has a problem
``drift``               the target has changed
``watch``               from here on the target is watched for drift, or not, and why not
``alarm``               an alarm was raised, cleared, acknowledged, … (:mod:`baryflow.alarms`)
``checkpoint``          everything up to here is on disk
``warning``             something to know that stops nothing
======================  =====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from baryflow.streams.base import Rejected


@dataclass(frozen=True)
class Event:
    """Something that happened at a row of a stream.

    Attributes
    ----------
    kind : str
        See above.
    position : int
        The last row of the input that had been read.
    message : str
        For people.
    details : dict
        For programs: plain values.
    """

    kind: str
    position: int
    message: str
    details: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the event as one flat object, for a line of NDJSON."""
        return {"event": self.kind, "position": self.position, "message": self.message, **self.details}

    def of_target(self, key: str) -> Event:
        """Return the event with the key of its target."""
        message = f"{key}: {self.message}" if key else self.message
        return Event(self.kind, self.position, message, {"key": key, **self.details})

    @classmethod
    def rejected(cls, row: Rejected, position: int) -> Event:
        """Return the event of a row that could not be used."""
        return cls("quarantine", position, f"row {row.position}: {row.reason}", {"reason": row.reason})
