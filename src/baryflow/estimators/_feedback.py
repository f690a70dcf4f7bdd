"""Feedback: rows that are worth a label, labels of rows, and the correction that they teach.

The corrected logits of a row are an offset plus F W. F are the features of the row: its columns,
standardised with the target's moments, and the experts' log-probabilities. W is a penalised multinomial
logistic regression. There are several offsets: what the committee says; what the experts say whom the
labels favour; a linear classifier of the sources' rows and the labelled rows together, which least
squares gives in closed form; the mean of this and each of the others. Cross-validation over the labelled
rows weighs offsets and penalties, and the committee without correction is likeliest at first. As all of
it is linear, what they average to is again one offset and one matrix.

Rows are hardly ever labelled at random: an operator corrects errors, or labels one class. So the logits
are adjusted for the class proportions of the labels, and rows without a label whose predictions should
stay as they are, the *anchors*, count the more, the more the labels look chosen.

A label that no source has becomes a class of this target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import entr, softmax
from scipy.stats import betabinom

from baryflow.core.logs import log_softmax, logsumexp
from baryflow.core.transport import fast_squared_distances
from baryflow.estimators._committee import FLOOR
from baryflow.estimators._explanations import OFTEN_CHOSEN
from baryflow.estimators._orders import number_within
from baryflow.estimators._sources import LinearStatistics
from baryflow.validation import Booleans, Floats, Integers

#: Labelled rows that are kept, of each class and in total; the oldest of the most frequent class go.
MOST_OF_A_CLASS, MOST = 50, 1000
#: Penalties of the logistic regression, the largest first: each starts from the one before.
_PENALTIES = (1000.0, 100.0, 10.0, 1.0, 0.1)
_STEPS = 10
_FOLDS = 3
#: Logarithm of how much likelier the committee without correction is than any other at first, and how
#: much less likely the linear classifier.
_TRUST = 2.0
#: In the linear classifier: share of the labelled rows if all classes have labels; share of a new class,
#: in those of a class on the mean; penalty; what scores are multiplied by to become logits.
_LABEL_SHARE, _NEW_SHARE, _RIDGE, _SHARPNESS = 0.25, 1.5, 0.003, 10.0
#: Largest influence of a label on the prediction of its own row.
_LEVERAGE = 0.999
#: Log-probabilities vary by this much, roughly.
_SPREAD = 2.5
#: Labels for each class that the adjustment for the proportions of the labels adds.
_PSEUDO_LABELS = 1.0
#: How well the rate of errors is known, in rows; that of rows chosen because predictions are wrong; how
#: often the rate of errors may be anything.
_RATE_ROWS, _CHOSEN_RATE, _NO_IDEA = 8.0, 0.9, 0.2
_LEAST_ERRORS = 0.03
#: Labels that agree from which on rows near them are taken to be of their class.
_GROUP = 3
#: Offsets and penalties are weighed again when there are this many times as many labels.
_GROWTH = 1.25


@dataclass(frozen=True, eq=False)
class LabelledTarget:
    """Rows of a target whose labels are known, as they came, oldest first."""

    rows: Floats
    codes: Integers  # numbers of classes, those of the target last
    random: Booleans  # chosen at random, whatever was predicted of them

    @classmethod
    def none(cls, n_columns: int) -> Self:
        """Return no rows."""
        return cls(np.empty((0, n_columns)), np.empty(0, dtype=np.intp), np.empty(0, dtype=bool))

    def __len__(self) -> int:
        return len(self.codes)

    def plus(self, rows: Floats, codes: Integers, *, random: bool) -> LabelledTarget:
        """Return these rows and others; the latest label of a row counts."""
        rows, codes = np.concatenate([self.rows, rows]), np.concatenate([self.codes, codes])
        at_random = np.append(self.random, np.full(len(rows) - len(self), random))
        last = {row.tobytes(): number for number, row in enumerate(rows)}
        kept = np.sort(np.fromiter(last.values(), dtype=np.intp))
        kept = kept[number_within(codes[kept][::-1])[::-1] < MOST_OF_A_CLASS]
        counts = np.bincount(codes[kept])
        while len(kept) > MOST:
            oldest = np.flatnonzero(codes[kept] == counts.argmax())[0]
            counts[codes[kept[oldest]]] -= 1
            kept = np.delete(kept, oldest)
        return LabelledTarget(rows[kept], codes[kept], at_random[kept])


class Answers(NamedTuple):
    """What is said of rows, and their features."""

    probabilities: Floats  # the committee's, (n, n_classes), of the classes of the sources
    logs: Floats  # the experts' log-probabilities, (n_experts, n, n_classes)
    features: Floats  # (n, n_features): standardised columns, 1, experts' log-probabilities

    @classmethod
    def of(cls, probabilities: Floats, logs: Floats, columns: Floats) -> Answers:
        """Describe rows by their columns and by what the experts say; both count the same."""
        n, n_classes = probabilities.shape
        said = (logs + np.log(n_classes)).transpose(1, 0, 2).reshape(n, -1) / _SPREAD
        said *= np.sqrt(columns.shape[1] / said.shape[1])
        return cls(probabilities, logs, np.hstack([columns, np.ones((n, 1)), said]))

    def some(self, which: slice) -> Answers:
        """Return those of some rows."""
        return Answers(self.probabilities[which], self.logs[:, which], self.features[which])

    def blend(self, committee: float, experts: Floats) -> Floats:
        """Return probabilities from the committee's and the experts', with these weights."""
        total = committee + experts.sum()
        if not total > 0.0:
            return self.probabilities
        logits = committee * np.log(self.probabilities + FLOOR) + np.tensordot(experts, self.logs, 1)
        return np.asarray(softmax(logits / total, axis=1))


@dataclass(frozen=True, eq=False)
class Correction:
    """What labels teach."""

    committee: float  # weight of the committee's log-probabilities in the logits
    experts: Floats  # of each expert's
    matrix: Floats  # (n_features, n_classes)
    linear: Floats  # linear classifier of sources and labels, (n_columns + 1, n_classes)
    weights: Floats  # of all offsets and penalties
    n_weighed: int  # labels that there were when these were weighed
    chosen: float  # how far the labels look chosen, 0 to 1

    def apply(self, answers: Answers) -> Floats:
        """Return corrected class probabilities."""
        known, n_classes = answers.blend(self.committee, self.experts), self.matrix.shape[1]
        scores = answers.features[:, : len(self.linear)] @ self.linear
        base = np.log(extend(known, n_classes, scores) + FLOOR)
        share = self.committee + self.experts.sum()
        return np.asarray(softmax(share * base + answers.features @ self.matrix, axis=1))


def extend(known: Floats, n_classes: int, scores: Floats) -> Floats:
    """Return probabilities of more classes, which no source has, by scores of the linear classifier."""
    n_new = n_classes - known.shape[1]
    if not n_new:
        return known
    new = softmax(_SHARPNESS * scores, axis=1)[:, -n_new:]
    return np.hstack([known * (1.0 - new.sum(axis=1, keepdims=True)), new])


class _Offset(NamedTuple):
    """Logits to be corrected, of labelled rows and anchors, and what they are made of."""

    committee: float
    experts: Floats
    linear: float
    logits: Floats


def fit_correction(
    labelled: Answers,
    codes: Integers,
    random: Booleans,
    anchors: Answers,
    n_classes: int,
    statistics: LinearStatistics,
    before: Correction | None = None,
) -> Correction:
    """Learn the correction from labelled rows.

    Parameters
    ----------
    labelled : Answers
    codes : array of shape (n,)
        True classes of the labelled rows.
    random : array of shape (n,)
        Rows that were chosen at random.
    anchors : Answers
        For other rows of the target.
    n_classes : int
        Those of the sources and new ones.
    statistics : LinearStatistics
        Of the sources' rows, for the linear classifier.
    before : Correction, optional
        That of fewer labels: offsets and penalties need not be weighed again after every label.
    """
    rows = Answers(
        np.concatenate([labelled.probabilities, anchors.probabilities]),
        np.concatenate([labelled.logs, anchors.logs], axis=1),
        np.concatenate([labelled.features, anchors.features]),
    )
    linear, left_out = _fit_linear(statistics, labelled.features, codes, n_classes)
    scores = np.concatenate([left_out, anchors.features[:, : len(linear)] @ linear])
    offsets = _list_offsets(rows, codes, n_classes, scores)
    said = softmax(offsets[0].logits, axis=1)
    own, others = said[: len(codes)], said[len(codes) :]
    chosen = measure_choice(own, codes, random, others)
    d = rows.features.shape[1] - 1 - rows.logs.shape[0] * rows.logs.shape[2]  # columns among features
    contradicted = _contradict(labelled.features[:, :d], own, codes, anchors.features[:, :d], others)
    adjustment = _adjust(
        codes, np.where((contradicted >= 0)[:, None], np.eye(n_classes)[contradicted], others)
    )
    for offset in offsets:
        offset.logits[: len(codes)] += adjustment
    targets = np.concatenate([np.eye(n_classes)[codes], others])
    counts = np.ones(len(targets))
    counts[len(codes) :] = chosen * len(codes) / max(len(others), 1) * (contradicted < 0)
    folds = np.concatenate([(number_within(codes) + codes) % _FOLDS, np.arange(len(others)) % _FOLDS])
    there = counts > 0.0
    features, targets, counts, folds = rows.features[there], targets[there], counts[there], folds[there]
    offsets = [one._replace(logits=one.logits[there]) for one in offsets]
    weights, n_weighed = _reuse(before, len(codes), len(offsets), n_classes)
    if weights is None:
        weights, n_weighed = _weigh(offsets, features, targets, counts, folds), len(codes)
    committee, experts = 0.0, np.zeros(len(rows.logs))
    matrix, factors = np.zeros((features.shape[1], n_classes)), _Factors.of(features, counts)
    for offset, row in zip(offsets, weights, strict=True):
        committee += row.sum() * offset.committee
        experts += row.sum() * offset.experts
        matrix[: len(linear)] += row.sum() * offset.linear * _SHARPNESS * linear
        if row[1:].any():
            matrix += np.tensordot(row[1:], _fit_logistic(factors, offset.logits, targets), 1)
    return Correction(float(committee), experts, matrix, linear, weights, n_weighed, chosen)


def _list_offsets(rows: Answers, codes: Integers, n_classes: int, scores: Floats) -> list[_Offset]:
    """Return all offsets; `scores` are those of the linear classifier."""
    likelihoods = log_softmax(rows.logs[:, : len(codes)], axis=2)
    known = codes < rows.probabilities.shape[1]  # of new classes no expert knows anything
    likelihoods = likelihoods[:, np.flatnonzero(known), codes[known]].sum(axis=1)
    favoured = np.asarray(softmax(0.5 * likelihoods))
    found = []
    for committee, experts in ((1.0, np.zeros(len(favoured))), (0.0, favoured)):
        base = np.log(extend(rows.blend(committee, experts), n_classes, scores) + FLOOR)
        found.append(_Offset(committee, experts, 0.0, base))
    logits = log_softmax(_SHARPNESS * scores, axis=1)
    found += [
        _Offset(0.5 * one.committee, 0.5 * one.experts, 0.5, 0.5 * (one.logits + logits))
        for one in found
    ]
    return [*found, _Offset(0.0, np.zeros(len(favoured)), 1.0, logits)]


def _reuse(
    before: Correction | None, n_labels: int, n_offsets: int, n_classes: int
) -> tuple[Floats | None, int]:
    """Return the weights of the correction before, unless many labels or a class are new."""
    if before is None or n_labels >= _GROWTH * before.n_weighed:
        return None, 0
    if before.matrix.shape[1] != n_classes or len(before.weights) != n_offsets:
        return None, 0
    return before.weights, before.n_weighed


def _fit_linear(
    statistics: LinearStatistics, features: Floats, codes: Integers, n_classes: int
) -> tuple[Floats, Floats]:
    """Fit the sources' rows and the labelled ones; return it and the scores of each row left out."""
    rows, labels = features[:, : len(statistics.gram)], np.eye(n_classes)[codes]
    n_known = statistics.cross.shape[1]
    shares = np.full(n_classes, _LABEL_SHARE / n_classes)
    shares[n_known:] = _NEW_SHARE / n_classes
    counts = np.bincount(codes, minlength=n_classes)
    weights = (shares / np.maximum(counts, 1))[codes]
    goal = (weights[:, None] * rows).T @ labels
    goal[:, :n_known] += statistics.cross
    gram = statistics.gram + (weights[:, None] * rows).T @ rows + _RIDGE * np.eye(len(statistics.gram))
    found = np.linalg.solve(gram, np.hstack([goal, rows.T]))
    linear, influence = np.asarray(found[:, :n_classes]), found[:, n_classes:]
    own = np.minimum(weights * np.vecdot(rows, influence.T), _LEVERAGE)[:, None]
    return linear, np.asarray((rows @ linear - own * labels) / (1.0 - own))


