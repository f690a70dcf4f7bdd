"""Who is in files that have come: counted where the files are, merged in a tree."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from baryflow.distributed.cluster import Attendance, require
from baryflow.distributed.fleet.manifest import (
    Arrival,
    Look,
    Merged,
    count,
    count_files,
    merge,
    named_by_folder,
    numbered,
)
from baryflow.distributed.fleet.worker import JobContext
from baryflow.distributed.parquet import Folder, Piece, natural
from baryflow.exceptions import FileFormatError, InvalidInputError, UnreachableError

#: Parts that one task merges.
_FAN_IN = 16
#: Seconds between two looks at how far it is.
_EVERY = 0.1

Progress = Callable[[int, int, str], None]


def list_arrivals(client: Any, context: JobContext, folder: Folder, progress: Progress) -> list[Arrival]:
    """Return all arrivals of a fleet; files that no earlier call has seen are a new one.

    Parameters
    ----------
    client : distributed.Client
    errand : Errand
    folder : Folder
        As it is now.
    progress : callable
        Told how many rows are counted, of how many, and what is done.

    Returns
    -------
    list of Arrival

    Raises
    ------
    InvalidInputError
        If a file has changed since it was counted.
    FileFormatError
        If what was counted before is damaged.
    UnreachableError
        If workers die again and again.

    Warns
    -----
    UserWarning
        If files were written again, with as many rows as before.
    """
    known: list[Arrival] = []
    while True:
        name = f"arrivals/{numbered(len(known))}.bary"
        found = context.state.load(Arrival, name)
        if found is None:
            if context.state.read(name) is not None:
                raise FileFormatError(f"{context.state.url}/{name} is damaged: take another copy of it")
            break
        known.append(found)
    before = {path: rows for arrival in known for path, rows in arrival.files.items()}
    new = [piece for piece in folder.pieces if piece.path not in before]
    now = count_files(folder.pieces)
    for path, rows in before.items():
        if now.get(path, rows) != rows:  # those that are done may be removed
            raise InvalidInputError(
                f"{path} had {rows} rows when it was counted, and has {now[path]}: files must stay as "
                "they are; write new rows to new files"
            )
    if words := _describe_rewritten(known, folder):
        # No error: folders that were copied or restored look the same, and are as good.
        warnings.warn(words, UserWarning, stacklevel=4)  # who called follow
    if new:
        _sweep(context, len(known))
        arrival = _count(client, context, folder, new, len(known), progress)
        context.state.keep(arrival, name)
        known.append(arrival)
    if known:
        _drop_strangers(context, known[-1], len(known) - 1)
    return known


def _describe_rewritten(known: Sequence[Arrival], folder: Folder) -> str:
    """Say which files are not those that were counted, by what the file system tells; "" if none."""
    before = {path: mark for arrival in known for path, mark in arrival.marks.items()}
    again = [path for path, now in folder.marks.items() if now and before.get(path, "") not in ("", now)]
    if not again:
        return ""
    files = f"{again[0]} was written again after its rows were counted"
    if len(again) > 1:
        files = f"{len(again):,} files were written again after they were counted, first {again[0]}"
    return (
        f"{files}: rows that were followed already are not followed again. If there are others now, "
        "write them to new files; if it is a copy of what was there, all is well"
    )


def _sweep(context: JobContext, number: int) -> None:
    """Remove what a call that was killed while it counted has left."""
    state, nobody = context.state, context.output / "_quarantine" / "nobody"
    for store in (state, state / "arrivals", state / "index" / numbered(number), nobody):
        store.sweep()


def _drop_strangers(context: JobContext, arrival: Arrival, number: int) -> None:
    """Remove rows of nobody that are of no piece of the arrival, or they would be there twice.

    Files may have been written again, or be cut otherwise, since a call that was killed has looked.
    """
    nobody, start = context.output / "_quarantine" / "nobody", f"{numbered(number)}-"
    if names := [name for name in nobody.names() if name.startswith(start)]:
        mine = {arrival.identify(piece) for piece in arrival.pieces}
        for name in names:
            if name.removeprefix(start).split("-")[0] not in mine:
                nobody.drop(name)


def _count(
    client: Any,
    context: JobContext,
    folder: Folder,
    pieces: Sequence[Piece],
    number: int,
    progress: Progress,
) -> Arrival:
    plan, bare = context.plan, Folder(folder.url, folder.options, [], {})
    index = context.state / "index" / numbered(number)
    columns = [name for name in plan.columns if name in folder.types]
    merged: list[Merged] = []
    looks: list[Look] = []
    rows_before: dict[str, int] = {}
    for place, piece in enumerate(pieces):
        if named_by_folder(piece, plan.key):
            merged.append(Merged({piece.folders[plan.key]: (place, piece.n_rows)}))
        else:
            before = rows_before.get(piece.path, 0)
            mark = folder.marks.get(piece.path, "")
            looks.append(
                Look(bare, piece, mark, place, before, plan.key, columns, index, context.output)
            )
        rows_before[piece.path] = rows_before.get(piece.path, 0) + piece.n_rows
    if looks:
        merged.append(_gather(client, looks, progress))
    together = merge(merged)
    keys = sorted(together.found, key=natural)
    return Arrival(
        list(pieces),
        keys,
        np.array([together.found[key][1] for key in keys], dtype=np.int64),
        np.array([together.found[key][0] for key in keys], dtype=np.int64),
        together.nameless,
        {path: folder.marks[path] for path in count_files(pieces) if path in folder.marks},
    )


def _gather(client: Any, looks: Sequence[Look], progress: Progress) -> Merged:
    """Count in tasks, a piece each. Only keys and their numbers come here, and of each key once."""
    distributed = require()
    counts = client.map(count, looks, pure=False)
    level = counts
    while len(level) > 1:
        starts = range(0, len(level), _FAN_IN)
        level = [client.submit(merge, level[i : i + _FAN_IN], pure=False) for i in starts]
    total = sum(look.piece.n_rows for look in looks)
    workers = Attendance(client)
    try:
        while not level[0].done():
            done = zip(looks, counts, strict=True)
            progress(sum(look.piece.n_rows for look, one in done if one.done()), total, "counting rows")
            workers.check()
            time.sleep(_EVERY)
        found: Merged = level[0].result()
    except distributed.KilledWorker as error:
        raise UnreachableError(
            f"workers died while they counted rows ({error}): give them more memory, or call it again "
            "to go on"
        ) from error
    finally:
        with contextlib.suppress(Exception):  # what went wrong before matters more
            client.cancel(counts)
    return found
