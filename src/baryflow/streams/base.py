"""Batches of rows, rejected rows, and the interfaces of sources and sinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers

#: Characters of a rejected row that are kept.
RAW_LENGTH = 200


@dataclass(frozen=True)
class Rejected:
    """A row that cannot be used, and the reason.

    Attributes
    ----------
    position : int
        Row number in the input, counted from 1 without header, units row and blank lines.
    reason : str
        One sentence.
    raw : str
        The beginning of the row: at most 200 characters of valid text.
    offset : str
        The input's own identifier for the row, as in ``Batch.offsets``.
    """

    position: int
    reason: str
    raw: str
    offset: str = ""


@dataclass(frozen=True, eq=False)
class Label:
    """The label of a row that was read before, or of one that comes with it.

    The row is found by its position, else by its offset, else by its time. If it is not found, or none
    of them is given, the label needs the values.

    Attributes
    ----------
    label : str, int or float
        The class. Text is converted if the classes are numbers; ``""`` is no label.
    position : int, optional
        As in ``Batch.positions``.
    time, offset : str
        As in :class:`Batch`; ``""`` if not given.
    values : list of float, optional
        The row as the model takes it, of features if rows are raw signals; NaN where a value is missing.
    certify : bool
        Whether the row was chosen at random, so that the label counts for the certificate.
    key : str
        The target; ``""`` if there is only one.
    until : str
        If given, the label is that of all rows from `time` to this time, both included.
    baseline : bool
        Whether the row belongs to a baseline: it shows how the target is calibrated. The class is one of
        the sources.
    """

    label: str | int | float
    position: int | None = None
    time: str = ""
    offset: str = ""
    values: list[float] | None = None
    certify: bool = False
    key: str = ""
    until: str = ""
    baseline: bool = False


@dataclass(frozen=True)
class AlarmCommand:
    """What an operator wants to be done about the alarm of a class.

    Attributes
    ----------
    action : str
        acknowledge, shelve, unshelve, suppress or unsuppress.
    alarm : str
        The class; ``"*"`` acknowledges all alarms.
    number : int, optional
        Of the alarm; if the class has a later one, the command is refused.
    duration : str or int, optional
        For how long to shelve: ``"30min"`` by the times of rows, or a number of rows.
    by, comment : str
        Who wants it, and why.
    key : str
        The target; ``""`` if there is only one.
    """

    action: str
    alarm: str
    number: int | None = None
    duration: str | int | None = None
    by: str = ""
    comment: str = ""
    key: str = ""


@dataclass(frozen=True, eq=False)
class Batch:
    """Consecutive rows, with the rejected rows among them, and labels.

    Attributes
    ----------
    rows : array of shape (n, d)
        In the order of :attr:`Source.wanted`; NaN where a cell is empty.
    positions : array of shape (n,)
        Row number in the input, from 1. Rejected rows leave gaps.
    times, keys : list of str
        One per row; ``""`` without a time or key column.
    rejected : list of Rejected
    cursor : dict
        Where to resume after this batch, for :meth:`Source.seek`. JSON-serialisable.
    offsets : list of str
        The input's own identifier for each row, for example ``"2:1045"`` for message 1045 of Kafka
        partition 2. Two rows with the same offset are the same row delivered twice. Empty if the
        input has no identifiers.
    notices : list of str
        Messages for the operator that stop nothing, for example a lost connection or a gap.
    held : bool
        Whether the cursor holds data that is not in any row yet, so it must be saved too.
    partition : str
        The partition this batch is from, if several processes share the input.
    labels : list of Label
        Labels of rows of this batch or of earlier ones; they are applied after its rows.
    commands : list of AlarmCommand
        They are applied last.
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
    labels: list[Label] = field(default_factory=list)
    commands: list[AlarmCommand] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether the batch holds anything."""
        records = self.rejected or self.labels or self.commands
        return bool(len(self.rows) or records or self.notices or self.held)


#: Called with the name of a partition before its first batch; returns its last cursor on disk.
Assigned = Callable[[str], dict[str, Any] | None]
#: Called with the name of a partition before another process gets it, and also after it was lost.
Revoked = Callable[[str], None]


class Source(Protocol):
    """A stream of rows; a subclass inherits the defaults of an input that is always there."""

    @property
    def columns(self) -> list[str]:
        """All columns of the input; if they are not known in advance, those of the rows."""
        return list(self.wanted)

    @property
    def wanted(self) -> list[str]:
        """The columns of ``Batch.rows``, in order."""

    @property
    def shared(self) -> bool:
        """Whether several processes share its partitions, so that :meth:`attach` must be called."""
        return False

    @property
    def reached(self) -> bool:
        """Whether the input has answered at least once."""
        return True

    def read(self, n: int, timeout: float | None = None) -> Batch | None:
        """Return the next `n` rows, rejected ones included, or None at the end.

        Parameters
        ----------
        n : int
        timeout : float, optional
            Return a partial batch this many seconds after its first row. All of its rows may be
            rejected ones.

        Returns
        -------
        Batch or None

        Raises
        ------
        InvalidInputError
            If the input cannot be read any further. Rows before that point were returned.
        """

    def seek(self, cursor: dict[str, Any]) -> None:
        """Resume after a batch that an earlier process has read.

        A pipe cannot be read again: it continues with its next row, and only the count is restored.

        Parameters
        ----------
        cursor : dict
            The cursor of that batch.

        Raises
        ------
        InvalidInputError
            If this is not the input that was read then.
        """

    def acknowledge(self, cursor: dict[str, Any]) -> None:
        """Report that every batch up to this one is on disk: the input may discard it.

        Parameters
        ----------
        cursor : dict
            The cursor of the last batch on disk.
        """
        del cursor

    def stop_when(self, stop: Callable[[], bool]) -> None:
        """Give up soon if the input is away and `stop` returns True.

        Parameters
        ----------
        stop : callable
        """
        del stop

    def attach(self, assigned: Assigned, revoked: Revoked) -> None:
        """Share the partitions with other processes; each batch is from one of them then.

        Both functions are called by :meth:`read`, `revoked` also by :meth:`close`.

        Parameters
        ----------
        assigned, revoked : callable

        Raises
        ------
        InvalidInputError
            If the input has no partitions that can be shared.
        """
        del assigned, revoked
        raise InvalidInputError("this input has no partitions that processes could share")

    def close(self) -> None:
        """Close the input."""


class Sink(Protocol):
    """A destination for records; a subclass inherits the defaults of one that is always there."""

    @property
    def position(self) -> int:
        """The end of what was written, for :meth:`truncate`.

        For a file that is not rotated, this is its size in bytes. It never decreases between two
        calls of :meth:`truncate`.
        """

    def write(self, records: list[dict[str, Any]]) -> None:
        """Append records, and hand them over; return before the receiver has confirmed them.

        Parameters
        ----------
        records : list of dict
            All with the same keys.

        Raises
        ------
        InvalidInputError
            If the keys differ from those of the header.
        """

    def truncate(self, position: int) -> None:
        """Remove everything that was written after `position`.

        Parameters
        ----------
        position : int

        Raises
        ------
        InvalidInputError
            If less was written, or if the output cannot be truncated.
        """

    def flush(self) -> None:
        """Return once the receiver has all records: a disk, a broker or a server.

        Raises
        ------
        OSError
            If it does not get them: the disk is full, access is denied (UnreachableError), or the
            process must stop while the receiver is away (StoppedError).
        """

    def stop_when(self, stop: Callable[[], bool]) -> None:
        """Give up soon if the receiver is away and `stop` returns True.

        Parameters
        ----------
        stop : callable
        """
        del stop

    def close(self, finished: bool = True) -> None:
        """Flush and close.

        Parameters
        ----------
        finished : bool, default=True
            Whether the output is complete. If not, a later process can resume it.

        Raises
        ------
        OSError
            If the disk is full.
        """


class MessageSink(Sink):
    """A sink of messages: sent ones cannot be taken back, and are sent again byte for byte the same."""

    position = 0

    def truncate(self, position: int) -> None:
        """Reset the count."""
        self.position = position
