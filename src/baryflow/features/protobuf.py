"""Find references to other files in an ONNX network, before a runtime follows them."""

from __future__ import annotations

from collections.abc import Iterator

#: Messages of ONNX that lead to tensors: the fields of each that hold messages, and their kind.
_MESSAGES = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
#: Fields of a tensor that is kept in another file: ``external_data`` and ``data_location``.
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
#: How protocol buffers mark the kinds of values.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def has_external_data(network: bytes) -> bool:
    """Return whether a network keeps the values of a tensor in another file.

    Parameters
    ----------
    network : bytes
        Of an ``.onnx`` file.

    Raises
    ------
    ValueError
        If the bytes are not a network.
    """
    waiting = [("model", memoryview(network))]
    while waiting:
        kind, message = waiting.pop()
        for field, value in _fields(message):
            if kind == "tensor":
                if field == _EXTERNAL_DATA or (field == _DATA_LOCATION and value):
                    return True
            elif (inner := _MESSAGES[kind].get(field)) and isinstance(value, memoryview):
                waiting.append((inner, value))
    return False


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and value of each field of a message."""
    start = 0
    while start < len(message):
        key, start = _varint(message, start)
        field, kind = key >> 3, key & 7
        if key >= 2**32:
            raise ValueError("the number of a field is too large")
        if kind == _VARINT:
            value, start = _varint(message, start)
            yield field, value
            continue
        if kind == _BYTES:
            size, start = _varint(message, start)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError("groups are not part of ONNX")
        if size > len(message) - start:
            raise ValueError("it is truncated")
        yield field, message[start : start + size]
        start += size


def _varint(message: memoryview, start: int) -> tuple[int, int]:
    """Return a whole number of seven bits a byte, and where it ends."""
    value = shift = 0
    for position in range(start, min(start + 10, len(message))):
        byte = message[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    raise ValueError("a number has no end")
