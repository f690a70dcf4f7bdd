"""What happens while a stream is followed: one kind of event for the command line, logs and services.

======================  =====================================================================
kind                    what it tells
======================  =====================================================================
``batch``               rows of a batch, how far to trust it, which source the target resembles
``quarantine``          a row that could not be used, or on which the model failed, and why
``column``              a column that is not as it should be
``drift``               the target is no longer what it was
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
        The last row of the input that was read by then.
    words : str
        For people.
    details : dict
        For programs: plain values.
    """

    kind: str
    position: int
    words: str
    details: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return it as one flat object, fit for a line of NDJSON.

        Returns
        -------
        dict
        """
        return {"event": self.kind, "position": self.position, "words": self.words, **self.details}

    def named(self, key: str) -> Event:
        """Return it with the key of the machine to which it happened.

        Parameters
        ----------
        key : str

        Returns
        -------
        Event
        """
        words = f"{key}: {self.words}" if key else self.words
        return Event(self.kind, self.position, words, {"key": key, **self.details})


def tell_rejected(row: Rejected, position: int) -> Event:
    """Return the event of a row that could not be used.

    Parameters
    ----------
    row : Rejected
    position : int
        The last row that was read by then.

    Returns
    -------
    Event
    """
    return Event("quarantine", position, f"row {row.position}: {row.reason}", {"reason": row.reason})
