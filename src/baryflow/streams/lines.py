"""Lines from bytes as they come, in bounded memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

#: Longer lines are no rows; what is kept of them is their beginning.
LONGEST_LINE = 1 << 20
#: Bytes read at a time; less than the longest line, so that only a line begun earlier can be too long.
CHUNK = 1 << 18
_KEPT = 1024


class Turn(Enum):
    """What can happen to a file that is followed, instead of more bytes."""

    #: Another file has taken its name; what comes next begins with a header.
    ROTATED = "rotated"
    #: It was emptied or written anew; a line that had been begun will never end.
    TRUNCATED = "truncated"


class Feed(Protocol):
    """Where bytes come from."""

    def chunk(self, wait: float | None) -> bytes | Turn | None:
        """Return at most CHUNK bytes, none at the end; None if nothing came for `wait` seconds."""

    def find(self, cursor: dict[str, Any]) -> int | None:
        """Find the input that `cursor` is from, and return the offset to go on at.

        None if it can only go on where it is.
        """

    def jump(self, offset: int) -> None:
        """Go to an offset in it."""

    def mark(self, offset: int) -> dict[str, Any]:
        """Return what `find` needs in order to know this input again."""

    def close(self) -> None:
        """Let go of it."""


@dataclass(frozen=True)
class Overlong:
    """A line that was too long to be kept."""

    beginning: bytes
    length: int


Line = bytes | Overlong


class Lines:
    """Complete lines, without their ends.

    Attributes
    ----------
    offset : int
        Of the first byte after the lines that were taken.
    ended : bool
        Whether there is nothing more, and never will be.
    """

    def __init__(self, feed: Feed, offset: int = 0) -> None:
        self.offset = offset
        self.ended = False
        self._feed = feed
        self._ready: deque[Line] = deque()
        self._partial = bytearray()
        self._begun: bytes | None = None  # beginning of a line that is being skipped
        self._skipped = 0
        self._turned = False
        self._open_end = False  # the last line has no line end

    def take(self, n: int, wait: float | None) -> list[Line] | Turn:
        """Return between 1 and `n` lines; none after `wait` seconds without one, or at the end.

        When the file turns, the lines before come first; where a new one begins, `offset` is 0.
        """
        while not self._ready:
            if self.ended:
                return []
            if self._turned:
                self._turned, self._open_end, self.offset = False, False, 0
                return Turn.ROTATED
            chunk = self._feed.chunk(wait)
            if chunk is None:
                return []
            if isinstance(chunk, Turn):
                if chunk is Turn.TRUNCATED:
                    self._partial.clear()
                    self._begun = None
                self._finish()
                self._turned = True
            elif not chunk:
                self._finish()
                self.ended = True
            else:
                self._add(chunk)
        taken = [self._ready.popleft() for _ in range(min(n, len(self._ready)))]
        self.offset += self._size(taken)
        if self._open_end and not self._ready:
            self.offset -= 1
        return taken

    @property
    def turned(self) -> bool:
        """Whether everything of the file was taken, and another one comes."""
        return self._turned and not self._ready

    def put_back(self, lines: list[Line]) -> None:
        """Give back lines that were taken last."""
        if self._open_end and not self._ready and lines:
            self.offset += 1
        self._ready.extendleft(reversed(lines))
        self.offset -= self._size(lines)

    def turn_back(self) -> None:
        """Give back a turn that was taken last."""
        self._turned = True

    @staticmethod
    def _size(lines: list[Line]) -> int:
        return len(lines) + sum(
            line.length if isinstance(line, Overlong) else len(line) for line in lines
        )

    def _add(self, chunk: bytes) -> None:
        head, newline, rest = chunk.partition(b"\n")
        if self._begun is not None:
            self._skipped += len(head)
        else:
            self._partial += head
            if len(self._partial) > LONGEST_LINE:
                self._begun, self._skipped = bytes(self._partial[:_KEPT]), len(self._partial)
                self._partial.clear()
        if not newline:
            return
        self._complete()
        lines = rest.split(b"\n")
        self._partial += lines.pop()
        self._ready.extend(lines)

    def _complete(self) -> None:
        if self._begun is None:
            self._ready.append(bytes(self._partial))
        else:
            self._ready.append(Overlong(self._begun, self._skipped))
        self._partial.clear()
        self._begun = None

    def _finish(self) -> None:
        if self._partial or self._begun is not None:
            self._complete()
            self._open_end = True
