"""Thresholds learned from the sources: how near to an alarm a target comes that does not change."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from baryflow.drift.betting import BettingDetector
from baryflow.drift.monitor import DriftMonitor
from baryflow.drift.ranking import SIGNALS
from baryflow.estimators._orders import stream_order
from baryflow.exceptions import InvalidInputError
from baryflow.validation import as_choice, as_count

_NEVER = 1e300


@dataclass(frozen=True)
class Calibration:
    """What sources that were played as streams have taught about thresholds.

    Attributes
    ----------
    factors : dict of str → float
        For each signal, how many times higher than by theory its threshold has to be; 1 at least.
    n_rows : int
        Rows that were watched.
    """

    factors: dict[str, float]
    n_rows: int


def calibrate(
    model: Any,
    X: Any = None,
    y: Any = None,
    sample_domain: Any = None,
    *,
    orders: Sequence[str] = ("shuffled", "runs"),
    batch_size: int = 32,
    most_rows: int = 2000,
    warm_up: int | None = None,
    seed: int = 0,
) -> Calibration:
    """Learn from the sources how high thresholds have to be.

    In theory a detector reaches the value v by chance once in v rows or more rarely, if rows of a
    class come in no particular order. Real rows come in runs, and classes are mistaken for each other.
    So each source plays a target that does not change. If the largest value M was seen within n rows,
    values as large come once in n rows, and by the same law values of M·v/n once in v: that is the
    threshold where it is above v.

    Parameters
    ----------
    model : OnlineDaDiL
        Fitted; it is not changed.
    X, y, sample_domain : arrays, optional
        Labelled rows of domains that do not change; without them the sources that the model has kept.
    orders : sequence of {"as_is", "shuffled", "runs"}
        In which orders a source is played: as its rows stand, at random, and in runs of twenty of one
        class.
    batch_size : int, default=32
    most_rows : int, default=2000
        Of each source.
    warm_up : int, optional
        As in :class:`~baryflow.drift.DriftMonitor`.
    seed : int, default=0

    Returns
    -------
    Calibration

    Raises
    ------
    InvalidInputError
        If there are no rows: none were given and none kept.
    """
    for order in orders:
        as_choice(order, "orders", ("as_is", "shuffled", "runs"))
    size, most = as_count(batch_size, "batch_size"), as_count(most_rows, "most_rows")
    if X is None:
        X, y, sample_domain = model.source_rows()
    elif y is None or sample_domain is None:
        raise InvalidInputError("calibrate needs y and sample_domain for the rows it is given")
    X, y, domains = np.asarray(X, dtype=np.float64), np.asarray(y), np.asarray(sample_domain)
    largest = dict.fromkeys(SIGNALS, 0.0)
    n_rows = 0
    for number, name in enumerate(np.unique(domains)):
        rows = np.flatnonzero(domains == name)
        for order in orders:
            rng = np.random.default_rng([seed, number])
            turn = rows if order == "as_is" else rows[stream_order(y[rows], order, rng)]
            values, watched = _play(model, X[turn[:most]], size, warm_up, seed)
            n_rows += watched
            largest = {key: max(value, values[key]) for key, value in largest.items()}
    factors = {key: max(1.0, value / n_rows) if n_rows else 1.0 for key, value in largest.items()}
    return Calibration(factors, n_rows)


def _play(model: Any, X: Any, size: int, warm_up: int | None, seed: int) -> tuple[dict[str, float], int]:
    """Return the largest value of each detector along a stream, and how many rows were watched."""
    twin = copy(model).forget()
    monitor = DriftMonitor(twin, false_alarm_every=_NEVER, warm_up=warm_up, seed=seed)
    watched = 0
    for start in range(0, len(X), size):
        report = monitor.update(X[start : start + size])
        watched += len(X[start : start + size]) if report.phase == "watching" else 0
        twin.partial_fit(X[start : start + size])
    return {
        name: detector.largest
        for name, detector in monitor.detectors.items()
        if isinstance(detector, BettingDetector)
    }, watched
