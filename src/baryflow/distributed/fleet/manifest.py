"""What has come of a fleet: files in the order of their arrival, and whose rows are in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import numpy as np

from baryflow.distributed.fleet.tables import write_quarantine
from baryflow.distributed.parquet import NOTHING, Folder, Piece
from baryflow.distributed.store import Store
from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import RAW_LENGTH, Rejected
from baryflow.streams.columnar import as_text
from baryflow.streams.numbers import valid_text
from baryflow.validation import Integers

#: Bytes of a folder's name that file systems allow; a letter beyond ASCII takes six of them or more.
_LONGEST = 255
#: Rows of nobody in a file: as Python has them they take more than a kilobyte each.
_ASIDE = 8192


@dataclass(frozen=True, eq=False)
class Arrival:
    """Files that were there when somebody looked, without those that had been there before.

    It is written once and never changed. What is cut by it, epochs, is the same whoever cuts it, also if
    more files have come since.

    Attributes
    ----------
    pieces : list of Piece
    keys : list of str
        Targets that have rows in them.
    rows : array of shape (n_keys,)
        How many.
    first : array of shape (n_keys,)
        The first piece in which each of them is.
    nameless : int
        Rows that do not say whose they are.
    marks : dict of str → str
        What the file system said of each file, as in :class:`Folder`.
    """

    pieces: list[Piece]
    keys: list[str]
    rows: Integers
    first: Integers
    nameless: int
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, int]:
        """Rows of each file."""
        return count_files(self.pieces)

    def identify(self, piece: Piece) -> str:
        """Return what notes of one of its pieces are called."""
        return identify(piece, self.marks.get(piece.path, ""))


@dataclass(frozen=True, eq=False)
class Count:
    """Whose rows are in one piece, and how many."""

    keys: list[str]
    rows: Integers
    nameless: int


@dataclass
class Merged:
    """Whose rows are in several pieces: key → the first of these pieces, and rows."""

    found: dict[str, tuple[int, int]] = field(default_factory=dict)
    nameless: int = 0


@dataclass(frozen=True)
class Look:
    """One piece to look through: where it is, and where to write what is found."""

    folder: Folder
    piece: Piece
    mark: str  # of its file, as in Folder
    number: int
    before: int  # rows of the file in front of it
    key: str
    columns: list[str]
    index: Store
    output: Store


def count_files(pieces: Iterable[Piece]) -> dict[str, int]:
    """Return the rows of each file."""
    found: dict[str, int] = {}
    for piece in pieces:
        found[piece.path] = found.get(piece.path, 0) + piece.n_rows
    return found


def numbered(number: int) -> str:
    """Return the name of something by its number, so that names sort as numbers do."""
    return f"{number:06d}"


def identify(piece: Piece, mark: str) -> str:
    """Return a name that no other piece has, nor this one once its file was written again.

    A number would not do: it is another as soon as a file has come that sorts before.

    Parameters
    ----------
    piece : Piece
    mark : str
        Of its file, as in :class:`Folder`.

    Returns
    -------
    str
    """
    told = (piece.path, tuple(piece.groups), piece.n_rows, mark)
    return sha256(repr(told).encode()).hexdigest()[:32]


def folder_of(key: str) -> str:
    """Return the name of a target's folder: any key can be one, and no two have the same."""
    name = f"target={quote(key, safe='')}"
    if len(name) <= _LONGEST:
        return name
    # Its beginning, in whole letters, and a digest. What is quoted has no "!": no other key is so named.
    digest = sha256(key.encode()).hexdigest()
    beginning = key[:_LONGEST]
    while len(quote(beginning, safe="")) > _LONGEST - len(f"target=!{digest}"):
        beginning = beginning[:-1]
    return f"target={quote(beginning, safe='')}!{digest}"


def split_keys(column: Any) -> tuple[list[str], Integers]:
    """Return the different keys of a column as text, and for each row which it is; "" is none."""
    import pyarrow as pa

    try:
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    except pa.ArrowNotImplementedError as error:
        raise InvalidInputError(
            f"a column of {column.type} cannot name targets: expected text, numbers or times; give "
            "another column as key"
        ) from error
    # A whole number beside gaps is a float in some files: 7.0 there is 7 elsewhere.
    values = coded.dictionary.to_pylist()
    whole = [isinstance(value, float) and value.is_integer() for value in values]
    names = [as_text(int(v) if is_whole else v) for v, is_whole in zip(values, whole, strict=True)]
    # As wide numbers: the number for "none" may be one more than those of the column can count.
    codes = coded.indices.cast(pa.int64()).fill_null(len(names)).to_numpy(zero_copy_only=False)
    return [*names, ""], codes.astype(np.intp, copy=False)


