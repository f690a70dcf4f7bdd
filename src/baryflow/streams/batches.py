"""What flows: batches of rows, rows that cannot be used, and the two ends of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from baryflow.validation import Floats, Integers

#: How much of a row that cannot be used is kept, in characters.
RAW_LENGTH = 200


@dataclass(frozen=True)
class Rejected:
    """A row that cannot be used, and why.

    Attributes
    ----------
    position : int
        Number of the row in the input, from 1; header, units row and blank lines are not counted.
    reason : str
        One sentence.
    raw : str
        The beginning of the row, at most 200 characters, always valid text.
    """

    position: int
    reason: str
    raw: str


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows in a row, and those between them that cannot be used.

    Attributes
    ----------
    rows : array of shape (n, d)
        In the order of the wanted columns; NaN where a cell is empty.
    positions : array of shape (n,)
        Number of each row in the input, from 1; those of `rejected` are missing here.
    times, keys : list of str
        One for each row; ``""`` without such a column.
    rejected : list of Rejected
    cursor : dict
        Where to go on after this batch, for :meth:`Source.seek`; can be written as JSON.
    """

    rows: Floats
    positions: Integers
    times: list[str]
    keys: list[str]
    rejected: list[Rejected]
    cursor: dict[str, Any]


class Source(Protocol):
    """Where rows come from."""

    @property
    def columns(self) -> list[str]:
        """All columns that the input has."""

    @property
    def wanted(self) -> list[str]:
        """The columns of :attr:`Batch.rows`, in this order."""

    def read(self, n: int, timeout: float | None = None) -> Batch | None:
        """Return the next `n` rows, good and bad together, or None at the end.

        Parameters
        ----------
        n : int
        timeout : float, optional
            Seconds since the first row of the batch after which fewer are returned. A batch may have no
            rows but rejected ones.

        Returns
        -------
        Batch or None

        Raises
        ------
        InvalidInputError
            If what follows cannot be read at all; rows that came before it were returned.
        """

    def seek(self, cursor: dict[str, Any]) -> None:
        """Go on after a batch that was read in an earlier life.

        A pipe cannot be read again: it goes on as it is, and only its rows are counted on.

        Parameters
        ----------
        cursor : dict
            Of the batch.

        Raises
        ------
        InvalidInputError
            If the input is not the one that was read then.
        """

    def close(self) -> None:
        """Let go of the input."""


class Sink(Protocol):
    """Where records go to."""

    @property
    def position(self) -> int:
        """Bytes written so far, those not yet on the disk included."""

    def write(self, records: list[dict[str, Any]]) -> None:
        """Append records.

        Parameters
        ----------
        records : list of dict
            All with the same keys.

        Raises
        ------
        InvalidInputError
            If keys are not those of the header.
        """

    def truncate(self, position: int) -> None:
        """Forget everything written after `position`.

        Parameters
        ----------
        position : int

        Raises
        ------
        InvalidInputError
            If less was written, or it cannot be taken back.
        """

    def flush(self, sync: bool = False) -> None:
        """Hand everything over to the system.

        Parameters
        ----------
        sync : bool, default=False
            Whether to return only when it is on the disk.

        Raises
        ------
        OSError
            If there is no room.
        """

    def close(self, finished: bool = True) -> None:
        """Flush and let go.

        Parameters
        ----------
        finished : bool, default=True
            Whether all is written; if not, it can be gone on with in a later life.

        Raises
        ------
        OSError
            If there is no room.
        """
