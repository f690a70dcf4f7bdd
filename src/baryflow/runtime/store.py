"""Sessions by key: those used most recently are in memory, the others on disk."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from baryflow import codec, container
from baryflow.runtime.checkpoint import Snapshot
from baryflow.runtime.session import Session, SessionConfig, SessionState

KIND = "target_session"
#: Bytes that sessions may take in memory together, unless their number is given.
BUDGET = 512 << 20
#: A session takes about this many times the size of its file in memory (2.6 with 6 classes and 12
#: columns, 3 with 29 and 128), and is taken to be this large before the first file is written.
_IN_MEMORY, _GUESS = 3, 512 << 10


@dataclass(frozen=True, eq=False)
class _Saved:
    """The content of a session's file."""

    key: str
    state: SessionState


class SessionStore:
    """Sessions of targets, all with the same configuration.

    The file of a session is never overwritten: a changed session gets a new file, so that a process can
    return to an older table of files (:meth:`save`).

    Parameters
    ----------
    config : SessionConfig
    folder : path, optional
        Where sessions are kept that are not in memory; without it a temporary folder, if one is needed.
    most : int, optional
        Sessions in memory at most; without it as many as fit into half a gigabyte.
    """

    def __init__(
        self,
        config: SessionConfig,
        folder: str | os.PathLike[str] | None = None,
        most: int | None = None,
    ) -> None:
        self.config, self._most = config, most
        self._largest = 0  # bytes of the largest file
        self._folder = None if folder is None else Path(folder)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._loaded: OrderedDict[str, Session] = OrderedDict()
        self._changed: set[str] = set()  # differ from their files
        self._files: dict[str, str] = {}
        self._unsynced: set[Path] = set()
        self._needed: set[str] = set()  # files that snapshots name
        self._serial = 0

    def __len__(self) -> int:
        return len(self._files.keys() | self._loaded.keys())

    def __contains__(self, key: object) -> bool:
        return key in self._files or key in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._files.keys() | self._loaded.keys()))

    def __getitem__(self, key: str) -> Session:
        """Return a session in order to change it; an unknown target gets a new one."""
        found = self.look(key)
        self._changed.add(key)
        return found

    def look(self, key: str) -> Session:
        """Return a session in order to read it.

        Parameters
        ----------
        key : str

        Returns
        -------
        Session

        Raises
        ------
        OSError
            If another session has to be written out to make room, and cannot be.
        """
        self.make_room(key)
        return self._load(key)

    def hold(self, key: str) -> Session:
        """Return a session in order to change it, even if there is no room and none can be made.

        For a batch that is in the journal already. Call :meth:`make_room` before a batch enters the
        journal, so that only batches in flight can exceed the limit.
        """
        with contextlib.suppress(OSError):
            self.make_room(key)
        self._changed.add(key)
        return self._load(key)

    def make_room(self, key: str) -> None:
        """Write sessions out until there is room in memory for this one.

        A session that cannot be written stays in memory, and OSError is raised.
        """
        if key in self._loaded:
            self._loaded.move_to_end(key)
        while len(self._loaded.keys() | {key}) > self.most:
            oldest = next(iter(self._loaded))
            self.write(oldest)
            del self._loaded[oldest]

    def _load(self, key: str) -> Session:
        if key not in self._loaded:
            self._loaded[key] = self._read(key) if key in self._files else self.config.begin()
        return self._loaded[key]

    @property
    def most(self) -> int:
        """Sessions in memory at most."""
        if self._most is not None:
            return max(1, self._most)
        return max(1, BUDGET // (_IN_MEMORY * (self._largest or _GUESS)))

    @property
    def n_in_memory(self) -> int:
        """Sessions in memory."""
        return len(self._loaded)

    @property
    def in_memory(self) -> Iterable[str]:
        """Keys of the sessions in memory."""
        return self._loaded.keys()

    @property
    def changed(self) -> list[str]:
        """Keys of sessions that differ from their files."""
        return sorted(self._changed)

    def forget(self, key: str) -> None:
        """Drop a session; if the target sends rows again, it gets a new one."""
        self._loaded.pop(key, None)
        self._changed.discard(key)
        if (file := self._files.pop(key, None)) is not None:
            self._delete(file)

    # -- files -----------------------------------------------------------------------------------

    def save(self) -> dict[str, str]:
        """Write every changed session, and return the table of files; all of them are on disk."""
        for key in self.changed:
            self.write(key)
        table, paths = self.begin_sync()
        for path in paths:
            container.sync(path)
        self.end_sync(paths)
        return table

    def write(self, key: str) -> None:
        """Write a session to a new file, if it has changed."""
        if key not in self._changed:
            return
        self._serial += 1
        path = self._path(f"{self._serial:012d}.bary")
        path.parent.mkdir(exist_ok=True)
        content = container.to_bytes(KIND, *codec.encode(_Saved(key, self._loaded[key].state())))
        try:
            path.write_bytes(content)  # synced later, before a snapshot names it
        except OSError:
            path.unlink(missing_ok=True)
            raise
        before, self._largest = self._files.get(key), max(self._largest, len(content))
        self._files[key] = path.name
        self._unsynced.add(path)
        self._changed.discard(key)
        if before is not None:
            self._delete(before)

    def begin_sync(self) -> tuple[dict[str, str], list[Path]]:
        """Return the table of files, and the paths that must be synced before it may be used.

        This is :meth:`save` in steps, for callers that cannot wait: write sessions one by one, begin,
        sync the paths in another thread, end. Sessions that have changed since stand in the table with
        their older state. The files are kept until :meth:`discard`.
        """
        paths = sorted(self._unsynced)
        self._needed.update(self._files.values())
        if self._folder is not None and self._folder.is_dir():
            paths.append(self._folder)
        return dict(self._files), paths

    def end_sync(self, paths: Iterable[Path]) -> None:
        """Note that the paths of :meth:`begin_sync` are on disk."""
        self._unsynced.difference_update(paths)

    def resume(self, files: dict[str, str]) -> None:
        """Return to a table of files.

        Parameters
        ----------
        files : dict of str → str

        Raises
        ------
        FileFormatError
            If a file is damaged.
        FileNotFoundError
            If a file is missing.
        """
        for name in files.values():
            container.read(self._path(name))  # checks all of it
        self._loaded.clear()
        self._changed.clear()
        self._files = dict(files)
        present = self._present()
        self._needed = {path.name for path in present}  # unknown until `discard`
        self._serial = max((int(path.stem) for path in present), default=0)

    def discard(self, kept: Iterable[Snapshot]) -> None:
        """Delete files that neither a snapshot nor a session needs."""
        self._needed = set().union(*(snapshot.targets.values() for snapshot in kept))
        needed = self._needed.union(self._files.values())
        for path in self._present():
            if path.name not in needed:
                path.unlink(missing_ok=True)
                self._unsynced.discard(path)

    def close(self) -> None:
        """Delete the temporary folder, if there is one."""
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _present(self) -> list[Path]:
        if self._folder is None or not self._folder.is_dir():
            return []
        return [path for path in self._folder.glob("*.bary") if path.stem.isdecimal()]

    def _path(self, name: str) -> Path:
        if self._folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="baryflow-")
            self._folder = Path(self._temporary.name)
        return self._folder / name

    def _delete(self, file: str) -> None:
        """Delete an old file, unless a snapshot needs it."""
        if file not in self._needed:
            with contextlib.suppress(OSError):  # `discard` tries again
                self._path(file).unlink(missing_ok=True)
            self._unsynced.discard(self._path(file))

    def _read(self, key: str) -> Session:
        content = container.read(self._path(self._files[key]))
        return self.config.resume(codec.open_content(_Saved, content, KIND).state)
