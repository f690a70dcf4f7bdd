"""The ``.bary`` file: named arrays and a JSON manifest in one safetensors file.

This module knows the file and nothing of what is kept in it: an object hands over its *kind*, plain
values and arrays, and gets the same back. Nothing is executed here. A checksum over the whole
file tells every damaged byte, and a file appears under its name only when it is complete, so that a
process killed while saving leaves the previous file in place.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from baryflow.exceptions import FileFormatError, InvalidInputError

#: Version of the container. A reader refuses every other: version 1 had no checksum.
SCHEMA = 2
#: Files of rows, which users take for models.
_TABLES = {
    ".csv": "a CSV file", ".tsv": "a CSV file", ".ndjson": "an NDJSON file", ".jsonl": "an NDJSON file",
    ".parquet": "a Parquet file", ".npz": "a NumPy archive", ".npy": "a NumPy array",
}  # fmt: skip
_KEY = "baryflow"
_LENGTH = struct.Struct("<Q")
#: Stands for the checksum while it is computed.
_BLANK = "0" * 64
#: How the names of files end while they are written. They begin with a dot: readers pass over them.
_UNFINISHED = ".unfinished"
#: Attempts to write a file that other processes delete as unfinished; each does so once, at its start.
_TRIES = 4

Arrays = dict[str, np.ndarray[Any, Any]]
Values = dict[str, Any]


@dataclass(frozen=True)
class Content:
    """What a file holds.

    Attributes
    ----------
    name : str
        Of the file, for messages.
    kind : str
        What the object is.
    version : str
        The release that wrote it.
    date : str
        When it was saved; empty if it never was a file.
    """

    name: str
    kind: str
    values: Values
    arrays: Arrays
    version: str = ""
    date: str = ""


def write(path: str | os.PathLike[str], kind: str, values: Values, arrays: Arrays) -> None:
    """Write one object to a file, atomically."""
    write_bytes(path, to_bytes(kind, values, arrays, date=datetime.now(UTC).isoformat("T", "seconds")))


def to_bytes(kind: str, values: Values, arrays: Arrays, *, date: str = "") -> bytes:
    """Return the content of a file; without a date the same object is the same bytes."""
    from safetensors.numpy import save

    manifest = {
        "schema": SCHEMA,
        "kind": kind,
        "version": version("baryflow"),
        "date": date,
        "checksum": _BLANK,
        "values": values,
    }
    # One metadata key: the order of several is not fixed, and same content should be same bytes.
    text = json.dumps(manifest, sort_keys=True, allow_nan=False)
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    blank: bytes = save(contiguous, metadata={_KEY: text})
    start = blank.index(_BLANK.encode())
    checksum = hashlib.sha256(blank).hexdigest().encode()
    return blank[:start] + checksum + blank[start + len(checksum) :]


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a whole file atomically: temporary file in the same folder, flush to disk, rename."""
    target = _as_path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: there is no folder {target.parent}")
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {target}: it is a folder; give the name of a file in it")
    try:
        _replace(target, content)
    except OSError as error:
        if error.strerror is None:
            raise
        # Without the temporary name, which says nothing.
        raise type(error)(error.errno, f"cannot write {target}: {error.strerror}") from error
    sync(target.parent)


def sweep(folder: str | os.PathLike[str]) -> None:
    """Remove what writers who were killed have left in a folder, if there is one.

    A writer who is still at it does not mind: it writes again.
    """
    with suppress(FileNotFoundError):
        for path in Path(folder).glob(f".*{_UNFINISHED}"):
            path.unlink(missing_ok=True)


def _replace(target: Path, content: bytes) -> None:
    for tries in range(_TRIES, 0, -1):
        try:
            _write_and_rename(target, content)
        except FileNotFoundError:  # deleted as unfinished by another process
            if tries == 1:
                raise
        else:
            return


