"""What to do with a target, decided by playing each source as one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from baryflow.core.summary import Settings, StreamSummary
from baryflow.estimators.adaptation import (
    PROBABILITY_FLOOR,
    VOTERS,
    Adapted,
    Options,
    coverage_gap,
    target_moments,
)
from baryflow.estimators.sources import SourceModel, SourceOptions, spread
from baryflow.validation import Floats, Integers

#: Components kept of a target, for each class.
COMPONENTS_PER_CLASS = 3
#: Block steps after each batch of a stream, and offline.
ONLINE_STEPS, OFFLINE_STEPS = 3, 8
#: Batches at least that a source is cut into when it plays a stream, and rows of one class in a run.
_CHUNKS, _RUN = 12, 20
#: A point of accuracy lost weighs this many points gained.
_LOSS_WEIGHT = 4.0
#: Rows of the first batch of a stream that is played; later ones double until a chunk is reached.
_FIRST_BATCH = 32
#: If leaving a source out costs the sources' classifier less than this, there is hardly a shift between
#: them (perhaps because an encoder was trained on all), and that none needs adapting tells nothing. Then
#: adapting is taken to be worth as much on a whole target, and what is left to learn from the sources is
#: how much of a stream must be seen for that.
_BLIND = 0.05
#: Rows of the sources used to fit the classifiers that play the game.
_MAX_ROWS = 6000


@dataclass(frozen=True)
class Decision:
    """The options, and how complete a stream must look before they are trusted.

    Trust falls from 1 to 0 as the coverage gap rises from `threshold` to `threshold + width`;
    with a threshold of 0 or less there is none.
    """

    options: Options
    threshold: float = 0.5
    width: float = 0.25
    reason: str = "the default: there was nothing to decide from"
    #: Mean accuracy and negative log-likelihood of each alternative on the sources left out.
    scores: tuple[tuple[str, float, float], ...] = ()

    def trust(self, gap: float) -> float:
        """Return how far the adapted model is to be believed, 0 to 1."""
        if self.threshold <= 0.0:
            return 0.0
        return float(np.clip((self.threshold + self.width - gap) / self.width, 0.0, 1.0))


def summary_settings(n_classes: int, **changes: object) -> Settings:
    """Return how a target is summarised for the dictionary."""
    settings: dict[str, object] = {
        "max_components": COMPONENTS_PER_CLASS * n_classes,
        "resolution": 1,
        "full_covariance": True,
        "n_votes": n_classes,
    }
    return Settings(**(settings | changes))  # type: ignore[arg-type]


def new_summary(model: SourceModel, settings: Settings) -> StreamSummary:
    """Return the summary of a target of which nothing was seen yet."""
    metric = model.metric(model.scale) if settings.full_covariance else None
    return StreamSummary(len(model.centre), settings, np.random.default_rng(0), metric)


def absorb(model: SourceModel, summary: StreamSummary, X: Floats, weights: Floats | None = None) -> None:
    """Absorb complete target rows, looking through the view as the target's moments now have it."""
    weights = np.ones(len(X)) if weights is None else weights
    metric = model.metric(target_moments(model, summary)[1]) if summary.mass > 0.0 else None
    if metric is not None and summary.settings.full_covariance:
        summary.look_through(metric)
    summary.update(X, weights, model.pooled_proba(X) if summary.settings.n_votes else None)


def summarise_whole(model: SourceModel, X: Floats) -> StreamSummary:
    """Summarise target rows that are all at hand: their moments are known before the first merge."""
    settings = summary_settings(model.n_classes, full_covariance=model.directions is not None)
    summary = new_summary(model, settings)
    metric = model.metric(spread(X, model.scale))
    if metric is not None:
        summary.look_through(metric)
    summary.update(X, np.ones(len(X)), model.pooled_proba(X))
    return summary


