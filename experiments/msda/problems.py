"""The problems: a synthetic one from a generator script, and real data sets in NPZ files.

Neither is part of the project. ``BARYFLOW_DATA`` (or ``--data``) names a folder that holds
``affine_domains.py`` and the NPZ files with arrays X, y, domain, names (and song for mgr), directly
or in sub-folders; what is absent is skipped with a word.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from baryflow.estimators.decision import stream_order

SETS = ("affine", "cstr7", "gas_drift8", "mgr")
HELD_OUT = 0.2


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

    def pooled(self):
        names = np.repeat(np.arange(1, len(self.Xs) + 1), [len(y) for y in self.ys])
        return np.concatenate(self.Xs), np.concatenate(self.ys), names


def find(folder, name):
    found = sorted(Path(folder).rglob(name))
    return found[0] if found else None


def problems(folder, which, seed):
    """Yield the problems of one set. Seeds change the split; for affine they are the problem."""
    if which == "affine":
        path = find(folder, "affine_domains.py")
        if path is None:
            return
        spec = importlib.util.spec_from_file_location("affine_domains", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        p = module.make_problem(seed)
        yield _split("affine", f"seed{seed}", p["Xs"], p["ys"], p["Xt"], p["yt"], seed)
        return
    path = find(folder, f"{which}.npz")
    if path is None:
        return
    data = np.load(path)
    X, domain = data["X"].astype(np.float64), data["domain"]
    y = np.unique(data["y"], return_inverse=True)[1]
    as_source = as_target = np.ones(len(y), dtype=bool)
    if which == "mgr":  # the same songs are in every domain: half of them for sources, half for targets
        songs = np.random.default_rng(seed).permutation(np.unique(data["song"]))
        as_source = np.isin(data["song"], songs[: len(songs) // 2])
        as_target = ~as_source
    for number, name in enumerate(data["names"]):
        sources = [d for d in np.unique(domain) if d != number]
        yield _split(
            which,
            str(name),
            [X[(domain == d) & as_source] for d in sources],
            [y[(domain == d) & as_source] for d in sources],
            X[(domain == number) & as_target],
            y[(domain == number) & as_target],
            seed,
        )


def _split(which, target, Xs, ys, X, y, seed):
    order = np.random.default_rng([seed, 7]).permutation(len(y))
    n = round(HELD_OUT * len(y))
    held, stream = order[:n], np.sort(order[n:])
    return Problem(which, target, Xs, ys, X[stream], y[stream], X[held], y[held])


def in_order(y, order, seed):
    """Return the rows of the stream shuffled, class by class, or in runs of one class."""
    return stream_order(y, order, np.random.default_rng([seed, 11]))
