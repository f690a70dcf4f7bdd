"""Rows in binary: NPY, the format of :func:`numpy.save`, and Arrow IPC streams.

Nothing in a body is trusted. The shape that it claims is checked before anything of that size is made.
NumPy reads the header of an NPY body as a literal of bounded length; types other than numbers are
refused, so nothing is ever unpickled. An Arrow stream must be uncompressed, since a few
bytes could otherwise become gigabytes, and is validated in full before its values are used.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib import format as npy

from baryflow.service.errors import RequestError
from baryflow.validation import Floats

NPY = "application/x-npy"
ARROW = "application/vnd.apache.arrow.stream"
#: The longest header of an NPY body, in bytes: that of a table of numbers is shorter.
_LONGEST_HEADER = 1000


#: Raises RequestError if a table may not have this many rows and columns.
CheckShape = Callable[[int, int], None]
#: Returns the position of each column among columns of these names, None if they are in order.
Order = Callable[[list[str]], list[int] | None]


def read_npy(body: bytes, check_shape: CheckShape) -> Floats:
    """Return the table of numbers in an NPY body."""
    file = io.BytesIO(body)
    try:
        version = npy.read_magic(file)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, is_fortran, dtype = read(file, max_header_size=_LONGEST_HEADER)
    except Exception as error:  # which errors damaged bytes cause is not documented
        raise _malformed("NPY", "its header cannot be parsed") from error
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise RequestError(422, f"expected an array of numbers, got dtype {ascii(str(dtype))[:40]}")
    if len(shape) != 2:
        raise RequestError(422, f"expected an array of shape (rows, columns), got {ascii(shape)[:40]}")
    if min(shape) >= 0:
        check_shape(*shape)
    n_bytes = len(body) - file.tell()
    if min(shape) < 0 or n_bytes != shape[0] * shape[1] * dtype.itemsize:
        raise _malformed("NPY", f"{n_bytes:,} bytes are not an array of shape {shape}")
    values = np.frombuffer(body, dtype, offset=file.tell())
    return np.ascontiguousarray(
        values.reshape(shape, order="F" if is_fortran else "C"), dtype=np.float64
    )


def read_arrow(
    body: bytes, with_time: bool, order: Order, check_shape: CheckShape
) -> tuple[Floats, list[str]]:
    """Return rows and times of an Arrow stream.

    With `with_time` a column named ``time`` holds the times of the rows; without one they are empty.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise RequestError(
            415, "the service cannot read Arrow: install baryflow[parquet] there, or send JSON or NPY"
        ) from error
    try:
        buffer = pa.py_buffer(body)
        _check_messages(pa, buffer)
        with pa.ipc.open_stream(buffer) as reader:
            names = [str(name) for name in reader.schema.names]
            numbers, time = list(range(len(names))), None
            if with_time and names.count("time") == 1:
                time = names.index("time")
                numbers.remove(time)
            ordered = order([names[i] for i in numbers])
            numbers = numbers if ordered is None else [numbers[i] for i in ordered]
            batches = _read_batches(reader, len(numbers), check_shape)
        times = [""] * sum(map(len, batches))
        if time is not None:
            times = [text for batch in batches for text in _read_times(pa, batch[time])]
        values = np.empty((len(times), len(numbers)))
        start = 0
        for batch in batches:
            for j, i in enumerate(numbers):
                values[start : start + len(batch), j] = _read_numbers(pa, batch[i], names[i])
            start += len(batch)
    except RequestError:
        raise
    except Exception as error:  # which errors damaged bytes cause is not documented
        raise _malformed("an Arrow stream", ascii(str(error))[:120]) from error
    return values, times


def _check_messages(pa: Any, buffer: Any) -> None:
    """Refuse dictionaries and compressed record batches."""
    for message in pa.ipc.MessageReader.open_stream(buffer):
        if message.type == "dictionary":
            raise RequestError(422, "dictionary-encoded columns are not supported: send plain numbers")
        if message.type == "record batch" and _is_compressed(message.metadata.to_pybytes()):
            raise RequestError(422, "the Arrow stream is compressed: send it uncompressed")


def _read_batches(reader: Any, n_columns: int, check_shape: CheckShape) -> list[Any]:
    """Return the record batches of a stream that have rows."""
    batches, n_rows = [], 0
    for batch in reader:
        if batch.num_rows:
            n_rows += batch.num_rows
            check_shape(n_rows, n_columns)
            batch.validate(full=True)
            batches.append(batch)
    check_shape(n_rows, n_columns)
    return batches


def _read_numbers(pa: Any, column: Any, name: str) -> Any:
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        raise RequestError(422, f"column {ascii(name)[:40]} is {kind}, not numbers")
    if kind != pa.float64():
        column = column.cast(pa.float64(), safe=False)
    return column.to_numpy(zero_copy_only=False)


def _read_times(pa: Any, column: Any) -> list[str]:
    # Not views of strings: many may share one text of megabytes, and each would become a copy of it.
    kinds = ("string", "large_string", "temporal", "integer", "floating", "null")
    if not any(getattr(pa.types, f"is_{kind}")(column.type) for kind in kinds):
        raise RequestError(422, f"time is {column.type}: expected strings or timestamps")
    return ["" if text is None else text for text in column.cast(pa.string()).to_pylist()]


def _is_compressed(metadata: bytes) -> bool:
    """Return whether the metadata of a record batch (a flatbuffer) names a compression."""
    try:
        message = _number("<I", metadata, 0)
        batch = _field(metadata, message, 2)  # the header of the message
        return bool(_field(metadata, batch + _number("<I", metadata, batch), 3))
    except struct.error:
        return True  # damaged, so not worth reading


def _field(metadata: bytes, table: int, number: int) -> int:
    """Return the position of a field of a table in a flatbuffer; 0 if it is not there."""
    entries = table - _number("<i", metadata, table)
    position = 4 + 2 * number
    if entries < 0 or position >= _number("<H", metadata, entries):
        return 0
    offset = _number("<H", metadata, entries + position)
    return table + offset if offset else 0


def _number(form: str, metadata: bytes, position: int) -> int:
    if position < 0:
        raise struct.error
    return int(struct.unpack_from(form, metadata, position)[0])


def _malformed(what: str, problem: str) -> RequestError:
    return RequestError(400, f"the body is not {what}: {problem}")
