"""From the mixtures of the sources' classes to the atoms of a dictionary, and back to mixtures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from baryflow.core.dictionary import Dictionary, Domain, farthest_first
from baryflow.core.em import Reference, distinct_rows, fit_rows
from baryflow.core.mixture import Mixture
from baryflow.core.points import Points
from baryflow.core.transport import fast_squared_distances
from baryflow.validation import Floats, Integers

#: A class with fewer rows than this in a source is one component, its spread drawn towards the usual.
_FEW_ROWS = 5
#: Rows for each component that a class gets.
_ROWS_PER_COMPONENT = 5
_MAX_ATOMS = 4


def mix_class(V: Floats, unit: Floats, n_components: int, seed: int) -> Mixture:
    """Return the mixture of the rows of one class; `unit` is the usual spread within a class."""
    k = min(n_components, max(1, len(V) // _ROWS_PER_COMPONENT))
    rows, weights = distinct_rows(V, np.ones(len(V)))
    mixture = fit_rows(
        rows,
        weights,
        Reference(V.mean(axis=0), unit),
        min_components=k,
        std_floor=1e-2,
        rng=np.random.default_rng(seed),
    ).mixture
    if len(V) >= _FEW_ROWS:
        return mixture
    stds = np.sqrt((len(V) * mixture.stds**2 + unit**2) / (len(V) + 1))
    return Mixture(mixture.weights, mixture.means, stds, mass=mixture.mass)


def start_dictionary(
    parts: list[list[Mixture | None]],
    pooled: list[Mixture],
    shares: Floats,
    *,
    n_slots: int,
    n_atoms: int | None,
    std_floor: float,
) -> tuple[Dictionary, list[Domain]]:
    """Start the atoms from the sources themselves, and set up every source's reconstruction.

    Parameters
    ----------
    parts : list of lists of Mixture or None
        The mixture of every class of every source; None where it does not occur.
    pooled : list of Mixture
        Of every class on the whole: where a class that a source lacks starts. Its slots have no weight.
    shares : array of shape (n_sources, n_classes)
    n_slots : int
        Components of every class in an atom: slot j is of class j // n_slots.
    """
    n_sources, n_classes = shares.shape
    slots = [
        np.concatenate([_fill_slots(part or pooled[c], n_slots) for c, part in enumerate(source)])
        for source in parts
    ]
    stacked = np.concatenate(slots)
    # What a label costs: the largest distance between two components, so that classes stay apart.
    root = float(np.sqrt(fast_squared_distances(stacked, stacked).max())) or 1.0
    wanted = n_atoms or max(2, min(_MAX_ATOMS, n_sources - 1))
    chosen = farthest_first(slots, min(wanted, n_sources))
    labels = root * np.repeat(np.eye(n_classes), n_slots, axis=0)
    dictionary = Dictionary(
        np.stack([np.hstack([slots[s], labels]) for s in chosen]),
        stacked.shape[1] // 2,
        label_scale=root,
        std_floor=std_floor,
    )
    even = np.full(len(chosen), 1.0 / len(chosen))
    domains = []
    for number, source in enumerate(parts):
        present = [(c, part) for c, part in enumerate(source) if part is not None]
        start = even
        if number in chosen:
            start = 0.2 * even + 0.8 * np.eye(len(chosen))[chosen.index(number)]
        domains.append(
            Domain(
                weights=np.concatenate([shares[number, c] * part.weights for c, part in present]),
                points=np.concatenate([_label(part, c, root, n_classes) for c, part in present]),
                slot_weights=np.repeat(shares[number], n_slots) / n_slots,
                coordinates=start,
                n_used=dictionary.atoms.shape[2],
            )
        )
    return dictionary, domains


def _fill_slots(mixture: Mixture, n_slots: int) -> Floats:
    """Return exactly so many points (mean, std) for a class, the heaviest components repeated."""
    order = np.argsort(-mixture.weights, kind="stable")[np.arange(n_slots) % mixture.n_components]
    return np.hstack([mixture.means, mixture.stds])[order]


def _label(part: Mixture, c: int, root: float, n_classes: int) -> Floats:
    """Return the components of a class as labelled points."""
    labels = part.labels
    if labels is None:
        labels = np.tile(np.eye(n_classes)[c], (part.n_components, 1))
    return Points.join(part.means, part.stds, root * labels).values


def split_classes(
    mixtures: Sequence[Mixture], n_classes: int
) -> tuple[list[list[Mixture | None]], list[Mixture], Floats, int]:
    """Cut labelled mixtures into classes, a component going to its most probable one.

    Return the parts of each mixture, a part of every class for those that lack it, the shares of the
    classes, and the largest number of components that a class has.
    """
    everything = Mixture.concatenate(list(mixtures))
    codes = [_codes(mixture) for mixture in mixtures]
    parts = [
        [_some(mixture, code == c) for c in range(n_classes)]
        for mixture, code in zip(mixtures, codes, strict=True)
    ]
    # A class that no mixture has stands in the middle.
    middle = Mixture(np.ones(1), everything.mean()[None], everything.stds.mean(axis=0)[None])
    pooled = [next((part[c] for part in parts if part[c] is not None), middle) for c in range(n_classes)]
    shares = np.stack(
        [np.bincount(c, m.weights, n_classes) for c, m in zip(codes, mixtures, strict=True)]
    ).astype(np.float64)
    most = max(int(np.bincount(code).max()) for code in codes)
    return parts, [part or middle for part in pooled], shares, most


def _codes(mixture: Mixture) -> Integers:
    if mixture.labels is None:
        return np.zeros(mixture.n_components, dtype=np.intp)
    return np.asarray(mixture.labels.argmax(axis=1))


def _some(mixture: Mixture, which: Floats | Integers) -> Mixture | None:
    """Return some of the components as a mixture; None if there are none that weigh anything."""
    weights = mixture.weights[which]
    if not weights.any():
        return None
    labels = None if mixture.labels is None else mixture.labels[which]
    return Mixture(
        weights / weights.sum(),
        mixture.means[which],
        mixture.stds[which],
        labels,
        mixture.mass * float(weights.sum()),
    )


def atoms_as_mixtures(dictionary: Dictionary) -> list[Mixture]:
    """Return the atoms as labelled mixtures of uniform weight."""
    even = np.full(dictionary.n_slots, 1.0 / dictionary.n_slots)
    atoms = [Points(atom, dictionary.n_features) for atom in dictionary.atoms]
    return [
        Mixture(even, atom.means, atom.stds, atom.labels / atom.labels.sum(axis=1, keepdims=True))
        for atom in atoms
    ]
