"""Small files on a disk or in an object store, each written atomically."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec

from baryflow import codec, container
from baryflow.exceptions import BaryflowError, FileFormatError, InvalidInputError, UnreachableError


@dataclass(frozen=True)
class Files:
    """A folder, named by a path or an fsspec URL.

    Files never change: a file is written once, or again with the same bytes by a worker that repeats the
    same work. Workers therefore need no locks.
    """

    url: str
    options: dict[str, Any] = field(default_factory=dict, repr=False)  # keep credentials out of logs

    def __truediv__(self, name: str) -> Files:
        """Return a subfolder."""
        return Files(f"{self.url.rstrip('/')}/{name}", self.options)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        system, folder = self._open()
        try:
            with filesystem_errors(self.url):
                return bytes(system.cat_file(f"{folder}/{name}"))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file; readers see all of it or nothing."""
        system, folder = self._open()
        if _is_local(system):
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            container.write_bytes(path, content)
        else:  # object stores publish an object once it is complete
            with filesystem_errors(self.url):
                system.pipe_file(f"{folder}/{name}", content)

    def names(self) -> list[str]:
        """Return the sorted names of the files in the folder, without hidden files and subfolders."""
        files = (one["name"].rsplit("/", 1)[-1] for one in self._list() if one["type"] == "file")
        return sorted(name for name in files if name and not name.startswith("."))

    def is_empty(self) -> bool:
        """Return whether the folder is empty or does not exist."""
        return not self._list()

    def _list(self) -> list[dict[str, Any]]:
        system, folder = self._open()
        system.invalidate_cache()
        try:
            with filesystem_errors(self.url):
                return list(system.ls(folder, detail=True))
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        system, folder = self._open()
        with contextlib.suppress(FileNotFoundError):
            system.rm_file(f"{folder}/{name}")

    def delete_unfinished(self) -> None:
        """Delete temporary files of killed writers. Object stores have none."""
        system, folder = self._open()
        if _is_local(system):
            container.sweep(folder)

    def load(self, kind: type[Any], name: str) -> Any:
        """Return a dataclass written by :meth:`save`, or None if the file is missing or damaged."""
        content = self.read(name)
        if content is None:
            return None
        try:
            return codec.open_content(kind, container.from_bytes(content, name=name), kind.__name__)
        except FileFormatError:  # truncated by a full disk, for example: the work is done again
            return None

    def save(self, value: Any, name: str) -> None:
        """Write a dataclass, without pickle."""
        self.write(name, container.to_bytes(type(value).__name__, *codec.encode(value)))

    def latest(self, kind: type[Any]) -> tuple[int, Any] | None:
        """Return the last whole one of the dataclasses written by :meth:`save_next`, and its number."""
        for name in reversed(self.names()):
            if name.endswith(".bary") and (found := self.load(kind, name)) is not None:
                return int(name.removesuffix(".bary")), found
        return None

    def save_next(self, number: int, value: Any, keep: int) -> None:
        """Write a dataclass under a number, and delete all but the last ones."""
        self.save(value, f"{numbered(number)}.bary")
        if number >= keep:
            self.delete(f"{numbered(number - keep)}.bary")

    def _open(self) -> tuple[Any, str]:
        return open_filesystem(self.url, self.options)


def open_files(folder: str | Path, options: dict[str, Any] | None = None) -> Files:
    """Return the files of a folder; local paths are made absolute, since workers may run elsewhere."""
    url = str(folder)
    if "://" not in url:
        return Files(str(Path(url).resolve()))
    return Files(url.rstrip("/"), options or {})


def open_filesystem(url: str, options: dict[str, Any]) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, and the path on it."""
    try:
        system, path = fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        raise InvalidInputError(f"cannot open {url}: {error}") from error
    return system, path.rstrip("/")


@contextlib.contextmanager
def filesystem_errors(url: str) -> Iterator[None]:
    """Raise UnreachableError for exceptions that file systems define themselves; keep OSError."""
    try:
        yield
    except (OSError, BaryflowError):
        raise
    except Exception as error:
        raise UnreachableError(f"cannot access {url}: {error}") from error


def numbered(number: int) -> str:
    """Return a number as a file name, padded so that names sort like numbers."""
    return f"{number:06d}"


def _is_local(system: Any) -> bool:
    protocol = system.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)
