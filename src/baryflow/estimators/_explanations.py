"""One model of a domain, and the explanations of a target.

A domain shows the same classes through its own *calibration*, an offset and a gain of every column:
x = centre + scale · z. Given its class proportions, the moments of its rows give centre and scale in
closed form (:meth:`ClassMoments.at`). So the proportions are the one thing to find.

An *explanation* of a target is a vector of class proportions, with the calibration that follows. Several
can fit the same rows: one class makes up most of them, or the offset is another one. :func:`propose`
lists candidates, :func:`measure_evidence` measures what speaks for each, and :func:`weigh` turns that
into weights. "Not adapting" is one more explanation: the usual calibration, and classifiers of raw rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from baryflow.core.discriminant import Discriminants
from baryflow.core.logs import log_softmax, logsumexp
from baryflow.core.mixture import Mixture
from baryflow.estimators._source_table import ClassMoments, SourceTable
from baryflow.validation import Booleans, Floats, Integers

EXPECTED, VOTES, FIXED_POINT, BASELINE, NOT_ADAPTING = (
    "expected", "votes", "fixed point", "baseline", "not adapting",
)  # fmt: skip
#: Least log-probability of a label: labels may be wrong.
LABEL_FLOOR = -4.0
#: How often rows are labelled because the prediction was wrong.
OFTEN_CHOSEN = 0.2
#: Rounds in which proportions and calibration are found in turn, and the part of each step.
_ROUNDS, _STEP = 12, 0.6
#: Share of the class that dominates at a start.
_DOMINATING = 0.8
#: Proportions this near to each other, in total variation, are the same explanation.
_SAME = 0.05
#: Rows that stand for those of a component in measuring how likely they are, an even number.
_AROUND = 16
#: No class is taken to be rarer than this.
RAREST = 1e-3
#: Classes that dominate at a start: those of labels, and those that classifiers of raw rows find often.
_STARTS = 6
#: Numbers that all starts may take at a time: with many classes and columns there are fewer starts.
_BUDGET = 2**22
#: Variance below which a column does not vary, in units of the usual one.
_STILL = 1e-6
#: Added to the variance of a target in the view, in units of the spread of a class.
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True, eq=False)
class DomainModel:
    """Where classes lie in a domain of known calibration, and how domains differ.

    Rows, standardised with centre and scale of their domain, are seen as ``Z @ basis``. There, rows of a
    class have variance 1 around its place: a part of it *between* domains, because in each a class lies
    somewhat differently, and the rest within them.
    """

    basis: Floats  # (d, p): directions of the view, rotated
    means: Floats  # (n_classes, d): of the classes in standardised columns, the mean over the sources
    places: Floats  # (n_classes, p): where they are seen
    between: Floats  # (p,)
    class_freedom: float  # degrees of freedom of that variance
    offset_variance: Floats  # (p,): of a domain's centre around the usual one, seen in the basis
    gain_variance: float  # of the logarithm of its scale
    freedom: float  # degrees of freedom of these variances
    moments: ClassMoments

    @classmethod
    def of(cls, table: SourceTable, moments: ClassMoments, view: Discriminants) -> DomainModel:
        """Learn it from the sources; in the view, rows of a class have variance 1 within a domain."""
        counts = table.counts > 0.0
        several = np.maximum(counts.sum(axis=0), 1)
        means = np.where(counts[:, :, None], moments.places, 0.0).sum(axis=0) / several[:, None]
        # A class moves as a whole from one domain to the next.
        unbiased = np.sqrt(1.0 - 1.0 / np.maximum(several, 2))
        steps = ((moments.places - means) / unbiased[:, None])[counts] @ view.directions
        values, vectors = np.linalg.eigh(steps.T @ steps / max(len(steps), 1))
        values = np.maximum(values, 0.0)
        rotation = vectors / np.sqrt(1.0 + values)
        basis = view.directions @ rotation
        places = means @ basis
        n = len(table.counts)
        centre, scale = moments.usual
        offsets = ((moments.centre + moments.scale * moments.centres - centre) / scale) @ basis
        gains = moments.log_scales - moments.log_scales.mean(axis=0)
        # By how much chance moves a mean, and twice the logarithm of a standard deviation.
        chance = float((1.0 / np.maximum(table.counts.sum(axis=1), 1.0)).mean())
        further = n / (n - 1) * (1.0 + 1.0 / n) if n > 1 else 1.0
        spread = 1.0 + places.var(axis=0)
        return cls(
            basis,
            means,
            places,
            values / (1.0 + values),
            float(max(len(steps) - counts.any(axis=0).sum(), 2)),
            further * np.square(offsets).mean(axis=0) + chance * spread if n > 1 else spread,
            float(further * np.square(gains).mean() + chance / 2.0) if n > 1 else 1.0,
            float(max(n - 1, 2)),
            moments,
        )

    def leave_out_still(self, seen: TargetSummary) -> DomainModel:
        """Return the model without the columns that do not vary in a target, or that it lacks."""
        moving = varies(seen.variance, self.moments.usual[1])
        if moving.all():
            return self
        basis = np.where(moving[:, None], self.basis, 0.0)
        return replace(self, basis=basis, places=self.means @ basis)

    def see(self, X: Floats, centre: Floats, scale: Floats) -> Floats:
        """Return rows of a domain with this calibration, or with each of a stack of them."""
        if centre.ndim == 1:
            return np.asarray(((X - centre) / scale) @ self.basis)
        # A stack of small matrices instead of a stack of all rows; an offset costs no digits, so that 32
        # bits are enough to search for proportions.
        shifts = ((centre - centre[0]) / scale) @ self.basis
        matrices = self._basis_32 / scale[:, :, None].astype(np.float32)
        return np.asarray((X - centre[0]).astype(np.float32) @ matrices - shifts[:, None])

    @cached_property
    def _basis_32(self) -> NDArray[np.float32]:
        """The basis in 32 bits."""
        return self.basis.astype(np.float32)

    def squared_distances(self, V: Floats) -> Floats:
        """Return the squared distances of seen rows from the places of all classes."""
        norms = np.square(V).sum(axis=-1)[..., None] + np.square(self.places).sum(axis=1)
        return np.asarray(np.maximum(norms - 2.0 * V @ self.places.T, 0.0))

    def log_posteriors(self, V: Floats, proportions: Floats) -> Floats:
        """Return log-probabilities of the classes of seen rows."""
        prior = np.log(np.maximum(proportions, RAREST))[..., None, :]
        return np.asarray(log_softmax(prior - 0.5 * self.squared_distances(V), axis=-1))

    @property
    def effect(self) -> float:
        """Variance of a class between domains, in units of that within them, mean over directions."""
        return float((self.between / np.maximum(1.0 - self.between, 1e-12)).mean())


@dataclass(frozen=True, eq=False)
class TargetSummary:
    """A target as components: their masses and means, and the moments of all rows."""

    masses: Floats
    means: Floats  # (K, d), in the columns of the rows
    mean: Floats  # of all rows
    variance: Floats
    mass: float  # rows seen, or the sum of their weights
    #: Returns the variances of ``x @ metric`` of the components.
    variances_in: Callable[[Floats], Floats]

    @classmethod
    def of_rows(cls, X: Floats) -> TargetSummary:
        """Take every row for a component."""
        n = len(X)

        def none(metric: Floats) -> Floats:
            return np.zeros((n, metric.shape[1]))

        return cls(np.ones(n), X, X.mean(axis=0), X.var(axis=0), float(n), none)


@dataclass(frozen=True, eq=False)
class Baseline:
    """Rows of a target known to be of one class: the class, their number, mean and variance."""

    code: int
    n_rows: float
    mean: Floats
    variance: Floats
    #: Hashes of the last rows, so that none counts twice.
    hashes: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def of(cls, code: int, rows: Floats) -> Baseline:
        """Measure complete rows."""
        return cls(code, float(len(rows)), rows.mean(axis=0), rows.var(axis=0))

    def plus(self, other: Baseline) -> Baseline:
        """Return the baseline of both, without hashes."""
        n = self.n_rows + other.n_rows
        share, step = other.n_rows / n, other.mean - self.mean
        variance = (1.0 - share) * self.variance + share * other.variance
        variance = variance + share * (1.0 - share) * np.square(step)
        return Baseline(self.code, n, self.mean + share * step, variance)


class Candidate(NamedTuple):
    """A possible explanation: class proportions, and the calibration that follows from them."""

    name: str
    proportions: Floats
    centre: Floats
    scale: Floats


@dataclass(frozen=True, eq=False)
class Explanation:
    """One explanation of a target, and what classifies rows under it.

    Attributes
    ----------
    name : str
        ``"expected"``: classes are as frequent as expected. ``"votes"``: as often as classifiers of raw
        rows find them. ``"fixed point"``: proportions and calibration that confirm each other.
        ``"baseline"``: the calibration in which the baseline lies where its class does. ``"not
        adapting"``: the usual calibration.
    weight : float
        How likely it is among all; they sum to 1.
    proportions : array of shape (n_classes,)
    centre, scale : array of shape (n_features,)
        The calibration of the target, in the units of the sources.
    reconstruction, labelled : Mixture or None
        The target rebuilt from the atoms, and its components with labels; None for not adapting.
    """

    name: str
    weight: float
    proportions: Floats
    centre: Floats
    scale: Floats
    reconstruction: Mixture | None = None
    labelled: Mixture | None = None

    @property
    def adapts(self) -> bool:
        """Whether it is any but not adapting."""
        return self.reconstruction is not None


def varies(variance: Floats, usual_scale: Floats) -> Booleans:
    """Return which columns vary, compared with how they usually do; all if none does."""
    found = variance > _STILL * np.square(usual_scale)
    return found if found.any() else np.ones_like(found)


def propose(
    model: DomainModel,
    seen: TargetSummary,
    prior: Floats,
    votes: Floats,
    trained: Floats,
    baselines: Sequence[Baseline] = (),
    codes: Integers | None = None,
) -> list[Candidate]:
    """Return what could explain a target, the expected proportions first, not adapting last.

    Parameters
    ----------
    model : DomainModel
    seen : TargetSummary
    prior : array of shape (n_classes,)
        Expected proportions.
    votes : array of shape (n_components, n_classes)
        Class probabilities by classifiers of raw rows.
    trained : array of shape (n_classes,)
        Class proportions of their training rows.
    baselines : sequence of Baseline
    codes : array of int, optional
        Classes of labelled rows.
    """
    moments, n_classes = model.moments, len(prior)
    voted = estimate_proportions(votes, seen.masses, trained, prior)
    average = seen.masses @ votes / seen.masses.sum()
    each = _DOMINATING * np.eye(n_classes) + (1.0 - _DOMINATING) * prior
    size = len(seen.masses) * (seen.means.shape[1] + n_classes) + moments.means.size
    room = min(_STARTS, max(_BUDGET // size - 2, 0))
    found_often = average if codes is None else average + np.bincount(codes, minlength=n_classes)
    often = np.argsort(-found_often, kind="stable")[:room]
    starts = np.stack([prior, average, *each[often]])
    found = [prior]
    names = [EXPECTED]
    for q in [*_settle(model, seen, starts), voted]:
        if all(0.5 * np.abs(q - other).sum() > _SAME for other in found):
            found.append(q)
            names.append(FIXED_POINT)
    if found[-1] is voted:
        names[-1] = VOTES
    stacked = np.stack(found)
    centres, scales = moments.at(seen.mean, seen.variance, stacked, seen.mass)
    candidates = [Candidate(*one) for one in zip(names, found, centres, scales, strict=True)]
    for baseline in baselines:
        certain = np.full(n_classes, RAREST)
        certain[baseline.code] = 1.0
        calibration = moments.at(
            baseline.mean, baseline.variance, certain / certain.sum(), baseline.n_rows
        )
        q = _settle(model, seen, prior[None], calibration)[0]
        candidates.append(Candidate(BASELINE, q, *calibration))
    return [*candidates, Candidate(NOT_ADAPTING, voted, *moments.usual)]


def estimate_proportions(votes: Floats, weights: Floats, trained: Floats, expected: Floats) -> Floats:
    """Return the most likely class proportions, given votes of calibrated classifiers.

    Expectation maximisation (Saerens, Latinne and Decaestecker, 2002) from the expected proportions.

    Parameters
    ----------
    votes : array of shape (n, n_classes)
        Class probabilities.
    weights : array of shape (n,)
        How many rows each vote stands for.
    trained : array of shape (n_classes,)
        Class proportions of the classifiers' training rows.
    expected : array of shape (n_classes,)
        Where to start.
    """
    weights = weights / weights.sum()
    trained = np.maximum(trained, RAREST)
    q = normalise_proportions(expected)
    for _ in range(3 * _ROUNDS):
        weighted = votes * (q / trained)
        q = normalise_proportions(weights @ (weighted / weighted.sum(axis=1, keepdims=True)))
    return q


def normalise_proportions(proportions: Floats) -> Floats:
    """Return masses of classes as proportions, none of them too small."""
    proportions = proportions / proportions.sum(axis=-1, keepdims=True)
    found = np.maximum(proportions, RAREST)
    return np.asarray(found / found.sum(axis=-1, keepdims=True))


def _settle(
    model: DomainModel, seen: TargetSummary, q: Floats, fixed: tuple[Floats, Floats] | None = None
) -> Floats:
    """Return fixed points of proportions → calibration → class probabilities → proportions.

    `q` is a stack of starts; with `fixed` the calibration is known.
    """
    weights = seen.masses / seen.masses.sum()
    for _ in range(_ROUNDS):
        if fixed is None:
            centre, scale = model.moments.at(seen.mean, seen.variance, q, seen.mass)
        else:
            centre, scale = (np.broadcast_to(one, (len(q), len(one))) for one in fixed)
        posteriors = np.exp(model.log_posteriors(model.see(seen.means, centre, scale), q))
        step = _STEP * (normalise_proportions(weights @ posteriors) - q)
        q = q + step
        if np.abs(step).max() < RAREST:
            break
    return q


def measure_evidence(
    model: DomainModel,
    seen: TargetSummary,
    candidates: Sequence[Candidate],
    prior: Floats,
    baselines: Sequence[Baseline] = (),
) -> Floats:
    """Return log-probabilities under each explanation, shape (n_candidates, 3).

    Of the rows, of the calibration, and of where the baselines lie; each up to a constant.
    """
    independent = (1.0 / (1.0 / np.maximum(seen.mass * prior, 1e-9) + model.effect)).sum()
    rows = independent * np.array([_log_likelihood(model, seen, one) for one in candidates])
    # Estimated proportions fit better by chance alone: by one for each that is free (Akaike).
    estimated = np.array([one.name != EXPECTED for one in candidates])
    rows = rows - (len(prior) - 1) * estimated
    calibrations = [_plausibility(model, one.centre, one.scale) for one in candidates]
    known = [sum((_place_baseline(model, b, one) for b in baselines), 0.0) for one in candidates]
    return np.column_stack([rows, calibrations, known])


def weigh(candidates: Sequence[Candidate], evidence: Floats) -> Floats:
    """Return the logarithms of the weights of explanations.

    What is `t` behind the best explanation in log-probability counts 1 / (1 + t), not exp(-t): the model
    is simpler than domains are. All but the expected explanation and not adapting share one prior.
    """
    total = evidence.sum(axis=1)
    proposed = np.array([one.name not in (EXPECTED, NOT_ADAPTING) for one in candidates])
    share = np.log(max(proposed.sum(), 1)) * proposed
    return np.asarray(log_softmax(-np.log1p(total.max() - total) - share))


def _log_likelihood(model: DomainModel, seen: TargetSummary, candidate: Candidate) -> float:
    """Return the log-likelihood of a row, comparable between calibrations.

    Each component stands for rows around its mean, a standard deviation away in every direction: the
    mean itself is likelier than its rows are, the more so the nearer classes lie to each other.
    """
    _, q, centre, scale = candidate
    weights = seen.masses / seen.masses.sum()
    V = model.see(seen.means, centre, scale)
    within = seen.variances_in(model.basis / scale[:, None])
    p = V.shape[1]
    joint = np.log(np.maximum(q, RAREST)) - 0.5 * model.squared_distances(V)
    top = joint.max(axis=1)
    # A step w changes the squared distance from a place P by w² + 2 wV − 2 wP. Steps come in opposite
    # pairs, so 2 wV cancels. What is left is small, and 32 bits are enough.
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (_AROUND // 2, 1, p)).astype(np.float32)
    steps = (np.sqrt(within).astype(np.float32) * signs) @ model.places.T.astype(np.float32)
    joint_32 = (joint - top[:, None]).astype(np.float32)
    around = [logsumexp(joint_32 + one, axis=-1).mean(axis=0) for one in (steps, -steps)]
    densities = top - 0.5 * within.sum(axis=1) + 0.5 * (around[0] + around[1])
    away = V - weights @ V
    covariance = (weights[:, None] * away).T @ away
    covariance[np.arange(p), np.arange(p)] += weights @ within + _LEAST_VARIANCE
    return float(weights @ densities) + 0.5 * float(np.linalg.slogdet(covariance)[1])


def _plausibility(model: DomainModel, centre: Floats, scale: Floats) -> float:
    """Return how plausible a calibration is among the sources': the log-density of a Student t."""
    usual_centre, usual_scale = model.moments.usual
    offset = ((centre - usual_centre) / usual_scale) @ model.basis
    seen = model.basis.any(axis=1)  # how still a column is that hardly varies says nothing
    gain = float(np.where(seen, np.square(np.log(scale / usual_scale)), 0.0).mean())
    freedom = model.freedom
    found = np.log1p(np.square(offset) / (freedom * model.offset_variance)).sum()
    found += len(offset) * np.log1p(gain / (freedom * model.gain_variance))
    return float(-0.5 * (freedom + 1.0) * found)


def _place_baseline(model: DomainModel, baseline: Baseline, candidate: Candidate) -> float:
    """Return how plausible the place of the baseline is, which other domains show of its class."""
    # A column that does not vary in the baseline, or that it lacks, says nothing.
    known = varies(baseline.variance, model.moments.usual[1])
    away = (baseline.mean - candidate.centre) / candidate.scale - model.means[baseline.code]
    at = np.where(known, away, 0.0) @ model.basis
    variance = model.between + (1.0 - model.between) / baseline.n_rows
    freedom = model.class_freedom
    found = np.log1p(np.square(at) / (freedom * variance)).sum()
    return float(-0.5 * (freedom + 1.0) * found)
