"""Messages of a broker to rows: each is a JSON object, and what is wrong with one is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from baryflow.streams.base import Batch, Rejected
from baryflow.streams.blocks import Block, Selection, reject_strange
from baryflow.streams.decoding import JsonDecoder, begin
from baryflow.streams.lines import LONGEST_LINE, Line, Overlong

#: Of the beginning of a message that is too long so many bytes are kept.
_KEPT = 1024


@dataclass(frozen=True)
class Message:
    """Something that a broker delivered.

    Attributes
    ----------
    payload : bytes
        A JSON object: name → number, null where there is no value.
    offset : str
        By which the broker knows it.
    time : str
        When it was sent, if the broker tells; used if no column holds the time.
    names : dict of str → str
        What can stand for a key: ``{"@topic": "plant/pump7"}``.
    """

    payload: bytes
    offset: str = ""
    time: str = ""
    names: dict[str, str] = field(default_factory=dict)


class Messages:
    """Turns messages into batches, and counts them.

    Parameters
    ----------
    columns : sequence of str
        The columns of a row, in this order.
    time, key : str, optional
        Names in the object, or, for a key that begins with ``@``, of the message.
    position : int
        Messages that came before.
    """

    def __init__(
        self, columns: Sequence[str], time: str | None = None, key: str | None = None, position: int = 0
    ) -> None:
        self.position = position
        self._time, self._key = time, key
        inner = [name for name in (time, key) if name is not None and not name.startswith("@")]
        self._texts = inner
        self._decoder = JsonDecoder(list(columns), Selection(list(columns), inner), "a message")

    def batch(self, messages: Sequence[Message], cursor: dict[str, Any]) -> Batch:
        """Return the batch that messages make.

        Parameters
        ----------
        messages : sequence of Message
        cursor : dict
            Where to go on after them.

        Returns
        -------
        Batch
            Numbered from where the last one ended.
        """
        lines = [_line(message.payload) for message in messages]
        decoded = self._decoder.decode(lines)
        places = np.arange(self.position + 1, self.position + len(lines) + 1)
        self.position += len(lines)
        block = Block(
            decoded.numbers, decoded.strange, decoded.texts, places[decoded.good],
            [Rejected(int(places[at]), why, begin(lines[at])) for at, why in decoded.reasons.items()],
            lambda row: begin(lines[decoded.good[row]]), cursor,
        )  # fmt: skip
        good, rejected = reject_strange(block, self._decoder.chosen)
        kept = [messages[decoded.good[row]] for row in good]
        texts = {
            name: [column[row] for row in good]
            for name, column in zip(self._texts, block.texts, strict=True)
        }
        first = int(places[0]) if len(places) else 0
        named = [one.names.get(self._key or "", "") for one in kept]
        return Batch(
            rows=np.ascontiguousarray(block.numbers[good]),
            positions=block.positions[good],
            times=texts.get(self._time or "", [one.time for one in kept]),
            keys=texts.get(self._key or "", named),
            rejected=[replace(one, offset=messages[one.position - first].offset) for one in rejected],
            cursor=cursor,
            offsets=[one.offset for one in kept],
        )  # fmt: skip


def _line(payload: bytes) -> Line:
    """Return a payload as a line; its own line breaks are blanks between tokens."""
    if len(payload) > LONGEST_LINE:
        return Overlong(payload[:_KEPT], len(payload))
    return payload.replace(b"\n", b" ").replace(b"\r", b" ")
