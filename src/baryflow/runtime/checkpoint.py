"""A folder from which a killed run goes on as if it never had been.

It holds snapshots and journals by number: snapshot *k* is all there was before the first batch of
journal *k*, or after the first few of it, if it was made while that journal was replayed. Two snapshots
are kept, so that one that is damaged loses nothing but time: the run goes on from the one before it, and
its journal and the next are replayed. A snapshot also says how long each output was then: outputs are
cut back to that length, and replaying writes the rest of them again, byte for byte.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from baryflow import container
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.runtime.journal import Journal
from baryflow.streams import Batch

KIND = "checkpoint"
_NAMES = re.compile(r"(snapshot|journal)-(\d{8})\.(bary|log)")


@dataclass
class Standing:
    """How far a run is.

    Attributes
    ----------
    model : bytes
        The model, saved.
    cursor : dict or None
        Where the source goes on; None: at its beginning.
    counts : dict of str → int
        Batches, rows and the like.
    outputs : dict of str → int
        Bytes that each output had.
    monitor : bytes
        What the monitor of drift knows, saved; empty without one.
    """

    model: bytes
    cursor: dict[str, Any] | None = None
    counts: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    monitor: bytes = b""


class Checkpoint:
    """Snapshots and journals in a folder.

    Parameters
    ----------
    folder : path
        Made if it is not there. One run at a time may use it.

    Raises
    ------
    InvalidInputError
        If another run is using the folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.folder / "lock")
        self._number = 0
        self._taken = 0  # batches of the present journal that the model has learned from
        self._journal: Journal | None = None

    @property
    def is_new(self) -> bool:
        """Whether no run has used the folder before."""
        return not self._numbers("snapshot")

    def recover(self) -> tuple[Standing, Iterator[Batch]] | None:
        """Return the newest snapshot that can be read, and the batches that came after it.

        Returns
        -------
        standing, batches : Standing and iterator of Batch
            All batches must be taken before anything is appended. None if the folder is empty.

        Raises
        ------
        FileFormatError
            If there are snapshots and none can be read.
        """
        numbers = sorted(self._numbers("snapshot"), reverse=True)
        for number in numbers:
            path = self._path("snapshot", number)
            try:
                standing, skip = _read(path)
            except FileFormatError as error:
                warnings.warn(f"{error}; going on from the one before it", UserWarning, stacklevel=2)
                continue
            self._number = number
            return standing, self._replay(number, skip)
        if numbers:
            raise FileFormatError(
                f"none of the snapshots in {self.folder} can be read: use another folder, or empty it "
                "to start anew"
            )
        return None

    def _replay(self, first: int, skip: int) -> Iterator[Batch]:
        for number in sorted(n for n in self._numbers("journal") if n >= first):
            if self._journal is not None:
                self._journal.close()
            self._number = number
            self._journal = Journal(self._path("journal", number))
            self._taken = 0
            for batch in self._journal.replay():
                self._taken += 1
                if number > first or self._taken > skip:
                    yield batch
            if self._journal.cut:
                # Later journals, if any, follow batches that are lost; the source will tell them again.
                for later in (n for n in self._numbers("journal") if n > number):
                    self._path("journal", later).unlink()
                return

    def append(self, batch: Batch) -> None:
        """Put a batch on disk.

        Parameters
        ----------
        batch : Batch
        """
        if self._journal is None:
            self._journal = Journal(self._path("journal", self._number))
        self._journal.append(batch)

    def save(self, standing: Standing) -> None:
        """Make a snapshot of how things stand after the last batch, and begin a new journal.

        Parameters
        ----------
        standing : Standing
            Its outputs must be on disk.
        """
        number = self._number + 1 if self._journal is not None else self._number
        container.write_bytes(self._path("snapshot", number), _pack(standing, 0))
        if self._journal is not None:
            self._journal.close()
        self._number, self._journal = number, Journal(self._path("journal", number))
        self._tidy()

    def save_midway(self, standing: Standing) -> None:
        """Make a snapshot while batches are replayed, so that a kill need not replay them again.

        Parameters
        ----------
        standing : Standing
            After the batch that was yielded last.
        """
        content = _pack(standing, self._taken)
        container.write_bytes(self._path("snapshot", self._number), content)

    def _tidy(self) -> None:
        """Remove what is older than the last snapshot but one."""
        kept = sorted(self._numbers("snapshot"))[-2:]
        for kind in ("snapshot", "journal"):
            for number in self._numbers(kind):
                if number < kept[0]:
                    self._path(kind, number).unlink()

    def _numbers(self, kind: str) -> list[int]:
        found = (_NAMES.fullmatch(path.name) for path in self.folder.iterdir())
        return [int(match[2]) for match in found if match and match[1] == kind]

    def _path(self, kind: str, number: int) -> Path:
        return self.folder / f"{kind}-{number:08d}.{'bary' if kind == 'snapshot' else 'log'}"

    def close(self) -> None:
        """Let others use the folder."""
        if self._journal is not None:
            self._journal.close()
        self._lock.close()


def _pack(standing: Standing, skip: int) -> bytes:
    values = {
        "cursor": standing.cursor,
        "counts": standing.counts,
        "outputs": standing.outputs,
        "skip": skip,
    }
    kept = {"model": standing.model, "monitor": standing.monitor}
    arrays = {name: np.frombuffer(data, dtype=np.uint8) for name, data in kept.items() if data}
    return container.to_bytes(KIND, values, arrays)


def _read(path: Path) -> tuple[Standing, int]:
    content = container.read(path)
    values = content.values
    if content.kind != KIND or "model" not in content.arrays:
        raise FileFormatError(f"{path} holds a {content.kind!r}, not a checkpoint")
    standing = Standing(
        content.arrays["model"].tobytes(),
        values["cursor"],
        values["counts"],
        values["outputs"],
        content.arrays["monitor"].tobytes() if "monitor" in content.arrays else b"",
    )
    return standing, int(values["skip"])


def _lock(path: Path) -> Any:
    """Hold a file that only one process can hold; it is let go when the process ends, in any way."""
    file = path.open("w")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # not on this platform: nothing to hold
        pass
    except OSError as error:
        file.close()
        raise InvalidInputError(
            f"{path.parent} is in use by another run: wait for its end, or use another folder"
        ) from error
    return file
