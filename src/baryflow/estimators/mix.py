"""Which classes a target holds, and what that says about its columns.

The mean and the spread of a target's columns depend on its mix of classes: a week of normal operation
has another mean than a week of faults, in the same plant. Centre and scale of a target are therefore
estimated together with its mix, and both are held against what the sources say is plausible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import softmax

from baryflow.core.dictionary import Domain
from baryflow.core.gaussian import fast_squared_distances
from baryflow.validation import Floats, Integers

if TYPE_CHECKING:
    from baryflow.estimators.sources import SourceModel

#: Added to votes before logarithms are taken: no vote is a veto.
VOTE_FLOOR = 1e-2
#: Smallest std of a target component in the loss, in units of the usual spread within a class.
COMPONENT_FLOOR = 0.05
#: Rounds in which mix, moments and coordinates are improved in turn; in the first half only the
#: classifier votes that does not depend on the target's moments.
_ROUNDS = 8
_STEPS = 3
#: Rounds after which the components' variances in the view are computed anew; they matter little.
_FRESH = 4
#: A column's variance for one mix is at least this part of its variance for the sources' mix.
_LEAST_VARIANCE = 1e-3


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """First two moments of every class in the standardised columns of every source.

    Standardised means: with the source's own centre and scale, those it would have if its classes were
    mixed like the sources' on average.
    """

    means: Floats  # (n_sources, n_classes, d)
    squares: Floats  # mean squares, of the same shape
    proportions: Floats  # the sources' mean class proportions
    centre: Floats  # of the pooled sources, (d,)
    scale: Floats
    usual_centre: Floats  # mean and variance of the sources' centres, in units of the pooled scale
    centre_variance: Floats
    usual_scale: Floats  # mean and variance of the logarithm of their scales, in the same units
    scale_variance: Floats

    @classmethod
    def of(
        cls,
        rows: list[Floats],
        codes: list[Integers],
        proportions: Floats,
        centre: Floats,
        scale: Floats,
    ) -> ClassMoments:
        """Measure the sources; a class that a source lacks is taken to be there what it is elsewhere."""
        n_sources, n_classes, d = len(rows), len(proportions), len(centre)
        means = np.full((n_sources, n_classes, d), np.nan)
        squares = means.copy()
        raw = np.stack([X.mean(axis=0) for X in rows]), np.stack([spread(X, scale) for X in rows])
        for number, (X, y) in enumerate(zip(rows, codes, strict=True)):
            Z = (X - raw[0][number]) / raw[1][number]
            for c in np.unique(y):
                members = Z[y == c]
                means[number, c] = members.mean(axis=0)
                squares[number, c] = np.square(members).mean(axis=0)
        means, squares = _filled(means), _filled(squares)
        nothing = np.zeros(d)
        plain = cls(means, squares, proportions, centre, scale, nothing, nothing, nothing, nothing)
        shares = [np.bincount(y, minlength=n_classes) / len(y) for y in codes]
        found = [
            plain._uncorrected(mean, np.square(std), share)[:2]
            for mean, std, share in zip(*raw, shares, strict=True)
        ]
        centres = np.stack([(c - centre) / scale for c, _ in found])
        scales = np.log(np.stack([s for _, s in found]) / scale)
        return cls(
            means, squares, proportions, centre, scale,
            centres.mean(axis=0), _variance(centres), scales.mean(axis=0), _variance(scales),
        )  # fmt: skip

    def at(self, mean: Floats, variance: Floats, shares: Floats, mass: float) -> tuple[Floats, Floats]:
        """Return centre and scale of a target with this mean and variance, if its mix is `shares`.

        For a mix q, with M and S² the means and mean squares of the classes, the target's mean is
        centre + scale · m(q) and its variance scale² · v(q), where m(q) = Σ q_c M_c and
        v(q) = Σ q_c S_c² − m(q)². Both are solved for, and each is drawn towards what is usual among
        the sources as far as it is uncertain: by how differently the sources answer for m(q) and v(q),
        and by how few rows were seen. For the sources' own mix they all answer alike.
        """
        centre, scale, centre_doubt, scale_doubt = self._uncorrected(mean, variance, shares)
        scale_doubt = scale_doubt + 1.0 / (2.0 * mass)
        trust = _share(self.scale_variance, scale_doubt)
        usual = np.log(self.scale) + self.usual_scale
        drawn = np.exp(trust * np.log(scale) + (1.0 - trust) * usual)
        # The step from the mean to the centre is in units of the scale.
        centre = mean + (centre - mean) / scale * drawn
        doubt = (centre_doubt + 1.0 / mass) * np.square(drawn / self.scale)
        trust = _share(self.centre_variance, doubt)
        return trust * centre + (1.0 - trust) * (self.centre + self.scale * self.usual_centre), drawn

    def _uncorrected(
        self, mean: Floats, variance: Floats, shares: Floats
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Return centre and scale as the sources have it on average, and how they differ about it."""
        base_means, base = self._mixed(self.proportions, 1e-6)
        means, variances = self._mixed(shares, _LEAST_VARIANCE * base)
        steps = (means - base_means) / np.sqrt(base)
        ratios = 0.5 * np.log(variances / base)
        floor = np.square(1e-6 * self.scale)
        scale = np.sqrt(np.maximum(variance, floor)) / np.exp(ratios.mean(axis=0))
        several = len(steps) > 1
        zero = np.zeros_like(scale)
        return (
            mean - scale * steps.mean(axis=0),
            scale,
            steps.var(axis=0, ddof=1) if several else zero,
            ratios.var(axis=0, ddof=1) if several else zero,
        )

    def _mixed(self, shares: Floats, floor: Floats | float) -> tuple[Floats, Floats]:
        """Return mean and variance of the columns of every source, had it this mix."""
        means = np.einsum("c,lcd->ld", shares, self.means)
        variances = np.einsum("c,lcd->ld", shares, self.squares) - np.square(means)
        return means, np.maximum(variances, floor)


