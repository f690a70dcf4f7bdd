"""A file to which batches are appended, each on disk before it counts.

A record is its length, a checksum and its content: JSON and the rows as they are. What a killed process
has left half written at the end is cut off when the journal is opened again.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from baryflow.streams import Batch, Rejected

_HEAD = struct.Struct("<II")  # length and CRC-32 of the content
_SIZE = struct.Struct("<I")  # length of the JSON in it


class Journal:
    """Batches in the order in which they came.

    Parameters
    ----------
    path : path
        Made if it is not there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.cut = 0  # bytes of a record that was not complete
        self.damaged = False  # whether it was complete, and not what was written
        is_new = not self.path.exists()
        self._file = self.path.open("a+b")
        self._end = 0
        if is_new and os.name == "posix":
            try:
                _sync_folder(self.path.parent)
            except BaseException:
                self._file.close()
                raise

    def replay(self) -> Iterator[Batch]:
        """Yield the batches that are there, and cut off what follows the last complete one.

        What follows is usually what a kill has left half written. If it is more than that, the disk has
        damaged it: it is kept beside the journal, and a warning says so.

        Yields
        ------
        Batch
        """
        size = self.path.stat().st_size
        self._end = 0
        with self.path.open("rb") as file:
            while (content := _next(file, size)) is not None:
                self._end = file.tell()
                yield _unpack(content)
            file.seek(self._end)
            rest = file.read()
        self.cut = len(rest)
        self.damaged = _is_whole(rest)
        if self.damaged:
            kept = self.path.with_suffix(".damaged")
            kept.write_bytes(rest)
            warnings.warn(
                f"{self.path} is damaged: {len(rest):,} bytes cannot be read and are kept in {kept}; if "
                "the input does not bring their rows again they are lost",
                UserWarning,
                stacklevel=2,
            )
        if self.cut:
            self._file.truncate(self._end)
            os.fsync(self._file.fileno())

    def append(self, *batches: Batch) -> None:
        """Write batches; they are on disk when this returns.

        Parameters
        ----------
        *batches : Batch
            All or none of them is written.

        Raises
        ------
        OSError
            If they cannot be written, for instance because the disk is full. The journal then holds
            what it held before.
        """
        contents = [_pack(batch) for batch in batches]
        try:
            for content in contents:
                self._file.write(_HEAD.pack(len(content), zlib.crc32(content)) + content)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError:
            self._forget_unwritten()
            raise
        self._end = self._file.tell()

    def _forget_unwritten(self) -> None:
        """Close the file without writing what is still in its buffer, and cut off what was."""
        with contextlib.suppress(OSError):
            self._file.close()
        os.truncate(self.path, self._end)
        self._file = self.path.open("a+b")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _sync_folder(folder: Path) -> None:
    """Bring the names of files to the disk, before anything in them counts."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _next(file: Any, size: int) -> bytes | None:
    """Return the content of the next record; None at the end, also if it is not complete."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    length, checksum = _HEAD.unpack(head)
    if file.tell() + length > size:
        return None
    content: bytes = file.read(length)
    return content if zlib.crc32(content) == checksum else None


def _is_whole(rest: bytes) -> bool:
    """Tell whether there is a record of its full length, so that no kill can have cut it off."""
    if len(rest) < _HEAD.size:
        return False
    return len(rest) >= _HEAD.size + int(_HEAD.unpack(rest[: _HEAD.size])[0])


def _pack(batch: Batch) -> bytes:
    words = {
        "shape": list(batch.rows.shape),
        "positions": batch.positions.tolist(),
        "times": batch.times,
        "keys": batch.keys,
        "rejected": [asdict(row) for row in batch.rejected],
        "cursor": batch.cursor,
        "offsets": batch.offsets,
        "notices": batch.notices,
        "held": batch.held,
        "partition": batch.partition,
    }
    text = json.dumps(words, ensure_ascii=False).encode()
    return _SIZE.pack(len(text)) + text + np.ascontiguousarray(batch.rows).tobytes()


def _unpack(content: bytes) -> Batch:
    (length,) = _SIZE.unpack(content[: _SIZE.size])
    words = json.loads(content[_SIZE.size : _SIZE.size + length])
    rows = np.frombuffer(content, dtype=np.float64, offset=_SIZE.size + length)
    return Batch(
        rows=rows.reshape(words["shape"]),
        positions=np.array(words["positions"], dtype=np.intp),
        times=words["times"],
        keys=words["keys"],
        rejected=[Rejected(**row) for row in words["rejected"]],
        **{name: words[name] for name in ("cursor", "offsets", "notices", "held", "partition")},
    )
