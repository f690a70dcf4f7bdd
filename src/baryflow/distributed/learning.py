"""The third look at rows in partitions, and learning from what it gives, by workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from dask.delayed import delayed

from baryflow.core.mixture import Mixture
from baryflow.core.reduction import reduce_components
from baryflow.distributed.census import Roll
from baryflow.distributed.parts import Parts
from baryflow.distributed.passes import (
    FINENESS,
    Components,
    Described,
    concatenate,
    describe_piece,
    fractions,
    merge_components,
)
from baryflow.distributed.work import Work
from baryflow.estimators.adaptation import EVEN, Options
from baryflow.estimators.atoms import mix_class
from baryflow.estimators.decision import Decision, weights_of
from baryflow.estimators.learned import Learned
from baryflow.estimators.novelty import Novelty
from baryflow.estimators.rehearsal import (
    MOST_PLAYS,
    Player,
    cast,
    choose_weights,
    decide,
    learn_play,
    perform,
    unplayed,
)
from baryflow.estimators.source_model import SourceModel
from baryflow.estimators.source_table import SourceTable
from baryflow.estimators.sources import (
    LabelledRows,
    Outlook,
    SourceOptions,
    build_model,
    fit_own,
    fit_pooled,
)
from baryflow.estimators.threads import one_thread


@dataclass(frozen=True, eq=False)
class Plan:
    """How the model is learned from what the looks have given."""

    table: SourceTable
    outlook: Outlook
    options: SourceOptions
    switches: Options
    predictor: str
    rehearsing: bool


def learn_sources(work: Work, parts: Parts, roll: Roll, plan: Plan, sample_rows: int) -> Any:
    """Return a task that gives what the sources teach; all of it is done by workers."""
    m, options = plan.options.components_per_class, plan.options
    task = partial(_describe, parts.reader, n_components=m, n_rows=sample_rows, seed=options.seed)
    # One node each in the graph, however many tasks need them.
    known, shared = delayed((roll, plan.outlook), traverse=False), delayed(plan, traverse=False)
    merge = partial(_merge, most=FINENESS * m)
    whole = work.over("described", Described, parts.pieces, task, merge, known)
    rows, even = delayed(_weighted)(whole, shared), delayed(_even)(whole, shared)
    basis = delayed(_basis)(rows, shared)
    parameters = (rows, shared, basis)
    model = delayed(_build)(
        delayed(_mix)(whole, shared, sample_rows),
        delayed(_fit_pooled)(*parameters),
        delayed(_fit_own)(*parameters),
        shared,
    )
    return delayed(_finish)(model, _rehearse(even, plan), even)


def _rehearse(even: Any, plan: Plan) -> Any:
    """Return a task that decides about adapting, from sources that play targets."""
    weights = weights_of(plan.predictor)
    if plan.predictor == "source":
        return Decision(reason="chosen by you: predictor is 'source'")
    if not plan.rehearsing:
        return Decision.fixed(weights or EVEN, "chosen by you: rehearse is False")
    n_sources, n_classes = plan.table.counts.shape
    players = delayed(_cast)(even, plan.table.n_classes, plan.options)
    plays = [
        delayed(_learn_play)(players, number, plan.switches, weights)
        for number in range(min(MOST_PLAYS, n_sources))
    ]
    last = delayed(_choose)(plays, weights)
    found = [delayed(_perform)(play, plan.switches, last) for play in plays]
    return delayed(_decide)(found, last, n_sources, n_classes, weights)


@one_thread
def _describe(
    reader: Any, piece: Any, number: int, known: tuple[Roll, Outlook], **options: Any
) -> Described:
    return describe_piece(reader, piece, number, *known, **options)


@one_thread
def _merge(some: list[Described], most: int) -> Described:
    return Described(
        merge_components([one.components for one in some], most),
        concatenate([one.sample for one in some]),
    )


def _weighted(whole: Described, plan: Plan) -> LabelledRows:
    return whole.sample.labelled(plan.table)


def _even(whole: Described, plan: Plan) -> LabelledRows:
    return whole.sample.labelled(plan.table, evenly=True)


@one_thread
def _basis(rows: LabelledRows, plan: Plan) -> Any:
    return plan.outlook.basis(rows)


@one_thread
def _fit_pooled(rows: LabelledRows, plan: Plan, basis: Any) -> Any:
    return fit_pooled(rows, plan.table, plan.options, basis)


@one_thread
def _fit_own(rows: LabelledRows, plan: Plan, basis: Any) -> Any:
    return fit_own(rows, plan.table, plan.options, basis)


@one_thread
def _mix(
    whole: Described, plan: Plan, sample_rows: int
) -> tuple[list[list[Mixture | None]], list[Mixture]]:
    """Return the mixture of every class of every source, and of every class on the whole.

    A class of which all rows of a source are in the sample is described as in memory.
    """
    table, outlook, m = plan.table, plan.outlook, plan.options.components_per_class
    merged = whole.components.mixtures(m)
    sample = whole.sample.labelled(table)
    seen = [outlook.see(X, number) for number, X in enumerate(sample.rows)]
    complete = fractions(table, sample_rows) >= 1.0

    def describe(V: Any) -> Mixture:
        return mix_class(V, outlook.unit, m, plan.options.seed)

    def one(source: int, c: int) -> Mixture | None:
        if not complete[source, c]:
            return merged[source * table.n_classes + c]
        rows = seen[source][sample.codes[source] == c]
        return describe(rows) if len(rows) else None

    parts = [[one(source, c) for c in range(table.n_classes)] for source in range(len(seen))]
    together = []
    for c in range(table.n_classes):
        if complete[:, c].all():
            together.append(describe(np.concatenate(seen)[sample.labels == c]))
        else:
            found = [(0, part[c]) for part in parts if part[c] is not None]
            every = Components.of(found, len(outlook.unit))  # type: ignore[arg-type]
            together.append(reduce_components(every.masses, every.means, every.stds, m, std_floor=0.0))
    return parts, together


@one_thread
def _build(mixtures: Any, pooled: Any, own: Any, plan: Plan) -> SourceModel:
    return build_model(plan.outlook, *mixtures, pooled=pooled, own=own, options=plan.options)


@one_thread
def _cast(even: LabelledRows, n_classes: int, options: SourceOptions) -> list[Player]:
    scatter = None
    if options.view:
        scatter = even.measure(SourceTable.of(even.rows, even.codes, n_classes))
    return cast(even.rows, even.codes, n_classes, options, scatter)


def _learn_play(players: list[Player], number: int, options: Options, weights: Any) -> Any:
    return None if number >= len(players) else learn_play(players[number], options, weights)


@one_thread
def _choose(plays: list[Any], weights: Any) -> Any:
    tables = [play[1] for play in plays if play is not None]
    return choose_weights(tables) if weights is None and tables else weights


def _perform(play: Any, options: Options, last: Any) -> Any:
    return None if play is None else perform(play[0], options, last)


@one_thread
def _decide(found: list[Any], last: Any, n_sources: int, n_classes: int, weights: Any) -> Decision:
    guesses = [some for some in found if some is not None]
    return decide(guesses, tuple(last)) if guesses else unplayed(n_sources, n_classes, weights)


@one_thread
def _finish(model: SourceModel, decision: Decision, even: LabelledRows) -> Learned:
    return Learned(model, decision, Novelty.learn(model, even.rows, decision))