def _filled(table: Floats) -> Floats:
    counts = (~np.isnan(table)).sum(axis=0)
    usual = np.nansum(table, axis=0) / np.maximum(counts, 1)
    return np.where(np.isnan(table), usual, table)


def _variance(table: Floats) -> Floats:
    """Return the variance over sources of each column, as if one source more had that of all columns."""
    if len(table) < 2:
        return np.zeros(table.shape[1])
    found = table.var(axis=0, ddof=1)
    n = len(table)
    return np.asarray(((n - 1) * found + found.mean()) / n)


def _share(variance: Floats, doubt: Floats) -> Floats:
    return variance / np.maximum(variance + doubt, np.finfo(np.float64).tiny)


def spread(X: Floats, usual: Floats) -> Floats:
    """Return the std of each column, or the usual one where the column does not vary."""
    found = X.std(axis=0)
    return np.where(found > 1e-6 * usual, found, usual)


def reweighted(table: Floats, ratios: Floats) -> Floats:
    """Return probabilities for classes that are so many times as frequent."""
    weighted = table * ratios
    return np.asarray(weighted / weighted.sum(axis=1, keepdims=True))


def _gap(shares: Floats, usual: Floats) -> float:
    """Return the total variation between two mixes."""
    return 0.5 * float(np.abs(shares - usual).sum())


@dataclass(frozen=True, eq=False)
class Mix:
    """What was found about the classes of a target.

    Attributes
    ----------
    as_usual : bool
        The classes come as expected: nothing that was seen speaks against it.
    shares : array of shape (n_classes,)
        Class proportions of the rows seen.
    expected : array of shape (n_classes,)
        Of the rows to come: what is usual, or half of it and half of what was seen.
    centre, scale : arrays of shape (d,)
        The target's moments, corrected for its mix.
    gap : float
        Between the mix and the usual one, in total variation: the geometric mean of what was found,
        which counts twice, and of what the votes say if the moments are those of a usual mix.
    doubt : float
        How large a gap may come from wrong votes alone: the share of rows on which the classifier that
        knows nothing of the target and all evidence together disagree.
    sampling : float
        How large a gap comes from drawing so few rows.
    misfit : float
        Squared distance of target components to their classes, per dimension; 1 if they fit.
    """

    as_usual: bool
    shares: Floats
    expected: Floats
    centre: Floats
    scale: Floats
    gap: float = 0.0
    doubt: float = 0.0
    sampling: float = 0.0
    misfit: float = 1.0


def known_mix(
    model: SourceModel, moments: tuple[Floats, Floats], mass: float, shares: Floats | None = None
) -> Mix:
    """Return the mix of a target whose shares are known; without them they are the usual ones."""
    known = model.usual if shares is None else shares
    centre, scale = model.classes.at(*moments, known, mass)
    return Mix(shares is None, known, known, centre, scale)


