"""Read rows from columnar files: Parquet, in groups of rows, and NumPy archives."""

from __future__ import annotations

import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import RAW_LENGTH
from baryflow.streams.decoding import (
    Block,
    Selection,
    as_text,
    first_duplicates,
    make_block,
    valid_text,
)
from baryflow.validation import Integers

#: Rows of a Parquet file that are decoded at a time.
_DECODED = 8192
#: Arrays of an archive that hold the column names of its matrix.
_NAMES = ("columns", "feature_names")


def require_parquet() -> Any:
    """Return pyarrow, or raise an error that names the extra."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Parquet files need the package pyarrow: pip install 'baryflow[parquet]'"
        ) from error
    return pa


def damaged_parquet(path: Any, error: Exception) -> InvalidInputError:
    """Return the error for a file that is not readable Parquet, with the first line of the reason."""
    reason = (str(error).splitlines() or [""])[0].strip().rstrip(".")
    return InvalidInputError(
        f"{path} cannot be read as Parquet, it is damaged or incomplete: write it again, or leave it "
        f"out ({reason[:100]})"
    )


class ColumnReader(ABC):
    """Reads blocks from a file of columns."""

    def __init__(self, name: str, columns: list[str], total: int, selection: Selection) -> None:
        twice = first_duplicates(columns)
        if twice:
            raise InvalidInputError(
                f"{name} has {', '.join(map(repr, twice))} more than once; rename the columns"
            )
        self._name = name
        self.columns = columns
        self.chosen = selection.choose(columns, name)
        self._texts = list(selection.texts)
        self._total = total
        self._position = 0

    @abstractmethod
    def _read_rows(self, start: int, stop: int) -> dict[str, Any]:
        """Return the values of the selected columns."""

    def block(self, n: int, timeout: float | None) -> Block | None:  # noqa: ARG002 - a file never waits
        """Return the next `n` rows, or None at the end."""
        start, stop = self._position, min(self._position + n, self._total)
        if start >= stop:
            return None
        self._position = stop
        values = self._read_rows(start, stop)
        return as_block(values, self.chosen, self._texts, np.arange(start + 1, stop + 1))

    def cursor(self) -> dict[str, Any]:
        """Return where to resume after the rows that were read."""
        return {"position": self._position, "rows": self._total}

    def pop_notices(self) -> list[str]:
        """Return nothing: a file that is complete has no news."""
        return []

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume after the block with this cursor."""
        if cursor["rows"] != self._total:
            raise InvalidInputError(
                f"cannot resume: {self._name} has {self._total} rows, but had {cursor['rows']} when "
                f"it was read before; name that file, or use another checkpoint folder"
            )
        self._position = int(cursor["position"])

    def close(self) -> None:  # noqa: B027 - not every file stays open
        """Close the input."""


def as_block(
    values: dict[str, Any], chosen: Sequence[str], texts: Sequence[str], positions: Integers
) -> Block:
    """Return columns of values as a block: those in `chosen` as numbers, those in `texts` as text."""

    def excerpt(row: int) -> str:
        cells = (str(values[column][row]) for column in (*texts, *chosen))
        return valid_text(",".join(cells))[:RAW_LENGTH]

    columns = [values[column] for column in chosen]
    return make_block(
        columns, [list(map(as_text, values[column])) for column in texts], positions, excerpt
    )


