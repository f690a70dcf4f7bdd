"""Tag lists: the address, column and target of each value that arrives on its own."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baryflow.exceptions import InvalidInputError
from baryflow.streams.decoding import first_duplicates, parse_number

_DELIMITERS = (",", ";", "\t")
_NAMES = ("address", "column", "unit", "scale", "offset", "key")


@dataclass(frozen=True)
class Tag:
    """A value that arrives on its own; its column holds value × `scale` + `offset`."""

    address: str  # an OPC UA node or an MQTT topic
    column: str  # of the model
    unit: str = ""  # for documentation; it converts nothing
    scale: float = 1.0
    offset: float = 0.0
    key: str = ""  # the target, if there are several


def read_tags(path: str | os.PathLike[str]) -> list[Tag]:
    r"""Read a tag list from a CSV file with a header, or from a JSON list of objects.

    ``address`` and ``column`` are required; ``unit``, ``scale``, ``offset`` and ``key`` are optional.
    CSV cells are separated by comma, semicolon or tab, and lines that begin with ``#`` are skipped.
    Errors name the line.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from baryflow.streams.sampling.tags import read_tags
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tags.csv"
    >>> _ = path.write_text("address,column,unit,scale\nns=2;s=FI100,flow,m3/h,0.1\n", encoding="utf-8")
    >>> read_tags(path)
    [Tag(address='ns=2;s=FI100', column='flow', unit='m3/h', scale=0.1, offset=0.0, key='')]
    """
    name = os.fspath(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInputError(f"{name} must be UTF-8 text; save it as UTF-8") from None
    rows = _read_json(text, name) if Path(path).suffix.lower() == ".json" else _read_csv(text, name)
    tags = [_make_tag(row, f"{name}, {place}") for place, row in rows]
    if not tags:
        raise InvalidInputError(f"{name} lists no tags")
    twice = first_duplicates(tag.address for tag in tags)
    if twice:
        raise InvalidInputError(f"{name} lists {twice[0]!r} twice; each address needs exactly one line")
    return tags


def check_tags(tags: Sequence[Tag], columns: Sequence[str]) -> dict[str, dict[str, Tag]]:
    """Return the tags of each target by column, or raise if a target lacks columns or has others."""
    targets: dict[str, dict[str, Tag]] = {}
    for tag in tags:
        if tag.column not in columns:
            raise InvalidInputError(
                f"tag {tag.address!r} has column {tag.column!r}, which is none of {', '.join(columns)}"
            )
        found = targets.setdefault(tag.key, {})
        if tag.column in found:
            owner = f" of {tag.key!r}" if tag.key else ""
            raise InvalidInputError(
                f"column {tag.column!r}{owner} has two tags: {found[tag.column].address!r} and "
                f"{tag.address!r}"
            )
        found[tag.column] = tag
    for key, found in targets.items():
        missing = [column for column in columns if column not in found]
        if missing:
            owner = f" of {key!r}" if key else ""
            raise InvalidInputError(
                f"the tags{owner} lack the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
                "every column needs a tag"
            )
    return targets


def _read_csv(text: str, name: str) -> list[tuple[str, dict[str, Any]]]:
    lines = text.splitlines()
    kept = [(number, line) for number, line in enumerate(lines, 1) if line.strip(" ,;\t")]
    kept = [(number, line) for number, line in kept if not line.lstrip().startswith("#")]
    if not kept:
        return []
    # Node ids contain semicolons, so only the header shows which delimiter is used.
    delimiter = max(_DELIMITERS, key=kept[0][1].count)
    rows = [next(csv.reader([line], delimiter=delimiter)) for _, line in kept]
    header = [cell.strip().lower() for cell in rows[0]]
    found = []
    for (number, _), cells in zip(kept[1:], rows[1:], strict=True):
        place = f"line {number}"
        if len(cells) != len(header):
            raise InvalidInputError(
                f"{name}, {place} has {len(cells)} cells where the header has {len(header)}; quote "
                f"cells that contain {delimiter!r}"
            )
        found.append((place, {key: cell.strip() for key, cell in zip(header, cells, strict=True)}))
    return found or [("the header", dict.fromkeys(header, ""))]


def _read_json(text: str, name: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInputError(f"{name} is not valid JSON") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidInputError(f"{name} must hold a list of objects with {', '.join(_NAMES)}")
    return [(f"tag {number}", row) for number, row in enumerate(rows, 1)]


def _make_tag(row: dict[str, Any], place: str) -> Tag:
    unknown = [name for name in row if name not in _NAMES]
    if unknown:
        raise InvalidInputError(
            f"{place} has {', '.join(map(repr, unknown))}; expected some of {', '.join(_NAMES)}"
        )
    texts = [row.get(name) for name in ("address", "column", "unit", "key")]
    address, column, unit, key = ("" if text is None else str(text).strip() for text in texts)
    if not address or not column:
        raise InvalidInputError(f"{place} has no {'column' if address else 'address'}")
    scale = _number(row.get("scale"), 1.0, f"{place}: scale")
    offset = _number(row.get("offset"), 0.0, f"{place}: offset")
    if scale == 0:
        raise InvalidInputError(f"{place}: scale must not be 0, because all values would be equal")
    return Tag(address, column, unit, scale, offset, key)


def _number(value: Any, default: float, place: str) -> float:
    if value is None or value == "":
        return default
    if isinstance(value, str):
        number = parse_number(value, decimal_comma=True)
    else:
        number = float(value) if isinstance(value, int | float) else None
    if number is None or not math.isfinite(number):
        raise InvalidInputError(f"{place} must be a number, got {value!r}")
    return number
