"""A file of batches, each on disk before it counts.

A record is its length, a checksum and its content: JSON, then the rows as bytes. A record that a killed
process left incomplete at the end is cut off when the journal is replayed.
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

from baryflow import container
from baryflow.streams import Batch, Label, Rejected
from baryflow.streams.base import AlarmCommand

_HEAD = struct.Struct("<II")  # length and CRC-32 of the content
_SIZE = struct.Struct("<I")  # length of the JSON in it


class Journal:
    """Batches in the order in which they were appended.

    Parameters
    ----------
    path : path
        Created if it does not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.cut = 0  # bytes after the last complete record
        self.damaged = False  # whether these hold a record of full length with a wrong checksum
        is_new = not self.path.exists()
        self._file = self.path.open("a+b")
        self._end = 0
        if is_new:
            try:
                container.sync(self.path.parent)
            except BaseException:
                self._file.close()
                raise

    def replay(self) -> Iterator[Batch]:
        """Yield the batches in the file, and cut off what follows the last complete one.

        That is usually the record a kill left incomplete. If it is more, the disk has damaged it: the
        bytes are kept beside the journal, with a warning.
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
        self.damaged = _has_full_length(rest)
        if self.damaged:
            kept = self.path.with_suffix(".damaged")
            kept.write_bytes(rest)
            warnings.warn(
                f"{self.path} is damaged: {len(rest):,} bytes cannot be read and are kept in {kept}; if "
                "the input does not deliver their rows again they are lost",
                UserWarning,
                stacklevel=2,
            )
        if self.cut:
            self._file.truncate(self._end)
            os.fsync(self._file.fileno())

    def append(self, *batches: Batch) -> None:
        """Write batches, all or none of them; they are on disk when this returns.

        If that fails with an OSError, for instance because the disk is full, the journal is unchanged.
        """
        contents = [_pack(batch) for batch in batches]
        try:
            for content in contents:
                self._file.write(_HEAD.pack(len(content), zlib.crc32(content)) + content)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError:
            self._discard_unwritten()
            raise
        self._end = self._file.tell()

    def _discard_unwritten(self) -> None:
        """Close the file without writing what is still in its buffer, and cut off what was written."""
        with contextlib.suppress(OSError):
            self._file.close()
        os.truncate(self.path, self._end)
        self._file = self.path.open("a+b")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _next(file: Any, size: int) -> bytes | None:
    """Return the content of the next record; None at the end, also if the record is incomplete."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    length, checksum = _HEAD.unpack(head)
    if file.tell() + length > size:
        return None
    content: bytes = file.read(length)
    return content if zlib.crc32(content) == checksum else None


def _has_full_length(rest: bytes) -> bool:
    """Return whether a record has its full length, so that no kill can have cut it off."""
    if len(rest) < _HEAD.size:
        return False
    return len(rest) >= _HEAD.size + int(_HEAD.unpack(rest[: _HEAD.size])[0])


def _pack(batch: Batch) -> bytes:
    fields = {name: value for name, value in vars(batch).items() if name != "rows"}
    fields["shape"] = list(batch.rows.shape)
    fields["positions"] = batch.positions.tolist()
    fields["rejected"] = [asdict(row) for row in batch.rejected]
    fields["labels"] = [asdict(label) for label in batch.labels]
    fields["commands"] = [asdict(command) for command in batch.commands]
    text = json.dumps(fields, ensure_ascii=False).encode()
    return _SIZE.pack(len(text)) + text + np.ascontiguousarray(batch.rows).tobytes()


def _unpack(content: bytes) -> Batch:
    (length,) = _SIZE.unpack(content[: _SIZE.size])
    fields = json.loads(content[_SIZE.size : _SIZE.size + length])
    rows = np.frombuffer(content, dtype=np.float64, offset=_SIZE.size + length)
    fields["rows"] = rows.reshape(fields.pop("shape"))
    fields["positions"] = np.array(fields["positions"], dtype=np.intp)
    fields["rejected"] = [Rejected(**row) for row in fields["rejected"]]
    fields["labels"] = [Label(**label) for label in fields.get("labels", [])]
    fields["commands"] = [AlarmCommand(**command) for command in fields.get("commands", [])]
    return Batch(**fields)
