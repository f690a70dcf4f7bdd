"""Which classes a target holds, and what that says about its columns.

The mean and the spread of a target's columns depend on its mix of classes: a week of normal operation
has another mean than a week of faults, in the same plant. Centre and scale of a target are therefore
estimated together with its mix, and both are held against what the sources say is plausible.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from baryflow.core.dictionary import Domain
from baryflow.core.transport import fast_squared_distances
from baryflow.estimators.linear import reweight
from baryflow.estimators.sources import SourceModel
from baryflow.estimators.target import Seen
from baryflow.validation import Floats

#: Added to votes before logarithms are taken: no vote is a veto.
VOTE_FLOOR = 1e-2
#: Rounds in which mix, moments and coordinates are improved in turn; in the first half only the
#: classifier votes that does not depend on the target's moments.
_ROUNDS = 8
_STEPS = 3
#: Rounds after which the components' variances in the view are computed anew; they matter little.
_FRESH = 4


_NOWHERE = np.zeros((0, 0))


def _gap(shares: Floats, usual: Floats) -> float:
    """Return the total variation between two mixes."""
    return 0.5 * float(np.abs(shares - usual).sum())


@dataclass(frozen=True, eq=False)
class Mix:
    """What was found about the classes of a target.

    Attributes
    ----------
    as_usual : bool
        The classes come as expected: nothing that was seen speaks against it, and the sources' own
        mixes vary less than that many rows can tell (or the user has said what to expect).
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


def assume_mix(model: SourceModel, seen: Seen, shares: Floats | None = None) -> Mix:
    """Return the mix of a target whose shares are known; without them they are the usual ones."""
    known = model.usual if shares is None else shares
    mass = float(seen.masses.sum())
    centre, scale = model.moments_at(seen.mean, seen.variance, known, mass)
    return Mix(shares is None, known, known, centre, scale)


def find_mix(model: SourceModel, seen: Seen, votes: Floats, own_share: float) -> Mix:
    """Estimate mix and moments of a target from its components, and decide whether the mix is usual.

    Expectation maximisation: a component's evidence for a class is its nearness to the class in the
    source-only reconstruction, in units of how badly the target fits it, and the source classifiers'
    votes. What is usual counts as much as all rows together. Then the shares found are compared with
    the usual ones: if the gap is no larger than wrong votes and chance together can make it, the mix
    is taken to be as usual, which is the safer thing where it is true.
    """
    mass = float(seen.masses.sum())
    weights = seen.masses / mass
    of_rows = model.of_rows

    def moments_at(mix: Floats) -> tuple[Floats, Floats]:
        return of_rows.classes.at(seen.mean, seen.variance, mix, mass)

    usual, n_classes = model.usual, model.n_classes
    classes = model.slot_classes
    n_slots = len(classes) // n_classes
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
        centre, scale = moments_at(shares)
        slot_weights = expected[classes] / n_slots
        if domain is None:
            domain = model.target(weights, _NOWHERE, slot_weights)
        if number % _FRESH == 0:
            variances = model.variances(seen.variances_in, seen.stds, scale)
        points = model.points(seen.means, variances, centre, scale)
        domain.points, domain.slot_weights = points, slot_weights
        slots = model.dictionary.settle(domain)
        distances = fast_squared_distances(points / unit, slots / unit)
        if np.isinf(misfit):
            misfit = max(1.0, float(np.vdot(domain.plan, distances)) / p)
        table = distances.reshape(len(weights), n_classes, n_slots)
        nearest = table.min(axis=2)
        evidence = pooled
        if 2 * number >= _ROUNDS:
            own = np.log(of_rows.own.proba((seen.means - centre) / scale) + VOTE_FLOOR)
            evidence = (1.0 - own_share) * pooled + own_share * own
        for _ in range(_STEPS):
            # log Σ exp over the slots of a class, in units of the misfit
            near = np.log(np.exp(-0.5 / misfit * (table - nearest[:, :, None])).sum(axis=2))
            near -= 0.5 / misfit * nearest
            posterior = softmax(near + evidence - prior + np.log(expected), axis=1)
            shares = weights @ posterior
            expected = (shares + usual) / 2.0
            misfit = max(1.0, float(weights @ np.vecdot(posterior, nearest)) / p)
    centre, scale = moments_at(shares)
    # The gap found is large also where classes are merely mistaken; the gap that the votes show if the
    # moments are those of a usual mix is then small, but can be so by accident: it counts half as much.
    usual_moments = moments_at(usual)
    at_usual = reweight(model.own_proba(seen.means, *usual_moments), usual / model.prior.mean)
    gap = float(np.cbrt(_gap(shares, usual) ** 2 * _gap(weights @ at_usual, usual)))
    # Two halves of the evidence, averaged and not multiplied: as independent as that they are not.
    opinion = softmax(0.5 * (near + evidence - prior + np.log(expected)), axis=1)
    doubt = 1.0 - float(weights @ opinion[np.arange(len(weights)), votes.argmax(axis=1)])
    # The mean total variation between proportions and a sample of them.
    sampling = float(np.sqrt(usual * (1.0 - usual) / (2.0 * np.pi * mass)).sum())
    if gap <= doubt + sampling and (model.told or model.prior.strength > mass):
        return Mix(True, usual, usual, *usual_moments, gap, doubt, sampling, misfit)
    return Mix(False, shares, expected, centre, scale, gap, doubt, sampling, misfit)
