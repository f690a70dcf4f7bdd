"""A target in partitions, summarised where its rows are: two looks at them, merged as trees."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
from dask.delayed import delayed

from baryflow.core.moments import Moments
from baryflow.core.summary import StreamSummary
from baryflow.distributed.blocks import REJECTED, Reader
from baryflow.distributed.fitting.draws import draw
from baryflow.distributed.fitting.partitions import Parts, require_parts
from baryflow.distributed.fitting.work import Work
from baryflow.distributed.models import pack, require_columns, unpack
from baryflow.distributed.store import place
from baryflow.estimators._leave_one_out import Progress
from baryflow.estimators._sensors import Tally, warn
from baryflow.estimators._target import Target, TargetState
from baryflow.estimators._threads import one_thread
from baryflow.estimators._tracker import TrackerState
from baryflow.estimators.online_dadil import OnlineDaDiL
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats

#: Rows by which it is judged how far predictions can be relied on.
_JUDGED = 1024


def absorb(
    model: OnlineDaDiL,
    parts: Parts,
    *,
    checkpoint: str | None = None,
    storage_options: dict[str, Any] | None = None,
    client: Any = None,
    progress: Progress | None = None,
) -> OnlineDaDiL:
    """Adapt a fitted model to a target whose rows are in partitions, and stay there.

    Every piece becomes a summary of bounded size, the same that a stream is kept as; summaries are
    merged as a tree, and the result is adapted to by a worker. The columns' moments are found first, in
    a look of their own, so that all pieces are seen in the same view.

    Parameters
    ----------
    model : OnlineDaDiL
        Fitted. What it has seen of the target already counts, too.
    parts : Parts
        Rows without labels; labels are not looked at.
    checkpoint, storage_options, client, progress
        As in :func:`fit`.

    Returns
    -------
    OnlineDaDiL
        A copy of the model that has seen the target; the model itself is not changed.

    Raises
    ------
    InvalidInputError
        If the columns are not those of the model, or it forgets (``half_life``): what came last is not
        known of partitions.
    """
    packed = pack(model)
    require_parts(parts)
    if model.method == "paper" or model.half_life is not None:
        raise InvalidInputError(
            "partitions have no order in which to forget: absorb needs half_life=None and "
            "the default method"
        )
    reader = parts.reader.rows_only(require_columns(model, parts.columns, parts.n_features))
    if not parts.pieces:
        raise InvalidInputError("there is no row to absorb: expected at least one partition")
    store = None
    if checkpoint is not None:
        # What is kept of rows was seen with the model's limits and in its view.
        seen_by = hashlib.sha256(packed).hexdigest()[:16]
        store = place(checkpoint, storage_options) / f"target-{parts.identity}-{seen_by}"
    work = Work(client, store, progress)
    base = delayed(packed)
    look = work.over("look", Looked, parts.pieces, partial(_look, reader), _merge_looks, base)
    looked = work.hold(look, "looking at the target")
    summed = work.over(
        "summary", Summed, parts.pieces, partial(_summarise, reader), _merge_sums, base, looked
    )
    state, rejected = work.compute(delayed(_adapt)(base, looked, summed), "absorbing the target")
    if rejected:
        told = f"{rejected:,} rows {REJECTED} and are not used"
        warnings.warn(told, UserWarning, stacklevel=2)
    adapted = model.spawn() if state is None else model.spawn(state)
    warn(model.columns_, adapted.columns_)
    return adapted


@dataclass(frozen=True, eq=False)
class Looked:
    """What the first look at a target gives."""

    moments: Moments
    tally: Tally
    rejected: int  # rows with values that no plant has


@dataclass(frozen=True, eq=False)
class Summed:
    """What the second look gives: a summary, and some rows by which to judge."""

    target: TargetState | None  # None: no row was there
    lots: Any  # the lowest numbers drawn
    rows: Floats


@one_thread
def _look(reader: Reader, piece: Any, packed: bytes) -> Looked:
    model = unpack(packed)
    limits, d = model.tracker.knowledge.limits, model.n_features_in_
    if limits is None:
        raise InvalidInputError("a model made from mixtures absorbs no rows")
    found = [Looked(Moments.none(d), Tally.none(d), 0)]
    for block in reader.blocks(piece):
        rows = limits.screen(block.X)
        moments = Moments.of(rows, np.ones(len(rows)))
        found.append(Looked(moments, Tally.of(block.X, rows), block.rejected))
    return _merge_looks(found)


def _merge_looks(some: list[Looked]) -> Looked:
    return Looked(
        reduce(Moments.plus, (one.moments for one in some)),
        reduce(Tally.__add__, (one.tally for one in some)),
        sum(one.rejected for one in some),
    )


@one_thread
def _summarise(reader: Reader, piece: Any, packed: bytes, looked: Looked) -> Summed:
    model = unpack(packed)
    tracker = model.tracker
    source, d = tracker.knowledge.model, model.n_features_in_
    moments = looked.moments
    usual = np.where(moments.counts > 0.0, moments.means, source.centre)
    variances, mass = moments.variances, float(moments.counts.max(initial=0.0))
    target = Target(tracker.knowledge, tracker.settings)
    target.see_stds(np.sqrt(variances))
    found = [Summed(None, np.zeros(0, np.uint64), np.zeros((0, d)))]
    for block in reader.blocks(piece):
        if not len(block.X):
            continue
        rows, lost = target.clean(block.X, usual=usual)
        weights = np.ones(int((~lost).sum()))
        target.summarise(rows[~lost], weights, (usual, variances, mass))
        found.append(Summed(None, draw(block.X, 0), block.X))
        found = [_judged(found)]
    seen = target.state() if target.mass > 0.0 else None
    return Summed(seen, found[0].lots, found[0].rows)


def _judged(some: list[Summed]) -> Summed:
    """Return the rows that have drawn the lowest numbers, in their order."""
    lots, rows = np.concatenate([s.lots for s in some]), np.concatenate([s.rows for s in some])
    lowest = np.sort(np.argsort(lots, kind="stable")[:_JUDGED])
    return Summed(None, lots[lowest], rows[lowest])


@one_thread
def _merge_sums(some: list[Summed]) -> Summed:
    states = [one.target for one in some if one.target is not None]
    rest = _judged(some)
    if not states:
        return Summed(None, rest.lots, rest.rows)
    rows, stacked = _merge([one.rows for one in states]), _merge([one.stacked for one in states])
    return Summed(TargetState(rows, stacked, states[0].tally), rest.lots, rest.rows)


def _merge(states: list[Any]) -> Any:
    if states[0] is None:
        return None
    summary = StreamSummary.from_state(states[0])
    for state in states[1:]:
        summary.merge(StreamSummary.from_state(state))
    return summary.state()


@one_thread
def _adapt(packed: bytes, looked: Looked, summed: Summed) -> tuple[TrackerState | None, int]:
    if summed.target is None:
        return None, looked.rejected
    model = unpack(packed).spawn()
    model.tracker.join(TargetState(summed.target.rows, summed.target.stacked, looked.tally), summed.rows)
    return model.target_state(), looked.rejected
