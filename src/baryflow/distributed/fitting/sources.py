"""The second and the third look at rows in partitions, and learning from what they give, by workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from dask.delayed import delayed

from baryflow.core.mixture import Mixture
from baryflow.distributed.fitting.census import Roll
from baryflow.distributed.fitting.partitions import Parts
from baryflow.distributed.fitting.passes import (
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
from baryflow.distributed.fitting.work import Work
from baryflow.estimators._classifiers import Fit
from baryflow.estimators._leave_one_out import (
    MOST_FOLDS,
    Fold,
    FoldResult,
    fit_fold,
    know_evenly,
    learn_voters,
    make_folds,
    run_fold,
    with_committee,
    with_novelty,
    without_folds,
)
from baryflow.estimators._sensors import Limits
from baryflow.estimators._source_table import SourceTable
from baryflow.estimators._sources import (
    LabelledRows,
    Outlook,
    SourceKnowledge,
    SourceModel,
    SourceOptions,
    build_model,
    fit_plain,
    learn_model,
    mix_class,
    mix_sources,
    needs_scatter,
)
from baryflow.estimators._threads import one_thread


@dataclass(frozen=True, eq=False)
class FitPlan:
    """How the model is learned, with what the first look has given."""

    roll: Roll
    classifiers: dict[str, Fit]
    options: SourceOptions
    validate: bool
    sample_rows: int

    @property
    def table(self) -> SourceTable:
        """Sources in numbers."""
        return self.roll.table


def learn_sources(work: Work, parts: Parts, plan: FitPlan) -> Any:
    """Return a task that gives what the sources teach; all of it is done by workers.

    The second look gives the view and a sample, and is taken at once: no rows are kept for the third.
    Mixtures start from the sample and take one step of EM with all rows, the third look; the classifiers
    and the leave-one-source-out folds learn from the sample meanwhile.
    """
    shared = delayed(plan, traverse=False)  # one node of the graph, however many tasks need it
    looks = work.over(
        "second", Second, parts.pieces, partial(_look_again, parts.reader), merge_second, shared
    )
    second = work.hold(looks, "sampling rows")
    outlook = delayed(_outlook)(second, shared)
    rows, even = delayed(_all)(second, shared), delayed(_even)(second, shared)
    start = delayed(_start)(rows, outlook, shared)
    third = work.over(
        "third", Sums, parts.pieces, partial(_sum_up, parts.reader), add_sums, outlook, start, shared
    )
    model = delayed(_build)(delayed(_mix)(rows, outlook, start, third, shared), outlook, shared)
    knowledge = delayed(_know)(model, delayed(_fit_plain)(even, outlook, shared), shared)
    return delayed(_finish)(knowledge, _run_folds(even, plan, shared), even, shared)


def _run_folds(even: Any, plan: FitPlan, shared: Any) -> Any:
    """Return a task that gives what the votes are worth, and the result of every fold."""
    if not plan.validate or plan.options.paper:
        return None
    folds = delayed(_make_folds)(even, shared)
    fitted = [
        delayed(_fit_fold)(folds, number, shared)
        for number in range(min(MOST_FOLDS, len(plan.table.counts)))
    ]
    voters = delayed(_learn_voters)(fitted)
    return delayed(_collect)(voters, [delayed(_run_fold)(fold, voters) for fold in fitted])


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
    return Outlook.of(plan.table, scatter, paper=plan.options.paper)


def _all(second: Second, plan: FitPlan) -> LabelledRows:
    return second.sample.labelled(plan.table)


def _even(second: Second, plan: FitPlan) -> LabelledRows:
    return second.sample.labelled(plan.table, evenly=True)


@one_thread
def _fit_plain(even: LabelledRows, outlook: Outlook, plan: FitPlan) -> Any:
    """Return the plain classifiers, and the model of the stacked space."""
    options = plan.options
    plain, stacked = fit_plain(
        even,
        plan.table,
        plan.classifiers,
        basis=outlook.basis(even),
        seed=options.seed,
        per_domain=not options.paper,
    )
    return plain, None if stacked is None else learn_model(stacked, options)


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
def _build(mixtures: Any, outlook: Outlook, plan: FitPlan) -> SourceModel:
    return build_model(outlook, *mixtures, options=plan.options)


def _know(model: SourceModel, plain_and_stacked: Any, plan: FitPlan) -> SourceKnowledge:
    plain, stacked = plain_and_stacked
    return know_evenly(model, plain, stacked, Limits.of(plan.table), plan.options)


@one_thread
def _make_folds(even: LabelledRows, plan: FitPlan) -> list[Fold]:
    return make_folds(even, plan.options)


def _fit_fold(folds: list[Fold], number: int, plan: FitPlan) -> Any:
    return None if number >= len(folds) else fit_fold(folds[number], plan.classifiers)


@one_thread
def _learn_voters(fitted: list[Any]) -> Any:
    folds = [fold for fold in fitted if fold is not None]
    return learn_voters(folds) if folds else None


def _run_fold(fold: Any, voters: Any) -> FoldResult | None:
    return None if fold is None else run_fold(fold, voters)


def _collect(voters: Any, results: list[FoldResult | None]) -> Any:
    return voters, [result for result in results if result is not None]


@one_thread
def _finish(
    knowledge: SourceKnowledge, tested: Any, even: LabelledRows, plan: FitPlan
) -> SourceKnowledge:
    if tested is None:
        return with_novelty(knowledge, even, [])
    voters, results = tested
    if voters is None:
        knowledge = without_folds(knowledge, len(plan.table.counts))
    else:
        knowledge = with_committee(knowledge, voters, results)
    return with_novelty(knowledge, even, results)
