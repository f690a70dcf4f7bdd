"""Adaptation when all that is known of the domains is their mixtures."""

from __future__ import annotations

from typing import Any

import numpy as np

from baryflow.core.barycenter import barycenter
from baryflow.core.dictionary import Dictionary, Domain, farthest_first
from baryflow.core.mixture import Mixture
from baryflow.exceptions import InvalidInputError
from baryflow.validation import Floats


def adapt_mixtures(
    sources: dict[Any, Mixture], target: Mixture, n_atoms: int | None, n_steps: int
) -> tuple[Dictionary, list[Domain], Domain, Floats, Mixture, Mixture]:
    """Learn a dictionary from labelled mixtures and an unlabelled one."""
    if not sources:
        raise InvalidInputError("sources must hold at least one labelled Mixture, got none")
    for name, mixture in sources.items():
        if not isinstance(mixture, Mixture) or mixture.labels is None:
            raise InvalidInputError(f"source {name!r} must be a labelled Mixture, got {mixture!r}")
        if mixture.n_features != target.n_features:
            raise InvalidInputError(
                f"source {name!r} has n_features={mixture.n_features}, the target {target.n_features}"
            )
    mixtures = list(sources.values())
    n_classes = mixtures[0].n_classes
    if any(m.n_classes != n_classes for m in mixtures):
        raise InvalidInputError("all sources must have the same classes: pad their labels with zeros")
    k, d = max(m.n_components for m in mixtures), target.n_features
    # Every atom needs the same number of components, in an order that makes them comparable.
    first = barycenter([mixtures[0]], n_components=k)
    aligned = [barycenter([m], start=first) for m in mixtures]
    spatial = [np.hstack([m.means, m.stds]) for m in mixtures]
    root = float(
        np.sqrt(max(np.square(a[:, None] - b).sum(axis=2).max() for a in spatial for b in spatial))
    )
    root = max(root, 1e-12)

    def points(mixture: Mixture, labels: Any) -> Floats:
        return np.hstack([mixture.means, mixture.stds, root * labels])

    slots = [points(m, m.labels) for m in aligned]
    chosen = farthest_first(slots, min(len(slots), n_atoms or max(2, min(4, len(slots) - 1))))
    floor = 1e-3 * float(min(m.stds.min() for m in mixtures))
    dictionary = Dictionary(
        np.stack([slots[i] for i in chosen]), d, label_scale=root, std_floor=max(floor, 1e-300)
    )
    width = dictionary.atoms.shape[2]
    even = np.full(len(chosen), 1.0 / len(chosen))
    uniform = first.weights
    domains = []
    for number, mixture in enumerate(mixtures):
        start = even
        if number in chosen:
            start = 0.2 * even + 0.8 * np.eye(len(chosen))[chosen.index(number)]
        domains.append(Domain(mixture.weights, points(mixture, mixture.labels), uniform, start, width))
    dictionary.fit(domains, max_steps=20)
    unlabelled = points(target, np.zeros((target.n_components, n_classes)))
    domain = Domain(target.weights, unlabelled, uniform, even, 2 * d)
    for _ in range(3):
        dictionary.transport(domain)
        dictionary.move_coordinates(domain)
    curve = np.array([dictionary.step([*domains, domain]) for _ in range(n_steps)])
    dictionary.transport(domain)
    found = dictionary.reconstruction(domain)
    labels = found[:, 2 * d :] / found[:, 2 * d :].sum(axis=1, keepdims=True)
    reconstruction = Mixture(
        uniform, found[:, :d], np.maximum(found[:, d : 2 * d], floor), labels, target.mass
    )
    sent = domain.plan @ labels
    labelled = target.with_labels(sent / sent.sum(axis=1, keepdims=True))
    return dictionary, domains, domain, curve, reconstruction, labelled