def decide(
    rows: list[Floats],
    codes: list[Integers],
    n_classes: int,
    options: SourceOptions,
    default: Options,
    *,
    streams: bool,
) -> Decision:
    """Leave one source out at a time and choose what would have served it best.

    The alternatives are the source classifiers as they are ("do not adapt") and the combination of each
    with the adapted mixtures; the one with the lowest mean negative log-likelihood wins. With
    `streams`, the sources left out are also played as streams in three orders, and the
    threshold of trust is where gains stop outweighing losses.
    """
    if len(rows) < 2 or n_classes < 2:
        return Decision(default)
    alternatives = [
        Options("source" if kind == "source" else "combined", voter, default.proportions, default.votes)
        for kind in ("source", "combined")
        for voter in VOTERS
    ]
    models, accuracy, nll, gaps = [], [], [], []
    for left_out in range(len(rows)):
        rest = [i for i in range(len(rows)) if i != left_out]
        if len(np.unique(np.concatenate([codes[i] for i in rest]))) < n_classes:
            continue  # a class that only this source has cannot be learned from the others
        kept = _subsample([rows[i] for i in rest], [codes[i] for i in rest])
        model = SourceModel.fit(*kept, n_classes, options)
        X, y = rows[left_out], codes[left_out]
        summary = summarise_whole(model, X)
        pooled = model.pooled_proba(X)
        tables = [
            Adapted(model, summary, option, n_steps=OFFLINE_STEPS).predict_proba(X, pooled)
            for option in alternatives
        ]
        models.append((model, X, y))
        gaps.append(coverage_gap(model, summary))
        accuracy.append([float((t.argmax(axis=1) == y).mean()) for t in tables])
        nll.append([-float(np.log(t[np.arange(len(y)), y] + PROBABILITY_FLOOR).mean()) for t in tables])
    if not models:
        return Decision(default, reason="the default: every class is known from one source only")
    mean_accuracy, mean_nll = np.mean(accuracy, axis=0), np.mean(nll, axis=0)
    names = [f"{option.predictor} ({option.voter})" for option in alternatives]
    scores = tuple(
        (name, float(a), float(n)) for name, a, n in zip(names, mean_accuracy, mean_nll, strict=True)
    )
    best = int(mean_nll.argmin())
    chosen, credit = alternatives[best], 0.0
    why = (
        f"{names[best]} had the lowest negative log-likelihood (NLL) on sources left out, "
        f"{mean_nll[best]:.3f} against {mean_nll[0]:.3f} of the pooled source classifier"
    )
    if chosen.predictor == "source":
        inside = _accuracy_inside(rows, codes, n_classes, options)
        found = float(mean_accuracy[alternatives.index(default)] - mean_accuracy[0])
        if mean_accuracy[0] > inside - _BLIND and found > -_BLIND:
            why = (
                "the default: the sources' classifier is nearly as good on a source left out "
                f"({mean_accuracy[0]:.1%}) as on one it knows ({inside:.1%}); with so little shift "
                "between them the sources cannot tell what helps against one"
            )
            chosen = default
            credit = max(0.0, _BLIND - found)
    threshold = 1.0
    if streams:
        untouched = chosen == Options("source", "pooled", default.proportions, default.votes)
        threshold = 0.0 if untouched else _calibrate(models, chosen, credit)
    width = max(0.02, *gaps)
    return Decision(chosen, threshold, width, why, scores)


def _accuracy_inside(
    rows: list[Floats], codes: list[Integers], n_classes: int, options: SourceOptions
) -> float:
    """Return how good the sources' classifier is where half of every source and class is known."""
    halves = [_numbered(y) % 2 == 0 for y in codes]
    known = [(X[half], y[half]) for X, y, half in zip(rows, codes, halves, strict=True)]
    model = SourceModel.fit(
        *_subsample([X for X, _ in known], [y for _, y in known]), n_classes, options
    )
    right = [
        model.pooled_proba(X[~half]).argmax(axis=1) == y[~half]
        for X, y, half in zip(rows, codes, halves, strict=True)
        if not half.all()
    ]
    return float(np.mean([found.mean() for found in right])) if right else 1.0


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


def _calibrate(
    models: list[tuple[SourceModel, Floats, Integers]], options: Options, credit: float
) -> float:
    """Return the coverage gap up to which adapting gains more than it loses, on played streams.

    `credit` is added to the gain in accuracy: what adapting would be worth on a target with a shift.
    """
    gaps, gains = [], []
    for model, X, y in models:
        for order in ("class", "runs", "shuffled"):
            rng = np.random.default_rng(0)
            turn = stream_order(y, order, rng)
            settings = summary_settings(model.n_classes, full_covariance=model.directions is not None)
            summary = new_summary(model, settings)
            cuts = _cuts(len(turn))
            for start, end in itertools.pairwise(cuts):
                batch = turn[start:end]
                if start:
                    adapted = Adapted(model, summary, options, n_steps=ONLINE_STEPS)
                    pooled = model.pooled_proba(X[batch])
                    after = adapted.predict_proba(X[batch], pooled).argmax(axis=1) == y[batch]
                    before = pooled.argmax(axis=1) == y[batch]
                    gaps.append(coverage_gap(model, summary))
                    more = int(after.sum()) - int(before.sum()) + credit * len(batch)
                    gains.append(more / len(y))
                if end < len(turn):
                    absorb(model, summary, X[batch])
    order_of_gaps = np.argsort(gaps, kind="stable")
    gap, gain = np.array(gaps)[order_of_gaps], np.array(gains)[order_of_gaps]
    total = np.cumsum(np.where(gain < 0.0, _LOSS_WEIGHT * gain, gain))
    if not len(total) or total.max() <= 0.0:
        return 0.0
    last = int(total.argmax())
    return 1.0 if last == len(gap) - 1 else float(gap[last] + gap[last + 1]) / 2.0


def _cuts(n: int) -> list[int]:
    """Return where a played stream is cut: finely at its beginning, where the question is open."""
    chunk = max(_FIRST_BATCH, -(-n // _CHUNKS))
    cuts = [0, min(_FIRST_BATCH, n)]
    while cuts[-1] < n:
        cuts.append(min(n, cuts[-1] + max(_FIRST_BATCH, min(cuts[-1], chunk))))
    return cuts


def stream_order(y: Integers, order: str, rng: np.random.Generator) -> Integers:
    """Return the rows shuffled, class by class, or in runs of one class."""
    if order == "shuffled":
        return rng.permutation(len(y))
    classes = [rng.permutation(np.flatnonzero(y == c)) for c in rng.permutation(np.unique(y))]
    if order == "class":
        return np.concatenate(classes)
    runs = [rows[i : i + _RUN] for rows in classes for i in range(0, len(rows), _RUN)]
    return np.concatenate([runs[i] for i in rng.permutation(len(runs))])
