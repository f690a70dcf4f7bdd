"""Which worker has which target, and in which store of the checkpoint folder.

With one worker the store is ``store.db``. With several, worker *i* of *n* has ``store-i-of-n.db``; the
file ``workers`` holds *n*. The first store has the model and the options. If a service is started with
another number of workers, all targets are first brought up to date and then shared out again: the new
stores are complete before the number changes, and the old ones are deleted afterwards, so a kill at any
moment loses nothing.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from pathlib import Path

from baryflow import container
from baryflow.exceptions import FileFormatError
from baryflow.runtime import SessionConfig, Store
from baryflow.runtime.loop import resume_config
from baryflow.runtime.store import is_checkpoint_file
from baryflow.service.worker_targets import WorkerTargets, assign, quarantine_name, store_names

_log = logging.getLogger("baryflow.service")
#: Seconds to wait for workers of a service that was killed to end, before and after the first store
#: could be opened.
FIRST_PATIENCE, PATIENCE = 10.0, 60.0
#: Targets that are copied in one transaction.
_COPIED = 64


def prepare(folder: Path, config: SessionConfig, n: int, in_memory: int) -> SessionConfig:
    """Prepare the stores of a folder for `n` workers; create it if it does not exist.

    Return the configuration with the model that the checkpoint was made with. Raise BaryflowError if
    another process uses the folder, it was made with other options, or it is damaged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    before = _read_number(folder)
    for name in store_names(before) if before > 1 else ():
        if not (folder / name).exists():
            raise FileFormatError(f"cannot resume: {folder / name} does not exist; restore the folder")
    patience = FIRST_PATIENCE if before > 1 else 0.0
    with contextlib.closing(Store(folder, patience, store_names(before)[0])) as store:
        config, warning = resume_config(config, store)
        if warning:
            _log.warning("%s", warning)
        options = {"batch-size": config.batch_size, "drift": config.drift}
        store.keep_options(options)
    _delete_others(folder, before)
    if before != n:
        _redistribute(folder, config, before, n, in_memory)
    return config


def _redistribute(folder: Path, config: SessionConfig, before: int, n: int, in_memory: int) -> None:
    """Share the targets of `before` workers out among `n`."""
    with contextlib.ExitStack() as stack:
        stores = [_open(stack, folder, name) for name in store_names(before)]
        for number, store in enumerate(stores):
            quarantine = folder / quarantine_name(number, before)
            WorkerTargets(config, store, in_memory, quarantine).recover()
        if n_targets := sum(len(store.sessions) for store in stores):
            _log.info("sharing %d targets out among %d workers", n_targets, n)
        seq = max(store.seq for store in stores)
        for number, name in enumerate(store_names(n)):
            with contextlib.ExitStack() as inner:
                new = _open(inner, folder, name)
                with new.transaction():
                    new.seq = seq  # numbers and generations continue
                    new.set("owner", WorkerTargets.owner)
                    new.set("state", {})
                    for one in ("model", "options") if number == 0 else ():
                        new.set_bytes(one, stores[0].get_bytes(one) or b"")
                for store in stores:
                    _copy(store, new, number, n)
    container.sync(folder)
    container.write_bytes(folder / "workers", str(n).encode())
    _delete_others(folder, n)


def _open(stack: contextlib.ExitStack, folder: Path, name: str) -> Store:
    return stack.enter_context(contextlib.closing(Store(folder, PATIENCE, name)))


def _copy(store: Store, new: Store, number: int, n: int) -> None:
    """Copy the targets of a worker, and alarms that are not sent yet."""
    mine = [target for target in store.sessions if assign(target, n) == number]
    for start in range(0, len(mine), _COPIED):
        with new.transaction(synced=False):
            for target in mine[start : start + _COPIED]:
                row = store.sessions[target]
                body = store.read_session(target)
                new.write_session(target, row.generation, row.applied, row.summary, body)
    with new.transaction():
        for message in store.messages.values():
            if assign(message.target, n) == number and not message.finished:
                new.put_message(replace(message, id=0))


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
    """Delete stores of other numbers of workers."""
    kept = {Path(name).stem for name in store_names(n)}
    for path in folder.glob("store*.*"):
        if path.name.partition(".")[0] not in kept and is_checkpoint_file(path):
            path.unlink()
