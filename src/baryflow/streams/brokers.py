"""Messages of brokers to rows and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import AlarmCommand, Batch, Label
from baryflow.streams.decoding import (
    KEPT,
    LONGEST_LINE,
    JsonDecoder,
    Line,
    Overlong,
    Selection,
    parse_objects,
    reject_invalid,
)
from baryflow.streams.label_records import CommandFormat, LabelFormat


@dataclass(frozen=True)
class Message:
    """A message that a broker delivered."""

    payload: bytes  # a JSON object: name → number, null for a missing value
    offset: str = ""  # the broker's identifier for it
    time: str = ""  # when it was sent, if known; used if no column holds the time
    properties: dict[str, str] = field(default_factory=dict)  # possible keys, "@topic" → "plant/pump7"


class MessageDecoder:
    """Turns messages into batches, and counts them in `position`.

    `time` and `key` are names in the JSON object; a key that begins with ``@`` is a property of the
    message.
    """

    def __init__(
        self, columns: Sequence[str], time: str | None = None, key: str | None = None, position: int = 0
    ) -> None:
        self.position = position
        self._time, self._key = time, key
        self._texts = [name for name in (time, key) if name is not None and not name.startswith("@")]
        self._decoder = JsonDecoder(list(columns), Selection(list(columns), self._texts), "a message")

    def batch(self, messages: Sequence[Message]) -> Batch:
        """Return the rows of messages, numbered from where the last batch ended; so does its cursor."""
        lines = [_as_line(message.payload) for message in messages]
        first = self.position + 1
        block = self._decoder.decode(lines, first)
        self.position += len(lines)
        cursor = {"position": self.position}
        good, rejected = reject_invalid(block, self._decoder.chosen)
        positions = block.positions[good]
        kept = [messages[position - first] for position in positions]
        texts = {
            name: [column[row] for row in good]
            for name, column in zip(self._texts, block.texts, strict=True)
        }
        return Batch(
            rows=block.numbers[good],
            positions=positions,
            times=texts.get(self._time or "", [one.time for one in kept]),
            keys=texts.get(self._key or "", [one.properties.get(self._key or "", "") for one in kept]),
            rejected=[replace(one, offset=messages[one.position - first].offset) for one in rejected],
            cursor=cursor,
            offsets=[one.offset for one in kept],
        )


class LabelDecoder:
    """Turns messages and other records into batches of labels or commands; `position` counts them."""

    def __init__(self, how: LabelFormat | CommandFormat, position: int = 0) -> None:
        self.position = position
        self._how = how

    def batch(self, messages: Sequence[Message]) -> Batch:
        """Return the labels of messages."""
        records = parse_objects([_as_line(message.payload) for message in messages])
        return self.decode(records, {"position": self.position + len(records)})

    def decode(self, records: Sequence[dict[str, Any] | str], cursor: dict[str, Any]) -> Batch:
        """Return the labels in records; a record that is text is the reason why it is none."""
        labels: list[Label] = []
        commands: list[AlarmCommand] = []
        notices: list[str] = []
        for record in records:
            self.position += 1
            try:
                if isinstance(record, str):
                    raise InvalidInputError(record.rstrip("."))
                found = self._how.parse(record)
            except InvalidInputError as error:
                what = self._how.what.removesuffix("s")
                notices.append(f"{what} {self.position} is not used: {error}")
                continue
            if isinstance(found, AlarmCommand):
                commands.append(found)
            elif found is not None:
                labels.append(found)
        return Batch(
            rows=np.empty((0, 0)),
            positions=np.empty(0, dtype=np.intp),
            times=[],
            keys=[],
            rejected=[],
            cursor=cursor,
            notices=notices,
            held=bool(records),
            labels=labels,
            commands=commands,
        )


def _as_line(payload: bytes) -> Line:
    """Return a payload as one line; line breaks between JSON tokens become spaces."""
    if len(payload) > LONGEST_LINE:
        return Overlong(payload[:KEPT], len(payload))
    return payload.replace(b"\n", b" ").replace(b"\r", b" ")
