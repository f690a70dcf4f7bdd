"""Write records to files: NDJSON and CSV, which can be truncated and rotated, and Parquet.

A rotated output is the active file, ``name.ndjson``, and the full files before it,
``name-000001.ndjson`` and so on. Its position is ``file number * 2**40 + bytes in that file``, so a
checkpoint can be resumed even if full files were moved away since. Which record starts a new file
depends on the sizes of the records alone, never on how they are grouped into calls of ``write``: a run
that was killed and resumed writes the same bytes to the same files as one that was not.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Sink
from baryflow.streams.columnar import require_parquet

_BUFFER = 1 << 18
#: Records of a Parquet file that are converted at a time.
_GROUP = 16384
#: Positions between the beginnings of two rotated files; no file may be larger.
_FILE_SPAN = 1 << 40
_UNITS = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


def parse_size(size: int | str) -> int:
    """Return a size in bytes, from a number or a text like ``100MB`` or ``1 GiB``."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", str(size).lower())
    if match is None or match[2] not in _UNITS:
        raise InvalidInputError(f"expected a size like 500kB, 100MB or 1GB, got {size!r}")
    found = round(float(match[1]) * _UNITS[match[2]])
    if not 1 <= found <= _FILE_SPAN // 2:
        raise InvalidInputError(f"expected a size from 1 byte to 500GB, got {size!r}")
    return found