def measure_choice(own: Floats, codes: Integers, random: Booleans, others: Floats) -> float:
    """Return how far labels look chosen: because predictions were wrong, or of few classes.

    The first is the probability that their errors come from choice rather than from the rate of errors
    that the probabilities of these rows, or of others, imply; the rate itself is uncertain, and may be
    anything. The second compares the number of classes with that among as many rows drawn at random.
    Labels of rows that are known to be chosen at random do not look chosen.
    """
    share = 1.0 - float(random.mean())
    if not len(others) or share == 0.0:
        return 0.0
    own, codes = own[~random], codes[~random]
    n, wrong = len(codes), int((own.argmax(axis=1) != codes).sum())
    rate = max(1.0 - float(one.max(axis=1).mean()) for one in (own, others))
    rate = max(rate, _LEAST_ERRORS)
    drawn, picked = (
        betabinom.pmf(wrong, n, _RATE_ROWS * p, _RATE_ROWS * (1.0 - p)) for p in (rate, _CHOSEN_RATE)
    )
    drawn = (1.0 - _NO_IDEA) * drawn + _NO_IDEA / (n + 1)
    by_error = OFTEN_CHOSEN * picked / (OFTEN_CHOSEN * picked + (1.0 - OFTEN_CHOSEN) * drawn)
    expected = float((1.0 - (1.0 - others.mean(axis=0)) ** n).sum())
    by_class = max(0.0, 1.0 - len(np.unique(codes)) / expected) ** 2
    return share * float(max(by_error, by_class))


