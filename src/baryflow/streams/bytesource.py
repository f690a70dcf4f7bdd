"""Bytes from files, compressed files, pipes and growing files, and the lines in them."""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import queue
import re
import stat
import sys
import threading
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any

from baryflow.exceptions import InvalidInputError
from baryflow.streams.decoding import KEPT, LONGEST_LINE, Line, Overlong

#: Bytes per read. Less than the longest line, so only a line begun in an earlier read can be too long.
CHUNK = 1 << 18
#: Bytes at the beginning of a file that identify it.
_HEAD = 4096
#: Seconds between checks of a file that does not grow.
_INTERVAL = 0.1
#: What is added to the name of a rotated file: a number, or a date and perhaps a time; and compressed.
_NUMBER, _DATE, _PACKED = r"\d{1,3}", r"\d[\dTZ:._+-]{5,}", r"gz|bz2|xz|zst"


class FileChange(Enum):
    """What can happen to a followed file instead of more bytes."""

    #: Another file has taken its name. It begins with a header.
    ROTATED = "rotated"
    #: It was emptied or rewritten. A partial line will never be completed.
    TRUNCATED = "truncated"


@dataclass(frozen=True)
class Cut:
    """The end of a followed file was removed, and it continues at this offset."""

    offset: int


class ByteSource(ABC):
    """An input of bytes.

    ``notices`` are messages for the operator, for example that rows may be missing. The reader that
    reports them clears them.
    """

    def __init__(self) -> None:
        self.notices: list[str] = []

    @abstractmethod
    def read_chunk(self, wait: float | None) -> bytes | FileChange | Cut | None:
        """Return at most CHUNK bytes, ``b""`` at the end, or None if none came for `wait` seconds."""

    @abstractmethod
    def locate(self, cursor: dict[str, Any]) -> int | None:
        """Continue after `cursor` and return its offset; None for a pipe, which continues anyway."""

    @abstractmethod
    def mark(self, offset: int) -> dict[str, Any]:
        """Return a cursor for `locate`: the offset, and what identifies the input."""

    @abstractmethod
    def close(self) -> None:
        """Close the input."""


def open_bytes(what: str | Path, *, tail: bool = False) -> ByteSource:
    """Open a file, a growing file with `tail`, a named pipe, or standard input (``"-"``).

    Standard input that is redirected from a file is read as a file.
    """
    path = Path(what)
    if str(what) == "-":
        descriptor = sys.stdin.fileno()
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return _File(os.fdopen(os.dup(descriptor), "rb", buffering=0), "standard input")
        return _Pipe(descriptor)
    if tail:
        return _Tail(path)
    if path.is_file():
        return _File(path.open("rb", buffering=0), str(path))
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder; name a file in it")
    return _Pipe(os.open(path, os.O_RDONLY))


# -- lines ---------------------------------------------------------------------------------------------


