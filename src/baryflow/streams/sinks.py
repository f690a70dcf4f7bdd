"""Records to files: NDJSON and CSV, which can be cut, and Parquet, made from NDJSON at the end."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any

from baryflow.exceptions import InvalidInputError
from baryflow.streams.columnar import require_parquet

_BUFFER = 1 << 18
#: Records of a Parquet file that are packed at a time.
_PACKED = 16384


class TextSink:
    """A file to which text is appended; None is standard output."""

    def __init__(self, path: Path | None, resume: bool = False) -> None:
        self._path = path
        self._file: IO[bytes]
        if path is None:
            self._file = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=_BUFFER)
            self.position = 0
            return
        if resume and not path.is_file():
            raise InvalidInputError(f"there is no {path} that could be gone on with; start anew")
        self._file = path.open("r+b" if resume else "wb", buffering=_BUFFER)
        self.position = self._file.seek(0, os.SEEK_END)

    def write(self, records: list[dict[str, Any]]) -> None:
        """Append records."""
        data = self._encode(records)
        self._file.write(data)
        self.position += len(data)

    def _encode(self, records: list[dict[str, Any]]) -> bytes:
        raise NotImplementedError

    def truncate(self, position: int) -> None:
        """Forget everything written after `position`."""
        if self._path is None:
            raise InvalidInputError(
                "what was written to standard output cannot be taken back; name a file"
            )
        self._file.flush()
        if position > self._file.seek(0, os.SEEK_END):
            raise InvalidInputError(
                f"{self._path} is shorter than what was written to it ({position} bytes); start anew"
            )
        self._file.truncate(position)
        self.position = self._file.seek(position)

    def flush(self, sync: bool = False) -> None:
        """Hand everything over to the system; with `sync`, return once it is on the disk."""
        self._file.flush()
        if sync and self._path is not None:
            os.fsync(self._file.fileno())

    def close(self, finished: bool = True) -> None:  # noqa: ARG002 - what is written is complete at any time
        """Flush and close."""
        if not self._file.closed:
            self._file.close()


class NdjsonSink(TextSink):
    """One JSON object a line; NaN and infinity, which JSON does not have, become null."""

    def _encode(self, records: list[dict[str, Any]]) -> bytes:
        return "".join(map(encode_record, records)).encode()


def encode_record(record: dict[str, Any]) -> str:
    """Return a record as a line of JSON.

    Parameters
    ----------
    record : dict

    Returns
    -------
    str
        With a line break at its end; NaN and infinity become null.
    """
    try:
        return json.dumps(record, ensure_ascii=False, allow_nan=False, default=_plain) + "\n"
    except ValueError:
        return json.dumps(_finite(record), ensure_ascii=False, allow_nan=False, default=_plain) + "\n"


def _plain(value: Any) -> Any:
    """Return NumPy's scalars and arrays as Python's own."""
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    raise TypeError(f"a record can hold numbers, text, lists and objects, got {type(value).__name__}")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class CsvSink(TextSink):
    """A header and a line for each record, all with the names of the first."""

    def __init__(self, path: Path, resume: bool = False) -> None:
        super().__init__(path, resume)
        self._names: list[str] | None = None
        if self.position:
            self._read_header(path)

    def _read_header(self, path: Path) -> None:
        with path.open(encoding="utf-8", newline="") as file:
            self._names = next(csv.reader(file), None)

    def truncate(self, position: int) -> None:
        """Forget everything written after `position`."""
        super().truncate(position)
        if not position:
            self._names = None

    def _encode(self, records: list[dict[str, Any]]) -> bytes:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        for record in records:
            if self._names is None:
                self._names = list(record)
                writer.writerow(self._names)
            if list(record) != self._names:
                raise InvalidInputError(
                    f"expected records with {', '.join(self._names)}, as in the header, got "
                    f"{', '.join(record)}"
                )
            writer.writerow(_cell(value) for value in record.values())
        return text.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else ""
    return (
        json.dumps(value, ensure_ascii=False, default=_plain)
        if isinstance(value, dict | list)
        else value
    )


class ParquetSink(NdjsonSink):
    """Records that become a Parquet file when the sink is closed; until then, NDJSON beside it."""

    def __init__(self, path: Path, resume: bool = False) -> None:
        require_parquet()
        self._target = path
        if resume and path.is_file() and not path.with_name(f"{path.name}.partial.ndjson").is_file():
            raise InvalidInputError(f"{path} is finished and cannot be gone on with: start anew")
        super().__init__(path.with_name(f"{path.name}.partial.ndjson"), resume)

    def close(self, finished: bool = True) -> None:
        """Make the Parquet file, unless more is to come."""
        if self._file.closed:
            return
        super().close()
        if finished and self._path is not None:
            _pack(self._path, self._target)
            self._path.unlink()


def _pack(lines: Path, target: Path) -> None:
    """Write the records of an NDJSON file as Parquet, some thousand at a time."""
    pyarrow = require_parquet()
    schema = None
    for records in _groups(lines):  # one look ahead: a column may be null for long before it is a number
        blank = dict.fromkeys(chain.from_iterable(records))  # of the first alone names would be taken
        found = pyarrow.Table.from_pylist([blank | records[0], *records[1:]]).schema
        both = found if schema is None else [schema, found]
        schema = found if schema is None else pyarrow.unify_schemas(both, promote_options="permissive")
    schema = pyarrow.schema([]) if schema is None else schema
    unfinished = target.with_name(f"{target.name}.partial")
    with pyarrow.parquet.ParquetWriter(unfinished, schema) as writer:
        for records in _groups(lines):
            writer.write_table(pyarrow.Table.from_pylist(records, schema=schema))
    with unfinished.open("rb+") as file:
        os.fsync(file.fileno())  # the lines are removed next
    unfinished.replace(target)


def _groups(lines: Path) -> Iterator[list[dict[str, Any]]]:
    with lines.open(encoding="utf-8") as file:
        group: list[dict[str, Any]] = []
        for line in file:
            group.append(json.loads(line))
            if len(group) == _PACKED:
                yield group
                group = []
        if group:
            yield group
