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
from baryflow.estimators.source_model import SourceModel
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


@dataclass(frozen=True, eq=False)
class _Found:
    """A mix with which the target's components are explained, and how well."""

    shares: Floats
    expected: Floats
    evidence: Floats  # log evidence of every component for every class, the mix left out
    misfit: float  # as of Mix, but below 1 where it fits better than that

    def fits(self) -> bool:
        """Whether components are as near to their classes as rows of the sources are."""
        return self.misfit <= 1.0


def find_mix(model: SourceModel, seen: Seen, votes: Floats, own_share: float) -> Mix:
    """Estimate mix and moments of a target from its components, and decide whether the mix is usual.

    Expectation maximisation: a component's evidence for a class is its nearness to the class in the
    source-only reconstruction, in units of how badly the target fits it, and the source classifiers'
    votes. What is usual counts as much as all rows together. Then the shares found are compared with
    the usual ones: if the gap is no larger than wrong votes and chance together can make it, the mix
    is taken to be as usual, which is the safer thing where it is true.

    The search begins with the votes of the classifier that knows nothing of the target. If these are
    mostly wrong, as on a machine that runs at quite another level, it ends in a mix that explains
    little. So, unless the mix found is usual, it begins again at the usual one and without them. What it
    ends with then is believed if it fits, fits better, and is less unusual.
    """
    mass = float(seen.masses.sum())
    weights = seen.masses / mass
    usual = model.usual
    # The mean total variation between proportions and a sample of them.
    sampling = float(np.sqrt(usual * (1.0 - usual) / (2.0 * np.pi * mass)).sum())
    found = _search(model, seen, votes, own_share)
    if (unusual := _gap(found.shares, usual)) > sampling:
        other = _search(model, seen, None, 1.0)
        if other.fits() and other.misfit < found.misfit and _gap(other.shares, usual) < unusual:
            found = other
    shares, expected = found.shares, found.expected
    centre, scale = _moments_at(model, seen, shares)
    # The gap found is large also where classes are merely mistaken; the gap that the votes show if the
    # moments are those of a usual mix is then small, but can be so by accident: it counts half as much.
    usual_moments = _moments_at(model, seen, usual)
    at_usual = reweight(model.own_proba(seen.means, *usual_moments), model.ratios(usual))
    gap = float(np.cbrt(_gap(shares, usual) ** 2 * _gap(weights @ at_usual, usual)))
    # Two halves of the evidence, averaged and not multiplied: as independent as that they are not.
    opinion = softmax(0.5 * (found.evidence + np.log(model.ratios(expected))), axis=1)
    doubt = 1.0 - float(weights @ opinion[np.arange(len(weights)), votes.argmax(axis=1)])
    misfit = max(1.0, found.misfit)
    if gap <= doubt + sampling and (model.told or model.prior.strength > mass):
        return Mix(True, usual, usual, *usual_moments, gap, doubt, sampling, misfit)
    return Mix(False, shares, expected, centre, scale, gap, doubt, sampling, misfit)


def _moments_at(model: SourceModel, seen: Seen, mix: Floats) -> tuple[Floats, Floats]:
    return model.of_rows.classes.at(seen.mean, seen.variance, mix, float(seen.masses.sum()))


def _search(model: SourceModel, seen: Seen, votes: Floats | None, own_share: float) -> _Found:
    """Find the mix that explains a target's components.

    Parameters
    ----------
    votes : array of shape (n_components, n_classes) or None
        Of the classifier that knows nothing of the target, with which the search begins; without it
        the search begins at the usual mix, and only the classifier votes that knows its moments.
    own_share : float
        Of the latter in the votes, as soon as it has one.
    """
    weights = seen.masses / float(seen.masses.sum())
    usual, n_classes = model.usual, model.n_classes
    classes = model.slot_classes
    n_slots = len(classes) // n_classes
    p = model.n_dimensions
    unit = np.concatenate([model.unit, model.unit])
    shares = expected = usual
    pooled = None if votes is None else np.log(votes + VOTE_FLOOR)
    if pooled is not None:
        for _ in range(_ROUNDS):
            shares = weights @ softmax(pooled + np.log(model.ratios(expected)), axis=1)
            expected = (shares + usual) / 2.0
    domain: Domain | None = None
    misfit = np.inf
    for number in range(_ROUNDS):
        centre, scale = _moments_at(model, seen, shares)
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
            misfit = float(np.vdot(domain.plan, distances)) / p
        table = distances.reshape(len(weights), n_classes, n_slots)
        nearest = table.min(axis=2)
        if pooled is not None and 2 * number < _ROUNDS:
            opinion = pooled
        else:
            opinion = np.log(model.of_rows.own.proba((seen.means - centre) / scale) + VOTE_FLOOR)
            if pooled is not None:
                opinion = (1.0 - own_share) * pooled + own_share * opinion
        for _ in range(_STEPS):
            half = 0.5 / max(1.0, misfit)
            # log Σ exp over the slots of a class, in units of the misfit
            near = np.log(np.exp(-half * (table - nearest[:, :, None])).sum(axis=2)) - half * nearest
            posterior = softmax(near + opinion + np.log(model.ratios(expected)), axis=1)
            shares = weights @ posterior
            expected = (shares + usual) / 2.0
            misfit = float(weights @ np.vecdot(posterior, nearest)) / p
    return _Found(shares, expected, near + opinion, misfit)
