"""The second and the third look at rows in partitions, and learning from what they give, by workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from dask.delayed import delayed

from baryflow.core.mixture import Mixture
from baryflow.distributed.census import Roll
from baryflow.distributed.parts import Parts
from baryflow.distributed.passes import (
    Mixtures,
    Second,
    Sums,
    add_sums,
    complete_scatter,
    fractions,
    look_again,
    merge_second,
    sum_up,
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
    mix_sources,
    needs_scatter,
)
from baryflow.estimators.threads import one_thread


@dataclass(frozen=True, eq=False)
class FitPlan:
    """How the model is learned, with what the first look has given."""

    roll: Roll
    options: SourceOptions
    switches: Options
    predictor: str
    rehearsing: bool
    sample_rows: int

    @property
    def table(self) -> SourceTable:
        """Sources in numbers."""
        return self.roll.table


def learn_sources(work: Work, parts: Parts, plan: FitPlan) -> Any:
    """Return a task that gives what the sources teach; all of it is done by workers.

    The second look gives the view and a sample, and is taken at once: no rows are kept for the third.
    Mixtures start from the sample and take one step of EM with all rows, the third look; the classifiers
    and the rehearsal learn from the sample meanwhile.
    """
    shared = delayed(plan, traverse=False)  # one node of the graph, however many tasks need it
    looks = work.over(
        "second", Second, parts.pieces, partial(_look_again, parts.reader), merge_second, shared
    )
    second = work.hold(looks, "sampling rows")
    outlook = delayed(_outlook)(second, shared)
    rows, even = delayed(_weighted)(second, shared), delayed(_even)(second, shared)
    start = delayed(_start)(rows, outlook, shared)
    third = work.over(
        "third", Sums, parts.pieces, partial(_sum_up, parts.reader), add_sums, outlook, start, shared
    )
    basis = delayed(_basis)(rows, outlook)
    model = delayed(_build)(
        delayed(_mix)(rows, outlook, start, third, shared),
        delayed(_fit_pooled)(rows, basis, shared),
        delayed(_fit_own)(rows, basis, shared),
        outlook,
        shared,
    )
    return delayed(_finish)(model, _rehearse(even, plan), even)


def _rehearse(even: Any, plan: FitPlan) -> Any:
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


@one_thread  # bits depend on it
def _look_again(reader: Any, piece: Any, plan: FitPlan) -> Second:
    seed, n_rows = plan.options.seed, plan.sample_rows
    return look_again(reader, piece, plan.roll, n_rows=n_rows, seed=seed)


@one_thread
def _sum_up(
    reader: Any,
    piece: Any,
    outlook: Outlook,
    start: Mixtures,
    plan: FitPlan,
) -> Sums:
    return sum_up(reader, piece, plan.roll, outlook, start)


@one_thread
def _outlook(second: Second, plan: FitPlan) -> Outlook:
    scatter = None
    if needs_scatter(len(plan.table.centre), plan.options):
        scatter = complete_scatter(second.scatter, plan.table)
    options = plan.options
    return Outlook.of(plan.table, scatter, view=options.view, scaled=options.scaled)


def _weighted(second: Second, plan: FitPlan) -> LabelledRows:
    return second.sample.labelled(plan.table)


def _even(second: Second, plan: FitPlan) -> LabelledRows:
    return second.sample.labelled(plan.table, evenly=True)


@one_thread
def _basis(rows: LabelledRows, outlook: Outlook) -> Any:
    return outlook.basis(rows)


@one_thread
def _fit_pooled(rows: LabelledRows, basis: Any, plan: FitPlan) -> Any:
    return fit_pooled(rows, plan.table, plan.options, basis)


@one_thread
def _fit_own(rows: LabelledRows, basis: Any, plan: FitPlan) -> Any:
    return fit_own(rows, plan.table, plan.options, basis)


@one_thread
def _start(rows: LabelledRows, outlook: Outlook, plan: FitPlan) -> Mixtures:
    """Return mixtures of the sampled rows of cells of which there are more."""
    options, table = plan.options, plan.table
    found = {}
    for number, c in np.argwhere(fractions(table, plan.sample_rows) < 1.0).tolist():
        V = outlook.see(rows.rows[number][rows.codes[number] == c], number)
        cell = number * table.n_classes + c
        found[cell] = mix_class(V, outlook.unit, options.components_per_class, options.seed)
    return Mixtures.of(found, options.components_per_class, len(outlook.unit))


@one_thread
def _mix(
    rows: LabelledRows, outlook: Outlook, start: Mixtures, third: Sums, plan: FitPlan
) -> tuple[list[list[Mixture | None]], list[Mixture]]:
    """Return the mixture of every class of every source, and of every class on the whole."""
    parts, together = mix_sources(rows, outlook, plan.options)
    n_classes = plan.table.n_classes
    for cell, mixture in third.improve(start, outlook.unit).items():
        parts[cell // n_classes][cell % n_classes] = mixture
    return parts, together


@one_thread
def _build(mixtures: Any, pooled: Any, own: Any, outlook: Outlook, plan: FitPlan) -> SourceModel:
    return build_model(outlook, *mixtures, pooled=pooled, own=own, options=plan.options)


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