class Lines:
    """Complete lines of a byte source, without their ends, in bounded memory.

    ``offset`` is that of the first byte after the lines that were read. ``ended`` is set once the input
    has ended for good, ``changed`` once another file follows the lines that are left of this one.
    """

    def __init__(self, source: ByteSource, offset: int = 0) -> None:
        self.offset = offset
        self.ended = self.changed = False
        self._source = source
        self._ready: list[Line] = []
        self._next = 0  # of those that are ready
        self._partial = bytearray()
        self._overlong: bytes | None = None  # beginning of a line that is being skipped
        self._skipped = 0
        self._open_end = False  # the last line has no line end

    @property
    def at_change(self) -> bool:
        """Whether all lines of the file were read, and another file follows."""
        return self.changed and self._next == len(self._ready)

    def begin_file(self) -> None:
        """Continue with the file that follows."""
        self.changed, self._open_end, self.offset = False, False, 0

    def peek(self, n: int, wait: float | None) -> list[Line]:
        """Return the next `n` lines, which stay to be read.

        There are fewer at the end of a file, or if no more bytes came for `wait` seconds.
        """
        while len(self._ready) < self._next + n and not (self.ended or self.changed):
            if not self._receive(wait):
                break
        return self._ready[self._next : self._next + n]

    def read(self, n: int, wait: float | None) -> list[Line]:
        """Return 1 to `n` lines, or none at the end of a file or after `wait` seconds without one."""
        self.peek(1, wait)
        lines = self._ready[self._next : self._next + n]
        self._next += len(lines)
        self.offset += _size_of(lines)
        if lines and self._open_end and self._next == len(self._ready):
            self.offset -= 1
        return lines

    def _receive(self, wait: float | None) -> bool:
        """Receive more bytes, or what happened to the file; return False if nothing came in time."""
        del self._ready[: self._next]
        self._next = 0
        chunk = self._source.read_chunk(wait)
        if chunk is None:
            return False
        if chunk is FileChange.TRUNCATED or isinstance(chunk, Cut):
            self._partial.clear()
            self._overlong = None
        if isinstance(chunk, Cut):
            self.offset = chunk.offset - _size_of(self._ready[self._next :])
        elif isinstance(chunk, FileChange) or not chunk:
            if self._partial or self._overlong is not None:
                self._complete()
                self._open_end = True
            self.changed = isinstance(chunk, FileChange)
            self.ended = not self.changed
        else:
            self._add(chunk)
        return True

    def _add(self, chunk: bytes) -> None:
        head, newline, rest = chunk.partition(b"\n")
        if self._overlong is not None:
            self._skipped += len(head)
        else:
            self._partial += head
            if len(self._partial) > LONGEST_LINE:
                self._overlong, self._skipped = bytes(self._partial[:KEPT]), len(self._partial)
                self._partial.clear()
        if not newline:
            return
        self._complete()
        lines = rest.split(b"\n")
        self._partial += lines.pop()
        self._ready.extend(lines)

    def _complete(self) -> None:
        if self._overlong is None:
            self._ready.append(bytes(self._partial))
        else:
            self._ready.append(Overlong(self._overlong, self._skipped))
        self._partial.clear()
        self._overlong = None


def _size_of(lines: Collection[Line]) -> int:
    return len(lines) + sum(map(len, lines))


# -- identifying a file --------------------------------------------------------------------------------


def _digest_head(file: IO[bytes], length: int) -> str:
    """Return a digest of the first `length` bytes; the file position does not change."""
    position = file.tell()
    file.seek(0)
    head = file.read(length)
    file.seek(position)
    return hashlib.sha256(head).hexdigest()


class _Marker:
    """Makes cursors that identify a file by a digest of its beginning, which is cached."""

    def __init__(self) -> None:
        self._length = -1
        self._digest = ""

    def mark(self, file: IO[bytes], offset: int) -> dict[str, Any]:
        """Return the cursor of a file that was read up to `offset`."""
        length = min(offset, _HEAD)
        if length != self._length:
            self._length, self._digest = length, _digest_head(file, length)
        return {"offset": offset, "head": self._digest, "head_length": length}


def _is_same(file: IO[bytes], cursor: dict[str, Any]) -> bool:
    """Return whether a file begins like the file of `cursor`."""
    return _digest_head(file, cursor["head_length"]) == str(cursor["head"])


# -- inputs --------------------------------------------------------------------------------------------


class _File(ByteSource):
    """The bytes of a complete file; ``.gz`` files are decompressed."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        super().__init__()
        self._name = name
        self._marker = _Marker()
        compressed = name.endswith(".gz")
        self._file: IO[bytes] = gzip.GzipFile(fileobj=file, mode="rb") if compressed else file  # type: ignore[assignment]
        self._raw = file

    def read_chunk(self, wait: float | None) -> bytes:  # noqa: ARG002 - a file never waits
        try:
            chunk = self._file.read(CHUNK)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InvalidInputError(
                f"{self._name} is not a complete gzip file ({error}); create it again, or use an "
                f"uncompressed file"
            ) from error
        if not chunk and self._has_shrunk():
            warnings.warn(f"{self._name} has shrunk while it was read; reading ends here", stacklevel=2)
        return chunk

    def _has_shrunk(self) -> bool:
        return self._file is self._raw and os.fstat(self._raw.fileno()).st_size < self._raw.tell()

    def locate(self, cursor: dict[str, Any]) -> int:
        self._file.seek(0)
        if not _is_same(self._file, cursor):
            raise InvalidInputError(
                f"cannot resume: {self._name} is not the file that was read before, it begins "
                "differently; name that file, or use another checkpoint folder"
            )
        self._file.seek(cursor["offset"])
        if self._has_shrunk():
            raise InvalidInputError(
                f"cannot resume: {self._name} is shorter than the {cursor['offset']} bytes that were "
                "read before; name the file that was read, or use another checkpoint folder"
            )
        return int(cursor["offset"])

    def mark(self, offset: int) -> dict[str, Any]:
        return self._marker.mark(self._file, offset)

    def close(self) -> None:
        self._file.close()
        self._raw.close()


class _Pipe(ByteSource):
    """The bytes of a pipe as they arrive.

    A thread reads them, because a read with a timeout is not possible on every system. A pipe cannot be
    read again, so its cursor holds only a count.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._chunks: queue.Queue[bytes] = queue.Queue(maxsize=8)
        self._closed = False
        threading.Thread(target=self._pump, args=(descriptor,), daemon=True).start()

    def _pump(self, descriptor: int) -> None:
        chunk = b"more"
        while chunk and not self._closed:
            try:
                chunk = os.read(descriptor, CHUNK)
            except OSError:  # the writer is gone
                chunk = b""
            self._chunks.put(chunk)

    def read_chunk(self, wait: float | None) -> bytes | None:
        try:
            return self._chunks.get(timeout=wait)
        except queue.Empty:
            return None

    def locate(self, cursor: dict[str, Any]) -> None:
        del cursor

    def mark(self, offset: int) -> dict[str, Any]:
        return {"offset": offset}

    def close(self) -> None:
        self._closed = True
        while not self._chunks.empty():  # the thread may be waiting for space
            self._chunks.get_nowait()


