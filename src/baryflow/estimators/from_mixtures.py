"""Adaptation when all that is known of the domains is their mixtures."""

from __future__ import annotations

from typing import Any

import numpy as np

from baryflow.core.dictionary import Dictionary, Domain, farthest_first
from baryflow.core.gaussian import fast_squared_distances
from baryflow.core.mixture import Mixture
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats


def adapt_mixtures(
    sources: dict[Any, Mixture], target: Mixture, n_atoms: int | None, n_steps: int
) -> tuple[Dictionary, list[Domain], Domain, Floats, Mixture, Mixture]:
    """Learn a dictionary from labelled mixtures and an unlabelled one.

    Every atom has the same number of slots for each class, and every source its own class shares, so
    neither their order nor their proportions matter; the target is taken to have the mean shares.
    Points are moved to a common centre, so an offset costs no digits.
    """
    _check(sources, target)
    mixtures = list(sources.values())
    n_classes, d = mixtures[0].n_classes, target.n_features
    centre = np.mean([m.mean() for m in mixtures], axis=0)
    spatial = [np.hstack([m.means - centre, m.stds]) for m in mixtures]
    stacked = np.concatenate(spatial)
    root = float(np.sqrt(fast_squared_distances(stacked, stacked).max())) or 1.0
    points = [np.hstack([s, root * _labels(m)]) for s, m in zip(spatial, mixtures, strict=True)]
    codes = [_labels(m).argmax(axis=1) for m in mixtures]
    m = max(int(np.bincount(c).max()) for c in codes)
    slot_classes = np.repeat(np.arange(n_classes), m)
    one_hot = root * np.eye(n_classes)[slot_classes]
    slots = [
        np.hstack([_slots(number, spatial, codes, mixtures, m), one_hot])
        for number in range(len(points))
    ]
    shares = np.stack(
        [np.bincount(c, x.weights, n_classes) for c, x in zip(codes, mixtures, strict=True)]
    )

    chosen = farthest_first(slots, min(len(slots), n_atoms or max(2, min(4, len(slots) - 1))))
    floor = 1e-3 * float(min(x.stds.min() for x in mixtures))
    dictionary = Dictionary(
        np.stack([slots[i] for i in chosen]), d, label_scale=root, std_floor=max(floor, 1e-300)
    )
    even = np.full(len(chosen), 1.0 / len(chosen))
    domains = []
    for number, mixture in enumerate(mixtures):
        start = even
        if number in chosen:
            start = 0.2 * even + 0.8 * np.eye(len(chosen))[chosen.index(number)]
        slot_weights = shares[number, slot_classes] / m
        domains.append(
            Domain(mixture.weights, points[number], slot_weights, start, points[number].shape[1])
        )
    dictionary.fit(domains, max_steps=20)
    unlabelled = np.hstack(
        [target.means - centre, target.stds, np.zeros((target.n_components, n_classes))]
    )
    domain = Domain(target.weights, unlabelled, shares.mean(axis=0)[slot_classes] / m, even, 2 * d)
    for _ in range(3):
        dictionary.transport(domain)
        dictionary.move_coordinates(domain)
    curve = np.array([dictionary.step([*domains, domain]) for _ in range(n_steps)])
    dictionary.transport(domain)
    found = dictionary.reconstruction(domain)
    labels = found[:, 2 * d :] / found[:, 2 * d :].sum(axis=1, keepdims=True)
    reconstruction = Mixture(
        domain.slot_weights / domain.slot_weights.sum(),
        centre + found[:, :d],
        np.maximum(found[:, d : 2 * d], floor),
        labels,
        target.mass,
    )
    sent = domain.plan @ labels
    totals = sent.sum(axis=1, keepdims=True)  # a component that never occurs is sent nowhere
    votes = np.where(totals > 0.0, sent / np.where(totals > 0.0, totals, 1.0), 1.0 / n_classes)
    return dictionary, domains, domain, curve, reconstruction, target.with_labels(votes)


def _labels(mixture: Mixture) -> Floats:
    return np.zeros((mixture.n_components, 0)) if mixture.labels is None else mixture.labels


def _slots(
    number: int, spatial: list[Floats], codes: list[Any], mixtures: list[Mixture], m: int
) -> Floats:
    """Return m points for each class of a source, the heaviest repeated.

    A class that the source lacks is taken from the first source that has it, or stands in the middle.
    """
    rows = []
    for c in range(mixtures[0].n_classes):
        having = [n for n in (number, *range(len(codes))) if (codes[n] == c).any()]
        if not having:
            rows.append(np.tile(np.concatenate(spatial).mean(axis=0), (m, 1)))
            continue
        members = np.flatnonzero(codes[having[0]] == c)
        order = members[np.argsort(-mixtures[having[0]].weights[members], kind="stable")]
        rows.append(spatial[having[0]][order[np.arange(m) % len(order)]])
    return np.concatenate(rows)


def _check(sources: dict[Any, Mixture], target: Any) -> None:
    if not isinstance(target, Mixture):
        raise InvalidInputError(f"target must be a Mixture, got {type(target).__name__}")
    if not sources:
        raise InvalidInputError("sources must hold at least one labelled Mixture, got none")
    for name, mixture in sources.items():
        if not isinstance(mixture, Mixture) or mixture.labels is None:
            raise InvalidInputError(f"source {name!r} must be a labelled Mixture, got {mixture!r}")
        if mixture.n_features != target.n_features:
            raise InvalidInputError(
                f"source {name!r} has n_features={mixture.n_features}, the target {target.n_features}"
            )
    if len({mixture.n_classes for mixture in sources.values()}) > 1:
        raise InvalidInputError("all sources must have the same classes: pad their labels with zeros")