def find_last_line(path: Path) -> int:
    """Return the length of a file without an incomplete line at its end, as a kill may leave it."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - _BUFFER)
            file.seek(begin)
            if (found := file.read(end - begin).rfind(b"\n")) >= 0:
                return begin + found + 1
            end = begin
    return 0


def is_full_file(path: Path, output: Path) -> bool:
    """Return whether a path is that of a full file of an output, if this is rotated."""
    path, output = path.resolve(), output.resolve()
    pattern = rf"{re.escape(output.stem)}-0\d{{5}}{re.escape(output.suffix)}"
    return path.parent == output.parent and re.fullmatch(pattern, path.name) is not None


class TextSink(Sink):
    """Append lines to a file, or to standard output if `path` is None."""

    def __init__(self, path: Path | None, resume: bool = False, limit: int | None = None) -> None:
        self._path, self._limit = path, limit
        self._number = 0  # full files before the active one
        self._file: IO[bytes]
        if path is None:
            self._file = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=_BUFFER)
            self._size = 0
            return
        full = self._full_files()
        if resume:
            self._number = max(full, default=0)
            if not path.is_file() and not full:
                raise InvalidInputError(
                    f"cannot resume: {path} does not exist; restore it, or delete the checkpoint"
                )
        else:
            for file in full.values():
                file.unlink()
        self._open(keep=resume)

    def _open(self, keep: bool) -> None:
        """Open the active file; with `keep`, append to it."""
        if self._path is not None:
            keep = keep and self._path.is_file()  # a kill during a rotation leaves no active file
            self._file = self._path.open("r+b" if keep else "wb", buffering=_BUFFER)
            self._size = self._file.seek(0, os.SEEK_END)

    def _full_files(self) -> dict[int, Path]:
        """Return the full files of a rotated output by their number; none if it is not rotated."""
        path = self._path
        if path is None or self._limit is None:
            return {}
        pattern = re.compile(rf"{re.escape(path.stem)}-(\d{{6,}}){re.escape(path.suffix)}")
        matches = (pattern.fullmatch(one.name) for one in path.parent.iterdir())
        found: dict[int, Path] = {}
        for digits in sorted((match[1] for match in matches if match), key=int):
            # Other numbers may be dates in names of the user's files: those are never touched.
            if digits == f"{int(digits):06d}" and (digits[0] == "0" or int(digits) - 1 in found):
                found[int(digits)] = self._full_name(int(digits))
        return found

    @property
    def position(self) -> int:
        """The number of the active file and the bytes in it, as one number."""
        return self._number * _FILE_SPAN + self._size

    def write(self, records: list[dict[str, Any]]) -> None:
        """Append records, and rotate the file before a record once it is full."""
        lines = self._encode(records)
        if self._limit is None:
            self._append("".join(lines))
        else:
            for line in lines:
                if self._size >= self._limit:
                    self._rotate()
                self._append(line)
        self._file.flush()  # readers may be waiting

    def _append(self, text: str) -> None:
        if text and not self._size:
            text = self._header() + text
        data = text.encode()
        self._file.write(data)
        self._size += len(data)

    def _encode(self, records: list[dict[str, Any]]) -> list[str]:
        """Return the line of each record; raise before any is written if one is invalid."""
        raise NotImplementedError

    def _header(self) -> str:
        """Return what each file begins with."""
        return ""

    def _rotate(self) -> None:
        if self._path is None:
            return
        self.flush()
        self._file.close()
        self._number += 1
        self._path.replace(self._full_name(self._number))
        self._open(keep=False)
        _sync_folder(self._path.parent)

    def _full_name(self, number: int) -> Path:
        path = self._path or Path()
        return path.with_name(f"{path.stem}-{number:06d}{path.suffix}")

    def truncate(self, position: int) -> None:
        """Remove everything that was written after `position`."""
        if self._path is None:
            raise InvalidInputError("cannot resume: standard output cannot be truncated; name a file")
        number, size = divmod(position, _FILE_SPAN)
        self._file.flush()
        self._restore(number)
        if size > self._size:
            raise InvalidInputError(
                f"cannot resume: {self._path} is shorter than at the checkpoint ({self._size} instead "
                f"of {size} bytes); restore the file, or delete the checkpoint"
            )
        self._file.truncate(size)
        self._size = self._file.seek(size)

    def _restore(self, number: int) -> None:
        """Undo rotations until `number` full files are before the active one.

        Files are removed from the last to the first, so that a kill in between does no harm: the same
        call completes the work.
        """
        full = self._full_files()
        later = sorted((one for one in full if one > number), reverse=True)
        if number and self._limit is None:
            raise InvalidInputError(
                f"cannot resume: {self._path} was rotated; resume it with the same size limit"
            )
        if later and self._path is not None:
            if later[-1] != number + 1:
                missing = self._full_name(number + 1)
                raise InvalidInputError(
                    f"cannot resume: {missing} does not exist; restore it, or delete the checkpoint"
                )
            self._file.close()
            for one in later[:-1]:
                full[one].unlink()
            full[later[-1]].replace(self._path)
            _sync_folder(self._path.parent)
            self._open(keep=True)
        self._number = number

    def flush(self) -> None:
        """Return once all records are on disk."""
        self._file.flush()
        if self._path is not None:
            os.fsync(self._file.fileno())

    def close(self, finished: bool = True) -> None:  # noqa: ARG002 - the file is always complete
        """Flush and close."""
        if not self._file.closed:
            self._file.close()


def _sync_folder(folder: Path) -> None:
    """Put renamed files on disk; Windows cannot open folders, and does not need it."""
    if os.name != "nt":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class NdjsonSink(TextSink):
    """One JSON object per line; NaN and infinity, which JSON does not have, become null."""

    def _encode(self, records: list[dict[str, Any]]) -> list[str]:
        return list(map(encode_record, records))


def encode_record(record: dict[str, Any]) -> str:
    """Return a record as a line of JSON with its line break; NaN and infinity become null."""
    try:
        return _JSON.encode(record) + "\n"
    except ValueError:
        return _JSON.encode(without_nan(record)) + "\n"


def without_nan(value: Any) -> Any:
    """Return plain values of a record, with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {name: without_nan(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(one) for one in value]
    if isinstance(value, np.ndarray | np.generic):
        return without_nan(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _to_python(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return without_nan(value)
    raise TypeError(f"a record can hold numbers, text, lists and objects, got {type(value).__name__}")


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_to_python)


class CsvSink(TextSink):
    """A header with the names of the first record, and a line for each record."""

    def __init__(self, path: Path, resume: bool = False, limit: int | None = None) -> None:
        self._names: list[str] = []
        super().__init__(path, resume, limit)

    def _open(self, keep: bool) -> None:
        super()._open(keep)
        for path in (*self._full_files().values(), self._path) if keep else ():
            if path is not None and path.is_file() and path.stat().st_size:
                with path.open(encoding="utf-8", newline="") as file:
                    self._names = next(csv.reader(file), [])
                return

    def truncate(self, position: int) -> None:
        """Remove everything that was written after `position`."""
        super().truncate(position)
        if not position:
            self._names = []

    def _header(self) -> str:
        return "".join(_csv_lines([self._names]))

    def _encode(self, records: list[dict[str, Any]]) -> list[str]:
        names = self._names or list(chain(*records[:1]))
        for record in records:
            if list(record) != names:
                raise InvalidInputError(
                    f"expected records with {', '.join(names)}, as in the header, got "
                    f"{', '.join(record)}"
                )
        columns = [_cells([*column]) for column in zip(*map(dict.values, records), strict=True)]
        lines = _csv_lines(zip(*columns, strict=True))
        self._names = names
        return lines


def _csv_lines(rows: Iterable[Iterable[Any]]) -> list[str]:
    lines: list[str] = []
    csv.writer(SimpleNamespace(write=lines.append), lineterminator="\n").writerows(rows)
    return lines


def _cells(values: list[Any]) -> list[Any]:
    """Return the cells of a column; most columns hold values that can be written as they are."""
    kinds = {*map(type, values)}
    if kinds <= {str, int, bool, type(None)} or (kinds == {float} and all(map(math.isfinite, values))):
        return values
    plain = map(without_nan, values)
    return [_JSON.encode(value) if isinstance(value, dict | list) else value for value in plain]


class ParquetSink(NdjsonSink):
    """Collect records as NDJSON beside the file; closing the sink converts them to Parquet."""

    def __init__(self, path: Path, resume: bool = False) -> None:
        require_parquet()
        self._target = path
        partial = path.with_name(f"{path.name}.partial.ndjson")
        if resume and path.is_file() and not partial.is_file():
            raise InvalidInputError(
                f"cannot resume: {path} is complete; delete the checkpoint, or choose another output"
            )
        super().__init__(partial, resume)

    def close(self, finished: bool = True) -> None:
        """Write the Parquet file, unless more records follow later."""
        if self._file.closed:
            return
        super().close()
        if finished and self._path is not None:
            _convert(self._path, self._target)
            self._path.unlink()


def _convert(lines: Path, target: Path) -> None:
    """Write the records of an NDJSON file as Parquet, in groups."""
    pyarrow = require_parquet()
    schema = None
    # Two passes: a column may be null in many groups before its type is known.
    for records in _groups(lines):
        # Arrow takes the names from the first record alone.
        blank = dict.fromkeys(chain.from_iterable(records))
        found = pyarrow.Table.from_pylist([blank | records[0], *records[1:]]).schema
        both = found if schema is None else [schema, found]
        schema = found if schema is None else pyarrow.unify_schemas(both, promote_options="permissive")
    schema = pyarrow.schema([]) if schema is None else schema
    unfinished = target.with_name(f"{target.name}.partial")
    with pyarrow.parquet.ParquetWriter(unfinished, schema) as writer:
        for records in _groups(lines):
            writer.write_table(pyarrow.Table.from_pylist(records, schema=schema))
    with unfinished.open("rb+") as file:
        os.fsync(file.fileno())  # before the NDJSON file is removed
    unfinished.replace(target)


def _groups(lines: Path) -> Iterator[list[dict[str, Any]]]:
    with lines.open(encoding="utf-8") as file:
        while group := [json.loads(line) for line in islice(file, _GROUP)]:
            yield group
