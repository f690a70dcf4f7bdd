"""What flows: batches of rows, rows that cannot be used, and the two ends of a stream."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    offset : str
        By which the input itself knows the row, as in :attr:`Batch.offsets`.
    """

    position: int
    reason: str
    raw: str
    offset: str = ""


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
    offsets : list of str
        By which the input itself knows each row, ``"2:1045"`` for message 1045 of partition 2, say: two
        rows with the same offset are the same row, delivered twice. Empty if it has no such thing.
    notices : list of str
        What people should know and stops nothing, a sentence each: a connection lost and found, a gap.
    held : bool
        Whether the cursor holds something that is not in the rows yet, and must not be lost either.
    shard : str
        Which part of the input it is from, if that is shared among several processes.
    """

    rows: Floats
    positions: Integers
    times: list[str]
    keys: list[str]
    rejected: list[Rejected]
    cursor: dict[str, Any]
    offsets: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    held: bool = False
    partition: str = ""

    def __bool__(self) -> bool:
        """Whether there is anything in it."""
        return bool(len(self.rows) or self.rejected or self.notices or self.held)


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

    def acknowledge(self, cursor: dict[str, Any]) -> None:
        """Take note that everything up to a batch is safe: the input need not keep it any longer.

        Parameters
        ----------
        cursor : dict
            Of the batch.
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
