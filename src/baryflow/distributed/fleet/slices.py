"""From a piece of a file to the rows of each target in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from baryflow.distributed.fleet.manifest import split_keys
from baryflow.distributed.fleet.worker import Plan, Slice, Target
from baryflow.distributed.parquet import Folder, Piece
from baryflow.runtime import Rows
from baryflow.streams.blocks import reject_invalid
from baryflow.streams.columnar import arrow_values, as_block
from baryflow.validation import Integers


def slices(
    folder: Folder, piece: Piece, plan: Plan, targets: dict[str, Target], seen: dict[str, int]
) -> Iterator[tuple[Target, Slice]]:
    """Yield the rows of some targets, in order, without those that they have done already.

    Parameters
    ----------
    folder : Folder
    piece : Piece
    plan : Plan
    targets : dict of str → Target
        Those that are wanted, by key.
    seen : dict of str → int
        Rows of each target in front of this piece; it is counted on.

    Yields
    ------
    target, slice : Target and Slice
    """
    texts = [] if plan.time is None else [plan.time]
    for batch in folder.batches(piece, [plan.key, *texts, *plan.columns]):
        picked: list[tuple[Target, int, Integers]] = []
        for key, which in _find(batch, piece, plan.key, targets):
            start = seen[key]
            seen[key] += len(which)
            skipped = max(0, min(targets[key].read - start, len(which)))
            if skipped < len(which):
                picked.append((targets[key], start + skipped, which[skipped:]))
        if picked:
            # Cells are converted for all targets at once, and only those of rows that are wanted.
            rows = batch.take(np.concatenate([which for _, _, which in picked]))
            yield from _cut(rows, piece, plan, texts, picked)


def _find(
    batch: Any, piece: Piece, key: str, targets: dict[str, Target]
) -> Iterator[tuple[str, Integers]]:
    """Yield the keys that are wanted, and the rows of each."""
    if key in piece.folders:
        yield piece.folders[key], np.arange(batch.num_rows)
        return
    names, codes = split_keys(batch.column(key))
    wanted = {name: place for place, name in enumerate(dict.fromkeys(names)) if name in targets}
    # Two ways to write a key, with blanks around it say, are one target.
    places = np.array([wanted.get(name, -1) for name in names])[codes]
    order = np.argsort(places, kind="stable")
    ends = np.searchsorted(places[order], list(wanted.values()), side="right")
    starts = np.searchsorted(places[order], list(wanted.values()), side="left")
    for name, start, end in zip(wanted, starts.tolist(), ends.tolist(), strict=True):
        if start < end:
            yield name, order[start:end]


def _cut(
    rows: Any, piece: Piece, plan: Plan, texts: list[str], picked: list[tuple[Target, int, Integers]]
) -> Iterator[tuple[Target, Slice]]:
    named = {name: [piece.folders[name]] * rows.num_rows for name in texts if name in piece.folders}
    values = {name: arrow_values(rows.column(name)) for name in rows.schema.names} | named
    block = as_block(values, plan.columns, texts, np.arange(rows.num_rows), {})
    good, rejected = reject_invalid(block, plan.columns)
    times = block.texts[0] if texts else [""] * rows.num_rows
    start, first_bad = 0, 0
    for target, before, which in picked:
        stop = start + len(which)
        mine = good[np.searchsorted(good, start) : np.searchsorted(good, stop)]
        bad = []
        while first_bad < len(rejected) and rejected[first_bad].position < stop:
            row = rejected[first_bad]
            bad.append(replace(row, position=row.position - start + before + 1))
            first_bad += 1
        yield (
            target,
            Slice(
                Rows(
                    np.ascontiguousarray(block.numbers[mine]),
                    mine - start + before + 1,
                    [times[row] for row in mine],
                    [""] * len(mine),
                ),
                bad,
                before,
                before + len(which),
            ),
        )
        start = stop
