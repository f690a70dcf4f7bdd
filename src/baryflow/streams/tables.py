"""Read labelled rows from files into memory, for training and evaluation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Rejected
from baryflow.streams.decoding import Block, Selection, describe_invalid, list_names, suggest
from baryflow.streams.registry import Reader, open_reader
from baryflow.validation import Booleans, Floats, Integers

#: A column with more than this share of words is left out; with fewer, the rows with words are rejected.
TEXT_SHARE = 0.1
#: Rejected rows that are kept, per column and in total.
KEPT = 100
_BLOCK = 4096
#: Labels that mark an unlabelled row. Fewer than for numbers: "none" and "bad" may be classes.
UNLABELLED = frozenset(["", "nan", "na", "n/a", "#n/a", "null", "<na>"])
#: Integers, also written as floats; a leading zero marks a code.
WHOLE = re.compile(r"-?(0|[1-9]\d{0,15})(\.0+)?")


@dataclass(frozen=True, eq=False)
class Table:
    """Labelled rows of one or more files.

    Attributes
    ----------
    X : array of shape (n, d)
        NaN where a cell is empty.
    y : array of shape (n,)
        Integers if all labels are, text otherwise.
    domain : array of shape (n,)
        Text from the domain column, or the file name without its suffix; ``""`` if neither is used.
    file : array of shape (n,)
        The number of the file, counted from 0.
    columns : list of str
        Names of the columns of `X`.
    left_out : dict
        Columns that are not in `X` → the reason.
    counts : dict
        Numbers of ``"files"``, ``"rows"`` in `X`, ``"rejected"`` and ``"unlabelled"`` rows.
    rejected : list of (str, Rejected)
        The first rejected rows, with their file; `counts` has the number of all.
    """

    X: Floats
    y: NDArray[Any]
    domain: NDArray[Any]
    file: Integers
    columns: list[str]
    left_out: dict[str, str]
    counts: dict[str, int]
    rejected: list[tuple[str, Rejected]]


def read_table(
    files: Sequence[str | Path],
    *,
    label: str,
    domain: str | None = None,
    domain_from_file: bool = False,
    time: str | None = None,
    ignore: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
) -> Table:
    r"""Read labelled rows from one or more files, matching columns by name.

    All columns are features except the label, the domain, the time and the ignored ones. Columns of
    words are left out, with the reason. All headers are checked before any rows are read.

    Parameters
    ----------
    files : sequence of paths
        As in :func:`open_source`, standard input included.
    label : str
        Label column; rows without a label are skipped and counted.
    domain : str, optional
        Domain column.
    domain_from_file : bool, default=False
        Use each file as a domain, named after the file, and after its folder if two names are equal.
    time : str, optional
        Time column; not a feature.
    ignore : sequence of str
        Columns that are not used as features.
    progress : callable, optional
        Called with the number of rows read so far.

    Returns
    -------
    Table

    Raises
    ------
    InvalidInputError
        If a file lacks columns or has no rows, or if there are no labelled rows or no numeric columns.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from baryflow.streams import read_table
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "pump.csv"
    >>> _ = path.write_text("flow,note,state\n1.5,new,ok\n,,worn\n", encoding="utf-8")
    >>> table = read_table([path], label="state", domain_from_file=True)
    >>> table.X.tolist(), table.y.tolist(), table.domain.tolist(), table.left_out
    ([[1.5], [nan]], ['ok', 'worn'], ['pump', 'pump'], {'note': "holds text, for example 'new'"})
    """
    if not files:
        raise InvalidInputError("files must name at least one file, got none")
    if domain is not None and domain_from_file:
        raise InvalidInputError("domain and domain_from_file exclude each other: use one of them")
    texts = [label, *([] if domain is None else [domain]), *([] if time is None else [time])]
    with ExitStack() as opened:
        readers = _open_all(files, Selection(None, texts, list(ignore)), opened)
        columns = _match_columns(files, readers, ignore)
        collector = _Collector(columns, has_domain=domain is not None)
        names = _domain_names(files)
        for number, (name, file, reader) in enumerate(zip(names, files, readers, strict=True)):
            before = collector.read
            while (block := reader.block(_BLOCK, None)) is not None:
                collector.add(block, reader.chosen, number, str(file), name if domain_from_file else "")
                if progress is not None:
                    progress(collector.read)
            if collector.read == before:
                raise InvalidInputError(f"{file} has no rows; leave it out")
    unnamed = {f"(column {j + 1})": "has no name" for j, one in enumerate(readers[0].columns) if not one}
    return collector.to_table(len(files), {**dict.fromkeys(ignore, "is ignored"), **unnamed}, label)


def _open_all(files: Sequence[str | Path], selection: Selection, opened: ExitStack) -> list[Reader]:
    """Open all files, or raise the first error."""
    readers, errors = [], []
    for file in files:
        try:
            reader = open_reader(file, selection)
        except InvalidInputError as error:
            errors.append(error)
            continue
        opened.callback(reader.close)
        readers.append(reader)
    if len(errors) == len(files) > 1:
        raise InvalidInputError(f"{errors[0]}. None of the other files can be used") from errors[0]
    if errors:
        raise errors[0]
    return readers


def _match_columns(
    files: Sequence[str | Path], readers: Sequence[Reader], ignore: Sequence[str]
) -> list[str]:
    """Return the columns that all files have, or raise an error for the file that differs."""
    often = Counter(chain.from_iterable(dict.fromkeys(reader.chosen) for reader in readers))
    # The majority of files decides, or the first of two.
    expected = [name for name in often if 2 * often[name] > len(files)]
    expected = readers[0].chosen if len(files) == 2 else expected
    for file, reader in zip(files, readers, strict=True):
        missing = [name for name in expected if name not in reader.chosen]
        extra = [name for name in reader.chosen if name not in expected]
        if not missing and not extra:
            continue
        reasons = [f"it has no column {list_names(missing)}"] if missing else []
        if extra:
            without = "the other file lacks" if len(files) == 2 else "most other files lack"
            reasons.append(f"it has {list_names(extra)}, which {without}{suggest(extra, missing)}")
        others = str(files[0]) if len(files) == 2 else "the other files"
        raise InvalidInputError(
            f"{file} differs from {others}: {', and '.join(reasons)}; rename columns that mean the "
            "same, or ignore those that are not in all files"
        )
    columns = list(often)
    known = set(chain.from_iterable(reader.columns for reader in readers))
    unknown = [column for column in ignore if column not in known]
    if unknown:
        raise InvalidInputError(
            f"cannot ignore {list_names(unknown)}: no file has this column{suggest(unknown, known)}"
        )
    return columns


def _domain_names(files: Sequence[str | Path]) -> list[str]:
    paths = [Path(file) for file in files]
    stems = [path.name.removesuffix(".gz").rpartition(".")[0] or path.name for path in paths]
    often = Counter(stems)
    return [
        stem if often[stem] == 1 else f"{path.resolve().parent.name}/{stem}"
        for path, stem in zip(paths, stems, strict=True)
    ]


class _Collector:
    """Collects blocks of several files until it is known which columns are numeric."""

    def __init__(self, columns: list[str], *, has_domain: bool) -> None:
        self.read = 0
        self._columns = columns
        self._has_domain = has_domain
        self._numbers: list[Floats] = [np.empty((0, len(columns)))]
        self._invalid: list[Booleans] = [np.empty((0, len(columns) + 1), dtype=bool)]
        self._labels: list[str] = []
        self._domains: list[str] = []
        self._files: list[int] = []
        #: For each column, and at last for the domain: invalid cells, and rows rejected for them.
        self._cells: list[list[str]] = [[] for _ in range(len(columns) + 1)]
        self._rejected: list[list[tuple[str, Rejected]]] = [[] for _ in self._cells]
        self._unreadable: list[tuple[str, Rejected]] = []
        self._n_unreadable = 0

    def add(self, block: Block, chosen: list[str], number: int, file: str, name: str) -> None:
        """Add a block; its columns may be in another order."""
        count = len(block.positions)
        order = [chosen.index(column) for column in self._columns]
        self._numbers.append(block.numbers[:, order])
        self._labels += block.texts[0]
        domains = block.texts[1] if self._has_domain else [name] * count
        self._domains += domains
        self._files += [number] * count
        self._unreadable += [(file, one) for one in block.rejected[: KEPT - len(self._unreadable)]]
        self._n_unreadable += len(block.rejected)
        self.read += count + len(block.rejected)
        without = {row: "" for row, one in enumerate(domains) if self._has_domain and not one}
        mask = np.zeros((count, len(self._cells)), dtype=bool)
        for j, invalid in enumerate([*(block.invalid[place] for place in order), without]):
            mask[list(invalid), j] = True
            for row in list(invalid)[: KEPT - len(self._cells[j])]:
                reason = "it has no domain."
                if j < len(self._columns):
                    reason = describe_invalid(self._columns[j], invalid[row])
                self._cells[j].append(invalid[row].strip())
                one = Rejected(int(block.positions[row]), reason, block.excerpt(row))
                self._rejected[j].append((file, one))
        self._invalid.append(mask)

    def to_table(self, n_files: int, left_out: dict[str, str], label: str) -> Table:
        """Return the table without columns of words, rows with words elsewhere, and unlabelled rows."""
        X, invalid = np.concatenate(self._numbers), np.concatenate(self._invalid)
        self._numbers.clear()
        words, values = invalid.sum(axis=0), np.isfinite(X).sum(axis=0)
        kept: list[int] = []
        for j, name in enumerate(self._columns):
            if words[j] > TEXT_SHARE * (words[j] + values[j]):
                example = next(filter(None, self._cells[j]), "")
                left_out[name] = f"holds text, for example {example[:40]!r}"
            elif not values[j]:
                left_out[name] = "has no values"
            else:
                kept.append(j)
        good = ~invalid[:, [*kept, -1]].any(axis=1)
        rejected = [*self._unreadable, *self._rejected[-1]]
        rejected += [one for j in kept for one in self._rejected[j]]
        labelled = np.array([one.casefold() not in UNLABELLED for one in self._labels], dtype=bool)
        used = good & labelled
        counts = {
            "files": n_files,
            "rows": int(used.sum()),
            "rejected": self._n_unreadable + int((~good).sum()),
            "unlabelled": int((good & ~labelled).sum()),
        }
        if not kept:
            reasons = "; ".join(f"{name!r} {reason}" for name, reason in left_out.items())
            raise InvalidInputError(f"expected numeric columns besides {label!r}, got none: {reasons}")
        if not counts["rows"]:
            first = f", the first because {rejected[0][1].reason.rstrip('.')}" if rejected else ""
            raise InvalidInputError(
                f"expected rows with a label in {label!r}, got none: {counts['unlabelled']} without a "
                f"label, {counts['rejected']} rejected{first}"
            )
        return Table(
            X=X[used][:, kept],
            y=_as_labels(np.array(self._labels)[used]),
            domain=np.array(self._domains)[used],
            file=np.array(self._files, dtype=np.intp)[used],
            columns=[self._columns[j] for j in kept],
            left_out=left_out,
            counts=counts,
            rejected=rejected[:KEPT],
        )


def _as_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels as integers if all of them are."""
    kinds = np.unique(labels).tolist()
    if not all(WHOLE.fullmatch(kind) for kind in kinds):
        return labels
    return np.array([int(one.partition(".")[0]) for one in labels.tolist()])
