"""Prometheus metrics.

To add one, add a counter to ``_COUNTERS`` and increase it where the event happens, or add a value to
:class:`TargetCollector` if it can be read on demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

#: Upper bounds of the buckets of request durations, in seconds.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: Counters by what they count: name and description. The name is exposed with the suffix ``_total``.
_COUNTERS = {
    "rows": ("rows", "Rows acknowledged."),
    "batches": ("batches", "Batches of rows accepted."),
    "repeated": (
        "repeated_batches",
        "Batches answered from memory because they were accepted before.",
    ),
    "refused": ("refused_batches", "Batches of rows refused."),
    "labels": ("labels", "Labels accepted."),
    "rejected_labels": (
        "rejected_labels",
        "Labels that could not be used; the answer has the reasons.",
    ),
    "drifts": ("drifts", "Drifts detected."),
    "alarms": ("alarms", "Alarms raised."),
    "quarantined": ("quarantined_rows", "Rows quarantined because the model failed on them."),
    "shed": (
        "shed_connections",
        "Connections without a complete request closed at the connection limit.",
    ),
}
#: Metrics of single targets: name, description, and figure of the summary.
_OF_TARGETS: tuple[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str, str], ...] = (
    (CounterMetricFamily, "rows", "Rows acknowledged.", "rows_seen"),
    (
        GaugeMetricFamily,
        "reliability",
        "Estimated accuracy of the predictions for the last batch, 0 to 1.",
        "reliability",
    ),
    (
        GaugeMetricFamily,
        "coverage",
        "Share of the classes that were seen in the target, 0 to 1.",
        "coverage",
    ),
    (GaugeMetricFamily, "novelty", "Share of novel rows in the last batch, 0 to 1.", "novelty"),
    (
        GaugeMetricFamily,
        "certified_accuracy",
        "Lower bound of the accuracy that labels prove, 0 to 1.",
        "certified_accuracy",
    ),
    (CounterMetricFamily, "labels", "Labels accepted.", "n_labels"),
    (CounterMetricFamily, "drifts", "Drifts detected.", "drifts"),
)


class Metrics(Collector):
    """The metrics of one application, in a registry of its own: requests, their durations, counters."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "baryflow_requests",
            "HTTP requests by route, method and status.",
            ["route", "method", "status"],
            registry=None,
        )
        self.seconds = Histogram(
            "baryflow_request_duration_seconds",
            "Time from the first byte of a request to the end of its response, by route.",
            ["route"],
            registry=None,
            buckets=_BUCKETS,
        )
        self.counters = {
            what: Counter(f"baryflow_{name}", description, registry=None)
            for what, (name, description) in _COUNTERS.items()
        }
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def collect(self) -> Iterator[Metric]:
        """Yield all counters and histograms, without the time at which each was created."""
        for instrument in (self.requests, self.seconds, *self.counters.values()):
            for metric in instrument.collect():
                metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
                yield metric


class TargetCollector(Collector):
    """Values that are read from the targets on each scrape.

    Parameters
    ----------
    targets : Targets
    """

    def __init__(self, targets: Any) -> None:  # imported here, `Targets` would make a circle
        self._targets = targets

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the service, then those of individual targets if they are enabled."""
        targets = self._targets
        summaries = targets.summaries.copy()
        for name, description, value in (
            ("ready", "1 if the service accepts requests, else 0.", targets.state == "ready"),
            ("targets", "Targets in memory and on disk.", len(summaries)),
            ("targets_in_memory", "Targets in memory.", targets.n_in_memory),
            ("requests_waiting", "Batches of rows in progress or queued.", targets.n_waiting),
            ("received_bytes", "Bytes of request bodies in memory.", targets.inbox.held),
            ("listeners", "Clients connected to live updates.", len(targets.hub)),
            ("replayed_batches", "Batches replayed at startup.", targets.total("replayed")),
        ):
            yield GaugeMetricFamily(f"baryflow_{name}", description, float(value))
        for name, description, what in (
            ("snapshots", "Snapshots written.", "snapshots"),
            ("log_commits", "Times the journal was synced to disk.", "commits"),
            ("log_batches", "Batches written to the journal.", "batches"),
        ):
            yield CounterMetricFamily(f"baryflow_{name}", description, targets.total(what))
        if memory := targets.worker_memory():
            workers = GaugeMetricFamily(
                "baryflow_worker_memory_bytes",
                "Memory of a worker process; memory that processes share is divided among them.",
                labels=["worker"],
            )
            for number, size in enumerate(memory):
                workers.add_metric([str(number)], size)
            yield workers
        chosen = sorted(summaries)[: targets.limits.target_metrics]
        for kind, name, description, figure in _OF_TARGETS if chosen else ():
            family = kind(f"baryflow_target_{name}", description, labels=["target"])
            for target in chosen:
                if (found := summaries[target].get(figure)) is not None:
                    family.add_metric([target], found)
            yield family