def _contradict(
    own_rows: Floats, own: Floats, codes: Integers, other_rows: Floats, others: Floats
) -> Integers:
    """Return the class that labels give other rows, against what is predicted of them; -1 for none.

    If several rows that are predicted to be of one class are labelled as another, rows that are as near
    to them as they are to each other, and predicted alike, are not what they are predicted to be.
    """
    found = np.full(len(others), -1)
    predicted, expected = own.argmax(axis=1), others.argmax(axis=1)
    for was, is_now in {(p, c) for p, c in zip(predicted, codes, strict=True) if p != c}:
        group = own_rows[(predicted == was) & (codes == is_now)]
        alike = np.flatnonzero(expected == was)
        if len(group) < _GROUP or not len(alike):
            continue
        within = np.sqrt(fast_squared_distances(group, group))[np.triu_indices(len(group), 1)]
        away = np.median(np.sqrt(fast_squared_distances(other_rows[alike], group)), axis=1)
        found[alike[away <= np.median(within)]] = is_now
    return found


def _adjust(codes: Integers, others: Floats) -> Floats:
    """Return what the class proportions of labels add to logits, against those of rows drawn at random.

    The latter lie between those predicted of others, which may miss a class, and even ones.
    """
    n_classes = others.shape[1]
    if not len(others):
        return np.zeros(n_classes)
    usual = 0.5 * (others.mean(axis=0) + 1.0 / n_classes)
    counts = np.bincount(codes, minlength=n_classes) + n_classes * usual * _PSEUDO_LABELS
    return np.asarray(np.log(counts / (len(codes) + n_classes * _PSEUDO_LABELS) / usual))


