"""Dataclasses of arrays as plain values and named arrays, and back.

One encoding for everything that is saved. A dataclass becomes its class's name and its fields, an array
its name among the arrays, and what JSON has no word for is tagged. On the way back only those classes
are made that the annotations of the one asked for lead to, and every field must be of the type that is
annotated: what was damaged or made up becomes an error and never something else. A class that is no
dataclass may have a `state`, which is one, and be made `from_state` again. Decoding takes memory
in proportion to the file: an array is used once, and names are not padded far beyond their own length.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from baryflow.container import Content
from baryflow.exceptions import BaryflowError, FileFormatError

Values = dict[str, Any]
Arrays = dict[str, np.ndarray[Any, Any]]

_SCALARS = (bool, int, str, type(None))
#: Kinds of arrays that are kept as such; those of names go into the manifest.
_NUMBERS = "biuf"
#: NumPy pads names to the longest. An array of names may take this many bytes for each of its characters
#: and separators, plus a spare amount.
_PADDING, _SPARE = 256, 2**14
#: The largest dimension of an array without entries.
_LARGEST_EMPTY = 2**24
#: What goes wrong where numbers or their shapes are not what they should be.
DAMAGE = (
    TypeError, KeyError, AttributeError, IndexError, ValueError, ArithmeticError, MemoryError,
    RecursionError,
)  # fmt: skip


def encode(value: Any) -> tuple[Values, Arrays]:
    """Take a dataclass apart.

    Parameters
    ----------
    value : dataclass
        Of arrays, numbers, strings, lists, tuples, mappings and other dataclasses. Fields that the
        constructor does not take are left out.

    Returns
    -------
    values : dict
        Fit for JSON.
    arrays : dict of str → array

    Raises
    ------
    TypeError
        If something in it cannot be kept.
    """
    arrays: Arrays = {}
    values: Values = _encoded(value, "", arrays)
    return values, arrays


def _encoded(value: Any, name: str, arrays: Arrays) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        # Bit for bit means the sign of NaN too, which its name does not tell.
        sign = "-" if math.isnan(value) and math.copysign(1.0, value) < 0.0 else ""
        return value if math.isfinite(value) else {"float": f"{sign}{value!r}"}
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, np.ndarray):
        return _encoded_array(value, name, arrays)
    if hasattr(type(value), "state_type"):
        value = value.state()
    if dataclasses.is_dataclass(value):
        fields = {
            field.name: _encoded(getattr(value, field.name), f"{name}.{field.name}".lstrip("."), arrays)
            for field in dataclasses.fields(value)
            if field.init
        }
        return {"class": type(value).__name__, "fields": fields}
    if isinstance(value, (list, tuple)):
        items = [_encoded(item, f"{name}.{n}", arrays) for n, item in enumerate(value)]
        return {type(value).__name__: items}
    if isinstance(value, Mapping):
        items = [
            [_encoded(key, f"{name}.{n}.key", arrays), _encoded(item, f"{name}.{n}", arrays)]
            for n, (key, item) in enumerate(value.items())
        ]
        return {"dict": items}
    raise TypeError(f"cannot keep {name or 'a value'} of type {type(value).__name__}")


def _encoded_array(array: np.ndarray[Any, Any], name: str, arrays: Arrays) -> Values:
    if array.dtype.kind in _NUMBERS and array.size:
        arrays[name] = array
        return {"array": name}
    if array.dtype.kind in "UO" and array.ndim == 1:
        names = array.tolist()
        # One very long name among many short ones: keep them as objects, which are not padded.
        sparse = array.dtype.kind == "U" and array.nbytes > _most_padded(names)
        return {"names": _encoded(names, name, arrays), "dtype": "|O" if sparse else array.dtype.str}
    if array.dtype.kind in _NUMBERS:  # safetensors keeps nothing of an array without entries
        return {"empty": list(array.shape), "dtype": array.dtype.str}
    raise TypeError(f"cannot keep {name}, an array of {array.dtype}")


def decode(kind: type[Any], values: Any, arrays: Arrays) -> Any:
    """Put a dataclass together again.

    Parameters
    ----------
    kind : type
        The dataclass that is expected.
    values, arrays
        What :func:`encode` gave.

    Returns
    -------
    object of type `kind`

    Raises
    ------
    FileFormatError
        If something is missing, left over or not of the type that is annotated.
    """
    try:
        reader = _Reader(_classes(kind), arrays)  # type: ignore[arg-type]  # classes are hashable
        value = reader.read(values)
        _require(value, kind, kind.__name__)
        if left := sorted(arrays.keys() - reader.used):
            raise ValueError(f"arrays that belong to nothing: {left[:3]}")
    except FileFormatError:
        raise
    except (*DAMAGE, BaryflowError) as error:
        raise FileFormatError(f"a saved {kind.__name__} is damaged: {error}") from error
    return value


def open_content(kind: type[Any], content: Content, name: str) -> Any:
    """Return the dataclass in a file that is expected to hold a `name`."""
    if content.kind != name:
        raise FileFormatError(
            f"{content.name} holds a {content.kind!r}, not a {name!r}: use baryflow.load"
        )
    try:
        return decode(kind, content.values, content.arrays)
    except FileFormatError as error:
        raise FileFormatError(f"{content.name}: {error}") from error


class _Reader:
    """Reads what :func:`encode` gave, and remembers which arrays it has used."""

    def __init__(self, classes: dict[str, type[Any]], arrays: Arrays) -> None:
        self.classes, self.arrays = classes, arrays
        self.used: set[str] = set()

    def read(self, value: Any) -> Any:
        """Return the value that an encoded one stands for."""
        if isinstance(value, (float, *_SCALARS)):
            return value
        for tag, read in self._TAGS.items():
            if tag in value:
                return read(self, value)
        raise ValueError(f"a value without a known tag: {sorted(value)}")

    def _class(self, value: Values) -> Any:
        fields = {name: self.read(item) for name, item in value["fields"].items()}
        kind = self.classes[value["class"]]
        if not hasattr(kind, "state_type"):
            return kind(**fields)
        state = kind.state_type(**fields)
        _require(state, kind.state_type, value["class"])
        return kind.from_state(state)

    def _array(self, value: Values) -> Any:
        name = value["array"]
        if name in self.used:  # each copy would take memory that the file does not
            raise ValueError(f"the array {name!r} is used twice")
        self.used.add(name)
        return self.arrays[name]

    def _names(self, value: Values) -> Any:
        dtype, names = np.dtype(value["dtype"]), self.read(value["names"])
        if dtype.kind not in "UO" or type(names) is not list:
            raise ValueError(f"names are a {type(names).__name__} of type {dtype}")
        if dtype.kind == "O":
            return np.fromiter(names, dtype=object, count=len(names))
        if not all(type(name) is str for name in names):
            raise ValueError(f"names of type {dtype} are not all text")
        width = dtype.itemsize or 4 * max(map(len, names), default=0)
        if len(names) * width > _most_padded(names):
            raise ValueError(f"{len(names):,} names are padded to {width:,} bytes each")
        return np.array(names, dtype=dtype)

    def _empty(self, value: Values) -> Any:
        shape, dtype = value["empty"], np.dtype(value["dtype"])
        if 0 not in shape or max(shape) > _LARGEST_EMPTY or dtype.kind not in _NUMBERS:
            raise ValueError(f"an empty array has the shape {shape} and the type {dtype}")
        return np.zeros(shape, dtype=dtype)

    def _float(self, value: Values) -> float:
        return float(value["float"])

    def _dict(self, value: Values) -> dict[Any, Any]:
        return {self.read(key): self.read(item) for key, item in value["dict"]}

    def _list(self, value: Values) -> list[Any]:
        return [self.read(item) for item in value["list"]]

    def _tuple(self, value: Values) -> tuple[Any, ...]:
        return tuple(self.read(item) for item in value["tuple"])

    _TAGS: ClassVar[dict[str, Any]] = {
        "class": _class,
        "array": _array,
        "names": _names,
        "empty": _empty,
        "float": _float,
        "dict": _dict,
        "list": _list,
        "tuple": _tuple,
    }


def _most_padded(names: list[str]) -> int:
    """Return how many bytes an array of names may take."""
    return _SPARE + _PADDING * (len(names) + sum(map(len, names)))


@functools.cache  # looking them up takes longer than reading a small file
def _hints(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


@functools.cache
def _classes(kind: type[Any]) -> dict[str, type[Any]]:
    """Return all classes to which the annotations of one lead, by the name that is saved."""
    found: dict[str, type[Any]] = {}
    waiting = [kind]
    while waiting:
        hint = waiting.pop()
        if hasattr(hint, "state_type"):
            if hint.state_type.__name__ not in found:
                found[hint.state_type.__name__] = hint
                waiting.extend(_hints(hint.state_type).values())
        elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
            if hint.__name__ not in found:
                found[hint.__name__] = hint
                waiting.extend(_hints(hint).values())
        else:
            waiting.extend(typing.get_args(hint))
    return found


def _require(value: Any, hint: Any, name: str) -> None:
    """Raise a TypeError unless a value is what an annotation says, all through."""
    if not _fits(value, hint):
        raise TypeError(f"{name} is a {type(value).__name__}, expected {hint}")
    if dataclasses.is_dataclass(value):
        for field, inner in _hints(type(value)).items():  # type: ignore[arg-type]
            _require(getattr(value, field), inner, f"{name}.{field}")


def _fits(value: Any, hint: Any) -> bool:
    """Tell whether a value is what an annotation says; what is inside a dataclass is looked at apart."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        fits = True
    elif origin in (typing.Union, types.UnionType):
        fits = any(_fits(value, one) for one in arguments)
    elif origin is typing.Literal:
        fits = value in arguments
    elif origin is not None:
        fits = isinstance(value, origin) and _items_fit(value, origin, arguments)
    elif hint in (int, float):
        numbers = (int,) if hint is int else (float, int)
        fits = isinstance(value, numbers) and not isinstance(value, bool)
    else:
        fits = isinstance(value, hint)
    return fits


def _items_fit(value: Any, origin: Any, arguments: tuple[Any, ...]) -> bool:
    """Tell whether the items of a container are what its annotation says."""
    if origin is np.ndarray:
        wanted = typing.get_args(arguments[1])[0] if len(arguments) > 1 else Any
        return bool(wanted is Any or value.dtype == np.dtype(wanted))
    if origin is dict:
        return all(_fits(k, arguments[0]) and _whole(v, arguments[1]) for k, v in value.items())
    if origin is tuple and arguments[1:] != (...,):
        return len(value) == len(arguments) and all(map(_whole, value, arguments))
    return all(_whole(item, arguments[0]) for item in value)


def _whole(value: Any, hint: Any) -> bool:
    """Tell whether an item fits, and what is inside of it too."""
    if _fits(value, hint):
        if dataclasses.is_dataclass(value):
            _require(value, hint, type(value).__name__)
        return True
    return False
