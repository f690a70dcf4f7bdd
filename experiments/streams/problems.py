"""Machines with their own calibration, and streams as plants send them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

#: Sets that are read from a folder, and whether every domain gets a calibration of its own.
SETS = {
    "cstr7": False,
    "fsdd6": False,
    "cstr7 recalibrated": True,
    "cwru4 recalibrated": True,
    "uestc4 recalibrated": True,
}
FLEETS = tuple(f"fleet {number}" for number in range(6))
KINDS = ("as it is", "80 % one class", "95 % one class", "half of the classes", "one class")
#: Offsets and gains of recalibrated columns, in units of their spread and as logarithms.
_OFFSET, _GAIN = 0.7, 0.3
#: Machines of a fleet, rows of each, conditions, sensors, and hidden states of a machine.
_MACHINES, _ROWS, _CONDITIONS, _SENSORS, _STATES = 6, 300, 5, 12, 4


def load(name, folder=None):
    """Return rows, class numbers and domains of a problem."""
    if name in FLEETS:
        return make_fleet(FLEETS.index(name))
    data = np.load(next(Path(folder).rglob(f"{name.split()[0]}.npz")))
    X, domain = data["X"].astype(np.float64), data["domain"]
    y = np.unique(data["y"], return_inverse=True)[1]
    X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    return (recalibrate(X, domain) if SETS[name] else X), y, domain


def make_fleet(seed):
    """Return machines of one kind: sensors see hidden states, which depend on the condition.

    Every machine has its own offset and gain of each sensor and its own load, which sensors see, too.
    The first condition is normal: no state is off its usual value.
    """
    rng = np.random.default_rng([seed, _MACHINES])
    mixing = rng.normal(size=(_STATES, _SENSORS)) / np.sqrt(_STATES)
    centres = np.vstack([np.zeros(_STATES), 1.3 * rng.normal(size=(_CONDITIONS - 1, _STATES))])
    response = rng.normal(size=_SENSORS)
    rows, labels = [], []
    for _ in range(_MACHINES):
        y = rng.integers(_CONDITIONS, size=_ROWS)
        severity = rng.uniform(0.6, 1.4, size=(_ROWS, 1))
        states = severity * centres[y] + 0.45 * rng.normal(size=(_ROWS, _STATES))
        load = rng.normal() + 0.5 * rng.normal(size=(_ROWS, 1))
        seen = states @ mixing + 0.6 * load * response + 0.15 * load**2 * np.abs(response)
        seen += 0.25 * rng.normal(size=seen.shape)
        offset, gain = 2.0 * rng.normal(size=_SENSORS), np.exp(0.4 * rng.normal(size=_SENSORS))
        rows.append(offset + gain * seen)
        labels.append(y)
    return np.concatenate(rows), np.concatenate(labels), np.repeat(np.arange(_MACHINES), _ROWS)


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
