"""Which worker has which target, and where in the state folder.

With one worker the folder itself is its checkpoint. With several, worker *i* of *n* has the checkpoint
``workers-n/i`` in it; the file ``workers`` holds *n*. Model and options are kept in the folder itself.
If a service is started with another number of workers, all targets are first brought up to date and then
shared out again: the new folders are complete before the number changes, and the old ones are deleted
afterwards, so a kill at any moment loses nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from baryflow import container
from baryflow.exceptions import FileFormatError
from baryflow.runtime import Checkpoint, SessionConfig, Snapshot
from baryflow.service.target_store import TargetStore

_log = logging.getLogger("baryflow.service")


def assign(name: str, n: int) -> int:
    """Return the number of the worker, from 0, that has a target."""
    return zlib.crc32(name.encode()) % n


def folders(folder: Path, n: int) -> list[Path]:
    """Return the folder of each worker."""
    return [folder] if n == 1 else [folder / f"workers-{n}" / str(number) for number in range(n)]


def redistribute(
    checkpoint: Checkpoint, config: SessionConfig, n: int, in_memory: int, patience: float
) -> None:
    """Share the targets of a state folder out among `n` workers, unless they are already.

    Parameters
    ----------
    checkpoint : Checkpoint
        Of the folder itself.
    config : SessionConfig
    n : int
    in_memory : int
        Targets in memory, at most.
    patience : float
        Seconds to wait for workers of a service that was killed to end.

    Raises
    ------
    BaryflowError
        If a target cannot be read.
    """
    folder = checkpoint.folder
    before = _read_number(folder)
    _delete_others(folder, before)
    if before == n:
        return
    found: dict[str, tuple[Path, Any]] = {}
    alarms: list[Any] = []
    for one in folders(folder, before):
        with _opened(checkpoint, one, patience) as opened:
            store = TargetStore(config, opened, in_memory, folder / "quarantine.ndjson")
            store.recover()
            snapshot = store.snapshot()
            alarms += snapshot.alarms
            for name, file in snapshot.targets.items():
                found[name] = opened.targets / file, snapshot.metadata[name]
    if found:
        _log.info("sharing %d targets out among %d workers", len(found), n)
    for number, one in enumerate(folders(folder, n)):
        mine = {name: entry for name, entry in found.items() if assign(name, n) == number}
        with _opened(checkpoint, one) as opened:
            _fill(opened, mine, [one for one in alarms if assign(one[0], n) == number])
    if n > 1:
        container.sync(folder / f"workers-{n}")
        container.sync(folder)
    container.write_bytes(folder / "workers", str(n).encode())
    _delete_others(folder, n)


@contextlib.contextmanager
def _opened(checkpoint: Checkpoint, folder: Path, patience: float = 0.0) -> Iterator[Checkpoint]:
    """Yield the checkpoint of a worker; it may be that of the service itself."""
    if folder == checkpoint.folder:
        yield checkpoint
        return
    with contextlib.closing(Checkpoint(folder, patience)) as opened:
        yield opened


def _fill(checkpoint: Checkpoint, targets: dict[str, tuple[Path, Any]], alarms: list[Any]) -> None:
    """Save a first snapshot of targets whose files are elsewhere, and of alarms that may not be sent."""
    checkpoint.targets.mkdir(exist_ok=True)
    files = {}
    for serial, (name, (path, _)) in enumerate(sorted(targets.items()), 1):
        files[name] = f"{serial:012d}.bary"
        _link(path, checkpoint.targets / files[name])
    container.sync(checkpoint.targets)
    summaries = {name: summary for name, (_, summary) in targets.items()}
    checkpoint.save(Snapshot(TargetStore.owner, files, metadata=summaries, alarms=alarms))


def _link(path: Path, new: Path) -> None:
    """Give a file on disk a second name, or copy it where that is impossible."""
    try:
        os.link(path, new)
    except OSError:
        shutil.copyfile(path, new)
        container.sync(new)


def _read_number(folder: Path) -> int:
    """Return the number of workers that a folder was made with."""
    path = folder / "workers"
    if not path.exists():
        return 1
    text = path.read_text()
    if not text.isdecimal() or not int(text):
        raise FileFormatError(f"{path} is damaged: it must hold the number of workers")
    return int(text)


def _delete_others(folder: Path, n: int) -> None:
    """Delete what belongs to other numbers of workers."""
    kept = f"workers-{n}"
    for path in folder.glob("workers-*"):
        if path.name != kept:
            shutil.rmtree(path)
    if n > 1:
        for pattern in ("snapshot-*.bary", "journal-*.log"):
            for path in folder.glob(pattern):
                path.unlink()
        shutil.rmtree(folder / "targets", ignore_errors=True)
