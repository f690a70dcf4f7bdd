"""Small files on a disk or in an object store, each of them there completely or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from baryflow import codec, container
from baryflow.exceptions import BaryflowError, FileFormatError, InvalidInputError, UnreachableError

#: How often a file is begun in a folder that somebody removes.
_TRIES = 4


@dataclass(frozen=True)
class Store:
    """A folder under an fsspec URL.

    Nothing in it is ever changed: a file is written once, or again with the same bytes by somebody who
    does the same work. So workers need not agree on who does what.

    Attributes
    ----------
    url : str
        A folder: a path, or s3://bucket/folder and the like.
    options : dict
        For the file system: credentials, endpoints.
    """

    url: str
    options: dict[str, Any] = field(default_factory=dict, repr=False)  # secrets are not for logs

    def __truediv__(self, name: str) -> Store:
        """Return a folder in it."""
        return Store(f"{self.url.rstrip('/')}/{name}", self.options)

    def read(self, name: str) -> bytes | None:
        """Return a file, or None if there is none of that name.

        Parameters
        ----------
        name : str

        Returns
        -------
        bytes or None
        """
        system, folder = self._open()
        try:
            with told_if_refused(self.url):
                return bytes(system.cat_file(f"{folder}/{name}"))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file; nobody ever sees a part of it.

        Parameters
        ----------
        name : str
        content : bytes
        """
        system, folder = self._open()
        if _is_local(system):
            _write_here(Path(folder) / name, content)
        else:  # object stores show an object once it is complete
            with told_if_refused(self.url):
                system.pipe_file(f"{folder}/{name}", content)

    def names(self) -> list[str]:
        """Return the names of the files in it, sorted; folders in it are left out.

        Returns
        -------
        list of str
        """
        system, folder = self._open()
        system.invalidate_cache()
        try:
            with told_if_refused(self.url):
                found = system.ls(folder, detail=True)
        except FileNotFoundError:
            return []
        files = (entry["name"].rsplit("/", 1)[-1] for entry in found if entry["type"] == "file")
        return sorted(name for name in files if name and not name.startswith("."))

    def is_empty(self) -> bool:
        """Tell whether there is nothing in it, or no such folder.

        Returns
        -------
        bool
        """
        system, folder = self._open()
        system.invalidate_cache()
        try:
            return not system.ls(folder, detail=False)
        except FileNotFoundError:
            return True

    def drop(self, name: str) -> None:
        """Remove a file, if it is there.

        Parameters
        ----------
        name : str
        """
        system, folder = self._open()
        with contextlib.suppress(FileNotFoundError):
            system.rm_file(f"{folder}/{name}")

    def sweep(self) -> None:
        """Remove what writers who were killed have left; in object stores they leave nothing."""
        system, folder = self._open()
        if _is_local(system):
            container.sweep(folder)

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        system, folder = self._open()
        system.invalidate_cache()
        if system.exists(folder):
            system.rm(folder, recursive=True)

    def load(self, kind: type[Any], name: str) -> Any:
        """Return what :meth:`keep` has written, or None if it is not there or damaged.

        Parameters
        ----------
        kind : type
            Of the dataclass.
        name : str

        Returns
        -------
        object of that kind, or None
        """
        content = self.read(name)
        if content is None:
            return None
        try:
            return codec.open_content(kind, container.from_bytes(content, name=name), kind.__name__)
        except FileFormatError:  # cut off by a disk that was full, say: the work is done again
            return None

    def keep(self, value: Any, name: str) -> None:
        """Write a dataclass, without pickle.

        Parameters
        ----------
        value : dataclass
        name : str
        """
        self.write(name, container.to_bytes(type(value).__name__, *codec.encode(value)))

    def _open(self) -> tuple[Any, str]:
        return open_system(self.url, self.options)


def place(where: str | Path, options: dict[str, Any] | None = None) -> Store:
    """Return a folder so that it means the same to all processes, wherever they were started.

    Parameters
    ----------
    where : str or path
    options : dict, optional
        For file systems other than this machine's.

    Returns
    -------
    Store
    """
    url = str(where)
    if "://" not in url:
        return Store(str(Path(url).resolve()))
    return Store(url.rstrip("/"), options or {})


def open_system(url: str, options: dict[str, Any]) -> tuple[Any, str]:
    """Return the file system of a URL, and the path on it.

    Parameters
    ----------
    url : str
    options : dict
        For the file system.

    Returns
    -------
    fsspec.AbstractFileSystem, str

    Raises
    ------
    InvalidInputError
        If there is no such file system, or what it needs is not installed.
    """
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        raise InvalidInputError(f"cannot open {url}: {error}") from error
    return system, path.rstrip("/")


@contextlib.contextmanager
def told_if_refused(url: str) -> Iterator[None]:
    """Say in words what a file system has against us: each has exceptions of its own.

    Parameters
    ----------
    url : str

    Raises
    ------
    UnreachableError
        If it was something else than an OSError, which says enough.
    """
    try:
        yield
    except (OSError, BaryflowError):
        raise
    except Exception as error:
        raise UnreachableError(f"cannot get at {url}: {error}") from error


def _write_here(path: Path, content: bytes) -> None:
    for tries in range(_TRIES, 0, -1):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            container.write_bytes(path, content)
        except FileNotFoundError:  # somebody who was done with the same work has removed the folder
            if tries == 1:
                raise
        else:
            return


def _is_local(system: Any) -> bool:
    protocol = system.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)
