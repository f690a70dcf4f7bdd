"""The problems: a synthetic one, another from a generator script, and real data sets in NPZ files.

Only ``make_domains`` is part of the project. ``BARYFLOW_DATA`` (or ``--data``) names a folder that holds
``affine_domains.py`` and the NPZ files with arrays X, y, domain, names (and song for mgr), directly
or in sub-folders; what is absent is skipped with a word.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from baryflow.datasets import make_domains
from experiments import mixes
from experiments.scores import Stream

SETS = ("make_domains", "affine", "cstr7", "gas_drift8", "mgr", "digits4", "cwru4")
#: Splits of each set, or problems of the synthetic ones.
SPLITS = dict.fromkeys(SETS, (0,)) | {"make_domains": tuple(range(8)), "affine": (0, 1, 2)}
HELD_OUT = 0.2
#: Rows of each class in the synthetic sources, and in targets from which another mix is drawn.
FEW, MANY = 100, 400


@dataclass
class Problem:
    """Labelled sources, and a target cut into a stream and rows held out."""

    set: str
    target: str
    Xs: list
    ys: list
    X: np.ndarray  # the stream
    y: np.ndarray  # for scoring only
    X_held: np.ndarray
    y_held: np.ndarray
    #: Problems of the same target and draw have the same sources.
    draw: str = ""

    def pooled(self):
        names = np.repeat(np.arange(1, len(self.Xs) + 1), [len(y) for y in self.ys])
        return np.concatenate(self.Xs), np.concatenate(self.ys), names

    def stream(self, rows):
        return Stream(self.X[rows], self.y[rows], self.X_held, self.y_held)


def find(folder, name):
    found = sorted(Path(folder).rglob(name)) if folder is not None else []
    return found[0] if found else None


def targets(folder, which, seed):
    """Return the names of a set's targets; none if its data are absent."""
    if which == "make_domains":
        return [f"seed{seed}"]
    path = find(folder, "affine_domains.py" if which == "affine" else f"{which}.npz")
    if path is None:
        return []
    return [f"seed{seed}"] if which == "affine" else _names(np.load(path))


def _names(data):
    """Return the names of the domains of a file; without any they are numbered."""
    return [str(name) for name in (data["names"] if "names" in data else np.unique(data["domain"]))]


def problem(folder, which, target, seed, mix="as is"):
    """Return a problem with rows enough for a mix. Seeds change the split; synthetic, the problem."""
    if which == "make_domains":
        return _domains(target, seed, mix)
    if which == "affine":
        return _affine(find(folder, "affine_domains.py"), target, seed, mix)
    return _real(find(folder, f"{which}.npz"), which, target, seed)


def _domains(target, seed, mix):
    p = make_domains(n_per_class=MANY, random_state=seed)
    sources = [p.domain == d for d in np.unique(p.domain)]
    kept = [_first(p.y[own], FEW) for own in sources]
    found = _split(
        "make_domains",
        target,
        [p.X[own][few] for own, few in zip(sources, kept, strict=True)],
        [p.y[own][few] for own, few in zip(sources, kept, strict=True)],
        p.X_target,
        p.y_target,
        seed,
    )
    if mix == "as is":  # rows are in random order: the first are as good as any
        found.X, found.y = found.X[: mixes.MOST], found.y[: mixes.MOST]
    return found


def _affine(path, target, seed, mix):
    """As the script makes it; for other mixes with a larger target: another draw of the same problem."""
    spec = importlib.util.spec_from_file_location("affine_domains", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if mix == "as is":
        p = module.make_problem(seed)
        return _split("affine", target, p["Xs"], p["ys"], p["Xt"], p["yt"], seed)
    p = module.make_problem(seed, n_per_class=MANY)
    few = [_first(y, FEW) for y in p["ys"]]
    Xs, ys = ([v[rows] for v, rows in zip(p[name], few, strict=True)] for name in ("Xs", "ys"))
    found = _split("affine", target, Xs, ys, p["Xt"], p["yt"], seed)
    found.draw = "large"
    return found


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
    sources = [d for d in np.unique(domain) if d != number]
    return _split(
        which,
        target,
        [X[(domain == d) & as_source] for d in sources],
        [y[(domain == d) & as_source] for d in sources],
        X[(domain == number) & as_target],
        y[(domain == number) & as_target],
        seed,
    )


def _first(y, n):
    """Return the first n rows of every class, in the order in which they stand."""
    return np.sort(np.concatenate([np.flatnonzero(y == c)[:n] for c in np.unique(y)]))


def _split(which, target, Xs, ys, X, y, seed):
    order = np.random.default_rng([seed, 7]).permutation(len(y))
    n = round(HELD_OUT * len(y))
    held, stream = order[:n], np.sort(order[n:])
    return Problem(which, target, Xs, ys, X[stream], y[stream], X[held], y[held])


def flow(p, mix, order, seed):
    """Return the rows of the stream with a mix, in the order in which they flow."""
    rows = mixes.mixed(p.y, mix, np.random.default_rng([seed, 13]))
    return rows[mixes.in_order(p.y[rows], order, np.random.default_rng([seed, 11]))]
