"""A folder from which a killed process resumes.

It holds numbered snapshots and journals: snapshot *k* is the state before the first batch of journal
*k*, or after the first few batches if it was saved while that journal was replayed. Two snapshots are
kept. If the newer one is damaged, the process resumes from the older one and replays both journals;
only time is lost. A snapshot also holds the length of each output. Outputs are truncated to that
length, and the replay writes the rest again, byte for byte. Sessions of targets have files of their
own, which a snapshot names and which are never overwritten; so has the model with which all sessions
began.
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
#: Seconds between two attempts to lock a folder that is in use.
_RETRY = 0.1
_NAMES = re.compile(r"(snapshot|journal)-(\d{8})\.(bary|log)")
_OWN = ("model.bary", "options.json", "lock", "workers")


@dataclass
class Snapshot:
    """The state of a process after some batch.

    Attributes
    ----------
    owner : {"run", "serve", "forward"}
        The command that made it, and may resume from it.
    targets : dict of str → str
        The file of each target's session in :attr:`Checkpoint.targets`.
    cursor : dict or None
        Where the source resumes; None: at its beginning.
    counts : dict of str → int
        Batches, rows and the like.
    outputs : dict of str → int
        Length of each output in bytes.
    metadata : dict
        What else the owner needs; plain values, as in JSON.
    alarms : list of [str, list of dict]
        Targets, and events of their alarms that may not have been sent.
    """

    owner: str
    targets: dict[str, str] = field(default_factory=dict)
    cursor: dict[str, Any] | None = None
    counts: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    alarms: list[Any] = field(default_factory=list)


def is_checkpoint_file(path: Path) -> bool:
    """Return whether a file in a checkpoint folder would belong to the checkpoint."""
    return path.name in _OWN or _NAMES.fullmatch(path.name) is not None


class Checkpoint:
    """Snapshots and journals in a folder.

    Parameters
    ----------
    folder : path
        Created if it does not exist. Only one process at a time may use it.
    patience : float
        Seconds to wait for another process that is using it.

    Raises
    ------
    InvalidInputError
        If another process is using the folder.
    """

    def __init__(self, folder: str | os.PathLike[str], patience: float = 0.0) -> None:
        self.folder = Path(folder)
        if self.folder.is_file():
            raise InvalidInputError(
                f"a checkpoint is a folder, but {folder} is a file; use another name"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.folder / "lock", patience)
        container.sweep(self.folder)
        self._number = 0
        self._replayed = 0  # batches of the current journal that were replayed
        self._journal: Journal | None = None

    @property
    def is_new(self) -> bool:
        """Whether no process has used the folder before."""
        return not self._numbers("snapshot") and not (self.folder / "workers").exists()

    @property
    def targets(self) -> Path:
        """Folder for the files of targets."""
        return self.folder / "targets"

    def keep_model(self, model: bytes) -> bytes:
        """Return the model that the folder was made with; the first one is kept."""
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
            Names on the command line, without leading hyphens; None: not given.

        Raises
        ------
        InvalidInputError
            If an option differs.
        FileFormatError
            If the kept options cannot be read.
        """
        path = self.folder / "options.json"
        if self.is_new or not path.exists():
            container.write_bytes(path, json.dumps(dict(options), indent=1).encode())
            return
        try:
            kept = dict(json.loads(path.read_bytes()))
        except (ValueError, TypeError) as error:
            raise FileFormatError(f"{path} is damaged; use another folder ({error})") from error
        for name, value in options.items():
            if name in kept and kept[name] != value:
                raise InvalidInputError(
                    f"cannot resume {_option(name, value)}: {self.folder} was made "
                    f"{_option(name, kept[name])}; use the same value, or another folder"
                )

    def recover(self, restore: Callable[[Snapshot], None]) -> Iterator[Batch] | None:
        """Restore the newest readable snapshot, and return the batches that came after it.

        Parameters
        ----------
        restore : callable
            Takes a snapshot; raises FileFormatError or FileNotFoundError if a file that it names cannot
            be read. The older snapshot is tried then.

        Returns
        -------
        iterator of Batch or None
            It must be exhausted before anything is appended. None if the folder is empty.

        Raises
        ------
        FileFormatError
            If there are snapshots and none can be read.
        """
        numbers = sorted(self._numbers("snapshot"), reverse=True)
        for number in numbers:
            try:
                snapshot, skip = _read(self._path("snapshot", number))
                restore(snapshot)
            except (FileFormatError, FileNotFoundError) as error:
                warnings.warn(f"{error}; trying the snapshot before it", UserWarning, stacklevel=2)
                continue
            self._number = number
            return self._replay(number, skip)
        if numbers:
            raise FileFormatError(
                f"cannot resume: no snapshot in {self.folder} can be read; use another folder, or "
                "delete this one to start from the beginning"
            )
        return None

    def _replay(self, first: int, skip: int) -> Iterator[Batch]:
        for number in sorted(n for n in self._numbers("journal") if n >= first):
            if self._journal is not None:
                self._journal.close()
            self._number = number
            self._journal = Journal(self._path("journal", number))
            self._replayed = 0
            for batch in self._journal.replay():
                self._replayed += 1
                if number > first or self._replayed > skip:
                    yield batch
            if self._journal.cut:
                # Later journals follow batches that are lost; the source will deliver these again.
                for later in (n for n in self._numbers("journal") if n > number):
                    path = self._path("journal", later)
                    path.replace(path.with_suffix(".damaged"))
                return

    def append(self, *batches: Batch) -> None:
        """Write batches to the journal, all or none of them; they are on disk when this returns."""
        if self._journal is None:
            self._journal = Journal(self._path("journal", self._number))
        self._journal.append(*batches)

    def save(self, snapshot: Snapshot) -> None:
        """Save the state after the last batch, and begin a new journal. Outputs must be on disk."""
        number = self._number + 1 if self._journal is not None else self._number
        container.write_bytes(self._path("snapshot", number), _pack(snapshot, 0))
        if self._journal is not None:
            self._journal.close()
        self._number, self._journal = number, Journal(self._path("journal", number))
        self._delete_old()

    def rotate(self) -> None:
        """Begin a new journal before its snapshot exists; :meth:`save_rotated` saves that.

        Batches may be appended in between. A process killed before the snapshot is saved resumes from
        the one before it and replays both journals.
        """
        journal = Journal(self._path("journal", self._number + 1))
        if self._journal is not None:
            self._journal.close()
        self._number, self._journal = self._number + 1, journal

    def save_rotated(self, snapshot: Snapshot) -> None:
        """Save the snapshot of a journal begun by :meth:`rotate`.

        It contains all batches of the journals before, and perhaps some of this one: the owner must
        recognise these when they are replayed.
        """
        container.write_bytes(self._path("snapshot", self._number), _pack(snapshot, 0))
        self._delete_old()

    def save_midway(self, snapshot: Snapshot) -> None:
        """Save a snapshot during a replay, so that another kill need not repeat all of it."""
        content = _pack(snapshot, self._replayed)
        container.write_bytes(self._path("snapshot", self._number), content)

    def snapshots(self) -> list[Snapshot]:
        """Return all snapshots in the folder that can be read."""
        found = []
        for number in self._numbers("snapshot"):
            with contextlib.suppress(FileFormatError):
                found.append(_read(self._path("snapshot", number))[0])
        return found

    def _delete_old(self) -> None:
        """Delete everything older than the last two snapshots."""
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
        """Unlock the folder."""
        if self._journal is not None:
            self._journal.close()
        self._lock.close()


def _option(name: str, value: Any) -> str:
    return f"without --{name}" if value is None else f"with --{name} {value}"


def _pack(snapshot: Snapshot, skip: int) -> bytes:
    return container.to_bytes(KIND, asdict(snapshot) | {"skip": skip}, {})


def _read(path: Path) -> tuple[Snapshot, int]:
    content = container.read(path)
    if content.kind != KIND or not {"owner", "targets", "skip"} <= content.values.keys():
        raise FileFormatError(
            f"{path} is not a snapshot of this release; use another folder, or delete this one to start "
            "from the beginning"
        )
    values = dict(content.values)
    skip = int(values.pop("skip"))
    return Snapshot(**values), skip


def _lock(path: Path, patience: float) -> Any:
    """Lock a file until it is closed or the process ends."""
    try:
        import fcntl
    except ImportError:  # not on this platform
        return path.open("w")
    deadline, file = monotonic() + patience, path.open("w")
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if monotonic() < deadline:
                sleep(_RETRY)
                continue
            file.close()
            raise InvalidInputError(
                f"{path.parent} is in use by another process; wait until it ends, or use another folder"
            ) from error
        return file