def find_mix(
    model: SourceModel,
    masses: Floats,
    means: Floats,
    covariances: Floats | None,
    stds: Floats,
    votes: Floats,
    moments: tuple[Floats, Floats],
    own_share: float,
) -> Mix:
    """Estimate mix and moments of a target from its components, and decide whether the mix is usual.

    Expectation maximisation: a component's evidence for a class is its nearness to the class in the
    source-only reconstruction, in units of how badly the target fits it, and the source classifiers'
    votes. What is usual counts as much as all rows together. Then the shares found are compared with
    the usual ones: if the gap is no larger than wrong votes and chance together can make it, the mix
    is taken to be as usual, which is the safer thing where it is true.
    """
    mass = float(masses.sum())
    weights = masses / mass
    usual, n_classes = model.usual, model.n_classes
    n_slots = len(model.slot_classes) // n_classes
    p = model.n_dimensions
    unit = np.concatenate([model.unit, model.unit])
    prior = np.log(np.maximum(model.prior.mean, 1e-12))
    pooled = np.log(votes + VOTE_FLOOR)
    expected = usual
    for _ in range(_ROUNDS):
        shares = weights @ softmax(pooled - prior + np.log(expected), axis=1)
        expected = (shares + usual) / 2.0
    domain: Domain | None = None
    misfit = np.inf
    for number in range(_ROUNDS):
        centre, scale = model.classes.at(*moments, shares, mass)
        slot_weights = expected[model.slot_classes] / n_slots
        if domain is None:
            domain = model.target(weights, np.zeros((0, 0)), slot_weights)
        if number % _FRESH == 0:
            variances = model.variances(covariances, stds, scale)
        domain.points = points = model.points(means, variances, centre, scale)
        domain.slot_weights = slot_weights
        model.dictionary.transport(domain)
        model.dictionary.move_coordinates(domain)
        slots = model.dictionary.reconstruction(domain)[:, : 2 * p]
        distances = fast_squared_distances(points[:, : 2 * p] / unit, slots / unit)
        if np.isinf(misfit):
            misfit = max(1.0, float(np.vdot(domain.plan, distances)) / p)
        table = distances.reshape(len(weights), n_classes, n_slots)
        nearest = table.min(axis=2)
        evidence = pooled
        if 2 * number >= _ROUNDS:
            own = np.log(model.own_proba(means, centre, scale) + VOTE_FLOOR)
            evidence = (1.0 - own_share) * pooled + own_share * own
        for _ in range(_STEPS):
            # log Σ exp over the slots of a class, in units of the misfit
            near = np.log(np.exp(-0.5 / misfit * (table - nearest[:, :, None])).sum(axis=2))
            near -= 0.5 / misfit * nearest
            posterior = softmax(near + evidence - prior + np.log(expected), axis=1)
            shares = weights @ posterior
            expected = (shares + usual) / 2.0
            misfit = max(1.0, float(weights @ np.vecdot(posterior, nearest)) / p)
    centre, scale = model.classes.at(*moments, shares, mass)
    # The gap found is large also where classes are merely mistaken; the gap that the votes show if the
    # moments are those of a usual mix is then small, but can be so by accident: it counts half as much.
    usual_moments = model.classes.at(*moments, usual, mass)
    at_usual = reweighted(model.own_proba(means, *usual_moments), usual / model.prior.mean)
    gap = float(np.cbrt(_gap(shares, usual) ** 2 * _gap(weights @ at_usual, usual)))
    # Two halves of the evidence, averaged and not multiplied: as independent as that they are not.
    opinion = softmax(0.5 * (near + evidence - prior + np.log(expected)), axis=1)
    doubt = 1.0 - float(weights @ opinion[np.arange(len(weights)), votes.argmax(axis=1)])
    # The mean total variation between proportions and a sample of them.
    sampling = float(np.sqrt(usual * (1.0 - usual) / (2.0 * np.pi * mass)).sum())
    if gap <= doubt + sampling and (model.told or model.prior.strength > mass):
        return Mix(True, usual, usual, *usual_moments, gap, doubt, sampling, misfit)
    return Mix(False, shares, expected, centre, scale, gap, doubt, sampling, misfit)
