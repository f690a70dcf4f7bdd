"""How far to trust which expert, learned by playing each source as a target.

Every source in turn is left out, and what the others teach is tried on it: as a stream in the mix of
classes that it has, shuffled and class by class, and in other mixes. Two things are learned from the
labels there, and nothing else: the weights of the experts for a target of which every class was seen,
and for one that has just begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import softmax

from baryflow.estimators.adaptation import (
    EVEN,
    EXPERTS,
    ONLINE_STEPS,
    PROBABILITY_FLOOR,
    Adapted,
    Options,
)
from baryflow.estimators.decision import SOURCE_ALONE, Decision
from baryflow.estimators.sources import SourceModel, SourceOptions
from baryflow.estimators.target import absorb, new_summary, summarise_whole, summary_settings
from baryflow.validation import Floats, Integers

#: Rows of one class in a run of a stream.
_RUN = 20
#: What is played: mixes of classes and orders.
PLAYS = (
    ("as they are", "shuffled"),
    ("as they are", "class by class"),
    ("80 % of one class", "shuffled"),
    ("half of the classes", "shuffled"),
    ("one class", "shuffled"),
)
#: Rows of the first batch of a stream that is played, the fewest that are worth it, and the most.
_FIRST_BATCH, _FEWEST, _LONGEST = 32, 40, 1000
#: Rows of the sources used to fit the classifiers that play the game.
_MAX_ROWS = 6000
#: A difference on sources left out is believed if it is more than a twentieth of the errors, and for the
#: weights of the experts more than a point of accuracy: a source left out may be much farther away than
#: a target, or not at all away when an encoder was trained on it.
_POINT, _PART = 0.01, 0.05
#: Weights of the experts looked at: from the likeliest to nearly even.
_EVENNESS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
#: A guess is late if this part of the stream or more comes after it in one piece, the stream being cut
#: by doubling: with half of its rows seen.
_LATE = 0.3
_QUANTILES = 1001
#: Steps from the likeliest of them to not adapting.
_BOLDNESS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)


@dataclass(frozen=True, eq=False)
class _Play:
    """A source that is left out, and the model of the others."""

    model: SourceModel
    X: Floats
    y: Integers


@dataclass(frozen=True, eq=False)
class _Guess:
    """The next rows of a stream that is played, and what is said of them."""

    stream: int
    seen: float  # share of the classes
    part: float  # of the stream until the next guess
    logs: Floats  # of the experts and of the source classifier, (5, n, n_classes)
    y: Integers
    remoteness: Floats


def decide(
    rows: list[Floats],
    codes: list[Integers],
    n_classes: int,
    source_options: SourceOptions,
    options: Options,
    weights: Sequence[float] | None,
) -> Decision:
    """Leave one source out at a time and learn what serves it; `weights` that are given stay.

    The weights are those with the lowest negative log-likelihood on the sources left out: for the end
    made as even as costs no accuracy that is believed, for the beginning as near to not adapting.
    """
    # A source that plays a target has its own mix, not the one that is expected of the target.
    plays = _plays(rows, codes, n_classes, replace(source_options, class_prior=None))
    if not plays:
        why = (
            "there is one source only" if len(rows) < 2 else "every source has a class that no other has"
        )
        if n_classes < 2:
            why = "there is one class only"
        return Decision(
            weights=tuple(weights or EVEN),
            reason=f"{why}, so nothing can be left out to see whether adapting helps",
        )
    last = _choose_weights(plays, options) if weights is None else tuple(weights)
    guesses = [
        guess
        for number, (mix, order) in enumerate(PLAYS)
        for play in plays
        for guess in _stream(play, options, last, number, mix, order)
    ]
    orders = [guess for guess in guesses if PLAYS[guess.stream][0] == "as they are"]
    if not orders:
        return Decision(weights=last, reason="the sources have too few rows to play a target")
    first = _choose_beginning(orders, last)
    decision = Decision(True, last, first, "nothing was clearly better on sources left out")
    scores = _scores(guesses, decision)
    before, after = (float(np.mean([score[k] for score in scores[:2]])) for k in (1, 2))
    # Late in streams as they are a target is known as well as it gets.
    far = np.concatenate(
        [g.remoteness for g in orders if g.part >= _LATE] or [g.remoteness for g in orders]
    )
    remote = tuple(np.quantile(far, np.linspace(0.0, 1.0, _QUANTILES)).tolist())
    if after < before - max(_POINT, _PART * (1.0 - before)):
        why = "adapting lost against the source classifier on sources left out"
        return replace(decision, adapts=False, reason=why, plays=scores, remoteness=remote)
    return replace(decision, plays=scores, remoteness=remote)


def _plays(
    rows: list[Floats], codes: list[Integers], n_classes: int, options: SourceOptions
) -> list[_Play]:
    if len(rows) < 2 or n_classes < 2:
        return []
    found = []
    for left_out in range(len(rows)):
        rest = [i for i in range(len(rows)) if i != left_out]
        if len(np.unique(np.concatenate([codes[i] for i in rest]))) < n_classes:
            continue  # a class that only this source has cannot be learned from the others
        kept = _subsample([rows[i] for i in rest], [codes[i] for i in rest])
        model = SourceModel.fit(*kept, n_classes, options)
        found.append(_Play(model, rows[left_out], codes[left_out]))
    return found


def _choose_weights(plays: list[_Play], options: Options) -> tuple[float, ...]:
    """Return the most even weights of the experts that are not worse than the best.

    The experts are asked with the mix known: finding it is not what they are judged by.
    """
    logs, answers = [], []
    for play in plays:
        turn = np.random.default_rng(0).permutation(len(play.y))[:_LONGEST]
        X = play.X[turn]
        counts = np.bincount(play.y[turn], minlength=play.model.n_classes)
        shares = (counts + play.model.prior.mean) / (len(turn) + 1.0)
        summary = summarise_whole(play.model, X)
        adapted = Adapted(play.model, summary, options, n_steps=ONLINE_STEPS, shares=shares)
        tables = adapted.experts(X, play.model.pooled_proba(X))
        logs.append(np.log(np.stack(tables) + PROBABILITY_FLOOR))
        answers.append(play.y[turn])
    candidates = [_likeliest_weights(logs, answers, evenness) for evenness in _EVENNESS] + [EVEN]
    accuracy = [
        np.mean([_right(weights, table, y) for table, y in zip(logs, answers, strict=True)])
        for weights in candidates
    ]
    return candidates[_as_good(np.array(accuracy), _POINT)]


def _choose_beginning(guesses: list[_Guess], last: tuple[float, ...]) -> tuple[float, ...]:
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
    likeliest = np.array(_likeliest_weights(logs, answers, _EVENNESS[0], parts))
    candidates = [
        tuple((step * likeliest + (1.0 - step) * np.array(SOURCE_ALONE)).tolist()) for step in _BOLDNESS
    ]
    accuracy = [
        np.average(
            [_right((*weights, 1.0), t, y) for t, y in zip(logs, answers, strict=True)], weights=parts
        )
        for weights in candidates
    ]
    return candidates[_as_good(np.array(accuracy))]


def _as_good(accuracy: Floats, point: float = 0.0) -> int:
    """Return the last that is not worse than the best by a difference that is believed."""
    best = float(accuracy.max())
    return int(np.flatnonzero(accuracy >= best - max(point, _PART * (1.0 - best)))[-1])


def _right(weights: Sequence[float], logs: Floats, y: Integers) -> float:
    return float((np.tensordot(weights, logs, 1).argmax(axis=1) == y).mean())


def _scores(guesses: list[_Guess], decision: Decision) -> tuple[tuple[str, float, float], ...]:
    """Return the accuracy of the source classifier and of the adapted one in each kind of stream."""
    found = []
    for number, (mix, order) in enumerate(PLAYS):
        mine = [guess for guess in guesses if guess.stream == number]
        if mine:
            parts = [guess.part for guess in mine]
            before = [_right((0.0,) * len(EXPERTS) + (1.0,), g.logs, g.y) for g in mine]
            after = [_right(decision.at(g.seen), g.logs, g.y) for g in mine]
            found.append(
                (
                    f"{mix}, {order}",
                    float(np.average(before, weights=parts)),
                    float(np.average(after, weights=parts)),
                )
            )
    return tuple(found)


def _likeliest_weights(
    logs: list[Floats], answers: list[Integers], evenness: float, parts: Floats | None = None
) -> tuple[float, ...]:
    """Minimise the mean negative log-likelihood over weights on the simplex, and over a temperature.

    −evenness · mean log weight is added, which keeps every expert in the game. With `parts`, the weights
    of the tables in the mean, the last of each table's logs is added as it is.
    """
    from scipy.optimize import minimize

    n = len(logs[0]) - (parts is not None)
    share = np.full(len(logs), 1.0 / len(logs)) if parts is None else parts / parts.sum()

    def cost(unknown: Floats) -> tuple[float, Floats]:
        heat, weights = np.exp(unknown[0]), softmax(unknown[1:])
        value, to_heat, slope = 0.0, 0.0, np.zeros(n)
        for table, y, part in zip(logs, answers, share, strict=True):
            total = np.tensordot(weights, table[:n], 1)
            if parts is not None:
                total = total + table[n]
            rows = np.arange(len(y))
            scaled = heat * total
            scaled = scaled - scaled.max(axis=1, keepdims=True)
            scaled -= np.log(np.exp(scaled).sum(axis=1, keepdims=True))
            found = np.exp(scaled)
            value -= part * float(scaled[rows, y].mean())
            to_heat -= part * heat * float((total[rows, y] - (found * total).sum(axis=1)).mean())
            slope -= part * (table[:n, rows, y] - (found * table[:n]).sum(axis=2)).mean(axis=1)
        value -= evenness * float(np.log(n * weights).mean())
        to_weights = heat * slope - evenness / n / weights
        return value, np.append(to_heat, weights * (to_weights - weights @ to_weights))

    found = minimize(cost, np.zeros(n + 1), jac=True, method="L-BFGS-B")
    return tuple(float(w) for w in softmax(found.x[1:]))


def _stream(
    play: _Play, options: Options, weights: Sequence[float], number: int, mix: str, order: str
) -> list[_Guess]:
    """Play a source as a stream; guess its next rows after every doubling."""
    model = play.model
    rng = np.random.default_rng([number, len(play.y)])
    rows = resampled(play.y, mix, rng)
    if len(rows) < _FEWEST:
        return []
    turn = rows[stream_order(play.y[rows], order.split(maxsplit=1)[0], rng)]
    summary = new_summary(
        model, summary_settings(model.n_classes, full_covariance=model.directions is not None)
    )
    cuts = [0, _FIRST_BATCH]
    while 2 * cuts[-1] < len(turn):
        cuts.append(2 * cuts[-1])
    cuts.append(len(turn))
    guesses = []
    for start, end, after in zip(cuts, cuts[1:], cuts[2:], strict=False):
        absorb(model, summary, play.X[turn[start:end]])
        adapted = Adapted(model, summary, options, weights, n_steps=ONLINE_STEPS)
        some = turn[end : min(after, end + max(2 * _FIRST_BATCH, len(turn) // 8))]
        X, pooled = play.X[some], model.pooled_proba(play.X[some])
        tables = [*adapted.experts(X, pooled), model.given_prior(pooled)]
        logs = np.log(np.stack(tables) + PROBABILITY_FLOOR)
        part = (after - end) / len(turn)
        guesses.append(_Guess(number, adapted.seen, part, logs, play.y[some], adapted.remoteness(X)))
    return guesses


def resampled(y: Integers, mix: str, rng: np.random.Generator) -> Integers:
    """Return numbers of rows in which the classes are mixed as said."""
    everything = rng.permutation(len(y))
    classes, counts = np.unique(y, return_counts=True)
    if mix == "as they are":
        return everything[:_LONGEST]
    if mix == "half of the classes":
        some = rng.permutation(classes)[: max(1, len(classes) // 2)]
        return everything[np.isin(y[everything], some)][:_LONGEST]
    frequent = rng.choice(classes[counts >= 0.5 * np.median(counts)])
    mine = everything[y[everything] == frequent][:_LONGEST]
    if mix == "one class":
        return np.asarray(mine)
    others = everything[y[everything] != frequent][: len(mine) // 4]
    return np.asarray(rng.permutation(np.concatenate([mine, others])))


def _numbered(y: Integers) -> Integers:
    """Return the number of each row within its class."""
    within = np.empty(len(y), dtype=np.intp)
    for c in np.unique(y):
        within[y == c] = np.arange((y == c).sum())
    return within


def _subsample(rows: list[Floats], codes: list[Integers]) -> tuple[list[Floats], list[Integers]]:
    """Return every k-th row of each class and source, so that at most about _MAX_ROWS are left."""
    step = -(-sum(map(len, rows)) // _MAX_ROWS)
    if step == 1:
        return rows, codes
    kept_rows, kept_codes = [], []
    for X, y in zip(rows, codes, strict=True):
        keep = _numbered(y) % step == 0
        kept_rows.append(X[keep])
        kept_codes.append(y[keep])
    return kept_rows, kept_codes


def stream_order(y: Integers, order: str, rng: np.random.Generator) -> Integers:
    """Return the rows shuffled, class by class, or in runs of one class."""
    if order == "shuffled":
        return rng.permutation(len(y))
    classes = [rng.permutation(np.flatnonzero(y == c)) for c in rng.permutation(np.unique(y))]
    if order == "class":
        return np.concatenate(classes)
    runs = [rows[i : i + _RUN] for rows in classes for i in range(0, len(rows), _RUN)]
    return np.concatenate([runs[i] for i in rng.permutation(len(runs))])
