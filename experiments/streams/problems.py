"""Machines with their own calibration, and streams as plants send them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.benchmark.problems import make_fleet

_NAMES = ("cstr7", "cwru4", "digits4", "fsdd6", "gas_drift8", "mgr", "uestc4")
#: Sets that are read from a folder, and whether every domain gets a calibration of its own.
SETS = dict.fromkeys(_NAMES, False) | {f"{name} recalibrated": True for name in _NAMES}
FLEETS = tuple(f"fleet {number}" for number in range(6))
PROBLEMS = (*FLEETS, *SETS)
KINDS = ("as it is", "80 % one class", "95 % one class", "half of the classes", "one class")
#: Streams in which a fault stays on after a mixed beginning; of fleets only.
FAULTS = tuple(f"lasting fault {number}" for number in range(1, 5))
MIXED, LASTING = 360, 900
#: Rows of all sources and of a target at most, and of a stream at least.
SOURCE_ROWS, TARGET_ROWS, FEWEST = 1500, 600, 30
#: Offsets and gains of recalibrated columns, in units of their spread and as logarithms.
_OFFSET, _GAIN = 0.7, 0.3
#: Rows of a machine, and those from which streams are drawn; a baseline is drawn from the others.
_ROWS, _STREAM_ROWS = 450, 300


@dataclass(frozen=True)
class Target:
    """Labelled sources, and a target whose labels are for scoring."""

    name: str
    sources: tuple  # rows, class numbers, domains
    X: np.ndarray
    y: np.ndarray
    streams: dict  # positions of rows, by kind

    def baseline(self, kind, n):
        """Return rows of the stream's most frequent class, and that class.

        They are not in the stream, unless the target has too few rows.
        """
        stream = self.streams[kind]
        label = np.bincount(self.y[stream]).argmax()
        mine = np.flatnonzero(self.y == label)
        order = np.argsort(np.isin(mine, stream), kind="stable")
        return self.X[mine[order[:n]]], label


def targets(name, folder=None, n=2):
    """Yield the largest domains of a problem as targets; of equal ones the last first."""
    X, y, domain, as_source, as_target = load(name, folder)
    names, counts = np.unique(domain[as_target], return_counts=True)
    for target in names[::-1][np.argsort(-counts[::-1], kind="stable")[:n]]:
        rng = np.random.default_rng([PROBLEMS.index(name), int(target)])
        taught = rng.permutation(np.flatnonzero((domain != target) & as_source))[:SOURCE_ROWS]
        rows = rng.permutation(np.flatnonzero((domain == target) & as_target))
        codes, most = y[rows], _STREAM_ROWS if name in FLEETS else TARGET_ROWS
        streams = {kind: draw(codes[:most], kind, rng) for kind in KINDS}
        if name in FLEETS:
            streams |= {kind: lasting_fault(codes, kind, rng) for kind in FAULTS}
        yield Target(
            str(target),
            (X[taught], y[taught], domain[taught] + 1),  # sources are positive
            X[rows],
            codes,
            {kind: some for kind, some in streams.items() if len(some) >= FEWEST},
        )


def load(name, folder=None):
    """Return rows, class numbers, domains, and which rows may be of sources and of targets."""
    if name in FLEETS:
        X, y, domain = make_fleet(FLEETS.index(name), _ROWS)
        return X, y, domain, np.ones(len(y), dtype=bool), np.ones(len(y), dtype=bool)
    data = np.load(next(Path(folder).rglob(f"{name.split()[0]}.npz")))
    X, domain = data["X"].astype(np.float64), data["domain"]
    y = np.unique(data["y"], return_inverse=True)[1]
    X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    as_source = as_target = np.ones(len(y), dtype=bool)
    if "song" in data:  # the same songs are in every domain: half of them for sources, half for targets
        songs = np.random.default_rng(0).permutation(np.unique(data["song"]))
        as_source = np.isin(data["song"], songs[: len(songs) // 2])
        as_target = ~as_source
    return (recalibrate(X, domain) if SETS[name] else X), y, domain, as_source, as_target


def recalibrate(X, domain, seed=0):
    """Return rows in which every domain has an offset and a gain of its own in every column."""
    rng, scale = np.random.default_rng(seed), X.std(axis=0)
    moved = np.empty_like(X)
    for name in np.unique(domain):
        gain = np.exp(_GAIN * rng.normal(size=X.shape[1]))
        offset = _OFFSET * scale * rng.normal(size=X.shape[1])
        moved[domain == name] = offset + gain * X[domain == name]
    return moved


def draw(y, kind, rng):
    """Return shuffled rows of a target that make a kind of stream."""
    classes = rng.permutation(np.unique(y))
    if kind == "as it is":
        return rng.permutation(len(y))
    if kind == "half of the classes":
        return rng.permutation(np.flatnonzero(np.isin(y, classes[: max(1, len(classes) // 2)])))
    mine, others = np.flatnonzero(y == classes[0]), rng.permutation(np.flatnonzero(y != classes[0]))
    if kind == "one class":
        return rng.permutation(mine)
    share = float(kind.split()[0]) / 100.0
    n = max(1, round(len(mine) * (1.0 - share) / share))
    return rng.permutation(np.concatenate([mine, others[:n]]))


def lasting_fault(y, kind, rng):
    """Return rows: a mixed beginning, then a fault that stays on, drawn with replacement."""
    fault = np.flatnonzero(y == int(kind.split()[-1]))
    return np.concatenate([rng.permutation(len(y))[:MIXED], rng.choice(fault, LASTING)])


def proportions(y, n_classes):
    """Return class proportions, none of which is zero."""
    counts = np.bincount(y, minlength=n_classes) + 1.0
    return counts / counts.sum()
