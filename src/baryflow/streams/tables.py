"""Labelled rows from files, all at once: for learning and for evaluating."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baryflow.exceptions import InvalidInputError
from baryflow.streams.base import Rejected
from baryflow.streams.blocks import Block, Reader, Selection, guess, list_names
from baryflow.streams.numbers import describe_strange
from baryflow.streams.registry import open_reader
from baryflow.validation import Booleans, Floats, Integers

#: A column is left out if more of its cells than this are words; otherwise rows with words are rejected.
TEXT_SHARE = 0.1
#: So many rejected rows are kept, of each column and in all.
KEPT = 100
_BLOCK = 4096
#: A row without a label. Fewer words than for numbers: "none" and "bad" may be classes.
UNLABELLED = frozenset(["", "nan", "na", "n/a", "#n/a", "null", "<na>"])
#: Whole numbers, also as floats; what begins with a zero is a code.
WHOLE = re.compile(r"-?(0|[1-9]\d{0,15})(\.0+)?")


@dataclass(frozen=True, eq=False)
class Table:
    """Labelled rows of one or more files.

    Attributes
    ----------
    X : array of shape (n, d)
        NaN where a cell is empty.
    y : array of shape (n,)
        Whole numbers if all labels are, text otherwise.
    domain : array of shape (n,)
        Text: from the column, or the name of the file without its suffix; ``""`` if neither is wanted.
    times : list of str
        One for each row; ``""`` without such a column.
    columns : list of str
        Names of the columns of `X`.
    left_out : dict
        Columns that are not in `X`, and the reason.
    counts : dict
        Numbers of ``"files"``, of ``"rows"`` in `X`, and of ``"rejected"`` and ``"unlabelled"`` ones.
    rejected : list of (str, Rejected)
        The first rows that could not be used, with the file they are from; `counts` has their number.
    """

    X: Floats
    y: NDArray[Any]
    domain: NDArray[Any]
    times: list[str]
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
    r"""Read labelled rows of one or more files, whose columns are matched by name.

    All columns are features but the label, the domain, the time and those to ignore; what holds words
    rather than numbers is left out, with the reason. All headers are checked before any rows are read.

    Parameters
    ----------
    files : sequence of paths
        As in :func:`open_source`, standard input included.
    label : str
        Column of the labels; rows without one are passed over and counted.
    domain : str, optional
        Column of the domains.
    domain_from_file : bool, default=False
        Whether each file is a domain of its own name, after its folder's if two are called alike.
    time : str, optional
        Column of the times, which are handed over as they are written.
    ignore : sequence of str
        Columns that are not features.
    progress : callable, optional
        Called with the number of rows read so far.

    Returns
    -------
    Table

    Raises
    ------
    InvalidInputError
        If columns are missing from a file, a file has no rows, or there are no rows with labels, or no
        numbers.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from baryflow.streams import read_table
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "pump.csv"
    >>> _ = path.write_text("flow,note,state\n1.5,new,ok\n,,worn\n", encoding="utf-8")
    >>> table = read_table([path], label="state", domain_from_file=True)
    >>> table.X.tolist(), table.y.tolist(), table.domain.tolist(), table.left_out
    ([[1.5], [nan]], ['ok', 'worn'], ['pump', 'pump'], {'note': "holds words, such as 'new'"})
    """
    if not files:
        raise InvalidInputError("files must name at least one file, got none")
    if domain is not None and domain_from_file:
        raise InvalidInputError("domain and domain_from_file exclude each other: leave out one")
    texts = [label, *([] if domain is None else [domain]), *([] if time is None else [time])]
    with ExitStack() as opened:
        readers = _open_all(files, Selection(None, texts, list(ignore)), opened)
        columns = _match_columns(files, readers, ignore)
        heap = _Heap(columns, has_domain=domain is not None, has_time=time is not None)
        for name, file, reader in zip(_domain_names(files), files, readers, strict=True):
            before = heap.read
            while (block := reader.block(_BLOCK, None)) is not None:
                heap.add(block, reader.chosen, str(file), name if domain_from_file else "")
                if progress is not None:
                    progress(heap.read)
            if heap.read == before:
                raise InvalidInputError(f"{file} has no rows: leave it out, or add rows to it")
    unnamed = {f"(column {j + 1})": "has no name" for j, one in enumerate(readers[0].columns) if not one}
    return heap.to_table(len(files), {**dict.fromkeys(ignore, "is to be ignored"), **unnamed}, label)


def _open_all(files: Sequence[str | Path], selection: Selection, opened: ExitStack) -> list[Reader]:
    """Open all files, or say what is wrong with one of them, or with all."""
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
        raise InvalidInputError(f"{errors[0]}. The other files cannot be used either") from errors[0]
    if errors:
        raise errors[0]
    return readers


def _match_columns(
    files: Sequence[str | Path], readers: Sequence[Reader], ignore: Sequence[str]
) -> list[str]:
    """Return the columns that all files have, or say which file differs from the others, and how."""
    often = Counter(chain.from_iterable(dict.fromkeys(reader.chosen) for reader in readers))
    # What most files have is meant; of two the first is taken for the pattern.
    usual = [name for name in often if 2 * often[name] > len(files)]
    usual = readers[0].chosen if len(files) == 2 else usual
    for file, reader in zip(files, readers, strict=True):
        missing = [name for name in usual if name not in reader.chosen]
        odd = [name for name in reader.chosen if name not in usual]
        if not missing and not odd:
            continue
        words = [f"it has no column {list_names(missing)}"] if missing else []
        if odd:
            words.append(f"it has {list_names(odd)}, which {_lack(len(files))}{guess(odd, missing)}")
        others = str(files[0]) if len(files) == 2 else "the other files"
        raise InvalidInputError(
            f"{file} differs from {others}: {', and '.join(words)}; rename columns that mean the same, "
            "or ignore those that are not in all files"
        )
    columns = list(often)
    known = set(chain.from_iterable(reader.columns for reader in readers))
    unknown = [column for column in ignore if column not in known]
    if unknown:
        raise InvalidInputError(
            f"there is no column {list_names(unknown)} that could be ignored{guess(unknown, known)}"
        )
    return columns


def _lack(n_files: int) -> str:
    return "the other has not" if n_files == 2 else "most others have not"


def _domain_names(files: Sequence[str | Path]) -> list[str]:
    paths = [Path(file) for file in files]
    stems = [path.name.removesuffix(".gz").rpartition(".")[0] or path.name for path in paths]
    often = Counter(stems)
    return [
        stem if often[stem] == 1 else f"{path.resolve().parent.name}/{stem}"
        for path, stem in zip(paths, stems, strict=True)
    ]


@dataclass
class _Column:
    """What is strange in a column: how often, where, and some of it."""

    count: int = 0
    example: str = ""
    rows: list[Integers] = field(default_factory=list)
    rejected: list[tuple[str, Rejected]] = field(default_factory=list)

    def add(
        self,
        block: Block,
        start: int,
        file: str,
        strange: dict[int, str],
        describe: Callable[[str], str],
    ) -> None:
        """Note the strange cells of a block whose first row is number `start`."""
        if not strange:
            return
        self.example = self.example or next(iter(strange.values())).strip()
        self.count += len(strange)
        self.rows.append(np.fromiter(strange, np.intp, len(strange)) + start)
        for row in list(strange)[: max(0, KEPT - len(self.rejected))]:
            one = Rejected(int(block.positions[row]), describe(strange[row]), block.beginning(row))
            self.rejected.append((file, one))


class _Heap:
    """Blocks of several files, until it is known which columns are numbers."""

    def __init__(self, columns: list[str], *, has_domain: bool, has_time: bool) -> None:
        self.read = 0
        self._columns = columns
        self._has_domain, self._has_time = has_domain, has_time
        self._numbers: list[Floats] = []
        self._labels: list[str] = []
        self._domains: list[str] = []
        self._times: list[str] = []
        self._strange = [_Column() for _ in columns]
        self._nowhere = _Column()  # rows without a domain
        self._rejected: list[tuple[str, Rejected]] = []
        self._n_rejected = 0

    def add(self, block: Block, chosen: list[str], file: str, name: str) -> None:
        """Take a block whose columns may stand in another order."""
        start, count = len(self._labels), len(block.positions)
        order = [chosen.index(column) for column in self._columns]
        self._numbers.append(block.numbers[:, order])
        self._labels += block.texts[0]
        self._domains += block.texts[1] if self._has_domain else [name] * count
        self._times += block.texts[-1] if self._has_time else [""] * count
        self._rejected += [(file, one) for one in block.rejected[: KEPT - len(self._rejected)]]
        self._n_rejected += len(block.rejected)
        self.read += count + len(block.rejected)
        for column, called, j in zip(self._strange, self._columns, order, strict=True):
            column.add(block, start, file, block.strange[j], partial(describe_strange, called))
        if self._has_domain:
            nowhere = {row: "" for row, one in enumerate(block.texts[1]) if not one}
            self._nowhere.add(block, start, file, nowhere, lambda _: "it has no domain.")

    def to_table(self, n_files: int, left_out: dict[str, str], label: str) -> Table:
        """Leave out columns of words, rows with words in the others, and rows without a label."""
        X = np.concatenate([np.empty((0, len(self._columns))), *self._numbers])
        self._numbers.clear()
        good = np.ones(len(X), dtype=bool)
        kept: list[int] = []
        rejected = [*self._rejected, *self._nowhere.rejected]
        for rows in self._nowhere.rows:
            good[rows] = False
        for j, (name, column) in enumerate(zip(self._columns, self._strange, strict=True)):
            values = int(np.isfinite(X[:, j]).sum())
            if column.count > TEXT_SHARE * (column.count + values):
                left_out[name] = f"holds words, such as {column.example[:40]!r}"
            elif not values:
                left_out[name] = "has no values"
            else:
                kept.append(j)
                rejected += column.rejected
                for rows in column.rows:
                    good[rows] = False
        labelled = np.array([one.casefold() not in UNLABELLED for one in self._labels], dtype=bool)
        used = good & labelled
        counts = {
            "files": n_files,
            "rows": int(used.sum()),
            "rejected": self._n_rejected + int((~good).sum()),
            "unlabelled": int((good & ~labelled).sum()),
        }
        self._check(counts, kept, left_out, label, rejected)
        return Table(
            X=X[np.ix_(used, kept)],
            y=_as_labels(np.array(self._labels)[used]),
            domain=np.array(self._domains)[used],
            times=_pick(self._times, used),
            columns=[self._columns[j] for j in kept],
            left_out=left_out,
            counts=counts,
            rejected=rejected[:KEPT],
        )

    @staticmethod
    def _check(
        counts: dict[str, int],
        kept: list[int],
        left_out: dict[str, str],
        label: str,
        rejected: list[tuple[str, Rejected]],
    ) -> None:
        if not kept:
            words = "; ".join(f"{name!r} {reason}" for name, reason in left_out.items())
            raise InvalidInputError(f"expected columns of numbers beside {label!r}, got none: {words}")
        if not counts["rows"]:
            first = f", the first because {rejected[0][1].reason.rstrip('.')}" if rejected else ""
            raise InvalidInputError(
                f"expected rows with a label in {label!r}, got none: {counts['unlabelled']} have no "
                f"label, {counts['rejected']} could not be used{first}"
            )


def _pick(values: list[str], used: Booleans) -> list[str]:
    return [value for value, use in zip(values, used.tolist(), strict=True) if use]


def _as_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels as whole numbers, if all of them are."""
    kinds = np.unique(labels).tolist()
    if not all(WHOLE.fullmatch(kind) for kind in kinds):
        return labels
    return np.array([int(one.partition(".")[0]) for one in labels.tolist()])
