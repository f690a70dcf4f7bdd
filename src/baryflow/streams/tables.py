"""Labelled rows from files, all at once: for learning and for evaluating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from baryflow.streams.batches import Rejected
from baryflow.validation import Floats


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
        Text: from the column, or the name of the file without its suffix.
    times : list of str
        One for each row; ``""`` without such a column.
    columns : list of str
        Names of the columns of `X`.
    left_out : dict
        Columns that are not in `X`, and the reason.
    counts : dict
        Numbers of ``"files"``, ``"rows"`` in `X`, ``"rejected"`` and ``"unlabelled"`` rows.
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
) -> Table:
    """Read labelled rows."""
    raise NotImplementedError
