"""The ``.bary`` file: named arrays and a JSON manifest in one safetensors file.

This module knows the container and nothing of what is kept in it: an object hands over its
*kind*, a dictionary of plain values and a dictionary of arrays, and gets the same back. Nothing
is ever executed on reading. A file appears under its name only when it is complete, so that a process
killed while saving leaves the previous file in place.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from baryflow.exceptions import FileFormatError, InvalidInputError

#: Version of the container. A reader refuses files with a larger number.
SCHEMA = 1
_KEY = "baryflow"

Arrays = dict[str, np.ndarray[Any, Any]]
Values = dict[str, Any]


def write(path: str | os.PathLike[str], kind: str, values: Values, arrays: Arrays) -> None:
    """Write one object atomically."""
    from safetensors.numpy import save

    manifest = {"schema": SCHEMA, "kind": kind, "values": values}
    # One metadata key: the order of several is not fixed, and same content should be same bytes.
    text = json.dumps(manifest, sort_keys=True, allow_nan=False)
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_bytes(path, save(contiguous, metadata={_KEY: text}))


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a whole file atomically: temporary file in the same folder, flush to disk, rename."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: there is no folder {target.parent}")
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
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
    _sync_folder(target.parent)


def plain(values: Values) -> Values:
    """Return the values with NumPy scalars turned into Python's own, fit for JSON."""
    return {
        name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()
    }


def labels(array: np.ndarray[Any, Any]) -> Values:
    """Return names of classes or domains, and their type, fit for JSON."""
    kind = array.dtype.kind
    if kind not in "biufUO" or (kind == "O" and not all(isinstance(x, (str, int)) for x in array)):
        raise InvalidInputError(f"names must be strings, numbers or booleans, got {array.dtype}")
    return {"dtype": "O" if kind == "O" else array.dtype.str, "names": array.tolist()}


def from_labels(values: Values) -> np.ndarray[Any, Any]:
    """Return the names that :func:`labels` took."""
    return np.array(values["names"], dtype=np.dtype(values["dtype"]))


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable where the platform can (POSIX)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: str | os.PathLike[str]) -> tuple[str, Values, Arrays]:
    """Read one object; return its kind, values and arrays, or raise one clear error."""
    from safetensors import SafetensorError, safe_open

    name = os.fspath(path)
    if not Path(name).is_file():
        raise FileNotFoundError(f"no such file: {name}")
    try:
        with safe_open(name, framework="numpy") as file:
            metadata = file.metadata() or {}
            if _KEY not in metadata:
                raise FileFormatError(f"{name} is a safetensors file, but not one that baryflow wrote")
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
    except FileFormatError:
        raise
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise FileFormatError(
            f"{name} is not a readable .bary file (truncated, damaged or foreign): {error}"
        ) from error
    return (*_open_manifest(name, metadata[_KEY]), arrays)


def _open_manifest(name: str, text: str) -> tuple[str, Values]:
    try:
        manifest = json.loads(text)
        schema, kind, values = manifest["schema"], manifest["kind"], manifest["values"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileFormatError(f"{name} has a damaged manifest: {error!r}") from error
    if not isinstance(schema, int) or not isinstance(kind, str) or not isinstance(values, dict):
        raise FileFormatError(f"{name} has a damaged manifest: wrong types of schema, kind, values")
    if schema > SCHEMA:
        raise FileFormatError(
            f"{name} was written by a newer baryflow (schema {schema}, this release reads up to "
            f"{SCHEMA}): upgrade baryflow to read it"
        )
    return kind, values
