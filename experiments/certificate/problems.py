"""Sources, and a target in some order and with some class proportions.

``make_domains`` is part of the project. A folder may hold NPZ files of further sets with the arrays
X, y, domain, names (and song for mgr), directly or in sub-folders; sets that are absent are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from baryflow.datasets import make_domains
from baryflow.estimators._orders import shift_labels, stream_order

SETS = ("make_domains", "cstr7", "gas_drift8", "mgr", "digits4", "cwru4")
#: Rows of a stream at most and at least.
MOST, FEWEST = 1600, 40
#: Share of a target's rows that is not used.
HELD_OUT = 0.2
#: Rows of each class in the synthetic sources, and in the target.
FEW, MANY = 100, 400


@dataclass
class Problem:
    """Labelled sources, pooled, and a target whose labels are for scoring only."""

    sources: tuple  # rows, class numbers, domains from 1
    X: np.ndarray
    y: np.ndarray


def targets(folder, which, seed):
    """Return the names of a set's targets; none if its data are absent."""
    if which == "make_domains":
        return [f"seed{seed}"]
    path = _find(folder, which)
    return [] if path is None else _names(np.load(path))


def problem(folder, which, target, seed, proportions="as is"):
    """Return a problem. Seeds change the split, and the synthetic problem."""
    if which != "make_domains":
        return _real(_find(folder, which), which, target, seed)
    p = make_domains(n_per_class=MANY, random_state=seed)
    sources = [(p.X[p.domain == d], p.y[p.domain == d]) for d in np.unique(p.domain)]
    kept = [_first(y, FEW) for _, y in sources]
    parts = [(X[few], y[few]) for (X, y), few in zip(sources, kept, strict=True)]
    found = _split(parts, p.X_target, p.y_target, seed)
    if proportions == "as is":  # rows are in random order: the first are as good as any
        found.X, found.y = found.X[:MOST], found.y[:MOST]
    return found


def flow(p, proportions, order, seed):
    """Return the rows of the stream with these class proportions, in the order in which they flow."""
    rows = np.arange(len(p.y))
    if proportions != "as is":
        rows = shift_labels(p.y, proportions, np.random.default_rng([seed, 13]), most=MOST)
    return rows[stream_order(p.y[rows], order, np.random.default_rng([seed, 11]))]


def _find(folder, which):
    found = sorted(Path(folder).rglob(f"{which}.npz")) if folder is not None else []
    return found[0] if found else None


def _names(data):
    """Return the names of the domains of a file; without any they are numbered."""
    return [str(name) for name in (data["names"] if "names" in data else np.unique(data["domain"]))]


def _real(path, which, target, seed):
    data = np.load(path)
    X, domain = data["X"].astype(np.float64), data["domain"]
    y = np.unique(data["y"], return_inverse=True)[1]
    as_source = as_target = np.ones(len(y), dtype=bool)
    if which == "mgr":  # the same songs are in every domain: half of them for sources, half for targets
        songs = np.random.default_rng(seed).permutation(np.unique(data["song"]))
        as_source = np.isin(data["song"], songs[: len(songs) // 2])
        as_target = ~as_source
    number = _names(data).index(target)
    sources = [(domain == d) & as_source for d in np.unique(domain) if d != number]
    own = (domain == number) & as_target
    return _split([(X[rows], y[rows]) for rows in sources], X[own], y[own], seed)


def _first(y, n):
    """Return the first n rows of every class, in the order in which they stand."""
    return np.sort(np.concatenate([np.flatnonzero(y == c)[:n] for c in np.unique(y)]))


def _split(parts, X, y, seed):
    Xs, ys = zip(*parts, strict=True)
    domain = np.repeat(np.arange(1, len(ys) + 1), [len(own) for own in ys])
    order = np.random.default_rng([seed, 7]).permutation(len(y))
    rows = np.sort(order[round(HELD_OUT * len(y)) :])
    return Problem((np.concatenate(Xs), np.concatenate(ys), domain), X[rows], y[rows])
