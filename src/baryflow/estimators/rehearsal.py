"""How far to trust which expert, learned by playing each source as a target.

Every source in turn is left out, and what the others teach is tried on it: as a stream, shuffled and
class by class. Three things are learned from the labels there, and nothing else: the weights of the
experts for a target of which every class was seen, and for one that has just begun, and whether to
adapt at all. How remote the rows of such a source are is learned without them.

Of many sources, classes and rows only some play: what is learned are a few weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from baryflow.core.discriminant import Scatter
from baryflow.estimators.adaptation import EVEN, EXPERTS, PROBABILITY_FLOOR, Options, adapt
from baryflow.estimators.decision import SOURCE_ALONE, Decision
from baryflow.estimators.experts import PART, POINT, accuracy_of, as_good, likeliest_weights
from baryflow.estimators.orders import number_within, stream_order
from baryflow.estimators.source_model import SourceModel
from baryflow.estimators.source_table import SourceTable
from baryflow.estimators.sources import SourceOptions, learn_sources
from baryflow.estimators.target import Target, row_settings
from baryflow.estimators.threads import one_thread
from baryflow.validation import Floats, Integers

#: What is played: the orders of streams.
PLAYS = ("shuffled", "class by class")
#: Sources that play a target at most, sources from which they are learned, and classes.
MOST_PLAYS, _MOST_SOURCES, _MOST_CLASSES = 8, 8, 40
#: Rows of the first batch of a stream that is played, the fewest that are worth it, and the most.
_FIRST_BATCH, _FEWEST, _LONGEST = 32, 40, 1000
#: Rows of the sources used to fit the classifiers that play the game, and steps of their optimiser.
_MAX_ROWS, _CLASSIFIER_STEPS = 6000, 50
#: Weights of the experts looked at: from the likeliest to nearly even.
_EVENNESS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
#: A guess is late if this part of the stream or more comes after it in one piece, the stream being cut
#: by doubling: with half of its rows seen.
_LATE = 0.3
_QUANTILES = 1001
#: Steps from the likeliest of them to not adapting.
_BOLDNESS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)


#: Told how much is done of how much, and of what.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, eq=False)
class Player:
    """A source that will be left out, and the rows of the others to learn from."""

    rows: list[Floats]
    codes: list[Integers]
    n_classes: int
    options: SourceOptions
    scatter: Scatter | None  # of the others, if it is known already
    X: Floats
    y: Integers


@dataclass(frozen=True, eq=False)
class Play:
    """A source that is left out, and the model of the others."""

    model: SourceModel
    X: Floats
    y: Integers


@dataclass(frozen=True, eq=False)
class Guess:
    """The next rows of a stream that is played, and what is said of them."""

    stream: int
    seen: float  # share of the classes
    part: float  # of the stream until the next guess
    logs: Floats  # of the experts and of the source classifier, (5, n, n_classes)
    y: Integers
    remoteness: Floats


def rehearse(
    rows: list[Floats],
    codes: list[Integers],
    n_classes: int,
    source_options: SourceOptions,
    options: Options,
    weights: Sequence[float] | None,
    *,
    scatter: Scatter | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Decision:
    """Leave one source out at a time and learn what serves it; `weights` that are given stay.

    The weights are those with the lowest negative log-likelihood on the sources left out: for the end
    made as even as costs no accuracy that is believed, for the beginning as near to not adapting.

    Parameters
    ----------
    rows, codes : lists of arrays
        Complete rows and class numbers of every source.
    scatter : Scatter, optional
        Of all sources, if it is known already.
    n_jobs : int, optional
        Processes that play at the same time, as joblib has it; the outcome is the same.
    progress : callable, optional
        Called as ``progress(done, total, what)``.
    """
    players = cast(rows, codes, n_classes, source_options, scatter)
    if not players:
        return unplayed(len(rows), n_classes, weights)
    total = 2 * len(players)
    plays: list[Play] = []
    tables: list[Any] = []
    work = Parallel(n_jobs=n_jobs, return_as="generator")
    for play, table in work(delayed(learn_play)(player, options, weights) for player in players):
        plays.append(play)
        tables.append(table)
        if progress is not None:
            progress(len(plays), total, "learning from the other sources")
    last = choose_weights(tables) if weights is None else tuple(weights)
    found: list[list[Guess]] = []
    for guesses in work(delayed(perform)(play, options, last) for play in plays):
        found.append(guesses)
        if progress is not None:
            progress(len(plays) + len(found), total, "playing sources as targets")
    return decide(found, last)


def unplayed(n_sources: int, n_classes: int, weights: Sequence[float] | None) -> Decision:
    """Decide where nobody can play."""
    reason = "every source has a class that no other has, so nothing can be left out"
    if n_sources < 2 or n_classes < 2:
        what = "one source" if n_sources < 2 else "one class"
        reason = f"there is {what} only, so nothing can be left out"
    return Decision(weights=tuple(weights or EVEN), reason=f"{reason} to see whether adapting helps")


def decide(found: list[list[Guess]], last: tuple[float, ...]) -> Decision:
    """Choose the weights at the beginning, and whether to adapt at all, from what each play gave."""
    guesses = [g for number in range(len(PLAYS)) for some in found for g in some if g.stream == number]
    if not guesses:
        return Decision(weights=last, reason="the sources have too few rows to play a target")
    first = _choose_beginning(guesses, last)
    decision = Decision(True, last, first, "not adapting was not clearly better on sources left out")
    scores = _score(guesses, decision)
    before, after = (float(np.mean([score[k] for score in scores])) for k in (1, 2))
    # Late in a stream a target is known as well as it gets.
    far = np.concatenate(
        [g.remoteness for g in guesses if g.part >= _LATE] or [g.remoteness for g in guesses]
    )
    remote = tuple(np.quantile(far, np.linspace(0.0, 1.0, _QUANTILES)).tolist())
    decision = replace(decision, plays=scores, remoteness=remote)
    if after < before - max(POINT, PART * (1.0 - before)):
        why = "adapting lost against the source classifier on sources left out"
        return replace(decision, adapts=False, reason=why)
    return decision


def cast(
    rows: list[Floats],
    codes: list[Integers],
    n_classes: int,
    options: SourceOptions,
    scatter: Scatter | None,
) -> list[Player]:
    """Return who plays: nobody, if there is nothing that can be left out."""
    if len(rows) < 2 or n_classes < 2:
        return []
    # A source that plays a target has its own mix, not the one that is expected of the target.
    options = replace(options, class_prior=None, classifier_steps=_CLASSIFIER_STEPS)
    if n_classes > _MOST_CLASSES:
        rows, codes = _some_classes(rows, codes, n_classes)
        n_classes, scatter = _MOST_CLASSES, None
    numbers = np.arange(len(rows))
    if len(rows) > _MOST_SOURCES + 1:
        scatter = None
    table = None if scatter is None else SourceTable.of(rows, codes, n_classes)
    found: list[Player] = []
    for left_out in _spread_out(numbers, MOST_PLAYS):
        rest = _spread_out(np.roll(numbers, -left_out)[1:], _MOST_SOURCES)
        if scatter is not None:
            rest = np.delete(numbers, left_out)
        if len({c for i in rest for c in codes[i].tolist()}) < n_classes:
            continue  # a class that only this source has cannot be learned from the others
        kept = _thin_out([rows[i] for i in rest], [codes[i] for i in rest])
        X, y = rows[left_out], codes[left_out]
        known = scatter
        if scatter is not None and table is not None:
            known = scatter - Scatter.of(table.standardise(X, left_out), y, n_classes)
        found.append(Player(*kept, n_classes, options, known, X, y))
    return found


def _spread_out(numbers: Integers, most: int) -> Integers:
    """Return at most so many numbers, as far apart as can be."""
    if len(numbers) <= most:
        return numbers
    return numbers[np.linspace(0, len(numbers) - 1, most).astype(np.intp)]


def _some_classes(
    rows: list[Floats], codes: list[Integers], n_classes: int
) -> tuple[list[Floats], list[Integers]]:
    """Return the rows of some classes, numbered anew, of the sources that have any."""
    chosen = np.random.default_rng(0).permutation(n_classes)[:_MOST_CLASSES]
    number = np.full(n_classes, -1)
    number[np.sort(chosen)] = np.arange(len(chosen))
    kept = [(X, y, number[y] >= 0) for X, y in zip(rows, codes, strict=True)]
    kept = [(X, y, some) for X, y, some in kept if some.any()]
    return [X[some] for X, _, some in kept], [number[y[some]] for _, y, some in kept]


def _thin_out(rows: list[Floats], codes: list[Integers]) -> tuple[list[Floats], list[Integers]]:
    """Return every k-th row of each class and source, so that at most about _MAX_ROWS are left."""
    step = -(-sum(map(len, rows)) // _MAX_ROWS)
    if step == 1:
        return rows, codes
    kept = [number_within(y) % step == 0 for y in codes]
    return (
        [X[some] for X, some in zip(rows, kept, strict=True)],
        [y[some] for y, some in zip(codes, kept, strict=True)],
    )


@one_thread  # bits depend on it, and another process does not share the limit
def learn_play(
    player: Player, options: Options, weights: Sequence[float] | None
) -> tuple[Play, tuple[Floats, Integers] | None]:
    """Learn from the sources that are not left out; ask the experts, if their weights are wanted.

    The experts are asked with the mix known: finding it is not what they are judged by.
    """
    n_classes, X, y = player.n_classes, player.X, player.y
    model = learn_sources(player.rows, player.codes, n_classes, player.options, player.scatter)
    play = Play(model, X, y)
    if weights is not None:
        return play, None
    turn = np.random.default_rng(0).permutation(len(y))[:_LONGEST]
    counts = np.bincount(y[turn], minlength=n_classes)
    shares = (counts + model.prior.mean) / (len(turn) + 1.0)
    target = _new_target(model)
    target.absorb_whole(X[turn])
    adaptation = adapt(model, target.seen(), options, shares=shares)
    tables = adaptation.experts(X[turn], model.pooled_proba(X[turn]))
    return play, (np.log(np.stack(tables) + PROBABILITY_FLOOR), y[turn])


def _new_target(model: SourceModel) -> Target:
    return Target(model, row_settings(model.n_classes, view=model.view is not None))


def choose_weights(tables: list[tuple[Floats, Integers]]) -> tuple[float, ...]:
    """Return the most even weights of the experts that are not worse than the best."""
    logs, answers = [table for table, _ in tables], [y for _, y in tables]
    candidates = [likeliest_weights(logs, answers, evenness) for evenness in _EVENNESS] + [EVEN]
    accuracy = [
        np.mean([accuracy_of(weights, table, y) for table, y in zip(logs, answers, strict=True)])
        for weights in candidates
    ]
    return candidates[as_good(np.array(accuracy), POINT)]


def _choose_beginning(guesses: list[Guess], last: tuple[float, ...]) -> tuple[float, ...]:
    """Return the weights at the beginning of a stream that are nearest to not adapting.

    From the source classifier alone to the likeliest weights: the first that is not worse than the best.
    """
    logs, answers = [], []
    for guess in guesses:
        # What the weights at the beginning decide, and what those of the end do in any case.
        fixed = np.tensordot((*(guess.seen * weight for weight in last), 0.0), guess.logs, 1)
        logs.append(np.concatenate([(1.0 - guess.seen) * guess.logs, fixed[None]]))
        answers.append(guess.y)
    parts = np.array([guess.part for guess in guesses])
    likeliest = np.array(likeliest_weights(logs, answers, _EVENNESS[0], parts))
    candidates = [
        tuple((step * likeliest + (1.0 - step) * np.array(SOURCE_ALONE)).tolist()) for step in _BOLDNESS
    ]
    accuracy = [
        np.average(
            [accuracy_of((*weights, 1.0), t, y) for t, y in zip(logs, answers, strict=True)],
            weights=parts,
        )
        for weights in candidates
    ]
    return candidates[as_good(np.array(accuracy))]


def _score(guesses: list[Guess], decision: Decision) -> tuple[tuple[str, float, float], ...]:
    """Return the accuracy of the source classifier and of the adapted one in each kind of stream."""
    found = []
    for number, order in enumerate(PLAYS):
        mine = [guess for guess in guesses if guess.stream == number]
        if mine:
            parts = [guess.part for guess in mine]
            before = [accuracy_of((0.0,) * len(EXPERTS) + (1.0,), g.logs, g.y) for g in mine]
            after = [accuracy_of(decision.at(g.seen), g.logs, g.y) for g in mine]
            first, last = (float(np.average(right, weights=parts)) for right in (before, after))
            found.append((order, first, last))
    return tuple(found)


@one_thread
def perform(play: Play, options: Options, weights: Sequence[float]) -> list[Guess]:
    """Play a source as streams; guess the next rows of each after every doubling."""
    model = play.model
    guesses = []
    for number, order in enumerate(PLAYS):
        rng = np.random.default_rng([number, len(play.y)])
        some = rng.permutation(len(play.y))[:_LONGEST]
        if len(some) < _FEWEST:
            continue
        turn = some[stream_order(play.y[some], order.split(maxsplit=1)[0], rng)]
        target = _new_target(model)
        cuts = [0, _FIRST_BATCH]
        while 2 * cuts[-1] < len(turn):
            cuts.append(2 * cuts[-1])
        cuts.append(len(turn))
        for start, end, after in zip(cuts, cuts[1:], cuts[2:], strict=False):
            target.absorb(play.X[turn[start:end]])
            adaptation = adapt(model, target.seen(), options, weights)
            ahead = turn[end : min(after, end + max(2 * _FIRST_BATCH, len(turn) // 8))]
            X, pooled = play.X[ahead], model.pooled_proba(play.X[ahead])
            tables = [*adaptation.experts(X, pooled), model.given_prior(pooled)]
            logs = np.log(np.stack(tables) + PROBABILITY_FLOOR)
            part = (after - end) / len(turn)
            far = adaptation.remoteness(X)
            guesses.append(Guess(number, adaptation.seen, part, logs, play.y[ahead], far))
    return guesses
