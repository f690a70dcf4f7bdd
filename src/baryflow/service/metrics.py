"""Figures for Prometheus: aggregated, so that many targets do not make many series."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

#: Upper ends of the classes of durations, in seconds.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Durations:
    """How long things took: a histogram."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one.

        Parameters
        ----------
        seconds : float
        """
        self.counts[sum(seconds > bound for bound in BOUNDS)] += 1
        self.total += seconds

    def lines(self, name: str, label: str = "") -> list[str]:
        """Return it as Prometheus reads it.

        Parameters
        ----------
        name : str
        label : str
            ``key="value"``, if there is one.

        Returns
        -------
        list of str
        """
        before, found, so_far = f"{label}," if label else "", [], 0
        for bound, count in zip((*BOUNDS, "+Inf"), self.counts, strict=True):
            so_far += count
            found.append(f'{name}_bucket{{{before}le="{bound}"}} {so_far}')
        around = f"{{{label}}}" if label else ""
        return [*found, f"{name}_sum{around} {self.total:.6f}", f"{name}_count{around} {so_far}"]


class Metrics:
    """What a service counts.

    Attributes
    ----------
    requests : Counter
        By (route, method, status).
    seconds : dict of str → Durations
        By route.
    rows, batches, repeated, drifts, refused, shed, quarantined : int
        Rows acknowledged, requests with rows taken, those that had been taken before, drifts seen,
        requests with rows that were refused, incomplete connections closed at the limit, and batches
        on which the model failed.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.seconds: dict[str, Durations] = {}
        self.rows = self.batches = self.repeated = self.drifts = self.refused = self.shed = 0
        self.quarantined = 0

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request.

        Parameters
        ----------
        route, method : str
        status : int
        seconds : float
        """
        self.requests[route, method, status] += 1
        self.seconds.setdefault(route, Durations()).add(seconds)

    def own(self) -> list[str]:
        """Return what it has counted, as Prometheus reads it.

        Returns
        -------
        list of str
        """
        lines = list(
            family("baryflow_requests_total", "counter", "Requests, by route, method and status.")
        )
        for (route, method, status), n in sorted(self.requests.items()):
            lines.append(
                f'baryflow_requests_total{{route="{route}",method="{method}",status="{status}"}} {n}'
            )
        lines += family("baryflow_request_duration_seconds", "histogram", "Time to answer, by route.")
        for route, durations in sorted(self.seconds.items()):
            lines += durations.lines("baryflow_request_duration_seconds", f'route="{route}"')
        for name, value, words in (
            ("baryflow_rows_total", self.rows, "Rows acknowledged."),
            ("baryflow_batches_total", self.batches, "Requests with rows that were taken."),
            ("baryflow_repeated_batches_total", self.repeated, "Batches that had been taken before."),
            ("baryflow_refused_batches_total", self.refused, "Requests with rows that were refused."),
            ("baryflow_drifts_total", self.drifts, "Drifts seen."),
            ("baryflow_quarantined_batches_total", self.quarantined, "Batches the model failed on."),
            ("baryflow_shed_connections_total", self.shed, "Incomplete ones closed at the limit."),
        ):
            lines += family(name, "counter", words, value)
        return lines


def family(name: str, kind: str, words: str, value: float | None = None) -> Iterable[str]:
    """Return the lines of a figure.

    Parameters
    ----------
    name : str
    kind : {"counter", "gauge", "histogram"}
    words : str
    value : float, optional
        Without it only the head is returned.

    Returns
    -------
    iterable of str
    """
    head = [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
    return head if value is None else [*head, f"{name} {value}"]


def memory() -> int:
    """Return the bytes of memory that the process has.

    Returns
    -------
    int
        0 where only Linux could tell.
    """
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