def count(look: Look) -> Merged:
    """Count the rows of each target in a piece, put aside those of nobody, and keep a note of it.

    Parameters
    ----------
    look : Look

    Returns
    -------
    Merged
    """
    name = f"{identify(look.piece, look.mark)}.bary"
    found = look.index.load(Count, name)
    if found is None:
        found = _count(look)
        look.index.keep(found, name)
    rows = found.rows.tolist()
    return Merged(
        {key: (look.number, n) for key, n in zip(found.keys, rows, strict=True)}, found.nameless
    )


def _count(look: Look) -> Count:
    counts, nameless = _tally(look.folder, look.piece, look.key)
    if nameless:
        start = f"{look.index.url.rsplit('/', 1)[-1]}-{identify(look.piece, look.mark)}"
        for number, some in enumerate(_describe(look)):
            name = f"{start}-{numbered(number)}.ndjson"
            write_quarantine(look.output / "_quarantine" / "nobody", name, "", some)
    return Count(list(counts), np.array(list(counts.values()), dtype=np.int64), nameless)


def _tally(folder: Folder, piece: Piece, key: str) -> tuple[dict[str, int], int]:
    """Return the rows of each target in a piece, and how many are nobody's."""
    if key in piece.folders:
        return {}, piece.n_rows
    counts: dict[str, int] = {}
    for batch in folder.batches(piece, [key]):
        names, codes = split_keys(batch.column(0))
        for name, n in zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True):
            if n:
                counts[name] = counts.get(name, 0) + n
    nameless = counts.pop("", 0)
    return counts, nameless


def _describe(look: Look) -> Iterator[list[Rejected]]:
    """Yield rows of nobody as they are put aside, some at a time; positions are those in the file."""
    reason = f"column {look.key!r}, which names the target, is empty in {look.piece.path}."
    before = look.before
    for batch in look.folder.batches(look.piece, [look.key, *look.columns]):
        mine = _find_nameless(batch, look)
        cells = batch.select([name for name in batch.schema.names if name != look.key])
        for start in range(0, len(mine), _ASIDE):
            some = mine[start : start + _ASIDE]
            rows = zip(some.tolist(), cells.take(some).to_pylist(), strict=True)
            texts = ((row, valid_text(",".join(map(str, values.values())))) for row, values in rows)
            yield [Rejected(before + row + 1, reason, text[:RAW_LENGTH]) for row, text in texts]
        before += batch.num_rows


def _find_nameless(batch: Any, look: Look) -> Integers:
    if look.key in look.piece.folders:
        return np.arange(batch.num_rows)
    names, codes = split_keys(batch.column(look.key))
    return np.flatnonzero(np.array([not name for name in names])[codes])


def merge(parts: Sequence[Merged]) -> Merged:
    """Return what several tasks have found together.

    Parameters
    ----------
    parts : sequence of Merged

    Returns
    -------
    Merged
    """
    together = Merged()
    for part in parts:
        together.nameless += part.nameless
        for key, (first, n) in part.found.items():
            before = together.found.get(key)
            entry = (first, n) if before is None else (min(first, before[0]), n + before[1])
            together.found[key] = entry
    return together


def named_by_folder(piece: Piece, key: str) -> bool:
    """Tell whether the name of a folder says whose the rows of a piece are: none has to be read."""
    return piece.folders.get(key, "") not in NOTHING


def rows_in(folder: Folder, piece: Piece, name: str, key: str, index: Store) -> dict[str, int]:
    """Return whose rows are in a piece, as it was counted.

    Parameters
    ----------
    folder : Folder
    piece : Piece
    name : str
        By which it is identified.
    key : str
        The column.
    index : Store
        Of its arrival.

    Returns
    -------
    dict of str → int
    """
    if named_by_folder(piece, key):
        return {piece.folders[key]: piece.n_rows}
    found = index.load(Count, f"{name}.bary")
    if found is None:  # lost or damaged: it can be counted again
        return _tally(folder, piece, key)[0]
    return dict(zip(found.keys, found.rows.tolist(), strict=True))


def cut(rows: Iterable[int], size: int) -> Iterator[tuple[int, int]]:
    """Cut the rows of a target into epochs: a new one begins after so many rows, and with each arrival.

    Parameters
    ----------
    rows : iterable of int
        That came with each arrival.
    size : int
        Of an epoch, at most.

    Yields
    ------
    start, stop : int
    """
    start = 0
    for n in rows:
        end = start + n
        while start < end:
            stop = min(start + size, end)
            yield start, stop
            start = stop
