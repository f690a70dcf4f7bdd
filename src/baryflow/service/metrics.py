"""Prometheus metrics.

To add one, declare a :class:`~prometheus_client.Counter` or a histogram in :class:`Metrics` and increase
it where the event happens, or add a value to :class:`StateCollector` if it can be read on demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Metric,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

#: Upper bounds of the buckets of request durations, in seconds.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics(Collector):
    """The metrics of one application, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._instruments: list[Counter | Histogram] = []
        self.requests = self._counter(
            "baryflow_requests",
            "HTTP requests by route, method and status.",
            "route",
            "method",
            "status",
        )
        self.seconds = Histogram(
            "baryflow_request_duration_seconds",
            "Time from the first byte of a request to the end of its response, by route.",
            ["route"],
            registry=None,
            buckets=_BUCKETS,
        )
        self._instruments.append(self.seconds)
        self.rows = self._counter("baryflow_rows", "Rows acknowledged.")
        self.batches = self._counter("baryflow_batches", "Batches of rows accepted.")
        self.repeated = self._counter(
            "baryflow_repeated_batches",
            "Batches answered from memory because they were accepted before.",
        )
        self.refused = self._counter("baryflow_refused_batches", "Batches of rows refused.")
        self.labels = self._counter("baryflow_labels", "Labels accepted.")
        self.rejected_labels = self._counter(
            "baryflow_rejected_labels", "Labels that could not be used; the answer has the reasons."
        )
        self.drifts = self._counter("baryflow_drifts", "Drifts detected.")
        self.alarms = self._counter("baryflow_alarms", "Alarms raised.")
        self.quarantined = self._counter(
            "baryflow_quarantined_rows", "Rows quarantined because the model failed on them."
        )
        self.shed = self._counter(
            "baryflow_shed_connections",
            "Connections without a complete request closed at the connection limit.",
        )
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        """Return a new counter; its name is exposed with the suffix ``_total``."""
        counter = Counter(name, description, labels, registry=None)
        self._instruments.append(counter)
        return counter

    def collect(self) -> Iterator[Metric]:
        """Yield all counters and histograms, without the time at which each was created."""
        for instrument in self._instruments:
            for metric in instrument.collect():
                metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
                yield metric

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request and its duration."""
        self.requests.labels(route, method, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def exposition(self) -> bytes:
        """Return all metrics in the Prometheus text format 0.0.4."""
        return generate_latest(self.registry)


class StateCollector(Collector):
    """Values that are read from the state of the service on each scrape."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the service, then those of individual targets if they are enabled."""
        state, targets = self._state, self._state.targets
        summaries = targets.summaries.copy()
        for name, description, value in (
            ("baryflow_ready", "1 if the service accepts requests, else 0.", targets.state == "ready"),
            ("baryflow_targets", "Targets in memory and on disk.", len(summaries)),
            ("baryflow_targets_in_memory", "Targets in memory.", targets.n_in_memory),
            ("baryflow_requests_waiting", "Batches of rows in progress or queued.", targets.n_waiting),
            ("baryflow_received_bytes", "Bytes of request bodies in memory.", state.inbox.held),
            ("baryflow_listeners", "Clients connected to live updates.", len(state.hub)),
            ("baryflow_replayed_batches", "Batches replayed at startup.", targets.total("replayed")),
        ):
            yield GaugeMetricFamily(name, description, float(value))
        for name, description, count in (
            ("baryflow_snapshots", "Snapshots written.", targets.total("snapshots")),
            (
                "baryflow_log_commits",
                "Times the journal was synced to disk.",
                targets.total("commits"),
            ),
            (
                "baryflow_log_batches",
                "Batches written to the journal.",
                targets.total("batches"),
            ),
        ):
            yield CounterMetricFamily(name, description, count)
        memory = targets.worker_memory()
        if memory:
            workers = GaugeMetricFamily(
                "baryflow_worker_memory_bytes",
                "Memory of a worker process; memory that processes share is divided among them.",
                labels=["worker"],
            )
            for number, value in enumerate(memory):
                workers.add_metric([str(number)], value)
            yield workers
        chosen = sorted(summaries)[: state.limits.target_metrics]
        families: tuple[tuple[str, type[CounterMetricFamily | GaugeMetricFamily], str, str], ...] = (
            ("baryflow_target_rows", CounterMetricFamily, "Rows acknowledged.", "rows_seen"),
            (
                "baryflow_target_reliability",
                GaugeMetricFamily,
                "Estimated accuracy of the predictions for the last batch, 0 to 1.",
                "reliability",
            ),
            (
                "baryflow_target_coverage",
                GaugeMetricFamily,
                "Share of the classes that were seen in the target, 0 to 1.",
                "coverage",
            ),
            (
                "baryflow_target_novelty",
                GaugeMetricFamily,
                "Share of novel rows in the last batch, 0 to 1.",
                "novelty",
            ),
            (
                "baryflow_target_certified_accuracy",
                GaugeMetricFamily,
                "Lower bound of the accuracy that labels prove, 0 to 1.",
                "certified_accuracy",
            ),
            ("baryflow_target_labels", CounterMetricFamily, "Labels accepted.", "n_labels"),
            ("baryflow_target_drifts", CounterMetricFamily, "Drifts detected.", "drifts"),
        )
        for name, kind, description, key in families if chosen else ():
            family = kind(name, description, labels=["target"])
            for target in chosen:
                if (value := summaries[target].get(key)) is not None:
                    family.add_metric([target], value)
            yield family
