"""Leave-one-source-out: learn the committee's weights on sources that are treated as targets.

Each source in turn is left out, and what the others teach is tried on it: whole, after its first rows,
class by class, and with resampled class proportions. Its labels teach the weights of the experts.
Without labels it teaches how far rows usually are from their reconstruction. What is learned is judged
on folds that it was not learned on. Of many sources, classes and rows only some take part: all that is
learned are a few weights.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from typing import Any

import numpy as np
from joblib import Parallel, cpu_count, delayed, effective_n_jobs
from joblib.parallel import get_active_backend

from baryflow.estimators._adapt import adapt, explain_as
from baryflow.estimators._classifiers import CLASSIFIERS, Fit
from baryflow.estimators._committee import (
    Committee,
    Prediction,
    Trial,
    learn_calibration,
    learn_committee,
    learn_weights,
    measure_agreement,
    mix_explanations,
)
from baryflow.estimators._experts import expert_logs, list_experts, unadapted_logits
from baryflow.estimators._explanations import normalise_proportions
from baryflow.estimators._follow import absorb
from baryflow.estimators._novelty import Novelty
from baryflow.estimators._orders import SHIFTS, number_within, shift_labels, stream_order
from baryflow.estimators._predict import novelty_distance, typical_in_columns
from baryflow.estimators._progress import Progress, Progressed
from baryflow.estimators._sensors import Limits
from baryflow.estimators._source_table import spread
from baryflow.estimators._sources import (
    LabelledRows,
    PlainClassifiers,
    SourceKnowledge,
    SourceModel,
    SourceOptions,
    fit_sources,
)
from baryflow.estimators._state import Adaptation, begin, row_settings, summarise
from baryflow.estimators._threads import one_thread
from baryflow.validation import Booleans, Floats, Integers

#: Sources that are left out at most, sources from which a fold learns, and classes.
MOST_FOLDS, _MOST_SOURCES, _MOST_CLASSES = 4, 8, 40
#: Training rows of a fold, and rows of a left-out source, at most.
_MOST_ROWS, _LONGEST = 2000, 800
#: Rows of a stream at least, and rows that are predicted after it at most.
_FEWEST, _PREDICTED = 40, 200
#: First rows of a stream after which the others are predicted, and parts of a stream class by class.
_FIRST_ROWS, _PARTS = (32, 96, 256), (0.1, 0.3, 0.6)
#: One row in this many of one of the other sources is held out: a target inside of the sources.
_HELD_OUT = 5
#: CPU seconds of a fold from which on processes are worth starting: one takes about as long to start.
_WORTH_PROCESSES = 1.0
#: Time that the streams of a fold take, in units of fitting it; a first guess for the progress only.
_RUN = 1.5
_FITTING, _PREDICTING = "fitting leave-one-source-out folds", "predicting left-out sources"


@dataclass(frozen=True, eq=False)
class Fold:
    """A source to leave out, the rows of the others, and rows held out from one of these."""

    others: LabelledRows
    X: Floats
    codes: Integers
    inside: tuple[Floats, Integers]
    options: SourceOptions


@dataclass(frozen=True, eq=False)
class FittedFold:
    """A left-out source, and what the others teach."""

    knowledge: SourceKnowledge
    X: Floats
    codes: Integers
    inside: tuple[Floats, Integers]
    label_shift: bool = True  # class proportions may differ, and the model will estimate them


@dataclass(frozen=True, eq=False)
class FoldResult:
    """What the experts said of a left-out source, and the distances of its rows for novelty."""

    trials: list[Trial]
    inside: list[Trial]  # of rows held out from a source that was not left out
    distances: Floats
    first_distances: Floats  # the same before a row was seen


def learn(
    sources: LabelledRows,
    classifiers: Mapping[str, Fit],
    options: SourceOptions,
    *,
    validate: bool,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> SourceKnowledge:
    """Learn all that labelled sources teach.

    Parameters
    ----------
    sources : LabelledRows
    classifiers : mapping of name → Fit
    options : SourceOptions
    validate : bool
        Learn the committee by leave-one-source-out; otherwise all experts count the same.
    n_jobs : int, optional
        Folds at the same time, as in joblib; the outcome is the same. Without it as many as there are
        cores, if that saves time.
    progress : callable, optional
    """
    folds = make_folds(sources, options) if validate else []
    if not folds:
        knowledge = learn_evenly(sources, classifiers, options)
        if validate:
            knowledge = without_folds(knowledge, len(sources.rows))
        return with_novelty(knowledge, sources, [])
    sizes = [float(len(fold.others.labels)) for fold in folds]
    tasks = [_Task(len(sources.labels), learn_evenly, (sources, classifiers, options))]
    tasks += [_Task(n, fit_fold, (fold, classifiers)) for n, fold in zip(sizes, folds, strict=True)]
    runs = [_RUN * n for n in sizes]
    bar = Progressed(progress, sum(task.size for task in tasks) + sum(runs))
    first: list[Any] = []
    if n_jobs is None and effective_n_jobs(None) == 1:
        # How long the last fold takes tells whether processes are worth starting for the others.
        start = time.thread_time()
        first, n_jobs = _do(_FITTING, [tasks.pop()], 1, bar), 1
        if time.thread_time() - start >= _WORTH_PROCESSES and _may_start_processes(classifiers):
            n_jobs = min(cpu_count(), len(tasks))
    knowledge, *fitted = _do(_FITTING, tasks, n_jobs, bar) + first
    raw = learn_raw(fitted)
    tasks = [
        _Task(n, run_fold, (number, fold, raw))
        for number, (n, fold) in enumerate(zip(runs, fitted, strict=True))
    ]
    results = _do(_PREDICTING, tasks, n_jobs, bar)
    knowledge = with_novelty(with_committee(knowledge, raw, results), sources, results)
    bar.end(_PREDICTING)
    return knowledge


@dataclass(frozen=True, eq=False)
class _Task:
    """A function to call, and its size: what it costs, up to a factor."""

    size: float
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def run(self) -> Any:
        """Return the result."""
        return self.function(*self.arguments)


def _do(what: str, tasks: list[_Task], n_jobs: int | None, bar: Progressed) -> list[Any]:
    """Return the results of tasks, several at a time."""
    work = Parallel(n_jobs=n_jobs, return_as="generator")
    found = []
    for task, result in zip(tasks, work(delayed(task.run)() for task in tasks), strict=True):
        found.append(result)
        bar.finish(what, task.size)
    return found


def _may_start_processes(classifiers: Mapping[str, Fit]) -> bool:
    """Tell whether this is a main program, not part of one that has several threads or processes.

    Where more processes want to run than there are cores, further ones only cost. A classifier of the
    user's own may not work in another process, or use several cores itself.
    """
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > (os.cpu_count() or 1):
        return False
    return (
        parent_process() is None
        and threading.current_thread() is threading.main_thread()
        and not get_active_backend()[0].nesting_level
        and all(fit in CLASSIFIERS.values() for fit in classifiers.values())
    )


@one_thread  # bits depend on it, and another process does not share the limit
def learn_evenly(
    sources: LabelledRows, classifiers: Mapping[str, Fit], options: SourceOptions
) -> SourceKnowledge:
    """Learn from sources without leaving any out: all experts count the same."""
    return know_evenly(*fit_sources(sources, classifiers, options), options)


def know_evenly(
    model: SourceModel,
    plain: PlainClassifiers,
    limits: Limits,
    options: SourceOptions,
) -> SourceKnowledge:
    """Return what was learned, with a committee in which all experts count the same."""
    names = [one.name for one in list_experts(plain.names)]
    reason = "leave-one-source-out was switched off"
    committee = Committee.even(names, len(plain.names), reason)
    user_prior = options.class_prior is not None
    return SourceKnowledge(model, plain, limits, user_prior, committee, Novelty.none())


def without_folds(knowledge: SourceKnowledge, n_sources: int) -> SourceKnowledge:
    """Return the knowledge if no source can be left out: it does not adapt."""
    reason = "every source has a class that no other has, so no source can be left out to test adapting"
    if n_sources < 2:
        reason = "there is only one source, so no source can be left out to test adapting"
    return replace(knowledge, committee=replace(knowledge.committee, adapts=False, reason=reason))


def with_committee(
    knowledge: SourceKnowledge, raw: Floats, results: list[FoldResult]
) -> SourceKnowledge:
    """Return the knowledge with weights and calibration learned from the folds."""
    committee = replace(knowledge.committee, raw=raw)
    trials = [trial for result in results for trial in result.trials]
    if not trials:
        reason = f"the sources have fewer than {_FEWEST} rows, too few to test adapting"
        return replace(knowledge, committee=replace(committee, adapts=False, reason=reason))
    committee, logits = learn_committee(committee, trials)
    weights = committee.weights
    outside = [
        Prediction(measure_agreement(trial.agreements, weights), one, trial.codes)
        for trial, one in zip(trials, logits, strict=True)
    ]
    inside = [
        Prediction(
            measure_agreement(trial.agreements, weights),
            mix_explanations(weights, trial),
            trial.codes,
        )
        for result in results
        for trial in result.inside
    ]
    return replace(knowledge, committee=committee, calibration=learn_calibration([outside, inside]))


def with_novelty(
    knowledge: SourceKnowledge, sources: LabelledRows, results: list[FoldResult]
) -> SourceKnowledge:
    """Return the knowledge with what is usual of rows that are not novel."""
    model = knowledge.model
    first = [result.first_distances for result in results if len(result.first_distances)]
    if not first:
        first = [model.novelty_distance(X, model.centre, model.scale) for X in sources.rows]
    found = [result.distances for result in results if len(result.distances)]
    if not found:  # the sources themselves, each in units of what is typical of it
        for X in sources.rows:
            far = model.novelty_distance(X, X.mean(axis=0), spread(X, model.scale))
            found.append(far / _median(far))
    return replace(knowledge, novelty=Novelty.of(np.concatenate(found), np.concatenate(first)))


def _median(distances: Floats) -> float:
    return max(float(np.median(distances)), 1e-12)


def make_folds(sources: LabelledRows, options: SourceOptions) -> list[Fold]:
    """Return the folds; a source without which a class is missing cannot be left out."""
    rows, codes, n_classes = sources.rows, sources.codes, sources.n_classes
    if len(rows) < 2:
        return []
    # A left-out source has its own class proportions, not those expected of the target.
    options = replace(options, class_prior=None)
    if n_classes > _MOST_CLASSES:
        rows, codes = _some_classes(rows, codes, n_classes)
        n_classes = _MOST_CLASSES
    holders = np.array([np.bincount(y, minlength=n_classes) > 0 for y in codes])
    # A source can be left out if every class occurs elsewhere.
    alone = holders & (holders.sum(axis=0) == 1)
    folds = []
    for left_out in _spread_out(np.flatnonzero(~alone.any(axis=1)), MOST_FOLDS):
        rest = _choose_sources(holders, left_out)
        others = LabelledRows([rows[i] for i in rest], [codes[i] for i in rest], n_classes)
        some = np.random.default_rng(0).permutation(len(codes[left_out]))[:_LONGEST]
        X, y = rows[left_out][some], codes[left_out][some]
        others, inside = _hold_out(others.thinned(_MOST_ROWS))
        folds.append(Fold(others, X, y, inside, options))
    return folds


def _hold_out(sources: LabelledRows) -> tuple[LabelledRows, tuple[Floats, Integers]]:
    """Hold out some rows of each class of the first source."""
    X, y = sources.rows[0], sources.codes[0]
    held = number_within(y) % _HELD_OUT == _HELD_OUT - 1
    rows, codes = [X[~held], *sources.rows[1:]], [y[~held], *sources.codes[1:]]
    return LabelledRows(rows, codes, sources.n_classes), (X[held], y[held])


def _choose_sources(holders: Booleans, left_out: int) -> list[int]:
    """Return some of the sources that are not left out, which together have every class."""
    numbers = np.roll(np.arange(len(holders)), -left_out)[1:]
    chosen = _spread_out(numbers, _MOST_SOURCES).tolist()
    for c in np.flatnonzero(~holders[chosen].any(axis=0)):
        chosen.append(next(int(i) for i in numbers if holders[i, c]))
    return list(dict.fromkeys(chosen))


def _spread_out(numbers: Integers, most: int) -> Integers:
    """Return at most this many of the numbers, as far apart as possible."""
    if len(numbers) <= most:
        return numbers
    return numbers[np.linspace(0, len(numbers) - 1, most).astype(np.intp)]


def _some_classes(
    rows: list[Floats], codes: list[Integers], n_classes: int
) -> tuple[list[Floats], list[Integers]]:
    """Return the rows of some classes, renumbered, of the sources that have any."""
    chosen = np.random.default_rng(0).permutation(n_classes)[:_MOST_CLASSES]
    number = np.full(n_classes, -1)
    number[np.sort(chosen)] = np.arange(len(chosen))
    kept = [(X, y, number[y] >= 0) for X, y in zip(rows, codes, strict=True)]
    kept = [(X, y, some) for X, y, some in kept if some.any()]
    return [X[some] for X, _, some in kept], [number[y[some]] for _, y, some in kept]


@one_thread
def fit_fold(fold: Fold, classifiers: Mapping[str, Fit]) -> FittedFold:
    """Learn from the sources that are not left out."""
    knowledge = learn_evenly(fold.others, classifiers, fold.options)
    return FittedFold(knowledge, fold.X, fold.codes, fold.inside, fold.options.label_shift)


@one_thread
def learn_raw(folds: list[FittedFold]) -> Floats:
    """Learn the weights of the classifiers on raw rows, for not adapting."""
    return learn_weights([(fold.knowledge.plain.raw_logs(fold.X), fold.codes) for fold in folds])


def _shifted_streams(codes: Integers, rng: np.random.Generator) -> Iterator[Integers]:
    """Yield rows with each of the label shifts."""
    for shift in SHIFTS:
        some = rng.permutation(shift_labels(codes, shift, rng, most=_LONGEST))
        if len(some) >= _FEWEST:
            yield some


@one_thread
def run_fold(number: int, fold: FittedFold, raw: Floats) -> FoldResult:
    """Predict rows of the left-out source after others were seen, in several kinds of streams."""
    knowledge, codes = fold.knowledge, fold.codes
    knowledge = replace(knowledge, committee=replace(knowledge.committee, raw=raw))
    fold = replace(fold, knowledge=knowledge)
    rng, n = np.random.default_rng(len(codes)), len(codes)
    trials: list[Trial] = []
    inside = _try_inside(number, fold)
    model = knowledge.model
    rng.permutation(n)  # no longer used; without it all measured figures would change a little
    first = model.novelty_distance(fold.X, model.centre, model.scale)
    if n < _FEWEST:
        return FoldResult(trials, inside, np.zeros(0), first)
    whole = np.arange(n)
    trial, adaptation = _try(number, fold, "whole stream", whole, rng.permutation(n))
    trials.append(trial)
    some, typical = rng.permutation(n)[:_PREDICTED], typical_in_columns(knowledge, adaptation, fold.X)
    found = [novelty_distance(knowledge, adaptation, fold.X[some], typical)]
    for k in _FIRST_ROWS:
        if k < n - _FEWEST:
            turn = rng.permutation(n)
            trial, adaptation = _try(number, fold, "first rows", turn[:k], turn[k:])
            trials.append(trial)
            typical = typical_in_columns(knowledge, adaptation, fold.X[turn[:k]])
            found.append(novelty_distance(knowledge, adaptation, fold.X[turn[k:][:_PREDICTED]], typical))
    distances = np.concatenate(found)
    if not fold.label_shift:  # the user says that there is none
        return FoldResult(trials, inside, distances, first)
    turn = stream_order(codes, "class", rng)
    for part in _PARTS:
        k = int(part * n)
        if k >= _FEWEST // 2:
            ahead = turn[k : k + max(_FEWEST, n // 8)]
            trials.append(_try(number, fold, "class by class", turn[:k], ahead)[0])
    trials += [
        _try(number, fold, "other class proportions", some, some)[0]
        for some in _shifted_streams(codes, rng)
    ]
    return FoldResult(trials, inside, distances, first)


def _try_inside(number: int, fold: FittedFold) -> list[Trial]:
    """Adapt to rows of a source that was not left out, as they come and with other proportions."""
    X, codes = fold.inside
    fold = replace(fold, X=X, codes=codes)
    whole, rng = np.arange(len(codes)), np.random.default_rng(len(codes))
    if len(codes) < _FEWEST // 2:
        return []
    trials = [_try(number, fold, "inside", whole, rng.permutation(len(codes)))[0]]
    if fold.label_shift:
        some = rng.permutation(shift_labels(codes, "50 %", rng, most=_LONGEST))
        if len(some) >= _FEWEST // 2:
            trials.append(_try(number, fold, "inside", some, some)[0])
    return trials


def _try(
    number: int, fold: FittedFold, stream: str, seen: Integers, ahead: Integers
) -> tuple[Trial, Adaptation]:
    """Adapt to some rows of a left-out source, and ask the experts about others."""
    knowledge, ahead = fold.knowledge, ahead[:_PREDICTED]
    settings = row_settings(knowledge.model.n_classes)
    state = begin(knowledge, settings, label_shift=fold.label_shift)
    state = absorb(knowledge, state, fold.X[seen], np.ones(len(seen)), whole=True)
    summary, X = summarise(state), fold.X[ahead]
    adaptation = adapt(knowledge, state).adapted
    counts = np.bincount(fold.codes[seen], minlength=knowledge.model.n_classes)
    true = explain_as(knowledge, summary, normalise_proportions(counts.astype(np.float64)))
    raw = fold.knowledge.plain.raw_logs(X)
    found = adaptation.explanations
    adapting = [one for one in found if one.adapts]
    logs = iter(expert_logs(knowledge, [true, *adapting], X, raw))
    trial = Trial(
        fold=number,
        stream=stream,
        true_logs=next(logs),
        log_weights=np.log([max(one.weight, 1e-300) for one in found]),
        logs=tuple(next(logs) if one.adapts else None for one in found),
        unadapted=unadapted_logits(knowledge, X, raw),
        agreements=adaptation.agreements,
        codes=fold.codes[ahead],
    )
    return trial, adaptation