def _weigh(
    offsets: list[_Offset], features: Floats, targets: Floats, counts: Floats, folds: Integers
) -> Floats:
    """Return the weights of offsets and penalties: the square root of their likelihood on rows left out.

    The first of each offset is no correction; that of the committee, the first offset, is likelier than
    the others before any label is seen, and the linear classifier less likely: it hardly knows classes
    without labels.
    """
    shape = (len(offsets), 1 + len(_PENALTIES), *targets.shape)
    logits = np.broadcast_to(np.stack([one.logits for one in offsets])[:, None], shape).copy()
    for fold in range(_FOLDS):
        out = folds == fold
        if out.any() and not out.all():
            factors = _Factors.of(features[~out], counts[~out])
            for number, offset in enumerate(offsets):
                fitted = _fit_logistic(factors, offset.logits[~out], targets[~out])
                logits[number, 1:, out] += np.moveaxis(features[out] @ fitted, 1, 0)
    likelihoods = (targets * log_softmax(logits, axis=-1)).sum(axis=-1) @ counts
    likelihoods *= 0.5
    likelihoods[0, 0] += _TRUST
    likelihoods -= _TRUST * np.array([[one.linear] for one in offsets])
    weights = softmax(likelihoods)
    weights[weights < 1e-3 * weights.max()] = 0.0
    return np.asarray(weights / weights.sum())