class _Tail(ByteSource):
    """Follows a growing file by name, like ``tail -F``.

    After a rotation, the old file is read to its end, then those that were rotated away since, then the
    new one. They are recognised by their names (``log.csv.1``, ``log.csv-20260131``,
    ``log-20260131.csv``) and ordered by when they were last written. Files that cannot be read, and
    files that were cut or rewritten, are reported in ``notices``. A file that does not exist yet is
    waited for.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file: IO[bytes] | None = None
        self._marker = _Marker()
        self._last: dict[str, Any] | None = None  # cursor after the last bytes that were read
        self._open()

    def _open(self, path: Path | None = None, offset: int = 0) -> bool:
        try:
            file = (path or self._path).open("rb", buffering=0)
        except FileNotFoundError:
            return False
        file.seek(offset)
        if self._file is not None:
            self._file.close()
        self._file, self._marker, self._last = file, _Marker(), None
        return True

    def read_chunk(self, wait: float | None) -> bytes | FileChange | Cut | None:
        deadline = None if wait is None else monotonic() + wait
        while True:
            if self._file is None:
                self._open()
            found = None if self._file is None else self._check(self._file)
            if found is not None:
                return found
            pause = _INTERVAL if deadline is None else min(_INTERVAL, deadline - monotonic())
            if pause <= 0:
                return None
            sleep(pause)

    def _check(self, file: IO[bytes]) -> bytes | FileChange | Cut | None:
        position = file.tell()
        has_shrunk = os.fstat(file.fileno()).st_size < position
        chunk = b"" if has_shrunk else file.read(CHUNK)
        # A file that was rewritten between two checks may be longer than it was.
        if self._last is not None and (has_shrunk or (chunk and not _is_same(file, self._last))):
            offset = self.locate(self._last)
            if offset == position:  # in a copy that was made before
                return None
            return Cut(offset) if offset else FileChange.TRUNCATED
        if chunk:
            self._last = self.mark(file.tell())
            return chunk
        following = self._find_following(file)
        if following is None:
            return None
        # The old file may have grown since the read above.
        more = file.read(CHUNK)
        if more or not self._open(following):
            return more or None
        return FileChange.ROTATED

    # -- rotated files ---------------------------------------------------------------------------------

    def _beside(self) -> list[Path]:
        """Return the files in the same folder; none while it is gone."""
        with suppress(OSError):
            return sorted(path for path in self._path.parent.iterdir() if path.is_file())
        return []

    def _rotated(self) -> list[_RotatedFile]:
        """Return files with the name of a rotated one, but not the present file; the oldest first."""
        name, stem, suffix = map(re.escape, (self._path.name, self._path.stem, self._path.suffix))
        pattern = re.compile(
            rf"(?:{name}[._-]({_NUMBER}|{_DATE})|{stem}[._-]({_DATE}){suffix})(?:\.({_PACKED}))?"
        )
        found, current = [], _inode(self._path)
        for path in self._beside():
            match = pattern.fullmatch(path.name)
            with suppress(OSError):  # it was just rotated, or deleted
                if match and _inode(path) != current:
                    number = int(match[1]) if re.fullmatch(_NUMBER, match[1] or "") else 0
                    found.append(_RotatedFile(path.stat().st_mtime_ns, -number, path, bool(match[3])))
        return sorted(found)

    def _find_following(self, file: IO[bytes]) -> Path | None:
        """Return the next file after one that is rotated away; None if there is none yet.

        Add a notice if a file between them cannot be read.
        """
        status, current = os.fstat(file.fileno()), _inode(self._path)
        if status.st_ino == current:
            return None
        rotated = self._rotated()
        own = next((one for one in rotated if _inode(one.path) == status.st_ino), None)
        earlier = [one for one in rotated if own is not None and one < own]
        # What the file itself is packed into is no other file, and keeps the time of its last write.
        if own is not None:
            later = [
                one
                for one in rotated
                if one > own and not (one.is_packed and one.path.stem == own.path.name)
            ]
        else:  # it was deleted, and came before all those that were written as late
            ended = status.st_mtime_ns
            later = [one for one in rotated if one.written >= ended + one.is_packed]
        readable = next((one for one in later if not one.is_packed), None)
        if readable is None and current is None:
            return None  # the next file will come
        following = self._path if readable is None else readable.path
        skipped = [one.path.name for one in later if one.is_packed and (not readable or one < readable)]
        if own is not None and own.number and not any(0 < one.number < own.number for one in earlier):
            # As logrotate numbers them, the latest is 1.
            known = {one.number for one in rotated}
            least = 0 if readable is None else readable.number
            missing = [n for n in range(least + 1, own.number) if n not in known]
            skipped += [f"{self._path.name}.{number}" for number in reversed(missing)]
        if skipped:
            self.notices.append(
                f"rows may be missing: {', '.join(skipped)} came between {Path(file.name).name} and "
                f"{following.name} and cannot be read; reading {following.name} from the beginning"
            )
        return following

    def locate(self, cursor: dict[str, Any]) -> int:
        """Find the file of `cursor`, which may be renamed, copied or cut; return the offset in it.

        If it is gone, continue with the first file that was written later, and add a notice.
        """
        inode, offset, length = cursor.get("inode", 0), int(cursor["offset"]), cursor["head_length"]
        rotated = [one for one in self._rotated() if not one.is_packed]
        candidates = [path for path in self._beside() if _inode(path) == inode]
        if length:  # its beginning is known
            candidates += [self._path, *(one.path for one in reversed(rotated))]
        for path in candidates:
            if _size(path) >= offset and _begins_as(path, cursor) and self._open(path, offset):
                self._last = cursor if length else None
                return offset
        name, size = self._path.name, _size(self._path)
        if length and size >= length and _begins_as(self._path, cursor):
            self.notices.append(
                f"{name} was cut in place, from at least {offset:,} to {size:,} bytes; what is left was "
                "read before, so reading continues at its end"
            )
            self._open(None, size)
            self._last = self.mark(size)
            return size
        # Older files, which were read before, were not written since.
        later = [one.path for one in rotated if one.written > cursor.get("written", math.inf)]
        first = [*later, self._path][0]
        if inode:
            reason = "was cut or rewritten in place"
            if _inode(self._path) != inode:
                reason = "was replaced, and the part that was read before no longer exists"
            self.notices.append(
                f"{name} {reason}: rows after byte {offset:,} of the old content may be missing; "
                f"reading {first.name} from the beginning"
            )
        self._open(first)
        return 0

    def mark(self, offset: int) -> dict[str, Any]:
        if self._file is None:
            return {"offset": 0, "head": "", "head_length": 0, "inode": 0}
        status = os.fstat(self._file.fileno())
        known = {"inode": status.st_ino, "written": status.st_mtime_ns}
        return {**self._marker.mark(self._file, offset), **known}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@dataclass(frozen=True, order=True)
class _RotatedFile:
    """A file that was rotated away; they are ordered by age, the oldest first."""

    written: int  # time of the last write, in nanoseconds
    minus_number: int  # of files that were written at the same time, those with low numbers are newer
    path: Path
    is_packed: bool

    @property
    def number(self) -> int:
        """The number in its name, 0 if it has a date."""
        return -self.minus_number


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _begins_as(path: Path, cursor: dict[str, Any]) -> bool:
    try:
        with path.open("rb", buffering=0) as file:
            return _is_same(file, cursor)
    except OSError:
        return False
