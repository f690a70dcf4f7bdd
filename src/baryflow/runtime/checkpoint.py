"""A folder from which a killed run goes on as if it never had been.

It holds snapshots and journals by number: snapshot *k* is all there was before the first batch of
journal *k*, or after the first few of it, if it was made while that journal was replayed. Two snapshots
are kept, so that one that is damaged loses nothing but time: the run goes on from the one before it, and
its journal and the next are replayed. A snapshot also says how long each output was then: outputs are
cut back to that length, and replaying writes the rest of them again, byte for byte. The machines that
are followed have files of their own, which a snapshot names and which are never written twice; so has
the model that they all began with.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from baryflow import container
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.runtime.journal import Journal
from baryflow.streams import Batch

KIND = "checkpoint"
#: Seconds after which a folder that is in use is tried again.
_LOOK_AGAIN = 0.1
_NAMES = re.compile(r"(snapshot|journal)-(\d{8})\.(bary|log)")
_OWN = ("model.bary", "options.json", "lock")


@dataclass
class Snapshot:
    """How far a run is.

    Attributes
    ----------
    machines : dict of str → str
        The file of each machine in :attr:`Checkpoint.machines`, by its key.
    cursor : dict or None
        Where the source goes on; None: at its beginning.
    counts : dict of str → int
        Batches, rows and the like.
    outputs : dict of str → int
        Bytes that each output had.
    """

    machines: dict[str, str]
    cursor: dict[str, Any] | None = None
    counts: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)


def is_checkpoint_file(path: Path) -> bool:
    """Return whether a file in the folder of a checkpoint would be one of its own.

    Parameters
    ----------
    path : Path

    Returns
    -------
    bool
    """
    return path.name in _OWN or _NAMES.fullmatch(path.name) is not None


class Checkpoint:
    """Snapshots and journals in a folder.

    Parameters
    ----------
    folder : path
        Made if it is not there. One run at a time may use it.
    patience : float
        Seconds to wait for another run that is using it.

    Raises
    ------
    InvalidInputError
        If another run is using the folder.
    """

    def __init__(self, folder: str | os.PathLike[str], patience: float = 0.0) -> None:
        self.folder = Path(folder)
        if self.folder.is_file():
            raise InvalidInputError(f"a checkpoint is a folder, but {folder} is a file: name another")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.folder / "lock", patience)
        container.sweep(self.folder)
        self._number = 0
        self._taken = 0  # batches of the present journal that the model has learned from
        self._journal: Journal | None = None

    @property
    def is_new(self) -> bool:
        """Whether no run has used the folder before."""
        return not self._numbers("snapshot")

    @property
    def machines(self) -> Path:
        """Folder for the files of machines."""
        return self.folder / "machines"

    def keep_model(self, model: bytes) -> bytes:
        """Return the model that the folder began with; the first one is kept.

        Parameters
        ----------
        model : bytes

        Returns
        -------
        bytes
        """
        path = self.folder / "model.bary"
        if self.is_new or not path.exists():
            container.write_bytes(path, model)
            return model
        return path.read_bytes()

    def keep_options(self, options: Mapping[str, Any]) -> None:
        """Keep the options that shape results, or check that they are those the folder was made with.

        Parameters
        ----------
        options : mapping of str → str, number or None
            By their names on the command line, without hyphens before them; None: not given.

        Raises
        ------
        InvalidInputError
            If one of them is another now.
        FileFormatError
            If those that were kept cannot be read.
        """
        path = self.folder / "options.json"
        if self.is_new or not path.exists():
            container.write_bytes(path, json.dumps(dict(options), indent=1).encode())
            return
        try:
            kept = dict(json.loads(path.read_bytes()))
        except (ValueError, TypeError) as error:
            raise FileFormatError(f"{path} is damaged: use another folder ({error})") from error
        for name, value in options.items():
            if name in kept and kept[name] != value:
                raise InvalidInputError(
                    f"cannot resume {_option(name, value)}: {self.folder} was made "
                    f"{_option(name, kept[name])}; use the same value, or another folder"
                )

    def recover(self, go_back: Callable[[Snapshot], None]) -> Iterator[Batch] | None:
        """Go back to the newest snapshot that can be read, and return the batches that came after it.

        Parameters
        ----------
        go_back : callable
            Takes the standing; raises FileFormatError or FileNotFoundError if something that it names
            cannot be read, and the one before it is tried.

        Returns
        -------
        iterator of Batch or None
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
                snapshot, skip = _read(path)
                go_back(snapshot)
            except (FileFormatError, FileNotFoundError) as error:
                warnings.warn(f"{error}; going on from the one before it", UserWarning, stacklevel=2)
                continue
            self._number = number
            return self._replay(number, skip)
        if numbers:
            raise FileFormatError(
                f"none of the snapshots in {self.folder} can be read: use another folder, or remove "
                "this one to start anew"
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
                    path = self._path("journal", later)
                    path.replace(path.with_suffix(".damaged"))
                return

    def append(self, *batches: Batch) -> None:
        """Put batches on disk, all or none of them.

        Parameters
        ----------
        *batches : Batch
        """
        if self._journal is None:
            self._journal = Journal(self._path("journal", self._number))
        self._journal.append(*batches)

    def save(self, snapshot: Snapshot) -> None:
        """Make a snapshot of how things stand after the last batch, and begin a new journal.

        Parameters
        ----------
        standing : Standing
            Its outputs must be on disk.
        """
        number = self._number + 1 if self._journal is not None else self._number
        container.write_bytes(self._path("snapshot", number), _pack(snapshot, 0))
        if self._journal is not None:
            self._journal.close()
        self._number, self._journal = number, Journal(self._path("journal", number))
        self._tidy()

    def turn(self) -> None:
        """Begin a new journal before there is a snapshot for it: :meth:`save_turned` makes that.

        Batches may be appended in between. Until the snapshot is there, a killed run goes on from the
        one before it and replays both journals.
        """
        journal = Journal(self._path("journal", self._number + 1))
        if self._journal is not None:
            self._journal.close()
        self._number, self._journal = self._number + 1, journal

    def save_turned(self, snapshot: Snapshot) -> None:
        """Make the snapshot for a journal that :meth:`turn` has begun.

        Parameters
        ----------
        standing : Standing
            After all batches of the journals before, and perhaps some of those in this one: whoever
            replays them must know which it has taken.
        """
        container.write_bytes(self._path("snapshot", self._number), _pack(snapshot, 0))
        self._tidy()

    def save_midway(self, snapshot: Snapshot) -> None:
        """Make a snapshot while batches are replayed, so that a kill need not replay them again.

        Parameters
        ----------
        standing : Standing
            After the batch that was yielded last.
        """
        content = _pack(snapshot, self._taken)
        container.write_bytes(self._path("snapshot", self._number), content)

    def tables(self) -> list[dict[str, str]]:
        """Return the files of machines that the snapshots in the folder name.

        Returns
        -------
        list of dict of str → str
        """
        found = []
        for number in self._numbers("snapshot"):
            with contextlib.suppress(FileFormatError):  # a damaged one is of no use to anybody
                found.append(_read(self._path("snapshot", number))[0].machines)
        return found

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


def _option(name: str, value: Any) -> str:
    return f"without --{name}" if value is None else f"with --{name} {value}"


def _pack(snapshot: Snapshot, skip: int) -> bytes:
    return container.to_bytes(KIND, asdict(snapshot) | {"skip": skip}, {})


def _read(path: Path) -> tuple[Snapshot, int]:
    content = container.read(path)
    if content.kind != KIND or "machines" not in content.values:
        raise FileFormatError(
            f"{path} holds no checkpoint of this release: use another folder, or remove it to start anew"
        )
    values = dict(content.values)
    skip = int(values.pop("skip"))
    return Snapshot(**values), skip


def _lock(path: Path, patience: float) -> Any:
    """Hold a file that only one process can hold; it is let go when the process ends, in any way."""
    try:
        import fcntl
    except ImportError:  # not on this platform: nothing to hold
        return path.open("w")
    deadline, file = monotonic() + patience, path.open("w")
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if monotonic() < deadline:
                sleep(_LOOK_AGAIN)
                continue
            file.close()
            raise InvalidInputError(
                f"{path.parent} is in use by another run: wait for its end, or use another folder"
            ) from error
        return file
