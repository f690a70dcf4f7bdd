"""Six problems: five modes are labelled sources, the sixth flows in. Folds and orders of its stream."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from baryflow.datasets.tennessee_eastman import EMBEDDED, load_tep, read_features
from experiments.scores import Stream

FEATURES = Path(__file__).parent / "features"
FOLDS = 5
ORDERS = ("shuffled", "runs", "plant")
#: Rows of one fault after another: 10 runs of 30 h.
EPISODE = 10
#: Episodes of each fault in a plant's stream.
EPISODES = 2


@dataclass(frozen=True)
class Problem:
    """One target mode and one fold of it."""

    target: int
    fold: int
    Xs: np.ndarray
    ys: np.ndarray
    domain: np.ndarray
    X: np.ndarray  # rows that may flow
    y: np.ndarray
    head: np.ndarray  # what the encoder's own head says of them
    X_held: np.ndarray  # rows kept back
    y_held: np.ndarray
    head_held: np.ndarray
    X_normal: np.ndarray  # further rows of normal operation, for a plant's stream


def read(target, folder=FEATURES):
    """Return the features for a target mode and the rows of further normal operation."""
    embedded = Path(folder) == FEATURES and target in EMBEDDED
    whole = load_tep(target) if embedded else read_features(Path(folder) / f"target{target}.bary")
    normal = read_features(Path(folder) / f"normal{target}.bary")
    if (whole.target, whole.about.get("encoder")) != (normal.target, normal.about.get("encoder")):
        raise ValueError(f"target{target}.bary and normal{target}.bary are not of the same encoder")
    return whole, normal


def problem(whole, normal, fold):
    """Hold back every fifth run of the target."""
    is_target = whole.is_target
    held, flows = is_target & (whole.run % FOLDS == fold), is_target & (whole.run % FOLDS != fold)
    X = whole.X.astype(np.float64)
    return Problem(
        target=whole.target,
        fold=fold,
        Xs=X[~is_target],
        ys=whole.y[~is_target],
        domain=whole.domain[~is_target],
        X=X[flows],
        y=whole.y[flows],
        head=whole.head[flows],
        X_held=X[held],
        y_held=whole.y[held],
        head_held=whole.head[held],
        X_normal=normal.X.astype(np.float64),
    )


def stream(p, order):
    """Return the target in the order in which it flows, and the rows kept back.

    ``shuffled``: at random. ``runs``: ten runs of a fault after another, faults in turn at random.
    ``plant``: a quiet time, then normal operation interrupted by two episodes of each fault.
    """
    rng = np.random.default_rng([p.target, p.fold])
    if order == "shuffled":
        turn = rng.permutation(len(p.y))
        X, y = p.X[turn], p.y[turn]
    else:
        X, y = _episodes(p, order, rng)
    return Stream(X, y, p.X_held, p.y_held)


def _episodes(p, order, rng):
    episodes = []
    for fault in np.unique(p.y):
        rows = rng.permutation(np.flatnonzero(p.y == fault))
        cut = [rows[i : i + EPISODE] for i in range(0, len(rows), EPISODE)]
        episodes += cut if order == "runs" else cut[:EPISODES] if fault else []
    if order == "runs":
        turn = np.concatenate([episodes[i] for i in rng.permutation(len(episodes))])
        return p.X[turn], p.y[turn]
    normal = np.concatenate([p.X[p.y == 0], p.X_normal])
    normal = normal[rng.permutation(len(normal))]
    # A long quiet time first, then stretches of random length between the episodes.
    quiet = len(normal) // 5
    ends = np.sort(rng.integers(quiet, len(normal) + 1, size=len(episodes) - 1))
    stretches = np.split(normal, [quiet, *ends])
    parts = [(stretches[0], np.zeros(len(stretches[0]), dtype=p.y.dtype))]
    for number, stretch in zip(rng.permutation(len(episodes)), stretches[1:], strict=True):
        parts += [
            (p.X[episodes[number]], p.y[episodes[number]]),
            (stretch, np.zeros(len(stretch), dtype=p.y.dtype)),
        ]
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
