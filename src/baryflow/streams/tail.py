"""Bytes of a file that grows, under a name that may pass to another file."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any

from baryflow.streams.bytesource import Marks, is_known
from baryflow.streams.lines import CHUNK, Turn

#: Seconds between two looks at a file that does not grow.
INTERVAL = 0.1


class TailFeed:
    """Follows a growing file by its name, as ``tail -F`` does.

    Another file under the name (rotation) is read from its beginning after the old one was read to its
    end; a file that shrank, or that begins differently than before, is read anew with a warning. Until
    there is a file it waits. Of several rotations between two looks only the last is seen.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._marks = Marks()
        self._idle = False  # whether nothing had come at the last look
        self._last: dict[str, Any] = {}  # of the bytes handed out
        self._open()

    def _open(self, path: Path | None = None) -> bool:
        try:
            file = (path or self._path).open("rb", buffering=0)
        except FileNotFoundError:
            return False
        if self._file is not None:
            self._file.close()
        self._file, self._marks, self._idle = file, Marks(), False
        return True

    def chunk(self, wait: float | None) -> bytes | Turn | None:
        """Return more bytes or what happened to the file; None if nothing came."""
        deadline = None if wait is None else monotonic() + wait
        while True:
            found = self._look() if self._file is not None or self._open() else None
            if found is not None:
                return found
            pause = INTERVAL if deadline is None else min(INTERVAL, deadline - monotonic())
            if pause <= 0:
                return None
            sleep(pause)

    def _look(self) -> bytes | Turn | None:
        file = self._file
        if file is None:
            return None
        place = file.tell()
        if os.fstat(file.fileno()).st_size < place:
            return self._start_over("has shrunk")
        chunk = file.read(CHUNK)
        if chunk:
            # Written anew while nobody looked, and longer than it was: only its beginning tells.
            if self._idle and not is_known(file, self._last):
                return self._start_over("begins differently than before")
            self._idle = False
            return chunk
        if not self._idle:
            self._idle, self._last = True, Marks().make(file, place)
        if not self._is_replaced(file):
            return None
        # Between the two looks something may still have been written to the old one.
        return file.read(CHUNK) or (Turn.ROTATED if self._open() else None)

    def _is_replaced(self, file: IO[bytes]) -> bool:
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(file.fileno()))
        except FileNotFoundError:
            return False

    def _start_over(self, reason: str) -> Turn:
        warnings.warn(f"{self._path} {reason}; it is read from its beginning", stacklevel=2)
        if self._file is not None:
            self._file.seek(0)
        self._marks, self._idle = Marks(), False
        return Turn.TRUNCATED

    def find(self, cursor: dict[str, Any]) -> int:
        """Find the file of `cursor`, also if it has another name by now, and return the offset in it."""
        for path in self._candidates(cursor):
            with path.open("rb", buffering=0) as file:
                known = os.fstat(file.fileno()).st_size >= cursor["offset"] and is_known(file, cursor)
            if known and self._open(path):
                return int(cursor["offset"])
        warnings.warn(
            f"what was read of {self._path} before is no longer there; it is read from its beginning",
            stacklevel=2,
        )
        self._open()
        return 0

    def _candidates(self, cursor: dict[str, Any]) -> list[Path]:
        """Files that may be the one of `cursor`, those with its number first."""
        beside = sorted(path for path in self._path.parent.glob("*") if path.is_file())
        same = [path for path in beside if path.stat().st_ino == cursor.get("inode")]
        return same + ([self._path] if self._path.is_file() and self._path not in same else [])

    def jump(self, offset: int) -> None:
        """Go to an offset."""
        if self._file is not None:
            self._file.seek(offset)

    def mark(self, offset: int) -> dict[str, Any]:
        """Return the mark of the file that is read now."""
        if self._file is None:
            return {"offset": 0, "head": "", "head_length": 0, "inode": 0}
        inode = os.fstat(self._file.fileno()).st_ino
        return {**self._marks.make(self._file, offset), "inode": inode}

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
