"""Bytes from files that are there, compressed files, and pipes."""

from __future__ import annotations

import gzip
import hashlib
import os
import queue
import stat
import sys
import threading
import warnings
import zlib
from pathlib import Path
from typing import IO, Any

from baryflow.exceptions import InvalidInputError
from baryflow.streams.lines import CHUNK

#: So much of the beginning of a file tells whether it is the one that was read before.
HEAD = 4096


def digest_head(file: IO[bytes], length: int) -> str:
    """Return a digest of the first `length` bytes, and leave the file where it stood."""
    place = file.tell()
    file.seek(0)
    head = file.read(length)
    file.seek(place)
    return hashlib.sha256(head).hexdigest()


class Marks:
    """Makes the marks by which a file is known again; its beginning is read only while it grows."""

    def __init__(self) -> None:
        self._length = -1
        self._digest = ""

    def make(self, file: IO[bytes], offset: int) -> dict[str, Any]:
        """Return the mark of a file that was read up to `offset`."""
        length = min(offset, HEAD)
        if length != self._length:
            self._length, self._digest = length, digest_head(file, length)
        return {"offset": offset, "head": self._digest, "head_length": length}


def is_known(file: IO[bytes], cursor: dict[str, Any]) -> bool:
    """Tell whether a file begins as the one that `cursor` was made from."""
    return digest_head(file, cursor["head_length"]) == str(cursor["head"])


class FileFeed:
    """The bytes of a file that is complete; compressed ones are read as what is in them."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._name = name
        self._marks = Marks()
        packed = name.endswith(".gz")
        self._file: IO[bytes] = gzip.GzipFile(fileobj=file, mode="rb") if packed else file  # type: ignore[assignment]
        self._raw = file

    def chunk(self, wait: float | None) -> bytes:  # noqa: ARG002 - a file keeps nobody waiting
        """Return more bytes, none at the end."""
        try:
            chunk = self._file.read(CHUNK)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InvalidInputError(
                f"{self._name} is not a complete gzip file ({error}); make it again, or name one "
                f"that is not compressed"
            ) from error
        if not chunk and self._is_cut():
            warnings.warn(f"{self._name} has shrunk while it was read; it ends here", stacklevel=2)
        return chunk

    def _is_cut(self) -> bool:
        return self._file is self._raw and os.fstat(self._raw.fileno()).st_size < self._raw.tell()

    def find(self, cursor: dict[str, Any]) -> int:
        """Return the offset of `cursor`, if this is the file it is from."""
        self._file.seek(0)
        if not is_known(self._file, cursor):
            raise InvalidInputError(
                f"{self._name} is not the file that was read before: its beginning differs; start anew "
                "(with another checkpoint folder), or name the file that was read"
            )
        self._file.seek(cursor["offset"])
        if self._is_cut():
            raise InvalidInputError(
                f"{self._name} is shorter than what was read of it before ({cursor['offset']} bytes); "
                f"start anew (with another checkpoint folder), or name the file that was read"
            )
        return int(cursor["offset"])

    def jump(self, offset: int) -> None:
        """Go to an offset."""
        self._file.seek(offset)

    def mark(self, offset: int) -> dict[str, Any]:
        """Return the mark of this file."""
        return self._marks.make(self._file, offset)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._raw.close()


class PipeFeed:
    """The bytes of a pipe, as they come.

    A thread reads them: there is no other way to wait for a while on every system. What was read cannot
    be read again, so a cursor only tells how many rows there were.
    """

    def __init__(self, descriptor: int) -> None:
        self._chunks: queue.Queue[bytes] = queue.Queue(maxsize=8)
        self._closed = False
        threading.Thread(target=self._pump, args=(descriptor,), daemon=True).start()

    def _pump(self, descriptor: int) -> None:
        chunk = b"more"
        while chunk and not self._closed:
            try:
                chunk = os.read(descriptor, CHUNK)
            except OSError:  # the other end is gone
                chunk = b""
            self._chunks.put(chunk)

    def chunk(self, wait: float | None) -> bytes | None:
        """Return more bytes, none at the end; None if nothing came."""
        try:
            return self._chunks.get(timeout=wait)
        except queue.Empty:
            return None

    def find(self, cursor: dict[str, Any]) -> None:
        """Go on: what was read before does not come again."""

    def jump(self, offset: int) -> None:
        """Refuse: a pipe flows one way."""
        raise InvalidInputError(
            f"expected an input that can be read again from byte {offset}, got a pipe"
        )

    def mark(self, offset: int) -> dict[str, Any]:
        """Return the mark of a pipe: only the number of bytes."""
        return {"offset": offset}

    def close(self) -> None:
        """Read no more."""
        self._closed = True
        while not self._chunks.empty():  # the thread may wait for room
            self._chunks.get_nowait()


def open_feed(path: Path) -> FileFeed | PipeFeed:
    """Open a file or a named pipe."""
    if path.is_file():
        return FileFeed(path.open("rb", buffering=0), str(path))
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder; name a file in it")
    return PipeFeed(os.open(path, os.O_RDONLY))


def open_standard_input() -> FileFeed | PipeFeed:
    """Open what flows into this program; a file that was redirected is read like a file."""
    descriptor = sys.stdin.fileno()
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return FileFeed(os.fdopen(os.dup(descriptor), "rb", buffering=0), "standard input")
    return PipeFeed(descriptor)
