"""Follow a target: absorb its rows, adapt, learn labels and baselines, forget.

Each function takes what the sources taught and a state, and returns the next state. If it fails, the
state before it is what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np

from baryflow.core.summary import Settings, StreamSummary
from baryflow.estimators._adapt import adapt
from baryflow.estimators._explanations import Baseline
from baryflow.estimators._feedback import fit_correction
from baryflow.estimators._predict import (
    Predicted,
    assess,
    count_predicted,
    find_answers,
    judge,
    judge_again,
    name_rows,
    predict_explained,
    predict_proba,
    predict_unadapted,
)
from baryflow.estimators._source_table import varying
from baryflow.estimators._sources import SourceKnowledge
from baryflow.estimators._state import TargetState, begin, clean, count, see_scale
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats, Integers

#: Adapt after this many new rows: as a part of those before, and at most.
_GROWTH, _MOST_NEW = 0.25, 2048.0
#: Predictions for labelled rows that sharpen the estimate of the accuracy: the last ones.
_VERDICTS = 100
#: Rows with labels, and rows of a baseline, that are remembered by a short hash, so that none counts
#: twice: the last.
_JUDGED = 10_000
#: Rows without a label whose predictions a correction should not change.
_ANCHORS = 100
#: The correction is fitted again when there are this many times as many rows, or labels: after each of
#: the first 50 labels.
_ROW_GROWTH, _LABEL_GROWTH = 1.25, 1.02

# -- rows ------------------------------------------------------------------------------------------


def follow(
    sources: SourceKnowledge,
    state: TargetState,
    raw: Floats,
    weights: Floats,
    *,
    whole: bool = False,
    positions: Integers | None = None,
    predicted: Predicted | None = None,
) -> TargetState:
    """Absorb rows, adapt if enough of them are new, and judge the predictions for them.

    With `whole` there are no other rows of the target. Without `positions` rows are numbered. The rows
    are judged as they were `predicted`; without that, or after adapting, they are predicted again. That
    waits until the figures are read, unless the history records them.
    """
    counts = weights > 0.0  # a row without weight is no row: it is not judged either
    raw, weights = raw[counts], weights[counts]
    if not len(raw):
        return state
    n, positions = state.n_given, None if positions is None else positions[counts]
    positions = np.arange(n, n + len(raw)) if positions is None else positions
    recent = state.recent if whole else state.recent.plus(raw, positions)
    state = replace(state, n_given=n + len(raw), n_last=len(raw), recent=recent)
    state = absorb(sources, state, raw, weights, whole=whole)
    if due := state.n_new > 0.0 and rows_until_adapting(state) <= 0.0:
        state = update(sources, state)
    if due or whole:
        state = judge(sources, state, raw)
    elif predicted is not None:
        state = count_predicted(sources, state, predicted.some(counts))
    elif state.adaptation is not None:
        state = replace(state, reliability=None, novel=None)
    return _see(sources, state.recorded() if due else state, raw)


def rows_until_adapting(state: TargetState) -> float:
    """Return how many more rows the next adaptation waits for."""
    return min(_GROWTH * state.learned_at, _MOST_NEW) - state.n_new


def absorb(
    sources: SourceKnowledge, state: TargetState, raw: Floats, weights: Floats, *, whole: bool = False
) -> TargetState:
    """Count rows, clean them, and summarise them. Rows are copied."""
    state = count(sources, state, raw)
    rows, lost = clean(sources, state, raw, whole=whole)
    return summarise_rows(sources, state, rows[~lost], weights[~lost], whole=whole)


def summarise_rows(
    sources: SourceKnowledge, state: TargetState, rows: Floats, weights: Floats, *, whole: bool = False
) -> TargetState:
    """Merge complete rows into the summary."""
    if not len(rows):
        return state
    summary = state.rows.copy()
    if whole:
        summary = see_stds(sources, summary, rows.std(axis=0))
    summary.update(rows, weights)
    return replace(state, rows=summary, n_new=state.n_new + float(weights.sum()))


def see_stds(sources: SourceKnowledge, rows: StreamSummary, stds: Floats) -> StreamSummary:
    """Return a summary that merges components as fits a target with these standard deviations."""
    return see_scale(sources, rows, varying(stds, sources.model.scale))


def update(sources: SourceKnowledge, state: TargetState) -> TargetState:
    """Adapt, and fit the correction again if many rows are new."""
    state = adapt(sources, state)
    if state.corrected_at <= state.mass < _ROW_GROWTH * state.corrected_at:
        return state
    return _correct(sources, state)


def _see(sources: SourceKnowledge, state: TargetState, raw: Floats) -> TargetState:
    """Let rows become familiar."""
    if (adaptation := state.adaptation) is None:
        return state
    rows, lost = clean(sources, state, raw)
    if lost.all():
        return state
    familiar = state.familiar.see(rows[~lost], lambda X: name_rows(sources, adaptation, X))
    return replace(state, familiar=familiar)


# -- what people know ------------------------------------------------------------------------------


def learn_labels(
    sources: SourceKnowledge,
    state: TargetState,
    raw: Floats,
    codes: Integers,
    new_classes: tuple[Any, ...],
    *,
    random: bool,
) -> TargetState:
    """Learn labels of rows that were seen: weigh the explanations again, and fit the correction.

    Classes of the target alone, `new_classes`, are numbered after those of the sources. With `random`
    rows were chosen at random, whatever was predicted of them.
    """
    known = state.new_classes
    state = replace(
        _name_classes(sources, state, new_classes),
        labelled=state.labelled.plus(raw, codes, random=random),
        judged=_remember(state, _hash_rows(raw)),
        n_labels=state.n_labels + len(raw),
    )
    if state.new_classes != known or state.n_labels >= _LABEL_GROWTH * state.corrected_labels:
        if state.mass > 0.0 and (state.labelled.codes < sources.model.n_classes).any():
            state = adapt(sources, state)
        state = _correct(sources, state)
    return judge_again(sources, state)


def certify(
    sources: SourceKnowledge,
    state: TargetState,
    raw: Floats,
    codes: Integers,
    unknown: float | None = None,
) -> TargetState:
    """Hold labels of rows chosen at random against what is predicted of the rows now.

    Classes of the target alone that are not known yet have larger numbers than all others. A row whose
    label is or was known proves nothing: the prediction has learned it. A row that is more novel than
    `unknown` has no class as its prediction, which is not right.
    """
    hashes, known = _hash_rows(raw), set(state.judged.tolist())
    fresh = list({one: i for i, one in enumerate(hashes.tolist()) if one not in known}.values())
    if not fresh:
        return state
    raw, codes = raw[fresh], codes[fresh]
    rows = clean(sources, state, raw)[0]
    other = ours = predict_unadapted(sources, rows)
    if state.adaptation is not None:
        ours = predict_explained(sources, state.adaptation, rows)
    shown = predict_proba(sources, state, rows)
    right = [one.argmax(axis=1) == codes for one in (shown, other, ours)]
    named = np.ones(len(raw), dtype=bool)
    if unknown is not None:
        named = assess(sources, state, raw)[1] <= unknown
    harmed = state.certificate.harm
    state = replace(
        state,
        certificate=state.certificate.plus(right[0] & named, right[1], right[2]),
        judged=_remember(state, hashes[fresh]),
        verdicts=np.append(state.verdicts, right[0])[-_VERDICTS:],
    )
    if state.certificate.harm != harmed:
        state = _correct(sources, state)
    return judge_again(sources, state)


def set_baseline(sources: SourceKnowledge, state: TargetState, raw: Floats, code: int) -> TargetState:
    """Learn rows of the target that are known to be of one class of the sources.

    They are no rows of the stream: they only say how the target is calibrated. Rows that were given
    before do not count again.
    """
    before = next((one for one in state.baselines if one.code == code), None)
    hashes = _hash_rows(raw)
    if before is not None:
        new = ~np.isin(hashes, before.hashes)
        raw, hashes = raw[new], hashes[new]
    if not len(raw):
        return state
    state = count(sources, state, raw)
    rows, lost = clean(sources, state, raw, whole=True)
    if lost.all():
        raise InvalidInputError(
            "no row of the baseline can be read: all values are far outside of the sources"
        )
    found, hashes = Baseline.of(code, rows[~lost]), hashes[~lost]
    if before is not None:
        found, hashes = before.plus(found), np.append(before.hashes, hashes)
    found = replace(found, hashes=hashes[-_JUDGED:])
    others = tuple(one for one in state.baselines if one.code != code)
    state = replace(state, baselines=(*others, found))
    if state.mass > 0.0:
        return judge_again(sources, update(sources, state))
    committee = sources.committee
    if not (committee.adapts and committee.explains and state.label_shift):
        return state
    # Before the first row of the stream this is all that was seen of the target.
    seen = summarise_rows(sources, state, rows[~lost], np.ones(int((~lost).sum())), whole=True)
    return replace(state, adaptation=adapt(sources, seen).adaptation)


def _name_classes(
    sources: SourceKnowledge, state: TargetState, new_classes: tuple[Any, ...]
) -> TargetState:
    """Make these the classes that no source has: those there are, and perhaps more."""
    added = len(new_classes) - len(state.new_classes)
    if not added:
        return state
    n_classes = sources.model.n_classes + len(state.new_classes)
    columns = [*range(n_classes), *[-1] * added]
    history = state.history.rearrange(range(len(sources.model.domains)), columns)
    return replace(state, history=history, new_classes=new_classes)


def _correct(sources: SourceKnowledge, state: TargetState) -> TargetState:
    """Fit the correction to all labels."""
    if state.adaptation is None or not len(state.labelled):
        return state
    labelled = state.labelled
    rows = clean(sources, state, labelled.rows)[0]
    anchors = clean(sources, state, state.recent.rows[state.recent.spread(_ANCHORS)])[0]
    answers = find_answers(sources, state, rows)
    others = answers.some(slice(0))  # all rows were seen elsewhere, or there are anchors
    if len(anchors):
        others = find_answers(sources, state, anchors)
    correction = fit_correction(
        answers,
        labelled.codes,
        labelled.random,
        others,
        sources.model.n_classes + len(state.new_classes),
        sources.plain.statistics,
        state.correction,
    )
    return replace(
        state, correction=correction, corrected_at=state.mass, corrected_labels=state.n_labels
    )


def _remember(state: TargetState, hashes: Integers) -> Integers:
    """Return the hashes of the last rows with a label, with those of more rows."""
    known = dict.fromkeys([*state.judged.tolist(), *hashes.tolist()])
    return np.array(list(known)[-_JUDGED:], dtype=np.int64)


def _hash_rows(rows: Floats) -> Integers:
    """Return a short hash of each row."""
    digests = b"".join(blake2b(row.tobytes(), digest_size=8).digest() for row in rows)
    return np.frombuffer(digests, dtype="<i8").astype(np.int64)


# -- other ways to come to a state -----------------------------------------------------------------


def reconfigure(state: TargetState, settings: Settings, *, label_shift: bool) -> TargetState:
    """Return a state that is followed with other settings from now on, as far as they can change."""
    if settings == state.rows.settings and label_shift == state.label_shift:
        return state
    rows = state.rows.copy()
    rows.change(settings)
    return replace(state, rows=rows, label_shift=label_shift, learned_at=0.0)


def forget(sources: SourceKnowledge, state: TargetState, keep: float) -> TargetState:
    """Return a state in which the rows seen count `keep` times as much, or with 0 not at all."""
    if keep == 0.0:
        fresh = begin(sources, state.rows.settings, label_shift=state.label_shift)
        fresh.rows.n_rows = state.n_rows
        columns = range(sources.model.n_classes)
        return replace(
            fresh,
            history=state.history.rearrange(range(len(sources.model.domains)), columns),
            n_given=state.n_given,
            n_labels=state.n_labels,
        )
    if keep == 1.0 or not state.mass > 0.0:
        return state
    rows = state.rows.copy()
    rows.fade(keep)
    return update(sources, replace(state, rows=rows))


def rebind(
    sources: SourceKnowledge,
    fresh: TargetState,
    state: TargetState,
    places: tuple[Sequence[int], Sequence[int]],
    new_classes: tuple[Any, ...],
) -> TargetState:
    """Return a state as other sources see its target; `fresh` is one of theirs, before any row.

    `places` are the number of each source, and of each class, in `state`, -1 if it is new; the last of
    the classes are `new_classes`, which no source has.
    """
    codes_now = list(places[1])
    baselines = tuple(replace(one, code=codes_now.index(one.code)) for one in state.baselines)
    fresh = replace(fresh, baselines=baselines, tally=state.tally, units=state.units)
    if not state.mass > 0.0:
        return fresh
    fresh.rows.take_over(state.rows)
    codes = np.array([codes_now.index(code) for code in state.labelled.codes], dtype=np.intp)
    bound = replace(
        state,
        rows=fresh.rows,
        label_shift=fresh.label_shift,
        baselines=baselines,
        believable=None,
        n_new=0.0,
        learned_at=0.0,
        new_classes=new_classes,
        labelled=replace(state.labelled, codes=codes),
        correction=None,
        corrected_at=0.0,
        corrected_labels=0,
        familiar=replace(state.familiar, prior=fresh.familiar.prior),
        history=state.history.rearrange(*places),
    )
    return update(sources, bound)


def join(sources: SourceKnowledge, state: TargetState, seen: TargetState, rows: Floats) -> TargetState:
    """Absorb what was seen of the target elsewhere, and adapt; judge by some of its rows."""
    summary = (state if state.mass > 0.0 else seen).rows.copy()
    if state.mass > 0.0:
        summary.merge(seen.rows)
    else:
        summary.n_rows += state.n_rows  # those that were forgotten
    state = replace(
        state, rows=summary, tally=state.tally + seen.tally, units=seen.units, believable=None
    )
    state = replace(update(sources, state), n_last=0)  # the rows are not remembered
    return _see(sources, judge(sources, state, rows).recorded(), rows)
