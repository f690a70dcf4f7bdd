"""Machines by key: those that were heard of lately are in memory, all others on disk."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from baryflow import codec, container
from baryflow.runtime.session import Session, SessionConfig, SessionState

KIND = "followed_target"
#: Bytes that machines may take in memory together, unless their number is given.
BUDGET = 512 << 20
#: In memory a machine takes about so many times what its file does (2.6 times with 6 classes and 12
#: columns, 3 times with 29 and 128); before the first file is written it is taken to be this large.
_IN_MEMORY, _GUESS = 3, 512 << 10


@dataclass(frozen=True, eq=False)
class _Kept:
    """What is in the file of a machine."""

    key: str
    state: SessionState


class SessionStore:
    """Machines that are followed, each by its own copy of one model.

    A machine's file is never written twice: a changed one gets a new file, so that whoever remembers
    the table of files (:meth:`save`) can go back to it.

    Parameters
    ----------
    recipe : Recipe
        How machines are followed.
    folder : path, optional
        Where machines are kept that are not in memory; without it a temporary one, if it comes to that.
    most : int, optional
        Machines in memory at most; without it as many as fit into half a gigabyte.
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
        self._here: OrderedDict[str, Session] = OrderedDict()
        self._changed: set[str] = set()
        self._files: dict[str, str] = {}
        self._unsynced: set[Path] = set()
        self._promised: set[str] = set()  # files in tables that somebody may go back to
        self._serial = 0

    def __len__(self) -> int:
        return len(self._files.keys() | self._here.keys())

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._files.keys() | self._here.keys()))

    def __getitem__(self, key: str) -> Session:
        """Return a machine, which may be changed then; one that was never heard of begins."""
        found = self.look(key)
        self._changed.add(key)
        return found

    def look(self, key: str) -> Session:
        """Return a machine that will not be changed.

        Parameters
        ----------
        key : str

        Returns
        -------
        Followed

        Raises
        ------
        OSError
            If another one has to be written out for it and cannot be.
        """
        self.make_room(key)
        return self._load(key)

    def hold(self, key: str) -> Session:
        """Return a machine to be changed, even if no other can be written out for it.

        For a batch that is in the journal already: there is no way back. Call :meth:`make_room` before a
        batch goes to the journal, so that no more machines than batches on the way exceed the limit.

        Parameters
        ----------
        key : str

        Returns
        -------
        Followed
        """
        with contextlib.suppress(OSError):
            self.make_room(key)
        self._changed.add(key)
        return self._load(key)

    def make_room(self, key: str) -> None:
        """Write machines out until there is room in memory for this one.

        Parameters
        ----------
        key : str

        Raises
        ------
        OSError
            If one cannot be written; it stays in memory.
        """
        if key in self._here:
            self._here.move_to_end(key)
        while len(self._here.keys() | {key}) > self.most:
            self._write_out(next(iter(self._here)))

    def _load(self, key: str) -> Session:
        if key not in self._here:
            self._here[key] = self._read(key) if key in self._files else self.config.begin()
        return self._here[key]

    @property
    def most(self) -> int:
        """Machines in memory at most."""
        if self._most is not None:
            return max(1, self._most)
        return max(1, BUDGET // (_IN_MEMORY * (self._largest or _GUESS)))

    @property
    def n_in_memory(self) -> int:
        """Machines in memory."""
        return len(self._here)

    def has_in_memory(self, key: str) -> bool:
        """Tell whether a machine is in memory.

        Parameters
        ----------
        key : str

        Returns
        -------
        bool
        """
        return key in self._here

    @property
    def changed(self) -> list[str]:
        """Keys of machines of which the files do not tell everything."""
        return sorted(self._changed)

    def forget(self, key: str) -> None:
        """Drop a machine; heard of again, it begins anew.

        Parameters
        ----------
        key : str
        """
        self._here.pop(key, None)
        self._changed.discard(key)
        if (file := self._files.pop(key, None)) is not None:
            self._remove(file)

    # -- files -----------------------------------------------------------------------------------

    def save(self) -> dict[str, str]:
        """Put every machine on disk.

        Returns
        -------
        dict of str → str
            The file of each; they stay as they are until :meth:`tidy`.
        """
        for key in self.changed:
            self._write(key)
        table, paths = self.hand_over()
        sync(paths)
        self.mark_synced(paths)
        return table

    def write(self, key: str) -> None:
        """Write one machine to a file, if it has changed.

        Parameters
        ----------
        key : str
        """
        if key in self._changed:
            self._write(key)

    def hand_over(self) -> tuple[dict[str, str], list[Path]]:
        """Return the table of files as they are, and what must be brought to the disk before it counts.

        :meth:`save` in steps, for those who cannot wait: write machines one by one, hand over,
        :func:`sync` while machines go on, and mark what is synced. Machines that have changed stand in
        the table as they were.

        Returns
        -------
        files : dict of str → str
            They stay as they are until :meth:`tidy`.
        paths : list of Path
        """
        paths = sorted(self._unsynced)
        self._promised.update(self._files.values())
        if self._folder is not None and self._folder.is_dir():
            paths.append(self._folder)
        return dict(self._files), paths

    def mark_synced(self, paths: Iterable[Path]) -> None:
        """Take note that files are on the disk.

        Parameters
        ----------
        paths : iterable of Path
            As handed over.
        """
        self._unsynced.difference_update(paths)

    def resume(self, files: dict[str, str]) -> None:
        """Go on from a table that :meth:`save` gave.

        Parameters
        ----------
        files : dict of str → str

        Raises
        ------
        FileFormatError
            If one of them is damaged.
        FileNotFoundError
            If one of them is gone.
        """
        for name in files.values():
            container.read(self._path(name))  # checks all of it
        self._here.clear()
        self._changed.clear()
        self._files = dict(files)
        present = self._present()
        self._promised = {path.name for path in present}  # by whom is not known until `tidy`
        self._serial = max((int(path.stem) for path in present), default=0)

    def tidy(self, tables: Iterable[dict[str, str]]) -> None:
        """Remove files that are in none of some tables, and that no machine needs.

        Parameters
        ----------
        tables : iterable of dict
        """
        self._promised = set().union(*(table.values() for table in tables))
        needed = self._promised.union(self._files.values())
        for path in self._present():
            if path.name not in needed:
                path.unlink(missing_ok=True)
                self._unsynced.discard(path)

    def close(self) -> None:
        """Remove what was written for want of memory only."""
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

    def _write_out(self, key: str) -> None:
        if key in self._changed:
            self._write(key)
        del self._here[key]

    def _write(self, key: str) -> None:
        self._serial += 1
        path = self._path(f"{self._serial:012d}.bary")
        path.parent.mkdir(exist_ok=True)
        content = container.to_bytes(KIND, *codec.encode(_Kept(key, self._here[key].state())))
        try:
            path.write_bytes(content)  # not for sure on the disk: nobody counts on it until `save`
        except OSError:
            path.unlink(missing_ok=True)
            raise
        before, self._largest = self._files.get(key), max(self._largest, len(content))
        self._files[key] = path.name
        self._unsynced.add(path)
        self._changed.discard(key)
        if before is not None:
            self._remove(before)

    def _remove(self, file: str) -> None:
        """Remove a file that is of no use any more, unless a table names it."""
        if file not in self._promised:
            with contextlib.suppress(OSError):  # `tidy` tries again
                self._path(file).unlink(missing_ok=True)
            self._unsynced.discard(self._path(file))

    def _read(self, key: str) -> Session:
        content = container.read(self._path(self._files[key]))
        return self.config.resume(codec.open_content(_Kept, content, KIND).state)


def sync(paths: Iterable[Path]) -> None:
    """Bring files and folders to the disk.

    Parameters
    ----------
    paths : iterable of Path
    """
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