class ParquetReader(ColumnReader):
    """Reads a Parquet file with a few thousand rows in memory."""

    def __init__(self, path: Path, selection: Selection) -> None:
        pyarrow = require_parquet()
        try:
            self._file = pyarrow.parquet.ParquetFile(path)
        except (FileNotFoundError, PermissionError):
            raise
        except (pyarrow.ArrowException, OSError) as error:
            raise damaged_parquet(path, error) from error
        self._arrow = pyarrow
        metadata = self._file.metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._groups = np.cumsum([0, *sizes])  # the first row of each
        self._batches: Iterator[Any] = iter(())
        self._first = self._stop = 0  # rows of `_table`, decoded last
        try:
            names = list(self._file.schema_arrow.names)
            super().__init__(str(path), names, metadata.num_rows, selection)
        except InvalidInputError:
            self._file.close()
            raise

    def _read_rows(self, start: int, stop: int) -> dict[str, Any]:
        if not self._first <= start <= self._stop or not self._stop:
            self._begin(start)
        parts = []
        while start < stop:
            if start >= self._stop:
                self._decode()
            else:
                part = self._table.slice(start - self._first, stop - start)
                start += part.num_rows
                parts.append(part)
        table = self._arrow.concat_tables(parts)
        return {name: arrow_values(table[name]) for name in table.column_names}

    def _begin(self, row: int) -> None:
        """Decode from the beginning of the group that holds a row."""
        group = int(np.searchsorted(self._groups, row, side="right")) - 1
        groups = list(range(group, self._file.num_row_groups))
        columns = list(dict.fromkeys([*self.chosen, *self._texts]))
        self._batches = self._file.iter_batches(_DECODED, row_groups=groups, columns=columns)
        self._first = self._stop = int(self._groups[group])

    def _decode(self) -> None:
        try:
            self._table = self._arrow.Table.from_batches([next(self._batches)])
        except (self._arrow.ArrowException, OSError) as error:
            raise damaged_parquet(self._name, error) from error
        self._first, self._stop = self._stop, self._stop + self._table.num_rows

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def arrow_values(column: Any) -> Any:
    """Return the values of an Arrow column: an array if they are numbers, otherwise a list."""
    arrow = require_parquet()
    kind = column.type
    if arrow.types.is_decimal(kind):
        column, kind = column.cast(arrow.float64()), arrow.float64()
    if arrow.types.is_floating(kind) or (arrow.types.is_integer(kind) and not column.null_count):
        # An Array, unlike a ChunkedArray, refuses to copy by default.
        whole = isinstance(column, arrow.ChunkedArray)
        return column.to_numpy() if whole else column.to_numpy(zero_copy_only=False)
    return column.to_pylist()


class NpzReader(ColumnReader):
    """Reads a NumPy archive.

    A one-dimensional array is a column with the name of the array. The columns of a matrix are named by
    the array ``columns`` or ``feature_names``, or else by the name of the matrix and a number from 0.
    All have the same number of rows.
    """

    def __init__(self, path: Path, selection: Selection) -> None:
        self._arrays = _load_columns(path)
        counts = {len(array) for array in self._arrays.values()}
        if len(counts) != 1:
            raise InvalidInputError(
                f"expected arrays with the same number of rows in {path}, got {sorted(counts)}"
            )
        super().__init__(str(path), list(self._arrays), counts.pop(), selection)

    def _read_rows(self, start: int, stop: int) -> dict[str, Any]:
        return {name: self._arrays[name][start:stop] for name in (*self.chosen, *self._texts)}


def _load_columns(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, zipfile.BadZipFile, AttributeError, MemoryError) as error:
        raise InvalidInputError(
            f"{path} cannot be read as an archive of plain arrays (numpy.savez): {error}"
        ) from error
    for name, array in arrays.items():
        # Without values, a few bytes can claim any number of rows or columns.
        if not array.nbytes and max(array.shape) > path.stat().st_size:
            raise InvalidInputError(f"{path}: {name} has shape {array.shape}, but no values")
    names = next(([str(name) for name in arrays.pop(key)] for key in _NAMES if key in arrays), None)
    columns: dict[str, Any] = {}
    for own, array in arrays.items():
        if array.ndim == 1:
            columns[own] = array
        elif array.ndim == 2:
            fits = names is not None and len(names) == array.shape[1]
            called = names if fits and names else [f"{own}{j}" for j in range(array.shape[1])]
            columns.update(zip(called, array.T, strict=True))
    return {name: one if one.dtype.kind in "biuf" else one.tolist() for name, one in columns.items()}