class _Factors(NamedTuple):
    """Features in their principal directions."""

    inside: Floats  # coordinates of the rows
    counts: Floats  # what each row counts
    values: Floats  # singular values
    directions: Floats

    @classmethod
    def of(cls, features: Floats, counts: Floats) -> _Factors:
        _, values, directions = np.linalg.svd(np.sqrt(counts)[:, None] * features, full_matrices=False)
        return cls(features @ directions.T, counts[:, None], values, directions)


def _fit_logistic(factors: _Factors, offsets: Floats, targets: Floats) -> Floats:
    """Return the matrix of a multinomial logistic regression for each penalty.

    Accelerated steps on the quadratic bound of the logistic loss, whose curvature is at most half that
    of least squares: one factorisation serves all steps, penalties and offsets.
    """
    inside, counts, values, directions = factors
    found, start = [], np.zeros((len(values), targets.shape[1]))
    for penalty in _PENALTIES:
        size = 1.0 / (0.5 * np.square(values) + penalty)[:, None]
        now = last = start
        speed = 1.0
        for _ in range(_STEPS):
            faster = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * speed * speed))
            ahead = now + (speed - 1.0) / faster * (now - last)
            wrong = counts * (targets - softmax(offsets + inside @ ahead, axis=1))
            last, now, speed = now, ahead + size * (inside.T @ wrong - penalty * ahead), faster
        found.append(directions.T @ now)
        start = now
    return np.stack(found)


# -- rows that are worth a label --------------------------------------------------------------------

#: Rows that are remembered at most and at least, and values of them at most in between.
_MOST_RECENT, _FEWEST_RECENT, _MOST_VALUES = 1000, 64, 1 << 16
#: A novel row counts as this many times as uncertain, and so does one that would settle which
#: explanation is right.
_NOVEL = _SETTLING = 2.0


