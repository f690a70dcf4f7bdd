"""Adapt a model to a target in partitions: two passes over its rows, merged in trees."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from typing import Any

import numpy as np
from dask.delayed import delayed

from baryflow.core.summary import Moments
from baryflow.distributed.fitting.partitions import OUT_OF_RANGE, Parts, Reader, require_parts
from baryflow.distributed.fitting.passes import hash_rows
from baryflow.distributed.prediction import pack, require_columns, unpack
from baryflow.distributed.store import open_store
from baryflow.distributed.tasks import TaskRunner
from baryflow.estimators._follow import join, see_stds, summarise_rows
from baryflow.estimators._progress import Progress
from baryflow.estimators._sensors import Tally, Units, warn
from baryflow.estimators._state import TargetState, begin, clean, count, screen_rows
from baryflow.estimators._threads import one_thread
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats

#: Number of rows from which the reliability of predictions is estimated.
_RELIABILITY_ROWS = 1024


def absorb(
    model: OnlineDaDiL,
    parts: Parts,
    *,
    checkpoint: str | None = None,
    storage_options: dict[str, Any] | None = None,
    client: Any = None,
    progress: Progress | None = None,
) -> OnlineDaDiL:
    """Adapt a fitted model to a target whose rows are in partitions. Rows stay on the workers.

    Columns in other units than the sources' are found in the first rows. A first pass computes the
    moments of the columns, so that all partitions are projected in the same way. A second pass
    summarises every partition in bounded size, like a stream. The summaries are merged in a tree, and a
    worker adapts the model to the result.

    Parameters
    ----------
    model : OnlineDaDiL
        Fitted. Rows of the target that it has seen before count as well.
    parts : Parts
        Rows of the target. Labels are ignored.
    checkpoint : str, optional
        Folder or fsspec URL that the caller and all workers share, to resume after a crash.
    storage_options : dict, optional
        Options of the file system of `checkpoint`.
    client : distributed.Client, optional
        Default: Dask's current client, or else threads of this process.
    progress : callable, optional
        Called as ``progress(done, total, what)``.

    Returns
    -------
    OnlineDaDiL
        An adapted copy. The model itself does not change.

    Raises
    ------
    InvalidInputError
        If columns of the model are missing, or the model forgets (``half_life``): partitions have no
        order in time.
    UnreachableError
        If the scheduler is gone, the cluster has no workers, or a partition repeatedly kills them.
    """
    packed = pack(model)
    require_parts(parts)
    if model.half_life is not None:
        raise InvalidInputError("absorb needs half_life=None: partitions have no order in time")
    reader = parts.reader.features_only(require_columns(model, parts.columns, parts.n_features))
    store = None
    if checkpoint is not None:
        # Stored summaries depend on the model: on its limits and its projection.
        digest = hashlib.sha256(packed).hexdigest()[:16]
        store = open_store(checkpoint, storage_options) / f"target-{parts.identity}-{digest}"
    runner, base = TaskRunner(client, store, progress), delayed(packed)
    head = delayed(_read_head)(reader, list(parts.partitions[:1]), base)
    merged = runner.reduce(
        "moments",
        TargetMoments,
        parts.partitions,
        partial(_measure, reader),
        _merge_moments,
        *(base, head),
    )
    moments = runner.persist(merged, "measuring the target")
    summary = runner.reduce(
        "summary",
        TargetSummary,
        parts.partitions,
        partial(_summarise, reader),
        _merge_summaries,
        *(base, moments),
    )
    state, n_skipped = runner.compute(delayed(_adapt)(base, moments, summary), "absorbing the target")
    if n_skipped:
        warnings.warn(f"{n_skipped:,} rows {OUT_OF_RANGE} and are not used", UserWarning, stacklevel=2)
    adapted = model.spawn() if state is None else model.spawn(state)
    warn(model.columns_, adapted.columns_)
    return adapted


@dataclass(frozen=True, eq=False)
class Head:
    """What the first rows of the target say about all of them."""

    units: Units
    recent: Floats  # the last of these rows

    def begin(self, model: OnlineDaDiL) -> TargetState:
        """Return a target without rows, which judges glitches by these."""
        settings, label_shift = model.state_.rows.settings, model.state_.label_shift
        state = begin(model.knowledge_, settings, label_shift=label_shift)
        return replace(state, units=self.units, tally=replace(state.tally, recent=self.recent))


@dataclass(frozen=True, eq=False)
class TargetMoments:
    """Result of the first pass."""

    head: Head
    moments: Moments
    tally: Tally
    out_of_range: int  # number of rows that are not used


@dataclass(frozen=True, eq=False)
class TargetSummary:
    """Result of the second pass: a summary, None without rows, and the rows with the lowest hashes."""

    target: TargetState | None
    hashes: Any
    rows: Floats


@one_thread
def _read_head(reader: Reader, partitions: list[Any], packed: bytes) -> Head:
    """Read the first rows: partitions must agree about the units of the columns."""
    model = unpack(packed)
    state = model.state_
    for block in chain.from_iterable(map(reader.blocks, partitions)):
        if len(block.X):
            state = count(model.knowledge_, state, block.X)
            break
    return Head(state.units, state.tally.recent)


@one_thread
def _measure(reader: Reader, partition: Any, packed: bytes, head: Head) -> TargetMoments:
    model = unpack(packed)
    state, d = head.begin(model), len(head.units.factors)
    found = [TargetMoments(head, Moments.none(d), Tally.none(d), 0)]
    for block in reader.blocks(partition):
        rows = screen_rows(model.knowledge_, state, block.X)
        moments = Moments.of(rows, np.ones(len(rows)))
        tally = Tally.of(block.X, np.where(np.isnan(rows), np.nan, block.X))
        found.append(TargetMoments(head, moments, tally, block.out_of_range))
    return _merge_moments(found)


def _merge_moments(parts: list[TargetMoments]) -> TargetMoments:
    return TargetMoments(
        parts[0].head,
        reduce(Moments.plus, (part.moments for part in parts)),
        reduce(Tally.__add__, (part.tally for part in parts)),
        sum(part.out_of_range for part in parts),
    )


@one_thread
def _summarise(reader: Reader, partition: Any, packed: bytes, measured: TargetMoments) -> TargetSummary:
    model = unpack(packed)
    sources, moments = model.knowledge_, measured.moments
    means = np.where(moments.counts > 0.0, moments.means, sources.model.centre)
    state = measured.head.begin(model)
    state = replace(state, rows=see_stds(sources, state.rows, np.sqrt(moments.variances)))
    sample = TargetSummary(None, np.zeros(0, np.uint64), np.zeros((0, model.n_features_in_)))
    for block in reader.blocks(partition):
        if not len(block.X):
            continue
        rows, lost = clean(sources, state, block.X, usual=means)
        state = summarise_rows(sources, state, rows[~lost], np.ones(len(rows))[~lost])
        sample = _lowest_hashes([sample, TargetSummary(None, hash_rows(block.X, 0), block.X)])
    return TargetSummary(state if state.mass > 0.0 else None, sample.hashes, sample.rows)


def _lowest_hashes(parts: list[TargetSummary]) -> TargetSummary:
    """Return the rows with the lowest hashes, in their order."""
    hashes = np.concatenate([part.hashes for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    lowest = np.sort(np.argsort(hashes, kind="stable")[:_RELIABILITY_ROWS])
    return TargetSummary(None, hashes[lowest], rows[lowest])


@one_thread
def _merge_summaries(parts: list[TargetSummary]) -> TargetSummary:
    states = [part.target for part in parts if part.target is not None]
    sample, merged = _lowest_hashes(parts), None
    if states:
        rows = states[0].rows.copy()
        for state in states[1:]:
            rows.merge(state.rows)
        merged = replace(states[0], rows=rows)
    return TargetSummary(merged, sample.hashes, sample.rows)


@one_thread
def _adapt(
    packed: bytes, measured: TargetMoments, summary: TargetSummary
) -> tuple[TargetState | None, int]:
    if summary.target is None:
        return None, measured.out_of_range
    model = unpack(packed)
    seen = replace(summary.target, tally=measured.tally, units=measured.head.units)
    state = join(model.knowledge_, model.state_, seen, summary.rows)
    return state, measured.out_of_range
