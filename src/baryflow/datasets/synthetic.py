"""A synthetic multi-domain problem: one plant, several operating modes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from baryflow.validation import Floats, Integers, RandomState, as_count, as_generator, as_real


@dataclass(frozen=True, eq=False)
class Domains:
    """Labelled source domains and one target domain, whose labels are for scoring only.

    Attributes
    ----------
    X : array of shape (n_rows, n_features)
        Rows of the sources.
    y : array of shape (n_rows,)
        Their classes.
    domain : array of shape (n_rows,)
        Their sources, numbered from 1.
    X_target, y_target : arrays
        Rows and classes of the target.
    mixing : array of shape (n_sources,)
        How the target's operating mode is mixed from the sources' modes.
    """

    X: Floats
    y: Integers
    domain: Integers
    X_target: Floats
    y_target: Integers
    mixing: Floats


def make_domains(
    n_sources: int = 4,
    n_classes: int = 8,
    n_features: int = 8,
    n_per_class: int = 100,
    *,
    shift: float = 2.5,
    noise: float = 0.7,
    own: float = 0.15,
    random_state: RandomState = None,
) -> Domains:
    """Make domains whose classes move with the operating mode, each in its own way.

    Class c has the mean a_c + shift · (s_ℓ + v_cℓ) in source ℓ: a step common to all classes and a step
    of its own. In the target both steps are mixtures of the sources', with random proportions, plus a
    part of size `own` that no source has seen. A classifier of the pooled sources is therefore wrong in
    the target, while a barycenter of the sources with the right coordinates is nearly right.

    Parameters
    ----------
    n_sources, n_classes, n_features, n_per_class : int
    shift, noise, own : float
        Sizes of the domains' shift, of the spread within a class, and of what is particular to
        the target, all relative to the distance of classes.
    random_state : int, Generator or None

    Returns
    -------
    Domains

    Raises
    ------
    InvalidInputError
        If a number of something is not positive, or a size is negative.

    Examples
    --------
    >>> from baryflow.datasets import make_domains
    >>> problem = make_domains(n_sources=3, n_per_class=10, random_state=0)
    >>> problem.X.shape, problem.X_target.shape
    ((240, 8), (80, 8))
    """
    n_sources, n_classes, n_features, n_per_class = (
        as_count(value, name)
        for value, name in (
            (n_sources, "n_sources"),
            (n_classes, "n_classes"),
            (n_features, "n_features"),
            (n_per_class, "n_per_class"),
        )
    )
    shift, noise, own = (
        as_real(value, name, low=0.0)
        for value, name in ((shift, "shift"), (noise, "noise"), (own, "own"))
    )
    rng = as_generator(random_state)
    anchors = rng.standard_normal((n_classes, n_features))
    common = rng.standard_normal((n_sources, 1, n_features))
    particular = rng.standard_normal((n_sources, n_classes, n_features))
    steps = shift * (common + particular) / np.sqrt(2.0)
    spreads = noise * np.exp(0.3 * rng.standard_normal((n_sources, n_classes, n_features)))
    mixing = rng.dirichlet(np.ones(n_sources))

    means = anchors + steps
    unseen = own * rng.standard_normal((n_classes, n_features))
    target_means = anchors + np.tensordot(mixing, steps, axes=1) + unseen
    target_spreads = np.tensordot(mixing, spreads, axes=1)

    y = np.repeat(np.arange(n_classes), n_per_class)
    rows, labels, domains = [], [], []
    for source in range(n_sources):
        order = rng.permutation(y)
        draws = rng.standard_normal((len(y), n_features))
        rows.append(means[source, order] + spreads[source, order] * draws)
        labels.append(order)
        domains.append(np.full(len(y), source + 1))
    y_target = rng.permutation(y)
    draws = rng.standard_normal((len(y), n_features))
    return Domains(
        X=np.concatenate(rows),
        y=np.concatenate(labels),
        domain=np.concatenate(domains),
        X_target=target_means[y_target] + target_spreads[y_target] * draws,
        y_target=y_target,
        mixing=mixing,
    )