@dataclass(frozen=True, eq=False)
class RecentRows:
    """The last rows of a target as they came, and their positions in the stream."""

    rows: Floats
    positions: Integers

    @classmethod
    def none(cls, n_columns: int) -> Self:
        """Return no rows."""
        return cls(np.empty((0, n_columns)), np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def plus(self, rows: Floats, positions: Integers) -> RecentRows:
        """Return these rows and later ones, without the oldest if there are too many."""
        d = max(rows.shape[1], 1)
        most = min(_MOST_RECENT, max(_FEWEST_RECENT, _MOST_VALUES // d))
        rows, positions = rows[-most:], positions[-most:]
        kept = slice(max(0, len(self) + len(rows) - most), None)
        return RecentRows(
            np.concatenate([self.rows[kept], rows]), np.concatenate([self.positions[kept], positions])
        )

    def at(self, positions: Integers) -> tuple[Floats, Booleans]:
        """Return the rows at these positions that are remembered, and which of them are."""
        numbers = self._find(positions)
        return self.rows[numbers[numbers >= 0]], numbers >= 0

    def _find(self, positions: Integers) -> Integers:
        """Return the number of each row among these, -1 for one that is not."""
        order = np.argsort(self.positions, kind="stable")
        place = np.searchsorted(self.positions[order], positions, side="right") - 1
        if not len(order):
            return np.full(len(positions), -1)
        found = order[place]
        return np.where((place >= 0) & (self.positions[found] == positions), found, -1)

    def spread(self, n: int) -> Integers:
        """Return the numbers of at most n rows, evenly spread."""
        if len(self) <= n:
            return np.arange(len(self))
        return np.linspace(0, len(self) - 1, n).astype(np.intp)


@dataclass(frozen=True, eq=False)
class Query:
    """Rows that are most worth a label, the most worth first.

    Attributes
    ----------
    positions : array of shape (n,)
        Of the rows in the stream.
    rows : array of shape (n, d)
        As they came.
    labels : array of shape (n,)
        What is predicted of them now.
    probabilities, novelty : array of shape (n,)
        Of these labels, and of the rows.
    """

    positions: Integers
    rows: Floats
    labels: Any
    probabilities: Floats
    novelty: Floats

    def __len__(self) -> int:
        return len(self.rows)


def measure_disagreement(parts: Floats) -> Floats:
    """Return how much a label of each row would tell about which explanation is right, 0 to 1.

    The mutual information of label and explanation, as a part of what there is to know. `parts` are
    log-probabilities under each explanation, plus the logarithm of its weight.
    """
    weights = np.exp(logsumexp(parts, axis=2))[:, 0]
    whole = float(entr(weights).sum())
    if not whole > 0.0:
        return np.zeros(parts.shape[1])
    given = np.exp(parts) / weights[:, None, None]
    found = entr(np.exp(parts).sum(axis=0)).sum(axis=1) - weights @ entr(given).sum(axis=2)
    return np.asarray(np.clip(found / whole, 0.0, 1.0))


def choose_rows(
    probabilities: Floats,
    columns: Floats,
    novel: Booleans,
    disagreement: Floats,
    n: int,
    rng: np.random.Generator,
) -> Integers:
    """Return the numbers of n rows that are uncertain, novel and unlike each other.

    Rows count more on which explanations of the target disagree.

    A row stands for the gradient that the label predicted for it would have in a linear classifier: long
    if the prediction is uncertain, and in another direction for other columns and classes. Rows are
    drawn by their squared distance from those drawn before (Ash et al. 2020, "BADGE").
    """
    residuals = probabilities.copy()
    residuals[np.arange(len(residuals)), residuals.argmax(axis=1)] -= 1.0
    residuals *= (np.where(novel, _NOVEL, 1.0) * (1.0 + (_SETTLING - 1.0) * disagreement))[:, None]
    rows = np.column_stack([columns / np.sqrt(columns.shape[1]), np.ones(len(columns))])
    lengths = np.vecdot(residuals, residuals) * np.vecdot(rows, rows)
    chosen: list[int] = []
    away = lengths.copy()
    for _ in range(min(n, len(rows))):
        total = away.sum()
        if not total > 0.0:  # all others are like those chosen
            left = np.setdiff1d(np.arange(len(rows)), chosen)
            chosen.extend(left[: n - len(chosen)].tolist())
            break
        one = int(away.argmax()) if not chosen else int(rng.choice(len(rows), p=away / total))
        chosen.append(one)
        inner = (residuals @ residuals[one]) * (rows @ rows[one])
        away = np.minimum(away, np.maximum(lengths + lengths[one] - 2.0 * inner, 0.0))
        away[chosen] = 0.0
    return np.array(chosen, dtype=np.intp)