def _write_and_rename(target: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(_UNFINISHED, f".{target.name}.", target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private; a saved model gets the permissions of any new file.
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Return when a file, or the names in a folder, are on disk; on Windows folders cannot be synced."""
    if os.name != "posix" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: str | os.PathLike[str]) -> Content:
    """Read one object, or raise one clear error."""
    file = _as_path(path)
    return from_bytes(read_regular(file, "a .bary file"), name=str(file))


def read_regular(path: Path, wanted: str) -> bytes:
    """Return the bytes of a regular file; a device or a pipe may have no end, so it is refused unread.

    Parameters
    ----------
    path : path
    wanted : str
        What was expected there, for the message.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FileFormatError
        If it is not a regular file, or cannot be read.
    """
    try:
        # Opening a FIFO without O_NONBLOCK waits for a writer. The open file is checked, not its name.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(path, flags)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise FileFormatError(_not_regular(path, mode, wanted))
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"no such file: {path}") from error
    except OSError as error:
        with suppress(OSError):  # sockets cannot be opened, nor can folders on some platforms
            mode = path.stat().st_mode
            if not stat.S_ISREG(mode):
                raise FileFormatError(_not_regular(path, mode, wanted)) from error
        raise FileFormatError(f"cannot read {path}: {error.strerror}") from error


def _not_regular(path: Path, mode: int, wanted: str) -> str:
    kinds = {
        stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFCHR: "device", stat.S_IFBLK: "device",
        stat.S_IFSOCK: "socket",
    }  # fmt: skip
    kind = kinds.get(stat.S_IFMT(mode), "special file")
    return f"cannot read {path}: it is a {kind}; give the name of {wanted}"


def _as_path(path: Any) -> Path:
    if isinstance(path, (bytes, bytearray, memoryview)):
        raise InvalidInputError(
            "expected the path of a file, got bytes: what to_bytes() gave is read by from_bytes() of "
            "the same class"
        )
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidInputError(f"expected the path of a file, got {type(path).__name__}: {path!r:.60}")
    return Path(path)


def from_bytes(data: bytes, *, name: str = "the data") -> Content:
    """Take the content of a file apart, checking it; `name` is for messages."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        (length,) = _LENGTH.unpack(data[: _LENGTH.size])
        header = json.loads(data[_LENGTH.size : _LENGTH.size + length])
        text = header.get("__metadata__", {}).get(_KEY)
        arrays = load(bytes(data))
    except (
        SafetensorError, struct.error, ValueError, TypeError, KeyError, AttributeError, OverflowError,
        RecursionError,
    ) as error:  # fmt: skip
        if (kind := _TABLES.get(Path(name).suffix.lower())) is not None:
            raise FileFormatError(
                f"{name} is {kind}, not a saved model: to learn from its rows, read them and call "
                "fit, or use 'baryflow fit'"
            ) from error
        raise FileFormatError(
            f"{name} is not a readable .bary file: it is truncated, damaged or foreign; take another "
            "copy of it, or save the model again"
        ) from error
    if not isinstance(text, str):
        raise FileFormatError(f"{name} is a safetensors file, but not one that baryflow wrote")
    manifest = _manifest(name, text)
    _verify(name, data, manifest.get("checksum"))
    words = {key: str(manifest.get(key, "")) for key in ("version", "date")}
    return Content(name, manifest["kind"], manifest["values"], arrays, **words)


def _verify(name: str, data: bytes, checksum: Any) -> None:
    known = str(checksum).encode()
    start = data.find(known)
    blank = data[:start] + _BLANK.encode() + data[start + len(known) :]
    if start < 0 or len(known) != len(_BLANK) or hashlib.sha256(blank).hexdigest().encode() != known:
        raise FileFormatError(
            f"{name} is damaged: its content does not match its checksum; take another copy of it"
        )


def _manifest(name: str, text: str) -> Values:
    try:
        manifest = json.loads(text)
        schema, kind, values = manifest["schema"], manifest["kind"], manifest["values"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileFormatError(f"{name} has a damaged manifest: {error!r}") from error
    if type(schema) is not int or not isinstance(kind, str) or not isinstance(values, dict):
        raise FileFormatError(f"{name} has a damaged manifest: wrong types of schema, kind, values")
    if schema > SCHEMA:
        raise FileFormatError(
            f"{name} was written by a newer baryflow (schema {schema}, this release reads up to "
            f"{SCHEMA}): upgrade baryflow to read it"
        )
    if schema < SCHEMA:
        raise FileFormatError(
            f"{name} has no checksum (schema {schema}), so damage would go unnoticed: it is damaged or "
            "was written by a release before 0.2; fit and save the model again"
        )
    return dict(manifest)
